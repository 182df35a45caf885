//! Arguments of tools that do one thing: the schema that is listed is also what calls are checked against.

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::families::actions::payload::{found, kind_of};
use crate::tool::{Tool, ToolError};

/// A schema that takes `properties` and nothing else.
///
/// Each has a `description` and a `type` of string, integer, boolean or object. [`decode`] looks at these keywords too:
/// `enum` and `maxLength` of strings, `minimum` and `maximum` of integers. A `minLength` says that a string may not be
/// blank; one that is the `maxLength` says how long it is.
pub(crate) fn closed(properties: Value, required: &[&str]) -> Map<String, Value> {
    let mut schema = Map::new();
    schema.insert("type".to_owned(), "object".into());
    schema.insert("properties".to_owned(), properties);
    if !required.is_empty() {
        schema.insert("required".to_owned(), json!(required));
    }
    schema.insert("additionalProperties".to_owned(), false.into());
    schema
}

/// Reads a call's arguments as the tool's schema has them; what is wrong is told with the tool and the argument.
pub(crate) fn decode<T: DeserializeOwned>(
    tool: &Tool,
    arguments: &RawValue,
) -> Result<T, ToolError> {
    let name = &tool.name;
    let mut arguments: Map<String, Value> =
        serde_json::from_str(arguments.get()).map_err(|error| {
            wrong(
                name,
                &format!("the arguments are not a JSON object: {error}"),
            )
        })?;
    // A client that writes null for what it leaves out means nothing by it.
    arguments.retain(|_, value| !value.is_null());
    check(&tool.input_schema, &arguments).map_err(|message| wrong(name, &message))?;
    serde_json::from_value(Value::Object(arguments))
        .map_err(|error| wrong(name, &error.to_string()))
}

/// A refusal that names the tool; `message` begins with the argument.
pub(crate) fn wrong(tool: &str, message: &str) -> ToolError {
    ToolError::arguments(format!("{tool}: {message}"))
}

fn check(schema: &Map<String, Value>, arguments: &Map<String, Value>) -> Result<(), String> {
    let nothing = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object);
    let properties = properties.unwrap_or(&nothing);
    if let Some(unknown) = arguments
        .keys()
        .find(|name| !properties.contains_key(*name))
    {
        let unknown: String = unknown.chars().take(64).collect();
        let names: Vec<&str> = properties.keys().map(String::as_str).collect();
        return Err(match names.as_slice() {
            [name] => format!("there is no argument \"{unknown}\"; the only one is {name}"),
            names => format!(
                "there is no argument \"{unknown}\"; the arguments are {}",
                names.join(", ")
            ),
        });
    }
    let required = schema.get("required").and_then(Value::as_array);
    for name in required.into_iter().flatten().filter_map(Value::as_str) {
        if !arguments.contains_key(name) {
            let property = &properties[name];
            let (kind, description) = (text(property, "type"), text(property, "description"));
            return Err(format!("{name} is required ({kind}): {description}"));
        }
    }
    for (name, value) in arguments {
        check_value(&properties[name], value).map_err(|problem| format!("{name} {problem}"))?;
    }
    Ok(())
}

fn check_value(property: &Value, value: &Value) -> Result<(), String> {
    match (text(property, "type"), value) {
        ("string", Value::String(string)) => check_string(property, string),
        ("integer", Value::Number(number)) => {
            let least = property["minimum"].as_i64().unwrap_or(i64::MIN);
            let most = property["maximum"].as_i64().unwrap_or(i64::MAX);
            match number.as_i64() {
                Some(number) if (least..=most).contains(&number) => Ok(()),
                _ => Err(format!(
                    "must be an integer from {least} to {most}, not {number}"
                )),
            }
        }
        ("boolean", Value::Bool(_)) | ("object", Value::Object(_)) => Ok(()),
        (kind, other) => {
            let article = if kind.starts_with(['i', 'o']) {
                "an"
            } else {
                "a"
            };
            Err(format!("must be {article} {kind}, not {}", kind_of(other)))
        }
    }
}

fn check_string(property: &Value, string: &str) -> Result<(), String> {
    if let Some(words) = property["enum"].as_array()
        && !words.iter().any(|word| word == string)
    {
        let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
        let given = found(&Value::from(string));
        return Err(format!("must be one of {}, not {given}", words.join(", ")));
    }
    if string.contains('\0') {
        return Err(
            "contains a NUL character (\\u0000), which can't be kept; leave it out".to_owned(),
        );
    }
    let (least, most) = (
        property["minLength"].as_u64(),
        property["maxLength"].as_u64(),
    );
    if least.is_some() && string.trim().is_empty() {
        return Err("must not be empty".to_owned());
    }
    let length = u64::try_from(string.chars().count()).unwrap_or(u64::MAX);
    match most {
        Some(most) if least == Some(most) && length != most => {
            Err(format!("must have {most} characters, not {length}"))
        }
        Some(most) if length > most => Err(format!(
            "is {length} characters long; the limit is {most}, and nothing was done: shorten it"
        )),
        _ => Ok(()),
    }
}

fn text<'a>(property: &'a Value, keyword: &str) -> &'a str {
    property[keyword].as_str().unwrap_or_default()
}
