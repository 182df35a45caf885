//! What the operator sees of the cluster: one watch and one cache per kind, and what a change of each kind wakes.
//!
//! Secrets are neither watched nor cached.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use chandlery_crds::conditions::{self, kind};
use chandlery_crds::fields::Conditions;
use chandlery_crds::{Agent, ToolGrant, ToolSource, Workspace, names};
use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::core::DeserializeGuard;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch_kind};
use kube::{Api, Client, ResourceExt};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::api::Kind;
use crate::health::Health;
use crate::objects::MANAGED_BY;
use crate::replicas::Board;
use crate::settings::Scope;

/// Seconds after which a watch is opened anew: a server that hangs goes unnoticed no longer than this.
const WATCH_SECONDS: u32 = 10;
/// References that wait for a controller; a full queue holds up the watch, never memory.
const QUEUE_LENGTH: usize = 1024;

/// What is known of one scope.
pub(crate) struct Caches {
    pub(crate) workspaces: Store<Workspace>,
    pub(crate) agents: Store<Agent>,
    pub(crate) sources: Store<ToolSource>,
    pub(crate) grants: Store<ToolGrant>,
    pub(crate) deployments: Store<Deployment>,
    pub(crate) services: Store<Service>,
    pub(crate) service_accounts: Store<ServiceAccount>,
    pub(crate) claims: Store<PersistentVolumeClaim>,
    pub(crate) policies: Store<NetworkPolicy>,
    pub(crate) budgets: Store<PodDisruptionBudget>,
    pub(crate) roles: Store<Role>,
    pub(crate) role_bindings: Store<RoleBinding>,
    pub(crate) pods: Store<Pod>,
    /// What the gateway pods report.
    pub(crate) board: Board,
    pub(crate) pods_changed: Notify,
}

/// A controller to wake, and for what.
pub(crate) enum Wake {
    Workspace(ObjectRef<Workspace>),
    Agent(ObjectRef<Agent>),
    Source(ObjectRef<ToolSource>),
    Grant(ObjectRef<ToolGrant>),
    Replicas,
}

/// The ways to wake the four controllers.
#[derive(Clone)]
pub(crate) struct Queues {
    workspaces: mpsc::Sender<ObjectRef<Workspace>>,
    agents: mpsc::Sender<ObjectRef<Agent>>,
    sources: mpsc::Sender<ObjectRef<ToolSource>>,
    grants: mpsc::Sender<ObjectRef<ToolGrant>>,
}

/// The controllers' ends of [`Queues`].
pub(crate) struct Inboxes {
    pub(crate) workspaces: mpsc::Receiver<ObjectRef<Workspace>>,
    pub(crate) agents: mpsc::Receiver<ObjectRef<Agent>>,
    pub(crate) sources: mpsc::Receiver<ObjectRef<ToolSource>>,
    pub(crate) grants: mpsc::Receiver<ObjectRef<ToolGrant>>,
}

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

impl Caches {
    /// Waits until every cache has seen the whole of its kind. `false`: a watch has ended, there is nothing to wait for.
    pub(crate) async fn filled(&self) -> bool {
        self.workspaces.wait_until_ready().await.is_ok()
            && self.agents.wait_until_ready().await.is_ok()
            && self.sources.wait_until_ready().await.is_ok()
            && self.grants.wait_until_ready().await.is_ok()
            && self.deployments.wait_until_ready().await.is_ok()
            && self.services.wait_until_ready().await.is_ok()
            && self.service_accounts.wait_until_ready().await.is_ok()
            && self.claims.wait_until_ready().await.is_ok()
            && self.policies.wait_until_ready().await.is_ok()
            && self.budgets.wait_until_ready().await.is_ok()
            && self.roles.wait_until_ready().await.is_ok()
            && self.role_bindings.wait_until_ready().await.is_ok()
            && self.pods.wait_until_ready().await.is_ok()
    }

    pub(crate) fn workspace(&self, namespace: &str, name: &str) -> Option<Arc<Workspace>> {
        self.workspaces.get(&ObjectRef::new(name).within(namespace))
    }

    /// The account that a grant is for; `None` while its Workspace is not there.
    pub(crate) fn account_of(&self, grant: &ToolGrant) -> Option<String> {
        let name = &grant.spec.workspace_ref.name;
        let workspace = self.workspace(&grant.namespace().unwrap_or_default(), name)?;
        Some(workspace.spec.account(name).to_owned())
    }

