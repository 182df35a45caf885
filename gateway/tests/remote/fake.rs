//! An MCP server that does what tests need, in the eras that they choose, and remembers what it was sent.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use futures::stream;
use http::{HeaderMap, Method, StatusCode};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{broadcast, mpsc};
use tokio_util::task::AbortOnDropHandle;

use crate::harness::{NEWER, OLDER, TASKS};

/// The credential; it must never be seen anywhere else.
pub(crate) const CANARY: &str = "canary-Zq7-of-the-upstream";

pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    pub(crate) state: Arc<Behavior>,
    _server: AbortOnDropHandle<()>,
}

#[derive(Default)]
pub(crate) struct Behavior {
    pub(crate) newer: AtomicBool,
    pub(crate) older: AtomicBool,
    /// Answers come as event streams.
    pub(crate) streams: AtomicBool,
    pub(crate) tools: Mutex<Vec<Value>>,
    pub(crate) page: AtomicUsize,
    pub(crate) seen: Mutex<Vec<Seen>>,
    /// Parameters of `initialize`, by session.
    pub(crate) sessions: Mutex<HashMap<String, Value>>,
    pub(crate) opened: AtomicUsize,
    /// Tasks that were begun, by id.
    tasks: Mutex<HashMap<String, Job>>,
    said: Said,
    /// Session and URI of what was subscribed to.
    subscribed: Mutex<HashSet<(String, String)>>,
    /// Streams that are open to hear of changes.
    pub(crate) listeners: AtomicUsize,
    answers: Mutex<HashMap<String, mpsc::Sender<Value>>>,
}

/// What it says to whoever listens.
struct Said(broadcast::Sender<Value>);

impl Default for Said {
    fn default() -> Self {
        Self(broadcast::Sender::new(16))
    }
}

/// A task that was begun.
struct Job {
    tool: String,
    looked: usize,
    answers: Option<Value>,
    cancelled: bool,
}

/// A request that came in.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) http: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) message: Value,
}

impl Seen {
    pub(crate) fn method(&self) -> &str {
        self.message["method"].as_str().unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }
}

impl Behavior {
    /// Forgets what it was sent.
    pub(crate) fn forget_calls(&self) {
        self.seen.lock().clear();
    }
}

pub(crate) fn tool(name: &str) -> Value {
    json!({"name": name, "description": format!("Does {name}."), "inputSchema": {"type": "object"}})
}

impl Fake {
    /// With the tools that [`answer`] knows.
    pub(crate) async fn start(newer: bool, older: bool) -> Self {
        let state = Arc::new(Behavior::default());
        state.newer.store(newer, Ordering::SeqCst);
        state.older.store(older, Ordering::SeqCst);
        state.page.store(100, Ordering::SeqCst);
        let names = [
            "echo",
            "talk",
            "ask",
            "big",
            "broken",
            "strict",
            "leak",
            "hang",
            "other",
            "job",
            "job_asks",
            "job_hangs",
            "job_fails",
            "job_maybe",
        ];
        *state.tools.lock() = names.map(tool).to_vec();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new().fallback(serve).with_state(state.clone());
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            address,
            state,
            _server: AbortOnDropHandle::new(server),
        }
    }

    /// Replaces the tools and says so to whoever listens.
    pub(crate) fn offer(&self, tools: Vec<Value>) {
        *self.state.tools.lock() = tools;
        self.tell("notifications/tools/list_changed", json!({}));
    }

    /// Says something to whoever listens and has asked for it.
    pub(crate) fn tell(&self, method: &str, params: Value) {
        let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        let _ = self.state.said.0.send(message);
    }

    pub(crate) fn listeners(&self) -> usize {
        self.state.listeners.load(Ordering::SeqCst)
    }

    /// What it was sent so far of one method.
    pub(crate) fn seen(&self, method: &str) -> Vec<Seen> {
        let seen = self.state.seen.lock();
        seen.iter()
            .filter(|seen| seen.method() == method)
            .cloned()
            .collect()
    }
}

