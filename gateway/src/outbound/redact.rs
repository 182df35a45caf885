//! Takes credentials out of what an upstream sends back.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, STANDARD, URL_SAFE};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue};
use memchr::memmem::Finder;
use memchr::{memchr2, memchr3_iter};

/// Shorter values would be found where they are not.
const MIN_BYTES: usize = 8;
const INSTEAD: &[u8] = b"[redacted]";

/// The spellings of one credential.
pub struct Redactor {
    /// Longest first, since one may be part of another.
    needles: Vec<Needle>,
}

/// One text to be found, also where its characters are escaped as JSON, JSON within JSON, or URLs write them.
struct Needle {
    text: Vec<u8>,
    plain: Finder<'static>,
}

/// What a place is to a needle.
enum Found {
    /// It is there, up to this place.
    Until(usize),
    /// It may be: the bytes end before it does.
    Begun,
    Not,
}

/// Bytes that one byte of a needle may take: `\\u0026`, with another backslash for JSON within JSON.
const LONGEST_ESCAPE: usize = 8;

impl Redactor {
    /// Of the raw `values`, and what base64 makes of them. Values below 8 bytes are left out.
    pub fn new<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut spellings: Vec<Vec<u8>> = Vec::new();
        for value in values {
            if value.len() < MIN_BYTES {
                continue;
            }
            spellings.push(value.to_vec());
            for engine in [&STANDARD, &URL_SAFE] {
                spellings.extend(within_base64(engine, value));
            }
        }
        spellings.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        spellings.dedup();
        Self {
            needles: spellings.into_iter().map(Needle::new).collect(),
        }
    }

    /// `bytes` without any credential; the very same where there is none.
    pub fn scrub(&self, mut bytes: Bytes) -> Bytes {
        for needle in &self.needles {
            let Some(first) = needle.find(&bytes) else {
                continue;
            };
            let mut clean = BytesMut::with_capacity(bytes.len());
            let (mut rest, mut found) = (&bytes[..], Some(first));
            while let Some((at, end)) = found {
                clean.extend_from_slice(&rest[..at]);
                clean.extend_from_slice(INSTEAD);
                rest = &rest[end..];
                found = needle.find(rest);
            }
            clean.extend_from_slice(rest);
            bytes = clean.freeze();
        }
        bytes
    }

    pub fn scrub_headers(&self, headers: &mut HeaderMap) {
        for value in headers.values_mut() {
            let holds = |needle: &Needle| needle.find(value.as_bytes()).is_some();
            if self.needles.iter().any(holds) {
                *value = HeaderValue::from_static("[redacted]");
            }
        }
    }

    /// How many bytes at the end of `bytes` may be the beginning of a credential.
    fn begun(&self, bytes: &[u8]) -> usize {
        let begun = self.needles.iter().filter_map(|needle| needle.begun(bytes));
        begun.max().unwrap_or(0)
    }
}

impl Needle {
    fn new(text: Vec<u8>) -> Self {
        Self {
            plain: Finder::new(&text).into_owned(),
            text,
        }
    }

    /// The first place where it is, and where it ends.
    fn find(&self, bytes: &[u8]) -> Option<(usize, usize)> {
        if memchr2(b'\\', b'%', bytes).is_none() {
            let at = self.plain.find(bytes)?;
            return Some((at, at + self.text.len()));
        }
        self.places(bytes)
            .find_map(|at| match spelled(&self.text, bytes, at) {
                Found::Until(end) => Some((at, end)),
                Found::Begun | Found::Not => None,
            })
    }

    /// How many bytes at the end may be its beginning.
    fn begun(&self, bytes: &[u8]) -> Option<usize> {
        let from = bytes.len().saturating_sub(self.text.len() * LONGEST_ESCAPE);
        let end = &bytes[from..];
        let begun = |at: &usize| matches!(spelled(&self.text, end, *at), Found::Begun);
        Some(end.len() - self.places(end).find(begun)?)
    }

    /// Where it may begin.
    fn places(&self, bytes: &[u8]) -> impl Iterator<Item = usize> {
        memchr3_iter(self.text[0], b'\\', b'%', bytes)
    }
}

