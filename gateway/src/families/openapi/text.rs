//! Text of a document as a JSON value, and words of it made fit for lists and messages.

use serde_json::Value;
use serde_saphyr::options::DuplicateKeyPolicy;

use super::Unreadable;

/// How deep a document may nest; as deep as `serde_json` goes.
const DEPTH: usize = 128;

/// How many values a document in JSON may hold, about as many as one in YAML: an object of a few bytes takes hundreds in
/// memory. The largest documents of much structure hold two thirds of it.
pub(super) const MAX_VALUES: usize = 2_000_000;

/// What the YAML reader has to go that deep: it takes tens of kilobytes a level, more than a worker's stack has.
const STACK: usize = 64 * 1024 * 1024;

/// Reads JSON, or else YAML.
///
/// JSON first: its reader is ten times faster, and what it refuses may still be YAML.
pub(super) fn read(document: &[u8]) -> Result<Value, Unreadable> {
    let syntax = |reason: String| Unreadable::Syntax { reason };
    let text = std::str::from_utf8(document).map_err(|_| syntax("it is not UTF-8".to_owned()))?;
    let text = text.trim_start_matches('\u{feff}');
    if text.trim_start().starts_with(['{', '[']) && values(text) > MAX_VALUES {
        return Err(Unreadable::TooMany);
    }
    let as_json = match serde_json::from_str(text) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    let read = std::thread::scope(|scope| {
        let reader = std::thread::Builder::new().stack_size(STACK);
        let reader = reader
            .spawn_scoped(scope, || read_yaml(text))
            .map_err(|error| error.to_string())?;
        let panicked = |_| Err("the reader stopped".to_owned());
        reader.join().unwrap_or_else(panicked)
    });
    read.map_err(|error| {
        let looks_like_json = text.trim_start().starts_with('{');
        syntax(if looks_like_json {
            as_json.to_string()
        } else {
            error
        })
    })
}

/// About how many values a text in JSON holds: each but the first follows a bracket or a comma.
fn values(text: &str) -> usize {
    let (mut count, mut is_string, mut is_escaped) = (1, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_string => is_escaped = true,
            b'"' => is_string = !is_string,
            b'[' | b'{' | b',' if !is_string => count += 1,
            _ => {}
        }
    }
    count
}

fn read_yaml(text: &str) -> Result<Value, String> {
    // Enough for 20 MB of short lines, and a bound on what aliases blow up to. How many aliases an anchor has says
    // nothing: documents have one answer that all operations share.
    let budget = serde_saphyr::budget! {
        max_depth: DEPTH,
        max_events: 8_000_000,
        max_nodes: 4_000_000,
        max_documents: 1,
        enforce_alias_anchor_ratio: false,
    };
    // `on`, `no` and the like stay words, as YAML 1.2 and OpenAPI have them.
    let options = serde_saphyr::options! {
        budget: budget,
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        strict_booleans: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| short(&error.to_string()))
}

/// One line of a value that should be a string.
pub(super) fn line(value: &Value) -> String {
    let words: Vec<&str> = value
        .as_str()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    cut(&words.join(" "), 200)
}

/// A name or an error fit for a message.
pub(super) fn short(text: &str) -> String {
    cut(text, 200)
}

/// The first `most` characters of `text`, with a mark where there are more.
pub(super) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", text[..at].trim_end()),
        None => text.to_owned(),
    }
}
