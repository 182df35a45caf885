//! A body on its way in: counted, timed, and without the credential that was sent.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::task::yield_now;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::admission::Admission;
use super::error::OutboundError;
use super::redact::{Redactor, Scrub};
use super::slots::Slot;

/// So much is read in one go; then others have their turn.
const SLICE: usize = 128 << 10;
/// What is longer is read with pauses, so that a flood gets a small part of a core.
const AT_FULL_SPEED: usize = 1 << 20;
const PAUSE: Duration = Duration::from_millis(1);
/// Pieces of fewer bytes are put together as they come, into ones of `BLOCK` bytes.
const SMALL: usize = 4 << 10;
const BLOCK: usize = 64 << 10;

/// An upstream's body. It holds its place among the upstream's calls or streams until it is dropped.
pub struct Body {
    incoming: Incoming,
    name: Arc<str>,
    limit: usize,
    /// What has come, of an event stream since its last whole event.
    counted: usize,
    /// What has come since others had their turn.
    in_slice: usize,
    kind: Kind,
    sleep: Pin<Box<Sleep>>,
    scrub: Option<Scrub>,
    is_over: bool,
    admission: Option<Admission>,
    _slot: Slot,
}

enum Kind {
    /// Must have come after `within`, which ends when `sleep` does.
    Whole { within: Duration },
    /// May last, if something comes every `idle`.
    Events { idle: Duration, ends_line: bool },
}

impl Body {
    pub(super) fn whole(
        incoming: Incoming,
        rules: Rules,
        deadline: Instant,
        within: Duration,
    ) -> Self {
        Self::new(incoming, rules, Kind::Whole { within }, deadline)
    }

    pub(super) fn events(incoming: Incoming, rules: Rules, idle: Duration) -> Self {
        let kind = Kind::Events {
            idle,
            ends_line: false,
        };
        Self::new(incoming, rules, kind, Instant::now() + idle)
    }

    fn new(incoming: Incoming, rules: Rules, kind: Kind, until: Instant) -> Self {
        let Rules {
            name,
            limit,
            redactor,
            admission,
            slot,
        } = rules;
        Self {
            incoming,
            name,
            limit,
            counted: 0,
            in_slice: 0,
            kind,
            sleep: Box::pin(sleep_until(until)),
            scrub: redactor.map(Scrub::new),
            is_over: false,
            admission: Some(admission),
            _slot: slot,
        }
    }

    /// Whether it is an event stream, which may last.
    pub fn is_events(&self) -> bool {
        matches!(self.kind, Kind::Events { .. })
    }

    /// All of it.
    pub async fn whole_bytes(mut self) -> Result<Bytes, OutboundError> {
        let mut pieces = Pieces::default();
        while let Some(piece) = self.next().await {
            pieces.push(piece?);
        }
        Ok(pieces.join())
    }

    /// The next piece; none is empty.
    pub async fn next(&mut self) -> Option<Result<Bytes, OutboundError>> {
        if self.in_slice >= SLICE {
            self.in_slice = 0;
            if self.counted > AT_FULL_SPEED {
                sleep(PAUSE).await;
            } else {
                yield_now().await;
            }
        }
        let frame = self.frame().await?;
        Some(frame.map(|frame| frame.into_data().unwrap_or_default()))
    }

    /// Counts a piece.
    fn admit(&mut self, piece: &Bytes) -> Result<(), OutboundError> {
        self.counted = self.counted.saturating_add(piece.len());
        self.in_slice += piece.len();
        if let Kind::Events { idle, ends_line } = &mut self.kind {
            self.sleep.as_mut().reset(Instant::now() + *idle);
            if let Some(after) = after_event(piece, *ends_line) {
                self.counted = after;
            }
            *ends_line = piece.ends_with(b"\n");
        }
        if self.counted > self.limit {
            return Err(OutboundError::TooLarge {
                name: self.name.to_string(),
                limit: self.limit,
            });
        }
        Ok(())
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, OutboundError>>> {
        loop {
            match Pin::new(&mut self.incoming).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    let Ok(piece) = frame.into_data() else {
                        continue;
                    };
                    if piece.is_empty() {
                        continue;
                    }
                    return Poll::Ready(Some(self.admit(&piece).map(|()| piece)));
                }
                Poll::Ready(Some(Err(error))) => {
                    return Poll::Ready(Some(Err(OutboundError::Broken {
                        name: self.name.to_string(),
                        source: Arc::new(error),
                    })));
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => {
                    ready!(self.sleep.as_mut().poll(cx));
                    let name = self.name.to_string();
                    return Poll::Ready(Some(Err(match self.kind {
                        Kind::Whole { within } => OutboundError::TimedOut {
                            name,
                            after: within,
                        },
                        Kind::Events { idle, .. } => OutboundError::Silent { name, after: idle },
                    })));
                }
            }
        }
    }

