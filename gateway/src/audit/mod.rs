//! The record of every tool call: who called what, when, and how it ended.
//!
//! A record opens before anything is done, by taking a place in the queue to the writer, so closing it can't fail and
//! no row is ever dropped: when the database falls behind, calls wait at their start. Of arguments only a keyed digest
//! is kept, unless the Workspace says otherwise. The rows of a Workspace are chained with the account's key.

mod chain;
mod store;
mod verify;
mod writer;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use chandlery_crds::workspace::AuditArguments;
use jiff::Timestamp;
use parking_lot::Mutex;
use secrecy::SecretString;
use serde_json::value::RawValue;
use tokio::sync::mpsc::OwnedPermit;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::info;

use self::chain::Key;
use self::store::{Inserts, chains};
pub use self::verify::{Noted, Verdict, verify};
use crate::directory::Agent;
use crate::metrics::Metrics;
use crate::store::{Id, Store, StoreError};

/// Calls that may run or wait for their row to be written.
const PLACES: usize = 16 * 1024;
/// How long a call waits for a place, and a call that writes for its row.
const PATIENCE: Duration = Duration::from_secs(10);
/// Characters of a tool's name that are kept; an agent may ask for any.
const NAME_LENGTH: usize = 128;

/// Bytes of arguments that are kept where a Workspace wants them.
const ARGUMENTS: usize = 64 * 1024;

/// The account's audit. One writer task, which [`Audit::close`] ends.
pub struct Audit {
    places: mpsc::Sender<Entry>,
    hurry: Arc<Notify>,
    closing: CancellationToken,
    writer: Mutex<Option<JoinHandle<()>>>,
    store: Store,
    key: Key,
    metrics: Arc<Metrics>,
}

/// What is known of a call when it comes in.
pub struct Opening<'a> {
    pub agent: &'a Arc<Agent>,
    pub key_id: &'a Arc<str>,
    /// Under its per-operation name.
    pub tool: Cow<'static, str>,
    pub arguments: &'a RawValue,
    pub at: Timestamp,
}

/// An open record. Dropping it closes it as `cancelled`.
pub struct Record {
    place: Option<OwnedPermit<Entry>>,
    hurry: Arc<Notify>,
    metrics: Arc<Metrics>,
    row: Option<Row>,
    began: Instant,
}

/// No row could be written in time. Whatever the call was about to do, or did, has no record yet.
#[derive(Debug)]
pub struct NotRecorded;

struct Entry {
    row: Row,
    /// Told once the row is durable.
    durable: Option<oneshot::Sender<()>>,
}

#[derive(Clone)]
struct Row {
    id: Id,
    at: i64,
    agent: Arc<Agent>,
    key_id: Arc<str>,
    tool: Cow<'static, str>,
    decision: &'static str,
    outcome: &'static str,
    duration_us: i64,
    request_bytes: i64,
    response_bytes: i64,
    arguments_digest: [u8; 32],
    /// Only where the Workspace wants them kept.
    arguments: Option<String>,
}

impl Audit {
    /// Starts the writer. `key` is the account's audit key.
    pub fn start(store: Store, key: &SecretString, metrics: Arc<Metrics>) -> Self {
        let (places, queue) = mpsc::channel(PLACES);
        let hurry = Arc::new(Notify::new());
        let closing = CancellationToken::new();
        let key = Key::new(key);
        let inserts = Inserts::new(store.dialect(), key.clone());
        let writer = writer::run(
            store.clone(),
            inserts,
            queue,
            hurry.clone(),
            closing.clone(),
        );
        Self {
            places,
            hurry,
            closing,
            writer: Mutex::new(Some(tokio::spawn(writer))),
            store,
            key,
            metrics,
        }
    }

