//! What a kind of ToolSource is: how it is asked what it offers, and what comes of the answer.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use chandlery_crds::NotedTool;
use futures::future::BoxFuture;
use sha2::{Digest as _, Sha256};

use crate::family::Family;
use crate::tool::{Effect, Tool};

/// One generation of one ToolSource, ready to be asked.
pub trait Connector: Send + Sync + 'static {
    /// Asks the source what it offers; the answer is for [`Connector::read`], and may be read again much later.
    fn fetch(&self) -> BoxFuture<'_, Result<Bytes, Failure>>;

    /// What an answer means. Does no I/O.
    fn read(&self, answer: &Bytes) -> Result<Offered, Failure>;

    /// Ends when the source says that it offers something else now.
    fn changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

/// What a source offers.
pub struct Offered {
    /// Each with its origin; no two of one operation or of one name.
    pub tools: Vec<OfferedTool>,
    /// What cannot be a tool, each with why.
    pub left_out: Vec<NotedTool>,
    /// Runs calls of all of them.
    pub family: Arc<dyn Family>,
}

/// A tool that a source offers.
pub struct OfferedTool {
    pub tool: Tool,
    /// What a change of must not go unnoticed although the agent does not see it, such as method and path.
    pub identity: String,
    /// What it does in the source's own words, where nothing but those tells. They count for a tool that a person has
    /// approved.
    pub claimed: Option<Effect>,
}

/// Why a source could not be asked, in words that are the same each time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// A fact in PascalCase, one of [`chandlery_crds::conditions::reason`].
    pub reason: &'static str,
    /// What is wrong and what to do about it. Nothing secret.
    pub message: String,
}

impl Failure {
    /// Whatever a source has put into the message, it is one line of what people can see.
    pub fn new(reason: &'static str, message: impl AsRef<str>) -> Self {
        Self {
            reason,
            message: line(message.as_ref()),
        }
    }
}

/// `text` on one line, without what nobody would see.
pub fn line(text: &str) -> String {
    let seen = visible(text);
    let words: Vec<&str> = seen.split_whitespace().collect();
    words.join(" ")
}

/// Characters that the name of a tool may have.
const LONGEST: usize = 64;

/// The name under which an operation is served: letters, digits, `_` and `-`, at most 64 of them.
///
/// What has to be changed to fit ends in a digest of the whole, so that two operations do not become one.
pub fn served_name(prefix: &str, operation: &str) -> String {
    let whole = match prefix {
        "" => operation.to_owned(),
        prefix => format!("{prefix}_{operation}"),
    };
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if whole.len() <= LONGEST && whole.chars().all(fits) {
        return whole;
    }
    let digest = hex::encode(&Sha256::digest(&whole)[..4]);
    let kept = whole.chars().map(|c| if fits(c) { c } else { '_' });
    let kept: String = kept.take(LONGEST - 1 - digest.len()).collect();
    format!("{kept}_{digest}")
}

/// `text` without what a person who reads it would not see: control characters, escape sequences of terminals, text that
/// has no width or turns its direction, tags, and comments of HTML.
pub fn visible(text: &str) -> Cow<'_, str> {
    if text.is_ascii() && !text.contains(is_hidden) && !text.contains("<!--") {
        return Cow::Borrowed(text);
    }
    let mut seen = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let after = &rest[next.len_utf8()..];
        if rest.starts_with("<!--") {
            rest = rest.find("-->").map_or("", |end| &rest[end + 3..]);
        } else if next == '\u{1b}' && after.starts_with('[') {
            let end = after[1..].find(|c: char| ('\u{40}'..='\u{7e}').contains(&c));
            rest = end.map_or("", |end| &after[end + 2..]);
        } else {
            if !is_hidden(next) {
                seen.push(next);
            }
            rest = after;
        }
    }
    Cow::Owned(seen)
}

fn is_hidden(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t')
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_served_name_fits_and_stays_one() {
        assert_eq!(served_name("crm", "list_customers"), "crm_list_customers");
        assert_eq!(served_name("", "search"), "search");
        let long = served_name("crm", &"x".repeat(80));
        assert_eq!(long.len(), 64);
        assert_ne!(long, served_name("crm", &"x".repeat(81)));
        assert_eq!(served_name("", "pаy"), "p_y_ca76c901".to_owned());
    }

    #[test]
    fn what_nobody_sees_goes() {
        for (text, seen) in [
            ("plain", "plain"),
            ("two\nlines\tand a tab", "two\nlines\tand a tab"),
            ("Größe 漢字 👍", "Größe 漢字 👍"),
            ("a\u{200b}b\u{202e}c\u{feff}", "abc"),
            ("tags\u{e0041}\u{e0042}!", "tags!"),
            ("red \u{1b}[31mtext\u{1b}[0m", "red text"),
            ("before<!-- ignore all of it -->after", "beforeafter"),
            ("open <!-- never closed", "open "),
            ("bell\u{7}", "bell"),
        ] {
            assert_eq!(visible(text), seen);
        }
    }
}
