//! `subscriptions/listen` of the newer era: a row, a small queue and a stream. Changes of tools take no task.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::response::Response;
use bytes::Bytes;
use dashmap::DashMap;
use parking_lot::Mutex;
use rmcp::model::SubscriptionFilter;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::lane_fast::Request;
use super::listening::{Listening, Tell};
use super::lists::List;
use super::sessions::{LONGEST_URI, MOST_RESOURCES, Owner, QUEUE};
use super::{Mcp, wire};
use crate::catalog::Catalog;
use crate::family::Wanted;
use crate::http::access::Caller;

#[derive(Default)]
pub(super) struct Subscriptions {
    rows: DashMap<u64, Arc<Subscription>>,
    next: AtomicU64,
}

pub(super) struct Subscription {
    pub(super) owner: Owner,
    /// The request's id, which every notification carries.
    id: Value,
    pub(super) tools: bool,
    /// What it wants to hear of besides tools.
    wanted: Wanted,
    listening: Mutex<Listening>,
    /// The list that the client knows.
    pub(super) list: Mutex<Arc<List>>,
    events: mpsc::Sender<Bytes>,
}

/// Opens the stream of a well-formed `subscriptions/listen`; `None` for anything else.
pub(super) fn listen(mcp: &Arc<Mcp>, caller: &Caller, request: &Request<'_>) -> Option<Response> {
    if request.method != "subscriptions/listen" || !request.is_newer {
        return None;
    }
    let wanted: SubscriptionFilter =
        serde_json::from_str(request.params?.notifications?.get()).ok()?;
    let mut accepted = SubscriptionFilter::new();
    accepted.tools_list_changed = wanted.tools_list_changed.filter(|wanted| *wanted);
    let catalog = mcp.catalog(&caller.agent);
    let resources = wanted.resource_subscriptions.unwrap_or_default();
    let resources = resources.into_iter().filter(|uri| uri.len() <= LONGEST_URI);
    let asked = Wanted {
        resource_list: wanted.resources_list_changed == Some(true),
        prompt_list: wanted.prompts_list_changed == Some(true),
        resources: resources.take(MOST_RESOURCES).collect(),
    };
    let told = asked.of(catalog.features());
    accepted.resources_list_changed = told.resource_list.then_some(true);
    accepted.prompts_list_changed = told.prompt_list.then_some(true);
    accepted.resource_subscriptions =
        (!told.resources.is_empty()).then(|| told.resources.iter().cloned().collect());
    let id: Value = serde_json::from_str(request.id).ok()?;
    let (events, queue) = mpsc::channel(QUEUE);
    let acknowledged = notification(
        "notifications/subscriptions/acknowledged",
        &id,
        json!({"notifications": accepted}),
    );
    events.try_send(acknowledged).ok()?;
    let farewell = json!({
        "jsonrpc": "2.0",
        "id": id,
        "result": {"resultType": "complete", "_meta": {SUBSCRIPTION_ID: id}},
    });
    let number = mcp.subscriptions.next.fetch_add(1, Ordering::Relaxed);
    let subscription = Arc::new(Subscription {
        owner: Owner::of(caller),
        tools: accepted.tools_list_changed.is_some(),
        wanted: asked,
        listening: Mutex::default(),
        list: Mutex::new(mcp.list(&caller.agent)),
        events,
        id,
    });
    subscription.listen(&catalog);
    mcp.subscriptions.rows.insert(number, subscription);
    let row = Row {
        mcp: mcp.clone(),
        number,
    };
    let farewell = wire::event(farewell.to_string().as_bytes());
    Some(mcp.streams.endless(queue, Some(farewell), row))
}

const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

fn notification(method: &str, id: &Value, mut params: Value) -> Bytes {
    params["_meta"] = json!({SUBSCRIPTION_ID: id});
    let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
    wire::event(message.to_string().as_bytes())
}

impl Subscriptions {
    /// Ends those of keys that are no longer live.
    pub(super) fn sweep(&self, is_live: impl Fn(&Owner) -> bool) {
        self.rows.retain(|_, row| is_live(&row.owner));
    }

    pub(super) fn all(&self) -> Vec<Arc<Subscription>> {
        self.rows.iter().map(|row| row.value().clone()).collect()
    }
}

impl Subscription {
    /// Says that the list has changed; a client that does not read its stream finds out by itself.
    pub(super) fn tools_changed(&self) {
        let _ = self.events.try_send(notification(
            "notifications/tools/list_changed",
            &self.id,
            json!({}),
        ));
    }

    /// Listens to the families that the agent has now.
    pub(super) fn listen(&self, catalog: &Catalog) {
        let tell = || -> Tell {
            // A task that goes on for a moment longer does not keep the stream open.
            let (events, id) = (self.events.downgrade(), self.id.clone());
            Box::new(move |change| {
                let (method, params) = change.notification();
                if let Some(events) = events.upgrade() {
                    let _ = events.try_send(notification(method, &id, params));
                }
            })
        };
        self.listening.lock().adjust(catalog, &self.wanted, tell);
    }
}

/// Held by the stream: when it goes, so does the row.
struct Row {
    mcp: Arc<Mcp>,
    number: u64,
}

impl Drop for Row {
    fn drop(&mut self) {
        self.mcp.subscriptions.rows.remove(&self.number);
    }
}
