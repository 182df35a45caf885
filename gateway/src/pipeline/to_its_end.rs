//! Work that goes on when whoever waits for it goes away.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::error;

use super::Answer;
use crate::tool::ToolError;

/// A call that is run by whoever waits for it; dropped before its end, it gets a task of its own for the rest.
///
/// A task for each call would cost more than most calls.
pub(super) struct ToItsEnd {
    rest: Option<BoxFuture<'static, Answer>>,
    tracker: TaskTracker,
    _token: TaskTrackerToken,
}

impl ToItsEnd {
    pub(super) fn new(
        work: impl Future<Output = Answer> + Send + 'static,
        tracker: &TaskTracker,
    ) -> Self {
        let work = AssertUnwindSafe(work)
            .catch_unwind()
            .map(|answer| answer.unwrap_or_else(|_| panicked()));
        Self {
            rest: Some(work.boxed()),
            tracker: tracker.clone(),
            _token: tracker.token(),
        }
    }
}

impl Future for ToItsEnd {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let Some(work) = &mut self.rest else {
            return Poll::Pending;
        };
        let answer = work.poll_unpin(context);
        if answer.is_ready() {
            self.rest = None;
        }
        answer
    }
}

impl Drop for ToItsEnd {
    fn drop(&mut self) {
        // Without a runtime the program is at its end.
        if let (Some(rest), Ok(runtime)) = (self.rest.take(), Handle::try_current()) {
            self.tracker.spawn_on(rest, &runtime);
        }
    }
}

fn panicked() -> Answer {
    error!("a tool call panicked");
    Answer::Failed(ToolError::unavailable(
        "the tool failed for a reason of its own; try again",
    ))
}
