//! How many calls of one upstream may run, and how many may wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(super) type Slot = OwnedSemaphorePermit;

pub(super) struct Slots {
    free: Arc<Semaphore>,
    total: usize,
    waiting: AtomicUsize,
    may_wait: usize,
}

/// As many wait as may.
#[derive(Debug)]
pub(super) struct Full;

impl Slots {
    pub(super) fn new(total: usize, may_wait: usize) -> Self {
        let total = total.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            free: Arc::new(Semaphore::new(total)),
            total,
            waiting: AtomicUsize::new(0),
            may_wait,
        }
    }

    /// Waits for its turn, in the order of arrival; not at all when too many wait already.
    pub(super) async fn enter(&self) -> Result<Slot, Full> {
        if let Some(slot) = self.try_enter() {
            return Ok(slot);
        }
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= self.may_wait {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(Full);
        }
        let _waiting = Waiting(&self.waiting);
        self.free.clone().acquire_owned().await.map_err(|_| Full)
    }

    pub(super) fn try_enter(&self) -> Option<Slot> {
        self.free.clone().try_acquire_owned().ok()
    }

    pub(super) fn taken(&self) -> usize {
        self.total - self.free.available_permits()
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
