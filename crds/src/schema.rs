//! Says of an object what the API server would say: unknown and missing fields, types, bounds, CEL rules.
//!
//! The schemas are those of [`Kind::crd`], so the two cannot disagree on what is allowed. Messages never repeat a
//! value except where it is one of a few words: it may be a secret.

use std::collections::HashSet;
use std::sync::LazyLock;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::cel::{CompiledSchema, Validator, compile_schema};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::crd::Kind;
use crate::names;

/// Something that an object may not hold, or lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Where, such as `spec.tools[3]`; empty for the whole object.
    pub field: String,
    /// What is wrong and what to write instead.
    pub message: String,
}

/// What the API server would refuse in `object`; with `old`, in changing `old` into it.
///
/// CEL rules are only asked about objects whose shape is right, as the API server does it.
pub fn validate(kind: Kind, object: &Value, old: Option<&Value>) -> Vec<Violation> {
    let compiled = &COMPILED[kind as usize];
    let violations = shape(&compiled.schema, object);
    if !violations.is_empty() {
        return violations;
    }
    let Err(errors) = Validator::new().validate_compiled(&compiled.rules, object, old) else {
        return Vec::new();
    };
    errors
        .into_vec()
        .into_iter()
        .map(|error| Violation {
            field: error.field_path,
            message: error.message,
        })
        .collect()
}

/// Likewise for a Secret.
pub fn validate_secret(object: &Value) -> Vec<Violation> {
    shape(&SECRET, object)
}

/// Likewise for a ConfigMap.
pub fn validate_config_map(object: &Value) -> Vec<Violation> {
    shape(&CONFIG_MAP, object)
}

fn shape(schema: &Value, object: &Value) -> Vec<Violation> {
    let mut violations = Vec::new();
    walk(schema, object, String::new(), &mut violations);
    if violations.is_empty() {
        check_metadata(&object["metadata"], &mut violations);
    }
    violations
}

/// What Kubernetes asks of the metadata of every object, beyond its shape.
fn check_metadata(metadata: &Value, violations: &mut Vec<Violation>) {
    const WORD: &str = "alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
    if !metadata["name"]
        .as_str()
        .is_some_and(names::is_dns_subdomain)
    {
        violations.push(Violation {
            field: "metadata.name".to_owned(),
            message: "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'".to_owned(),
        });
    }
    for map in ["labels", "annotations"] {
        for (key, value) in metadata[map].as_object().into_iter().flatten() {
            let (prefix, name) = key
                .split_once('/')
                .map_or((None, key.as_str()), |(prefix, name)| (Some(prefix), name));
            let field = || format!("metadata.{map}.{key}");
            if !is_label_word(name) || prefix.is_some_and(|prefix| !names::is_dns_subdomain(prefix))
            {
                let message =
                    format!("name part must consist of {WORD}; a prefix before '/' is a DNS name");
                violations.push(Violation {
                    field: field(),
                    message,
                });
            }
            let value = value.as_str().unwrap_or_default();
            if map == "labels" && !value.is_empty() && !is_label_word(value) {
                let message = format!(
                    "a valid label must be an empty string or consist of at most 63 {WORD}"
                );
                violations.push(Violation {
                    field: field(),
                    message,
                });
            }
        }
    }
}

fn is_label_word(text: &str) -> bool {
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && is_end(bytes.first())
        && is_end(bytes.last())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

struct Compiled {
    schema: Value,
    rules: CompiledSchema,
}

static COMPILED: [LazyLock<Compiled>; 4] = [
    LazyLock::new(|| compile(Kind::Workspace)),
    LazyLock::new(|| compile(Kind::Agent)),
    LazyLock::new(|| compile(Kind::ToolSource)),
    LazyLock::new(|| compile(Kind::ToolGrant)),
];
static SECRET: LazyLock<Value> = LazyLock::new(schema_of::<Secret>);
static CONFIG_MAP: LazyLock<Value> = LazyLock::new(schema_of::<ConfigMap>);

fn compile(kind: Kind) -> Compiled {
    let mut schema = kind.schema();
    let rules = compile_schema(&schema);
    // What Kubernetes itself knows of every object.
    schema["properties"]["apiVersion"] = json!({"type": "string"});
    schema["properties"]["kind"] = json!({"type": "string"});
    schema["properties"]["metadata"] = schema_of::<ObjectMeta>();
    Compiled { schema, rules }
}

fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|settings| settings.inline_subschemas = true);
    settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value()
}

