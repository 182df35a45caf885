//! `subscriptions/listen` of the newer era: a row, a small queue and a stream, without a task.

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
use super::lists::List;
use super::sessions::{Owner, QUEUE};
use super::{Mcp, wire};
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
    tools: bool,
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
    mcp.subscriptions.rows.insert(
        number,
        Arc::new(Subscription {
            owner: Owner::of(caller),
            tools: accepted.tools_list_changed.is_some(),
            list: Mutex::new(mcp.list(&caller.agent)),
            events,
            id,
        }),
    );
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

    /// Those that want to hear of a changed list.
    pub(super) fn of_tools(&self) -> Vec<Arc<Subscription>> {
        self.rows
            .iter()
            .filter(|row| row.tools)
            .map(|row| row.value().clone())
            .collect()
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
