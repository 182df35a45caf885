//! The three arguments: what is listed of them, and how they are read.

use std::fmt::Display;

use serde_json::{Map, Value, json};

use crate::families::actions::payload::{found, kind_of};
use crate::tool::ToolError;

use super::{Format, Path, View};

pub const FORMAT: &str = "response_format";
pub(super) const FIELDS: &str = "response_fields";
const LIMIT: &str = "response_limit";
/// Names of the three arguments.
pub const NAMES: [&str; 3] = [FORMAT, FIELDS, LIMIT];

const MAX_LIMIT: usize = 10_000;
const MAX_FIELDS: usize = 50;
const MAX_FIELD_CHARS: usize = 256;

impl View {
    /// Takes the three arguments out of a call's arguments.
    ///
    /// Null stands for an argument left out. Fails before anything is done, in words that begin with the argument.
    pub fn take(arguments: &mut Map<String, Value>) -> Result<Self, ToolError> {
        let mut taken = |name| arguments.remove(name).filter(|value| !value.is_null());
        let (format, fields, limit) = (taken(FORMAT), taken(FIELDS), taken(LIMIT));
        let view = Self {
            format: format.as_ref().map_or(Ok(Format::default()), read_format)?,
            fields: fields.as_ref().map_or(Ok(Vec::new()), read_fields)?,
            limit: limit.as_ref().map(read_limit).transpose()?,
        };
        let other = match &view {
            Self { format, .. } if *format != Format::Raw => None,
            Self { fields, .. } if !fields.is_empty() => Some(FIELDS),
            Self { limit, .. } => limit.map(|_| LIMIT),
        };
        match other {
            None => Ok(view),
            Some(other) => Err(wrong(
                FORMAT,
                format!("raw gives the whole answer as it is; leave {other} out, or write json"),
            )),
        }
    }
}

/// The properties of the three arguments, for the schemas of grouped data tools (R-C-203) and of no others (R-C-205).
///
/// An operation may have an argument of its own by one of these names; that one is not to be replaced.
pub fn arguments() -> Map<String, Value> {
    let properties = [
        (
            FORMAT,
            json!({
                "type": "string",
                "enum": ["markdown", "json", "raw"],
                "default": "markdown",
                "description": "How to answer: markdown is compact; json has the same data as JSON; raw is the service's answer as it came.",
            }),
        ),
        (
            FIELDS,
            json!({
                "type": "array",
                "items": {"type": "string"},
                "maxItems": MAX_FIELDS,
                "description": "Keep only these fields of the answer: dotted paths such as name or owner.login, counted from a row. All when left out. Not with raw.",
            }),
        ),
        (
            LIMIT,
            json!({
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_LIMIT,
                "description": "Show at most this many rows of the answer. The service is still asked for all; its own paging arguments save more. Not with raw.",
            }),
        ),
    ];
    let properties = properties.into_iter();
    properties
        .map(|(name, schema)| (name.to_owned(), schema))
        .collect()
}

fn read_format(value: &Value) -> Result<Format, ToolError> {
    match value.as_str() {
        Some("markdown") => Ok(Format::Markdown),
        Some("json") => Ok(Format::Json),
        Some("raw") => Ok(Format::Raw),
        _ => {
            let given = found(value);
            Err(wrong(
                FORMAT,
                format!("must be one of markdown, json, raw, not {given}"),
            ))
        }
    }
}

fn read_fields(value: &Value) -> Result<Vec<Path>, ToolError> {
    let refuse = |problem: String| Err(wrong(FIELDS, problem));
    let written: Vec<&str> = match value {
        // Models write it so, too.
        Value::String(list) => list.split(',').collect(),
        Value::Array(list) => match list.iter().find(|field| !field.is_string()) {
            Some(other) => {
                let given = kind_of(other);
                return refuse(format!("must be an array of strings; {given} is in it"));
            }
            None => list.iter().filter_map(Value::as_str).collect(),
        },
        other => {
            let given = kind_of(other);
            return refuse(format!(
                "must be an array of paths such as items.name, not {given}"
            ));
        }
    };
    if written.len() > MAX_FIELDS {
        let given = written.len();
        return refuse(format!("takes at most {MAX_FIELDS} paths, not {given}"));
    }
    let mut fields = Vec::new();
    for path in written {
        if path.chars().count() > MAX_FIELD_CHARS {
            return refuse(format!(
                "has a path of more than {MAX_FIELD_CHARS} characters"
            ));
        }
        match Path::parse(path) {
            Some(path) => fields.push(path),
            None => {
                return refuse(format!(
                    "must have paths such as items.name; \"{path}\" is none"
                ));
            }
        }
    }
    Ok(fields)
}

