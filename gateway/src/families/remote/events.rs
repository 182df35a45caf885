//! Event streams: what comes in pieces becomes the data of events.

use bytes::{Bytes, BytesMut};

use crate::outbound::{Body, OutboundError};

/// The events of one answer. How large one may be is the body's to watch over.
pub(super) struct Events {
    body: Body,
    buffer: BytesMut,
    /// Bytes of the buffer that are known to end no line.
    searched: usize,
    /// The data of the event that is coming.
    data: Vec<Bytes>,
    /// The line before ended in a carriage return, to which a line feed may belong.
    after_return: bool,
    pub(super) received: usize,
}

impl Events {
    pub(super) fn new(body: Body) -> Self {
        Self {
            body,
            buffer: BytesMut::new(),
            searched: 0,
            data: Vec::new(),
            after_return: false,
            received: 0,
        }
    }

    /// The data of the next event that has any; `None` at the end of the stream.
    pub(super) async fn next(&mut self) -> Option<Result<Bytes, OutboundError>> {
        loop {
            while let Some(line) = self.line() {
                if let Some(data) = self.take(line) {
                    return Some(Ok(data));
                }
            }
            match self.body.next().await? {
                Ok(piece) => {
                    self.received += piece.len();
                    self.buffer.extend_from_slice(&piece);
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// A line that has come whole, without its end.
    fn line(&mut self) -> Option<Bytes> {
        if self.after_return && self.buffer.first() == Some(&b'\n') {
            let _ = self.buffer.split_to(1);
        }
        self.after_return &= self.buffer.is_empty();
        let rest = &self.buffer[self.searched..];
        let Some(end) = memchr::memchr2(b'\n', b'\r', rest) else {
            self.searched = self.buffer.len();
            return None;
        };
        let mut line = self.buffer.split_to(self.searched + end + 1);
        self.searched = 0;
        self.after_return = line.ends_with(b"\r");
        line.truncate(line.len() - 1);
        Some(line.freeze())
    }

    /// What a line adds; the event's data when the line ends it.
    fn take(&mut self, line: Bytes) -> Option<Bytes> {
        if line.is_empty() {
            return match self.data.len() {
                0 => None,
                1 => self.data.pop(),
                _ => Some(std::mem::take(&mut self.data).join(&b"\n"[..]).into()),
            }
            .filter(|data| !data.is_empty());
        }
        if line.starts_with(b"data:") {
            let begin = 5 + usize::from(line.get(5) == Some(&b' '));
            self.data.push(line.slice(begin..));
        }
        None
    }
}
