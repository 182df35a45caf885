//! A gateway in process whose agents have a fake MCP server as a source.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chandlery_gateway::audit::Audit;
use chandlery_gateway::catalog::Registry;
use chandlery_gateway::directory::Directory;
use chandlery_gateway::directory::files::{Files, key_file};
use chandlery_gateway::families::{self, connect::Connectors};
use chandlery_gateway::http::{self as gateway, Settings};
use chandlery_gateway::outbound::{self, Outbound};
use chandlery_gateway::pipeline::Pipeline;
use chandlery_gateway::store::{Clock, Store, StoreUrl};
use chandlery_gateway::usage::Usage;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::fake::{CANARY, Fake};

pub(crate) const OLDER: &str = "2025-11-25";
pub(crate) const NEWER: &str = "2026-07-28";
pub(crate) const TASKS: &str = "io.modelcontextprotocol/tasks";
/// For what must happen; how long it takes is not what these tests are about.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// What the manifests say.
#[derive(Clone, Default)]
pub(crate) struct World {
    /// Fields of the source's spec, as YAML flow.
    pub(crate) source: &'static str,
    /// Fields of the grant's spec.
    pub(crate) grant: &'static str,
    pub(crate) approved: Option<String>,
}

pub(crate) struct Desk {
    address: SocketAddr,
    pub(crate) pipeline: Arc<Pipeline>,
    upstream: SocketAddr,
    manifests: TempDir,
    data: TempDir,
    client: Client<HttpConnector, Full<Bytes>>,
    stops: Vec<DropGuard>,
}

impl Desk {
    /// Waits until the source has said what it offers.
    pub(crate) async fn open(upstream: &Fake, world: &World) -> Self {
        Self::open_with(upstream, world, true).await
    }

    pub(crate) async fn open_with(upstream: &Fake, world: &World, fast_lane: bool) -> Self {
        let (data, manifests) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let text = world.manifests(upstream.address);
        std::fs::write(manifests.path().join("all.yaml"), text).unwrap();
        let url = StoreUrl::Sqlite(data.path().join("store"));
        let clock = Clock::system();
        let store = Store::open(&url, clock.clone()).await.unwrap();
        let (publisher, directory) = Directory::new();
        let check = Box::new(|_: &[chandlery_crds::manifest::Object], _: Timestamp| Vec::new());
        let files = Files::open(manifests.path(), data.path(), check, clock, publisher)
            .unwrap_or_else(|error| panic!("{error}"));
        let connectors = Connectors {
            outbound: Outbound::new(outbound::Settings::default()).unwrap(),
            references: files.references(),
            usage: Usage::start(store.clone(), Arc::default()),
        };
        let pipeline = Arc::new(Pipeline::new(
            Registry::new(families::all(&store)),
            &store,
            Audit::start(store.clone(), &"audit-key".into(), Default::default()),
            Default::default(),
            directory,
        ));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let settings = settings(fast_lane);
        let mut served = pipeline.catalogs.changes();
        tokio::spawn(gateway::serve(
            listener,
            pipeline.clone(),
            settings,
            stop.clone(),
        ));
        tokio::spawn(files.follow(stop.clone()));
        tokio::spawn(pipeline.follow_sources(connectors).run(stop.clone()));
        tokio::time::timeout(SOON, served.changed())
            .await
            .expect("the source says what it offers")
            .unwrap();
        Self {
            address,
            pipeline,
            upstream: upstream.address,
            manifests,
            data,
            client: Client::builder(TokioExecutor::new()).build_http(),
            stops: vec![stop.drop_guard()],
        }
    }

