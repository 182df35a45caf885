//! The ways from the watches to the controllers.

use std::collections::BTreeSet;

use chandlery_crds::{Agent, ToolGrant, ToolSource, Workspace};
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;
use tokio::sync::mpsc;

use super::caches::Caches;
use super::wakes::{Wake, source_wake};

/// References that wait for a controller; a full queue holds up the watch, never memory.
const QUEUE_LENGTH: usize = 1024;

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

pub(super) fn queues() -> (Queues, Inboxes) {
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
    pub(super) async fn wake(&self, caches: &Caches, wakes: Vec<Wake>) {
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
