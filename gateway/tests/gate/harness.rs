//! A gateway in process that serves a folder of manifests, its agents as clients, and its people.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use chandlery_gateway::audit::Audit;
use chandlery_gateway::catalog::Registry;
use chandlery_gateway::directory::Directory;
use chandlery_gateway::directory::files::{Files, key_file, person_file};
use chandlery_gateway::families;
use chandlery_gateway::family::Family;
use chandlery_gateway::http::{self as gateway, Settings};
use chandlery_gateway::pipeline::Pipeline;
use chandlery_gateway::store::{Clock, Store, StoreUrl};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) use crate::said::Said;
use crate::seeds::{Executed, Seeds};

const NEWER: &str = "2026-07-28";
const OLDER: &str = "2025-11-25";
/// For what must happen; how long it takes is not what these tests are about.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// A Workspace and what everything else is about.
pub(crate) const WORKSPACE: &str = "
apiVersion: chandlery.dev/v1alpha1
kind: Workspace
metadata: {name: lab, namespace: team}
spec: {}
";

pub(crate) struct Desk {
    pub(crate) address: SocketAddr,
    pub(crate) executed: Arc<Executed>,
    pub(crate) pipeline: Arc<Pipeline>,
    manifests: TempDir,
    data: TempDir,
    later: Arc<AtomicI64>,
    directory: Directory,
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
    client: Client<HttpConnector, Full<Bytes>>,
}

/// How a gateway differs from the product's.
#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) approval_wait: Duration,
    pub(crate) bulk: usize,
    pub(crate) slow_lane: bool,
}

impl Desk {
    /// Serves `manifests`; a call that waits for a person says so at once.
    pub(crate) async fn open(manifests: &str) -> Self {
        Self::open_with(manifests, Setup::default()).await
    }

    pub(crate) async fn open_with(manifests: &str, setup: Setup) -> Self {
        let data = tempfile::tempdir().unwrap();
        let url = StoreUrl::Sqlite(data.path().join("store"));
        Self::open_on(manifests, setup, data, url).await
    }

