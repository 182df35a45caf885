//! How long rows wait for others before they are written together.
//!
//! A sync costs as much for many rows as for one. So while most of the open calls still run, a call that waits for its
//! row waits for theirs, too, for as long as it takes to sync a few times; then all that have come share one.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Thread, park_timeout};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::timeout;

/// How long a row may wait for others when no call waits for it.
const LINGER: Duration = Duration::from_millis(20);
/// How long a call that waits for its row may wait for others: about as long as a sync takes.
const GATHER: Duration = Duration::from_micros(120);

#[derive(Default)]
pub(super) struct Pace {
    /// Records that are open.
    open: AtomicUsize,
    /// Calls that wait for their rows and are not in a batch yet.
    waiting: AtomicUsize,
    /// The writer's, while it gathers.
    writer: OnceLock<Thread>,
    hurry: Notify,
}

impl Pace {
    /// A record opens.
    pub(super) fn opened(self: &Arc<Self>) -> Arc<Self> {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.clone()
    }

    /// A record is closed and in the queue; `waits`: its call waits for the row.
    pub(super) fn closed(&self, waits: bool) {
        let open = self.open.fetch_sub(1, Ordering::Relaxed) - 1;
        if !waits {
            return;
        }
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed) + 1;
        self.hurry.notify_one();
        if waiting >= open
            && let Some(writer) = self.writer.get()
        {
            writer.unpark();
        }
    }

    /// Until a call waits for its row, or for a moment.
    pub(super) async fn linger(&self) {
        let _ = timeout(LINGER, self.hurry.notified()).await;
    }

    /// Until as many calls wait for their rows as still run, or for a moment. Holds up the thread.
    pub(super) fn gather(&self) {
        self.writer.get_or_init(std::thread::current);
        let until = Instant::now() + GATHER;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let (waiting, open) = (
                self.waiting.load(Ordering::Relaxed),
                self.open.load(Ordering::Relaxed),
            );
            if left.is_zero() || waiting >= open {
                return;
            }
            park_timeout(left);
        }
    }

    /// So many calls that wait are in a batch.
    pub(super) fn taken(&self, waiting: usize) {
        self.waiting.fetch_sub(waiting, Ordering::Relaxed);
    }
}
