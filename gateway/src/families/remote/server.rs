//! The server at the other end: requests go up in the era in which they came, if it speaks both.
//!
//! One request is one POST. A plain answer costs no task, no channel and no second reading.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use dashmap::DashMap;
use futures::future::BoxFuture;
use http::{HeaderValue, Method, StatusCode, Uri, header};
use serde_json::{Map, Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::changes::Changes;
use super::conversation;
use super::sessions::{Session, Sessions};
use super::trouble::Trouble;
use super::wire::{
    self, METHOD, Message, Meta, NAME, NEWER_VALUE, PROTOCOL_VERSION, Request, SESSION_ID,
};
use crate::families::openapi;
use crate::family::{Client, NEWER, RpcError, TASKS};
use crate::outbound::{OperationName, Upstream};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
/// The longest answer to the gateway itself, which gets lists of tools; agents get less. Documents are as long at most.
pub(super) const LIST_BYTES: usize = openapi::MAX_BYTES;
/// What a server may ask a client, each by the capability that it takes.
pub(super) const QUESTIONS: [(&str, &str); 3] = [
    ("elicitation", "elicitation/create"),
    ("sampling", "sampling/createMessage"),
    ("roots", "roots/list"),
];

pub(super) struct Server {
    /// Name of the ToolSource.
    pub(super) name: String,
    pub(super) upstream: Arc<Upstream>,
    uri: Uri,
    /// How long a call may take, or say nothing.
    pub(super) patience: Duration,
    next_id: AtomicU64,
    pub(super) sessions: Sessions,
    /// From which level on agents want log messages, by UID.
    pub(super) levels: DashMap<String, Value>,
    /// What changes besides the tools.
    pub(super) changes: Changes,
    /// Somebody has noticed that the server offers something else now.
    pub(super) has_changed: Notify,
}

/// Which eras a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spoken {
    pub(super) newer: bool,
    pub(super) older: bool,
}

impl Spoken {
    /// Whether a request of `client` goes up in the newer era.
    pub(super) fn is_newer_for(self, client: &dyn Client) -> bool {
        self.newer && (!self.older || client.protocol_version() == NEWER)
    }
}

/// What one request came to, for the record.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) status: Option<u16>,
    pub(super) sent: usize,
    pub(super) received: usize,
    /// The server asked in the middle of it, and its client cannot be asked.
    pub(super) asked_in_vain: bool,
}

/// Who asks, and for whom.
pub(super) struct Asking<'a> {
    /// UID of the agent; empty for the gateway's own requests.
    pub(super) agent: &'a str,
    pub(super) client: &'a dyn Client,
    /// Somebody looks after a task, should the server answer with one.
    pub(super) takes_tasks: bool,
    pub(super) cancelled: &'a CancellationToken,
}

impl<'a> Asking<'a> {
    /// The gateway itself, for nobody, until `never`.
    pub(super) fn itself(never: &'a CancellationToken) -> Self {
        Self {
            agent: "",
            client: &Nobody,
            takes_tasks: false,
            cancelled: never,
        }
    }
}

impl Server {
    pub(super) fn new(name: String, upstream: Arc<Upstream>, uri: Uri, patience: Duration) -> Self {
        Self {
            name,
            upstream,
            uri,
            patience,
            next_id: AtomicU64::new(1),
            sessions: Sessions::new(),
            levels: DashMap::new(),
            changes: Changes::new(),
            has_changed: Notify::new(),
        }
    }

    /// The result of a request, as it came. A session that has ended is opened anew, once.
    pub(super) async fn ask(
        &self,
        spoken: Spoken,
        asking: &Asking<'_>,
        request: &Request<'_>,
        tally: &mut Tally,
    ) -> Result<Bytes, Trouble> {
        if spoken.is_newer_for(asking.client) {
            return self.newer(asking, request, tally).await;
        }
        let key = self.key(asking);
        let mut may_reopen = true;
        loop {
            let session = self.session(&key).await?;
            match self.older(&session, asking, request, tally).await {
                Err(Trouble::NoSession) if may_reopen => {
                    may_reopen = false;
                    self.sessions.forget(&session);
                }
                answer => return answer,
            }
        }
    }

    /// Asks in the newer era.
    pub(super) async fn newer(
        &self,
        asking: &Asking<'_>,
        request: &Request<'_>,
        tally: &mut Tally,
    ) -> Result<Bytes, Trouble> {
        let client = asking.client;
        let level = match client.protocol_version() {
            NEWER => client.log_level(),
            _ => self.levels.get(asking.agent).map(|level| level.clone()),
        };
        let mut capabilities = relayed(client);
        if asking.takes_tasks {
            capabilities["extensions"] = json!({TASKS: {}});
        }
        let capabilities = capabilities.to_string();
        let meta = Meta {
            capabilities: Some(&capabilities),
            log_level: level,
            wants_progress: client.progress_token().is_some(),
        };
        let id = self.id();
        let mut post = self.post(wire::encode(id, request, &meta));
        mark(&mut post, request);
        let headers = post.headers_mut();
        headers.insert(PROTOCOL_VERSION, NEWER_VALUE);
        headers.insert(METHOD, wire::header_value(request.method));
        if let Some(name) = &request.name {
            headers.insert(NAME, wire::header_value(name));
        }
        headers.extend(request.mirrored.iter().cloned());
        let asked = pin!(self.exchange(id, post, None, asking, tally));
        // A stream that is dropped tells the server enough.
        let answer = asking.cancelled.run_until_cancelled(asked).await;
        answer.unwrap_or(Err(Trouble::Cancelled))
    }

