//! Documents as large as may be, with as many operations as are served; and what reading them costs.

use std::fmt::Write;
use std::time::Duration;

use chandlery_gateway::families::openapi::MAX_OPERATIONS;
use serde_json::Value;

/// A document in JSON: 2,000 operations with parameters and a body of nested schemas, filled up to `size` bytes by the
/// descriptions of answers.
pub(crate) fn of_texts(size: usize) -> String {
    let mut text = with_schemas(MAX_OPERATIONS, usize::MAX);
    let room = size.saturating_sub(text.len()) / MAX_OPERATIONS;
    for at in 0..MAX_OPERATIONS {
        let start = text.len();
        push_operation(&mut text, at, |text| {
            let left = (room.saturating_sub(64)).saturating_sub(text.len() - start);
            text.push_str(&"An answer. ".repeat(left / 11));
        });
    }
    text.push_str("}}");
    text
}

/// The same, filled up by schemas: much structure and little text.
pub(crate) fn of_schemas(size: usize) -> String {
    const OF_OPERATIONS: usize = 400 * MAX_OPERATIONS;
    let mut text = with_schemas(usize::MAX, size.saturating_sub(OF_OPERATIONS));
    for at in 0..MAX_OPERATIONS {
        push_operation(&mut text, at, |_| {});
    }
    text.push_str("}}");
    text
}

/// The beginning of a document, with schemas until there are so many or so many bytes of them, but at least one for each
/// operation.
fn with_schemas(most: usize, bytes: usize) -> String {
    let mut text = String::from(
        r#"{"openapi":"3.1.0","info":{"title":"Large","version":"1"},"servers":[{"url":"https://large.example"}],"components":{"schemas":{"#,
    );
    let mut at = 0;
    while at < MAX_OPERATIONS || at < most && text.len() < bytes {
        let (next, other) = ((at + 1) % MAX_OPERATIONS, (at * 7 + 3) % MAX_OPERATIONS);
        let separator = if at == 0 { "" } else { "," };
        write!(
            text,
            r##"{separator}"S{at}":{{"type":"object","required":["id"],"properties":{{"id":{{"type":"string","format":"uuid"}},"name":{{"type":"string","maxLength":80,"description":"What it is called."}},"state":{{"enum":["on","off"]}},"next":{{"$ref":"#/components/schemas/S{next}"}},"others":{{"type":"array","items":{{"$ref":"#/components/schemas/S{other}"}}}}}}}}"##
        )
        .expect("write to a string");
        at += 1;
    }
    text.push_str("}},\"paths\":{");
    text
}

fn push_operation(text: &mut String, at: usize, describe: impl FnOnce(&mut String)) {
    let separator = if at == 0 { "" } else { "," };
    write!(
        text,
        r##"{separator}"/things/{at}/{{id}}":{{"post":{{"operationId":"thing-{at}","parameters":[{{"name":"id","in":"path","required":true,"schema":{{"type":"string"}}}},{{"name":"limit","in":"query","schema":{{"type":"integer"}}}}],"requestBody":{{"content":{{"application/json":{{"schema":{{"$ref":"#/components/schemas/S{at}"}}}}}}}},"responses":{{"200":{{"description":""##
    )
    .expect("write to a string");
    describe(text);
    text.push_str("\"}}}}");
}

/// A document of `size` bytes as people write YAML, one line for each value.
pub(crate) fn in_yaml(size: usize) -> String {
    // Lines begin with blanks, which JSON does without.
    let json: Value = serde_json::from_str(&of_schemas(size * 53 / 100)).expect("JSON");
    let mut text = String::new();
    push_yaml(&mut text, &json, 0);
    text
}

fn push_yaml(text: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                write!(text, "\n{:1$}{name:?}: ", "", depth * 2).expect("write to a string");
                push_yaml(text, value, depth + 1);
            }
        }
        Value::Array(items) => {
            for item in items {
                write!(text, "\n{:1$}- ", "", depth * 2).expect("write to a string");
                push_yaml(text, item, depth + 1);
            }
        }
        scalar => write!(text, "{scalar}").expect("write to a string"),
    }
}

/// CPU time that this process has used; Linux tells, in hundredths of a second.
pub(crate) fn cpu(process: &str) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // Behind the name, which may hold anything, the 12th and 13th field.
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
    let ticks = fields
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok());
    Duration::from_millis(10 * ticks.sum::<u64>())
}
