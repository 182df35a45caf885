//! Calls that wait for a person, and what people have said about them (R-C-212).

use axum::Json;
use axum::extract::{Path, State};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::error::Refusal;
use super::page::{Asked, Filter};
use super::{Api, Visitor, id, read};
use crate::approvals::{self, Approval, Decided, Decision, EXPIRED, Listed, Remember};
use crate::store::Id;
use crate::times::rfc3339;

/// Characters of a reason.
const MAX_REASON: usize = 1000;
#[derive(Serialize)]
pub(super) struct Shown {
    id: Id,
    workspace: String,
    agent: String,
    tool: String,
    /// The call's arguments, as the tool will get them.
    arguments: Value,
    level: String,
    /// `expired` beside the stored states.
    state: &'static str,
    created_at: String,
    expires_at: String,
    decided_at: Option<String>,
    decided_by: Option<String>,
    reason: Option<String>,
}

impl Shown {
    fn of(workspace: &str, row: Approval, now_ms: i64) -> Self {
        let state = row.standing(now_ms);
        Self {
            id: row.id,
            workspace: workspace.to_owned(),
            agent: row.agent,
            tool: row.tool,
            arguments: serde_json::from_str(&row.arguments).unwrap_or(Value::String(row.arguments)),
            level: row.level,
            state,
            created_at: rfc3339(row.created_at),
            expires_at: rfc3339(row.expires_at),
            decided_at: row.decided_at.map(rfc3339),
            decided_by: row.decided_by,
            reason: row.reason,
        }
    }
}

pub(super) async fn list(
    State(api): State<Api>,
    visitor: Visitor,
    Asked(filter): Asked<Filter>,
) -> Result<Json<Value>, Refusal> {
    let wanted = filter.state.as_deref();
    let is_state = |word: &str| {
        let is_known = word == EXPIRED || approvals::State::from_word(word).is_some();
        is_known.then_some(())
    };
    let words = "pending, approved, denied, running, done, withdrawn or expired";
    Filter::word(wanted, "state", is_state, words)?;
    let listed = Listed {
        agent: filter.agent.as_deref(),
        state: wanted,
    };
    let now = api.pipeline.clock.now().as_millisecond();
    let store = &api.pipeline.approvals;
    let list = |workspace: String, before, most| async move {
        store.list(&workspace, listed, before, most).await
    };
    let show = |workspace: &str, row: Approval| (row.id, json!(Shown::of(workspace, row, now)));
    filter.page(&visitor, list, show).await
}

pub(super) async fn get(
    State(api): State<Api>,
    visitor: Visitor,
    Path(id): Path<String>,
) -> Result<Json<Shown>, Refusal> {
    let (workspace, row) = find(&api, &visitor, &id).await?;
    let now = api.pipeline.clock.now().as_millisecond();
    Ok(Json(Shown::of(&workspace, row, now)))
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Approve {
    remember: Option<String>,
}

pub(super) async fn approve(
    State(api): State<Api>,
    visitor: Visitor,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Json<Shown>, Refusal> {
    let remember = match read::<Approve>(&body)?.remember.as_deref() {
        None => None,
        Some("session") => Some(Remember::session()),
        Some("always") => Some(Remember::Always),
        Some(_) => {
            return Err(Refusal::invalid(
                "remember must be session or always, or be left out to allow this call alone",
            ));
        }
    };
    let decision = Decision {
        approves: true,
        by: visitor.person.name.to_string(),
        reason: None,
        remember,
    };
    decide(&api, &visitor, &id, decision).await
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Deny {
    reason: Option<String>,
}

pub(super) async fn deny(
    State(api): State<Api>,
    visitor: Visitor,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Json<Shown>, Refusal> {
    let reason = read::<Deny>(&body)?.reason;
    if reason
        .as_ref()
        .is_some_and(|reason| reason.chars().count() > MAX_REASON)
    {
        return Err(Refusal::invalid(format!(
            "a reason may have {MAX_REASON} characters"
        )));
    }
    let decision = Decision {
        approves: false,
        by: visitor.person.name.to_string(),
        reason,
        remember: None,
    };
    decide(&api, &visitor, &id, decision).await
}

async fn decide(
    api: &Api,
    visitor: &Visitor,
    id: &str,
    decision: Decision,
) -> Result<Json<Shown>, Refusal> {
    let (workspace, row) = find(api, visitor, id).await?;
    if decision.remember.is_some() && row.level == "always_ask" {
        return Err(Refusal::invalid(format!(
            "{} is always_ask: each call is decided by itself, so leave remember out",
            row.tool
        )));
    }
    let now = api.pipeline.clock.now().as_millisecond();
    let approvals = &api.pipeline.approvals;
    match approvals.decide(&workspace, row.id, decision).await? {
        Some(Decided::Now(row)) => Ok(Json(Shown::of(&workspace, row, now))),
        Some(Decided::Before(row)) if row.has_expired(now) => Err(Refusal::conflict(format!(
            "the approval {} has expired: the agent has to call again",
            row.id
        ))),
        Some(Decided::Before(row)) => Err(Refusal::conflict(format!(
            "the approval {} is {} already{}",
            row.id,
            row.state.word(),
            row.decided_by
                .map(|by| format!(", decided by {by}"))
                .unwrap_or_default()
        ))),
        None => Err(unknown(id)),
    }
}

pub(super) async fn standing(
    State(api): State<Api>,
    visitor: Visitor,
) -> Result<Json<Value>, Refusal> {
    let mut items = Vec::new();
    for workspace in visitor.workspaces() {
        for row in api.pipeline.approvals.standing(workspace).await? {
            items.push(json!({
                "id": row.id,
                "workspace": workspace,
                "agent": row.agent,
                "tool": row.tool,
                "session": row.session,
                "expires_at": row.expires_at.map(rfc3339),
                "granted_by": row.granted_by,
                "granted_at": rfc3339(row.granted_at),
            }));
        }
    }
    Ok(Json(json!({"items": items})))
}

pub(super) async fn forget(
    State(api): State<Api>,
    visitor: Visitor,
    Path(text): Path<String>,
) -> Result<Json<Value>, Refusal> {
    let id = id(&text)?;
    let approvals = &api.pipeline.approvals;
    let forgotten = visitor
        .find(|workspace| async move { Ok(approvals.forget(&workspace, id).await?.then_some(())) })
        .await?;
    match forgotten {
        Some(_) => Ok(Json(json!({"id": id}))),
        None => Err(Refusal::not_found(format!(
            "there is no standing approval {id}"
        ))),
    }
}

/// The row, in whichever of the person's Workspaces it is.
async fn find(api: &Api, visitor: &Visitor, text: &str) -> Result<(String, Approval), Refusal> {
    let id = id(text)?;
    let approvals = &api.pipeline.approvals;
    let found = visitor
        .find(|workspace| async move { approvals.get(&workspace, id).await })
        .await?;
    found.ok_or_else(|| unknown(text))
}

fn unknown(id: &str) -> Refusal {
    let id: String = id.chars().take(32).collect();
    Refusal::not_found(format!("there is no approval {id}"))
}
