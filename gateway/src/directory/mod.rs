//! Who is who and may have what, as one immutable snapshot that whatever fills it replaces whole.
//!
//! Only `directory/kube` knows a Kubernetes client; `directory/files` reads the same resources from a folder.

mod build;
pub mod files;
mod grant;
pub mod kube;
mod people;
mod preview;
mod references;

use std::collections::HashMap;
use std::sync::Arc;

use chandlery_crds::key::Digest;
use chandlery_crds::{AgentSpec, ToolSourceSpec, WorkspaceSpec};
use jiff::Timestamp;
use tokio::sync::watch;

pub use self::grant::{Limit, Per, Rule, ToolGrant, Unit};
pub use self::people::Person;
pub use self::references::{ReferenceError, References, Referent, Secret};

/// Everything that a gateway knows of its account at one moment.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// By agent id `<namespace>.<name>`; Drafts are not in it.
    pub agents: HashMap<String, Arc<Agent>>,
    /// By `<namespace>.<name>`.
    pub workspaces: HashMap<String, Arc<Workspace>>,
    pub sources: HashMap<String, Arc<ToolSource>>,
    pub grants: HashMap<String, Arc<ToolGrant>>,
    /// Who holds which key. Keys of suspended and archived agents are not in it.
    pub keys: HashMap<Digest, Holder>,
    /// Which person holds which token. A digest that is some agent's or Workspace's key is nobody's.
    pub people: HashMap<Digest, Person>,
    /// Since when the source has not been heard of; `None` while it is connected.
    pub stale_since: Option<Timestamp>,
}

/// The holder of a key.
#[derive(Clone, Debug)]
pub struct Holder {
    pub principal: Principal,
    /// Short public name of the key.
    pub key_id: Arc<str>,
    /// When the key stops working, by the local clock.
    pub expires_at: Option<Timestamp>,
}

/// Who calls.
#[derive(Clone, Debug)]
pub enum Principal {
    Agent(Arc<Agent>),
    Workspace(Arc<Workspace>),
}

/// An agent that has an endpoint.
#[derive(Debug, PartialEq)]
pub struct Agent {
    /// `<namespace>.<name>`.
    pub id: String,
    pub uid: String,
    pub generation: i64,
    pub key_revision: i64,
    pub labels: std::collections::BTreeMap<String, String>,
    pub spec: AgentSpec,
    /// The grants that are about this agent, by name, whatever their times say.
    pub grants: Vec<Arc<ToolGrant>>,
    /// The Workspace it works in, as `<namespace>.<name>`.
    pub workspace: Arc<Workspace>,
}

impl Agent {
    /// `<namespace>` of the id.
    pub fn namespace(&self) -> &str {
        self.id
            .split_once('.')
            .map_or("", |(namespace, _)| namespace)
    }

    /// `<name>` of the id.
    pub fn name(&self) -> &str {
        self.id.split_once('.').map_or(&self.id, |(_, name)| name)
    }
}

/// A Workspace of this gateway's account.
#[derive(Debug, PartialEq)]
pub struct Workspace {
    /// `<namespace>.<name>`.
    pub id: String,
    pub uid: String,
    pub generation: i64,
    /// `<namespace>.<name>` of the account, which may be itself.
    pub account: String,
    pub spec: WorkspaceSpec,
}

#[derive(Debug, PartialEq)]
pub struct ToolSource {
    pub uid: String,
    pub generation: i64,
    /// When it was made; files do not say.
    pub created_at: Option<Timestamp>,
    pub spec: ToolSourceSpec,
}

/// Readers' side of a directory: the newest snapshot, at no cost.
#[derive(Clone, Debug)]
pub struct Directory {
    /// `None` until the source has been read once.
    current: Arc<arc_swap::ArcSwapOption<Snapshot>>,
    changes: watch::Receiver<u64>,
}

/// Writers' side of a directory; one source holds it.
#[derive(Debug)]
pub struct Publisher {
    current: Arc<arc_swap::ArcSwapOption<Snapshot>>,
    changes: watch::Sender<u64>,
}

impl Directory {
    /// A directory that knows nothing yet.
    pub fn new() -> (Publisher, Directory) {
        let current = Arc::new(arc_swap::ArcSwapOption::empty());
        let (sender, changes) = watch::channel(0);
        (
            Publisher {
                current: current.clone(),
                changes: sender,
            },
            Directory { current, changes },
        )
    }

    /// The newest snapshot; `None` until the source has been read once.
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.current.load_full()
    }

    /// Counts snapshots; changes with each new one.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }
}

impl Publisher {
    /// Replaces the snapshot and wakes whoever waits for changes.
    pub fn publish(&self, snapshot: impl Into<Arc<Snapshot>>) {
        self.current.store(Some(snapshot.into()));
        self.changes.send_modify(|count| *count += 1);
    }
}

/// An error and its causes in one line, for the log.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