    fn end(&mut self, failure: Option<&OutboundError>) {
        self.is_over = true;
        match (self.admission.take(), failure) {
            (Some(admission), Some(failure)) => admission.fail(failure, Instant::now()),
            (Some(admission), None) => admission.succeed(Instant::now()),
            (None, _) => {}
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        // Nobody waits for the end of a stream; what came of it was as it should be.
        if self.is_events() {
            self.end(None);
        }
    }
}

/// A body as it comes: long ones are copied once, when all is there, and those that turn out to be too long never.
#[derive(Default)]
struct Pieces {
    pieces: Vec<Bytes>,
    small: BytesMut,
}

impl Pieces {
    fn push(&mut self, piece: Bytes) {
        if piece.len() >= SMALL {
            self.end_block();
            self.pieces.push(piece);
        } else if self.small.is_empty() && self.pieces.is_empty() {
            // Most answers are one small piece.
            self.pieces.push(piece);
        } else {
            self.small.extend_from_slice(&piece);
            if self.small.len() >= BLOCK {
                self.end_block();
            }
        }
    }

    fn end_block(&mut self) {
        if !self.small.is_empty() {
            self.pieces.push(self.small.split().freeze());
        }
    }

    fn join(mut self) -> Bytes {
        self.end_block();
        if self.pieces.len() > 1 {
            return self.pieces.concat().into();
        }
        self.pieces.pop().unwrap_or_default()
    }
}

/// What a body has to keep to.
pub(super) struct Rules {
    pub(super) name: Arc<str>,
    pub(super) limit: usize,
    pub(super) redactor: Option<Arc<Redactor>>,
    pub(super) admission: Admission,
    pub(super) slot: Slot,
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = OutboundError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, OutboundError>>> {
        while !self.is_over {
            let piece = match ready!(self.poll_piece(cx)) {
                Some(Ok(piece)) => match &mut self.scrub {
                    Some(scrub) => scrub.push(piece),
                    None => piece,
                },
                Some(Err(error)) => {
                    self.end(Some(&error));
                    return Poll::Ready(Some(Err(error)));
                }
                None => {
                    self.end(None);
                    self.scrub.as_mut().map(Scrub::end).unwrap_or_default()
                }
            };
            if !piece.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.is_over
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::new()
    }
}

/// How many bytes follow the last blank line in `piece`, if it has one. `ends_line`: the piece before ended a line.
fn after_event(piece: &[u8], ends_line: bool) -> Option<usize> {
    let blank = |pattern: &[u8]| {
        memchr::memmem::rfind(piece, pattern).map(|at| piece.len() - at - pattern.len())
    };
    let begins = ends_line && (piece.starts_with(b"\n") || piece.starts_with(b"\r\n"));
    [b"\n\n".as_slice(), b"\n\r\n", b"\r\r"]
        .into_iter()
        .filter_map(blank)
        .min()
        .or_else(|| begins.then_some(piece.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_all_sizes_become_the_whole() {
        for sizes in [
            vec![],
            vec![7],
            vec![7, 1],
            vec![SMALL, 1, 1],
            vec![1; BLOCK + 9],
            vec![1, SMALL, 2, 3, BLOCK, 5],
        ] {
            let (mut pieces, mut whole) = (Pieces::default(), Vec::new());
            for (at, size) in sizes.iter().enumerate() {
                let piece = vec![u8::try_from(at % 251).unwrap(); *size];
                whole.extend_from_slice(&piece);
                pieces.push(piece.into());
            }
            let many = pieces.pieces.len();
            assert!(many <= 2 + whole.len() / SMALL, "{many}");
            assert!(pieces.join() == whole, "{} pieces", sizes.len());
        }
    }
}