    /// The grants that name a source, whether or not it is their time.
    pub(crate) fn grants_of(&self, namespace: &str, source: &str) -> Vec<Arc<ToolGrant>> {
        self.grants
            .state_filter(|grant| is_naming(grant, namespace, source))
    }

    /// The sources that the grants of an account's Workspaces name, whether or not it is their time.
    pub(crate) fn sources_of(&self, namespace: &str, account: &str) -> Vec<Arc<ToolSource>> {
        let grants = self.grants.state_filter(|grant| {
            grant.metadata.namespace.as_deref() == Some(namespace)
                && self.account_of(grant).as_deref() == Some(account)
        });
        let named: HashSet<&str> = grants
            .iter()
            .flat_map(|grant| grant.spec.sources())
            .collect();
        self.sources.state_filter(|source| {
            let name = source.metadata.name.as_deref().unwrap_or_default();
            source.metadata.namespace.as_deref() == Some(namespace) && named.contains(name)
        })
    }

    /// Whether a Secret is where an Agent has its key, or people their tokens, so that no source may show it to anybody.
    pub(crate) fn keeps_keys(&self, namespace: &str, secret: &str) -> bool {
        let is_key = |agent: &Agent| {
            agent.metadata.namespace.as_deref() == Some(namespace)
                && key_secret(agent) == Some(secret)
        };
        let is_tokens = |workspace: &Workspace| {
            workspace.metadata.namespace.as_deref() == Some(namespace)
                && tokens_secret(workspace) == Some(secret)
        };
        self.agents.find(is_key).is_some() || self.workspaces.find(is_tokens).is_some()
    }

    /// The accounts whose gateways ask a source of that name.
    fn accounts_asking(&self, namespace: &str, source: &str) -> Vec<Wake> {
        let grants = self.grants_of(namespace, source);
        let accounts: BTreeSet<String> = grants
            .iter()
            .filter_map(|grant| self.account_of(grant))
            .collect();
        let account = |name: String| Wake::Workspace(ObjectRef::new(&name).within(namespace));
        accounts.into_iter().map(account).collect()
    }

    /// The sources that have their credential in a Secret, and the accounts that ask them.
    fn showing(&self, namespace: &str, secret: Option<&str>) -> Vec<Wake> {
        let Some(secret) = secret else {
            return Vec::new();
        };
        let sources = self.sources.state_filter(|source| {
            let credential = source.spec.credential_ref();
            source.metadata.namespace.as_deref() == Some(namespace)
                && credential.is_some_and(|(reference, _)| reference.name == secret)
        });
        let wakes = sources.iter().flat_map(|source| {
            let accounts = self.accounts_asking(namespace, &source.name_any());
            accounts.into_iter().chain([source_wake(source)])
        });
        wakes.collect()
    }

    /// Agents, grants and sources that wait for something may get it from any change around them; what is ready does not.
    fn waiting(&self, namespace: &str) -> Vec<Wake> {
        let mut wakes = self.waiting_agents(namespace, |_| true);
        wakes.extend(self.waiting_grants(namespace));
        wakes.extend(self.waiting_sources(namespace));
        wakes
    }

    fn waiting_sources(&self, namespace: &str) -> Vec<Wake> {
        let sources = self.sources.state_filter(|source| {
            source.metadata.namespace.as_deref() == Some(namespace)
                && !is_ready(source.status.as_ref().map(|status| &status.conditions))
        });
        sources.iter().map(source_wake).collect()
    }

    fn waiting_agents(&self, namespace: &str, is_meant: impl Fn(&Agent) -> bool) -> Vec<Wake> {
        let agents = self.agents.state_filter(|agent| {
            is_meant(agent)
                && agent.metadata.namespace.as_deref() == Some(namespace)
                && !is_ready(agent.status.as_ref().map(|status| &status.conditions))
        });
        agents
            .iter()
            .map(|agent| Wake::Agent(ObjectRef::from_obj(agent.as_ref())))
            .collect()
    }

    fn waiting_grants(&self, namespace: &str) -> Vec<Wake> {
        let grants = self.grants.state_filter(|grant| {
            grant.metadata.namespace.as_deref() == Some(namespace)
                && !is_ready(grant.status.as_ref().map(|status| &status.conditions))
        });
        grants
            .iter()
            .map(|grant| Wake::Grant(ObjectRef::from_obj(grant.as_ref())))
            .collect()
    }
}

