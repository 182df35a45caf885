//! How a call that waits for a person is told to its client: as a task, as a question, or as a plain result.
//!
//! A question goes to the client only where every grant that counts says that its user may decide; a task never asks
//! anything, it only waits for what people decide elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolResponse, CreateTaskResult, DetailedTask, ErrorData, GetTaskResult,
    InputRequiredResult, RequestStateCodec, SealOptions, TASKS_EXTENSION_ID, Task, TaskPayload,
    TaskStatus,
};
use secrecy::{ExposeSecret, SecretString};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::handler::broken;
use super::lane_fast::Unreachable;
use super::wire::NEWER;
use super::{Mcp, results};
use crate::approvals::{Approval, Decision, State, digest};
use crate::family::Client;
use crate::http::access::Caller;
use crate::pipeline::{Awaiting, Patience, Request};
use crate::store::Id;
use crate::times::rfc3339;
use crate::tool::{Output, ToolError};

/// The key of our question in `inputRequests`.
const QUESTION: &str = "approval";
/// What states begin with: of our own question, and of a tool's questions.
const STATE: &str = "approval:";
const ROUND: &str = "round:";
/// How long a client may take for an answer.
const STATE_LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// How often a client should look after its task.
const POLL_MS: u64 = 5_000;
/// Characters of arguments that a question shows.
const SHOWN: usize = 2_000;

/// Seals what goes to clients and comes back.
pub(super) struct Seal(RequestStateCodec);

impl Seal {
    /// `None` is a key that nobody else has, and that ends with the process.
    pub(super) fn new(key: Option<&SecretString>) -> Self {
        let mut random = vec![0; 32];
        // A key of zeros would be no key.
        #[expect(
            clippy::expect_used,
            reason = "a gateway without randomness must not serve"
        )]
        getrandom::fill(&mut random).expect("randomness from the system");
        let key = key.map(|key| key.expose_secret().as_bytes().to_vec());
        let codec = key.and_then(|key| RequestStateCodec::try_new(key).ok());
        Self(codec.unwrap_or_else(|| {
            #[expect(clippy::expect_used, reason = "32 bytes are long enough")]
            RequestStateCodec::try_new(random).expect("a key of 32 bytes")
        }))
    }
}

/// What a call's state is good for: this agent, this name, these arguments.
fn bound_to(caller: &Caller, name: &str, arguments: &RawValue) -> Vec<u8> {
    let parts = [&caller.agent.uid, name, &digest(arguments.get())];
    parts.join("\n").into_bytes()
}

/// What a client can do while a person decides.
pub(super) fn patience(client: &dyn Client) -> Patience {
    if client.protocol_version() != NEWER {
        return Patience::Wait;
    }
    let capabilities = client.capabilities();
    if capabilities["extensions"][TASKS_EXTENSION_ID].is_object() {
        Patience::Leave
    } else if capabilities["elicitation"].is_object() {
        Patience::Ask
    } else {
        Patience::Wait
    }
}

/// Tells the client that its call waits.
pub(super) fn tell(
    mcp: &Mcp,
    caller: &Caller,
    name: &str,
    arguments: &RawValue,
    awaiting: &Awaiting,
    patience: Patience,
) -> Result<CallToolResponse, ErrorData> {
    match patience {
        Patience::Leave => {
            let ticket = awaiting.ticket;
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
            Ok(CreateTaskResult::new(task).into())
        }
        Patience::Ask if awaiting.client_may_approve => {
            let state = SealOptions::new().ttl(STATE_LIFETIME);
            let bound = bound_to(caller, name, arguments);
            let id = awaiting.ticket.id.to_string();
            let sealed = mcp
                .seal
                .0
                .seal_json_with(&id, &state.associated_data(&bound))
                .map_err(|_| ErrorData::internal_error("the question could not be sealed", None))?;
            let shown: String = arguments.get().chars().take(SHOWN).collect();
            let question = json!({
                "method": "elicitation/create",
                "params": {
                    "mode": "form",
                    "message": format!("The agent wants to call {name} with {shown}. Allow it?"),
                    "requestedSchema": {
                        "type": "object",
                        "properties": {"decision": {"type": "string", "enum": ["allow", "deny"], "title": "Decision"}},
                        "required": ["decision"],
                    },
                },
            });
            let question =
                serde_json::from_value(question).map_err(|cause| broken(name, &cause))?;
            let requests = BTreeMap::from([(QUESTION.to_owned(), question)]);
            let state = format!("{STATE}{sealed}");
            Ok(InputRequiredResult::new(Some(requests), Some(state)).into())
        }
        Patience::Ask | Patience::Wait => {
            let result = results::awaiting(name, awaiting, true);
            serde_json::from_slice(&result)
                .map(CallToolResponse::Complete)
                .map_err(|cause| broken(name, &cause))
        }
    }
}

const WAITING: &str = "a person has to allow this call";

