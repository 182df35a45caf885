//! A text of bounded length, and rows laid out on it.

use std::fmt::{self, Write};

/// Takes text until it is full. An error means that it is, and that the last thing written is there in part.
pub(super) struct Page {
    text: String,
    max_bytes: usize,
}

impl Page {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            text: String::new(),
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
        let end = self.max_bytes.saturating_sub(note.len());
        self.text.truncate(self.text.floor_char_boundary(end));
        self.text.push_str(note);
        self.text
    }
}

impl Write for Page {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.max_bytes - self.text.len();
        if text.len() <= room {
            self.text.push_str(text);
            return Ok(());
        }
        self.text.push_str(&text[..text.floor_char_boundary(room)]);
        // Nothing shorter may follow what is there in part.
        self.max_bytes = self.text.len();
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
    let mut ends = vec![page.text.len()];
    for at in 0..wanted {
        if row(&mut page, at).is_err() {
            break;
        }
        ends.push(page.text.len());
    }
    let least = wanted.min(1);
    for (shown, end) in ends.into_iter().enumerate().skip(least).rev() {
        let foot = foot(total - shown);
        if end + foot.len() <= max_bytes {
            page.text.truncate(end);
            page.text.push_str(&foot);
            return Ok(page.text);
        }
    }
    Err(page)
}
