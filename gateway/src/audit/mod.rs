//! The record of every tool call: who called what, when, and how it ended.
//!
//! A record opens before anything is done, by taking a place in the queue to the writer, so closing it can't fail and
//! no row is ever dropped: when the database falls behind, calls wait at their start. Of arguments only a keyed digest
//! is kept, unless the Workspace says otherwise. The rows of a Workspace are chained with the account's key.

mod chain;
mod journaled;
mod store;
mod verify;
mod writer;

use std::borrow::Cow;
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use chandlery_crds::workspace::AuditArguments;
use jiff::Timestamp;
use parking_lot::Mutex;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::mpsc::OwnedPermit;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::info;

use self::chain::Key;
use self::store::chains;
pub use self::verify::{Noted, Verdict, verify};
use crate::directory::Agent;
use crate::metrics::Metrics;
use crate::store::{Store, StoreError};

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
    /// Told when the writer has ended.
    writer: Mutex<Option<oneshot::Receiver<()>>>,
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
    entry: Option<Entry>,
    began: Instant,
}

/// No row could be written in time. Whatever the call was about to do, or did, has no record yet.
#[derive(Debug)]
pub struct NotRecorded;

struct Entry {
    agent: Arc<Agent>,
    key_id: Arc<str>,
    row: Row,
    /// Told once the row is durable.
    durable: Option<oneshot::Sender<Durable>>,
}

/// Calls that wait for their rows. Dropped, it tells them that there are none.
#[derive(Default)]
struct Waiting(Vec<oneshot::Sender<Durable>>);

/// Says to a call that its row is durable, and to others whose rows became so at once: the writer wakes one of them,
/// and that one, where it runs, the rest.
struct Durable(Vec<oneshot::Sender<Durable>>);

impl Waiting {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Tells all that their rows are durable.
    fn tell(mut self) {
        while let Some(next) = self.0.pop() {
            match next.send(Durable(take(&mut self.0))) {
                Ok(()) => return,
                // Whoever has given up waiting tells nobody.
                Err(mut unsent) => self.0 = take(&mut unsent.0),
            }
        }
    }
}

impl Drop for Durable {
    fn drop(&mut self) {
        for next in self.0.drain(..) {
            let _ = next.send(Self(Vec::new()));
        }
    }
}

/// What is said of a call, but who made it.
#[derive(Clone, Serialize, Deserialize)]
struct Row {
    id: i64,
    at: i64,
    tool: Cow<'static, str>,
    decision: Cow<'static, str>,
    outcome: Cow<'static, str>,
    duration_us: i64,
    request_bytes: i64,
    response_bytes: i64,
    #[serde(with = "hex")]
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
        let writer = writer::start(
            store.clone(),
            key.clone(),
            queue,
            hurry.clone(),
            closing.clone(),
        );
        Self {
            places,
            hurry,
            closing,
            writer: Mutex::new(Some(writer)),
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
            entry: Some(Entry {
                agent: opening.agent.clone(),
                key_id: opening.key_id.clone(),
                row: Row {
                    id: self.store.new_id(opening.at).row(),
                    at: opening.at.as_millisecond(),
                    tool: shortened(opening.tool),
                    decision: Cow::Borrowed("none"),
                    outcome: Cow::Borrowed("cancelled"),
                    duration_us: 0,
                    request_bytes: count(arguments.len()),
                    response_bytes: 0,
                    arguments_digest: self.key.digest(arguments),
                    arguments: kept(opening.agent, opening.arguments),
                },
                durable: None,
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
        if let Some(ended) = writer {
            // The writer's own panic has been reported where it happened.
            let _ = ended.await;
        }
    }
}

impl Record {
    /// What the gate said: `permit` or the reason of its refusal.
    pub fn decided(&mut self, decision: &'static str) {
        if let Some(entry) = &mut self.entry {
            entry.row.decision = Cow::Borrowed(decision);
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
            Ok(Ok(_)) => Ok(()),
            _ => Err(NotRecorded),
        }
    }

    fn end(
        &mut self,
        outcome: &'static str,
        response_bytes: usize,
        durable: Option<oneshot::Sender<Durable>>,
    ) {
        let (Some(place), Some(mut entry)) = (self.place.take(), self.entry.take()) else {
            return;
        };
        self.metrics.call_finished(outcome);
        let row = &mut entry.row;
        row.outcome = Cow::Borrowed(outcome);
        row.response_bytes = count(response_bytes);
        row.duration_us = i64::try_from(self.began.elapsed().as_micros()).unwrap_or(i64::MAX);
        let waits = durable.is_some();
        entry.durable = durable;
        place.send(entry);
        if waits {
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
