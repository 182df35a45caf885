//! Event streams: whatever a stream sends, a comment goes out whenever it has been silent for a while.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http_body::Frame;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

use super::wire;

/// How streams are kept, and what ends all of them.
#[derive(Clone)]
pub(super) struct Streams {
    /// Longest silence; then a comment.
    pub(super) silence: Duration,
    /// The server stops.
    pub(super) shutdown: CancellationToken,
}

impl Streams {
    /// A stream that lasts until its events end. A call that runs is let finish when the server stops.
    pub(super) fn finite(&self, events: impl Stream<Item = Bytes> + Send + 'static) -> Response {
        wire::stream(Body::new(KeptAlive {
            events: Box::pin(events),
            silence: self.silence,
            comment_at: Box::pin(tokio::time::sleep(self.silence)),
        }))
    }

    /// A stream that lasts until `queue` closes, the client goes or the server stops; its last words are `farewell`.
    /// Dropping it drops `held`.
    pub(super) fn endless(
        &self,
        queue: mpsc::Receiver<Bytes>,
        farewell: Option<Bytes>,
        held: impl Send + 'static,
    ) -> Response {
        let events = stream::unfold((queue, held), |(mut queue, held)| async move {
            let event = queue.recv().await?;
            Some((event, (queue, held)))
        });
        let events = events.take_until(self.shutdown.clone().cancelled_owned());
        // A first comment makes the head of the response go out at once.
        self.finite(
            stream::iter([wire::COMMENT])
                .chain(events)
                .chain(stream::iter(farewell)),
        )
    }
}

struct KeptAlive {
    events: Pin<Box<dyn Stream<Item = Bytes> + Send>>,
    silence: Duration,
    comment_at: Pin<Box<Sleep>>,
}

impl KeptAlive {
    fn rest(&mut self) {
        self.comment_at
            .as_mut()
            .reset(Instant::now() + self.silence);
    }
}

impl http_body::Body for KeptAlive {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Poll::Ready(event) = self.events.as_mut().poll_next(cx) {
            self.rest();
            return Poll::Ready(event.map(|event| Ok(Frame::data(event))));
        }
        if self.comment_at.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.rest();
        Poll::Ready(Some(Ok(Frame::data(wire::COMMENT))))
    }
}