fn source_wake(source: &Arc<ToolSource>) -> Wake {
    Wake::Source(ObjectRef::from_obj(source.as_ref()))
}

/// Whether a grant names a source of a namespace.
fn is_naming(grant: &ToolGrant, namespace: &str, source: &str) -> bool {
    grant.metadata.namespace.as_deref() == Some(namespace)
        && grant.spec.sources().any(|named| named == source)
}

/// The Secret that an Agent names for its key.
fn key_secret(agent: &Agent) -> Option<&str> {
    agent.spec.key.as_ref()?.secret_name.as_deref()
}

/// The Secret that a Workspace names for its people's tokens.
fn tokens_secret(workspace: &Workspace) -> Option<&str> {
    let people = workspace.spec.people.as_ref()?;
    Some(&people.tokens_secret_ref.name)
}

fn is_ready(conditions: Option<&Conditions>) -> bool {
    conditions.is_some_and(|conditions| conditions::is_true(conditions, kind::READY))
}

/// A kind that is watched.
pub(crate) trait Watched: Kind + Send + Sync + 'static {
    /// Which of its objects; `None`: all of them.
    const LABELS: Option<&str>;

    /// What a change of this object wakes. `gone`: it has been deleted.
    fn wakes(&self, caches: &Caches, gone: bool) -> Vec<Wake>;
}

impl Watched for Workspace {
    const LABELS: Option<&str> = None;

    fn wakes(&self, caches: &Caches, gone: bool) -> Vec<Wake> {
        let (namespace, name) = (self.namespace().unwrap_or_default(), self.name_any());
        let members = caches.workspaces.state_filter(|other| {
            other.namespace().as_deref() == Some(&namespace)
                && other
                    .spec
                    .account_ref
                    .as_ref()
                    .is_some_and(|account| account.name == name)
        });
        let mut wakes = vec![Wake::Workspace(ObjectRef::from_obj(self))];
        wakes.extend(
            members
                .iter()
                .map(|member| Wake::Workspace(ObjectRef::from_obj(member.as_ref()))),
        );
        if gone {
            let agents = caches
                .agents
                .state_filter(|agent| agent.namespace().as_deref() == Some(&namespace));
            wakes.extend(
                agents
                    .iter()
                    .map(|agent| Wake::Agent(ObjectRef::from_obj(agent.as_ref()))),
            );
        }
        wakes.extend(caches.waiting(&namespace));
        wakes.extend(caches.showing(&namespace, tokens_secret(self)));
        // What a grant may name is up to its Workspace.
        let grants = caches.grants.state_filter(|grant| {
            grant.namespace().as_deref() == Some(&namespace)
                && grant.spec.workspace_ref.name == name
        });
        wakes.extend(
            grants
                .iter()
                .map(|grant| Wake::Grant(ObjectRef::from_obj(grant.as_ref()))),
        );
        wakes
    }
}

impl Watched for Agent {
    const LABELS: Option<&str> = None;

    fn wakes(&self, caches: &Caches, _gone: bool) -> Vec<Wake> {
        let namespace = self.namespace().unwrap_or_default();
        let mut wakes = vec![Wake::Agent(ObjectRef::from_obj(self))];
        // A grant may wait for this agent, and an agent for a key that this one held.
        wakes.extend(caches.waiting_grants(&namespace));
        wakes.extend(caches.waiting_agents(&namespace, brings_its_key));
        wakes.extend(caches.showing(&namespace, key_secret(self)));
        wakes
    }
}

fn brings_its_key(agent: &Agent) -> bool {
    agent
        .spec
        .key
        .as_ref()
        .is_some_and(|key| key.existing_secret_ref.is_some())
}

impl Watched for ToolSource {
    const LABELS: Option<&str> = None;

    fn wakes(&self, caches: &Caches, gone: bool) -> Vec<Wake> {
        let namespace = self.namespace().unwrap_or_default();
        let mut wakes = vec![Wake::Source(ObjectRef::from_obj(self))];
        if gone {
            let grants = caches
                .grants
                .state_filter(|grant| grant.namespace().as_deref() == Some(&namespace));
            wakes.extend(
                grants
                    .iter()
                    .map(|grant| Wake::Grant(ObjectRef::from_obj(grant.as_ref()))),
            );
        } else {
            wakes.extend(caches.waiting_grants(&namespace));
        }
        // What a gateway may read is up to the sources that it asks.
        wakes.extend(caches.accounts_asking(&namespace, &self.name_any()));
        wakes
    }
}

