//! The table of what is accepted and refused, asked without a cluster. `tests/tests/cluster/crds.rs` asks it of one.

use chandlery_crds::crd::Kind;
use chandlery_crds::schema::{self, Violation};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    it: String,
    kind: String,
    #[serde(default = "w")]
    name: String,
    #[serde(default)]
    labels: Value,
    spec: Value,
    becomes: Option<Value>,
    says: Option<String>,
}

fn w() -> String {
    "w".to_owned()
}

#[test]
fn the_schemas_say_what_the_table_says() {
    let rows: Vec<Row> = serde_saphyr::from_str(include_str!("table.yaml")).unwrap();
    assert!(rows.iter().filter(|row| row.says.is_some()).count() >= 40);
    assert!(rows.iter().filter(|row| row.says.is_none()).count() >= 20);
    let wrong: Vec<String> = rows.iter().filter_map(wrong).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is wrong with the answer to `row`.
fn wrong(row: &Row) -> Option<String> {
    let kind = Kind::named(&row.kind).expect("a row names one of our kinds");
    let object = |spec: &Value| {
        without_nulls(json!({"metadata": {"name": row.name, "labels": row.labels}, "spec": spec}))
    };
    let first = object(&row.spec);
    let violations = match &row.becomes {
        None => schema::validate(kind, &first, None),
        Some(spec) => {
            let before = schema::validate(kind, &first, None);
            if !before.is_empty() {
                return Some(format!(
                    "{} {}: refused before the change: {before:?}",
                    row.kind, row.it
                ));
            }
            schema::validate(kind, &object(spec), Some(&first))
        }
    };
    let text = violations
        .iter()
        .map(|Violation { field, message }| format!("{field}: {message}"))
        .collect::<Vec<_>>()
        .join("\n");
    match &row.says {
        None if violations.is_empty() => None,
        None => Some(format!("{} {}: refused: {text}", row.kind, row.it)),
        Some(words) if text.contains(words) => None,
        Some(words) => Some(format!("{} {}: {text:?} lacks {words:?}", row.kind, row.it)),
    }
}

/// As `manifest::read` hands it on, and the API server too.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name, without_nulls(value)))
            .collect(),
        other => other,
    }
}
