//! The circuit breaker of one upstream: whoever keeps failing is left alone for a while, longer each time.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::times::jittered;

/// How many failures in a row open it…
const IN_A_ROW: u32 = 5;
/// …or half of the calls of a window, once there were so many.
const ENOUGH_CALLS: u32 = 20;
const WINDOW: Duration = Duration::from_secs(10);
const LAST_PAUSE: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub(super) struct Breaker {
    state: Arc<Mutex<Inner>>,
    first_pause: Duration,
}

struct Inner {
    in_a_row: u32,
    calls: u32,
    failures: u32,
    window_ends: Instant,
    /// Of the next opening.
    pause: Duration,
    circuit: Circuit,
}

#[derive(Clone, Copy)]
enum Circuit {
    Closed,
    OpenUntil(Instant),
    /// One call has been let through to see.
    Probing,
}

/// How it stands with a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    Closed,
    /// No call goes through before so much time has passed.
    Open {
        retry_after: Duration,
    },
    /// One call finds out whether the upstream is well again.
    Probing,
}

/// The right to make one call. Dropped without a word, it counts as if there had been no call.
pub(super) struct Pass {
    breaker: Breaker,
    /// It alone decides how an open breaker goes on; calls that began before it opened say nothing of now.
    is_probe: bool,
    admitted_at: Instant,
}

impl Breaker {
    pub(super) fn new(first_pause: Duration, now: Instant) -> Self {
        let inner = Inner {
            in_a_row: 0,
            calls: 0,
            failures: 0,
            window_ends: now + WINDOW,
            pause: first_pause,
            circuit: Circuit::Closed,
        };
        Self {
            state: Arc::new(Mutex::new(inner)),
            first_pause,
        }
    }

    /// Fails with the time after which asking again makes sense.
    pub(super) fn admit(&self, now: Instant) -> Result<Pass, Duration> {
        let mut state = self.state.lock();
        let mut is_probe = false;
        match state.circuit {
            Circuit::Closed => {}
            Circuit::OpenUntil(end) => {
                is_probe = true;
                if now < end {
                    return Err(end - now);
                }
                state.circuit = Circuit::Probing;
            }
            Circuit::Probing => return Err(self.first_pause),
        }
        Ok(Pass {
            breaker: self.clone(),
            is_probe,
            admitted_at: now,
        })
    }

    pub(super) fn health(&self, now: Instant) -> Health {
        match self.state.lock().circuit {
            Circuit::Closed => Health::Closed,
            Circuit::OpenUntil(end) => Health::Open {
                retry_after: end.saturating_duration_since(now),
            },
            Circuit::Probing => Health::Probing,
        }
    }
}

impl Pass {
    pub(super) fn succeed(mut self, now: Instant) {
        let is_probe = std::mem::take(&mut self.is_probe);
        let mut state = self.breaker.state.lock();
        state.in_a_row = 0;
        state.count(false, now);
        if is_probe {
            state.circuit = Circuit::Closed;
            state.pause = self.breaker.first_pause;
        }
    }

    pub(super) fn fail(mut self, now: Instant) {
        let is_probe = std::mem::take(&mut self.is_probe);
        let mut state = self.breaker.state.lock();
        state.in_a_row += 1;
        state.count(true, now);
        let is_ill = state.in_a_row >= IN_A_ROW
            || (state.calls >= ENOUGH_CALLS && state.failures * 2 >= state.calls);
        if is_probe || (is_ill && matches!(state.circuit, Circuit::Closed)) {
            state.open(now);
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if self.is_probe {
            // Whoever comes next is the probe.
            self.breaker.state.lock().circuit = Circuit::OpenUntil(self.admitted_at);
        }
    }
}

impl Inner {
    fn count(&mut self, is_failure: bool, now: Instant) {
        if now >= self.window_ends {
            (self.calls, self.failures) = (0, 0);
            self.window_ends = now + WINDOW;
        }
        self.calls += 1;
        self.failures += u32::from(is_failure);
    }

    fn open(&mut self, now: Instant) {
        self.circuit = Circuit::OpenUntil(now + jittered(self.pause));
        self.pause = (self.pause * 2).min(LAST_PAUSE);
        (self.calls, self.failures, self.in_a_row) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_secs(1);

    #[track_caller]
    fn fail(breaker: &Breaker, times: u32, now: Instant) {
        for _ in 0..times {
            breaker.admit(now).ok().unwrap().fail(now);
        }
    }

    fn succeed(breaker: &Breaker, now: Instant) {
        breaker.admit(now).ok().unwrap().succeed(now);
    }

    #[test]
    fn it_opens_lets_one_probe_pass_and_waits_longer_each_time() {
        let mut now = Instant::now();
        let breaker = Breaker::new(PAUSE, now);
        fail(&breaker, 4, now);
        succeed(&breaker, now);
        let late = breaker.admit(now).ok().unwrap();
        fail(&breaker, 5, now);
        let first = breaker.admit(now).err().unwrap();
        assert!(first <= PAUSE.mul_f64(1.25), "{first:?}");
        now += PAUSE.mul_f64(1.25);
        let probe = breaker.admit(now).ok().unwrap();
        assert!(breaker.admit(now).is_err());
        late.succeed(now);
        assert_eq!(breaker.health(now), Health::Probing);
        probe.fail(now);
        let second = breaker.admit(now).err().unwrap();
        assert!(second >= PAUSE.mul_f64(1.4), "{second:?}");
        now += second;
        // Whoever gave up has proven nothing: the next one is the probe.
        drop(breaker.admit(now).ok().unwrap());
        succeed(&breaker, now);
        assert_eq!(breaker.health(now), Health::Closed);
    }

    #[test]
    fn half_of_many_calls_are_too_many_and_a_few_are_not() {
        let mut now = Instant::now();
        let breaker = Breaker::new(PAUSE, now);
        for _ in 0..2 {
            for _ in 0..9 {
                fail(&breaker, 1, now);
                succeed(&breaker, now);
            }
            assert_eq!(breaker.health(now), Health::Closed);
            now += WINDOW;
        }
        for _ in 0..9 {
            fail(&breaker, 1, now);
            succeed(&breaker, now);
        }
        fail(&breaker, 2, now);
        assert!(matches!(breaker.health(now), Health::Open { .. }));
    }
}