async fn serve(State(state): State<Arc<Behavior>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let seen = Seen {
        http: parts.method.clone(),
        headers: parts.headers.clone(),
        message: message.clone(),
    };
    state.seen.lock().push(seen.clone());
    if seen.header("authorization") != format!("Bearer {CANARY}") {
        return plain(StatusCode::UNAUTHORIZED, json!({"error": "who are you?"}));
    }
    let is_newer = seen.header("mcp-protocol-version") == NEWER;
    let speaks = if is_newer { &state.newer } else { &state.older };
    if !speaks.load(Ordering::SeqCst) {
        return plain(StatusCode::BAD_REQUEST, json!({"error": "no such era"}));
    }
    if !is_newer && seen.method() != "initialize" {
        let session = seen.header("mcp-session-id");
        if !state.sessions.lock().contains_key(session) {
            return plain(StatusCode::NOT_FOUND, json!({"error": "no session"}));
        }
    }
    match (&seen.http, seen.method()) {
        (&Method::DELETE, _) => {
            state.sessions.lock().remove(seen.header("mcp-session-id"));
            plain(StatusCode::OK, json!({}))
        }
        (&Method::GET, _) | (_, "subscriptions/listen") => listen(state, seen),
        (_, "") => {
            let id = message["id"].to_string();
            if let Some(waiting) = state.answers.lock().remove(&id) {
                waiting.try_send(message).unwrap();
            }
            plain(StatusCode::ACCEPTED, Value::Null)
        }
        _ if message["id"].is_null() => plain(StatusCode::ACCEPTED, Value::Null),
        _ => respond(state, seen, is_newer),
    }
}

fn plain(status: StatusCode, body: Value) -> Response {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let response = Response::builder()
        .status(status)
        .header("content-type", "application/json");
    response.body(Body::from(body)).unwrap()
}

fn event(message: &Value) -> Bytes {
    format!("event: message\r\ndata: {message}\r\n\r\n").into()
}

/// Counts a stream while it is open.
struct Listener(Arc<Behavior>);

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.listeners.fetch_sub(1, Ordering::SeqCst);
    }
}

fn listen(state: Arc<Behavior>, seen: Seen) -> Response {
    state.listeners.fetch_add(1, Ordering::SeqCst);
    let said = state.said.0.subscribe();
    let first = stream::iter([Bytes::from(": here\n\n")]);
    let events = stream::unfold((said, Listener(state)), move |(mut said, listener)| {
        let seen = seen.clone();
        async move {
            loop {
                let message = said.recv().await.ok()?;
                if wants(&listener.0, &seen, &message) {
                    return Some((event(&message), (said, listener)));
                }
            }
        }
    });
    let events = futures::StreamExt::chain(first, events);
    streamed(Body::from_stream(futures::StreamExt::map(
        events,
        Ok::<_, std::io::Error>,
    )))
}

/// Whether whoever listens has asked for this.
fn wants(state: &Behavior, seen: &Seen, message: &Value) -> bool {
    let filter = &seen.message["params"]["notifications"];
    let uri = &message["params"]["uri"];
    let is_newer = filter.is_object();
    match message["method"].as_str().unwrap() {
        "notifications/resources/updated" if is_newer => {
            let uris = filter["resourceSubscriptions"].as_array();
            uris.is_some_and(|uris| uris.contains(uri))
        }
        "notifications/resources/updated" => {
            let session = seen.header("mcp-session-id").to_owned();
            let one = (session, uri.as_str().unwrap().to_owned());
            state.subscribed.lock().contains(&one)
        }
        "notifications/tools/list_changed" => !is_newer || filter["toolsListChanged"] == true,
        "notifications/prompts/list_changed" => !is_newer || filter["promptsListChanged"] == true,
        _ => !is_newer || filter["resourcesListChanged"] == true,
    }
}

fn streamed(body: Body) -> Response {
    let response = Response::builder().header("content-type", "text/event-stream");
    response.body(body).unwrap()
}

