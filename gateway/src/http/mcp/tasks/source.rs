//! Tasks that a source's server runs, relayed.
//!
//! Their ids hold which tool and which of the server's tasks it is, sealed: any replica knows them, clients learn nothing
//! of the server's own ids, and they are good for as long as the agent has the tool.

use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{CreateTaskResult, ErrorCode, ErrorData, GetTaskResult};
use rmcp::service::RequestContext;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::super::handler::{Handler, no_arguments};
use super::super::peer::Peer;
use super::super::seal::About;
use super::super::{Mcp, results};
use super::{unknown, value};
use crate::approvals::{Approval, State};
use crate::catalog::Found;
use crate::connector::visible;
use crate::family::RpcError;
use crate::http::access::Caller;
use crate::tool::Output;

/// How long a task can be looked after, if its server keeps it for so long.
const LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);
/// No client has to look after a task more often.
const LEAST_POLL_MS: u64 = 500;
/// Characters of a server's id.
const LONGEST_ID: usize = 1_024;
/// Characters of a server's own words that are passed on.
const WORDS: usize = 1_000;
/// Where results name the task that they belong to.
const RELATED: &str = "io.modelcontextprotocol/related-task";

/// Which task it is.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct AtSource {
    /// Name of the ToolSource.
    source: String,
    /// As the agent calls the tool.
    tool: String,
    /// As the server calls the task.
    id: String,
}

impl AtSource {
    fn new(source: String, tool: &str, task: &Value) -> Option<Self> {
        let id = task["taskId"].as_str()?;
        (!id.is_empty() && id.len() <= LONGEST_ID).then(|| Self {
            source,
            tool: tool.to_owned(),
            id: id.to_owned(),
        })
    }

    /// The task that an approved call has become.
    pub(super) fn of_result(row: &Approval) -> Option<Self> {
        match row.result().filter(|_| row.state == State::Done) {
            Some(Ok(Output::Task { source, task })) => Self::new(source, &row.tool, &task),
            _ => None,
        }
    }

    /// Turns what the server says of the task into what its client may see, under the id that the client knows.
    fn show(&self, task: &mut Value, id: &str) {
        let hide = |text: &mut Value| {
            if let Some(said) = text.as_str() {
                *text = value(&self.hide(said, id));
            }
        };
        task["taskId"] = value(id);
        for text in ["/statusMessage", "/error/message"] {
            task.pointer_mut(text).map(hide);
        }
        for related in ["/_meta", "/result/_meta"] {
            let meta = task.pointer_mut(related);
            if let Some(named) = meta.and_then(|meta| meta.get_mut(RELATED)) {
                *named = serde_json::json!({"taskId": id});
            }
        }
        let lifetime = u64::try_from(LIFETIME.as_millis()).unwrap_or(u64::MAX);
        let ttl = task["ttlMs"].as_u64().unwrap_or(lifetime);
        task["ttlMs"] = ttl.min(lifetime).into();
        if let Some(poll) = task["pollIntervalMs"].as_u64() {
            task["pollIntervalMs"] = poll.max(LEAST_POLL_MS).into();
        }
        if let Some(result) = task.get_mut("result").filter(|result| result.is_object()) {
            let bytes = results::done(Output::Raw(result.to_string().into()), true);
            // As it was, unless it was too large.
            if let Ok(told) = serde_json::from_slice(&bytes) {
                *result = told;
            }
        }
    }

    /// A server's own words, without its id of the task.
    fn hide(&self, said: &str, instead: &str) -> String {
        let said: String = said.chars().take(WORDS).collect();
        visible(&said.replace(&self.id, instead)).into_owned()
    }

    fn broken(&self) -> ErrorData {
        no_task(&self.source)
    }
}

/// What a client is told of the task that its call has become.
pub(in super::super) fn begun(
    mcp: &Mcp,
    caller: &Caller,
    tool: &str,
    source: String,
    mut task: Value,
) -> Result<CreateTaskResult, ErrorData> {
    let broken = no_task(&source);
    let Some(at) = AtSource::new(source, tool, &task) else {
        return Err(broken);
    };
    let bound_to = [&*caller.agent.uid];
    let id = mcp
        .seal
        .seal(About::Task, &bound_to, &at, mcp.now(), LIFETIME)
        .ok_or_else(|| ErrorData::internal_error("the task could not be sealed", None))?;
    at.show(&mut task, &id);
    serde_json::from_value(task).map_err(|_| broken)
}

/// How it stands with a task that the client knows as `id`.
pub(super) async fn state(
    handler: &Handler,
    at: &AtSource,
    id: &str,
    context: RequestContext<RoleServer>,
) -> Result<GetTaskResult, ErrorData> {
    let mut task = ask(handler, at, "tasks/get", Map::new(), context).await?;
    at.show(&mut task, id);
    serde_json::from_value(task).map_err(|_| at.broken())
}

/// Asks the source about a task, if the agent still has the tool.
pub(super) async fn ask(
    handler: &Handler,
    at: &AtSource,
    method: &str,
    mut params: Map<String, Value>,
    context: RequestContext<RoleServer>,
) -> Result<Value, ErrorData> {
    let found = handler.catalog.find(&at.tool, &no_arguments());
    let Found::Entry { entry, .. } = found else {
        return Err(unknown());
    };
    if entry.family.source() != Some(&at.source) {
        return Err(unknown());
    }
    params.insert("taskId".to_owned(), value(&at.id));
    let cancelled = context.ct.clone();
    let peer = Peer::new(context, &handler.body);
    let agent = &handler.caller.agent;
    let asked = entry
        .family
        .request(agent, method, Value::Object(params), &peer);
    let answer = cancelled.run_until_cancelled(asked).await;
    answer
        .ok_or_else(|| ErrorData::internal_error("cancelled", None))?
        .map_err(|error| refusal(at, error))
}

/// What a client may see of a server's refusal.
fn refusal(at: &AtSource, error: RpcError) -> ErrorData {
    match error.code {
        // It has ended and is forgotten, or the server has none any more.
        -32602 | -32601 => unknown(),
        code => ErrorData::new(ErrorCode(code), at.hide(&error.message, "the task"), None),
    }
}

fn no_task(source: &str) -> ErrorData {
    let message = format!("{source} does not speak MCP as it should: what it answers is no task");
    ErrorData::internal_error(message, None)
}