/// Whether `bytes` have `wanted` at `at`, each of its characters as it is or escaped.
fn spelled(mut wanted: &[u8], bytes: &[u8], mut at: usize) -> Found {
    while let Some((first, rest)) = wanted.split_first() {
        let Some(byte) = bytes.get(at) else {
            return Found::Begun;
        };
        let is_escape = matches!(byte, b'\\' | b'%');
        if byte == first && !is_escape {
            (wanted, at) = (rest, at + 1);
            continue;
        }
        if byte == first {
            // It may stand for itself, also where it takes two, or four.
            let run = bytes[at..]
                .iter()
                .take_while(|other| *other == byte)
                .count();
            for taken in 1..=run.min(LONGEST_ESCAPE) {
                match spelled(rest, bytes, at + taken) {
                    Found::Not => {}
                    found => return found,
                }
            }
        }
        if !is_escape {
            return Found::Not;
        }
        let mut unit = [0; 4];
        match escaped(&bytes[at..], &mut unit) {
            Escaped::As(length, taken) => match wanted.strip_prefix(&unit[..length]) {
                Some(rest) => (wanted, at) = (rest, at + taken),
                None => return Found::Not,
            },
            Escaped::Begun => return Found::Begun,
            Escaped::Not => return Found::Not,
        }
    }
    Found::Until(at)
}

enum Escaped {
    /// So many bytes of the unit, out of so many.
    As(usize, usize),
    Begun,
    Not,
}

/// The character that the escape at the beginning of `bytes` stands for.
fn escaped(bytes: &[u8], unit: &mut [u8; 4]) -> Escaped {
    let hex = |digits: &[u8], count: usize| match digits.get(..count) {
        Some(digits) => std::str::from_utf8(digits)
            .ok()
            .and_then(|digits| u32::from_str_radix(digits, 16).ok())
            .ok_or(Escaped::Not),
        None if digits.iter().all(u8::is_ascii_hexdigit) => Err(Escaped::Begun),
        None => Err(Escaped::Not),
    };
    if let [b'%', digits @ ..] = bytes {
        return match hex(digits, 2) {
            Ok(byte) => {
                unit[0] = u8::try_from(byte).unwrap_or_default();
                Escaped::As(1, 3)
            }
            Err(not) => not,
        };
    }
    // JSON within JSON has more of them.
    let backslashes = bytes.iter().take_while(|byte| **byte == b'\\').count();
    let (character, taken) = match &bytes[backslashes..] {
        [] => return Escaped::Begun,
        [b'u', digits @ ..] => match hex(digits, 4) {
            Ok(code) => (char::from_u32(code).unwrap_or_default(), 5),
            Err(not) => return not,
        },
        [b'n', ..] => ('\n', 1),
        [b't', ..] => ('\t', 1),
        [b'r', ..] => ('\r', 1),
        [next, ..] if next.is_ascii_punctuation() => (char::from(*next), 1),
        _ => return Escaped::Not,
    };
    Escaped::As(character.encode_utf8(unit).len(), backslashes + taken)
}

/// What base64 makes of `value` in the middle of something else, wherever that begins; without what depends on the
/// neighbors.
fn within_base64(engine: &GeneralPurpose, value: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    (0..3).filter_map(move |offset| {
        let text = engine.encode([&[0; 2][..offset], value].concat());
        // A character stands for six bits: those before and after the value's own are somebody else's.
        let begin = (offset * 8).div_ceil(6);
        let end = (offset + value.len()) * 8 / 6;
        let inner = text.as_bytes().get(begin..end)?;
        (inner.len() >= MIN_BYTES).then(|| inner.to_vec())
    })
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Redactor")
    }
}

/// The same for a body that comes in pieces.
pub(super) struct Scrub {
    redactor: Arc<Redactor>,
    /// What may be the beginning of a credential, and is held back until the next piece says.
    held: Bytes,
}

impl Scrub {
    pub(super) fn new(redactor: Arc<Redactor>) -> Self {
        Self {
            redactor,
            held: Bytes::new(),
        }
    }

    /// What may be passed on now; may be empty.
    pub(super) fn push(&mut self, piece: Bytes) -> Bytes {
        let joined = if self.held.is_empty() {
            piece
        } else {
            [std::mem::take(&mut self.held), piece].concat().into()
        };
        let mut clean = self.redactor.scrub(joined);
        let begun = self.redactor.begun(&clean);
        self.held = clean.split_off(clean.len() - begun);
        clean
    }

