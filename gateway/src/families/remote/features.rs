//! Prompts, resources, completions and log levels of a server.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::call::Remote;
use super::server::{Asking, Nobody, Spoken, Tally};
use super::watch::Tells;
use super::wire::{Params, Request};
use crate::connector::visible;
use crate::directory::Agent;
use crate::family::{Client, Features, RpcError, has_tasks};
use crate::usage;

/// What a server of these capabilities has.
pub(super) fn features(capabilities: &Value, spoken: Spoken) -> Features {
    let has = |name: &str| capabilities.get(name).is_some();
    let tells = Tells::of(capabilities);
    Features {
        resources: has("resources"),
        subscriptions: capabilities["resources"]["subscribe"] == true,
        resource_changes: tells.resources,
        prompts: has("prompts"),
        prompt_changes: tells.prompts,
        completions: has("completions"),
        logging: has("logging"),
        tasks: spoken.newer && has_tasks(capabilities),
    }
}

pub(super) async fn request(
    remote: &Remote,
    agent: &Arc<Agent>,
    method: &str,
    params: Value,
    client: &dyn Client,
) -> Result<Value, RpcError> {
    let mut params = match params {
        Value::Object(params) => params,
        _ => Map::new(),
    };
    let server = &remote.server;
    if method == "logging/setLevel" {
        let level = params.get("level").cloned().unwrap_or_default();
        server.levels.insert(agent.uid.clone(), level);
        for session in server.sessions.of(&agent.uid) {
            server.set_level(&session).await;
        }
        return Ok(Value::Object(Map::new()));
    }
    // What the client sent back of an earlier round comes by way of `Client::retry`.
    // Whoever listens subscribes; one client's end of it must not be another's.
    if method == "resources/unsubscribe" || method == "resources/subscribe" && remote.spoken.newer {
        return Ok(Value::Object(Map::new()));
    }
    if method != "tasks/update" {
        params.retain(|name, _| name != "inputResponses" && name != "requestState");
    }
    match method {
        "prompts/get" => own_name(&mut params, &remote.prefix)?,
        "completion/complete" => {
            if let Some(Value::Object(reference)) = params.get_mut("ref")
                && reference
                    .get("type")
                    .is_some_and(|kind| kind == "ref/prompt")
            {
                own_name(reference, &remote.prefix)?;
            }
        }
        _ => {}
    }
    let name = match method {
        "prompts/get" => params.get("name"),
        "resources/read" => params.get("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => params.get("taskId"),
        _ => None,
    };
    let name = name.and_then(Value::as_str);
    let request = Request {
        method,
        name: name.map(|name| Cow::Owned(name.to_owned())),
        params: Params::of(&params),
        ..Request::default()
    };
    let never = CancellationToken::new();
    let asking = Asking {
        agent: &agent.uid,
        client,
        takes_tasks: remote.features.tasks && method.starts_with("tasks/"),
        cancelled: &never,
    };
    let began = Instant::now();
    let mut tally = Tally::default();
    let result = match method {
        // In the session in which somebody listens.
        "resources/subscribe" => {
            let asking = Asking {
                client: &Nobody,
                ..asking
            };
            server
                .ask(remote.spoken, &asking, &request, &mut tally)
                .await
        }
        _ => remote.rounds(&asking, request, &mut tally).await,
    };
    if matches!(method, "resources/read" | "prompts/get") {
        remote.usage.record(usage::Call {
            at: remote.usage.now(),
            agent: agent.clone(),
            tool: method.to_owned(),
            provider: server.name.clone(),
            method: method.to_owned(),
            path: server.path().to_owned(),
            status: tally.status,
            outcome: match &result {
                Ok(_) => "done",
                Err(trouble) => trouble.outcome(),
            },
            latency: began.elapsed(),
            cost_cents: 0,
            request_bytes: tally.sent,
            response_bytes: tally.received,
        });
    }
    let result = result.map_err(|trouble| {
        remote.notice(&trouble);
        trouble.rpc_error(&server.name)
    })?;
    let mut result: Value = serde_json::from_slice(&result).map_err(|_| RpcError {
        code: -32603,
        message: format!("the answer of {} cannot be read", server.name),
        data: None,
    })?;
    let listed = match method {
        "prompts/list" => "prompts",
        "resources/list" => "resources",
        "resources/templates/list" => "resourceTemplates",
        _ => return Ok(result),
    };
    if let Some(items) = result[listed].as_array_mut() {
        items.retain_mut(|item| tidy(item, listed));
    }
    for item in result[listed].as_array_mut().into_iter().flatten() {
        if method == "prompts/list"
            && let Some(Value::String(name)) = item.get_mut("name")
            && !remote.prefix.is_empty()
        {
            *name = format!("{}_{name}", remote.prefix);
        }
    }
    Ok(result)
}

/// Turns a prompt's served name into the server's own; it is another family's if it does not begin as ours do.
fn own_name(params: &mut Map<String, Value>, prefix: &str) -> Result<(), RpcError> {
    let Some(Value::String(name)) = params.get_mut("name") else {
        return Ok(());
    };
    if prefix.is_empty() {
        return Ok(());
    }
    let own = name
        .strip_prefix(prefix)
        .and_then(|rest| rest.strip_prefix('_'))
        .map(str::to_owned);
    *name = own.ok_or_else(|| RpcError::not_found(name))?;
    Ok(())
}

/// Takes out of a list's entry what nobody would see; `false` where that stands in what a thing is had by.
fn tidy(item: &mut Value, listed: &str) -> bool {
    let is_prompt = listed == "prompts";
    let fields: &[&str] = if is_prompt {
        &["title", "description"]
    } else {
        &["name", "title", "description"]
    };
    let ids: &[&str] = if is_prompt {
        &["name"]
    } else {
        &["uri", "uriTemplate"]
    };
    let is_plain = ids.iter().all(|id| {
        let id = item[*id].as_str();
        id.is_none_or(|id| matches!(visible(id), Cow::Borrowed(_)))
    });
    for field in fields {
        if let Some(Value::String(text)) = item.get_mut(*field)
            && let Cow::Owned(seen) = visible(text)
        {
            *text = seen;
        }
    }
    let arguments = item.get_mut("arguments").and_then(Value::as_array_mut);
    let arguments = arguments.map(Vec::as_mut_slice).unwrap_or_default();
    is_plain && arguments.iter_mut().all(|argument| tidy(argument, listed))
}