impl Watched for ToolGrant {
    const LABELS: Option<&str> = None;

    fn wakes(&self, caches: &Caches, _gone: bool) -> Vec<Wake> {
        let namespace = self.namespace().unwrap_or_default();
        let mut wakes = vec![Wake::Grant(ObjectRef::from_obj(self))];
        let account = caches.account_of(self);
        wakes.extend(
            account.map(|account| Wake::Workspace(ObjectRef::new(&account).within(&namespace))),
        );
        // Those that it names, and those that it may have named before: they are known, and no grant names them now.
        let sources = caches.sources.state_filter(|source| {
            let name = source.metadata.name.as_deref().unwrap_or_default();
            source.metadata.namespace.as_deref() == Some(&namespace)
                && (is_naming(self, &namespace, name)
                    || (is_known(source)
                        && caches
                            .grants
                            .find(|grant| is_naming(grant, &namespace, name))
                            .is_none()))
        });
        wakes.extend(sources.iter().map(source_wake));
        wakes
    }
}

/// Whether the status says something of what gateways have found.
fn is_known(source: &ToolSource) -> bool {
    let conditions = source.status.iter().flat_map(|status| &status.conditions);
    conditions
        .into_iter()
        .any(|condition| condition.type_ == kind::REACHABLE && condition.status != "Unknown")
}

/// Selects what the operator has made.
const OURS: Option<&str> = Some("app.kubernetes.io/managed-by=chandlery-operator");

/// The Workspace that an object of ours belongs to.
fn workspace_of(object: &impl ResourceExt) -> Vec<Wake> {
    debug_assert!(object.labels().contains_key(MANAGED_BY));
    let workspace = object.labels().get(names::WORKSPACE_LABEL);
    workspace
        .map(|name| {
            Wake::Workspace(ObjectRef::new(name).within(&object.namespace().unwrap_or_default()))
        })
        .into_iter()
        .collect()
}

macro_rules! watched_for_its_workspace {
    ($($kind:ty),+) => {$(
        impl Watched for $kind {
            const LABELS: Option<&str> = OURS;

            fn wakes(&self, _caches: &Caches, _gone: bool) -> Vec<Wake> {
                workspace_of(self)
            }
        }
    )+};
}

watched_for_its_workspace!(
    Deployment,
    Service,
    ServiceAccount,
    PersistentVolumeClaim,
    NetworkPolicy,
    PodDisruptionBudget,
    Role,
    RoleBinding
);

impl Watched for Pod {
    const LABELS: Option<&str> = OURS;

    fn wakes(&self, caches: &Caches, _gone: bool) -> Vec<Wake> {
        let mut wakes = workspace_of(self);
        wakes.push(Wake::Replicas);
        // Who waits for every replica may have waited for this one.
        wakes.extend(caches.waiting(&self.namespace().unwrap_or_default()));
        wakes
    }
}

fn queues() -> (Queues, Inboxes) {
    let (workspaces, workspaces_inbox) = mpsc::channel(QUEUE_LENGTH);
    let (agents, agents_inbox) = mpsc::channel(QUEUE_LENGTH);
    let (sources, sources_inbox) = mpsc::channel(QUEUE_LENGTH);
    let (grants, grants_inbox) = mpsc::channel(QUEUE_LENGTH);
    (
        Queues {
            workspaces,
            agents,
            sources,
            grants,
        },
        Inboxes {
            workspaces: workspaces_inbox,
            agents: agents_inbox,
            sources: sources_inbox,
            grants: grants_inbox,
        },
    )
}

impl Queues {
    /// Wakes the controllers. A controller that has ended is not woken: the whole scope is about to end then.
    async fn wake(&self, caches: &Caches, wakes: Vec<Wake>) {
        for wake in wakes {
            match wake {
                Wake::Workspace(workspace) => drop(self.workspaces.send(workspace).await),
                Wake::Agent(agent) => drop(self.agents.send(agent).await),
                Wake::Source(source) => drop(self.sources.send(source).await),
                Wake::Grant(grant) => drop(self.grants.send(grant).await),
                Wake::Replicas => caches.pods_changed.notify_one(),
            }
        }
    }

