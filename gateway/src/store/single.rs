//! Writing to SQLite: one connection, and one commit for all the writes that wait.
//!
//! A sync to disk costs more than a write, so the writes that arrive during one share the next. Each runs in
//! a savepoint: one that fails is undone alone. None is acknowledged before the commit.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use sqlx::{AnyConnection, Connection};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::dialect::Place;
use super::error::Causes;
use super::{Shared, StoreError, WriteTx, while_doing};

/// Writes that may wait; more wait outside.
const QUEUE: usize = 1024;
/// Writes of one commit.
const GROUP: usize = 256;

/// One write: runs in the transaction, and says how it went.
type Job = Box<dyn for<'t> FnOnce(&'t mut WriteTx<'_>) -> BoxFuture<'t, Ran> + Send>;
/// Tells the caller of a write how the commit went.
type Tell = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

enum Ran {
    /// To be committed; the caller waits for that.
    Keep(Tell),
    /// To be undone; the caller has been told.
    Undo,
}

pub(super) struct Writer {
    jobs: mpsc::Sender<Job>,
    closing: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    pub(super) fn start(connection: AnyConnection, place: Place, shared: Arc<Shared>) -> Self {
        let (jobs, queue) = mpsc::channel(QUEUE);
        let closing = CancellationToken::new();
        let task = tokio::spawn(run(connection, place, shared, queue, closing.clone()));
        Self {
            jobs,
            closing,
            task: Mutex::new(Some(task)),
        }
    }

    pub(super) async fn write<T, E, F>(&self, work: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: for<'t> FnOnce(&'t mut WriteTx<'_>) -> BoxFuture<'t, Result<T, E>> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |tx| {
            Box::pin(async move {
                match work(tx).await {
                    Ok(value) => Ran::Keep(Box::new(move |committed| {
                        // The caller may be gone; the write is done all the same.
                        let _ = answer.send(committed.map(|()| value).map_err(E::from));
                    })),
                    Err(error) => {
                        let _ = answer.send(Err(error));
                        Ran::Undo
                    }
                }
            })
        });
        self.jobs.send(job).await.map_err(|_| StoreError::Closed)?;
        answered.await.unwrap_or(Err(StoreError::Closed.into()))
    }

    pub(super) async fn close(&self) {
        self.closing.cancel();
        let task = self.task.lock().take();
        if let Some(task) = task {
            let _ = task.await;
        }
    }
}

async fn run(
    mut connection: AnyConnection,
    place: Place,
    shared: Arc<Shared>,
    mut queue: mpsc::Receiver<Job>,
    closing: CancellationToken,
) {
    loop {
        let first = tokio::select! {
            biased;
            job = queue.recv() => job,
            () = closing.cancelled(), if !queue.is_closed() => {
                queue.close();
                continue;
            }
        };
        let Some(first) = first else { break };
        if let Err(failure) = commit_group(&mut connection, &shared, first, &mut queue).await {
            error!(error = %Causes(&failure), "the store's writer failed a group of writes");
            let reconnected = tokio::select! {
                connection = reconnect(&place, connection) => Some(connection),
                () = closing.cancelled() => None,
            };
            let Some(reconnected) = reconnected else {
                return;
            };
            connection = reconnected;
        }
    }
    if let Err(failure) = connection.close().await {
        warn!(error = %Causes(&failure), "the store's writer did not close cleanly");
    }
    // The folder's lock ends with `place`, after the last write.
}

/// Runs `first` and the writes that wait behind it, commits, and tells their callers.
async fn commit_group(
    connection: &mut AnyConnection,
    shared: &Shared,
    first: Job,
    queue: &mut mpsc::Receiver<Job>,
) -> Result<(), StoreError> {
    // Until then nobody's work has begun: `first` is dropped, and its caller learns that nothing was done.
    execute(connection, "begin immediate; savepoint write").await?;
    let mut kept = Vec::new();
    let mut next = Some(first);
    let mut count = 0;
    let ended = loop {
        let Some(job) = next.take() else {
            break execute(connection, "release write; commit").await;
        };
        let mut tx = WriteTx { connection, shared };
        let ran = AssertUnwindSafe(async { job(&mut tx).await })
            .catch_unwind()
            .await
            .unwrap_or_else(|_| {
                error!("a write panicked and was undone");
                Ran::Undo
            });
        count += 1;
        next = if count < GROUP {
            queue.try_recv().ok()
        } else {
            None
        };
        let between = match ran {
            Ran::Undo => "rollback to write",
            Ran::Keep(tell) => {
                kept.push(tell);
                if next.is_none() {
                    continue;
                }
                "release write; savepoint write"
            }
        };
        if let Err(failure) = execute(connection, between).await {
            break Err(failure);
        }
    };
    match ended {
        Ok(()) => {
            kept.into_iter().for_each(|tell| tell(Ok(())));
            Ok(())
        }
        Err(StoreError::Statement { doing, source }) => {
            for tell in kept {
                tell(Err(StoreError::Commit(source.clone())));
            }
            Err(StoreError::Statement { doing, source })
        }
        Err(other) => Err(other),
    }
}

async fn execute(connection: &mut AnyConnection, sql: &'static str) -> Result<(), StoreError> {
    sqlx::raw_sql(sql)
        .execute(connection)
        .await
        .map(|_| ())
        .map_err(while_doing("commit writes"))
}

/// A new connection in place of one whose transaction is in doubt; tries until it gets one.
async fn reconnect(place: &Place, broken: AnyConnection) -> AnyConnection {
    let _ = broken.close_hard().await;
    let mut pause = Duration::from_millis(10);
    loop {
        match place.connect().await {
            Ok(connection) => return connection,
            Err(failure) => {
                error!(error = %Causes(&failure), "the store's writer can't open the database; trying again")
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}
