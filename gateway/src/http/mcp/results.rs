//! From a call's answer to the bytes of a `tools/call` result, the same for both lanes.

use bytes::Bytes;
use serde_json::{Value, json};

use super::wire::{INVALID_PARAMS, MISSING_CAPABILITY};
use crate::family::RpcError;
use crate::pipeline::Awaiting;
use crate::times::rfc3339;
use crate::tool::{
    ErrorKind, MAX_RESULT_BYTES, MAX_TEXT_BYTES, Output, ToolError, beginning, escaped,
};

/// What the agent reads whose client takes no tasks, of a call that another client has begun.
const NOT_FOR_THIS_CLIENT: &str = "This call goes on as a task, which the client has to look after that began it and that declares the tasks extension.";

/// The result of a call that worked.
pub(super) fn done(output: Output, is_newer: bool) -> Bytes {
    let result = match output {
        Output::Text(text) => return finished(&text, None, false, is_newer).into(),
        Output::Structured { text, value } => {
            return finished(&text, Some(&value), false, is_newer).into();
        }
        Output::Raw(result) => result,
        Output::NeedsInput(questions) => questions.to_string().into(),
        // Of another client's: one that takes tasks is told of it otherwise.
        Output::Task { .. } => failed(NOT_FOR_THIS_CLIENT, is_newer).into(),
    };
    if result.len() <= MAX_RESULT_BYTES {
        result
    } else {
        failed(&too_large(result.len()), is_newer).into()
    }
}

/// A failure that is about the request and not about what the call did: no result, but an error of the protocol.
pub(super) fn protocol_error(failure: &ToolError) -> Option<RpcError> {
    let (code, data) = match failure.kind {
        ErrorKind::NeedsCapability(capability) => {
            let data = json!({"requiredCapabilities": {capability: {}}});
            (MISSING_CAPABILITY, Some(data))
        }
        ErrorKind::ForgedState | ErrorKind::Params => (INVALID_PARAMS, None),
        ErrorKind::Arguments | ErrorKind::Refused | ErrorKind::Unavailable => return None,
    };
    Some(RpcError {
        code,
        message: failure.message.clone(),
        data,
    })
}

/// The result of a call that did not work.
pub(super) fn failed(message: &str, is_newer: bool) -> Vec<u8> {
    finished(message, None, true, is_newer)
}

/// The result of a call that a person has to allow first.
pub(super) fn awaiting(tool: &str, awaiting: &Awaiting, is_newer: bool) -> Vec<u8> {
    let id = awaiting.ticket.id;
    let expires_at = rfc3339(awaiting.ticket.expires_at);
    let text = format!(
        "A person has to allow this call of {tool}; nothing was done yet. Call it again with the same arguments after the decision, which can take a while: approval {id}, open until {expires_at}. Do something else meanwhile."
    );
    let value = json!({
        "status": "awaiting_approval",
        "approval_id": id,
        "tool": tool,
        "expires_at": expires_at,
        // Some clients show their model this and not the text.
        "next": "Call it again with the same arguments after the decision.",
    });
    finished(&text, Some(&value), false, is_newer)
}

/// The error of a tool that the agent does not have, or that does not exist: the two look alike.
pub(super) fn unknown_tool(name: &str) -> String {
    format!("Unknown tool '{name}'")
}

fn finished(text: &str, value: Option<&Value>, is_error: bool, is_newer: bool) -> Vec<u8> {
    let mut result = Vec::with_capacity(text.len() + 96);
    result.extend_from_slice(b"{\"content\":[{\"type\":\"text\",\"text\":");
    write(&mut result, text);
    result.extend_from_slice(b"}]");
    // Revisions before the newer one allow objects only.
    if let Some(value) = value.filter(|value| is_newer || value.is_object()) {
        result.extend_from_slice(b",\"structuredContent\":");
        write(&mut result, value);
    }
    result.extend_from_slice(b",\"isError\":");
    write(&mut result, &is_error);
    if is_newer {
        result.extend_from_slice(b",\"resultType\":\"complete\"");
    }
    result.push(b'}');
    match value {
        _ if result.len() <= MAX_RESULT_BYTES => result,
        Some(_) => failed(&too_large(result.len()), is_newer),
        None => finished(&cut(text), None, is_error, is_newer),
    }
}

fn write(to: &mut Vec<u8>, value: &(impl serde::Serialize + ?Sized)) {
    serde_json::to_writer(to, value).expect("text and JSON values always serialize");
}

/// As much of `text` as fits once it is escaped, and a note that says so.
fn cut(text: &str) -> String {
    let note = format!(
        "\n\n[Cut: the result has {} bytes, more than fits into one answer. Ask for less at a time.]",
        text.len()
    );
    // The note begins with two line breaks.
    let room = MAX_TEXT_BYTES - note.len() - 2;
    let text = beginning(text, room, escaped);
    format!("{text}{note}")
}

fn too_large(bytes: usize) -> String {
    format!(
        "the result has {bytes} bytes, more than the {MAX_RESULT_BYTES} that one answer may have; ask for less at a time"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(output: Output, is_newer: bool, expected: Value) {
        let result: Value = serde_json::from_slice(&done(output, is_newer)).unwrap();
        assert_eq!(result, expected);
    }

    #[test]
    fn older_revisions_get_neither_a_result_type_nor_structured_content_that_is_no_object() {
        let list = || Output::Structured {
            text: "[1]".into(),
            value: json!([1]),
        };
        let content = json!([{"type": "text", "text": "[1]"}]);
        check(list(), false, json!({"content": content, "isError": false}));
        check(
            list(),
            true,
            json!({"content": content, "structuredContent": [1], "isError": false, "resultType": "complete"}),
        );
    }

    #[test]
    fn text_that_is_too_long_is_cut_with_a_note_and_a_value_is_refused() {
        for text in ["x".repeat(3 << 20), "\"\u{1}é".repeat(1 << 20)] {
            let result = done(Output::Text(text), true);
            assert!(result.len() <= MAX_RESULT_BYTES && result.len() > MAX_RESULT_BYTES - 1024);
            let result: Value = serde_json::from_slice(&result).unwrap();
            assert!(
                result["content"][0]["text"]
                    .as_str()
                    .unwrap()
                    .contains("[Cut: ")
            );
            assert_eq!(result["isError"], false);
        }
        let value = json!({"rows": "x".repeat(2 << 20)});
        for output in [
            Output::Raw(value.to_string().into()),
            Output::Structured {
                text: String::new(),
                value,
            },
        ] {
            let result: Value = serde_json::from_slice(&done(output, false)).unwrap();
            assert_eq!(result["isError"], true);
            assert!(
                result["content"][0]["text"]
                    .as_str()
                    .unwrap()
                    .contains("ask for less")
            );
        }
    }
}
