//! Arguments of a call against the schema that is listed: types, enumerations, bounds, and what is missing or unknown.
//!
//! Lengths and patterns are the upstream's to check: it says better than we could what it makes of them.

use std::collections::BTreeMap;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use crate::families::actions::payload::{found, kind_of};
use crate::tool::ToolError;

use super::text;

/// How deep values are looked at.
const DEPTH: usize = 16;

/// Below this every integer is a number of its own in floating point: 2⁵³.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// The arguments by name. A null that the schema does not allow means the argument was left out.
///
/// What is wrong is told with the argument, and not with the tool, whose name the caller knows.
pub(super) fn read<'a>(
    schema: &Map<String, Value>,
    arguments: &'a RawValue,
) -> Result<BTreeMap<String, &'a RawValue>, ToolError> {
    let mut arguments: BTreeMap<String, &RawValue> = serde_json::from_str(arguments.get())
        .map_err(|_| ToolError::arguments("the arguments must be a JSON object"))?;
    let nothing = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&nothing);
    arguments.retain(|name, value| {
        value.get() != "null" || properties.get(name).is_some_and(allows_null)
    });
    let check = || {
        missing(schema, |name| arguments.contains_key(name))?;
        for (name, value) in &arguments {
            let Some(property) = properties.get(name).or_else(|| other(schema)) else {
                return Err(unknown(name, properties));
            };
            let value: Value = serde_json::from_str(value.get())
                .map_err(|error| format!("{name} cannot be read: {error}"))?;
            check(property, &value, DEPTH).map_err(|problem| format!("{name}{problem}"))?;
        }
        Ok(())
    };
    check().map_err(ToolError::arguments)?;
    Ok(arguments)
}

/// The arguments whose integers are spelled otherwise, `5.0` or `5e0`, as they are sent: many services read digits alone.
pub(super) fn whole_numbers(
    schema: &Map<String, Value>,
    arguments: &BTreeMap<String, &RawValue>,
) -> Vec<(String, Box<RawValue>)> {
    let properties = schema.get("properties");
    let respelled = arguments.iter().filter_map(|(name, value)| {
        let property = properties.and_then(|properties| properties.get(name));
        let property = property.or_else(|| other(schema))?;
        Some((name.clone(), respelled(property, value, DEPTH)?))
    });
    respelled.collect()
}

/// `None` where nothing changes.
fn respelled(schema: &Value, value: &RawValue, depth: usize) -> Option<Box<RawValue>> {
    let text = value.get();
    if depth == 0 || !text.contains(['.', 'e', 'E']) {
        return None;
    }
    let inner = |schema: &Value, value: &RawValue| respelled(schema, value, depth - 1);
    match text.as_bytes().first()? {
        b'[' => {
            let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
            let new: Vec<_> = items
                .iter()
                .map(|item| inner(&schema["items"], item))
                .collect();
            new.iter().any(Option::is_some).then_some(())?;
            let items = items.iter().zip(&new);
            let items: Vec<&RawValue> = items
                .map(|(old, new)| new.as_deref().unwrap_or(old))
                .collect();
            to_raw_value(&items).ok()
        }
        b'{' => {
            let mut fields: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
            let new = whole_numbers(schema.as_object()?, &fields);
            (!new.is_empty()).then_some(())?;
            fields.extend(new.iter().map(|(name, value)| (name.clone(), &**value)));
            to_raw_value(&fields).ok()
        }
        b'-' | b'0'..=b'9' => {
            let kinds = kinds(schema);
            let is_integer = kinds.contains(&"integer") && !kinds.contains(&"number");
            let number: f64 = serde_json::from_str(text).ok().filter(|_| is_integer)?;
            let is_exact = number.fract() == 0.0 && number.abs() < EXACT;
            is_exact.then_some(())?;
            // Without a sign where it is zero.
            RawValue::from_string(format!("{:.0}", number + 0.0)).ok()
        }
        _ => None,
    }
}

/// What the schema says about arguments that it does not name; `None` when there may be none.
fn other(schema: &Map<String, Value>) -> Option<&Value> {
    schema
        .get("additionalProperties")
        .filter(|others| **others != false)
}

fn unknown(name: &str, properties: &Map<String, Value>) -> String {
    let name = text::cut(name, 64);
    let names: Vec<&str> = properties.keys().map(String::as_str).take(100).collect();
    match names.as_slice() {
        [] => format!("there is no argument \"{name}\"; there are none"),
        [one] => format!("there is no argument \"{name}\"; the only one is {one}"),
        names => format!(
            "there is no argument \"{name}\"; the arguments are {}",
            names.join(", ")
        ),
    }
}

fn missing(schema: &Map<String, Value>, has: impl Fn(&str) -> bool) -> Result<(), String> {
    let required = schema.get("required").and_then(Value::as_array);
    let mut required = required.into_iter().flatten().filter_map(Value::as_str);
    let Some(name) = required.find(|name| !has(name)) else {
        return Ok(());
    };
    let property = &schema["properties"][name];
    let kind = match kinds(property).as_slice() {
        [] => String::new(),
        kinds => format!(" ({})", kinds.join(" or ")),
    };
    Err(match property["description"].as_str() {
        Some(description) => format!("{name} is required{kind}: {}", text::cut(description, 200)),
        None => format!("{name} is required{kind}"),
    })
}

