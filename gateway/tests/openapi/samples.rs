//! Arguments made from the schema that a tool lists.

use chandlery_gateway::families::openapi::Operation;
use serde_json::value::to_raw_value;
use serde_json::{Map, Value, json};

/// Text with much that delimits something somewhere; no space and no bar, which two of the styles cannot carry, and no
/// dot, which delimits nothing that a client could escape.
const TEXT: &str = r#"a/b?c=d&e+f%2F#;x:@!$'()*[]{}"^`\,é"#;

/// Calls of an operation: one with the arguments that are required, and one with all. Where headers carry some, all are
/// ASCII: headers refuse other text.
pub(crate) fn arguments(operation: &Operation) -> [Map<String, Value>; 2] {
    let schema = &operation.input_schema;
    [required(schema), all(schema)].map(|arguments| {
        let raw = to_raw_value(&arguments).expect("JSON");
        let is_plain = match operation.request(&raw) {
            Ok(request) => request.headers.len() == 1,
            Err(error) => !error.message.contains("one line of ASCII"),
        };
        if is_plain {
            return arguments;
        }
        let ascii = raw.get().replace('é', "e");
        serde_json::from_str(&ascii).expect("JSON")
    })
}

/// Every argument with a value.
fn all(schema: &Map<String, Value>) -> Map<String, Value> {
    of(schema, |_| true)
}

/// The required arguments with a value.
fn required(schema: &Map<String, Value>) -> Map<String, Value> {
    of(schema, |name| {
        let required = schema.get("required").and_then(Value::as_array);
        required.is_some_and(|required| required.iter().any(|one| one == name))
    })
}

fn of(schema: &Map<String, Value>, wanted: impl Fn(&str) -> bool) -> Map<String, Value> {
    let properties = schema["properties"].as_object().expect("properties");
    properties
        .iter()
        .filter(|(name, _)| wanted(name))
        .map(|(name, schema)| (name.clone(), value(schema, 0)))
        .collect()
}

fn value(schema: &Value, depth: usize) -> Value {
    if let Some(constant) = schema.get("const") {
        return constant.clone();
    }
    if let Some(words) = schema["enum"].as_array() {
        let word = words.iter().find(|word| !word.is_null());
        return word.cloned().unwrap_or(Value::Null);
    }
    let mut value = match kind(schema) {
        "integer" => within(schema, 7.0, 1.0),
        "number" => within(schema, 2.5, 0.5),
        "boolean" => true.into(),
        "array" => {
            let few = schema["minItems"].as_u64().unwrap_or(2).clamp(2, 8);
            (0..few)
                .map(|_| value(&schema["items"], depth + 1))
                .collect()
        }
        "object" => object(schema, depth),
        "string" => text(schema),
        // Anything is right, so what is hard to carry.
        _ if schema["anyOf"].is_array() || schema["allOf"].is_array() => json!({}),
        _ => text(schema),
    };
    for list in schema["allOf"]
        .as_array()
        .into_iter()
        .flatten()
        .chain([schema])
    {
        let Some(branch) = list["anyOf"]
            .as_array()
            .and_then(|branches| branches.first())
        else {
            continue;
        };
        let branch = self::value(branch, depth + 1);
        match (&mut value, branch) {
            (Value::Object(fields), Value::Object(more)) => fields.extend(more),
            (value, branch) if kind(schema).is_empty() => *value = branch,
            _ => {}
        }
    }
    value
}

fn kind(schema: &Value) -> &str {
    match &schema["type"] {
        Value::String(kind) => kind,
        Value::Array(kinds) => {
            let kinds = kinds.iter().filter_map(Value::as_str);
            kinds.clone().find(|kind| *kind != "null").unwrap_or("null")
        }
        _ if schema["properties"].is_object() => "object",
        _ => "",
    }
}

fn object(schema: &Value, depth: usize) -> Value {
    let mut fields = Map::new();
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        if depth < 3 || required.iter().any(|one| one == name) {
            fields.insert(name.clone(), value(property, depth + 1));
        }
    }
    if fields.is_empty() && schema["additionalProperties"].is_object() {
        let other = value(&schema["additionalProperties"], depth + 1);
        fields.insert("other".to_owned(), other);
    }
    fields.into()
}

fn within(schema: &Value, wanted: f64, step: f64) -> Value {
    let bound = |keyword: &str| schema[keyword].as_f64();
    let least = bound("minimum").or(bound("exclusiveMinimum").map(|least| least + step));
    let most = bound("maximum").or(bound("exclusiveMaximum").map(|most| most - step));
    let mut number = wanted;
    if let Some(least) = least.filter(|least| number < *least) {
        number = least;
    }
    if let Some(most) = most.filter(|most| number > *most) {
        number = most;
    }
    if step == 1.0 {
        json!(number as i64)
    } else {
        json!(number)
    }
}

fn text(schema: &Value) -> Value {
    if schema["contentEncoding"] == "base64" {
        return "AAECDQotLWI=".into();
    }
    match schema["format"].as_str() {
        Some("date") => "2026-02-03".into(),
        Some("date-time") => "2026-02-03T04:05:06Z".into(),
        Some("uuid") => "0b6b8a3c-5f5b-4c8e-9d57-0d6e5f0f9a11".into(),
        _ => TEXT.into(),
    }
}
