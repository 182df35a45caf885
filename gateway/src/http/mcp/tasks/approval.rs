//! The task of a call that waits for a person, or waited.

use std::sync::Arc;

use rmcp::model::{
    CreateTaskResult, DetailedTask, ErrorData, GetTaskResult, Task, TaskPayload, TaskStatus,
};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::super::direct::Direct;
use super::super::{Mcp, results};
use super::unknown;
use crate::approvals::{Approval, State, Ticket};
use crate::http::access::Caller;
use crate::pipeline::{Patience, Request};
use crate::store::Id;
use crate::times::rfc3339;
use crate::tool::{Output, ToolError};

/// How often a client should look after it.
const POLL_MS: u64 = 5_000;
const WAITING: &str = "a person has to allow this call";

/// What a client is told of a call that waits.
pub(in super::super) fn of_ticket(ticket: &Ticket) -> CreateTaskResult {
    let lifetime = u64::try_from(ticket.expires_at - ticket.created_at).unwrap_or_default();
    let created = rfc3339(ticket.created_at);
    let task = Task::new(
        ticket.id.to_string(),
        TaskStatus::Working,
        created.clone(),
        created,
    )
    .with_status_message(WAITING)
    .with_ttl_ms(lifetime)
    .with_poll_interval_ms(POLL_MS);
    CreateTaskResult::new(task)
}

/// How it stands with the call.
pub(super) fn state(mcp: &Mcp, caller: &Caller, row: &Approval) -> GetTaskResult {
    let now = mcp.pipeline.clock.now().as_millisecond();
    let (payload, message) = match row.state {
        _ if row.has_expired(now) => (failed("nobody has decided in time"), "expired"),
        State::Pending => (TaskPayload::Working, WAITING),
        State::Approved => {
            run(mcp, caller, row);
            (TaskPayload::Working, "the call runs")
        }
        State::Running => (TaskPayload::Working, "the call runs"),
        State::Denied => (
            completed(&Err(row.refusal())),
            "a person has denied this call",
        ),
        State::Withdrawn => (TaskPayload::Cancelled, "cancelled"),
        State::Done => match row.result() {
            Some(result) => (completed(&result), "done"),
            None => (
                failed("the call has run; its result was kept for 15 minutes"),
                "done",
            ),
        },
    };
    let updated = row.ended_at.or(row.started_at).or(row.decided_at);
    let task = Task::new(
        row.id.to_string(),
        payload.status(),
        rfc3339(row.created_at),
        rfc3339(updated.unwrap_or(row.created_at)),
    )
    .with_status_message(message)
    .with_ttl_ms(u64::try_from(row.expires_at - row.created_at).unwrap_or_default())
    .with_poll_interval_ms(POLL_MS);
    GetTaskResult::new(DetailedTask::new(task, payload))
}

/// The agent no longer wants the call.
pub(super) async fn withdraw(mcp: &Mcp, caller: &Caller, row: &Approval) -> Result<(), ErrorData> {
    let workspace = &caller.agent.workspace.id;
    let withdrawn = mcp.pipeline.approvals.withdraw(workspace, row.id).await;
    withdrawn
        .map(drop)
        .map_err(|_| ErrorData::internal_error("the store does not answer; try again", None))
}

/// The agent's approval of this id.
pub(super) async fn find(mcp: &Mcp, caller: &Caller, id: Id) -> Result<Approval, ErrorData> {
    let workspace = &caller.agent.workspace.id;
    let row = mcp.pipeline.approvals.get(workspace, id).await;
    row.map_err(|_| ErrorData::internal_error("the store does not answer; try again", None))?
        .filter(|row| row.agent_uid == caller.agent.uid)
        .ok_or_else(unknown)
}

/// Runs an approved call for its agent, which looks after it with `tasks/get`.
fn run(mcp: &Mcp, caller: &Caller, row: &Approval) {
    let Ok(arguments) = RawValue::from_string(row.arguments.clone()) else {
        return;
    };
    let request = Request {
        agent: caller.agent.clone(),
        key_id: caller.key_id.clone(),
        tool: row.tool.clone(),
        arguments,
        worker: row.worker.clone(),
        client: Arc::new(Direct::away()),
        patience: Patience::Leave,
        cancelled: CancellationToken::new(),
    };
    let pipeline = mcp.pipeline.clone();
    mcp.pipeline
        .writes
        .spawn(async move { pipeline.call(request).await });
}

fn completed(result: &Result<Output, ToolError>) -> TaskPayload {
    let bytes = match result {
        Ok(output) => results::done(output.clone(), true),
        Err(error) => results::failed(&error.message, true).into(),
    };
    TaskPayload::Completed {
        result: serde_json::from_slice(&bytes).unwrap_or_default(),
    }
}

fn failed(message: &str) -> TaskPayload {
    let mut error = Map::new();
    error.insert("code".to_owned(), Value::from(-32603));
    error.insert("message".to_owned(), Value::from(message));
    TaskPayload::Failed { error }
}
