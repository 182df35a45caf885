//! How much of an answer an agent reads, and in what form: `response_format`, `response_fields`, `response_limit`.
//!
//! Pure: what an upstream answered comes in, what the agent reads goes out. Data is cut and laid out, never reworded.

mod arguments;
mod charset;
mod markdown;
mod node;
mod page;
mod select;

use std::fmt::Write;

use serde_json::Value;

use crate::tool::{self, Output, ToolError, escaped};

pub use self::arguments::{FORMAT, NAMES, arguments};
pub use self::select::Path;

use self::arguments::{FIELDS, wrong};
use self::markdown::{Layout, write_lines, write_name};
use self::node::{Node, Unread};
use self::page::{Page, lay_out, taken};
use self::select::{find_rows, keep, limit_each, take_rows};

/// Of so many tables is it said how many rows are left.
const MAX_TABLES: usize = 3;

/// Less than this has no room for saying what was left out.
const MIN_BYTES: usize = 512;

/// What to do about an answer that is too long.
const ASK_FOR_LESS: &str = "ask for less at a time with the service's own arguments, or for fewer fields with \
    response_fields where the tool takes it";

/// Of an answer that would take too much memory to be laid out.
const MANY: &str = "the answer has more than 400,000 values";

/// What an agent wants of an answer; by default all of it, as Markdown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    pub format: Format,
    /// Empty for all.
    pub fields: Vec<Path>,
    /// Of the answer's rows; from 1 up.
    pub limit: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Compact, for reading.
    #[default]
    Markdown,
    /// Always JSON, even of an answer that is not.
    Json,
    /// The answer's own text.
    Raw,
}

/// What the agent reads of an answer: at most `max_bytes` (512 at least) once it is [`escaped`], with a note of what was
/// left out.
///
/// `body` is read as JSON when `content_type` says so, or says nothing. Fails when the body is not text, and when a
/// field is not in the answer; the call has been made by then, and the messages say so. A body that is not JSON has no
/// rows to limit.
pub fn render(
    view: &View,
    content_type: &str,
    body: &[u8],
    max_bytes: usize,
) -> Result<Output, ToolError> {
    let max_bytes = max_bytes.max(MIN_BYTES);
    let Some(text) = charset::decode(content_type, body) else {
        let kind: String = match content_type.trim() {
            "" => "of no content type".to_owned(),
            kind => kind.chars().take(100).collect(),
        };
        let size = body.len();
        return Err(ToolError::unavailable(format!(
            "the call was made, but its answer is not text in UTF-8 ({kind}, {size} bytes) and cannot be shown"
        )));
    };
    let text = &*text;
    let answer = match view.format {
        Format::Raw => Err(Unread::Text),
        Format::Markdown | Format::Json if is_json(content_type) => {
            // A byte order mark is no part of JSON, and still gets sent.
            Node::parse(text.strip_prefix('\u{feff}').unwrap_or(text))
        }
        Format::Markdown | Format::Json => Err(Unread::Text),
    };
    let text = match answer {
        Ok(answer) => render_json(view, answer, text, max_bytes)?,
        Err(Unread::TooMany) if !view.fields.is_empty() => {
            return Err(wrong(
                FIELDS,
                format!(
                    "cannot be had, since {MANY}; the call was made: ask for less at a time with the service's own arguments"
                ),
            ));
        }
        Err(Unread::TooMany) => render_many(view.format, text, max_bytes),
        Err(Unread::Text) if !view.fields.is_empty() && !text.trim().is_empty() => {
            return Err(wrong(
                FIELDS,
                "cannot be had, since the answer is not JSON; the call was made: leave it out when asking again",
            ));
        }
        Err(Unread::Text) => render_text(view.format, text, max_bytes),
    };
    Ok(Output::Text(text))
}

fn is_json(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default();
    let kind = kind.trim().to_ascii_lowercase();
    matches!(kind.as_str(), "" | "application/json" | "text/json") || kind.ends_with("+json")
}

