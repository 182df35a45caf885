//! Sessions with a server of the older era: one for each agent and kind of client, opened when it is needed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::HeaderValue;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::OnceCell;
use tokio::time::Instant;

/// How many there may be with one server; the longest idle one makes room.
const MOST: usize = 1_000;
/// A session that is not used for so long is closed.
pub(super) const IDLE: Duration = Duration::from_secs(600);

/// Whose session it is.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// UID of the agent; empty for the gateway's own.
    pub(super) agent: String,
    /// What its clients can do, as JSON.
    pub(super) capabilities: String,
}

/// A session that `initialize` has opened.
pub(super) struct Session {
    pub(super) key: Key,
    /// `None` with a server that keeps none.
    pub(super) id: Option<HeaderValue>,
    pub(super) version: HeaderValue,
    /// What the server can do.
    pub(super) capabilities: Value,
}

struct Row {
    session: OnceCell<Arc<Session>>,
    /// Seconds since the table was made.
    last_used: AtomicU64,
}

pub(super) struct Sessions {
    started: Instant,
    rows: Mutex<HashMap<Key, Arc<Row>>>,
}

impl Sessions {
    pub(super) fn new() -> Self {
        Self {
            started: Instant::now(),
            rows: Mutex::default(),
        }
    }

    /// The session of `key`, which `open` opens if there is none; whoever asks meanwhile waits for the same. With it
    /// comes the one that had to make room.
    pub(super) async fn get<E>(
        &self,
        key: &Key,
        open: impl Future<Output = Result<Session, E>>,
    ) -> Result<(Arc<Session>, Option<Arc<Session>>), E> {
        let now = self.now();
        let mut crowded = None;
        let row = {
            let mut rows = self.rows.lock();
            if !rows.contains_key(key) {
                if rows.len() >= MOST {
                    let oldest = rows
                        .iter()
                        .min_by_key(|(_, row)| row.last_used.load(Ordering::Relaxed))
                        .map(|(key, _)| key.clone());
                    crowded = oldest.and_then(|oldest| rows.remove(&oldest));
                }
                let row = Row {
                    session: OnceCell::new(),
                    last_used: AtomicU64::new(now),
                };
                rows.insert(key.clone(), Arc::new(row));
            }
            rows[key].clone()
        };
        row.last_used.store(now, Ordering::Relaxed);
        let session = row
            .session
            .get_or_try_init(|| async { open.await.map(Arc::new) })
            .await?
            .clone();
        let crowded = crowded.and_then(|row| row.session.get().cloned());
        Ok((session, crowded))
    }

    /// Forgets a session that the server does not know any more.
    pub(super) fn forget(&self, session: &Arc<Session>) {
        let mut rows = self.rows.lock();
        let is_it = |row: &Arc<Row>| {
            let own = row.session.get();
            own.is_some_and(|own| Arc::ptr_eq(own, session))
        };
        if rows.get(&session.key).is_some_and(is_it) {
            rows.remove(&session.key);
        }
    }

    /// The open sessions of an agent.
    pub(super) fn of(&self, agent: &str) -> Vec<Arc<Session>> {
        let rows = self.rows.lock();
        let own = rows.iter().filter(|(key, _)| key.agent == agent);
        own.filter_map(|(_, row)| row.session.get().cloned())
            .collect()
    }

    /// Takes out the sessions that nobody has used for a while.
    pub(super) fn idle(&self) -> Vec<Arc<Session>> {
        let oldest = self.now().saturating_sub(IDLE.as_secs());
        let mut rows = self.rows.lock();
        let idle = rows.extract_if(|key, row| {
            !key.agent.is_empty() && row.last_used.load(Ordering::Relaxed) < oldest
        });
        idle.filter_map(|(_, row)| row.session.get().cloned())
            .collect()
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_secs()
    }
}
