//! The four controllers. Each reconcile is the same straight line: observe, plan, apply, status.

mod agent;
mod summary;
mod tool_grant;
mod tool_source;
pub(crate) mod workspace;

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chandlery_crds::conditions::{kind, reason};
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::runtime::applier;
use kube::runtime::controller::{Action, Config};
use kube::runtime::events::EventType;
use kube::runtime::reflector::{ObjectRef, Store};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use crate::api::{Cluster, Error, Kind};
use crate::context::{self, Context, jittered};
use crate::health::Health;
use crate::keys::Happened;
use crate::replicas;
use crate::settings::{Scope, Settings};
use crate::watches::{self, Queues};
use workspace::plan::network::ApiServer;

/// Secrets and whatever else is read by name are read again this often, give or take a quarter.
const READ_AGAIN: Duration = Duration::from_secs(300);
/// And this often while something is missing.
const READ_AGAIN_SOON: Duration = Duration::from_secs(10);
/// After a failure, and after losing a race.
const RETRY: Duration = Duration::from_secs(3);
const RETRY_CONFLICT: Duration = Duration::from_millis(300);
/// How often the API server's own endpoints are looked up.
const API_SERVER_AGAIN: Duration = Duration::from_secs(15);
/// Reconciles of one kind at a time.
const CONCURRENCY: u16 = 8;

/// A resource that the operator looks after.
pub(crate) trait Reconciled: Kind + Send + Sync + 'static {
    const KIND: &'static str;

    /// One turn. Does not ask why it was called, and may be dropped at any await. `Err` means that the API server could
    /// not be talked to; people's mistakes are conditions.
    fn reconcile(
        object: Arc<Self>,
        ctx: Arc<Context>,
    ) -> impl Future<Output = Result<Next, Error>> + Send;
}

/// When to come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// When something changes.
    Change,
    After(Duration),
}

impl Next {
    /// Soon while something is missing, in a few minutes otherwise, and in time for what time alone changes.
    pub(crate) fn read_again(is_waiting: bool, at: Option<Timestamp>) -> Self {
        let usual = jittered(if is_waiting {
            READ_AGAIN_SOON
        } else {
            READ_AGAIN
        });
        let until =
            at.map(|at| Duration::try_from(at.duration_since(context::now())).unwrap_or_default());
        Self::After(until.map_or(usual, |until| until.min(usual)))
    }
}

/// Looks after one scope until it is dropped. Ends only when something that must go on has ended.
pub(crate) async fn run(cluster: Cluster, settings: &Settings, scope: &Scope, health: Arc<Health>) {
    let mut tasks = JoinSet::new();
    let (caches, queues, inboxes) = watches::start(&cluster.client(), scope, &health, &mut tasks);
    let (api_server_sender, api_server) = watch::channel(Vec::new());
    let ctx = Arc::new(Context::new(
        cluster,
        settings,
        health,
        caches.clone(),
        api_server,
    ));
    tasks.spawn(watch_api_server(
        ctx.clone(),
        api_server_sender,
        queues.clone(),
    ));
    let mut api_server = ctx.api_server.clone();
    if api_server
        .wait_for(|endpoints| !endpoints.is_empty())
        .await
        .is_err()
        || !caches.filled().await
    {
        return;
    }
    info!(?scope, "the caches are filled, the work begins");
    tasks.spawn(replicas::poll::run(ctx.clone(), queues));
    tasks.spawn(control(
        ctx.clone(),
        caches.workspaces.clone(),
        inboxes.workspaces,
    ));
    tasks.spawn(control(ctx.clone(), caches.agents.clone(), inboxes.agents));
    tasks.spawn(control(
        ctx.clone(),
        caches.sources.clone(),
        inboxes.sources,
    ));
    tasks.spawn(control(ctx, caches.grants.clone(), inboxes.grants));
    // All of them go on for ever: the first that ends is a fault, and dropping the set ends the others.
    if let Some(Err(error)) = tasks.join_next().await {
        warn!(%error, "a task of the operator has ended");
    }
}

/// Runs one controller: whatever comes out of `inbox` is reconciled, each object by one reconcile at a time.
async fn control<K: Reconciled>(
    ctx: Arc<Context>,
    store: Store<K>,
    mut inbox: mpsc::Receiver<ObjectRef<K>>,
) {
    let queue = stream::poll_fn(move |task| inbox.poll_recv(task)).map(Ok::<_, Infallible>);
    let config = Config::default().concurrency(CONCURRENCY);
    applier(
        |object, ctx| Box::pin(turn(object, ctx)),
        |_, _: &Infallible, _| Action::await_change(),
        ctx,
        store,
        queue,
        config,
    )
    // What comes out of it has been logged already, or is an object that has gone.
    .for_each(|_| std::future::ready(()))
    .await;
}

