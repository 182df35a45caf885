//! Documents read, and calls of their operations as requests.

use std::fmt::Write;

use chandlery_gateway::families::openapi::{
    Document, HttpRequest, Operation, Settings, Unreadable, read,
};
use chandlery_gateway::tool::ToolError;
use serde_json::Value;

#[track_caller]
pub(crate) fn document(text: &str) -> Document {
    read(text.as_bytes(), &Settings::default()).expect("a document that loads")
}

pub(crate) fn unreadable(text: &[u8]) -> Unreadable {
    read(text, &Settings::default()).expect_err("a document that does not load")
}

/// A document with these paths, written as YAML below `paths`.
pub(crate) fn with_paths(paths: &str) -> String {
    format!(
        "openapi: 3.1.0\ninfo: {{title: Shop, version: '1'}}\nservers: [{{url: https://shop.example/v1}}]\npaths:\n{paths}"
    )
}

/// The only operation of a document with these paths.
#[track_caller]
pub(crate) fn operation(paths: &str) -> Operation {
    only(document(&with_paths(paths)))
}

#[track_caller]
pub(crate) fn only(mut document: Document) -> Operation {
    assert_eq!(document.skipped, [], "skipped");
    assert_eq!(document.operations.len(), 1, "operations");
    document.operations.remove(0)
}

pub(crate) fn call(operation: &Operation, arguments: &Value) -> Result<HttpRequest, ToolError> {
    let arguments = serde_json::value::to_raw_value(arguments).expect("JSON");
    operation.request(&arguments)
}

/// A request in lines: method and path, headers but `accept`, and the body; every line ends with `\n` alone.
pub(crate) fn lines(request: &HttpRequest) -> String {
    let mut text = format!("{} {}", request.method, request.path_and_query);
    for (name, value) in &request.headers {
        if name != "accept" {
            write!(text, "\n{name}: {}", value.to_str().expect("ASCII"))
                .expect("write to a string");
        }
    }
    if let Some(content_type) = &request.content_type {
        write!(
            text,
            "\ncontent-type: {}",
            content_type.to_str().expect("ASCII")
        )
        .expect("write to a string");
        write!(text, "\n\n{}", String::from_utf8_lossy(&request.body)).expect("write to a string");
    }
    text.replace("\r\n", "\n")
}
