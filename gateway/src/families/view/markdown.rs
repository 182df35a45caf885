//! A JSON answer as compact Markdown (R-C-204): rows as a table, all else as lines that are indented as in YAML.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::{self, Write};

use serde::de::IgnoredAny;

use super::node::{Node, Text};
use super::page::Page;

/// Tables are no wider; rows with more to them are lists.
const MAX_COLUMNS: usize = 100;

/// So deep do objects become columns of their own, `owner.login`; what is below is JSON.
const MAX_COLUMN_DEPTH: usize = 3;

/// So deep do lines go; what is below is JSON.
const MAX_LINE_DEPTH: usize = 4;

/// A column's names from a row down: `owner`, `login`.
type Column<'a> = Vec<Cow<'a, str>>;

/// How rows are written.
pub(super) enum Layout<'a> {
    Table(Vec<Column<'a>>),
    List,
}

impl<'a> Layout<'a> {
    /// A table when all rows are objects that have most of their members in common.
    pub(super) fn of(rows: &[Node<'a>]) -> Self {
        let all: Vec<&Node<'a>> = rows.iter().collect();
        match columns(&all, 1) {
            Some(columns) => Self::Table(columns),
            None => Self::List,
        }
    }

    /// What stands above the rows.
    pub(super) fn write_header(&self, out: &mut Page) -> fmt::Result {
        let Self::Table(columns) = self else {
            return Ok(());
        };
        if !out.is_empty() {
            out.write_char('\n')?;
        }
        for column in columns {
            out.write_char('|')?;
            for (at, name) in column.iter().enumerate() {
                if at > 0 {
                    out.write_char('.')?;
                }
                Cell(out).write_str(name)?;
            }
        }
        out.write_str("|\n")?;
        for _ in columns {
            out.write_str("|---")?;
        }
        out.write_str("|\n")
    }

    pub(super) fn write_row(&self, out: &mut Page, row: &Node<'a>) -> fmt::Result {
        match self {
            Self::Table(columns) => {
                for column in columns {
                    out.write_char('|')?;
                    let mut value = Some(row);
                    for name in column {
                        value = value.and_then(|value| value.get(name));
                    }
                    match value {
                        None => {}
                        Some(Node::Text(text)) => Cell(out).write_str(&plain(*text))?,
                        Some(value) => value.write_json(&mut Cell(out))?,
                    }
                }
                out.write_str("|\n")
            }
            Self::List => write_element(out, row, 0),
        }
    }
}

/// The columns that rows make; `None` when a table of them would be wide or mostly empty.
fn columns<'a>(rows: &[&Node<'a>], depth: usize) -> Option<Vec<Column<'a>>> {
    let mut names: Vec<Cow<'a, str>> = Vec::new();
    let mut values: Vec<Vec<&Node<'a>>> = Vec::new();
    let mut places: HashMap<Cow<'a, str>, usize> = HashMap::new();
    for row in rows {
        let Node::Object(members) = row else {
            return None;
        };
        // It would look like an object that is not there.
        if depth > 1 && members.is_empty() {
            return None;
        }
        for (key, value) in members {
            let name = key.decoded();
            let place = *places.entry(name.clone()).or_insert(names.len());
            if place == MAX_COLUMNS {
                return None;
            }
            if place == names.len() {
                names.push(name);
                values.push(Vec::new());
            }
            values[place].push(value);
        }
    }
    let filled: usize = values.iter().map(Vec::len).sum();
    if names.is_empty() || filled * 2 < names.len() * rows.len() {
        return None;
    }
    let mut all = Vec::new();
    for (name, values) in names.into_iter().zip(values) {
        let inner = match depth {
            MAX_COLUMN_DEPTH => None,
            _ => columns(&values, depth + 1),
        };
        match inner {
            None => all.push(vec![name]),
            Some(inner) => all.extend(inner.into_iter().map(|mut column| {
                column.insert(0, name.clone());
                column
            })),
        }
    }
    (all.len() <= MAX_COLUMNS).then_some(all)
}

