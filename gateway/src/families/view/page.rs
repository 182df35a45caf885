//! A text of bounded length, and rows laid out on it.

use std::fmt::{self, Write};

use crate::tool::{self, escaped};

/// Takes text until it is full. An error means that it is, and that the last thing written is there in part.
///
/// Its length is counted as it is in the JSON of a result, where a quote takes two bytes: else what was laid out to fit
/// would be cut again there, in the middle of anything.
pub(super) struct Page {
    text: String,
    /// Bytes that the text takes.
    taken: usize,
    max_bytes: usize,
}

/// The bytes that a text takes on a page.
pub(super) fn taken(text: &str) -> usize {
    text.bytes().map(escaped).sum()
}

impl Page {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            text: String::new(),
            taken: 0,
            max_bytes,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// The beginning of it, between two characters, and `note`.
    pub(super) fn cut(mut self, note: &str) -> String {
        let most = self.max_bytes.saturating_sub(taken(note));
        while self.taken > most
            && let Some(last) = self.text.pop()
        {
            self.taken -= taken(last.encode_utf8(&mut [0; 4]));
        }
        self.text.push_str(note);
        self.text
    }
}

impl Write for Page {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.max_bytes - self.taken;
        let size = taken(text);
        if size <= room {
            self.text.push_str(text);
            self.taken += size;
            return Ok(());
        }
        let beginning = tool::beginning(text, room, escaped);
        self.text.push_str(beginning);
        self.taken += taken(beginning);
        // Nothing shorter may follow what is there in part.
        self.max_bytes = self.taken;
        Err(fmt::Error)
    }
}

/// The first `wanted` rows of `total`, as many as fit, between `head` and `foot`, which is told how many are left.
///
/// Fails with what there is of the page when not even one row fits.
pub(super) fn lay_out(
    max_bytes: usize,
    head: impl FnOnce(&mut Page) -> fmt::Result,
    (wanted, total): (usize, usize),
    mut row: impl FnMut(&mut Page, usize) -> fmt::Result,
    foot: impl Fn(usize) -> String,
) -> Result<String, Page> {
    let mut page = Page::new(max_bytes);
    if head(&mut page).is_err() {
        return Err(page);
    }
    let mut ends = vec![(page.text.len(), page.taken)];
    for at in 0..wanted {
        if row(&mut page, at).is_err() {
            break;
        }
        ends.push((page.text.len(), page.taken));
    }
    let least = wanted.min(1);
    for (shown, (end, before)) in ends.into_iter().enumerate().skip(least).rev() {
        let foot = foot(total - shown);
        if before + taken(&foot) <= max_bytes {
            page.text.truncate(end);
            page.text.push_str(&foot);
            return Ok(page.text);
        }
    }
    Err(page)
}
