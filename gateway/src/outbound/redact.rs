//! Takes credentials out of what an upstream sends back.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue};
use memchr::memmem::Finder;

/// Shorter values would be found where they are not.
const MIN_BYTES: usize = 8;
const INSTEAD: &[u8] = b"[redacted]";

/// The spellings of one credential.
pub struct Redactor {
    /// Longest first, since one may be part of another.
    needles: Vec<Finder<'static>>,
}

impl Redactor {
    /// Of the raw `values` and what JSON makes of them. Values below 8 bytes are left out.
    pub fn new<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut spellings: Vec<Vec<u8>> = Vec::new();
        for value in values {
            if value.len() < MIN_BYTES {
                continue;
            }
            spellings.push(value.to_vec());
            if let Ok(text) = std::str::from_utf8(value) {
                let json = serde_json::Value::from(text).to_string();
                let json = &json[1..json.len() - 1];
                spellings.push(json.as_bytes().to_vec());
                spellings.push(json.replace('/', "\\/").into_bytes());
            }
            spellings.extend(within_base64(value));
        }
        spellings.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        spellings.dedup();
        let needles = spellings
            .iter()
            .map(|needle| Finder::new(needle).into_owned());
        Self {
            needles: needles.collect(),
        }
    }

    /// `bytes` without any credential; the very same where there is none.
    pub fn scrub(&self, mut bytes: Bytes) -> Bytes {
        for needle in &self.needles {
            let Some(first) = needle.find(&bytes) else {
                continue;
            };
            let mut clean = BytesMut::with_capacity(bytes.len());
            let (mut from, mut found) = (0, Some(first));
            while let Some(at) = found {
                clean.extend_from_slice(&bytes[from..from + at]);
                clean.extend_from_slice(INSTEAD);
                from += at + needle.needle().len();
                found = needle.find(&bytes[from..]);
            }
            clean.extend_from_slice(&bytes[from..]);
            bytes = clean.freeze();
        }
        bytes
    }

    pub fn scrub_headers(&self, headers: &mut HeaderMap) {
        for value in headers.values_mut() {
            let holds = |needle: &Finder| needle.find(value.as_bytes()).is_some();
            if self.needles.iter().any(holds) {
                *value = HeaderValue::from_static("[redacted]");
            }
        }
    }

    /// How many bytes at the end of `bytes` may be the beginning of a credential.
    fn begun(&self, bytes: &[u8]) -> usize {
        let of = |needle: &Finder| {
            let needle = needle.needle();
            let longest = (needle.len() - 1).min(bytes.len());
            (1..=longest)
                .rev()
                .find(|length| bytes.ends_with(&needle[..*length]))
                .unwrap_or(0)
        };
        self.needles.iter().map(of).max().unwrap_or(0)
    }
}

/// What base64 makes of `value` in the middle of something else, wherever that begins; without what depends on the
/// neighbors.
fn within_base64(value: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    (0..3).filter_map(move |offset| {
        let text = STANDARD.encode([&[0; 2][..offset], value].concat());
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
        assert_eq!(scrub(r#""s3cr\/t-\"canary\"-0001""#), r#""[redacted]""#);
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
        let whole = [b"data: ".as_slice(), SECRET, b" s3cr/ \n\n"].concat();
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