/// The inside of a cell: one line, with nothing in it that ends the cell.
struct Cell<'p>(&'p mut Page);

impl Write for Cell<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(['|', '\n', '\r']) {
            let (before, found) = rest.split_at(at);
            self.0.write_str(before)?;
            let (taken, instead) = match found.as_bytes() {
                [b'|', ..] => (1, "\\|"),
                [b'\r', b'\n', ..] => (2, "<br>"),
                _ => (1, "<br>"),
            };
            self.0.write_str(instead)?;
            rest = &found[taken..];
        }
        self.0.write_str(rest)
    }
}

/// A text without its quotes, unless it would then read as another value: `"7"` is not `7`.
fn plain(text: Text<'_>) -> Cow<'_, str> {
    let text = text.decoded();
    if text.is_empty() || serde_json::from_str::<IgnoredAny>(&text).is_ok() {
        return serde_json::to_string(&text).map_or(text, Cow::Owned);
    }
    text
}

/// The whole answer where it has no rows: lines of an object, or a value as itself.
pub(super) fn write_lines(out: &mut Page, answer: &Node<'_>) -> fmt::Result {
    match answer {
        Node::Object(members) if !members.is_empty() => write_members(out, members, 0, ""),
        Node::Text(text) => out.write_str(&text.decoded()),
        other => other.write_json(out),
    }
}

/// `key: value` lines; `lead` stands before the first.
fn write_members(
    out: &mut Page,
    members: &[(Text<'_>, Node<'_>)],
    depth: usize,
    lead: &str,
) -> fmt::Result {
    for (at, (key, value)) in members.iter().enumerate() {
        match at {
            0 if !lead.is_empty() => out.write_str(lead)?,
            _ => indent(out, depth)?,
        }
        write_name(out, &key.decoded())?;
        out.write_char(':')?;
        match value {
            Node::Object(members) if depth < MAX_LINE_DEPTH && !members.is_empty() => {
                out.write_char('\n')?;
                write_members(out, members, depth + 1, "")?;
            }
            Node::Array(elements)
                if depth < MAX_LINE_DEPTH && elements.iter().any(Node::is_container) =>
            {
                out.write_char('\n')?;
                for element in elements {
                    write_element(out, element, depth + 1)?;
                }
            }
            value => {
                out.write_char(' ')?;
                write_value(out, value, depth)?;
            }
        }
    }
    Ok(())
}

/// A line of a list, and those below it.
fn write_element(out: &mut Page, element: &Node<'_>, depth: usize) -> fmt::Result {
    indent(out, depth)?;
    match element {
        Node::Object(members) if !members.is_empty() => {
            write_members(out, members, depth + 1, "- ")
        }
        value => {
            out.write_str("- ")?;
            write_value(out, value, depth)
        }
    }
}

/// The rest of a line; the lines of a longer text follow it, indented, so that none reads as one of ours.
fn write_value(out: &mut Page, value: &Node<'_>, depth: usize) -> fmt::Result {
    match value {
        Node::Text(text) => {
            let text = plain(*text);
            if text.contains('\n') {
                out.write_char('|')?;
                for line in text.split('\n') {
                    out.write_char('\n')?;
                    if !line.is_empty() {
                        indent(out, depth + 1)?;
                        out.write_str(line)?;
                    }
                }
            } else {
                out.write_str(&text)?;
            }
        }
        value => value.write_json(out)?,
    }
    out.write_char('\n')
}

/// A member's name on one line.
pub(super) fn write_name(out: &mut Page, name: &str) -> fmt::Result {
    let mut lines = name.split('\n');
    out.write_str(lines.next().unwrap_or_default())?;
    lines.try_for_each(|line| {
        out.write_str("\\n")?;
        out.write_str(line)
    })
}

fn indent(out: &mut Page, depth: usize) -> fmt::Result {
    (0..depth).try_for_each(|_| out.write_str("  "))
}
