//! Values as text of paths, queries, headers and forms.

use std::collections::BTreeMap;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::value::RawValue;

use super::parameter::{Layout, Style};

/// Everything but what no reader of a URL takes for a delimiter.
const VALUE: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// `allowReserved` also leaves delimiters, but for those that would end the value and those that readers of URLs encode.
const RESERVED: &AsciiSet = &VALUE
    .remove(b'!')
    .remove(b'$')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b',')
    .remove(b'/')
    .remove(b':')
    .remove(b';')
    .remove(b'?')
    .remove(b'@');

/// A value taken apart; its parts are as the caller wrote them, so numbers keep their digits.
enum Plain<'a> {
    Scalar(String),
    /// Without those that are null.
    List(Vec<&'a RawValue>),
    /// Likewise.
    Fields(BTreeMap<String, &'a RawValue>),
}

fn read(value: &RawValue) -> Plain<'_> {
    let text = value.get();
    match text.as_bytes().first() {
        Some(b'[') => Plain::List(items(value)),
        Some(b'{') => {
            let mut fields: BTreeMap<String, &RawValue> =
                serde_json::from_str(text).unwrap_or_default();
            fields.retain(|_, value| value.get() != "null");
            Plain::Fields(fields)
        }
        _ => Plain::Scalar(part(value)),
    }
}

/// The items of a list but those that are null, which have no text.
pub(super) fn items(list: &RawValue) -> Vec<&RawValue> {
    let mut items: Vec<&RawValue> = serde_json::from_str(list.get()).unwrap_or_default();
    items.retain(|item| item.get() != "null");
    items
}

/// A value as text; what is no scalar as its JSON.
pub(super) fn part(value: &RawValue) -> String {
    let text = value.get();
    if text.starts_with('"') {
        serde_json::from_str(text).unwrap_or_default()
    } else {
        text.to_owned()
    }
}

fn encode(text: &str) -> String {
    utf8_percent_encode(text, VALUE).to_string()
}

/// What a path has in place of a parameter. A problem is told without the argument's name.
pub(super) fn path(name: &str, value: &RawValue, layout: Layout) -> Result<String, String> {
    let (lead, between) = match (layout.style, layout.explode) {
        (Style::Label, true) => (".", "."),
        (Style::Label, false) => (".", ","),
        (Style::Matrix, true) => (";", ";"),
        (Style::Matrix, false) => (";", ","),
        _ => ("", ","),
    };
    let is_matrix = layout.style == Style::Matrix;
    let name = encode(name);
    let plain = match layout.style {
        Style::Json => Plain::Scalar(value.get().to_owned()),
        _ => read(value),
    };
    let (parts, is_named) = match plain {
        Plain::Scalar(text) => (vec![text_of(&text)?], is_matrix),
        Plain::List(items) => {
            let each = |item: &&RawValue| {
                let text = text_of(&part(item))?;
                Ok(match is_matrix && layout.explode {
                    true => format!("{name}={text}"),
                    false => text,
                })
            };
            let parts: Result<Vec<String>, String> = items.iter().map(each).collect();
            (parts?, is_matrix && !layout.explode)
        }
        Plain::Fields(fields) => {
            let sign = if layout.explode { "=" } else { "," };
            let each = |(key, value): (&String, &&RawValue)| {
                Ok(format!("{}{sign}{}", text_of(key)?, text_of(&part(value))?))
            };
            let parts: Result<Vec<String>, String> = fields.iter().map(each).collect();
            (parts?, is_matrix && !layout.explode)
        }
    };
    if parts.is_empty() {
        return Err(EMPTY.to_owned());
    }
    let named = if is_named {
        format!("{name}=")
    } else {
        String::new()
    };
    Ok(format!("{lead}{named}{}", parts.join(between)))
}

const EMPTY: &str = "must not be empty, since it is part of the path";

fn text_of(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err(EMPTY.to_owned());
    }
    Ok(encode(text))
}

/// The pairs of a query or a form, percent-encoded. A problem is told without the argument's name.
pub(super) fn query(
    name: &str,
    value: &RawValue,
    layout: Layout,
) -> Result<Vec<(String, String)>, String> {
    let name = encode(name);
    let text = |text: &str| {
        let allowed = if layout.reserved { RESERVED } else { VALUE };
        utf8_percent_encode(text, allowed).to_string()
    };
    let plain = match layout.style {
        Style::Json => return Ok(vec![(name, text(value.get()))]),
        Style::Deep => {
            let mut pairs = Vec::new();
            deep(&name, value, &text, &mut pairs);
            return Ok(pairs);
        }
        _ => read(value),
    };
    let parts: Vec<String> = match plain {
        Plain::Scalar(scalar) => return Ok(vec![(name, text(&scalar))]),
        Plain::List(items) if layout.explode => {
            let items = items.into_iter();
            return Ok(items
                .map(|item| (name.clone(), text(&part(item))))
                .collect());
        }
        Plain::Fields(fields) if layout.explode => {
            let fields = fields.into_iter();
            return Ok(fields
                .map(|(key, value)| (encode(&key), text(&part(value))))
                .collect());
        }
        Plain::List(items) => items.into_iter().map(part).collect(),
        Plain::Fields(fields) => fields
            .into_iter()
            .flat_map(|(key, value)| [key, part(value)])
            .collect(),
    };
    if parts.is_empty() {
        return Ok(Vec::new());
    }
    // The delimiter of a form stands there as it is and those within values are encoded; a space and a bar are encoded
    // both ways, and nobody could tell them apart.
    let (between, taken) = match layout.style {
        Style::Space => ("%20", Some((' ', "a space"))),
        Style::Pipe => ("%7C", Some(('|', "a |"))),
        _ => (",", None),
    };
    if let Some((taken, words)) = taken
        && parts.iter().any(|part| part.contains(taken))
    {
        return Err(format!(
            "must not contain {words}, which stands between its parts"
        ));
    }
    let parts: Vec<String> = parts
        .iter()
        .map(|part| text(part).replace(',', "%2C"))
        .collect();
    Ok(vec![(name, parts.join(between))])
}

