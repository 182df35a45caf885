//! The format of keys: `chd_`, 32 random bytes in base62, and a CRC-32 that secret scanners can check.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest as _, Sha256};

/// What every key starts with.
pub const PREFIX: &str = "chd_";
/// Digits of the random part: base62 of 256 bits, padded with zeros on the left.
const RANDOM_DIGITS: usize = 43;
/// Digits of the checksum: base62 of 32 bits, padded.
const CHECK_DIGITS: usize = 6;
/// Length of a whole key in bytes.
pub const LENGTH: usize = PREFIX.len() + RANDOM_DIGITS + CHECK_DIGITS;

const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A key in the right format. Whether it opens anything is another question.
#[derive(Clone)]
pub struct Key(SecretString);

/// SHA-256 of a key: what may be published.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

impl Key {
    /// The key of 32 random bytes.
    pub fn from_random(random: [u8; 32]) -> Self {
        let mut text = String::with_capacity(LENGTH);
        text.push_str(PREFIX);
        text.push_str(&base62_of(&random, RANDOM_DIGITS));
        let check = crc32fast::hash(text.as_bytes());
        text.push_str(&base62_of(&check.to_be_bytes(), CHECK_DIGITS));
        Self(SecretString::from(text))
    }

    /// `None` unless `text` is a key to the last digit: length, prefix, alphabet and checksum.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != LENGTH || !text.is_ascii() || !text.starts_with(PREFIX) {
            return None;
        }
        let (body, check) = text.split_at(LENGTH - CHECK_DIGITS);
        let is_base62 = body[PREFIX.len()..]
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric());
        let expected = base62_of(
            &crc32fast::hash(body.as_bytes()).to_be_bytes(),
            CHECK_DIGITS,
        );
        (is_base62 && check == expected).then(|| Self(SecretString::from(text.to_owned())))
    }

    /// The text to put into a Secret or a header, and nowhere else.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    pub fn digest(&self) -> Digest {
        Digest::of(self.expose())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

impl Digest {
    pub fn of(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }

    /// Reads `sha256:<64 lower-case hex digits>`.
    pub fn parse(text: &str) -> Option<Self> {
        let hex = text
            .strip_prefix("sha256:")
            .filter(|hex| hex.len() == 64 && hex.is_ascii())?;
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).ok()?;
            *byte = u8::from_str_radix(pair, 16).ok()?;
        }
        Some(Self(bytes))
    }

    /// A short public name for the key: the first 8 hex digits.
    pub fn id(&self) -> String {
        self.0[..4]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Big-endian `bytes` as exactly `digits` base62 digits. The crate `base62` stops at 128 bits.
pub fn base62_of(bytes: &[u8], digits: usize) -> String {
    let mut number = bytes.to_vec();
    let mut text = vec![b'0'; digits];
    for digit in text.iter_mut().rev() {
        let mut remainder = 0u32;
        for byte in &mut number {
            let value = (remainder << 8) | u32::from(*byte);
            *byte = (value / 62) as u8;
            remainder = value % 62;
        }
        *digit = DIGITS[remainder as usize];
    }
    String::from_utf8(text).expect("base62 digits are ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minted_key_parses_and_any_changed_digit_does_not() {
        let key = Key::from_random([7; 32]);
        assert_eq!(key.expose().len(), LENGTH);
        assert!(Key::parse(key.expose()).is_some());
        for at in 0..LENGTH {
            let mut text = key.expose().as_bytes().to_vec();
            text[at] = if text[at] == b'x' { b'y' } else { b'x' };
            assert!(
                Key::parse(std::str::from_utf8(&text).unwrap()).is_none(),
                "changed digit {at}"
            );
        }
    }

    #[test]
    fn a_key_never_shows_in_debug_output() {
        let key = Key::from_random([7; 32]);
        assert!(!format!("{key:?}").contains(key.expose()));
    }

    #[test]
    fn a_digest_reads_back_what_it_prints() {
        let digest = Key::from_random([9; 32]).digest();
        assert_eq!(Digest::parse(&digest.to_string()), Some(digest));
        assert_eq!(Digest::parse("sha256:xyz"), None);
    }
}
