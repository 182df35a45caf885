//! Parameters that headers mirror (`x-mcp-header`), so that what stands between us and a server can route by them.

use http::{HeaderName, HeaderValue};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::wire;

const KEYWORD: &str = "x-mcp-header";
/// Parameters of such names must not stand in headers, which are logged by whoever sees them.
const SECRET: [&str; 6] = [
    "password",
    "passwd",
    "secret",
    "token",
    "credential",
    "apikey",
];

/// One parameter that a header mirrors.
#[derive(Debug, PartialEq)]
pub(super) struct Mirror {
    header: HeaderName,
    /// Names of properties, from the arguments down.
    path: Vec<String>,
}

/// The mirrors that a schema asks for; the error says why they cannot be.
pub(super) fn mirrors(schema: &Map<String, Value>) -> Result<Vec<Mirror>, String> {
    let mut found = Vec::new();
    if schema.contains_key(KEYWORD) {
        return Err(format!("{KEYWORD} stands outside of any property"));
    }
    walk(schema, &mut Vec::new(), &mut found)?;
    Ok(found)
}

fn walk(
    schema: &Map<String, Value>,
    path: &mut Vec<String>,
    found: &mut Vec<Mirror>,
) -> Result<(), String> {
    for (keyword, value) in schema {
        if keyword != "properties" {
            if keyword != KEYWORD && mentions(value) {
                return Err(format!("{KEYWORD} stands below {keyword}"));
            }
            continue;
        }
        for (name, property) in value.as_object().into_iter().flatten() {
            let Some(property) = property.as_object() else {
                continue;
            };
            path.push(name.clone());
            if let Some(header) = property.get(KEYWORD) {
                let mirror = mirror(name, property, header, path)?;
                if found.iter().any(|other| other.header == mirror.header) {
                    return Err(format!("two parameters have the header {}", mirror.header));
                }
                found.push(mirror);
            }
            walk(property, path, found)?;
            path.pop();
        }
    }
    Ok(())
}

fn mirror(
    name: &str,
    property: &Map<String, Value>,
    header: &Value,
    path: &[String],
) -> Result<Mirror, String> {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let plain = plain.to_ascii_lowercase();
    if SECRET.iter().any(|secret| plain.contains(secret)) {
        return Err(format!("{name} looks secret, and no header may mirror it"));
    }
    if !matches!(
        property["type"].as_str(),
        Some("string" | "integer" | "boolean")
    ) {
        return Err(format!(
            "a header can mirror {name} as text, integer or boolean alone"
        ));
    }
    let header = header.as_str().filter(|header| !header.is_empty());
    let header = header.map(|header| format!("mcp-param-{}", header.to_ascii_lowercase()));
    header
        .and_then(|header| HeaderName::from_bytes(header.as_bytes()).ok())
        .map(|header| Mirror {
            header,
            path: path.to_vec(),
        })
        .ok_or_else(|| format!("the header for {name} has no name that a header can have"))
}

/// Whether the keyword stands anywhere in it; a property may be called that.
fn mentions(value: &Value) -> bool {
    match value {
        Value::Object(members) => members
            .iter()
            .any(|(key, value)| (key == KEYWORD && !value.is_object()) || mentions(value)),
        Value::Array(items) => items.iter().any(mentions),
        _ => false,
    }
}

/// The headers for one call.
pub(super) fn headers(mirrors: &[Mirror], arguments: &RawValue) -> Vec<(HeaderName, HeaderValue)> {
    let Ok(arguments) = serde_json::from_str::<Value>(arguments.get()) else {
        return Vec::new();
    };
    let headers = mirrors.iter().filter_map(|mirror| {
        let steps = mirror.path.iter();
        let value = steps.fold(&arguments, |value, step| &value[step.as_str()]);
        let value = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Bool(truth) => truth.to_string(),
            _ => return None,
        };
        Some((mirror.header.clone(), wire::header_value(&value)))
    });
    headers.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(properties: Value) -> Result<Vec<Mirror>, String> {
        let schema = json!({"type": "object", "properties": properties});
        mirrors(schema.as_object().unwrap())
    }

    #[test]
    fn only_harmless_parameters_are_mirrored() {
        let text = |header: &str| json!({"type": "string", "x-mcp-header": header});
        for (properties, problem) in [
            (
                json!({"a": text("X\r\nAuthorization: Bearer x")}),
                "no name",
            ),
            (json!({"a": text("")}), "no name"),
            (
                json!({"a": text("Same"), "b": text("same")}),
                "two parameters",
            ),
            (
                json!({"a": {"type": "number", "x-mcp-header": "A"}}),
                "alone",
            ),
            (json!({"api_key": text("Key")}), "looks secret"),
            (json!({"accessToken": text("Key")}), "looks secret"),
            (
                json!({"a": {"type": "array", "items": text("A")}}),
                "below items",
            ),
            (json!({"a": {"anyOf": [text("A")]}}), "below anyOf"),
        ] {
            let refused = read(properties).unwrap_err();
            assert!(refused.contains(problem), "{refused}");
        }
        assert_eq!(
            read(json!({"x-mcp-header": {"type": "string"}})),
            Ok(vec![])
        );
    }

    #[test]
    fn arguments_become_headers() {
        let mirrors = read(json!({
            "region": {"type": "string", "x-mcp-header": "Region"},
            "deep": {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}},
            "left": {"type": "boolean", "x-mcp-header": "Left"},
        }))
        .unwrap();
        let arguments =
            RawValue::from_string(json!({"region": "a\nb", "deep": {"n": 5}}).to_string());
        let mut headers = headers(&mirrors, &arguments.unwrap());
        headers.sort_by(|one, other| one.0.as_str().cmp(other.0.as_str()));
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .collect();
        assert_eq!(
            headers,
            [
                ("mcp-param-n", "5"),
                ("mcp-param-region", "=?base64?YQpi?=")
            ]
        );
    }
}