    /// What was held back and turned out to be nothing.
    pub(super) fn end(&mut self) -> Bytes {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"s3cr/t-\"canary\"-0001";

    #[test]
    fn a_credential_is_taken_out_in_each_spelling() {
        let redactor = Redactor::new([SECRET, b"short"]);
        let scrub = |text: &str| {
            let clean = redactor.scrub(Bytes::copy_from_slice(text.as_bytes()));
            String::from_utf8(clean.to_vec()).unwrap()
        };
        assert_eq!(scrub("nothing short"), "nothing short");
        assert_eq!(
            scrub(r#"a s3cr/t-"canary"-0001, "s3cr/t-\"canary\"-0001" b"#),
            r#"a [redacted], "[redacted]" b"#
        );
        for spelling in [
            r#""s3cr\/t-\"canary\"-0001""#,
            r#""s3cr\u002ft-\u0022canary\u0022-0001""#,
            r#""\u0073\u0033\u0063r\u002Ft-\"canary\u0022-0001""#,
            r#""s3cr\\/t-\\\"canary\\u0022-0001""#,
            r#""s3cr%2ft-%22canary%22-0001""#,
        ] {
            assert_eq!(scrub(spelling), r#""[redacted]""#, "{spelling}");
        }
        assert_eq!(scrub(r"s3cr\/t %zz \u00 \"), r"s3cr\/t %zz \u00 \");
    }

    // As Go, .NET and others escape what HTML might take for its own.
    #[test]
    fn a_credential_is_found_whatever_is_escaped_and_whatever_it_holds() {
        for secret in [
            "abc&def<ghi>-0001",
            "a%41\\u0062+b'c=",
            "größe-über-alles",
            "100%25\\\\done",
        ] {
            let redactor = Redactor::new([secret.as_bytes()]);
            let scrub = |text: String| redactor.scrub(text.into());
            let each = |escape: &dyn Fn(char) -> String| -> String {
                secret.chars().map(escape).collect()
            };
            let unicode = each(&|c| format!("\\u{:04x}", u32::from(c)));
            let json = serde_json::to_string(secret).unwrap();
            let percent = percent_encoding::percent_encode(
                secret.as_bytes(),
                percent_encoding::NON_ALPHANUMERIC,
            );
            for text in [
                secret.to_owned(),
                unicode,
                json[1..json.len() - 1].to_owned(),
                percent.to_string(),
            ] {
                assert_eq!(scrub(format!("<{text}>")), "<[redacted]>", "{text}");
            }
        }
    }

    #[test]
    fn a_credential_is_found_in_both_alphabets_of_base64() {
        let secret = b"a?>b?>c?>d~~?>?>";
        let redactor = Redactor::new([secret.as_slice()]);
        for engine in [&STANDARD, &URL_SAFE] {
            let clean = redactor.scrub(engine.encode(secret).into());
            // What is left of it are four bits.
            assert_eq!(clean, "[redacted]g==");
        }
    }

    #[test]
    fn a_credential_in_the_middle_of_base64_is_taken_out() {
        let redactor = Redactor::new([SECRET]);
        let alone = STANDARD.encode(SECRET);
        for before in ["", "a", "ab", "Bearer ", "Authorization: "] {
            let text = STANDARD.encode([before.as_bytes(), SECRET, b"; more"].concat());
            let clean = redactor.scrub(text.clone().into());
            let clean = String::from_utf8(clean.to_vec()).unwrap();
            assert!(clean.contains("[redacted]"), "{before:?}: {clean}");
            assert!(clean.len() < text.len() - alone.len() + 20, "{clean}");
        }
        assert!(redactor.scrub("aGVsbG8gd29ybGQ=".into()) == "aGVsbG8gd29ybGQ=");
    }

    #[test]
    fn a_credential_cut_in_two_is_taken_out_and_nothing_else_waits() {
        let redactor = Arc::new(Redactor::new([SECRET]));
        let escaped = br"s3cr\/t-\u0022canary\u0022-0001";
        for secret in [SECRET, escaped] {
            let whole = [b"data: ".as_slice(), secret, b" s3cr/ \n\n"].concat();
            for cut in 0..whole.len() {
                let mut scrub = Scrub::new(redactor.clone());
                let pieces = [&whole[..cut], &whole[cut..]];
                let mut passed = Vec::new();
                for piece in pieces {
                    passed.extend_from_slice(&scrub.push(Bytes::copy_from_slice(piece)));
                }
                assert!(scrub.held.is_empty(), "cut at {cut}");
                assert_eq!(passed, b"data: [redacted] s3cr/ \n\n", "cut at {cut}");
            }
        }
    }
}