    /// Wakes the Agents, ToolGrants and ToolSources with these UIDs.
    pub(crate) async fn wake_uids(&self, caches: &Caches, uids: &BTreeSet<String>) {
        if uids.is_empty() {
            return;
        }
        let is_meant = |uid: Option<String>| uid.is_some_and(|uid| uids.contains(&uid));
        let agents = caches.agents.state_filter(|agent| is_meant(agent.uid()));
        let grants = caches.grants.state_filter(|grant| is_meant(grant.uid()));
        let agents = agents
            .iter()
            .map(|agent| Wake::Agent(ObjectRef::from_obj(agent.as_ref())));
        let grants = grants
            .iter()
            .map(|grant| Wake::Grant(ObjectRef::from_obj(grant.as_ref())));
        let sources = caches.sources.state_filter(|source| is_meant(source.uid()));
        let sources = sources.iter().map(source_wake);
        self.wake(caches, agents.chain(grants).chain(sources).collect())
            .await;
    }

    /// Wakes every account: something outside of them has changed.
    pub(crate) async fn wake_accounts(&self, caches: &Caches) {
        let accounts = caches
            .workspaces
            .state_filter(|workspace| workspace.spec.account_ref.is_none());
        let wakes = accounts
            .iter()
            .map(|account| Wake::Workspace(ObjectRef::from_obj(account.as_ref())));
        self.wake(caches, wakes.collect()).await;
    }
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

/// One wake per object: a list of a thousand agents would wake those that wait a thousand times.
fn dedup(wakes: impl Iterator<Item = Wake>) -> Vec<Wake> {
    let mut seen: HashSet<(u8, String)> = HashSet::new();
    wakes
        .filter(|wake| {
            let key = match wake {
                Wake::Workspace(object) => (0, object.to_string()),
                Wake::Agent(object) => (1, object.to_string()),
                Wake::Source(object) => (2, object.to_string()),
                Wake::Grant(object) => (3, object.to_string()),
                Wake::Replicas => (4, String::new()),
            };
            seen.insert(key)
        })
        .collect()
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

#[cfg(test)]
mod tests {
    use chandlery_crds::manifest::{self, Resource};

    use super::*;

    /// Caches with the objects that `text` holds, as if they had been watched.
    fn caches(text: &str) -> Caches {
        let (workspaces, mut workspaces_writer) = store();
        let (agents, mut agents_writer) = store();
        let (sources, mut sources_writer) = store();
        let (grants, mut grants_writer) = store();
        let read = manifest::read(
            "f.yaml",
            &text.replace("v1alpha1 ", "apiVersion: chandlery.dev/v1alpha1\nkind: "),
        );
        assert_eq!(read.problems, []);
        for object in read.objects {
            match object.resource {
                Resource::Workspace(object) => {
                    workspaces_writer.apply_watcher_event(&Event::Apply(*object))
                }
                Resource::Agent(object) => {
                    agents_writer.apply_watcher_event(&Event::Apply(*object))
                }
                Resource::ToolSource(object) => {
                    sources_writer.apply_watcher_event(&Event::Apply(*object))
                }
                Resource::ToolGrant(object) => {
                    grants_writer.apply_watcher_event(&Event::Apply(*object))
                }
                Resource::Secret(_) | Resource::ConfigMap(_) => panic!("neither is cached"),
            }
        }
        Caches {
            workspaces,
            agents,
            sources,
            grants,
            deployments: store().0,
            services: store().0,
            service_accounts: store().0,
            claims: store().0,
            policies: store().0,
            budgets: store().0,
            roles: store().0,
            role_bindings: store().0,
            pods: store().0,
            board: Board::default(),
            pods_changed: Notify::new(),
        }
    }

    /// The names of what is woken, each once, in order.
    fn names_of(wakes: Vec<Wake>) -> Vec<String> {
        let names = wakes.into_iter().map(|wake| match wake {
            Wake::Workspace(object) => format!("workspace {}", object.name),
            Wake::Agent(object) => format!("agent {}", object.name),
            Wake::Source(object) => format!("source {}", object.name),
            Wake::Grant(object) => format!("grant {}", object.name),
            Wake::Replicas => "replicas".to_owned(),
        });
        let names: BTreeSet<String> = names.collect();
        names.into_iter().collect()
    }

    const HARBOUR: &str = "\
v1alpha1 Workspace\nmetadata: {name: home}\nspec: {}\n---\n\
v1alpha1 Workspace\nmetadata: {name: annex}\nspec: {accountRef: {name: home}}\n---\n\
v1alpha1 Workspace\nmetadata: {name: other}\nspec: {people: {tokensSecretRef: {name: tokens}}}\n---\n\
v1alpha1 ToolSource\nmetadata: {name: crm}\nspec: {mcp: {url: 'https://a.example'}, auth: {bearer: {secretKeyRef: {name: crm, key: t}}}}\n---\n\
v1alpha1 ToolSource\nmetadata: {name: hr}\nspec: {mcp: {url: 'https://a.example'}, auth: {bearer: {secretKeyRef: {name: mine, key: t}}}}\n---\n\
v1alpha1 ToolSource\nmetadata: {name: spare}\nspec: {mcp: {url: 'https://a.example'}}\n---\n\
v1alpha1 Agent\nmetadata: {name: a}\nspec: {workspaceRef: {name: home}, key: {secretName: mine}}\n---\n\
v1alpha1 ToolGrant\nmetadata: {name: of-annex}\nspec: {workspaceRef: {name: annex}, agents: {all: true}, tools: [crm/list, crm/get, memory]}\n---\n\
v1alpha1 ToolGrant\nmetadata: {name: of-other}\nspec: {workspaceRef: {name: other}, agents: {all: true}, tools: [hr/*]}\n---\n\
v1alpha1 ToolGrant\nmetadata: {name: of-nobody}\nspec: {workspaceRef: {name: gone}, agents: {all: true}, tools: [crm/*]}\n";

    #[test]
    fn an_account_asks_the_sources_that_grants_of_its_workspaces_name() {
        let caches = caches(HARBOUR);
        let sources = |account| {
            let sources = caches.sources_of("default", account);
            sources
                .iter()
                .map(|source| source.name_any())
                .collect::<Vec<_>>()
        };
        assert_eq!(sources("home"), ["crm"]);
        assert_eq!(sources("other"), ["hr"]);
        assert!(sources("annex").is_empty());
        assert_eq!(caches.grants_of("default", "crm").len(), 2);
        assert!(caches.grants_of("elsewhere", "crm").is_empty());
        for (secret, expected) in [("mine", true), ("tokens", true), ("crm", false)] {
            assert_eq!(caches.keeps_keys("default", secret), expected, "{secret}");
        }
    }

    #[test]
    fn what_a_gateway_may_read_and_a_source_says_follows_grants_and_sources() {
        let caches = caches(HARBOUR);
        let source = |name: &str| {
            let found = caches.sources.find(|source| source.name_any() == name);
            found.unwrap()
        };
        let grant = caches
            .grants
            .find(|grant| grant.name_any() == "of-annex")
            .unwrap();
        let of_grant = ["grant of-annex", "source crm", "workspace home"];
        assert_eq!(names_of(grant.wakes(&caches, false)), of_grant);
        assert_eq!(names_of(grant.wakes(&caches, true)), of_grant);
        let of_source = names_of(source("hr").wakes(&caches, false));
        assert!(
            of_source.contains(&"workspace other".to_owned()),
            "{of_source:?}"
        );
        assert!(
            !of_source.contains(&"workspace home".to_owned()),
            "{of_source:?}"
        );
        // Its key's Secret is the one that hr names for a credential.
        let agent = caches.agents.find(|agent| agent.name_any() == "a").unwrap();
        let of_agent = names_of(agent.wakes(&caches, false));
        for expected in ["source hr", "workspace other"] {
            assert!(of_agent.contains(&expected.to_owned()), "{of_agent:?}");
        }
    }

    #[test]
    fn a_source_that_no_grant_names_any_more_is_woken() {
        let (sources, mut writer) = store();
        let mut caches = caches(HARBOUR);
        let mut spare = (*caches
            .sources
            .find(|source| source.name_any() == "spare")
            .unwrap())
        .clone();
        let known = conditions::Wanted::new(kind::REACHABLE, Some(true), "Discovered", "");
        spare.status = Some(chandlery_crds::ToolSourceStatus {
            conditions: conditions::merge(&[], &[known], 1, jiff::Timestamp::UNIX_EPOCH),
            ..Default::default()
        });
        writer.apply_watcher_event(&Event::Apply(spare));
        caches.sources = sources;
        let grant = caches
            .grants
            .find(|grant| grant.name_any() == "of-other")
            .unwrap();
        assert_eq!(
            names_of(grant.wakes(&caches, false)),
            ["grant of-other", "source spare", "workspace other"]
        );
    }
}