    /// Opens the record of a call. Waits while the queue is full; fails when the database does not catch up.
    pub async fn open(&self, opening: Opening<'_>) -> Result<Record, NotRecorded> {
        let place = match self.places.clone().try_reserve_owned() {
            Ok(place) => place,
            Err(TrySendError::Full(places)) => timeout(PATIENCE, places.reserve_owned())
                .await
                .ok()
                .and_then(Result::ok)
                .ok_or(NotRecorded)?,
            Err(TrySendError::Closed(_)) => return Err(NotRecorded),
        };
        let arguments = opening.arguments.get().as_bytes();
        Ok(Record {
            place: Some(place),
            hurry: self.hurry.clone(),
            metrics: self.metrics.clone(),
            row: Some(Row {
                id: self.store.new_id(opening.at),
                at: opening.at.as_millisecond(),
                agent: opening.agent.clone(),
                key_id: opening.key_id.clone(),
                tool: shortened(opening.tool),
                decision: "none",
                outcome: "cancelled",
                duration_us: 0,
                request_bytes: count(arguments.len()),
                response_bytes: 0,
                arguments_digest: self.key.digest(arguments),
                arguments: kept(opening.agent, opening.arguments),
            }),
            began: Instant::now(),
        })
    }

    /// Says in the log how far each Workspace's chain has come. Whoever keeps these lines elsewhere can later tell that
    /// a chain was cut off.
    pub async fn log_heads(&self) -> Result<(), StoreError> {
        let mut reader = self.store.read().await?;
        for chain in chains(reader.connection()).await? {
            if let Some((seq, mac)) = chain.head {
                let mac = hex::encode(&mac);
                info!(workspace = chain.name, seq, mac, "audit chain head");
            }
        }
        Ok(())
    }

    /// Waits a few seconds for the open records and writes what is queued; calls that come later are refused.
    pub async fn close(&self) {
        self.closing.cancel();
        let writer = self.writer.lock().take();
        if let Some(writer) = writer {
            // The writer's own panic has been reported where it happened.
            let _ = writer.await;
        }
    }
}

impl Record {
    /// What the gate said: `permit` or the reason of its refusal.
    pub fn decided(&mut self, decision: &'static str) {
        if let Some(row) = &mut self.row {
            row.decision = decision;
        }
    }

    /// Closes the record of a call that changed nothing: its row is written soon.
    pub fn close(mut self, outcome: &'static str, response_bytes: usize) {
        self.end(outcome, response_bytes, None);
    }

    /// Closes the record of a call that writes, and returns once its row is durable.
    pub async fn close_durably(
        mut self,
        outcome: &'static str,
        response_bytes: usize,
    ) -> Result<(), NotRecorded> {
        let (durable, written) = oneshot::channel();
        self.end(outcome, response_bytes, Some(durable));
        match timeout(PATIENCE, written).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(NotRecorded),
        }
    }

    fn end(
        &mut self,
        outcome: &'static str,
        response_bytes: usize,
        durable: Option<oneshot::Sender<()>>,
    ) {
        let (Some(place), Some(mut row)) = (self.place.take(), self.row.take()) else {
            return;
        };
        self.metrics.call_finished(outcome);
        row.outcome = outcome;
        row.response_bytes = count(response_bytes);
        row.duration_us = i64::try_from(self.began.elapsed().as_micros()).unwrap_or(i64::MAX);
        let hurry = durable.is_some();
        place.send(Entry { row, durable });
        if hurry {
            self.hurry.notify_one();
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let outcome = if std::thread::panicking() {
            "failed"
        } else {
            "cancelled"
        };
        self.end(outcome, 0, None);
    }
}

/// The arguments in clear, where the Workspace says so.
fn kept(agent: &Agent, arguments: &RawValue) -> Option<String> {
    let wanted = agent.workspace.spec.audit_arguments;
    (wanted == AuditArguments::Clear).then(|| {
        let text = arguments.get();
        text[..text.floor_char_boundary(ARGUMENTS)].to_owned()
    })
}

fn shortened(name: Cow<'static, str>) -> Cow<'static, str> {
    if name.len() <= NAME_LENGTH {
        return name;
    }
    Cow::Owned(name.chars().take(NAME_LENGTH).collect())
}

fn count(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
