//! A gateway in process, on a loopback port, and a client that says exactly what it is told to.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chandlery_crds::key::Key;
use chandlery_crds::workspace::ToolListUpdates;
use chandlery_crds::{AgentSpec, WorkspaceSpec};
use chandlery_gateway::audit::Audit;
use chandlery_gateway::catalog::Registry;
use chandlery_gateway::directory::{
    Agent, Directory, Holder, Principal, Publisher, Snapshot, Workspace,
};
use chandlery_gateway::families::datetime::Datetime;
use chandlery_gateway::family::Family;
use chandlery_gateway::http::{self as gateway, Settings, Workers};
use chandlery_gateway::pipeline::Pipeline;
use chandlery_gateway::store::{Clock, Store, StoreUrl};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::fixture::{Fixture, Seen};

pub(crate) const OLDER: &str = "2025-11-25";
pub(crate) const NEWER: &str = "2026-07-28";
/// For what must happen; how long it takes is not what these tests are about.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// A gateway with the agents `demo.one` and `demo.two`.
pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<Seen>,
    publisher: Publisher,
    shutdown: CancellationToken,
    server: JoinHandle<io::Result<Workers>>,
    _folder: tempfile::TempDir,
    client: Client<HttpConnector, Full<Bytes>>,
}

/// What the directory says; tests change it and publish it again.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) agents: Vec<TestAgent>,
    pub(crate) updates: ToolListUpdates,
    pub(crate) stale_since: Option<Timestamp>,
}

#[derive(Clone)]
pub(crate) struct TestAgent {
    pub(crate) name: &'static str,
    pub(crate) uid: &'static str,
    pub(crate) tools: Vec<&'static str>,
    /// Each is the seed of a key.
    pub(crate) keys: Vec<u8>,
}

/// The key that `seed` stands for.
pub(crate) fn key(seed: u8) -> String {
    Key::from_random([seed; 32]).expose().to_owned()
}

pub(crate) const ONE: u8 = 1;
pub(crate) const TWO: u8 = 2;
pub(crate) const WORKSPACE: u8 = 9;

impl Default for World {
    fn default() -> Self {
        let agent = |name, uid, seed| TestAgent {
            name,
            uid,
            tools: vec!["fixture_*"],
            keys: vec![seed],
        };
        Self {
            agents: vec![agent("one", "uid-1", ONE), agent("two", "uid-2", TWO)],
            updates: ToolListUpdates::NextSession,
            stale_since: None,
        }
    }
}

impl World {
    fn snapshot(&self) -> Snapshot {
        let workspace = Arc::new(Workspace {
            id: "demo.team".into(),
            uid: "uid-w".into(),
            generation: 1,
            account: "demo.team".into(),
            spec: WorkspaceSpec {
                tool_list_updates: self.updates,
                ..WorkspaceSpec::default()
            },
        });
        let mut snapshot = Snapshot {
            stale_since: self.stale_since,
            ..Snapshot::default()
        };
        let mut hold = |seed, principal| {
            let digest = Key::from_random([seed; 32]).digest();
            let key_id = digest.id().into();
            let holder = Holder {
                principal,
                key_id,
                expires_at: None,
            };
            snapshot.keys.insert(digest, holder);
        };
        hold(WORKSPACE, Principal::Workspace(workspace.clone()));
        for agent in &self.agents {
            let spec: AgentSpec = serde_json::from_value(json!({
                "workspaceRef": {"name": "team"},
                "tools": agent.tools,
            }))
            .unwrap();
            let id = format!("demo.{}", agent.name);
            let directory_agent = Arc::new(Agent {
                id: id.clone(),
                uid: agent.uid.into(),
                generation: 1,
                key_revision: 1,
                labels: Default::default(),
                spec,
                grants: Vec::new(),
                workspace: workspace.clone(),
            });
            for seed in &agent.keys {
                hold(*seed, Principal::Agent(directory_agent.clone()));
            }
            snapshot.agents.insert(id, directory_agent);
        }
        snapshot
    }
}

