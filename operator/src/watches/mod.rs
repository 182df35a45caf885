//! What the operator sees of the cluster: one watch and one cache per kind, and what a change of each kind wakes.
//!
//! Secrets are neither watched nor cached.

mod caches;
mod queues;
#[cfg(test)]
mod tests;
mod wakes;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kube::core::DeserializeGuard;
use kube::runtime::reflector::store;
use kube::runtime::reflector::store::Writer;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch_kind};
use kube::{Api, Client};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tracing::{info, warn};

pub(crate) use self::caches::Caches;
use self::queues::queues;
pub(crate) use self::queues::{Inboxes, Queues};
use self::wakes::{Watched, dedup};
use crate::api::Kind;
use crate::health::Health;
use crate::replicas::Board;
use crate::settings::Scope;

/// Seconds after which a watch is opened anew: a server that hangs goes unnoticed no longer than this.
const WATCH_SECONDS: u32 = 10;

/// Starts every watch of `scope` in `tasks`. The caches fill in the background: see [`Caches::filled`].
pub(crate) fn start(
    client: &Client,
    scope: &Scope,
    health: &Arc<Health>,
    tasks: &mut JoinSet<()>,
) -> (Arc<Caches>, Queues, Inboxes) {
    let (workspaces, workspaces_writer) = store();
    let (agents, agents_writer) = store();
    let (sources, sources_writer) = store();
    let (grants, grants_writer) = store();
    let (deployments, deployments_writer) = store();
    let (services, services_writer) = store();
    let (service_accounts, service_accounts_writer) = store();
    let (claims, claims_writer) = store();
    let (policies, policies_writer) = store();
    let (budgets, budgets_writer) = store();
    let (roles, roles_writer) = store();
    let (role_bindings, role_bindings_writer) = store();
    let (pods, pods_writer) = store();
    let caches = Arc::new(Caches {
        workspaces,
        agents,
        sources,
        grants,
        deployments,
        services,
        service_accounts,
        claims,
        policies,
        budgets,
        roles,
        role_bindings,
        pods,
        board: Board::default(),
        pods_changed: Notify::new(),
    });
    let (queues, inboxes) = queues();
    let mut starter = Starter {
        client,
        scope,
        health,
        caches: &caches,
        queues: &queues,
        tasks,
    };
    starter.start(workspaces_writer);
    starter.start(agents_writer);
    starter.start(sources_writer);
    starter.start(grants_writer);
    starter.start(deployments_writer);
    starter.start(services_writer);
    starter.start(service_accounts_writer);
    starter.start(claims_writer);
    starter.start(policies_writer);
    starter.start(budgets_writer);
    starter.start(roles_writer);
    starter.start(role_bindings_writer);
    starter.start(pods_writer);
    (caches, queues, inboxes)
}

struct Starter<'a> {
    client: &'a Client,
    scope: &'a Scope,
    health: &'a Arc<Health>,
    caches: &'a Arc<Caches>,
    queues: &'a Queues,
    tasks: &'a mut JoinSet<()>,
}

impl Starter<'_> {
    fn start<K: Watched>(&mut self, writer: Writer<K>) {
        let api: Api<DeserializeGuard<K>> = match self.scope {
            Scope::Cluster => Api::all(self.client.clone()),
            Scope::Namespace(namespace) => Api::namespaced(self.client.clone(), namespace),
        };
        let mut config = watcher::Config::default().timeout(WATCH_SECONDS);
        if let Some(labels) = K::LABELS {
            config = config.labels(labels);
        }
        self.tasks.spawn(watch(
            api,
            config,
            writer,
            self.health.clone(),
            self.caches.clone(),
            self.queues.clone(),
        ));
    }
}

async fn watch<K: Watched>(
    api: Api<DeserializeGuard<K>>,
    config: watcher::Config,
    mut writer: Writer<K>,
    health: Arc<Health>,
    caches: Arc<Caches>,
    queues: Queues,
) {
    let kind: &'static str = Box::leak(K::kind(&()).into_owned().into_boxed_str());
    let reader = writer.as_reader();
    let mut events = std::pin::pin!(watch_kind(api, config).backoff(Pace::default()));
    let mut is_broken = false;
    while let Some(event) = events.next().await {
        let event = match event {
            Ok(event) => event,
            Err(_) => {
                health.metrics.watch_failed(kind);
                if !std::mem::replace(&mut is_broken, true) {
                    warn!(
                        kind,
                        "a watch broke; going on with what is known until it works again"
                    );
                }
                continue;
            }
        };
        if std::mem::replace(&mut is_broken, false) {
            info!(kind, "the watch works again");
        }
        let Some(event) = valid(event, kind, &health) else {
            continue;
        };
        writer.apply_watcher_event(&event);
        let wakes = match &event {
            Event::Apply(object) => object.wakes(&caches, false),
            Event::Delete(object) => object.wakes(&caches, true),
            Event::Init | Event::InitApply(_) => Vec::new(),
            // Only now does the cache show what the list brought.
            Event::InitDone => dedup(
                reader
                    .state()
                    .iter()
                    .flat_map(|object| object.wakes(&caches, false)),
            ),
        };
        queues.wake(&caches, wakes).await;
    }
}

/// The event without the fields that nobody here reads. `None` for an object that does not fit its schema: the cache
/// keeps its last good version, and the others are not harmed.
fn valid<K: Kind>(
    event: Event<DeserializeGuard<K>>,
    kind: &'static str,
    health: &Health,
) -> Option<Event<K>> {
    let check = |guard: DeserializeGuard<K>| match guard.0 {
        Ok(mut object) => {
            object.meta_mut().managed_fields = None;
            Some(object)
        }
        Err(invalid) => {
            health.metrics.found_invalid(kind);
            warn!(
                kind,
                object.namespace = invalid.metadata.namespace,
                object.name = invalid.metadata.name,
                "an object does not fit its schema and is left alone"
            );
            None
        }
    };
    Some(match event {
        Event::Apply(guard) => Event::Apply(check(guard)?),
        Event::InitApply(guard) => Event::InitApply(check(guard)?),
        Event::Delete(guard) => Event::Delete(check(guard)?),
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
    })
}

/// Pauses after a watch broke: short, since after an outage people wait for us.
#[derive(Default)]
struct Pace(u32);

impl Iterator for Pace {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0 = self.0.saturating_add(1);
        let longest = Duration::from_millis(100 << self.0.min(5)).min(Duration::from_secs(2));
        Some(crate::context::jittered(longest))
    }
}

impl Backoff for Pace {
    fn reset(&mut self) {
        self.0 = 0;
    }
}
