//! MCP on an agent's endpoint: both eras on one path, over two lanes that clients cannot tell apart.
//!
//! The newer era (2026-07-28) is stateless; the older one has `initialize` and sessions. Only this module knows rmcp.

mod lane_fast;
mod lane_slow;

mod asking;
mod direct;
mod handler;
mod peer;
mod relay;
mod seal;
mod tasks;

mod listening;
mod lists;
mod results;
mod sessions;
mod streams;
mod subscriptions;

mod wire;

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use axum::response::Response;
use bytes::Bytes;
use chandlery_crds::workspace::ToolListUpdates;
use dashmap::DashMap;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use jiff::Timestamp;
use tokio::time::{MissedTickBehavior, timeout};
use tokio_util::sync::CancellationToken;

pub use self::sessions::Limits;

use self::lane_slow::Posted;
use self::lists::{List, Lists};
use self::seal::Seal;
use self::sessions::{Owner, Session, Sessions};
use self::streams::Streams;
use self::subscriptions::Subscriptions;
use self::wire::{INVALID_REQUEST, METHOD_NOT_FOUND, Message};
use super::Settings;
use super::access::Caller;
use crate::catalog::Catalog;
use crate::directory::{Agent, Principal, Snapshot};
use crate::pipeline::Pipeline;

/// How often sessions are looked through for what has run out without a change of the directory.
const SWEEP: Duration = Duration::from_secs(5);

/// The MCP side of a server.
pub(super) struct Mcp {
    settings: Settings,
    pipeline: Arc<Pipeline>,
    sessions: Sessions,
    subscriptions: Subscriptions,
    /// Since when a source is too slow to be waited for in lists, by namespace and name.
    slow: DashMap<(String, String), Instant>,
    lists: Lists,
    streams: Streams,
    seal: Seal,
}

impl Mcp {
    pub(super) fn new(
        pipeline: Arc<Pipeline>,
        settings: Settings,
        shutdown: CancellationToken,
    ) -> Self {
        Self {
            sessions: Sessions::new(settings.sessions),
            subscriptions: Subscriptions::default(),
            slow: DashMap::new(),
            lists: Lists::new(settings.page_bytes),
            streams: Streams {
                silence: settings.longest_silence,
                shutdown,
            },
            seal: Seal::new(settings.state_key.as_ref()),
            pipeline,
            settings,
        }
    }

    /// Answers one HTTP request of `caller` on its own endpoint.
    pub(super) async fn answer(
        self: &Arc<Self>,
        caller: &Caller,
        request: Request<Incoming>,
    ) -> Response {
        match *request.method() {
            Method::POST => {
                let (parts, body) = request.into_parts();
                if let Some(refusal) = unreadable(&parts.headers) {
                    return refusal;
                }
                let mut body = pin!(Limited::new(body, self.settings.max_body).collect());
                // Most bodies have come with their head, and need no timer.
                let read = match futures::poll!(body.as_mut()) {
                    Poll::Ready(read) => Ok(read),
                    Poll::Pending => timeout(self.settings.idle_connection, body).await,
                };
                match read {
                    Ok(Ok(body)) => self.post(caller, parts, body.to_bytes()).await,
                    Ok(Err(failure)) if failure.is::<LengthLimitError>() => wire::refuse(
                        StatusCode::PAYLOAD_TOO_LARGE,
                        INVALID_REQUEST,
                        &format!("a request may have {} bytes", self.settings.max_body),
                    ),
                    Ok(Err(_)) => wire::empty(StatusCode::BAD_REQUEST),
                    Err(_) => wire::empty(StatusCode::REQUEST_TIMEOUT),
                }
            }
            Method::GET if !wire::is_newer(request.headers()) => self.open_stream(caller, request),
            Method::DELETE if !wire::is_newer(request.headers()) => {
                match self.sessions.find(request.headers(), caller) {
                    Ok(session) => {
                        self.sessions.close(&session);
                        wire::empty(StatusCode::OK)
                    }
                    Err(status) => no_session(status),
                }
            }
            _ => {
                let mut response = wire::empty(StatusCode::METHOD_NOT_ALLOWED);
                response.headers_mut().insert(
                    header::ALLOW,
                    HeaderValue::from_static(if wire::is_newer(request.headers()) {
                        "POST"
                    } else {
                        "POST, GET, DELETE"
                    }),
                );
                response
            }
        }
    }