    /// From now on another replica answers, which has nothing in common with the one before but its key and its store.
    pub(crate) async fn move_on(&mut self) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        self.address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let server = gateway::serve(
            listener,
            self.pipeline.clone(),
            settings(true),
            stop.clone(),
        );
        tokio::spawn(server);
        self.stops.push(stop.drop_guard());
    }

    pub(crate) fn apply(&self, world: &World) {
        let text = world.manifests(self.upstream);
        std::fs::write(self.manifests.path().join("all.yaml"), text).unwrap();
    }

    /// What is known of the source.
    pub(crate) fn state(&self) -> chandlery_gateway::sources::State {
        let states = self.pipeline.sources.states();
        states.into_values().next().unwrap()
    }

    /// Why a tool is left out.
    pub(crate) fn noted(&self, name: &str) -> String {
        let noted = self.state().report.tools.noted;
        let noted = noted.iter().find(|noted| noted.name == name);
        noted
            .unwrap_or_else(|| panic!("nothing is said of {name}"))
            .reason
            .clone()
    }

    async fn send(&self, agent: &str, headers: &[(&str, &str)], message: &Value) -> Events {
        self.exchange(agent, Method::POST, headers, message.to_string())
            .await
    }

    async fn exchange(
        &self,
        agent: &str,
        method: Method,
        headers: &[(&str, &str)],
        body: String,
    ) -> Events {
        let key = std::fs::read_to_string(key_file(self.data.path(), &format!("team.{agent}")));
        let url = format!("http://{}/runtime/agents/team.{agent}/mcp", self.address);
        let mut request = Request::builder()
            .method(method)
            .uri(url)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("authorization", format!("Bearer {}", key.unwrap()));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::from(body)).unwrap();
        let response = tokio::time::timeout(SOON, self.client.request(request));
        let (parts, body) = response
            .await
            .expect("an answer in time")
            .unwrap()
            .into_parts();
        let kind = parts.headers.get("content-type");
        let is_stream = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        Events {
            headers: parts.headers,
            is_stream,
            body,
            buffer: String::new(),
        }
    }

    /// A request of the newer era, of a client that can do `capabilities`; the last message of the answer.
    pub(crate) async fn newer(
        &self,
        agent: &str,
        capabilities: Value,
        method: &str,
        params: Value,
    ) -> Value {
        let answer = self.begin(agent, capabilities, method, params).await;
        answer.last().await
    }

    /// The same, whose answer may be a stream that lasts.
    pub(crate) async fn begin(
        &self,
        agent: &str,
        capabilities: Value,
        method: &str,
        mut params: Value,
    ) -> Events {
        let meta = &mut params["_meta"];
        meta["io.modelcontextprotocol/protocolVersion"] = json!(NEWER);
        meta["io.modelcontextprotocol/clientCapabilities"] = capabilities;
        let named = ["name", "uri", "taskId"].map(|field| params[field].as_str());
        let name = named.into_iter().flatten().next();
        let name = name.unwrap_or_default().to_owned();
        let mut headers = vec![("mcp-protocol-version", NEWER), ("mcp-method", method)];
        if !name.is_empty() {
            headers.push(("mcp-name", &name));
        }
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        self.send(agent, &headers, &message).await
    }

    /// A call of the newer era by a client that can do nothing.
    pub(crate) async fn call(&self, agent: &str, tool: &str, arguments: Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments});
        self.newer(agent, json!({}), "tools/call", params).await
    }

    /// Opens a session of the older era.
    pub(crate) async fn session(&self, agent: &str, capabilities: Value) -> String {
        let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": OLDER, "capabilities": capabilities,
            "clientInfo": {"name": "test", "version": "1"},
        }});
        let answer = self.send(agent, &[], &message).await;
        answer.headers["mcp-session-id"]
            .to_str()
            .unwrap()
            .to_owned()
    }

    /// A message inside a session.
    pub(crate) async fn older(&self, agent: &str, session: &str, message: &Value) -> Events {
        let headers = [("mcp-session-id", session), ("mcp-protocol-version", OLDER)];
        self.send(agent, &headers, message).await
    }

    /// Opens the stream of a session.
    pub(crate) async fn stream(&self, agent: &str, session: &str) -> Events {
        let headers = [("mcp-session-id", session), ("mcp-protocol-version", OLDER)];
        self.exchange(agent, Method::GET, &headers, String::new())
            .await
    }

    /// A call inside a session; the last message of the answer.
    pub(crate) async fn call_in(&self, agent: &str, session: &str, tool: &str) -> Value {
        let message = request("tools/call", json!({"name": tool, "arguments": {}}));
        self.older(agent, session, &message).await.last().await
    }

    /// The agent's tools that come from the source.
    pub(crate) async fn tools(&self, agent: &str) -> Vec<Value> {
        let mut all = Vec::new();
        let mut cursor = json!({});
        loop {
            let answer = self.newer(agent, json!({}), "tools/list", cursor).await;
            all.extend(
                answer["result"]["tools"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .cloned(),
            );
            match answer["result"].get("nextCursor") {
                Some(next) => cursor = json!({"cursor": next}),
                None => break,
            }
        }
        all.retain(|tool| tool["annotations"]["openWorldHint"] == true);
        all
    }

    pub(crate) async fn names(&self, agent: &str) -> Vec<String> {
        let tools = self.tools(agent).await;
        let name = |tool: &Value| tool["name"].as_str().unwrap().to_owned();
        tools.iter().map(name).collect()
    }
}