    pub(crate) async fn open_on(
        manifests: &str,
        setup: Setup,
        data: TempDir,
        url: StoreUrl,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("all.yaml"), manifests).unwrap();
        let later = Arc::new(AtomicI64::new(0));
        let clock = Clock::from_fn({
            let later = later.clone();
            move || Timestamp::now() + Duration::from_millis(later.load(Ordering::Relaxed) as u64)
        });
        let store = Store::open(&url, clock.clone()).await.unwrap();
        let executed = Arc::new(Executed::default());
        let mut all = families::all(&store);
        let seeds: Arc<dyn Family> = Arc::new(Seeds {
            executed: executed.clone(),
            bulk: setup.bulk,
        });
        all.push(seeds);
        let registry = Registry::new(all);
        let check = Box::new(|_: &[chandlery_crds::manifest::Object], _: Timestamp| Vec::new());
        let (publisher, directory) = Directory::new();
        let files = Files::open(folder.path(), data.path(), check, clock, publisher)
            .unwrap_or_else(|error| panic!("{error}"));
        let mut pipeline = Pipeline::new(
            registry,
            &store,
            Audit::start(store.clone(), &"audit-key".into(), Default::default()),
            Default::default(),
            directory.clone(),
        );
        pipeline.approval_wait = setup.approval_wait;
        let pipeline = Arc::new(pipeline);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let settings = Settings {
            fast_lane: !setup.slow_lane,
            ..Settings::default()
        };
        let server = gateway::serve(listener, pipeline.clone(), settings, stop.clone());
        let tasks = vec![
            tokio::spawn(async move { drop(server.await.unwrap()) }),
            tokio::spawn(files.follow(stop.clone())),
        ];
        Self {
            address,
            executed,
            pipeline,
            manifests: folder,
            data,
            later,
            directory,
            stop,
            tasks,
            client: Client::builder(TokioExecutor::new()).build_http(),
        }
    }

    /// Replaces the manifests and waits until they are served.
    pub(crate) async fn apply(&self, manifests: &str) {
        let mut changes = self.directory.changes();
        changes.mark_unchanged();
        std::fs::write(self.manifests.path().join("all.yaml"), manifests).unwrap();
        tokio::time::timeout(SOON, changes.changed())
            .await
            .expect("the change is served")
            .unwrap();
    }

    pub(crate) fn pass_time(&self, time: Duration) {
        let ms = i64::try_from(time.as_millis()).unwrap();
        self.later.fetch_add(ms, Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.pipeline.clock.now()
    }

    fn key(&self, agent: &str) -> String {
        let file = key_file(self.data.path(), &format!("team.{agent}"));
        read(file)
    }

    pub(crate) async fn close(self) -> TempDir {
        self.stop.cancel();
        for task in self.tasks {
            tokio::time::timeout(SOON, task).await.unwrap().unwrap();
        }
        self.pipeline.audit.close().await;
        self.data
    }

    /// Sends a request as `team.<agent>`.
    async fn send(
        &self,
        agent: &str,
        headers: &[(&str, &str)],
        message: &Value,
    ) -> (StatusCode, HashMap<String, String>, String) {
        let url = format!("http://{}/runtime/agents/team.{agent}/mcp", self.address);
        let mut request = Request::post(url)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("authorization", format!("Bearer {}", self.key(agent)));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::from(message.to_string())).unwrap();
        self.exchange(request).await
    }

    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
    ) -> (StatusCode, HashMap<String, String>, String) {
        let response = tokio::time::timeout(SOON, self.client.request(request))
            .await
            .expect("an answer in time")
            .unwrap();
        let status = response.status();
        let headers = response
            .headers()
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect();
        let body = tokio::time::timeout(SOON, response.into_body().collect());
        let body = body.await.expect("a body that ends").unwrap().to_bytes();
        (status, headers, String::from_utf8_lossy(&body).into_owned())
    }

    /// A request of the newer era; the whole answer.
    pub(crate) async fn newer(&self, agent: &str, method: &str, mut params: Value) -> Value {
        let meta = &mut params["_meta"];
        meta["io.modelcontextprotocol/protocolVersion"] = json!(NEWER);
        if meta["io.modelcontextprotocol/clientCapabilities"].is_null() {
            meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
        }
        let name = params["name"].as_str().unwrap_or_default().to_owned();
        let mut headers = vec![("mcp-protocol-version", NEWER), ("mcp-method", method)];
        if !name.is_empty() {
            headers.push(("mcp-name", &name));
        }
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let (_, _, text) = self.send(agent, &headers, &message).await;
        last_message(&text)
    }

    /// Opens a session of the older era.
    pub(crate) async fn session(&self, agent: &str) -> String {
        let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": OLDER, "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "test", "version": "1"},
        }});
        let (_, headers, _) = self.send(agent, &[], &message).await;
        headers["mcp-session-id"].clone()
    }

    /// A request inside a session.
    pub(crate) async fn older(
        &self,
        agent: &str,
        session: &str,
        method: &str,
        params: Value,
    ) -> Value {
        let headers = [("mcp-session-id", session), ("mcp-protocol-version", OLDER)];
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let (_, _, text) = self.send(agent, &headers, &message).await;
        last_message(&text)
    }

    /// Names on the agent's list.
    pub(crate) async fn list(&self, agent: &str) -> Vec<String> {
        let tools = self.tools(agent).await;
        let name = |tool: &Value| tool["name"].as_str().unwrap().to_owned();
        tools.iter().map(name).collect()
    }

    /// The agent's list.
    pub(crate) async fn tools(&self, agent: &str) -> Vec<Value> {
        let answer = self.newer(agent, "tools/list", json!({})).await;
        let tools = answer["result"]["tools"].as_array();
        tools.unwrap_or_else(|| panic!("no list: {answer}")).clone()
    }

    /// Calls a tool; the answer in words.
    pub(crate) async fn call(&self, agent: &str, tool: &str, arguments: Value) -> Said {
        let params = json!({"name": tool, "arguments": arguments});
        Said::of(&self.newer(agent, "tools/call", params).await)
    }

    /// Asks the REST API as the person whose token lies in the data folder.
    pub(crate) async fn api(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let token = read(person_file(self.data.path(), "admin"));
        self.api_as(&token, method, path, body).await
    }

    pub(crate) async fn api_as(
        &self,
        token: &str,
        method: &str,
        path: &str,
        body: Value,
    ) -> (u16, Value) {
        let url = format!("http://{}/api/v1{path}", self.address);
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let request = Request::builder()
            .method(Method::from_bytes(method.as_bytes()).unwrap())
            .uri(url)
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", "application/json")
            .body(Full::from(body))
            .unwrap();
        let (status, _, text) = self.exchange(request).await;
        let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
        described(method, path, status.as_u16(), &value);
        (status.as_u16(), value)
    }

    pub(crate) fn manifest_file(&self) -> PathBuf {
        self.manifests.path().join("all.yaml")
    }

    /// A data folder with the same UIDs and keys, for another replica.
    pub(crate) fn copy_of_identities(&self) -> TempDir {
        let copy = tempfile::tempdir().unwrap();
        let from = self.data.path();
        std::fs::copy(
            from.join("identities.json"),
            copy.path().join("identities.json"),
        )
        .unwrap();
        for folder in ["keys", "people"] {
            std::fs::create_dir(copy.path().join(folder)).unwrap();
            for file in std::fs::read_dir(from.join(folder)).unwrap() {
                let file = file.unwrap();
                let to = copy.path().join(folder).join(file.file_name());
                std::fs::copy(file.path(), to).unwrap();
            }
        }
        copy
    }

    /// An agent's key, for what it must not open.
    pub(crate) fn key_of(&self, agent: &str) -> String {
        self.key(agent)
    }

    /// Ids of the approvals that are pending, newest first.
    pub(crate) async fn pending(&self) -> Vec<String> {
        let (status, answer) = self
            .api("GET", "/approvals?state=pending", Value::Null)
            .await;
        assert_eq!(status, 200, "{answer}");
        let items = answer["items"].as_array().unwrap().iter();
        items
            .map(|item| item["id"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Approves, and says how that went.
    pub(crate) async fn approve(&self, id: &str) -> u16 {
        let path = format!("/approvals/{id}/approve");
        self.api("POST", &path, Value::Null).await.0
    }
}

fn last_message(text: &str) -> Value {
    let mut lines = text.lines().rev();
    let data = lines.find_map(|line| line.strip_prefix("data: "));
    serde_json::from_str(data.unwrap_or(text)).unwrap_or_else(|_| panic!("not JSON: {text}"))
}

fn read(file: PathBuf) -> String {
    std::fs::read_to_string(&file)
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()))
        .trim()
        .to_owned()
}

