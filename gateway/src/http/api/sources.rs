//! What ToolSources offer, how that differs from what was approved, and which calls went to them.

use axum::Json;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use super::error::Refusal;
use super::page::{Asked, Filter};
use super::{Api, Visitor};
use crate::sources;
use crate::times::rfc3339;
use crate::usage::{Listed, Row};

pub(super) async fn list(State(api): State<Api>, visitor: Visitor) -> Json<Value> {
    let states = api.pipeline.sources.states();
    let mut states: Vec<&sources::State> = states
        .values()
        .filter(|state| sees(&visitor, &state.id))
        .collect();
    states.sort_by(|one, other| one.id.cmp(&other.id));
    let items: Vec<Value> = states.into_iter().map(|state| shown(&api, state)).collect();
    Json(json!({"items": items}))
}

/// How what a source offers differs from what was approved.
pub(super) async fn diff(
    State(api): State<Api>,
    visitor: Visitor,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    let states = api.pipeline.sources.states();
    let state = states
        .values()
        .find(|state| state.id == id && sees(&visitor, &id))
        .ok_or_else(|| {
            let id: String = id.chars().take(130).collect();
            Refusal::not_found(format!(
                "there is no granted source {id}; GET /api/v1/sources lists those that you see"
            ))
        })?;
    let mut answer = shown(&api, state);
    answer["changes"] = json!(&*state.changes);
    Ok(Json(answer))
}

fn shown(api: &Api, state: &sources::State) -> Value {
    let report = &state.report;
    let now = api.pipeline.clock.now();
    let age = state.answered_at.map(|at| now.duration_since(at).as_secs());
    json!({
        "id": state.id,
        "revision": report.revision,
        "approved_revision": state.approved,
        "served": report.tools.served,
        "withheld": report.tools.withheld,
        "left_out": report.tools.left_out,
        "changed": report.changed,
        "noted": report.tools.noted,
        "answered_at": state.answered_at.map(|at| rfc3339(at.as_millisecond())),
        "age_seconds": age,
        "failure": report.failure,
    })
}

/// A person sees the sources of the namespaces of their Workspaces.
fn sees(visitor: &Visitor, source: &str) -> bool {
    let namespace = |id: &str| {
        id.split_once('.')
            .map(|(namespace, _)| namespace.to_owned())
    };
    let of = namespace(source);
    visitor
        .workspaces()
        .iter()
        .any(|workspace| namespace(workspace) == of)
}

pub(super) async fn usage(
    State(api): State<Api>,
    visitor: Visitor,
    Asked(filter): Asked<Filter>,
) -> Result<Json<Value>, Refusal> {
    let listed = Listed {
        agent: filter.agent.as_deref(),
        provider: filter.provider.as_deref(),
    };
    let usage = &api.pipeline.usage;
    let list = |workspace: String, before, most| async move {
        usage.list(&workspace, listed, before, most).await
    };
    let show = |workspace: &str, row: Row| {
        let shown = json!({
            "id": row.id,
            "at": rfc3339(row.at),
            "workspace": workspace,
            "agent": row.agent,
            "tool": row.tool,
            "provider": row.provider,
            "method": row.method,
            "path": row.path,
            "status": row.status,
            "outcome": row.outcome,
            "latency_us": row.latency_us,
            "cost_cents": row.cost_cents,
            "request_bytes": row.request_bytes,
            "response_bytes": row.response_bytes,
        });
        (row.id, shown)
    };
    filter.page(&visitor, list, show).await
}
