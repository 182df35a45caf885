//! A JSON answer as it was written: members keep their order and numbers their digits, neither of which
//! `serde_json::Value` does here.

use std::borrow::Cow;
use std::fmt::{self, Write};

use serde_json::value::RawValue;

/// Answers that nest deeper are shown as text.
const MAX_DEPTH: usize = 128;

/// Answers of more values are shown as text: each takes up to ten times the bytes here that it has there.
pub(super) const MAX_NODES: usize = 400_000;

/// Why an answer is only text.
#[derive(Debug)]
pub(super) enum Unread {
    /// It is no JSON, or nests too deep.
    Text,
    TooMany,
}

#[derive(Debug)]
pub(super) enum Node<'a> {
    /// A number, a boolean or null, as written.
    Literal(&'a str),
    Text(Text<'a>),
    Array(Vec<Node<'a>>),
    /// Members in the order of the answer; the last one of a name counts.
    Object(Vec<(Text<'a>, Node<'a>)>),
}

/// A string, as written: with its quotes and escapes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<'a>(&'a str);

impl<'a> Text<'a> {
    /// What it says. A string with half a surrogate pair says nothing that Rust could hold, and stays as written.
    pub(super) fn decoded(self) -> Cow<'a, str> {
        let inner = self.0.get(1..self.0.len() - 1).unwrap_or_default();
        if !inner.contains('\\') {
            return inner.into();
        }
        serde_json::from_str::<String>(self.0).map_or(Cow::Borrowed(inner), Cow::Owned)
    }

    /// Without escapes that JSON does not need: `\u00e9` is six bytes for two.
    fn write_json(self, out: &mut impl Write) -> fmt::Result {
        if !self.0.contains('\\') {
            return out.write_str(self.0);
        }
        let text = serde_json::from_str::<String>(self.0).ok();
        match text.and_then(|text| serde_json::to_string(&text).ok()) {
            Some(written) => out.write_str(&written),
            None => out.write_str(self.0),
        }
    }
}

impl<'a> Node<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Self, Unread> {
        let raw: &RawValue = serde_json::from_str(text).map_err(|_| Unread::Text)?;
        let mut reader = Reader {
            text: raw.get(),
            at: 0,
            room: MAX_NODES,
        };
        let node = reader.node(0);
        node.ok_or(match reader.room {
            0 => Unread::TooMany,
            _ => Unread::Text,
        })
    }

    pub(super) fn is_container(&self) -> bool {
        matches!(self, Self::Array(_) | Self::Object(_))
    }

    /// An array or an object with nothing in it.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Literal(_) | Self::Text(_) => false,
            Self::Array(elements) => elements.is_empty(),
            Self::Object(members) => members.is_empty(),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        let Self::Object(members) = self else {
            return None;
        };
        let mut members = members.iter().rev();
        let found = members.find(|(key, _)| key.decoded() == name);
        found.map(|(_, value)| value)
    }

    /// Writes JSON without white space.
    pub(super) fn write_json(&self, out: &mut impl Write) -> fmt::Result {
        match self {
            Self::Literal(literal) => out.write_str(literal),
            Self::Text(text) => text.write_json(out),
            Self::Array(elements) => {
                out.write_char('[')?;
                for (at, element) in elements.iter().enumerate() {
                    if at > 0 {
                        out.write_char(',')?;
                    }
                    element.write_json(out)?;
                }
                out.write_char(']')
            }
            Self::Object(members) => {
                out.write_char('{')?;
                for (at, (key, value)) in members.iter().enumerate() {
                    if at > 0 {
                        out.write_char(',')?;
                    }
                    key.write_json(out)?;
                    out.write_char(':')?;
                    value.write_json(out)?;
                }
                out.write_char('}')
            }
        }
    }
}

/// Reads text that is known to be JSON, and so may take commas and colons for white space.
struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// How many more nodes there may be.
    room: usize,
}

impl<'a> Reader<'a> {
    fn node(&mut self, depth: usize) -> Option<Node<'a>> {
        if depth > MAX_DEPTH {
            return None;
        }
        self.room = self.room.checked_sub(1)?;
        match self.peek()? {
            b'{' => {
                self.at += 1;
                let mut members = Vec::new();
                while self.peek()? != b'}' {
                    members.push((self.string()?, self.node(depth + 1)?));
                }
                self.at += 1;
                Some(Node::Object(members))
            }
            b'[' => {
                self.at += 1;
                let mut elements = Vec::new();
                while self.peek()? != b']' {
                    elements.push(self.node(depth + 1)?);
                }
                self.at += 1;
                Some(Node::Array(elements))
            }
            b'"' => self.string().map(Node::Text),
            _ => {
                let rest = self.text.get(self.at..)?;
                let ends = |c: char| c.is_ascii_whitespace() || matches!(c, ',' | ']' | '}');
                let literal = &rest[..rest.find(ends).unwrap_or(rest.len())];
                self.at += literal.len();
                Some(Node::Literal(literal))
            }
        }
    }

    fn string(&mut self) -> Option<Text<'a>> {
        self.peek()?;
        let start = self.at;
        self.at += 1;
        loop {
            match self.text.as_bytes().get(self.at)? {
                b'"' => break,
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        self.text.get(start..self.at).map(Text)
    }

    /// The first byte of what comes next.
    fn peek(&mut self) -> Option<u8> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let skipped = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b',' | b':');
        self.at += rest.iter().take_while(|byte| skipped(byte)).count();
        self.text.as_bytes().get(self.at).copied()
    }
}
