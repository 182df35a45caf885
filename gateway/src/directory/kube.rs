//! A directory from the API server: the four kinds of one namespace, watched.
//!
//! The watch loop is our own, and short, because a gateway must know when it was last heard of: a client library's
//! watcher says nothing of a watch that has started again, nor of one that hangs.

mod people;
mod references;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use chandlery_crds as crds;
use chandlery_crds::names::agent_id;
use futures::StreamExt as _;
use jiff::Timestamp;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::core::{DeserializeGuard, Status};
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::build::{Resources, build};
use super::people::Tokens;
use super::{Publisher, References, Snapshot, chain};
use crate::store::Clock;

/// The server ends each watch after this time, so that a silent one is known to be dead a little later.
const WATCH_SECONDS: u32 = 10;
const WATCH_GRACE: Duration = Duration::from_secs(3);
const START_TIMEOUT: Duration = Duration::from_secs(3);
const PAGE_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LAST_RETRY: Duration = Duration::from_secs(2);
const PAGE_SIZE: u32 = 500;
/// A change is published once nothing more has come for this long…
const QUIET: Duration = Duration::from_millis(5);
/// …or after this long in any case.
const AT_MOST: Duration = Duration::from_millis(50);
/// Changes on their way from the four watches.
const QUEUE: usize = 256;

/// The writing side of a directory that comes from the API server.
pub struct Cluster {
    client: Client,
    namespace: String,
    account: String,
    clock: Clock,
    publisher: Publisher,
}

