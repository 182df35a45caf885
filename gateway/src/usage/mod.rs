//! Which calls went out, to whom, and what they cost (R-C-227…230): metadata alone, never what a call carried.
//!
//! Rows are written soon after, many at once. A call never waits for its row: it has its place in the audit.

mod store;

use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;

pub use self::store::{Listed, Row};
use crate::directory::Agent;
use crate::metrics::Metrics;
use crate::store::{Causes, Id, Store, StoreError};

/// Rows that may wait to be written.
const QUEUE: usize = 8192;
/// Rows of one transaction.
const MOST: usize = QUEUE / 2;
/// How long a row waits for others.
const LINGER: Duration = Duration::from_millis(100);
/// How long the end of the program may be held up by a database that does not answer.
const LAST_CHANCE: Duration = Duration::from_secs(5);

/// Takes down calls that went to a source. Clones share it.
#[derive(Clone)]
pub struct Usage(Option<Arc<Shared>>);

struct Shared {
    store: Store,
    metrics: Arc<Metrics>,
    queue: mpsc::Sender<Call>,
    closing: CancellationToken,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// One call of a source's tool.
#[derive(Clone, Debug)]
pub struct Call {
    pub at: Timestamp,
    pub agent: Arc<Agent>,
    /// Per-operation name.
    pub tool: String,
    /// Name of the ToolSource.
    pub provider: String,
    /// The HTTP method, or the method of MCP.
    pub method: String,
    /// The path as the document writes it, without values; of an MCP server that of its URL.
    pub path: String,
    /// The upstream's HTTP status; `None` when it gave no answer.
    pub status: Option<u16>,
    /// `done`, `failed`, or why there was no answer.
    pub outcome: &'static str,
    pub latency: Duration,
    pub cost_cents: i64,
    pub request_bytes: usize,
    pub response_bytes: usize,
}

impl Usage {
    /// Starts the writer.
    pub fn start(store: Store, metrics: Arc<Metrics>) -> Self {
        let (queue, calls) = mpsc::channel(QUEUE);
        let closing = CancellationToken::new();
        let writer = tokio::spawn(write(store.clone(), calls, closing.clone()));
        Self(Some(Arc::new(Shared {
            store,
            metrics,
            queue,
            closing,
            writer: Mutex::new(Some(writer)),
        })))
    }

    /// Takes nothing down: for who only looks at what a source offers.
    pub fn nowhere() -> Self {
        Self(None)
    }

    /// Takes a call down. Never waits: when too many wait to be written, it is left out and counted.
    pub fn record(&self, call: Call) {
        if let Some(shared) = &self.0
            && shared.queue.try_send(call).is_err()
        {
            shared.metrics.usage_lost();
        }
    }

    /// The time, by the store's clock.
    pub fn now(&self) -> Timestamp {
        let shared = self.0.as_ref();
        shared.map_or(Timestamp::UNIX_EPOCH, |shared| shared.store.clock().now())
    }

    /// Calls of a Workspace, newest first.
    pub async fn list(
        &self,
        workspace: &str,
        listed: Listed<'_>,
        before: Option<Id>,
        most: i64,
    ) -> Result<Vec<Row>, StoreError> {
        let Some(Shared { store, .. }) = self.0.as_deref() else {
            return Ok(Vec::new());
        };
        let scope = store.scope(workspace).await?;
        store::list(store, scope, listed, before, most).await
    }

    /// Writes what is queued; calls that come later are left out.
    pub async fn close(&self) {
        let Some(shared) = &self.0 else { return };
        shared.closing.cancel();
        let writer = shared.writer.lock().take();
        if let Some(writer) = writer {
            let _ = timeout(LAST_CHANCE, writer).await;
        }
    }
}

async fn write(store: Store, mut calls: mpsc::Receiver<Call>, closing: CancellationToken) {
    let inserts = store::Inserts::new(store.dialect());
    let mut batch = Vec::new();
    loop {
        tokio::select! {
            biased;
            count = calls.recv_many(&mut batch, MOST) => if count == 0 { return },
            () = closing.cancelled(), if !calls.is_closed() => {
                calls.close();
                continue;
            }
        }
        if batch.len() < MOST {
            // Until then rows pile up without waking anybody.
            let _ = timeout(LINGER, closing.cancelled()).await;
            while batch.len() < MOST
                && let Ok(call) = calls.try_recv()
            {
                batch.push(call);
            }
        }
        let rows = Arc::new(take(&mut batch));
        let mut pause = Duration::from_millis(50);
        while let Err(error) = inserts.write(&store, &rows).await {
            warn!(error = %Causes(&error), rows = rows.len(), "usage could not be written; trying again");
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(5));
        }
    }
}
