//! The one writer of audit rows: a few statements for all the calls of a moment.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::Entry;
use super::store::{BATCH, Inserts};
use crate::store::{Causes, Store};

/// How long a row may wait for others when no call waits for it.
const LINGER: Duration = Duration::from_millis(20);
/// How long the end of the program may be held up by a database that does not answer.
const LAST_CHANCE: Duration = Duration::from_secs(5);

/// Writes rows until `closing`, and then those of the calls that were open.
pub(super) async fn run(
    store: Store,
    mut inserts: Inserts,
    mut queue: mpsc::Receiver<Entry>,
    hurry: Arc<Notify>,
    closing: CancellationToken,
) {
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        tokio::select! {
            biased;
            count = queue.recv_many(&mut batch, BATCH) => {
                if count == 0 {
                    return;
                }
            }
            () = closing.cancelled(), if !queue.is_closed() => {
                queue.close();
                continue;
            }
            () = sleep(LAST_CHANCE), if queue.is_closed() => {
                error!("calls still run at the end; they will have no audit rows");
                return;
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
        write(&store, &mut inserts, &mut batch, &closing).await;
    }
}

/// Writes the batch, however often that must be tried, and tells whoever waits for it.
async fn write(
    store: &Store,
    inserts: &mut Inserts,
    batch: &mut Vec<Entry>,
    closing: &CancellationToken,
) {
    let mut pause = Duration::from_millis(20);
    let mut last_chance = None;
    let mut again = false;
    while let Err(failure) = inserts.write(store, batch, again).await {
        again = true;
        error!(error = %Causes(&failure), rows = batch.len(), "audit rows could not be written; trying again");
        let now = Instant::now();
        if closing.is_cancelled() && now >= *last_chance.get_or_insert(now + LAST_CHANCE) {
            error!(rows = batch.len(), "audit rows are lost");
            batch.clear();
            return;
        }
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
    for entry in batch.drain(..) {
        if let Some(durable) = entry.durable {
            // The caller may have given up waiting.
            let _ = durable.send(());
        }
    }
}
