//! Whole documents, ours and those of many makers: each loads, each operation's schema is one, and each call arrives as
//! the document says.

use std::fs;
use std::path::Path;
use std::time::Instant;

use chandlery_gateway::families::openapi::{Operation, Settings, read};
use serde_json::Value;

use super::{corpus, harness, reader, samples};

/// Words that may stand in a schema of arguments; all are of JSON Schema 2020-12.
const KEYWORDS: &[&str] = &[
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "contentEncoding",
    "contentMediaType",
    "default",
    "deprecated",
    "description",
    "enum",
    "examples",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "pattern",
    "properties",
    "required",
    "title",
    "type",
    "uniqueItems",
];

/// What is known of a document once all of it was looked at.
#[derive(Default)]
struct Outcome {
    operations: usize,
    skipped: Vec<String>,
    problems: Vec<String>,
}

fn look_at(path: &Path) -> Outcome {
    let mut outcome = Outcome::default();
    let text = fs::read(path).expect("read a document");
    let document = match read(&text, &Settings::default()) {
        Ok(document) => document,
        Err(error) => {
            outcome.problems.push(error.to_string());
            return outcome;
        }
    };
    let root = corpus::value(&text);
    outcome.operations = document.operations.len();
    for skipped in &document.skipped {
        outcome
            .skipped
            .push(format!("{}: {}", skipped.operation, skipped.message));
    }
    for operation in &document.operations {
        if let Err(problem) = look_at_operation(&root, operation) {
            let Operation { method, path, .. } = operation;
            outcome.problems.push(format!("{method} {path}: {problem}"));
        }
    }
    let mut names: Vec<&str> = document
        .operations
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    if names.len() < count {
        outcome
            .problems
            .push("two operations have one name".to_owned());
    }
    outcome
}

fn look_at_operation(root: &Value, operation: &Operation) -> Result<(), String> {
    let schema = Value::Object(operation.input_schema.clone());
    // R-C-191: whatever the document says, this is a schema.
    jsonschema::draft202012::meta::validate(&schema).map_err(|error| error.to_string())?;
    jsonschema::draft202012::new(&schema).map_err(|error| error.to_string())?;
    if schema.to_string().len() > 24 * 1024 {
        return Err("the schema is too large".to_owned());
    }
    look_at_schema(&schema)?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if operation.name.is_empty() || !operation.name.chars().all(is_name) {
        return Err(format!("it is named {:?}", operation.name));
    }
    for arguments in samples::arguments(operation) {
        let value = Value::Object(arguments.clone());
        let request =
            harness::call(operation, &value).map_err(|error| format!("{error} (of {value})"))?;
        reader::compare(root, operation, &arguments, &request)?;
    }
    Ok(())
}

/// R-C-197, R-C-198, at every depth; and no keyword that is not of JSON Schema.
fn look_at_schema(schema: &Value) -> Result<(), String> {
    let Value::Object(fields) = schema else {
        return Ok(());
    };
    for (keyword, value) in fields {
        if !KEYWORDS.contains(&keyword.as_str()) {
            return Err(format!("{keyword} is no keyword"));
        }
        match keyword.as_str() {
            "properties" => {
                for (name, property) in value.as_object().expect("properties") {
                    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
                    if name.len() > 64 || name.is_empty() || !name.chars().all(is_allowed) {
                        return Err(format!("{name:?} is no name of an argument"));
                    }
                    look_at_schema(property)?;
                }
            }
            "items" | "additionalProperties" => look_at_schema(value)?,
            "anyOf" | "allOf" => value
                .as_array()
                .expect("a list")
                .iter()
                .try_for_each(look_at_schema)?,
            _ => {}
        }
    }
    Ok(())
}

#[track_caller]
fn check(folder: &Path, least: usize) {
    let documents = corpus::below(folder);
    assert!(
        documents.len() >= least,
        "{} documents below {}",
        documents.len(),
        folder.display()
    );
    let mut wrong = Vec::new();
    let mut all = 0;
    for path in documents {
        let start = Instant::now();
        let outcome = look_at(&path);
        let name = path
            .strip_prefix(folder)
            .unwrap_or(&path)
            .display()
            .to_string();
        println!(
            "{name}: {} operations, {} skipped, {} ms",
            outcome.operations,
            outcome.skipped.len(),
            start.elapsed().as_millis()
        );
        for skipped in outcome.skipped {
            println!("    skipped {skipped}");
        }
        all += outcome.operations;
        wrong.extend(
            outcome
                .problems
                .into_iter()
                .map(|problem| format!("{name}: {problem}")),
        );
    }
    println!("{all} operations");
    assert!(
        wrong.is_empty(),
        "{} problems:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

// R-C-190, R-C-191, R-C-193, R-C-194, R-C-197, R-C-198
#[test]
fn documents_of_difficult_shapes_are_served_as_they_say() {
    check(&corpus::ours(), 8);
}

// R-C-190, R-C-191, R-C-193, R-C-194, R-C-197, R-C-198
#[test]
#[ignore = "needs the documents of tests/setup"]
fn documents_of_many_makers_are_served_as_they_say() {
    check(&corpus::of_makers(), 1);
}
