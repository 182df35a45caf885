//! Who may ask an upstream: it has one breaker, and each operation whose answers are too large has one of its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::breaker::{Breaker, Health, Pass};
use super::error::{Blame, OutboundError};

/// So many operations have a breaker at most; a source has no more tools.
const MOST: usize = 2_000;

/// In a request's extensions: the operation that it is of, by a name that is not the caller's to choose.
#[derive(Clone, Debug)]
pub struct OperationName(pub Arc<str>);

#[derive(Clone)]
pub(super) struct Admissions {
    upstream: Breaker,
    /// Of the operations that have answered too much at least once.
    operations: Arc<Mutex<HashMap<Arc<str>, Breaker>>>,
    first_pause: Duration,
}

/// Why a call is not made, and after which time asking again makes sense.
pub(super) enum Refused {
    Upstream(Duration),
    Operation(Duration),
}

/// The right to make one call. Dropped without a word, it counts as if there had been no call.
pub(super) struct Admission {
    admissions: Admissions,
    /// Until the upstream is known to be well or ill.
    upstream: Option<Pass>,
    name: Option<OperationName>,
    /// Where the operation has a breaker already.
    operation: Option<Pass>,
}

impl Admissions {
    pub(super) fn new(first_pause: Duration, now: Instant) -> Self {
        Self {
            upstream: Breaker::new(first_pause, now),
            operations: Arc::default(),
            first_pause,
        }
    }

    pub(super) fn admit(
        &self,
        name: Option<OperationName>,
        now: Instant,
    ) -> Result<Admission, Refused> {
        let breaker = name
            .as_ref()
            .and_then(|name| self.operations.lock().get(&name.0).cloned());
        let operation = breaker.map(|breaker| breaker.admit(now)).transpose();
        let operation = operation.map_err(Refused::Operation)?;
        Ok(Admission {
            admissions: self.clone(),
            upstream: Some(self.upstream.admit(now).map_err(Refused::Upstream)?),
            name,
            operation,
        })
    }

    pub(super) fn health(&self, now: Instant) -> Health {
        self.upstream.health(now)
    }

    /// The operation's breaker, made if it has none.
    fn of(&self, name: OperationName, now: Instant) -> Breaker {
        let mut operations = self.operations.lock();
        if operations.len() >= MOST {
            operations.clear();
        }
        let made = || Breaker::new(self.first_pause, now);
        operations.entry(name.0).or_insert_with(made).clone()
    }
}

impl Admission {
    /// What an answer's status alone says of the upstream.
    pub(super) fn answered(&mut self, status: StatusCode, now: Instant) {
        match self.upstream.take() {
            Some(pass) if status.is_server_error() => pass.fail(now),
            Some(pass) => pass.succeed(now),
            None => {}
        }
    }

    /// The answer has come, and is as it should be.
    pub(super) fn succeed(self, now: Instant) {
        for pass in self.upstream.into_iter().chain(self.operation) {
            pass.succeed(now);
        }
    }

    /// There is no answer that can be used.
    pub(super) fn fail(self, error: &OutboundError, now: Instant) {
        let blame = error.blame();
        match (self.upstream, blame) {
            (Some(pass), Blame::Upstream) => pass.fail(now),
            (Some(pass), Blame::Operation | Blame::Answer) => pass.succeed(now),
            (_, Blame::Nobody) | (None, _) => {}
        }
        if blame == Blame::Operation {
            let begun = |name| self.admissions.of(name, now).admit(now).ok();
            if let Some(pass) = self.operation.or_else(|| self.name.and_then(begun)) {
                pass.fail(now);
            }
        }
    }
}