    async fn post(self: &Arc<Self>, caller: &Caller, parts: Parts, body: Bytes) -> Response {
        let message = match Message::parse(&body) {
            Ok(message) => message,
            Err(refusal) => return *refusal,
        };
        let params = message.params();
        let meta = params.and_then(|params| params.meta.as_ref());
        let is_newer = message.is_newer(&parts.headers, meta);
        if message.method.as_deref() == Some("initialize") && wire::is_newer(&parts.headers) {
            // The newer revision has no such method, however well or badly it is called.
            return not_found(message.plain_id().unwrap_or("null"), "initialize");
        }
        if let Some(request) = lane_fast::Request::read(&parts.headers, &message, params, is_newer)
        {
            if let Some(response) = subscriptions::listen(self, caller, &request) {
                return response;
            }
            if self.settings.fast_lane
                && let Some(response) =
                    lane_fast::answer(self, caller, &parts.headers, &request).await
            {
                return response;
            }
        }
        let Ok(typed) = serde_json::from_slice(&body) else {
            // The id, if it is one, tells the client which of its requests was wrong.
            let id = message.plain_id().unwrap_or("null");
            return bad_request(
                id,
                "Invalid Request: the body is not a JSON-RPC 2.0 message",
            );
        };
        let posted = Posted {
            parts,
            body: body.clone(),
            message: typed,
        };
        // Boxed: every request would carry the room for it.
        if is_newer {
            Box::pin(lane_slow::newer(self, caller, posted)).await
        } else {
            Box::pin(lane_slow::older(self, caller, posted)).await
        }
    }

    fn open_stream(&self, caller: &Caller, request: Request<Incoming>) -> Response {
        if !accepts(request.headers(), "text/event-stream") {
            return wire::refuse(
                StatusCode::NOT_ACCEPTABLE,
                INVALID_REQUEST,
                "Not Acceptable: accept text/event-stream",
            );
        }
        match self.sessions.find(request.headers(), caller) {
            Ok(session) => {
                let (stream, events) = session.open_stream();
                session.listen(&self.catalog(&caller.agent));
                self.streams.endless(events, None, stream)
            }
            Err(status) => no_session(status),
        }
    }

    fn now(&self) -> Timestamp {
        self.pipeline.clock.now()
    }

    /// The agent's list as it is now.
    fn list(&self, agent: &Arc<Agent>) -> Arc<List> {
        self.lists.of(&self.catalog(agent))
    }

    fn catalog(&self, agent: &Arc<Agent>) -> Arc<Catalog> {
        let now = self.now();
        self.pipeline.catalogs.of(agent, now)
    }

    /// What closes a page of the agent's list.
    fn tail(&self, agent: &Arc<Agent>, is_newer: bool) -> String {
        let now = self.now();
        let valid_until = self.pipeline.catalogs.of(agent, now).valid_until;
        lists::tail(is_newer, now, valid_until)
    }

    /// The list that a client is shown: a session keeps its own, unless changes are told.
    fn list_for(&self, agent: &Arc<Agent>, session: Option<&Session>) -> Arc<List> {
        match session {
            Some(session) if !self.tells_changes(agent, false) => session.list.lock().clone(),
            Some(session) => {
                let list = self.list(agent);
                *session.list.lock() = list.clone();
                list
            }
            None => self.list(agent),
        }
    }

    /// Whether clients are told when the list changes. The newer era can always ask for it.
    fn tells_changes(&self, agent: &Agent, is_newer: bool) -> bool {
        is_newer || agent.workspace.spec.tool_list_updates == ToolListUpdates::Live
    }