fn allows_null(property: &Value) -> bool {
    let is_open = kinds(property).is_empty() && property["enum"].is_null();
    let in_branches = |branch: &Value| branch["type"] == "null";
    match property["anyOf"].as_array() {
        Some(branches) => branches.iter().any(in_branches),
        // A schema that says nothing, as of a body's field, takes null as a value.
        None => is_open || kinds(property).contains(&"null"),
    }
}

fn kinds(property: &Value) -> Vec<&str> {
    match &property["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// What is wrong begins with where within the argument it is, or with a space.
fn check(schema: &Value, value: &Value, depth: usize) -> Result<(), String> {
    if depth == 0 || !schema.is_object() {
        return Ok(());
    }
    check_kind(schema, value)?;
    check_words(schema, value)?;
    check_bounds(schema, value)?;
    for list in lists(schema) {
        let mut problems = list
            .iter()
            .map(|branch| check(branch, value, depth - 1))
            .collect::<Vec<_>>();
        if !list.is_empty() && problems.iter().all(Result::is_err) {
            let is_one = |problem: &Result<(), String>| problem != &problems[0];
            return match problems.iter().any(is_one) {
                true => Err(" has none of the forms that the schema allows".to_owned()),
                false => problems.swap_remove(0),
            };
        }
    }
    match value {
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                check(&schema["items"], item, depth - 1)
                    .map_err(|problem| format!("[{at}]{problem}"))?;
            }
        }
        Value::Object(fields) => {
            let Some(schema) = schema.as_object() else {
                return Ok(());
            };
            missing(schema, |name| fields.contains_key(name))
                .map_err(|problem| format!(".{problem}"))?;
            let known = schema.get("properties").and_then(Value::as_object);
            for (name, field) in fields {
                let property = known.and_then(|known| known.get(name));
                match property.or_else(|| schema.get("additionalProperties")) {
                    Some(Value::Bool(false)) => {
                        let name = text::cut(name, 64);
                        return Err(format!(" has no field \"{name}\""));
                    }
                    Some(property) => check(property, field, depth - 1)
                        .map_err(|problem| format!(".{name}{problem}"))?,
                    None => {}
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// Lists of which one must hold.
fn lists(schema: &Value) -> impl Iterator<Item = &Vec<Value>> {
    let all = schema["allOf"].as_array().into_iter().flatten();
    std::iter::once(schema)
        .chain(all)
        .filter_map(|schema| schema["anyOf"].as_array())
}

fn check_kind(schema: &Value, value: &Value) -> Result<(), String> {
    let kinds = kinds(schema);
    let is_whole = |number: &serde_json::Number| {
        number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|one| one.fract() == 0.0)
    };
    let fits = |kind: &&str| match (*kind, value) {
        ("integer", Value::Number(number)) => is_whole(number),
        ("string", Value::String(_))
        | ("number", Value::Number(_))
        | ("boolean", Value::Bool(_))
        | ("array", Value::Array(_))
        | ("object", Value::Object(_))
        | ("null", Value::Null) => true,
        _ => false,
    };
    if kinds.is_empty() || kinds.iter().any(fits) {
        return Ok(());
    }
    let wanted: Vec<&str> = kinds.into_iter().filter(|kind| *kind != "null").collect();
    let wanted = wanted.join(" or ");
    let article = if wanted.starts_with(['i', 'o', 'a']) {
        "an"
    } else {
        "a"
    };
    let given = match value {
        Value::Number(number) => number.to_string(),
        other => kind_of(other).to_owned(),
    };
    Err(format!(" must be {article} {wanted}, not {given}"))
}

fn check_words(schema: &Value, value: &Value) -> Result<(), String> {
    let words = match (&schema["enum"], schema.get("const")) {
        (Value::Array(words), _) => words.as_slice(),
        (_, Some(word)) => std::slice::from_ref(word),
        _ => return Ok(()),
    };
    if words.iter().any(|word| same(word, value)) {
        return Ok(());
    }
    let shown: Vec<String> = words
        .iter()
        .take(50)
        .map(|word| match word {
            Value::String(word) => word.clone(),
            other => other.to_string(),
        })
        .collect();
    Err(format!(
        " must be one of {}, not {}",
        text::cut(&shown.join(", "), 1_000),
        found(value)
    ))
}

fn same(word: &Value, value: &Value) -> bool {
    word == value
        || matches!((word, value), (Value::Number(word), Value::Number(value)) if word.as_f64() == value.as_f64())
}

fn check_bounds(schema: &Value, value: &Value) -> Result<(), String> {
    let Some(number) = value.as_f64() else {
        return Ok(());
    };
    for (keyword, holds, words) in [
        ("minimum", f64::ge as fn(&f64, &f64) -> bool, "at least"),
        ("maximum", f64::le, "at most"),
        ("exclusiveMinimum", f64::gt, "more than"),
        ("exclusiveMaximum", f64::lt, "less than"),
    ] {
        if let Some(bound) = schema[keyword].as_f64()
            && !holds(&number, &bound)
        {
            return Err(format!(" must be {words} {}, not {value}", schema[keyword]));
        }
    }
    Ok(())
}