    async fn older(
        &self,
        session: &Session,
        asking: &Asking<'_>,
        request: &Request<'_>,
        tally: &mut Tally,
    ) -> Result<Bytes, Trouble> {
        let meta = Meta {
            wants_progress: asking.client.progress_token().is_some(),
            ..Meta::default()
        };
        let id = self.id();
        let mut post = self.in_session(session, wire::encode(id, request, &meta));
        mark(&mut post, request);
        let asked = pin!(self.exchange(id, post, Some(session), asking, tally));
        match asking.cancelled.run_until_cancelled(asked).await {
            Some(answer) => answer,
            None => {
                let params =
                    json!({"requestId": id, "reason": "the client has cancelled the call"});
                self.notify(session, "notifications/cancelled", params)
                    .await;
                Err(Trouble::Cancelled)
            }
        }
    }

    /// Sends one POST, and waits for the answer to `id` in whatever form it comes.
    async fn exchange(
        &self,
        id: u64,
        post: http::Request<Bytes>,
        session: Option<&Session>,
        asking: &Asking<'_>,
        tally: &mut Tally,
    ) -> Result<Bytes, Trouble> {
        tally.sent += post.body().len();
        let limit = match asking.agent {
            "" => LIST_BYTES,
            _ => self.upstream.limit(),
        };
        let opened = self.upstream.open_up_to(limit, post).await?;
        let (parts, body) = opened.into_parts();
        tally.status = Some(parts.status.as_u16());
        if body.is_events() && parts.status.is_success() {
            let client = asking.client;
            // Boxed: every call would carry the room for it.
            return Box::pin(conversation::follow(self, session, body, id, client, tally)).await;
        }
        let whole = body.whole_bytes().await?;
        tally.received += whole.len();
        let message = Message::parse(&whole);
        if session.is_some_and(|session| session.id.is_some())
            && is_gone(parts.status, message.as_ref())
        {
            return Err(Trouble::NoSession);
        }
        let matters = parts.status.is_success() || parts.status.is_client_error();
        match message.filter(|_| matters && !matches!(parts.status.as_u16(), 401 | 403 | 429)) {
            Some(message) => match (message.error(), message.result) {
                (Some(error), _) => Err(Trouble::Rpc(error)),
                (None, Some(result)) if message.is_answer_to(id) && parts.status.is_success() => {
                    Ok(whole.slice_ref(result.get().as_bytes()))
                }
                _ => Err(Trouble::Broken("its answer is to no request")),
            },
            None if parts.status.is_success() => {
                Err(Trouble::Broken("its answer is no message of JSON-RPC"))
            }
            None => Err(Trouble::Status(parts.status)),
        }
    }

    pub(super) fn in_session(&self, session: &Session, body: Vec<u8>) -> http::Request<Bytes> {
        let mut post = self.post(body);
        let headers = post.headers_mut();
        headers.insert(PROTOCOL_VERSION, session.version.clone());
        if let Some(id) = &session.id {
            headers.insert(SESSION_ID, id.clone());
        }
        post
    }

    pub(super) fn post(&self, body: Vec<u8>) -> http::Request<Bytes> {
        let mut post = http::Request::new(Bytes::from(body));
        *post.method_mut() = Method::POST;
        *post.uri_mut() = self.uri.clone();
        let headers = post.headers_mut();
        headers.insert(header::CONTENT_TYPE, JSON);
        headers.insert(header::ACCEPT, BOTH);
        post
    }

    pub(super) fn id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Path of its URL.
    pub(super) fn path(&self) -> &str {
        self.uri.path()
    }
}

/// Says which tool it is that is called. What else is asked for has names that an agent may choose.
fn mark(post: &mut http::Request<Bytes>, request: &Request<'_>) {
    if let ("tools/call", Some(name)) = (request.method, &request.name) {
        post.extensions_mut()
            .insert(OperationName((&**name).into()));
    }
}

/// What of a client's capabilities is good for a server behind us: what it can be asked.
pub(super) fn relayed(client: &dyn Client) -> Value {
    let Value::Object(mut can) = client.capabilities() else {
        return Value::Object(Map::new());
    };
    can.retain(|name, _| QUESTIONS.iter().any(|(known, _)| known == name));
    Value::Object(can)
}

/// What servers say, in lower case, of a session that they do not know, or do not know any more.
const NO_SESSION: &[&str] = &[
    "session id",
    "session-id",
    "sessionid",
    "session not found",
    "session expired",
    "session has expired",
    "session has been terminated",
    "session terminated",
    "session does not exist",
    "no session",
    "no valid session",
    "invalid session",
    "unknown session",
    "missing session",
    "server not initialized",
];

/// Whether an answer says that the session is over. Some servers say 400, with words of their own; a tool that speaks of
/// sessions has run.
fn is_gone(status: StatusCode, message: Option<&Message<'_>>) -> bool {
    let says_so = || {
        let error = message.and_then(Message::error);
        error.is_some_and(|error| {
            let said = error.message.to_ascii_lowercase();
            NO_SESSION.iter().any(|words| said.contains(words))
        })
    };
    status == StatusCode::NOT_FOUND || status == StatusCode::BAD_REQUEST && says_so()
}

/// The gateway itself, which has nobody to ask.
pub(super) struct Nobody;

impl Client for Nobody {
    fn protocol_version(&self) -> &str {
        NEWER
    }

    fn capabilities(&self) -> Value {
        Value::Object(Map::new())
    }

    fn progress_token(&self) -> Option<Value> {
        None
    }

    fn retry(&self) -> Option<Value> {
        None
    }

    fn notify<'a>(&'a self, _: &'a str, _: Value) -> BoxFuture<'a, Result<(), RpcError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn request<'a>(&'a self, method: &'a str, _: Value) -> BoxFuture<'a, Result<Value, RpcError>> {
        Box::pin(std::future::ready(Err(RpcError::no_method(method))))
    }
}