impl Gateway {
    pub(crate) async fn start(settings: Settings) -> Self {
        let gateway = Self::start_without_snapshot(settings).await;
        gateway.publish(&World::default());
        gateway
    }

    pub(crate) async fn start_without_snapshot(settings: Settings) -> Self {
        Self::start_with(settings, |_| Vec::new()).await
    }

    /// With families on top of those of the tests.
    pub(crate) async fn start_with(
        settings: Settings,
        more: fn(&Store) -> Vec<Arc<dyn Family>>,
    ) -> Self {
        let (publisher, directory) = Directory::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Seen::default());
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&StoreUrl::Sqlite(folder.path().to_owned()), Clock::system())
            .await
            .unwrap();
        let mut families: Vec<Arc<dyn Family>> = vec![
            Arc::new(Datetime::new(Clock::system())),
            Arc::new(Fixture::new(seen.clone())),
        ];
        families.extend(more(&store));
        let pipeline = Arc::new(Pipeline::new(
            Registry::new(families),
            &store,
            Audit::start(store.clone(), &"audit-key".into(), Default::default()),
            Default::default(),
            directory,
        ));
        let shutdown = CancellationToken::new();
        let server = tokio::spawn(gateway::serve(
            listener,
            pipeline,
            settings,
            shutdown.clone(),
        ));
        Self {
            address,
            seen,
            publisher,
            shutdown,
            server,
            _folder: folder,
            client: Client::builder(TokioExecutor::new()).build_http(),
        }
    }

    pub(crate) fn publish(&self, world: &World) {
        self.publisher.publish(world.snapshot());
    }

    /// Stops the server and waits until it has ended.
    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        let ended = tokio::time::timeout(SOON, self.server).await.unwrap();
        drop(ended.unwrap().unwrap());
    }

    /// A request to the endpoint of `demo.<agent>`.
    pub(crate) fn to(&self, agent: &str) -> Call {
        self.at(&format!("/runtime/agents/demo.{agent}/mcp"))
    }

    pub(crate) fn at(&self, path: &str) -> Call {
        Call {
            client: self.client.clone(),
            address: self.address,
            method: Method::POST,
            path: path.to_owned(),
            headers: vec![
                ("content-type".into(), "application/json".into()),
                (
                    "accept".into(),
                    "application/json, text/event-stream".into(),
                ),
            ],
            body: Bytes::new(),
        }
    }

    /// `demo.one` with its key.
    pub(crate) fn one(&self) -> Call {
        self.to("one").key(&key(ONE))
    }

    /// Opens a session of `demo.one`.
    pub(crate) async fn session(&self) -> String {
        self.session_of(self.one()).await
    }

    pub(crate) async fn session_of(&self, call: Call) -> String {
        let answer = call.message(initialize(json!({}))).send().await;
        answer.header("mcp-session-id").unwrap().to_owned()
    }
}

/// The first message of the older era.
pub(crate) fn initialize(capabilities: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": OLDER,
        "capabilities": capabilities,
        "clientInfo": {"name": "test", "version": "1"},
    }})
}

pub(crate) fn request(id: impl Into<Value>, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params})
}

/// A request, put together piece by piece.
#[must_use]
pub(crate) struct Call {
    client: Client<HttpConnector, Full<Bytes>>,
    address: SocketAddr,
    method: Method,
    path: String,
    headers: Vec<(String, String)>,
    body: Bytes,
}

/// An answer whose body has come whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    headers: HashMap<String, String>,
    pub(crate) text: String,
}

/// An answer whose body is still coming.
pub(crate) struct Events {
    pub(crate) status: StatusCode,
    pub(crate) kind: String,
    body: Incoming,
    buffer: String,
}