fn settings(fast_lane: bool) -> Settings {
    Settings {
        fast_lane,
        state_key: Some("a key that all replicas have".into()),
        ..Settings::default()
    }
}

pub(crate) fn request(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

impl World {
    fn manifests(&self, upstream: SocketAddr) -> String {
        let Self {
            source,
            grant,
            approved,
        } = self;
        let pinning = match approved {
            Some(revision) => format!("  pinning: {{approvedRevision: '{revision}'}}\n"),
            None => String::new(),
        };
        format!(
            "
apiVersion: chandlery.dev/v1alpha1
kind: Workspace
metadata: {{name: lab, namespace: team}}
spec: {{}}
---
apiVersion: chandlery.dev/v1alpha1
kind: Agent
metadata: {{name: one, namespace: team}}
spec: {{workspaceRef: {{name: lab}}, tools: [crm/*]}}
---
apiVersion: chandlery.dev/v1alpha1
kind: Agent
metadata: {{name: two, namespace: team}}
spec: {{workspaceRef: {{name: lab}}, tools: [crm/*]}}
---
apiVersion: v1
kind: Secret
metadata: {{name: crm, namespace: team}}
stringData: {{token: {CANARY}}}
---
apiVersion: chandlery.dev/v1alpha1
kind: ToolSource
metadata: {{name: crm, namespace: team}}
spec:
  mcp: {{url: 'http://{upstream}/mcp'}}
  allowedHosts: [127.0.0.1]
  auth: {{bearer: {{secretKeyRef: {{name: crm, key: token}}}}}}
{pinning}{source}
---
apiVersion: chandlery.dev/v1alpha1
kind: ToolGrant
metadata: {{name: all, namespace: team}}
spec:
  workspaceRef: {{name: lab}}
  agents: {{all: true}}
  tools: [crm/*]
{grant}
"
        )
    }
}

/// An answer whose body is still coming.
pub(crate) struct Events {
    headers: HeaderMap,
    pub(crate) is_stream: bool,
    body: Incoming,
    buffer: String,
}

impl Events {
    /// The next message; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if self.is_stream {
                while let Some((event, rest)) = self.buffer.split_once("\n\n") {
                    let data = event.lines().find_map(|line| line.strip_prefix("data: "));
                    let message = data.map(|data| serde_json::from_str(data).unwrap());
                    self.buffer = rest.to_owned();
                    if message.is_some() {
                        return message;
                    }
                }
            }
            let frame = tokio::time::timeout(SOON, self.body.frame());
            match frame.await.expect("a message in time") {
                Some(frame) => {
                    let data = frame.unwrap().into_data().unwrap_or_default();
                    self.buffer.push_str(std::str::from_utf8(&data).unwrap());
                }
                None if self.buffer.is_empty() => return None,
                None => {
                    let whole = std::mem::take(&mut self.buffer);
                    return Some(serde_json::from_str(&whole).unwrap());
                }
            }
        }
    }

    pub(crate) async fn all(mut self) -> Vec<Value> {
        let mut all = Vec::new();
        while let Some(message) = self.next().await {
            all.push(message);
        }
        all
    }

    pub(crate) async fn last(self) -> Value {
        self.all().await.pop().expect("an answer")
    }
}

/// The text of a result.
pub(crate) fn text(answer: &Value) -> &str {
    let text = answer["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("no text: {answer}"))
}

/// Waits until `holds`.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + SOON;
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