    /// Ends what belongs to keys that are gone and tells of changed lists, until the server stops.
    pub(super) async fn keep_house(&self) {
        let directory = &self.pipeline.directory;
        let mut changes = directory.changes();
        let mut offers = self.pipeline.catalogs.changes();
        let mut has_source = true;
        let mut ticks = tokio::time::interval(SWEEP);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                change = changes.changed(), if has_source => has_source = change.is_ok(),
                _ = offers.changed() => {}
                _ = ticks.tick() => {}
                () = self.streams.shutdown.cancelled() => return,
            }
            if let Some(snapshot) = directory.snapshot() {
                self.sweep(&snapshot);
            }
        }
    }

    fn sweep(&self, snapshot: &Snapshot) {
        let uids: HashSet<&str> = snapshot
            .agents
            .values()
            .map(|agent| agent.uid.as_str())
            .collect();
        self.pipeline.catalogs.retain(|uid| uids.contains(uid));
        self.slow
            .retain(|_, since| since.elapsed() < relay::SLOW_FOR);
        self.lists.retain(|uid| uids.contains(uid));
        let now = self.now();
        let live: HashMap<Owner, &Arc<Agent>> = snapshot
            .keys
            .values()
            .filter(|holder| holder.expires_at.is_none_or(|expiry| now < expiry))
            .filter_map(|holder| match &holder.principal {
                Principal::Agent(agent) => {
                    let agent_uid = agent.uid.as_str().into();
                    let key_id = holder.key_id.clone();
                    Some((Owner { agent_uid, key_id }, agent))
                }
                Principal::Workspace(_) => None,
            })
            .collect();
        self.sessions.sweep(|owner| live.contains_key(owner));
        self.pipeline.metrics.set_sessions(self.sessions.count());
        self.subscriptions.sweep(|owner| live.contains_key(owner));
        for session in self.sessions.connected() {
            let Some(agent) = live.get(&session.owner) else {
                continue;
            };
            session.listen(&self.catalog(agent));
            if self.tells_changes(agent, false) && self.has_changed(agent, &mut session.list.lock())
            {
                session.push(wire::event(
                    br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
                ));
            }
        }
        for subscription in self.subscriptions.all() {
            let Some(agent) = live.get(&subscription.owner) else {
                continue;
            };
            subscription.listen(&self.catalog(agent));
            if subscription.tools && self.has_changed(agent, &mut subscription.list.lock()) {
                subscription.tools_changed();
            }
        }
    }

    /// Whether the list differs from the one that a client knows, which from now on is the new one.
    fn has_changed(&self, agent: &Arc<Agent>, known: &mut Arc<List>) -> bool {
        let list = self.list(agent);
        if list.is_same(known) {
            return false;
        }
        *known = list;
        true
    }
}

/// The answer to a POST whose headers do not fit.
fn unreadable(headers: &HeaderMap) -> Option<Response> {
    // What most clients send, letter for letter.
    let is_usual = |name, usual| wire::sole(headers, &name) == Some(usual);
    if is_usual(header::ACCEPT, "application/json, text/event-stream")
        && is_usual(header::CONTENT_TYPE, "application/json")
    {
        return None;
    }
    if !accepts(headers, "application/json") || !accepts(headers, "text/event-stream") {
        return Some(wire::refuse(
            StatusCode::NOT_ACCEPTABLE,
            INVALID_REQUEST,
            "Not Acceptable: accept both application/json and text/event-stream",
        ));
    }
    let is_json = wire::text(headers, &header::CONTENT_TYPE).is_some_and(|kind| {
        let essence = kind.split_once(';').map_or(kind, |(essence, _)| essence);
        essence.trim().eq_ignore_ascii_case("application/json")
    });
    (!is_json).then(|| {
        wire::refuse(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            INVALID_REQUEST,
            "Unsupported Media Type: send application/json",
        )
    })
}

fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|accept| accept.to_str().ok())
        .flat_map(|accept| accept.split(','))
        .any(|range| {
            let essence = range.split_once(';').map_or(range, |(essence, _)| essence);
            essence.trim().eq_ignore_ascii_case(kind)
        })
}

/// 400 without a session header, 404 for a session that is not there or not the caller's.
fn no_session(status: StatusCode) -> Response {
    let message = if status == StatusCode::NOT_FOUND {
        "Session not found: send initialize again"
    } else {
        "Bad Request: send the Mcp-Session-Id that initialize gave"
    };
    wire::refuse(status, INVALID_REQUEST, message)
}

/// A session cannot run two calls under one id: nobody could tell their answers apart.
fn id_in_use(id: &str) -> Response {
    bad_request(id, "Invalid Request: a request of this id is still running")
}

fn bad_request(id: &str, message: &str) -> Response {
    let mut response = wire::json(wire::error(id, INVALID_REQUEST, message));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response
}

fn not_found(id: &str, method: &str) -> Response {
    let message = format!("Method not found: {method}");
    let mut response = wire::json(wire::error(id, METHOD_NOT_FOUND, &message));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

fn overloaded(message: &str) -> Response {
    let mut response = wire::refuse(StatusCode::SERVICE_UNAVAILABLE, INVALID_REQUEST, message);
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, HeaderValue::from_static("30"));
    response
}