/// Seals the state that a tool's questions came with: it comes back with the same call of the same agent, or not at all.
pub(super) fn seal_state(
    mcp: &Mcp,
    caller: &Caller,
    name: &str,
    arguments: &RawValue,
    questions: &mut Value,
) -> Result<(), ErrorData> {
    let Some(state) = questions.get_mut("requestState") else {
        return Ok(());
    };
    let options = SealOptions::new().ttl(STATE_LIFETIME);
    let bound = bound_to(caller, name, arguments);
    let sealed = mcp
        .seal
        .0
        .seal_json_with(state, &options.associated_data(&bound));
    let sealed =
        sealed.map_err(|_| ErrorData::internal_error("the questions could not be sealed", None))?;
    *state = Value::String(format!("{ROUND}{sealed}"));
    Ok(())
}

/// Takes what the client sent back of an earlier round, and gives the tool's part of it. Its answer to our question is
/// not for the tool: the call goes on as any other.
pub(super) async fn take_answer(
    mcp: &Mcp,
    caller: &Caller,
    name: &str,
    arguments: &RawValue,
    retry: Option<Value>,
) -> Result<Option<Value>, ErrorData> {
    let Some(mut retry) = retry else {
        return Ok(None);
    };
    let forged = || {
        ErrorData::invalid_params(
            "requestState is not what this call was given; call again without it",
            None,
        )
    };
    let state = match retry.get("requestState") {
        None => return Ok(Some(retry)),
        Some(state) => state.as_str().ok_or_else(forged)?,
    };
    let bound = bound_to(caller, name, arguments);
    if let Some(sealed) = state.strip_prefix(ROUND) {
        let opened = mcp.seal.0.open_json_with(sealed, &bound);
        retry["requestState"] = opened.map_err(|_| forged())?;
        return Ok(Some(retry));
    }
    let sealed = state.strip_prefix(STATE).ok_or_else(forged)?;
    let id: String = mcp
        .seal
        .0
        .open_json_with(sealed, &bound)
        .map_err(|_| forged())?;
    decide(mcp, caller, name, arguments, &id, &retry)
        .await
        .map(|()| None)
}

/// Takes the client's answer to our question about the approval `id`.
async fn decide(
    mcp: &Mcp,
    caller: &Caller,
    name: &str,
    arguments: &RawValue,
    id: &str,
    retry: &Value,
) -> Result<(), ErrorData> {
    let forged = || ErrorData::invalid_params("requestState names no approval", None);
    let id: Id = id.parse().map_err(|_| forged())?;
    let answer = &retry["inputResponses"][QUESTION];
    let approves = match (
        answer["action"].as_str(),
        answer["content"]["decision"].as_str(),
    ) {
        (Some("accept"), Some("allow")) => true,
        (Some("accept"), Some("deny")) | (Some("decline"), _) => false,
        // Nobody has decided: the question stays.
        _ => return Ok(()),
    };
    // The grant may have changed since the question.
    if !mcp
        .pipeline
        .client_may_approve(&caller.agent, name, arguments)
        .await
    {
        return Ok(());
    }
    let decision = Decision {
        approves,
        by: format!("client of {}", caller.agent.id),
        reason: None,
        remember: None,
    };
    let workspace = &caller.agent.workspace.id;
    let decided = mcp.pipeline.approvals.decide(workspace, id, decision).await;
    decided
        .map(drop)
        .map_err(|_| ErrorData::internal_error("the store does not answer; try again", None))
}

/// How it stands with the task of a call that waits, or waited.
pub(super) async fn task(mcp: &Mcp, caller: &Caller, id: &str) -> Result<GetTaskResult, ErrorData> {
    let row = find(mcp, caller, id).await?;
    let now = mcp.pipeline.clock.now().as_millisecond();
    let (payload, message) = match row.state {
        _ if row.has_expired(now) => (failed("nobody has decided in time"), "expired"),
        State::Pending => (TaskPayload::Working, WAITING),
        State::Approved => {
            run(mcp, caller, &row);
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
    Ok(GetTaskResult::new(DetailedTask::new(task, payload)))
}

/// The agent no longer wants the call.
pub(super) async fn cancel_task(mcp: &Mcp, caller: &Caller, id: &str) -> Result<(), ErrorData> {
    let row = find(mcp, caller, id).await?;
    let workspace = &caller.agent.workspace.id;
    let withdrawn = mcp.pipeline.approvals.withdraw(workspace, row.id).await;
    withdrawn
        .map(drop)
        .map_err(|_| ErrorData::internal_error("the store does not answer; try again", None))
}

async fn find(mcp: &Mcp, caller: &Caller, id: &str) -> Result<Approval, ErrorData> {
    let unknown = || ErrorData::invalid_params("Unknown task", None);
    let id: Id = id.parse().map_err(|_| unknown())?;
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
        client: Arc::new(Unreachable::newer()),
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