/// `name[key]=value`, at any depth; `name[]=item` for lists, with the item's place where items are no scalars.
fn deep(
    name: &str,
    value: &RawValue,
    text: &impl Fn(&str) -> String,
    pairs: &mut Vec<(String, String)>,
) {
    match read(value) {
        Plain::Scalar(scalar) => pairs.push((name.to_owned(), text(&scalar))),
        Plain::List(items) => {
            let is_plain = |item: &&RawValue| !item.get().starts_with(['{', '[']);
            let all_plain = items.iter().all(is_plain);
            for (at, item) in items.into_iter().enumerate() {
                let at = if all_plain {
                    String::new()
                } else {
                    at.to_string()
                };
                deep(&format!("{name}%5B{at}%5D"), item, text, pairs);
            }
        }
        Plain::Fields(fields) => {
            for (key, value) in fields {
                deep(&format!("{name}%5B{}%5D", encode(&key)), value, text, pairs);
            }
        }
    }
}

/// The value of a header: as it is, without any encoding.
pub(super) fn header(value: &RawValue, layout: Layout) -> String {
    if layout.style == Style::Json {
        return value.get().to_owned();
    }
    match read(value) {
        Plain::Scalar(text) => text,
        Plain::List(items) => {
            let items: Vec<String> = items.into_iter().map(part).collect();
            items.join(",")
        }
        Plain::Fields(fields) => {
            let sign = if layout.explode { "=" } else { "," };
            let fields = fields.into_iter();
            let fields: Vec<String> = fields
                .map(|(key, value)| format!("{key}{sign}{}", part(value)))
                .collect();
            fields.join(",")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(style: Style, explode: bool) -> Layout {
        Layout {
            style,
            explode,
            reserved: false,
        }
    }

    fn raw(json: &str) -> &RawValue {
        serde_json::from_str(json).unwrap()
    }

    // The table of the specification, "Style Examples".
    #[test]
    fn values_are_written_as_the_specification_has_them() {
        let (list, object) = (r#"["blue","black"]"#, r#"{"R":100,"G":2e2}"#);
        for (style, explode, of_text, of_list, of_object) in [
            (Style::Simple, false, "blue", "blue,black", "G,2e2,R,100"),
            (Style::Simple, true, "blue", "blue,black", "G=2e2,R=100"),
            (Style::Label, false, ".blue", ".blue,black", ".G,2e2,R,100"),
            (Style::Label, true, ".blue", ".blue.black", ".G=2e2.R=100"),
            (
                Style::Matrix,
                false,
                ";color=blue",
                ";color=blue,black",
                ";color=G,2e2,R,100",
            ),
            (
                Style::Matrix,
                true,
                ";color=blue",
                ";color=blue;color=black",
                ";G=2e2;R=100",
            ),
        ] {
            for (value, expected) in [(r#""blue""#, of_text), (list, of_list), (object, of_object)]
            {
                let written = path("color", raw(value), layout(style, explode));
                assert_eq!(
                    written.as_deref(),
                    Ok(expected),
                    "{style:?} {explode} {value}"
                );
            }
        }
        for (style, explode, of_list, of_object) in [
            (Style::Form, false, "color=blue,black", "color=G,2e2,R,100"),
            (Style::Form, true, "color=blue&color=black", "G=2e2&R=100"),
            (
                Style::Space,
                false,
                "color=blue%20black",
                "color=G%202e2%20R%20100",
            ),
            (
                Style::Pipe,
                false,
                "color=blue%7Cblack",
                "color=G%7C2e2%7CR%7C100",
            ),
            (
                Style::Deep,
                true,
                "color%5B%5D=blue&color%5B%5D=black",
                "color%5BG%5D=2e2&color%5BR%5D=100",
            ),
        ] {
            for (value, expected) in [(list, of_list), (object, of_object)] {
                let pairs = query("color", raw(value), layout(style, explode)).unwrap();
                let pairs: Vec<String> = pairs
                    .iter()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect();
                assert_eq!(pairs.join("&"), expected, "{style:?} {explode} {value}");
            }
        }
    }

    #[test]
    fn delimiters_within_values_do_not_delimit() {
        let comma = query("a", raw(r#"["1,2","3&b=4"]"#), layout(Style::Form, false)).unwrap();
        assert_eq!(comma, [("a".to_owned(), "1%2C2,3%26b%3D4".to_owned())]);
        for (style, value) in [(Style::Space, r#"["a b"]"#), (Style::Pipe, r#"["a|b"]"#)] {
            assert!(
                query("a", raw(value), layout(style, false)).is_err(),
                "{value}"
            );
        }
    }
}