/// Answers a request: at once, or as a stream on which more is said.
fn respond(state: Arc<Behavior>, seen: Seen, is_newer: bool) -> Response {
    let id = seen.message["id"].clone();
    let params = seen.message["params"].clone();
    let method = seen.method().to_owned();
    let name = params["name"].as_str().unwrap_or_default().to_owned();
    if method == "initialize" {
        let number = state.opened.fetch_add(1, Ordering::SeqCst);
        let session = format!("session-{number}");
        state.sessions.lock().insert(session.clone(), params);
        let result = json!({"protocolVersion": OLDER, "capabilities": capabilities(), "serverInfo": {"name": "fake", "version": "1"}});
        let mut response = plain(
            StatusCode::OK,
            json!({"jsonrpc": "2.0", "id": id, "result": result}),
        );
        let headers = response.headers_mut();
        headers.insert("mcp-session-id", session.parse().unwrap());
        return response;
    }
    let talks = method == "tools/call" && ["talk", "hang"].contains(&&*name)
        || method == "tools/call" && name == "ask" && !is_newer;
    if !talks && !state.streams.load(Ordering::SeqCst) {
        return plain(
            StatusCode::OK,
            finished(id, answer(&state, &method, &params, &seen, is_newer)),
        );
    }
    let (events, queue) = mpsc::channel::<Bytes>(16);
    tokio::spawn(async move {
        let say = async |message: Value| events.send(event(&message)).await.is_ok();
        let token = &params["_meta"]["progressToken"];
        match &*name {
            "talk" if talks => {
                for at in 1..=2 {
                    let params = json!({"progressToken": token, "progress": at});
                    say(json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})).await;
                }
                let params = json!({"level": "info", "data": "at work"});
                say(json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params}))
                    .await;
            }
            "ask" if talks => {
                let (sender, mut answers) = mpsc::channel(1);
                state.answers.lock().insert("\"q-1\"".to_owned(), sender);
                let params = json!({"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}});
                say(json!({"jsonrpc": "2.0", "id": "q-1", "method": "elicitation/create", "params": params})).await;
                let answer = answers.recv().await.unwrap();
                let text = answer.get("result").unwrap_or(&answer["error"]).to_string();
                say(finished(id, Ok(content(&text, is_newer)))).await;
                return;
            }
            "hang" if talks => events.closed().await,
            _ => {}
        }
        let answer = answer(&state, &method, &params, &seen, is_newer);
        say(finished(id, answer)).await;
    });
    let events = stream::unfold(queue, |mut queue| async move {
        Some((Ok::<_, std::io::Error>(queue.recv().await?), queue))
    });
    streamed(Body::from_stream(events))
}

fn capabilities() -> Value {
    json!({
        "tools": {"listChanged": true},
        "resources": {"subscribe": true, "listChanged": true},
        "prompts": {"listChanged": true},
        "logging": {},
        "completions": {},
        "extensions": {TASKS: {}},
    })
}

fn finished(id: Value, answer: Result<Value, Value>) -> Value {
    match answer {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(error) => json!({"jsonrpc": "2.0", "id": id, "error": error}),
    }
}

fn content(text: &str, is_newer: bool) -> Value {
    result(
        json!({"content": [{"type": "text", "text": text}]}),
        is_newer,
    )
}

fn result(mut result: Value, is_newer: bool) -> Value {
    if is_newer {
        result["resultType"] = json!("complete");
    }
    result
}

/// What the `echo` tool gives, whatever the era.
pub(crate) fn rich(arguments: &Value) -> Value {
    json!({
        "content": [
            {"type": "text", "text": "grüße \u{1f44d}"},
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "crm://1", "mimeType": "text/plain", "text": "one"}},
        ],
        "structuredContent": {"arguments": arguments, "n": 1e2},
        "_meta": {"example.com/trace": [1, 2.50, null]},
    })
}

