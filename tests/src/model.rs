//! A model that calls one tool, once, and keeps what that gave: with it, coding agents work without a real one.
//!
//! It speaks just enough of Anthropic's Messages (Claude Code, opencode) and of OpenAI's Responses (Codex), streamed.

use std::sync::{Arc, OnceLock};

use anyhow::Result;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::post;
use axum::{Json, Router};
use http::header;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

/// Listens on loopback; ends when it is dropped.
pub struct Model {
    /// Where both protocols are, without `/v1`.
    pub url: String,
    script: Arc<Script>,
    _task: AbortOnDropHandle<()>,
}

impl Model {
    /// One that calls the tool of this name: clients put the server's name before it.
    pub async fn start(tool: &str, arguments: &Value) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let script = Arc::new(Script {
            tool: tool.to_owned(),
            arguments: arguments.clone(),
            told: OnceLock::new(),
        });
        let router = Router::new()
            .route("/v1/messages", post(messages))
            .route("/v1/responses", post(responses))
            .with_state(script.clone());
        let task = AbortOnDropHandle::new(tokio::spawn(async move {
            // Never ends.
            let _ = axum::serve(listener, router).await;
        }));
        Ok(Self {
            url,
            script,
            _task: task,
        })
    }

    /// The text that the tool gave; `None` until it has.
    pub fn told(&self) -> Option<&str> {
        self.script.told.get().map(String::as_str)
    }
}

struct Script {
    tool: String,
    arguments: Value,
    told: OnceLock<String>,
}

impl Script {
    fn is_its_tool(&self, name: &Value) -> bool {
        name.as_str().is_some_and(|name| name.ends_with(&self.tool))
    }

    /// The tool to call now: the one that is offered, until there is a result. Titles are asked for without any tool.
    fn next<T>(&self, offered: Option<T>, result: Option<&Value>) -> Option<T> {
        let Some(result) = result else { return offered };
        let parts = list(result).filter_map(|part| part["text"].as_str());
        let text = result.as_str().map(str::to_owned);
        // Later requests repeat it.
        let _ = self.told.set(text.unwrap_or_else(|| parts.collect()));
        None
    }
}

/// Anthropic's Messages.
async fn messages(
    State(script): State<Arc<Script>>,
    Json(request): Json<Value>,
) -> impl IntoResponse {
    let name = list(&request["tools"])
        .map(|tool| &tool["name"])
        .find(|name| script.is_its_tool(name));
    let result = list(&request["messages"])
        .flat_map(|message| list(&message["content"]))
        .find(|block| block["type"] == "tool_result")
        .map(|block| &block["content"]);
    let (block, delta, reason) = match script.next(name, result) {
        Some(name) => (
            json!({"type": "tool_use", "id": "toolu_1", "name": name, "input": {}}),
            json!({"type": "input_json_delta", "partial_json": script.arguments.to_string()}),
            "tool_use",
        ),
        None => (
            json!({"type": "text", "text": ""}),
            json!({"type": "text_delta", "text": "Done."}),
            "end_turn",
        ),
    };
    let usage = json!({"input_tokens": 1, "output_tokens": 1});
    let message = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": request["model"], "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": usage,
    });
    let end = json!({"stop_reason": reason, "stop_sequence": null});
    stream(&[
        json!({"type": "message_start", "message": message}),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
        json!({"type": "content_block_delta", "index": 0, "delta": delta}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": end, "usage": usage}),
        json!({"type": "message_stop"}),
    ])
}

/// OpenAI's Responses, with a server's tools in a namespace, as Codex has them.
async fn responses(
    State(script): State<Arc<Script>>,
    Json(request): Json<Value>,
) -> impl IntoResponse {
    let tool = list(&request["tools"])
        .flat_map(|space| list(&space["tools"]).map(|tool| (&space["name"], &tool["name"])))
        .find(|(_, name)| script.is_its_tool(name));
    let result = list(&request["input"])
        .find(|item| item["type"] == "function_call_output")
        .map(|item| &item["output"]);
    let item = match script.next(tool, result) {
        Some((namespace, name)) => json!({
            "type": "function_call", "call_id": "call_1", "namespace": namespace, "name": name,
            "arguments": script.arguments.to_string(),
        }),
        None => json!({
            "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}],
        }),
    };
    stream(&[
        json!({"type": "response.output_item.done", "item": item}),
        json!({"type": "response.completed", "response": {"id": "resp_1"}}),
    ])
}

/// The elements of an array; none of anything else.
fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// These events, each named after its type.
fn stream(events: &[Value]) -> impl IntoResponse + use<> {
    let event = |event: &Value| {
        let name = event["type"].as_str().unwrap_or_default();
        format!("event: {name}\ndata: {event}\n\n")
    };
    let body: String = events.iter().map(event).collect();
    ([(header::CONTENT_TYPE, "text/event-stream")], body)
}
