//! How a call that waits for a person is told to its client: as a task, as a question, or as a plain result.
//!
//! A question goes to the client only where every grant that counts says that its user may decide; a task never asks
//! anything, it only waits for what people decide elsewhere.

use std::collections::BTreeMap;
use std::time::Duration;

use rmcp::model::{CallToolResponse, ErrorData, InputRequiredResult};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::handler::broken;
use super::seal::About;
use super::wire::NEWER;
use super::{Mcp, results, tasks};
use crate::approvals::{Decision, digest};
use crate::family::{self, Client};
use crate::http::access::Caller;
use crate::pipeline::{Awaiting, Patience};
use crate::store::Id;

/// The key of our question in `inputRequests`.
const QUESTION: &str = "approval";
/// How long a client may take for an answer.
const STATE_LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// Characters of arguments that a question shows.
const SHOWN: usize = 2_000;

/// Seals what a client is to send back with the same call of the same agent, and for nothing else.
fn seal(
    mcp: &Mcp,
    caller: &Caller,
    name: &str,
    arguments: &RawValue,
    about: About,
    value: &Value,
) -> Result<String, ErrorData> {
    let bound_to = [&*caller.agent.uid, name, &digest(arguments.get())];
    mcp.seal
        .seal(about, &bound_to, value, mcp.now(), STATE_LIFETIME)
        .ok_or_else(|| ErrorData::internal_error("the questions could not be sealed", None))
}

/// What a client can do while a person decides.
pub(super) fn patience(client: &dyn Client) -> Patience {
    if client.protocol_version() != NEWER {
        return Patience::Wait;
    }
    let capabilities = client.capabilities();
    if family::has_tasks(&capabilities) {
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
        Patience::Leave => Ok(tasks::of_ticket(&awaiting.ticket).into()),
        Patience::Ask if awaiting.client_may_approve => {
            let id = Value::String(awaiting.ticket.id.to_string());
            let state = seal(mcp, caller, name, arguments, About::Approval, &id)?;
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
    let sealed = seal(mcp, caller, name, arguments, About::Round, state)?;
    *state = Value::String(sealed);
    Ok(())
}

/// The same where the subject does not tell whose questions they are: what comes back is for `source` alone, so there is
/// a state also where the source needs none.
pub(super) fn seal_state_of(
    mcp: &Mcp,
    caller: &Caller,
    (subject, source): (&str, &str),
    arguments: &RawValue,
    questions: &mut Value,
) -> Result<(), ErrorData> {
    let state = questions["requestState"].take();
    questions["requestState"] = json!({"source": source, "state": state});
    seal_state(mcp, caller, subject, arguments, questions)
}

/// Takes what [`seal_state_of`] has sealed, and gives its source, and that one's part. Answers without it are nobody's.
pub(super) async fn take_answer_of(
    mcp: &Mcp,
    caller: &Caller,
    subject: &str,
    arguments: &RawValue,
    retry: Option<Value>,
) -> Result<Option<(String, Value)>, ErrorData> {
    let retry = take_answer(mcp, caller, subject, arguments, retry).await?;
    let Some(mut retry) = retry else {
        return Ok(None);
    };
    let mut sealed = retry["requestState"].take();
    let Value::String(source) = sealed["source"].take() else {
        return Ok(None);
    };
    match sealed["state"].take() {
        Value::Null => retry
            .as_object_mut()
            .map(|retry| retry.remove("requestState")),
        state => retry
            .as_object_mut()
            .map(|retry| retry.insert("requestState".to_owned(), state)),
    };
    Ok(Some((source, retry)))
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
    let bound_to = [&*caller.agent.uid, name, &digest(arguments.get())];
    if About::Approval.is_of(state) {
        let id = mcp.seal.open(About::Approval, &bound_to, state, mcp.now());
        let id: String = id.ok_or_else(forged)?;
        return decide(mcp, caller, name, arguments, &id, &retry)
            .await
            .map(|()| None);
    }
    let opened = mcp.seal.open(About::Round, &bound_to, state, mcp.now());
    retry["requestState"] = opened.ok_or_else(forged)?;
    Ok(Some(retry))
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