/// Why there is no way to the API server. An API server that does not answer is not among the reasons.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error("find the API server and this pod's token")]
    Config(#[source] kube::config::InferConfigError),
    #[error("make a client of the API server")]
    Client(#[source] kube::Error),
}

impl Cluster {
    /// Prepares to serve the account `<namespace>/<name>`. Asks nothing of the API server yet.
    pub async fn new(
        namespace: &str,
        name: &str,
        clock: Clock,
        publisher: Publisher,
    ) -> Result<Self, ClusterError> {
        let mut config = kube::Config::infer().await.map_err(ClusterError::Config)?;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        Ok(Self {
            client: Client::try_from(config).map_err(ClusterError::Client)?,
            namespace: namespace.to_owned(),
            account: agent_id(namespace, name),
            clock,
            publisher,
        })
    }

    /// Reads what resources name, whether or not anything follows.
    pub fn references(&self) -> Arc<dyn References> {
        Arc::new(references::ByName(self.client.clone()))
    }

    /// Publishes every change until `stop`, and nothing before all four kinds were read once.
    ///
    /// While the API server is away the last snapshot stays, with [`Snapshot::stale_since`].
    pub async fn follow(self, stop: CancellationToken) {
        let (sender, mut changes) = mpsc::channel(QUEUE);
        // Dropped at the end, and the watches with it.
        let mut watches = JoinSet::new();
        watches.spawn(watch(self.api(), sender.clone(), Change::Workspace));
        watches.spawn(watch(self.api(), sender.clone(), Change::Agent));
        watches.spawn(watch(self.api(), sender.clone(), Change::Source));
        watches.spawn(watch(self.api(), sender.clone(), Change::Grant));
        let (people, place) = tokio::sync::watch::channel(None);
        let secrets = Api::namespaced(self.client.clone(), &self.namespace);
        watches.spawn(people::follow(secrets, self.account.clone(), place, sender));
        let mut state = State::new(self.clock.now());
        let mut snapshot = Arc::<Snapshot>::default();
        while let Some(Some(change)) = stop.run_until_cancelled(changes.recv()).await {
            let mut is_new = state.absorb(change, self.clock.now());
            let deadline = Instant::now() + AT_MOST;
            while let Ok(Some(change)) =
                timeout_at(deadline.min(Instant::now() + QUIET), changes.recv()).await
            {
                is_new |= state.absorb(change, self.clock.now());
            }
            let place = state.place_of_people(&self.account);
            people.send_if_modified(|known| {
                let is_other = *known != place;
                *known = place;
                is_other
            });
            if is_new && state.is_complete() {
                let next = build(&state.resources, Some(&self.account), &snapshot);
                snapshot = Arc::new(Snapshot {
                    stale_since: state.stale_since(),
                    ..next
                });
                self.publisher.publish(snapshot.clone());
            }
        }
    }

    fn api<K>(&self) -> Api<DeserializeGuard<K>>
    where
        K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

/// What a watch has to say, by kind.
enum Change {
    Workspace(Event<crds::Workspace>),
    Agent(Event<crds::Agent>),
    Source(Event<crds::ToolSource>),
    Grant(Event<crds::ToolGrant>),
    /// The tokens of the account's people, read again.
    People(String, Tokens),
}

enum Event<K> {
    /// These and no others exist.
    Listed(Vec<K>),
    Applied(Box<K>),
    /// The object of this id is gone, or cannot be read.
    Gone(String),
    /// The watch has started: nothing has been missed.
    Heard,
    /// The API server does not answer, or not as it should.
    Lost,
}

/// What the four watches have said so far.
struct State {
    resources: Resources,
    workspaces: Link,
    agents: Link,
    sources: Link,
    grants: Link,
}

/// How it stands with one watch.
#[derive(Clone, Copy)]
struct Link {
    is_listed: bool,
    is_lost: bool,
    heard_at: Timestamp,
}

impl State {
    fn new(now: Timestamp) -> Self {
        let link = Link {
            is_listed: false,
            is_lost: true,
            heard_at: now,
        };
        Self {
            resources: Resources::default(),
            workspaces: link,
            agents: link,
            sources: link,
            grants: link,
        }
    }

    /// Whether readers have to hear of it.
    fn absorb(&mut self, change: Change, now: Timestamp) -> bool {
        let Resources {
            workspaces,
            agents,
            sources,
            grants,
            people,
        } = &mut self.resources;
        match change {
            Change::Workspace(event) => self.workspaces.absorb(workspaces, event, now),
            Change::Agent(event) => self.agents.absorb(agents, event, now),
            Change::Source(event) => self.sources.absorb(sources, event, now),
            Change::Grant(event) => self.grants.absorb(grants, event, now),
            Change::People(account, tokens) => {
                let old = people.insert(account, tokens.clone());
                old.as_ref() != Some(&tokens)
            }
        }
    }

    /// Where the tokens of the account's people are written; `None` while it names no people.
    fn place_of_people(&self, account: &str) -> Option<people::Place> {
        let account = self.resources.workspaces.get(account)?;
        let people = account.spec.people.as_ref()?;
        Some(people::Place {
            secret: people.tokens_secret_ref.name.clone(),
            generation: account.metadata.generation.unwrap_or_default(),
        })
    }

    fn links(&self) -> [Link; 4] {
        [self.workspaces, self.agents, self.sources, self.grants]
    }

    fn is_complete(&self) -> bool {
        self.links().iter().all(|link| link.is_listed)
    }

    fn stale_since(&self) -> Option<Timestamp> {
        let lost = self.links().into_iter().filter(|link| link.is_lost);
        lost.map(|link| link.heard_at).min()
    }
}

impl Link {
    fn absorb<K: Resource<DynamicType = ()>>(
        &mut self,
        objects: &mut BTreeMap<String, Arc<K>>,
        event: Event<K>,
        now: Timestamp,
    ) -> bool {
        let was_lost = self.is_lost;
        self.is_lost = matches!(event, Event::Lost);
        if !self.is_lost {
            self.heard_at = now;
        }
        let is_new = match event {
            Event::Listed(all) => {
                self.is_listed = true;
                *objects = all
                    .into_iter()
                    .map(|object| (id(&object), Arc::new(object)))
                    .collect();
                true
            }
            Event::Applied(object) => {
                objects.insert(id(&*object), Arc::new(*object));
                true
            }
            Event::Gone(id) => objects.remove(&id).is_some(),
            Event::Heard | Event::Lost => false,
        };
        is_new || was_lost != self.is_lost
    }
}

/// Follows one kind for as long as somebody listens.
async fn watch<K>(
    api: Api<DeserializeGuard<K>>,
    sender: mpsc::Sender<Change>,
    wrap: fn(Event<K>) -> Change,
) where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let kind = K::kind(&());
    let mut version = None;
    let mut retry = FIRST_RETRY;
    let mut is_lost = false;
    loop {
        match follow_once(&api, &mut version, &sender, wrap).await {
            Ok(()) => {
                if is_lost {
                    info!(%kind, "the API server answers again");
                }
                (retry, is_lost) = (FIRST_RETRY, false);
            }
            Err(Break::Closed) => return,
            Err(Break::Expired) => version = None,
            Err(Break::Failed(error)) => {
                if is_lost {
                    debug!(%kind, error, "the API server still does not answer");
                } else {
                    warn!(%kind, error, "the API server does not answer; what is known goes on being served");
                }
                if sender.send(wrap(Event::Lost)).await.is_err() {
                    return;
                }
                retry = (retry * 2).min(LAST_RETRY);
                is_lost = true;
            }
        }
        sleep(retry).await;
    }
}

/// Why a watch ended before its time.
enum Break {
    /// Nobody listens any more.
    Closed,
    /// The server no longer knows the version: everything must be listed anew.
    Expired,
    Failed(String),
}

/// One watch, from where the last one ended; a list first when there was none.
async fn follow_once<K>(
    api: &Api<DeserializeGuard<K>>,
    version: &mut Option<String>,
    sender: &mpsc::Sender<Change>,
    wrap: fn(Event<K>) -> Change,
) -> Result<(), Break>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let send = async |event| sender.send(wrap(event)).await.map_err(|_| Break::Closed);
    let since = match version {
        Some(version) => version.clone(),
        None => {
            let (objects, listed) = list(api).await?;
            send(Event::Listed(objects)).await?;
            version.insert(listed).clone()
        }
    };
    let params = WatchParams::default().timeout(WATCH_SECONDS);
    let stream = timeout(START_TIMEOUT, api.watch(&params, &since)).await??;
    send(Event::Heard).await?;
    let mut stream = pin!(stream);
    let deadline = Duration::from_secs(WATCH_SECONDS.into()) + WATCH_GRACE;
    while let Some(event) = timeout(deadline, stream.next()).await? {
        match event? {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                *version = object.resource_version().or(version.take());
                let id = id(&object);
                send(match readable(object) {
                    Some(object) => Event::Applied(Box::new(object)),
                    None => Event::Gone(id),
                })
                .await?;
            }
            WatchEvent::Deleted(object) => {
                *version = object.resource_version().or(version.take());
                send(Event::Gone(id(&object))).await?;
            }
            WatchEvent::Bookmark(bookmark) => *version = Some(bookmark.metadata.resource_version),
            WatchEvent::Error(status) => return Err((*status).into()),
        }
    }
    Ok(())
}

