//! What is known of every source right now, for those who report it, list it or compare it.

use std::collections::BTreeMap;
use std::sync::Arc;

use chandlery_crds::report::{SourceFailure, SourceReport};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::pins::Change;

/// Of each source that an agent may be granted, by UID.
#[derive(Default)]
pub struct Board {
    states: Mutex<BTreeMap<String, State>>,
    changes: watch::Sender<u64>,
}

/// What is known of one source.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// `<namespace>.<name>`.
    pub id: String,
    pub report: SourceReport,
    /// When it last answered.
    pub answered_at: Option<Timestamp>,
    /// The revision that is approved.
    pub approved: Option<String>,
    /// How what it offers differs from that.
    pub changes: Arc<[Change]>,
}

impl Board {
    /// Everything that is known, by UID.
    pub fn states(&self) -> BTreeMap<String, State> {
        self.states.lock().clone()
    }

    /// What is known of one source.
    pub fn state(&self, uid: &str) -> Option<State> {
        self.states.lock().get(uid).cloned()
    }

    /// What the operator is told, by UID.
    pub fn reports(&self) -> BTreeMap<String, SourceReport> {
        let states = self.states.lock();
        let reports = states
            .iter()
            .map(|(uid, state)| (uid.clone(), state.report.clone()));
        reports.collect()
    }

    /// Counts changes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Changes what is known of a source.
    pub(super) fn update(&self, uid: &str, change: impl FnOnce(&mut State)) {
        change(self.states.lock().entry(uid.to_owned()).or_default());
        self.changes.send_modify(|count| *count += 1);
    }

    pub(super) fn forget(&self, uid: &str) {
        self.states.lock().remove(uid);
        self.changes.send_modify(|count| *count += 1);
    }
}

impl State {
    /// Takes over how the last attempt went; what was offered before stays.
    pub(super) fn failed(&mut self, generation: i64, reason: &str, message: &str) {
        self.report.generation = generation;
        self.report.failure = Some(SourceFailure {
            reason: reason.to_owned(),
            message: message.to_owned(),
        });
    }
}