fn answer(
    state: &Behavior,
    method: &str,
    params: &Value,
    seen: &Seen,
    is_newer: bool,
) -> Result<Value, Value> {
    let error = |code: i32, message: &str| Err(json!({"code": code, "message": message}));
    let name = params["name"].as_str().unwrap_or_default();
    match method {
        "server/discover" => {
            let mut versions = vec![NEWER];
            versions.extend(state.older.load(Ordering::SeqCst).then_some(OLDER));
            Ok(result(
                json!({"supportedVersions": versions, "capabilities": capabilities(), "serverInfo": {"name": "fake", "version": "1"}}),
                true,
            ))
        }
        "tools/list" => {
            let tools = state.tools.lock();
            let page = state.page.load(Ordering::SeqCst);
            let from: usize = params["cursor"]
                .as_str()
                .map_or(0, |at| at.parse().unwrap());
            let to = tools.len().min(from + page);
            let mut list = json!({"tools": tools[from..to]});
            if to < tools.len() {
                list["nextCursor"] = json!(to.to_string());
            }
            Ok(result(list, is_newer))
        }
        "prompts/list" => Ok(result(
            json!({"prompts": [{"name": "greet", "description": "Gre\u{200b}ets."}]}),
            is_newer,
        )),
        "prompts/get" if params["name"] == "greet" => Ok(result(
            json!({"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}]}),
            is_newer,
        )),
        "resources/list" => Ok(result(
            json!({"resources": [{"uri": "crm://1", "name": "one"}]}),
            is_newer,
        )),
        "resources/subscribe" | "resources/unsubscribe" => {
            let uri = params["uri"].as_str().unwrap().to_owned();
            if !uri.starts_with("crm://") {
                return error(-32002, "no such resource");
            }
            let one = (seen.header("mcp-session-id").to_owned(), uri);
            let mut subscribed = state.subscribed.lock();
            if method == "resources/subscribe" {
                subscribed.insert(one);
            } else {
                subscribed.remove(&one);
            }
            Ok(json!({}))
        }
        "resources/read" if params["uri"] == "crm://1" => Ok(result(
            json!({"contents": [{"uri": "crm://1", "text": "one"}]}),
            is_newer,
        )),
        "tools/call" if is_newer && name.starts_with("job") => {
            let can = &params["_meta"]["io.modelcontextprotocol/clientCapabilities"];
            if can["extensions"].get(TASKS).is_some() {
                return Ok(begin(state, name));
            }
            if name == "job_maybe" {
                return Ok(content("done at once", true));
            }
            let required = json!({"requiredCapabilities": {"extensions": {TASKS: {}}}});
            Err(json!({"code": -32021, "message": "tasks only", "data": required}))
        }
        "tasks/get" | "tasks/update" | "tasks/cancel" => {
            let id = params["taskId"].as_str().unwrap_or_default();
            assert_eq!(seen.header("mcp-name"), id);
            let mut tasks = state.tasks.lock();
            let Some(job) = tasks.get_mut(id) else {
                return error(-32602, &format!("no task {id}"));
            };
            match method {
                "tasks/update" => job.answers = Some(params["inputResponses"].clone()),
                "tasks/cancel" => job.cancelled = true,
                _ => return Ok(result(look(id, job), true)),
            }
            Ok(json!({"resultType": "complete"}))
        }
        "tools/call" => match name {
            "echo" | "other" => Ok(result(rich(&params["arguments"]), is_newer)),
            "talk" => Ok(content("talked", is_newer)),
            "ask" if is_newer => match params["requestState"].as_str() {
                None => Ok(json!({
                    "resultType": "input_required",
                    "inputRequests": {"who": {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}}},
                    "requestState": "state-of-the-upstream",
                })),
                Some(state) => Ok(content(
                    &format!("{state} {}", params["inputResponses"]),
                    true,
                )),
            },
            "big" => Ok(content(&"x".repeat(1_020_000), is_newer)),
            "strict" => error(-32602, "the argument `id` is missing"),
            "broken" => error(-32603, "out of order"),
            "leak" => Ok(content(seen.header("authorization"), is_newer)),
            _ => error(-32602, "Unknown tool"),
        },
        _ => error(-32602, "not here"),
    }
}

fn begin(state: &Behavior, tool: &str) -> Value {
    let mut tasks = state.tasks.lock();
    let id = format!("upstream-task-{}", tasks.len());
    let mut job = Job {
        tool: tool.to_owned(),
        looked: 0,
        answers: None,
        cancelled: false,
    };
    let mut begun = look(&id, &mut job);
    begun["resultType"] = json!("task");
    tasks.insert(id, job);
    begun
}

/// How it stands with a task: the first look finds it working.
fn look(id: &str, job: &mut Job) -> Value {
    let mut task = json!({
        "taskId": id, "status": "working", "statusMessage": format!("at {id}\u{200b}"), "ttlMs": null,
        "pollIntervalMs": 50, "createdAt": "2026-12-01T00:00:00Z", "lastUpdatedAt": "2026-12-01T00:00:00Z",
    });
    job.looked += 1;
    let done = |text: &str| {
        let mut done = content(text, true);
        done["_meta"] = json!({"io.modelcontextprotocol/related-task": {"taskId": id}});
        done
    };
    let question = json!({"who": {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}}});
    let (status, field, value) = match (&*job.tool, &job.answers) {
        _ if job.cancelled => ("cancelled", "", Value::Null),
        _ if job.looked < 3 => return task,
        ("job_hangs", _) => return task,
        ("job_fails", _) => (
            "failed",
            "error",
            json!({"code": -32603, "message": format!("{id} broke")}),
        ),
        ("job_asks", None) => ("input_required", "inputRequests", question),
        (_, answers) => ("completed", "result", done(&format!("done {answers:?}"))),
    };
    task["status"] = json!(status);
    if !field.is_empty() {
        task[field] = value;
    }
    task
}