/// Every object that can be read, and the version of the list.
async fn list<K>(api: &Api<DeserializeGuard<K>>) -> Result<(Vec<K>, String), Break>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let mut params = ListParams::default().limit(PAGE_SIZE);
    let mut objects = Vec::new();
    loop {
        let page = timeout(PAGE_TIMEOUT, api.list(&params)).await??;
        objects.extend(page.items.into_iter().filter_map(readable));
        params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
        if params.continue_token.is_none() {
            let version = page.metadata.resource_version.unwrap_or_default();
            return Ok((objects, version));
        }
    }
}

/// The object without what a gateway has no use for. One that cannot be read is not served: it may have been
/// changed to take a right away.
fn readable<K: Resource<DynamicType = ()>>(object: DeserializeGuard<K>) -> Option<K> {
    match object.0 {
        Ok(mut object) => {
            object.meta_mut().managed_fields = None;
            object.meta_mut().annotations = None;
            Some(object)
        }
        Err(invalid) => {
            warn!(
                kind = %K::kind(&()), object.name = invalid.metadata.name, error = %invalid.error,
                "an object cannot be read, so it is not served"
            );
            None
        }
    }
}

fn id(object: &impl Resource) -> String {
    let metadata = object.meta();
    agent_id(
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default(),
    )
}

impl From<tokio::time::error::Elapsed> for Break {
    fn from(_: tokio::time::error::Elapsed) -> Self {
        Self::Failed("no answer in time".to_owned())
    }
}

impl From<Status> for Break {
    fn from(status: Status) -> Self {
        match status.code {
            410 => Self::Expired,
            code => Self::Failed(format!("{code} {}", status.reason)),
        }
    }
}

impl From<kube::Error> for Break {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => (*status).into(),
            error => Self::Failed(chain(&error)),
        }
    }
}
