//! What ToolSources offer: asked on a schedule, held against what was approved, and served until something better is
//! known. No source has to do with how another fares.

mod board;
mod clean;
mod follow;
mod offers;
pub mod pins;
mod standing;
mod store;

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chandlery_crds::NotedTool;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::warn;

pub use self::board::{Board, State};
use self::follow::Followed;
use self::offers::{Offers, Place};
pub use self::standing::{left_out, missing, nothing, unresolved};
use crate::catalog::Catalogs;
use crate::connector::{Connector, Failure, OfferedTool};
use crate::directory::{Directory, Snapshot, ToolSource};
use crate::metrics::Metrics;
use crate::store::{Causes, Store};

/// How often it is looked for grants that have ended by the clock.
const TICK: Duration = Duration::from_secs(30);

/// Makes the connector of a source, named `<namespace>.<name>`.
pub type Maker = Arc<
    dyn for<'a> Fn(&'a str, &'a ToolSource) -> BoxFuture<'a, Result<Arc<dyn Connector>, Failure>>
        + Send
        + Sync,
>;

/// What following a source takes.
struct Parts {
    store: Store,
    offers: Offers,
    board: Arc<Board>,
    metrics: Arc<Metrics>,
    /// Who may read an answer now: a long one takes a core for seconds, and calls need them too.
    readers: Arc<Semaphore>,
}

/// What a source offers, for who looks before anybody serves it.
pub struct Look {
    pub tools: Vec<OfferedTool>,
    pub left_out: Vec<NotedTool>,
    /// Tools that held characters which nobody sees.
    pub hidden: Vec<NotedTool>,
    /// To be written into `spec.pinning.approvedRevision`.
    pub revision: String,
}

/// What an answer of the source means, as it would be served. Takes a while where it is long.
pub fn look(connector: &dyn Connector, answer: &Bytes) -> Result<Look, Failure> {
    let read = follow::look(connector, answer)?;
    Ok(Look {
        tools: read.offered.tools,
        left_out: read.offered.left_out,
        hidden: read.hidden,
        revision: read.revision.name,
    })
}

/// Follows the sources that agents may be granted.
pub struct Sources {
    directory: Directory,
    make: Maker,
    parts: Arc<Parts>,
}

/// A source that is followed, by UID.
struct Running {
    id: String,
    generation: i64,
    place: Place,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Sources {
    pub fn new(
        directory: Directory,
        store: Store,
        catalogs: Arc<Catalogs>,
        board: Arc<Board>,
        metrics: Arc<Metrics>,
        make: Maker,
    ) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let parts = Parts {
            store,
            offers: Offers::new(catalogs),
            board,
            metrics,
            readers: Arc::new(Semaphore::new((cores / 2).max(1))),
        };
        Self {
            directory,
            make,
            parts: Arc::new(parts),
        }
    }

    /// Goes on until `end`.
    pub async fn run(self, end: CancellationToken) {
        let mut changes = self.directory.changes();
        let mut ticks = tokio::time::interval(TICK);
        let mut running: HashMap<String, Running> = HashMap::new();
        loop {
            if let Some(snapshot) = self.directory.snapshot() {
                self.adjust(&snapshot, &mut running).await;
            }
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                _ = ticks.tick() => {}
                () = end.cancelled() => return,
            }
        }
    }

    /// Begins and ends to follow, so that exactly the sources are followed that a live grant names.
    async fn adjust(&self, snapshot: &Snapshot, running: &mut HashMap<String, Running>) {
        let now = self.parts.store.clock().now();
        let wanted = granted(snapshot, now);
        let mut gone: Vec<(String, Running)> = running
            .extract_if(|uid, running| {
                wanted
                    .get(uid.as_str())
                    .is_none_or(|(_, source)| source.generation != running.generation)
            })
            .collect();
        for (uid, source) in &wanted {
            if running.contains_key(*uid) {
                continue;
            }
            let (id, source) = source;
            let followed = Followed {
                parts: self.parts.clone(),
                id: (*id).to_owned(),
                source: (*source).clone(),
                reading: Arc::new(Semaphore::new(1)),
            };
            let place = followed.place();
            running.insert(
                (*uid).to_owned(),
                Running {
                    id: (*id).to_owned(),
                    generation: source.generation,
                    place,
                    task: tokio::spawn(followed.run(self.make.clone())),
                },
            );
        }
        // What another generation offers replaces what the one before did; only a source that is gone takes it back.
        gone.retain(|(uid, _)| !running.contains_key(uid));
        for (uid, gone) in gone {
            self.parts.offers.remove(&gone.place);
            self.parts.board.forget(&uid);
            self.parts.metrics.source_gone(&gone.id);
            let exists = snapshot.sources.values().any(|source| source.uid == uid);
            if !exists && let Err(error) = store::forget(&self.parts.store, &uid).await {
                warn!(source = gone.id, error = %Causes(&error), "a source that is gone could not be forgotten");
            }
        }
    }
}

/// The sources that a grant names which has not ended, by UID, each with its `<namespace>.<name>`.
fn granted(snapshot: &Snapshot, now: Timestamp) -> HashMap<&str, (&str, &Arc<ToolSource>)> {
    let grants = snapshot
        .grants
        .values()
        .filter(|grant| grant.flaw.is_none() && grant.expires_at.is_none_or(|end| now < end));
    let named = grants.flat_map(|grant| {
        let (namespace, _) = grant.workspace.split_once('.').unwrap_or_default();
        let entries = grant.spec.tools.iter();
        entries.filter_map(move |entry| Some((namespace, entry.split_once('/')?.0)))
    });
    named
        .filter_map(|(namespace, name)| {
            let id = chandlery_crds::names::agent_id(namespace, name);
            let (id, source) = snapshot.sources.get_key_value(&id)?;
            Some((source.uid.as_str(), (id.as_str(), source)))
        })
        .collect()
}
