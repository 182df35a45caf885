//! The largest document that is read, with as many operations as are served.

use std::fmt::Write;
use std::time::{Duration, Instant};

use chandlery_gateway::families::openapi::{MAX_BYTES, MAX_OPERATIONS};

use super::harness::document;

/// 2,000 operations with parameters and a body of nested schemas, filled up with descriptions to 20 MiB.
fn large() -> String {
    let mut text = String::from(
        r#"{"openapi":"3.1.0","info":{"title":"Large","version":"1"},"components":{"schemas":{"#,
    );
    for at in 0..MAX_OPERATIONS {
        let next = (at + 1) % MAX_OPERATIONS;
        let other = (at * 7 + 3) % MAX_OPERATIONS;
        let separator = if at == 0 { "" } else { "," };
        write!(
            text,
            r##"{separator}"S{at}":{{"type":"object","required":["id"],"properties":{{"id":{{"type":"string","format":"uuid"}},"name":{{"type":"string","maxLength":80,"description":"What it is called."}},"state":{{"enum":["on","off"]}},"next":{{"$ref":"#/components/schemas/S{next}"}},"others":{{"type":"array","items":{{"$ref":"#/components/schemas/S{other}"}}}}}}}}"##
        )
        .expect("write to a string");
    }
    text.push_str("}},\"paths\":{");
    let room = (MAX_BYTES - text.len()) / MAX_OPERATIONS;
    for at in 0..MAX_OPERATIONS {
        let separator = if at == 0 { "" } else { "," };
        let start = text.len();
        write!(
            text,
            r##"{separator}"/things/{at}/{{id}}":{{"post":{{"operationId":"thing-{at}","parameters":[{{"name":"id","in":"path","required":true,"schema":{{"type":"string"}}}},{{"name":"limit","in":"query","schema":{{"type":"integer"}}}}],"requestBody":{{"content":{{"application/json":{{"schema":{{"$ref":"#/components/schemas/S{at}"}}}}}}}},"responses":{{"200":{{"description":""##
        )
        .expect("write to a string");
        let left = (room - 64).saturating_sub(text.len() - start);
        text.push_str(&"An answer. ".repeat(left / 11));
        text.push_str("\"}}}}");
    }
    text.push_str("}}");
    text
}

#[test]
fn a_document_of_twenty_megabytes_loads_in_three_seconds() {
    let text = large();
    assert!(text.len() > MAX_BYTES * 9 / 10, "{} bytes", text.len());
    let start = Instant::now();
    let document = document(&text);
    let took = start.elapsed();
    println!(
        "{} MB, {} operations: {} ms",
        text.len() / 1_000_000,
        document.operations.len(),
        took.as_millis()
    );
    assert_eq!(
        (document.operations.len(), document.cut),
        (MAX_OPERATIONS, 0)
    );
    // What is built for tests is not what is shipped.
    if !cfg!(debug_assertions) {
        assert!(took < Duration::from_secs(3), "{took:?}");
    }
}
