//! What an agent reads of a task.

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::model::{Conversation, Task};
use crate::families::actions::as_payload_of;
use crate::tool::Output;

/// A task under a heading, with a page of its conversation where that was asked for.
pub(super) fn of(heading: &str, task: &Task, conversation: Option<&Conversation>) -> Output {
    let Task {
        id,
        title,
        body,
        status,
        assignee: _,
    } = task;
    let mut text = format!(
        "{heading}\nID: {id}\nTitle: {title}\nStatus: {}\nDetails: {body}",
        status.word()
    );
    let mut value = json!({"task": task});
    if let Some(conversation) = conversation {
        let conversation = json!(conversation);
        text.push_str(&format!("\nConversation:\n{conversation}"));
        value["conversation"] = conversation;
    }
    Output::Structured { text, value }
}

/// `getTaskMessages` always had the conversation with it.
pub(super) fn messages_of(old: &RawValue) -> Box<RawValue> {
    let with_conversation = serde_json::from_str::<Map<String, Value>>(old.get())
        .ok()
        .and_then(|mut arguments| {
            arguments
                .entry("includeConversation")
                .or_insert(Value::Bool(true));
            serde_json::value::to_raw_value(&arguments).ok()
        });
    as_payload_of("get", with_conversation.as_deref().unwrap_or(old))
}
