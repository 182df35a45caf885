//! The bytes of an answer as text.

use std::borrow::Cow;

/// `None` of what is no text: UTF-8, or one of the two others that are common where the content type declares it.
///
/// UTF-8 comes first whatever is declared: what happens to be UTF-8 is, and servers declare others by habit.
pub(super) fn decode<'a>(content_type: &str, body: &'a [u8]) -> Option<Cow<'a, str>> {
    let text = match std::str::from_utf8(body) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) if is_western(content_type) => {
            Cow::Owned(body.iter().map(|byte| western(*byte)).collect())
        }
        Err(_) => return None,
    };
    (!text.contains('\0')).then_some(text)
}

/// Whether windows-1252 is declared, or ISO-8859-1, for which browsers read it too.
fn is_western(content_type: &str) -> bool {
    let parameters = content_type.split(';').skip(1);
    let mut parameters = parameters.filter_map(|parameter| parameter.split_once('='));
    let charset = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("charset"));
    let charset = charset.map(|(_, value)| value.trim().trim_matches('"').to_ascii_lowercase());
    matches!(
        charset.as_deref(),
        Some("iso-8859-1" | "iso8859-1" | "iso_8859-1" | "latin1" | "windows-1252" | "cp1252")
    )
}

/// What 0x80 to 0x9f are in windows-1252; five of them are nothing there, and controls elsewhere.
const MIDDLE: [char; 32] = [
    '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž', '\u{8f}',
    '\u{90}', '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}', 'ž', 'Ÿ',
];

fn western(byte: u8) -> char {
    let middle = byte.checked_sub(0x80).map(usize::from);
    let middle = middle.and_then(|at| MIDDLE.get(at));
    middle.copied().unwrap_or(char::from(byte))
}