fn render_text(format: Format, text: &str, max_bytes: usize) -> String {
    let mut page = Page::new(max_bytes);
    let written = match format {
        Format::Json if text.trim().is_empty() => page.write_str("null"),
        Format::Json => page.write_str(&Value::from(text).to_string()),
        Format::Markdown if text.trim().is_empty() => page.write_str("no content"),
        Format::Markdown | Format::Raw => page.write_str(text),
    };
    match (written, format) {
        (Ok(()), _) => page.into_text(),
        (Err(_), Format::Json) => beginning(text, "", text.len(), max_bytes),
        (Err(_), _) => page.cut(&cut_note(text.len())),
    }
}

/// JSON that is not laid out, as it came.
fn render_many(format: Format, text: &str, max_bytes: usize) -> String {
    let note = format!("{MANY}, so it is shown as it came");
    if format == Format::Json {
        return beginning(text, &note, text.len(), max_bytes);
    }
    let note = format!("\n… {note}");
    let mut page = Page::new(max_bytes);
    let written = page.write_str(text).and_then(|()| page.write_str(&note));
    match written {
        Ok(()) => page.into_text(),
        Err(_) => page.cut(&format!("{note}{}", cut_note(text.len()))),
    }
}

fn render_json(
    view: &View,
    mut answer: Node<'_>,
    body: &str,
    max_bytes: usize,
) -> Result<String, ToolError> {
    let rows = find_rows(&answer);
    if !view.fields.is_empty() {
        answer = keep(answer, rows.as_deref(), &view.fields).map_err(|problem| {
            wrong(
                FIELDS,
                format!("asks for what is not there: {problem} (the call was made)"),
            )
        })?;
    }
    let size = body.len();
    if let (Some(limit), None) = (view.limit, &rows) {
        let left = limit_each(&mut answer, limit);
        if !left.is_empty() {
            return Ok(tables(view.format, &answer, &left, size, max_bytes));
        }
    }
    if view.format == Format::Json {
        Ok(as_json(view, answer, rows.as_deref(), size, max_bytes))
    } else {
        Ok(as_markdown(view, answer, rows.as_deref(), size, max_bytes))
    }
}

/// An answer with several tables, each without the rows that are `left`; as JSON it lies in `rest`.
fn tables(
    format: Format,
    answer: &Node<'_>,
    left: &[(String, usize)],
    size: usize,
    max_bytes: usize,
) -> String {
    let total: usize = left.iter().map(|(_, left)| left).sum();
    let each = left.iter().take(MAX_TABLES).map(|(name, left)| {
        let name: String = name.chars().take(40).collect();
        format!("{left} of {name}")
    });
    let each = each.collect::<Vec<String>>().join(", ");
    let others = if left.len() > MAX_TABLES { ", …" } else { "" };
    let note = left_note(total, total).unwrap_or_default();
    let note = note.replacen(';', &format!(" ({each}{others});"), 1);
    let mut page = Page::new(max_bytes);
    if format == Format::Json {
        let note = Value::from(note);
        let written = page
            .write_str("{\"rest\":")
            .and_then(|()| answer.write_json(&mut page))
            .and_then(|()| write!(page, ",\"rows_left\":{total},\"note\":{note}}}"));
        if written.is_ok() {
            return page.into_text();
        }
        let mut whole = Page::new(max_bytes);
        // It is full, which is what it is for.
        let _ = answer.write_json(&mut whole);
        return beginning(&whole.into_text(), "", size, max_bytes);
    }
    let written = write_lines(&mut page, answer).and_then(|()| write!(page, "… {note}"));
    match written {
        Ok(()) => page.into_text(),
        Err(_) => page.cut(&cut_note(size)),
    }
}