fn read_limit(value: &Value) -> Result<usize, ToolError> {
    let limit = value.as_u64().and_then(|limit| usize::try_from(limit).ok());
    match limit {
        Some(limit @ 1..=MAX_LIMIT) => Ok(limit),
        _ => {
            let given = found(value);
            Err(wrong(
                LIMIT,
                format!("must be an integer from 1 to {MAX_LIMIT}, not {given}"),
            ))
        }
    }
}

/// A refusal that begins with the argument.
pub(super) fn wrong(argument: &str, problem: impl Display) -> ToolError {
    ToolError::arguments(format!("{argument} {problem}"))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[track_caller]
    fn check(arguments: Value, expected: Expect) {
        let mut arguments = arguments.as_object().cloned().unwrap();
        expected.assert_eq(&match View::take(&mut arguments) {
            Ok(view) => format!("{view:?}; left: {}", Value::Object(arguments)),
            Err(error) => format!("{:?}: {error}", error.kind),
        });
    }

    // R-C-203
    #[test]
    fn the_three_arguments_are_taken_out() {
        check(
            json!({"id": 7, "response_format": "json", "response_fields": ["id", "owner.login"], "response_limit": 5}),
            expect![[
                r#"View { format: Json, fields: [Path("id"), Path("owner.login")], limit: Some(5) }; left: {"id":7}"#
            ]],
        );
        check(
            json!({"response_format": "raw", "response_fields": "id, owner.login", "id": 7}),
            expect![
                "Arguments: response_format raw gives the whole answer as it is; leave response_fields out, or write json"
            ],
        );
        check(
            json!({"response_format": null, "response_fields": "id, owner.login", "response_limit": null}),
            expect![[
                r#"View { format: Markdown, fields: [Path("id"), Path("owner.login")], limit: None }; left: {}"#
            ]],
        );
    }

    // R-C-204
    #[test]
    fn markdown_is_the_default() {
        check(
            json!({"limit": 7}),
            expect![[r#"View { format: Markdown, fields: [], limit: None }; left: {"limit":7}"#]],
        );
        check(
            json!({"response_fields": []}),
            expect!["View { format: Markdown, fields: [], limit: None }; left: {}"],
        );
    }

    #[test]
    fn wrong_ones_are_told_by_name() {
        check(
            json!({"response_format": "xml"}),
            expect![[
                r#"Arguments: response_format must be one of markdown, json, raw, not "xml""#
            ]],
        );
        check(
            json!({"response_format": 7}),
            expect!["Arguments: response_format must be one of markdown, json, raw, not 7"],
        );
        check(
            json!({"response_fields": 7}),
            expect![
                "Arguments: response_fields must be an array of paths such as items.name, not a number"
            ],
        );
        check(
            json!({"response_fields": ["id", 7]}),
            expect!["Arguments: response_fields must be an array of strings; a number is in it"],
        );
        check(
            json!({"response_fields": "id,,name"}),
            expect![[
                r#"Arguments: response_fields must have paths such as items.name; "" is none"#
            ]],
        );
        check(
            json!({"response_fields": ["owner."]}),
            expect![[
                r#"Arguments: response_fields must have paths such as items.name; "owner." is none"#
            ]],
        );
        check(
            json!({"response_fields": vec!["id"; 51]}),
            expect!["Arguments: response_fields takes at most 50 paths, not 51"],
        );
        check(
            json!({"response_limit": 0}),
            expect!["Arguments: response_limit must be an integer from 1 to 10000, not 0"],
        );
        check(
            json!({"response_limit": 10_001}),
            expect!["Arguments: response_limit must be an integer from 1 to 10000, not 10001"],
        );
        check(
            json!({"response_limit": "5"}),
            expect![[r#"Arguments: response_limit must be an integer from 1 to 10000, not "5""#]],
        );
        check(
            json!({"response_format": "raw", "response_limit": 1}),
            expect![
                "Arguments: response_format raw gives the whole answer as it is; leave response_limit out, or write json"
            ],
        );
    }

    // R-C-203, R-C-205: the schema is the caller's to add, or not.
    #[test]
    fn the_schema_takes_what_is_read() {
        let schema =
            json!({"type": "object", "properties": arguments(), "additionalProperties": false});
        let validator = jsonschema::draft202012::new(&schema).unwrap();
        for (arguments, is_valid) in [
            (
                json!({"response_format": "json", "response_fields": ["a.b"], "response_limit": 1}),
                true,
            ),
            (json!({"response_limit": 10_000}), true),
            (json!({"response_limit": 0}), false),
            (json!({"response_format": "xml"}), false),
            (json!({"response_fields": [1]}), false),
        ] {
            assert_eq!(validator.is_valid(&arguments), is_valid, "{arguments}");
            let mut arguments = arguments.as_object().cloned().unwrap();
            assert_eq!(View::take(&mut arguments).is_ok(), is_valid);
        }
        let names: Vec<String> = arguments().into_iter().map(|(name, _)| name).collect();
        expect!["response_fields response_format response_limit"].assert_eq(&names.join(" "));
    }
}
