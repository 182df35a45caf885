//! Values of keywords, made to fit: documents have types of other languages, numbers in quotes and words without them.

use serde_json::{Number, Value};

/// The types that `type` names, without null.
pub(super) fn types(value: &Value) -> Vec<&'static str> {
    let mut types = Vec::new();
    let names = match value {
        Value::Array(names) => names.as_slice(),
        one => std::slice::from_ref(one),
    };
    for name in names.iter().filter_map(Value::as_str).filter_map(known) {
        if !types.contains(&name) {
            types.push(name);
        }
    }
    types
}

fn known(name: &str) -> Option<&'static str> {
    Some(match name.to_ascii_lowercase().as_str() {
        "string" | "str" | "date" | "datetime" | "date-time" | "uuid" | "uri" | "url" | "file"
        | "binary" | "text" | "timestamp" | "email" | "byte" | "enum" => "string",
        "integer" | "int" | "int32" | "int64" | "long" => "integer",
        "number" | "float" | "double" | "decimal" => "number",
        "boolean" | "bool" => "boolean",
        "array" | "list" => "array",
        "object" | "map" | "hash" => "object",
        _ => return None,
    })
}

/// `value` as one of `types`, if it is or can be read as one; anything where there are none.
pub(super) fn coerce(value: &Value, types: &[&str], nullable: bool) -> Option<Value> {
    let has = |name| types.contains(&name);
    let fits = types.is_empty()
        || match value {
            Value::Null => nullable,
            Value::Bool(_) => has("boolean"),
            Value::Number(number) => has("number") || has("integer") && is_integer(number),
            Value::String(_) => has("string"),
            Value::Array(_) => has("array"),
            Value::Object(_) => has("object"),
        };
    if fits {
        return Some(value.clone());
    }
    match value {
        Value::Bool(_) | Value::Number(_) if has("string") => Some(value.to_string().into()),
        Value::String(text) => {
            let read: Value = serde_json::from_str(text).ok()?;
            let is_scalar = read.is_number() || read.is_boolean();
            is_scalar.then(|| coerce(&read, types, nullable))?
        }
        _ => None,
    }
}

fn is_integer(number: &Number) -> bool {
    number.is_i64()
        || number.is_u64()
        || number.as_f64().is_some_and(|number| number.fract() == 0.0)
}

/// A number, also one in quotes.
pub(super) fn number(value: &Value) -> Option<Number> {
    match value {
        Value::Number(number) => Some(number.clone()),
        Value::String(text) => serde_json::from_str(text).ok(),
        _ => None,
    }
}

/// A count, also one written as `10.0`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be whole and in range"
)]
pub(super) fn count(value: &Value) -> Option<u64> {
    let number = number(value)?;
    let whole = |float: &f64| float.fract() == 0.0 && (0.0..9e15).contains(float);
    number
        .as_u64()
        .or_else(|| number.as_f64().filter(whole).map(|float| float as u64))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_read_as_their_types() {
        for (value, types, expected) in [
            (json!("5"), ["integer"], Some(json!(5))),
            (json!(5), ["string"], Some(json!("5"))),
            (json!(true), ["string"], Some(json!("true"))),
            (json!("five"), ["integer"], None),
            (json!(5.0), ["integer"], Some(json!(5.0))),
            (json!(null), ["string"], None),
            (json!("null"), ["integer"], None),
        ] {
            assert_eq!(coerce(&value, &types, false), expected, "{value}");
        }
        assert_eq!(types(&json!(["String", "null", "date"])), ["string"]);
        assert_eq!(count(&json!("10")), Some(10));
        assert_eq!(count(&json!(-1)), None);
    }
}
