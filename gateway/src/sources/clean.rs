//! What of a tool an agent reads, made fit to be read: nothing hidden, and nothing endless.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::connector::visible;
use crate::tool::Tool;

/// Characters of a description.
const DESCRIPTION: usize = 16_000;
/// Characters of a description within a schema.
const OF_ARGUMENT: usize = 2_000;

/// What was hidden in a tool.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Hidden {
    Nothing,
    /// In what the agent only reads: it is taken out.
    Texts,
    /// In what the agent sends: a name or a value of this schema. Nothing can be taken out of it, and to leave it would
    /// tell the agent what no person has seen.
    Names(&'static str),
}

/// Takes hidden characters out of a tool, and cuts texts that are too long.
pub(super) fn tool(tool: &mut Tool) -> Hidden {
    let mut hidden = text(&mut tool.title, 200);
    hidden |= text(&mut tool.description, DESCRIPTION);
    let mut schemas = vec![("inputSchema", &mut tool.input_schema)];
    let output = tool.origin.as_mut();
    let output = output.and_then(|origin| origin.output_schema.as_mut());
    schemas.extend(output.map(|output| ("outputSchema", output)));
    for (which, own) in schemas {
        match schema(own) {
            Some(taken_out) => hidden |= taken_out,
            None => return Hidden::Names(which),
        }
    }
    if let Some(group) = &mut tool.group {
        hidden |= text(&mut group.description, DESCRIPTION);
    }
    if hidden {
        Hidden::Texts
    } else {
        Hidden::Nothing
    }
}

fn text(text: &mut Cow<'static, str>, longest: usize) -> bool {
    let seen = visible(text);
    let hidden = matches!(seen, Cow::Owned(_)) && seen != *text;
    if let Some((end, _)) = seen.char_indices().nth(longest) {
        *text = format!("{}…", &seen[..end]).into();
    } else if hidden {
        *text = seen.into_owned().into();
    }
    hidden
}

/// Cleans the texts of a schema, wherever they are, and takes out the hints that hide something; whether anything was
/// hidden. `None` when a name or a value hides something.
fn schema(of: &mut Map<String, Value>) -> Option<bool> {
    let mut hidden = false;
    of.retain(|key, value| {
        let is_hint = matches!(key.as_str(), "default" | "example" | "examples" | "pattern");
        let goes = is_hint && !is_plain(value);
        hidden |= goes;
        !goes
    });
    for (key, value) in of.iter_mut() {
        match (key.as_str(), value) {
            ("title" | "description" | "$comment", Value::String(said)) => {
                let mut seen = Cow::Owned(std::mem::take(said));
                hidden |= text(&mut seen, OF_ARGUMENT);
                *said = seen.into_owned();
            }
            ("default" | "example" | "examples" | "pattern", _) => {}
            (
                "properties" | "patternProperties" | "dependentSchemas" | "$defs" | "definitions",
                Value::Object(named),
            ) => {
                for (name, inner) in named {
                    let is_fit = is_visible(name);
                    hidden |= is_fit.then(|| below(inner))??;
                }
            }
            ("enum" | "const" | "required", value) => is_plain(value).then_some(())?,
            (key, value) => {
                let is_fit = is_visible(key);
                hidden |= is_fit.then(|| below(value))??;
            }
        }
    }
    Some(hidden)
}

/// The same of what stands below a keyword or a name.
fn below(value: &mut Value) -> Option<bool> {
    match value {
        Value::Object(inner) => schema(inner),
        Value::Array(items) => items
            .iter_mut()
            .try_fold(false, |hidden, item| Some(below(item)? | hidden)),
        other => is_plain(other).then_some(false),
    }
}

/// Whether everything in a value can be seen.
fn is_plain(value: &Value) -> bool {
    match value {
        Value::String(text) => is_visible(text),
        Value::Array(items) => items.iter().all(is_plain),
        Value::Object(members) => members
            .iter()
            .all(|(name, value)| is_visible(name) && is_plain(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}

fn is_visible(text: &str) -> bool {
    visible(text) == text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(mut properties: Value, found: Option<bool>, becomes: Value) {
        let given = properties.as_object_mut().unwrap();
        assert_eq!(schema(given), found, "{properties}");
        if found.is_some() {
            assert_eq!(properties, becomes);
        }
    }

    #[test]
    fn what_is_only_read_is_cleaned_and_what_is_sent_makes_a_tool_unfit() {
        let of = |inner: Value| json!({"type": "object", "properties": {"a": inner}});
        let plain = of(json!({"enum": ["x", "y\n"], "default": {"description": "x"}}));
        check(plain.clone(), Some(false), plain);
        check(
            of(json!({"description": "se\u{200b}en", "anyOf": [{"title": "\u{e0041}b"}]})),
            Some(true),
            of(json!({"description": "seen", "anyOf": [{"title": "b"}]})),
        );
        check(
            of(
                json!({"type": "string", "default": "\u{e0041}", "pattern": "\u{1b}[mx", "examples": [{"k\u{202e}": 1}]}),
            ),
            Some(true),
            of(json!({"type": "string"})),
        );
        // Those are names of parameters, and not keywords.
        let named =
            of(json!({"properties": {"default": {"type": "string"}, "title": {"enum": [1]}}}));
        check(named.clone(), Some(false), named);
        for unfit in [
            of(json!({"enum": ["x", "ignore\u{e0041}"]})),
            of(json!({"const": {"k": "\u{200b}"}})),
            of(json!({"items": {"anyOf": [{"enum": ["\u{feff}"]}]}})),
            of(json!({"properties": {"b\u{200b}": {}}})),
            of(json!({"properties": {"description": {"const": "\u{200b}"}}})),
            of(json!({"x-\u{200b}": 1})),
            of(json!({"x-enum-names": ["\u{200b}"]})),
            of(json!({"$ref": "#/\u{200b}"})),
        ] {
            check(unfit, None, Value::Null);
        }
    }
}
