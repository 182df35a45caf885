//! The one writer of audit rows: a few statements for all the calls of a moment.
//!
//! It has a thread of its own, so that it may wait for a disk.

use std::sync::Arc;
use std::time::Duration;

use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadPriorityValue, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error};

use super::chain::Key;
use super::journaled::Journaled;
use super::store::{BATCH, Inserts, Run, runs};
use super::{Entry, Waiting};
use crate::store::{Causes, Dialect, Store, StoreError};

/// How long a row may wait for others when no call waits for it.
const LINGER: Duration = Duration::from_millis(20);
/// How long rows that are durable wait for others before the database gets them.
const GATHER: Duration = Duration::from_millis(50);
/// How long the end of the program may be held up by a database that does not answer.
const LAST_CHANCE: Duration = Duration::from_secs(5);

/// Where rows go.
enum Way {
    /// Replicas share the chains: each batch is chained and written in one transaction.
    Shared(Inserts),
    /// Nobody else writes: rows are chained here, and durable before they are in the database.
    Alone(Box<Journaled>),
}

/// Starts the writer: it writes rows until `closing`, and then those of the calls that were open. What is given back
/// is told when it has ended.
pub(super) fn start(
    store: Store,
    key: Key,
    queue: mpsc::Receiver<Entry>,
    hurry: Arc<Notify>,
    closing: CancellationToken,
) -> oneshot::Receiver<()> {
    let (end, ended) = oneshot::channel();
    let runtime = Handle::current();
    let work = move || {
        give_way();
        runtime.block_on(async {
            let patience = Patience::new(closing.clone());
            let way = match store.dialect() {
                Dialect::Sqlite => Journaled::open(store.clone(), key.clone(), patience.clone())
                    .await
                    .map(|journaled| Way::Alone(Box::new(journaled))),
                Dialect::Postgres => Some(Way::Shared(Inserts::new(store.dialect()))),
            };
            let Some(way) = way else { return };
            let writer = Writer {
                store,
                key,
                way,
                patience,
            };
            run(writer, queue, &hurry, &closing).await;
        });
        let _ = end.send(());
    };
    #[expect(clippy::expect_used, reason = "as tokio has it for its own threads")]
    std::thread::Builder::new()
        .name("audit".to_owned())
        .spawn(work)
        .expect("the system gives a thread");
    ended
}

/// On a core that is busy serving calls, the writer waits until they wait for it: it then writes all their rows at once,
/// and interrupts nobody.
fn give_way() {
    let policy = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Batch);
    // As nice as it was: of 0 to 99 the middle is 0.
    let given = ThreadPriorityValue::try_from(48_u8).map(|middle| {
        let middle = ThreadPriority::Crossplatform(middle);
        set_thread_priority_and_policy(thread_native_id(), middle, policy)
    });
    if !matches!(given, Ok(Ok(()))) {
        debug!("the system does not let the audit's writer give way");
    }
}

struct Writer {
    store: Store,
    key: Key,
    way: Way,
    patience: Patience,
}

async fn run(
    mut writer: Writer,
    mut queue: mpsc::Receiver<Entry>,
    hurry: &Notify,
    closing: &CancellationToken,
) {
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        tokio::select! {
            biased;
            count = queue.recv_many(&mut batch, BATCH) => {
                if count == 0 {
                    break;
                }
            }
            () = closing.cancelled(), if !queue.is_closed() => {
                queue.close();
                continue;
            }
            () = sleep(LAST_CHANCE), if queue.is_closed() => {
                error!("calls still run at the end; they will have no audit rows");
                break;
            }
        }
        if batch.len() < BATCH && !closing.is_cancelled() {
            let waits = batch.iter().any(|entry| entry.durable.is_some());
            if !waits {
                // While the writer sleeps here, rows pile up without waking it.
                let _ = timeout(LINGER, hurry.notified()).await;
            }
            while batch.len() < BATCH
                && let Ok(entry) = queue.try_recv()
            {
                batch.push(entry);
            }
        }
        writer.write(&mut batch).await;
    }
    if let Way::Alone(journaled) = writer.way {
        journaled.end().await;
    }
}

impl Writer {
    /// Writes the batch, however often that must be tried, and tells whoever waits for it.
    async fn write(&mut self, batch: &mut Vec<Entry>) {
        let durable = batch.iter_mut().filter_map(|entry| entry.durable.take());
        let waiting = Waiting(durable.collect());
        let mut tries = self.patience.tries();
        let runs = loop {
            match runs(&self.store, batch).await {
                Ok(runs) => break runs,
                Err(failure) => {
                    if !tries.again(&failure, batch.len()).await {
                        batch.clear();
                        return;
                    }
                }
            }
        };
        match &mut self.way {
            Way::Alone(journaled) => journaled.take(runs, waiting).await,
            Way::Shared(inserts) => {
                let (runs, mut again) = (Arc::new(runs), false);
                while let Err(failure) = inserts.chain(&self.store, &self.key, &runs, again).await {
                    again = true;
                    if !tries.again(&failure, rows(&runs)).await {
                        return;
                    }
                }
                waiting.tell();
            }
        }
    }
}

fn rows(runs: &[Run]) -> usize {
    runs.iter().map(|run| run.rows.len()).sum()
}

/// How often a write is tried: until it is done, and at the end of the program for a few seconds.
#[derive(Clone)]
pub(super) struct Patience {
    closing: CancellationToken,
}

impl Patience {
    fn new(closing: CancellationToken) -> Self {
        Self { closing }
    }

    pub(super) fn tries(&self) -> Tries {
        Tries {
            closing: self.closing.clone(),
            pause: Duration::from_millis(20),
            last_chance: None,
        }
    }

    /// Waits for more rows, unless the end has come.
    pub(super) async fn linger(&self) {
        let _ = timeout(GATHER, self.closing.cancelled()).await;
    }
}

/// The tries of one write.
pub(super) struct Tries {
    closing: CancellationToken,
    pause: Duration,
    last_chance: Option<Instant>,
}

impl Tries {
    /// Waits a moment after a failure; `false` when it must not be tried again.
    pub(super) async fn again(&mut self, failure: &StoreError, rows: usize) -> bool {
        error!(error = %Causes(failure), rows, "audit rows could not be written; trying again");
        let now = Instant::now();
        if self.closing.is_cancelled() && now >= *self.last_chance.get_or_insert(now + LAST_CHANCE)
        {
            error!(rows, "audit rows are not written");
            return false;
        }
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(Duration::from_secs(1));
        true
    }
}