impl Call {
    pub(crate) fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    pub(crate) fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Takes a header away.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.header("authorization", format!("Bearer {key}"))
    }

    pub(crate) fn in_session(self, session: &str) -> Self {
        self.header("mcp-session-id", session)
            .header("mcp-protocol-version", OLDER)
    }

    pub(crate) fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn message(self, message: Value) -> Self {
        self.body(message.to_string())
    }

    /// A request of the newer era, with everything that belongs to one.
    pub(crate) fn newer(self, mut message: Value) -> Self {
        let meta = &mut message["params"]["_meta"];
        meta["io.modelcontextprotocol/protocolVersion"] = json!(NEWER);
        meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
        let call = self
            .header("mcp-protocol-version", NEWER)
            .header("mcp-method", message["method"].as_str().unwrap());
        let call = match message["params"]["name"].as_str() {
            Some(name) => call.header("mcp-name", name),
            None => call,
        };
        call.message(message)
    }

    async fn response(self) -> Response<Incoming> {
        let url = format!("http://{}{}", self.address, self.path);
        let mut request = Request::builder().method(self.method).uri(url);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(self.body)).unwrap();
        tokio::time::timeout(SOON, self.client.request(request))
            .await
            .expect("an answer in time")
            .unwrap()
    }

    /// Waits for the whole answer.
    pub(crate) async fn send(self) -> Answer {
        let response = self.response().await;
        let headers = response
            .headers()
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect();
        let status = response.status();
        let body = tokio::time::timeout(SOON, response.into_body().collect())
            .await
            .expect("a body that ends")
            .unwrap();
        Answer {
            status,
            headers,
            text: String::from_utf8(body.to_bytes().to_vec()).unwrap(),
        }
    }

    /// Sends it now; the answer can be waited for later.
    pub(crate) fn start(self) -> JoinHandle<Answer> {
        tokio::spawn(self.send())
    }

    /// Waits for the head of the answer only.
    pub(crate) async fn open(self) -> Events {
        let response = self.response().await;
        Events {
            status: response.status(),
            kind: response.headers()["content-type"].to_str().unwrap().into(),
            body: response.into_body(),
            buffer: String::new(),
        }
    }
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    pub(crate) fn kind(&self) -> &str {
        self.header("content-type").unwrap_or_default()
    }

    /// The body as JSON; of an event stream, its last message.
    pub(crate) fn json(&self) -> Value {
        let text = match self.messages() {
            Some(messages) => return messages.last().unwrap().clone(),
            None => &self.text,
        };
        serde_json::from_str(text).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// The messages of an event stream.
    pub(crate) fn messages(&self) -> Option<Vec<Value>> {
        self.kind().starts_with("text/event-stream").then(|| {
            self.text
                .lines()
                .filter_map(|line| line.strip_prefix("data: "))
                .map(|data| serde_json::from_str(data).unwrap())
                .collect()
        })
    }

    /// The text of a tool's result.
    pub(crate) fn result_text(&self) -> String {
        let answer = self.json();
        let text = answer["result"]["content"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("no text: {answer}"))
            .to_owned()
    }
}

impl Events {
    /// The next event or comment; `None` when the stream has ended.
    pub(crate) async fn next(&mut self) -> Option<String> {
        loop {
            if let Some((event, rest)) = self.buffer.split_once("\n\n") {
                let event = event.to_owned();
                self.buffer = rest.to_owned();
                return Some(event);
            }
            let frame = tokio::time::timeout(SOON, self.body.frame())
                .await
                .expect("an event in time")?;
            let data = frame.ok()?.into_data().unwrap();
            self.buffer.push_str(std::str::from_utf8(&data).unwrap());
        }
    }

    /// The next message, comments left out.
    pub(crate) async fn next_message(&mut self) -> Option<Value> {
        loop {
            let event = self.next().await?;
            if let Some(data) = event.lines().find_map(|line| line.strip_prefix("data: ")) {
                return Some(serde_json::from_str(data).unwrap());
            }
        }
    }
}

/// Waits until `holds`.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + SOON;
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