/// One reconcile with its log line, its metrics, and its retry.
async fn turn<K: Reconciled>(object: Arc<K>, ctx: Arc<Context>) -> Result<Action, Infallible> {
    let started = Instant::now();
    let result = K::reconcile(object.clone(), ctx.clone()).await;
    let label = result.as_ref().map_or_else(Error::label, |_| "ok");
    ctx.health
        .metrics
        .reconciled(K::KIND, label, started.elapsed());
    let meta = object.meta();
    Ok(match result {
        Ok(Next::Change) => Action::await_change(),
        Ok(Next::After(duration)) => Action::requeue(duration),
        Err(error) if error.is_conflict() || error.is_not_found() => {
            debug!(kind = K::KIND, object.namespace = meta.namespace, object.name = meta.name, %error, "somebody else was quicker");
            Action::requeue(jittered(RETRY_CONFLICT))
        }
        Err(error) => {
            warn!(kind = K::KIND, object.namespace = meta.namespace, object.name = meta.name, %error, "reconcile failed");
            Action::requeue(jittered(RETRY))
        }
    })
}

/// Keeps the API server's own addresses current.
async fn watch_api_server(
    ctx: Arc<Context>,
    sender: watch::Sender<Vec<ApiServer>>,
    queues: Queues,
) {
    loop {
        match ctx
            .cluster
            .get::<EndpointSlice>("default", "kubernetes")
            .await
        {
            Ok(Some(slice)) => {
                let endpoints = api_server_of(&slice);
                let is_news = !endpoints.is_empty() && *sender.borrow() != endpoints;
                if is_news && sender.send(endpoints).is_ok() {
                    queues.wake_accounts(&ctx.caches).await;
                }
            }
            Ok(None) => warn!(
                "there is no EndpointSlice default/kubernetes: gateways could not reach the API server"
            ),
            Err(error) => warn!(%error, "cannot read where the API server listens"),
        }
        let known = !sender.borrow().is_empty();
        tokio::time::sleep(jittered(if known { API_SERVER_AGAIN } else { RETRY })).await;
    }
}

fn api_server_of(slice: &EndpointSlice) -> Vec<ApiServer> {
    let ports = slice
        .ports
        .iter()
        .flatten()
        .filter_map(|port| u16::try_from(port.port?).ok());
    let mut endpoints: Vec<ApiServer> = ports
        .flat_map(|port| {
            let addresses = slice
                .endpoints
                .iter()
                .flat_map(|endpoint| &endpoint.addresses);
            addresses.filter_map(move |address| {
                Some(ApiServer {
                    address: address.parse().ok()?,
                    port,
                })
            })
        })
        .collect();
    endpoints.sort();
    endpoints.dedup();
    endpoints
}

/// Counts and tells what became of a key.
async fn keys_happened<K: Kind>(ctx: &Context, object: &K, happened: Option<Happened>) {
    match happened {
        Some(Happened::Rotated) => {
            ctx.health.metrics.key_rotations.inc();
            ctx.tell(
                object,
                EventType::Normal,
                "KeyRotated",
                "a new key is active; the old one retires",
            )
            .await;
        }
        Some(Happened::Regenerated) => {
            ctx.health.metrics.keys_regenerated.inc();
            let note =
                "the Secret with the key was lost: a new key was made, and the old one is revoked";
            ctx.tell(object, EventType::Warning, "KeyRegenerated", note)
                .await;
        }
        None => {}
    }
}

/// Tells once that a Secret of the wanted name is somebody else's.
async fn tell_conflict<K: Kind>(
    ctx: &Context,
    object: &K,
    before: &[Condition],
    after: &[Condition],
) {
    let conflict = |conditions: &[Condition]| {
        let stalled = conditions
            .iter()
            .find(|condition| condition.type_ == kind::STALLED);
        stalled
            .filter(|stalled| stalled.reason == reason::SECRET_CONFLICT)
            .map(|stalled| stalled.message.clone())
    };
    if let (None, Some(message)) = (conflict(before), conflict(after)) {
        ctx.tell(object, EventType::Warning, "SecretConflict", &message)
            .await;
    }
}
