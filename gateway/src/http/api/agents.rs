//! Which agents there are, what each may use, and why.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use chandlery_crds::manifest;
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::Refusal;
use super::{Api, Visitor};
use crate::directory::{Agent, Snapshot};
use crate::explain::{changes, explain_all};

pub(super) async fn me(visitor: Visitor) -> Json<Value> {
    Json(json!({
        "name": &*visitor.person.name,
        "accounts": visitor.person.accounts.iter().map(|account| &**account).collect::<Vec<_>>(),
        "workspaces": visitor.workspaces(),
    }))
}

pub(super) async fn list(State(api): State<Api>, visitor: Visitor) -> Json<Value> {
    let now = api.pipeline.clock.now();
    let agents = visitor.snapshot.agents.values();
    let mut agents: Vec<&Arc<Agent>> = agents
        .filter(|agent| visitor.sees(&agent.workspace.id))
        .collect();
    agents.sort_by(|one, other| one.id.cmp(&other.id));
    let items: Vec<Value> = agents
        .into_iter()
        .map(|agent| {
            let catalog = api.pipeline.catalogs.of(agent, now);
            json!({
                "id": agent.id,
                "workspace": agent.workspace.id,
                "display_name": agent.spec.display_name,
                "state": agent.spec.state,
                "listing": agent.spec.listing,
                "listed": catalog.tools.len(),
                "unresolved": api.pipeline.unresolved(&catalog, &visitor.snapshot),
            })
        })
        .collect();
    Json(json!({"items": items}))
}

pub(super) async fn tools(
    State(api): State<Api>,
    visitor: Visitor,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    let agent = find(&visitor.snapshot, &visitor, &id)?;
    let now = api.pipeline.clock.now();
    let registry = api.pipeline.catalogs.registry_of(&agent);
    let every = || registry.tools().map(|tool| &**tool);
    let tools = explain_all(every(), &visitor.snapshot, &agent, now);
    let catalog = api.pipeline.catalogs.of(&agent, now);
    Ok(Json(json!({
        "agent": agent.id,
        "listing": agent.spec.listing,
        "listed": catalog.tools.iter().map(|tool| &tool.name).collect::<Vec<_>>(),
        "unresolved": api.pipeline.unresolved(&catalog, &visitor.snapshot),
        "tools": tools,
    })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Preview {
    /// YAML or JSON documents, as `kubectl apply` takes them.
    manifests: String,
}

pub(super) async fn preview(
    State(api): State<Api>,
    visitor: Visitor,
    Path(id): Path<String>,
    body: Result<Json<Preview>, JsonRejection>,
) -> Result<Json<Value>, Refusal> {
    let Json(body) = body.map_err(|error| Refusal::invalid(error.body_text()))?;
    let read = manifest::read("manifests", &body.manifests);
    if let Some(problem) = read.problems.first() {
        return Err(Refusal::invalid(problem.to_string()));
    }
    if read.objects.is_empty() {
        return Err(Refusal::invalid(
            "manifests holds nothing of chandlery.dev; write a ToolGrant, an Agent or a Workspace",
        ));
    }
    let next = visitor.snapshot.with(&read.objects);
    let after = find(&next, &visitor, &id)?;
    let now = api.pipeline.clock.now();
    let registry = api.pipeline.catalogs.registry_of(&after);
    let every = || registry.tools().map(|tool| &**tool);
    let before = match visitor.snapshot.agents.get(&id) {
        Some(before) => explain_all(every(), &visitor.snapshot, before, now),
        None => Vec::new(),
    };
    let after = explain_all(every(), &next, &after, now);
    Ok(Json(
        json!({"agent": id, "changes": changes(before, after)}),
    ))
}

fn find(snapshot: &Snapshot, visitor: &Visitor, id: &str) -> Result<Arc<Agent>, Refusal> {
    let agent = snapshot.agents.get(id);
    agent
        .filter(|agent| visitor.sees(&agent.workspace.id))
        .cloned()
        .ok_or_else(|| {
            let id: String = id.chars().take(130).collect();
            Refusal::not_found(format!(
                "there is no agent {id}; GET /api/v1/agents lists those that you see"
            ))
        })
}
