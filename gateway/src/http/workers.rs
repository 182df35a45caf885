//! The threads that serve connections: each runs its own alone, so that under load none of them starves.

use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;

/// Ends its threads when it is dropped.
///
/// A connection to the database belongs to the thread that opened it, so drop the workers after the store is closed.
pub struct Workers {
    handles: Vec<Handle>,
    next: AtomicUsize,
    stop: CancellationToken,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    pub(super) fn start(count: NonZeroUsize) -> io::Result<Self> {
        let mut workers = Self {
            handles: Vec::new(),
            next: AtomicUsize::new(0),
            stop: CancellationToken::new(),
            threads: Vec::new(),
        };
        for number in 0..count.get() {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            workers.handles.push(runtime.handle().clone());
            let stop = workers.stop.clone();
            let thread = thread::Builder::new()
                .name(format!("http-{number}"))
                .spawn(move || runtime.block_on(stop.cancelled()))?;
            workers.threads.push(thread);
        }
        Ok(workers)
    }

    /// The workers in turn.
    pub(super) fn next(&self) -> &Handle {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        &self.handles[turn % self.handles.len()]
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop.cancel();
        for thread in self.threads.drain(..) {
            // A thread that panicked has ended too.
            let _ = thread.join();
        }
    }
}