/// An Agent of the Workspace `lab`, with this spec beside it.
pub(crate) fn agent(name: &str, spec: &str) -> String {
    format!(
        "
---
apiVersion: chandlery.dev/v1alpha1
kind: Agent
metadata: {{name: {name}, namespace: team, labels: {{tier: gold}}}}
spec: {{workspaceRef: {{name: lab}}{}{spec}}}
",
        if spec.is_empty() { "" } else { ", " }
    )
}

/// A ToolGrant of the Workspace `lab`, with this spec beside it.
pub(crate) fn grant(name: &str, spec: &str) -> String {
    format!(
        "
---
apiVersion: chandlery.dev/v1alpha1
kind: ToolGrant
metadata: {{name: {name}, namespace: team}}
spec: {{workspaceRef: {{name: lab}}, {spec}}}
"
    )
}

/// The Workspace `lab` with this spec.
pub(crate) fn workspace(spec: &str) -> String {
    WORKSPACE.replace("spec: {}", &format!("spec: {{{spec}}}"))
}

/// The URL of a schema of its own on a PostgreSQL server.
pub(crate) async fn schema_of_its_own(server: &str, name: &str) -> String {
    use sqlx::Connection as _;
    sqlx::any::install_default_drivers();
    let schema = format!("gate_{name}_{}", std::process::id());
    let mut connection = sqlx::AnyConnection::connect(server).await.unwrap();
    let sql = format!("drop schema if exists {schema} cascade; create schema {schema}");
    let sql = sqlx::raw_sql(sqlx::AssertSqlSafe(sql));
    sql.execute(&mut connection).await.unwrap();
    let joint = if server.contains('?') { '&' } else { '?' };
    format!("{server}{joint}options[search_path]={schema}")
}

/// The description of the REST API.
pub(crate) fn openapi() -> &'static Value {
    static OPENAPI: LazyLock<Value> = LazyLock::new(|| {
        serde_json::from_str(include_str!("../../src/http/api/openapi.json")).unwrap()
    });
    &OPENAPI
}

/// Every answer of the API is as its description says.
#[track_caller]
fn described(method: &str, path: &str, status: u16, answer: &Value) {
    let path = path.split('?').next().unwrap_or_default();
    let fits = |template: &str| {
        template.split('/').count() == path.split('/').count()
            && template
                .split('/')
                .zip(path.split('/'))
                .all(|(one, other)| one.starts_with('{') || one == other)
    };
    let paths = openapi()["paths"].as_object().unwrap();
    let Some((_, operations)) = paths.iter().find(|(template, _)| fits(template)) else {
        assert_eq!(status, 404, "{path} is not described");
        return;
    };
    let operation = &operations[method.to_lowercase()];
    if operation.is_null() {
        assert_eq!(status, 405, "{method} {path} is not described");
        return;
    }
    let response = &operation["responses"][status.to_string()];
    assert!(
        response.is_object(),
        "{method} {path} does not say {status}: {answer}"
    );
    let schema = &response["content"]["application/json"]["schema"];
    if let Some(schema) = schema.as_object() {
        let mut schema = schema.clone();
        schema.insert("components".to_owned(), openapi()["components"].clone());
        let validator = jsonschema::validator_for(&schema.into()).unwrap();
        let errors: Vec<String> = validator
            .iter_errors(answer)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{method} {path}: {errors:?} in {answer}");
    }
}
