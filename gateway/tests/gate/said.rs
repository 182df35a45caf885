//! An answer to a call, as a test looks at it.

use serde_json::Value;

/// What an agent was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    Text(String),
    /// A result with `isError`.
    Refused(String),
    /// Id of the approval.
    Awaiting(String),
    /// A protocol error's code and message.
    Error(i64, String),
}

impl Said {
    pub(crate) fn of(answer: &Value) -> Self {
        if let Some(code) = answer["error"]["code"].as_i64() {
            let message = answer["error"]["message"].as_str().unwrap_or_default();
            return Self::Error(code, message.to_owned());
        }
        let result = &answer["result"];
        let text = result["content"][0]["text"]
            .as_str()
            .unwrap_or_else(|| panic!("no text: {answer}"))
            .to_owned();
        let value = &result["structuredContent"];
        if result["isError"] == true {
            Self::Refused(text)
        } else if value["status"] == "awaiting_approval" {
            Self::Awaiting(value["approval_id"].as_str().unwrap().to_owned())
        } else {
            Self::Text(text)
        }
    }

    #[track_caller]
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            other => panic!("no text: {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn refusal(&self) -> &str {
        match self {
            Self::Refused(text) => text,
            other => panic!("not refused: {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn approval(&self) -> &str {
        match self {
            Self::Awaiting(id) => id,
            other => panic!("nobody was asked: {other:?}"),
        }
    }

    pub(crate) fn unknown(tool: &str) -> Self {
        Self::Error(-32602, format!("Unknown tool '{tool}'"))
    }
}