/// The rows to show, if all goes well, and how many there are.
fn wanted(view: &View, rows: &[Node<'_>]) -> (usize, usize) {
    let limit = view.limit.unwrap_or(usize::MAX);
    (rows.len().min(limit), rows.len())
}

fn as_markdown(
    view: &View,
    mut answer: Node<'_>,
    path: Option<&[String]>,
    size: usize,
    max_bytes: usize,
) -> String {
    let rows = path.and_then(|path| take_rows(&mut answer, path));
    let Some(rows) = rows else {
        let mut page = Page::new(max_bytes);
        return match write_lines(&mut page, &answer) {
            Ok(()) => without_last_break(page.into_text(), &answer),
            Err(_) => page.cut(&cut_note(size)),
        };
    };
    let (wanted, total) = wanted(view, &rows);
    let layout = Layout::of(&rows[..wanted]);
    let head = |page: &mut Page| {
        if !answer.is_empty() {
            write_lines(page, &answer)?;
        }
        let name = path.unwrap_or_default().join(".");
        if !name.is_empty() {
            write_name(page, &name)?;
            page.write_str(if rows.is_empty() { ": " } else { ":\n" })?;
        }
        match wanted {
            0 => page.write_str("no rows\n"),
            _ => layout.write_header(page),
        }
    };
    let foot = |left| match left_note(left, total - wanted) {
        Some(note) => format!("… {note}\n"),
        None => String::new(),
    };
    let row = |page: &mut Page, at: usize| layout.write_row(page, &rows[at]);
    match lay_out(max_bytes, head, (wanted, total), row, foot) {
        Ok(text) => without_last_break(text, &answer),
        Err(page) => page.cut(&cut_note(size)),
    }
}

/// Lines end with a break, an answer does not; a text that is the whole answer keeps its own.
fn without_last_break(mut text: String, answer: &Node<'_>) -> String {
    if answer.is_container() && text.ends_with('\n') {
        text.pop();
    }
    text
}

/// The answer as it is when all of it is wanted and fits; else its rows as `{"rows": […], "rows_left": 7, "note": …}`,
/// after what else the answer says, in `rest`.
fn as_json(
    view: &View,
    mut answer: Node<'_>,
    path: Option<&[String]>,
    size: usize,
    max_bytes: usize,
) -> String {
    let mut whole = Page::new(max_bytes);
    let fits = answer.write_json(&mut whole).is_ok();
    let rows = path.and_then(|path| take_rows(&mut answer, path));
    let (wanted, total) = rows.as_deref().map_or((0, 0), |rows| wanted(view, rows));
    if fits && wanted == total {
        return whole.into_text();
    }
    let Some(rows) = rows else {
        return beginning(&whole.into_text(), "", size, max_bytes);
    };
    let head = |page: &mut Page| {
        page.write_char('{')?;
        if !answer.is_empty() {
            page.write_str("\"rest\":")?;
            answer.write_json(page)?;
            page.write_char(',')?;
        }
        page.write_str("\"rows\":[")
    };
    let row = |page: &mut Page, at: usize| {
        if at > 0 {
            page.write_char(',')?;
        }
        rows[at].write_json(page)
    };
    let foot = |left| {
        let note = left_note(left, total - wanted).unwrap_or_default();
        format!("],\"rows_left\":{left},\"note\":{}}}", Value::from(note))
    };
    match lay_out(max_bytes, head, (wanted, total), row, foot) {
        Ok(text) => text,
        Err(_) => beginning(&whole.into_text(), "", size, max_bytes),
    }
}

/// JSON that holds the beginning of `text` as a string, and `note` about what is not as usual.
fn beginning(text: &str, note: &str, size: usize, max_bytes: usize) -> String {
    let lead = if note.is_empty() { "" } else { "; " };
    let note = Value::from(format!(
        "{note}{lead}the whole answer is {size} bytes; {ASK_FOR_LESS}"
    ));
    let around = taken(&format!("{{\"beginning\":\"\",\"note\":{note}}}"));
    let room = max_bytes.saturating_sub(around);
    // It stands in a string of JSON, which the result has in another one.
    let twice = |byte: u8| match (escaped(byte), byte) {
        (1, _) => 1,
        (2, b'"' | b'\\') => 4,
        (more, _) => more + 1,
    };
    let beginning = Value::from(tool::beginning(text, room, twice));
    format!("{{\"beginning\":{beginning},\"note\":{note}}}")
}

/// What to say of `left` rows, of which `unwanted` were not asked for.
fn left_note(left: usize, unwanted: usize) -> Option<String> {
    let rows = match left {
        0 => return None,
        1 => "1 more row".to_owned(),
        left => format!("{left} more rows"),
    };
    if left > unwanted {
        return Some(format!("{rows}, too long to show; {ASK_FOR_LESS}"));
    }
    let them = if left == 1 { "it" } else { "them" };
    Some(format!(
        "{rows}; ask for {them} with the service's own paging or a larger response_limit"
    ))
}

fn cut_note(size: usize) -> String {
    format!("\n… cut here: the whole answer is {size} bytes; {ASK_FOR_LESS}")
}

#[cfg(test)]
mod tests;
