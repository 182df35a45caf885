//! What agents ask for: changes of their own config, and help (R-C-044, R-C-077).

use axum::Json;
use axum::extract::{Path, State};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::Refusal;
use super::page::{Asked, Filter};
use super::{Api, Visitor, read};
use crate::families::config::{ConfigRequest, Decided, Decision, Status as RequestStatus};
use crate::families::support::{Changed, Conversation, Status as TicketStatus, Ticket};
use crate::store::Id;
use crate::times::rfc3339;

/// Characters of a reason or an answer.
const MAX_TEXT: usize = 8_000;

fn request(workspace: &str, row: &ConfigRequest) -> Value {
    json!({
        "id": row.id,
        "workspace": workspace,
        "agent": row.agent,
        "summary": row.summary,
        "patch": serde_json::from_str::<Value>(&row.patch).unwrap_or_default(),
        "blocking": row.is_blocking,
        "status": row.status,
        "created_at": rfc3339(row.created_at),
        "decided_at": row.decided_at.map(rfc3339),
        "decided_by": row.decided_by,
        "reason": row.reason,
    })
}

pub(super) async fn requests(
    State(api): State<Api>,
    visitor: Visitor,
    Asked(filter): Asked<Filter>,
) -> Result<Json<Value>, Refusal> {
    let words = "open, approved, rejected or superseded";
    let wanted = filter.status.as_deref();
    let status = Filter::word(wanted, "status", RequestStatus::from_word, words)?;
    let requests = &api.requests;
    let list = |workspace: String, before, most| async move {
        requests.list(&workspace, status, before, most).await
    };
    let show = |workspace: &str, row: ConfigRequest| (row.id, request(workspace, &row));
    filter.page(&visitor, list, show).await
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Because {
    reason: Option<String>,
}

pub(super) async fn approve_request(
    State(api): State<Api>,
    visitor: Visitor,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Json<Value>, Refusal> {
    decide(&api, &visitor, &id, true, &body).await
}

pub(super) async fn reject_request(
    State(api): State<Api>,
    visitor: Visitor,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Json<Value>, Refusal> {
    decide(&api, &visitor, &id, false, &body).await
}

async fn decide(
    api: &Api,
    visitor: &Visitor,
    text: &str,
    approves: bool,
    body: &[u8],
) -> Result<Json<Value>, Refusal> {
    let id = super::id(text)?;
    let reason = read::<Because>(body)?.reason;
    if let Some(reason) = &reason {
        short(reason)?;
    }
    let decision = Decision {
        approves,
        by: visitor.person.name.to_string(),
        reason,
    };
    let decided = visitor
        .find(|workspace| {
            let decision = decision.clone();
            async move { api.requests.decide(&workspace, id, decision).await }
        })
        .await?;
    match decided {
        Some((workspace, Decided::Now(row))) => Ok(Json(request(&workspace, &row))),
        Some((_, Decided::Before(row))) => Err(Refusal::conflict(format!(
            "the request {id} is {} already",
            row.status.word()
        ))),
        None => Err(Refusal::not_found(format!(
            "there is no config request {id}"
        ))),
    }
}

fn ticket(workspace: &str, row: &Ticket) -> Value {
    json!({
        "id": row.id,
        "workspace": workspace,
        "agent": row.agent,
        "subject": row.subject,
        "priority": row.priority,
        "status": row.status,
        "created_at": rfc3339(row.created_at),
        "updated_at": rfc3339(row.updated_at),
        "status_by": row.status_by,
    })
}

pub(super) async fn tickets(
    State(api): State<Api>,
    visitor: Visitor,
    Asked(filter): Asked<Filter>,
) -> Result<Json<Value>, Refusal> {
    let wanted = filter.status.as_deref();
    let words = "open, answered or closed";
    let status = Filter::word(wanted, "status", TicketStatus::from_word, words)?;
    let tickets = &api.tickets;
    let list = |workspace: String, before, most| async move {
        tickets.list(&workspace, status, before, most).await
    };
    let show = |workspace: &str, row: Ticket| (row.id, ticket(workspace, &row));
    filter.page(&visitor, list, show).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct After {
    after: Option<String>,
}

pub(super) async fn get_ticket(
    State(api): State<Api>,
    visitor: Visitor,
    Path(text): Path<String>,
    Asked(after): Asked<After>,
) -> Result<Json<Value>, Refusal> {
    let after = after.after.as_deref().map(super::id).transpose()?;
    let id = super::id(&text)?;
    let tickets = &api.tickets;
    let found = visitor
        .find(|workspace| async move { tickets.get(&workspace, id, after).await })
        .await?;
    let (workspace, conversation) = found.ok_or_else(|| no_ticket(id))?;
    let Conversation {
        ticket: row,
        messages,
        has_more,
    } = conversation;
    let messages: Vec<Value> = messages
        .iter()
        .map(|message| {
            json!({
                "id": message.id,
                "sender": message.sender,
                "author": message.author,
                "body": message.body,
                "sent_at": rfc3339(message.sent_at),
            })
        })
        .collect();
    let mut shown = ticket(&workspace, &row);
    shown["messages"] = messages.into();
    shown["has_more"] = has_more.into();
    Ok(Json(shown))
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reply {
    body: String,
}

pub(super) async fn reply(
    State(api): State<Api>,
    visitor: Visitor,
    Path(text): Path<String>,
    body: Bytes,
) -> Result<Json<Value>, Refusal> {
    let id = super::id(&text)?;
    let reply: Reply = read(&body)?;
    short(&reply.body)?;
    if reply.body.trim().is_empty() {
        return Err(Refusal::invalid("body must say something"));
    }
    let (tickets, by, text) = (&api.tickets, &visitor.person.name, &reply.body);
    let sent = visitor
        .find(|workspace| async move { tickets.reply(&workspace, id, by, text).await })
        .await?;
    let (_, message) = sent.ok_or_else(|| no_ticket(id))?;
    Ok(Json(json!({"id": message.id, "ticket_id": id})))
}

pub(super) async fn close(
    State(api): State<Api>,
    visitor: Visitor,
    Path(text): Path<String>,
) -> Result<Json<Value>, Refusal> {
    let (id, tickets, by) = (super::id(&text)?, &api.tickets, &visitor.person.name);
    let changed = visitor
        .find(|workspace| async move { tickets.close(&workspace, id, by).await })
        .await?;
    let (workspace, changed) = changed.ok_or_else(|| no_ticket(id))?;
    Ok(changed_ticket(&workspace, &changed))
}

pub(super) async fn reopen(
    State(api): State<Api>,
    visitor: Visitor,
    Path(text): Path<String>,
) -> Result<Json<Value>, Refusal> {
    let (id, tickets, by) = (super::id(&text)?, &api.tickets, &visitor.person.name);
    let changed = visitor
        .find(|workspace| async move { tickets.reopen(&workspace, id, by).await })
        .await?;
    let (workspace, changed) = changed.ok_or_else(|| no_ticket(id))?;
    Ok(changed_ticket(&workspace, &changed))
}

fn changed_ticket(workspace: &str, changed: &Changed) -> Json<Value> {
    let (Changed::Now(row) | Changed::Already(row)) = changed;
    Json(ticket(workspace, row))
}

fn no_ticket(id: Id) -> Refusal {
    Refusal::not_found(format!("there is no ticket {id}"))
}

fn short(text: &str) -> Result<(), Refusal> {
    if text.chars().count() > MAX_TEXT {
        return Err(Refusal::invalid(format!(
            "a text may have {MAX_TEXT} characters"
        )));
    }
    Ok(())
}