/// Compares the shape of `value` with `schema`. Keywords that it does not know are those that
/// the test `schemas_use_known_keywords_only` lists.
fn walk(schema: &Value, value: &Value, path: String, violations: &mut Vec<Violation>) {
    let mut refuse = |message: String| {
        violations.push(Violation {
            field: path.clone(),
            message,
        })
    };
    if schema["x-kubernetes-int-or-string"] == true {
        if !(value.is_string() || value.is_i64() || value.is_u64()) {
            refuse(format!(
                "must be an integer or a string, not {}",
                type_of(value)
            ));
        }
        return;
    }
    let expected = schema["type"].as_str().unwrap_or_default();
    let fits = match (expected, value) {
        ("", _) | ("object", Value::Object(_)) | ("array", Value::Array(_)) => true,
        ("string", Value::String(_))
        | ("boolean", Value::Bool(_))
        | ("number", Value::Number(_)) => true,
        ("integer", Value::Number(number)) => number.is_i64() || number.is_u64(),
        _ => false,
    };
    if !fits {
        return refuse(format!(
            "must be of type {expected}, not {}",
            type_of(value)
        ));
    }
    if let (Some(words), Some(word)) = (schema["enum"].as_array(), value.as_str())
        && !words.contains(value)
    {
        let words: Vec<String> = words.iter().map(Value::to_string).collect();
        return refuse(format!(
            "Unsupported value: {word:?}: supported values: {}",
            words.join(", ")
        ));
    }
    match value {
        Value::Object(fields) => walk_object(schema, fields, path, violations),
        Value::Array(items) => walk_array(schema, items, path, violations),
        Value::String(text) => {
            let length = text.chars().count() as u64;
            if schema["maxLength"]
                .as_u64()
                .is_some_and(|most| length > most)
            {
                refuse(format!(
                    "Too long: may not be more than {} characters",
                    schema["maxLength"]
                ));
            }
            if schema["minLength"]
                .as_u64()
                .is_some_and(|least| length < least)
            {
                refuse(format!(
                    "should be at least {} chars long",
                    schema["minLength"]
                ));
            }
        }
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            if let Some(least) = schema["minimum"].as_f64().filter(|least| number < *least) {
                refuse(format!("should be greater than or equal to {least}"));
            }
            if let Some(most) = schema["maximum"].as_f64().filter(|most| number > *most) {
                refuse(format!("should be less than or equal to {most}"));
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

fn walk_object(
    schema: &Value,
    fields: &Map<String, Value>,
    path: String,
    violations: &mut Vec<Violation>,
) {
    let mut refuse = |field: String, message: String| violations.push(Violation { field, message });
    if let Some(most) = schema["maxProperties"]
        .as_u64()
        .filter(|most| fields.len() as u64 > *most)
    {
        refuse(
            path.clone(),
            format!("Too many: {}: must have at most {most} items", fields.len()),
        );
    }
    for name in schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        if !fields.contains_key(name) {
            refuse(join(&path, name), "Required value".to_owned());
        }
    }
    for (name, value) in fields {
        let path = join(&path, name);
        let known = schema["properties"]
            .get(name)
            .or_else(|| schema.get("additionalProperties"));
        match known {
            Some(schema) => walk(schema, value, path, violations),
            None => violations.push(Violation {
                message: format!("unknown field {path:?}"),
                field: path,
            }),
        }
    }
}

fn walk_array(schema: &Value, items: &[Value], path: String, violations: &mut Vec<Violation>) {
    let mut refuse = |field: String, message: String| violations.push(Violation { field, message });
    if let Some(most) = schema["maxItems"]
        .as_u64()
        .filter(|most| items.len() as u64 > *most)
    {
        refuse(
            path.clone(),
            format!("Too many: {}: must have at most {most} items", items.len()),
        );
    }
    if let Some(least) = schema["minItems"]
        .as_u64()
        .filter(|least| (items.len() as u64) < *least)
    {
        refuse(path.clone(), format!("should have at least {least} items"));
    }
    let keys: Vec<&str> = schema["x-kubernetes-list-map-keys"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let identity = |item: &Value| match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => Some(item.to_string()),
        Some("map") => Some(keys.iter().map(|key| item[*key].to_string()).collect()),
        _ => None,
    };
    let mut seen = HashSet::new();
    for (at, item) in items.iter().enumerate() {
        if identity(item).is_some_and(|identity| !seen.insert(identity)) {
            refuse(format!("{path}[{at}]"), "Duplicate value".to_owned());
        }
    }
    for (at, item) in items.iter().enumerate() {
        walk(&schema["items"], item, format!("{path}[{at}]"), violations);
    }
}

/// The path of a field of what lies at `path`.
pub(crate) fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
