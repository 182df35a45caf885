//! Bodies that are forms.

use std::fmt::Write;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::body::FormField;
use super::style;

/// Padding may be there or not.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A field with its value and the name of its argument.
pub(super) struct Filled<'a> {
    pub(super) argument: &'a str,
    pub(super) name: &'a str,
    pub(super) form: &'a FormField,
    pub(super) value: &'a RawValue,
}

/// Bytes that an argument has as base64; line breaks in it mean nothing.
pub(super) fn decode(value: &RawValue) -> Result<Vec<u8>, String> {
    let text: String = style::part(value).split_ascii_whitespace().collect();
    BASE64
        .decode(text)
        .map_err(|_| "must be the content as base64".to_owned())
}

/// `application/x-www-form-urlencoded`; a problem begins with the argument.
pub(super) fn url_encoded(fields: &[Filled<'_>]) -> Result<Vec<u8>, String> {
    let mut written = Vec::new();
    for field in fields {
        let pairs = pairs(field)?.into_iter();
        written.extend(pairs.map(|(name, value)| format!("{name}={value}")));
    }
    Ok(written.join("&").into_bytes())
}

/// What a form has of a field, percent-encoded: an object can be pairs of other names.
pub(super) fn pairs(field: &Filled<'_>) -> Result<Vec<(String, String)>, String> {
    let layout = match field.form.layout {
        Some(layout) => layout,
        None if is_nested(field.value) => super::parameter::JSON,
        None => super::parameter::FORM,
    };
    style::query(field.name, field.value, layout)
        .map_err(|problem| format!("{} {problem}", field.argument))
}

fn is_nested(value: &RawValue) -> bool {
    value.get().starts_with(['{', '['])
}

/// `multipart/form-data` with its boundary; a problem begins with the argument.
pub(super) fn multipart(fields: &[Filled<'_>]) -> Result<(String, Vec<u8>), String> {
    let mut parts = Vec::new();
    for field in fields {
        let text = field.value.get();
        // A list is several parts of one name, unless it is written as JSON.
        let is_list = text.starts_with('[') && (field.form.binary || field.form.layout.is_some());
        let items: Vec<&RawValue> = match is_list {
            true => style::items(field.value),
            false => vec![field.value],
        };
        for item in items {
            let part =
                part(field, item).map_err(|problem| format!("{} {problem}", field.argument))?;
            parts.push(part);
        }
    }
    let boundary = boundary(&parts);
    let mut body = Vec::new();
    for part in parts {
        body.extend_from_slice(format!("--{boundary}\r\n").as_bytes());
        body.extend_from_slice(&part);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    Ok((boundary, body))
}

/// A part without what delimits it.
fn part(field: &Filled<'_>, value: &RawValue) -> Result<Vec<u8>, String> {
    let name = quoted(field.name);
    let mut head = format!("content-disposition: form-data; name=\"{name}\"");
    let form = field.form;
    let content_type = if form.binary {
        // Writing to a string cannot fail.
        let _ = write!(head, "; filename=\"{name}\"");
        Some(
            form.content_type
                .as_deref()
                .unwrap_or("application/octet-stream"),
        )
    } else if is_nested(value) {
        Some(form.content_type.as_deref().unwrap_or("application/json"))
    } else {
        form.content_type.as_deref()
    };
    if let Some(content_type) = content_type {
        let _ = write!(head, "\r\ncontent-type: {content_type}");
    }
    let mut part = (head + "\r\n\r\n").into_bytes();
    if form.binary {
        part.extend_from_slice(&decode(value)?);
    } else {
        part.extend_from_slice(style::part(value).as_bytes());
    }
    Ok(part)
}

/// As browsers write names of fields.
fn quoted(name: &str) -> String {
    name.replace('"', "%22")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

/// A line that no part has: a hash of all of them, hashed again until that is so.
fn boundary(parts: &[Vec<u8>]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    let mut digest = hash.finalize();
    loop {
        let boundary = digest[..16]
            .iter()
            .fold("chandlery-".to_owned(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            });
        let has = |part: &Vec<u8>| {
            part.windows(boundary.len())
                .any(|window| window == boundary.as_bytes())
        };
        if !parts.iter().any(has) {
            return boundary;
        }
        digest = Sha256::digest(digest);
    }
}
