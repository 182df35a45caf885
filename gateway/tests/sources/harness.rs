//! A gateway on a folder of manifests, in process or as the program itself, with its agents as clients and its people.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use chandlery_gateway::audit::Audit;
use chandlery_gateway::catalog::Registry;
use chandlery_gateway::directory::Directory;
use chandlery_gateway::directory::files::{Files, key_file, person_file};
use chandlery_gateway::families;
use chandlery_gateway::families::connect::Connectors;
use chandlery_gateway::http as gateway;
use chandlery_gateway::outbound::{self, NameServers, Outbound};
use chandlery_gateway::pipeline::Pipeline;
use chandlery_gateway::store::{Clock, Store, StoreUrl};
use http::Request;
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

use crate::dns::Dns;
pub(crate) use crate::said::Said;

const VERSION: &str = "2026-07-28";
/// For what must happen; how long it takes is not what these tests are about.
pub(crate) const SOON: Duration = Duration::from_secs(40);

pub(crate) struct Gateway {
    clients: Clients,
    /// `manifests`, `data` and, of a program, `log` lie here.
    root: TempDir,
    running: Running,
}

/// Agents and people of a gateway, with connections of their own.
pub(crate) struct Clients {
    /// Where it listens.
    pub(crate) url: String,
    data: PathBuf,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Deref for Gateway {
    type Target = Clients;

    fn deref(&self) -> &Clients {
        &self.clients
    }
}

enum Running {
    Here {
        pipeline: Arc<Pipeline>,
        stop: CancellationToken,
        tasks: Vec<JoinHandle<()>>,
    },
    Program {
        child: Program,
        health: String,
    },
}

/// A process that ends with its gateway.
struct Program(Child);

impl Gateway {
    pub(crate) async fn open(manifests: &[Value]) -> Self {
        Self::open_in(folder(manifests), None).await
    }

    /// With a name server of its own.
    pub(crate) async fn open_with(manifests: &[Value], dns: &Dns) -> Self {
        Self::open_in(folder(manifests), Some(dns)).await
    }

    /// Goes on where another gateway ended.
    pub(crate) async fn open_in(root: TempDir, dns: Option<&Dns>) -> Self {
        let data = root.path().join("data");
        let clock = Clock::system();
        let url = StoreUrl::Sqlite(data.clone());
        let store = Store::open(&url, clock.clone()).await.unwrap();
        let check = Box::new(|_: &[chandlery_crds::manifest::Object], _: Timestamp| Vec::new());
        let (publisher, directory) = Directory::new();
        let manifests = root.path().join("manifests");
        let files = Files::open(&manifests, &data, check, clock, publisher);
        let files = files.unwrap_or_else(|error| panic!("{error}"));
        let mut pipeline = Pipeline::new(
            Registry::new(families::all(&store)),
            &store,
            Audit::start(store.clone(), &"audit-key".into(), Default::default()),
            Default::default(),
            directory,
        );
        pipeline.approval_wait = Duration::ZERO;
        let pipeline = Arc::new(pipeline);
        let settings = outbound::Settings {
            // Without one nothing is asked that could answer.
            name_servers: NameServers::One(
                dns.map_or("127.0.0.1:9".parse().unwrap(), |dns| dns.address),
            ),
            ..outbound::Settings::default()
        };
        let connectors = Connectors {
            outbound: Outbound::new(settings).unwrap(),
            references: files.references(),
            usage: pipeline.usage.clone(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let stop = CancellationToken::new();
        let settings = gateway::Settings::default();
        let server = gateway::serve(listener, pipeline.clone(), settings, stop.clone());
        let tasks = vec![
            tokio::spawn(async move { drop(server.await.unwrap()) }),
            tokio::spawn(files.follow(stop.clone())),
            tokio::spawn(pipeline.follow_sources(connectors).run(stop.clone())),
        ];
        Self {
            clients: Clients::new(url, root.path().join("data")),
            root,
            running: Running::Here {
                pipeline,
                stop,
                tasks,
            },
        }
    }

    /// The program itself, with these flags more.
    pub(crate) async fn start(manifests: &[Value], flags: &[&str]) -> Self {
        let root = folder(manifests);
        let log = std::fs::File::create(root.path().join("log")).unwrap();
        let printed = root.path().join("printed");
        // Figures mean more of a program that was built to be fast.
        let program = std::env::var_os("CHANDLERY_PROGRAM");
        let child = Command::new(program.unwrap_or(env!("CARGO_BIN_EXE_chandlery").into()))
            .args(["serve", "--listen=127.0.0.1:0", "--health=127.0.0.1:0"])
            .args(["--approval-wait=0s", "--manifests=manifests", "--data=data"])
            .args(flags)
            .current_dir(root.path())
            .stdout(Stdio::from(std::fs::File::create(&printed).unwrap()))
            .stderr(log)
            .spawn()
            .unwrap();
        let shown = |name: &str| {
            let text = std::fs::read_to_string(&printed).unwrap_or_default();
            // The last line has its end once it is whole.
            let lines = text
                .split_inclusive('\n')
                .filter(|line| line.ends_with('\n'));
            let found = lines.rev().find_map(|line| line.strip_prefix(name));
            found.map(|rest| rest.trim().to_owned())
        };
        let deadline = Instant::now() + SOON;
        let url = loop {
            if let Some(url) = shown("serving ") {
                break url;
            }
            assert!(
                Instant::now() < deadline,
                "{}",
                std::fs::read_to_string(root.path().join("log")).unwrap()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let health = shown("health ").unwrap().replace("/readyz", "");
        Self {
            clients: Clients::new(url, root.path().join("data")),
            root,
            running: Running::Program {
                child: Program(child),
                health,
            },
        }
    }

    /// Ends; what it knew stays.
    pub(crate) async fn close(self) -> TempDir {
        match self.running {
            Running::Here {
                pipeline,
                stop,
                tasks,
            } => {
                stop.cancel();
                for task in tasks {
                    tokio::time::timeout(SOON, task).await.unwrap().unwrap();
                }
                pipeline.audit.close().await;
                pipeline.usage.close().await;
                pipeline.store.close().await;
            }
            Running::Program { mut child, .. } => {
                let id = child.0.id().to_string();
                let kill = Command::new("kill").args(["-TERM", &id]).status();
                assert!(kill.unwrap().success());
                let ended = tokio::task::spawn_blocking(move || child.0.wait().unwrap());
                assert!(ended.await.unwrap().success());
            }
        }
        self.root
    }

    /// Replaces one file of manifests.
    pub(crate) fn write(&self, file: &str, manifests: &[Value]) {
        write(&self.root.path().join("manifests").join(file), manifests);
    }

    /// Replaces the manifests that it began with.
    pub(crate) fn apply(&self, manifests: &[Value]) {
        self.write("all.yaml", manifests);
    }

    /// Id of the program's process.
    pub(crate) fn process(&self) -> String {
        let Running::Program { child, .. } = &self.running else {
            panic!("it is no program");
        };
        child.0.id().to_string()
    }

    /// Resident memory of the program, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kib: u64 = line
            .unwrap()
            .split_whitespace()
            .nth(1)
            .unwrap()
            .parse()
            .unwrap();
        kib * 1024
    }

    /// The program's metrics.
    pub(crate) async fn metrics(&self) -> String {
        let Running::Program { health, .. } = &self.running else {
            panic!("it is no program");
        };
        let request = Request::get(format!("{health}/metrics"));
        self.exchange(request.body(Full::default()).unwrap())
            .await
            .1
    }
}

impl Clients {
    fn new(url: String, data: PathBuf) -> Self {
        Self {
            url,
            data,
            client: Client::builder(TokioExecutor::new()).build_http(),
        }
    }

    /// The same agents and people elsewhere.
    pub(crate) fn others(&self) -> Self {
        Self::new(self.url.clone(), self.data.clone())
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> (u16, String) {
        let response = tokio::time::timeout(SOON, self.client.request(request))
            .await
            .expect("an answer in time")
            .unwrap();
        let status = response.status().as_u16();
        let body = tokio::time::timeout(SOON, response.into_body().collect());
        let body = body.await.expect("a body that ends").unwrap().to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    /// Asks as `team.<agent>`; the whole answer.
    pub(crate) async fn ask(&self, agent: &str, method: &str, mut params: Value) -> Value {
        let meta = &mut params["_meta"];
        meta["io.modelcontextprotocol/protocolVersion"] = json!(VERSION);
        meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
        let name = params["name"].as_str().or(params["uri"].as_str());
        let name = name.unwrap_or_default().to_owned();
        let key = std::fs::read_to_string(key_file(&self.data, &format!("team.{agent}")));
        let url = format!("{}/runtime/agents/team.{agent}/mcp", self.url);
        let mut request = Request::post(url)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("authorization", format!("Bearer {}", key.unwrap().trim()))
            .header("mcp-protocol-version", VERSION)
            .header("mcp-method", method);
        if !name.is_empty() {
            request = request.header("mcp-name", name);
        }
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let request = request.body(Full::from(message.to_string())).unwrap();
        let (_, text) = self.exchange(request).await;
        let mut lines = text.lines().rev();
        let data = lines.find_map(|line| line.strip_prefix("data: "));
        serde_json::from_str(data.unwrap_or(&text)).unwrap_or_else(|_| panic!("not JSON: {text}"))
    }

    /// The agent's list.
    pub(crate) async fn tools(&self, agent: &str) -> Vec<Value> {
        let answer = self.ask(agent, "tools/list", json!({})).await;
        let tools = answer["result"]["tools"].as_array();
        tools.unwrap_or_else(|| panic!("no list: {answer}")).clone()
    }

    /// Names on the agent's list, the built-in tools left out.
    pub(crate) async fn list(&self, agent: &str) -> Vec<String> {
        let tools = self.tools(agent).await;
        let names = tools.iter().map(|tool| tool["name"].as_str().unwrap());
        let names = names.filter(|name| !is_built_in(name));
        names.map(str::to_owned).collect()
    }

    /// The tool as it is listed.
    pub(crate) async fn tool(&self, agent: &str, name: &str) -> Value {
        let tools = self.tools(agent).await;
        let found = tools.iter().find(|tool| tool["name"] == name);
        found.unwrap_or_else(|| panic!("no {name}")).clone()
    }

    /// Waits until the agent's list is this one, the built-in tools left out.
    pub(crate) async fn until_listed(&self, agent: &str, names: &[&str]) {
        let deadline = Instant::now() + SOON;
        loop {
            let list = self.list(agent).await;
            if list == names {
                return;
            }
            if Instant::now() > deadline {
                let sources = self.sources().await;
                assert_eq!(list, names, "{sources:#?}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) async fn call(&self, agent: &str, tool: &str, arguments: Value) -> Said {
        Said::of(&self.result(agent, tool, arguments).await)
    }

    pub(crate) async fn result(&self, agent: &str, tool: &str, arguments: Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments});
        self.ask(agent, "tools/call", params).await
    }

    /// The whole text of what a client of the older era is answered, in a session of its own.
    pub(crate) async fn in_session(&self, agent: &str, tool: &str) -> String {
        let key = std::fs::read_to_string(key_file(&self.data, &format!("team.{agent}"))).unwrap();
        let url = format!("{}/runtime/agents/team.{agent}/mcp", self.url);
        let post = |session: Option<&str>, message: Value| {
            let mut request = Request::post(&url)
                .header("content-type", "application/json")
                .header("accept", "application/json, text/event-stream")
                .header("authorization", format!("Bearer {}", key.trim()));
            if let Some(session) = session {
                request = request.header("mcp-session-id", session);
            }
            request.body(Full::from(message.to_string())).unwrap()
        };
        let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }});
        let opened = self.client.request(post(None, initialize)).await.unwrap();
        let session = opened.headers()["mcp-session-id"]
            .to_str()
            .unwrap()
            .to_owned();
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": {}}});
        self.exchange(post(Some(&session), call)).await.1
    }

    /// Asks the REST API as the person whose token lies in the data folder.
    pub(crate) async fn api(&self, method: &str, path: &str) -> Value {
        let token = std::fs::read_to_string(person_file(&self.data, "admin")).unwrap();
        let request = Request::builder()
            .method(method)
            .uri(format!("{}/api/v1{path}", self.url))
            .header("authorization", format!("Bearer {}", token.trim()))
            .header("content-type", "application/json")
            .body(Full::from(if method == "POST" { "{}" } else { "" }))
            .unwrap();
        let (status, text) = self.exchange(request).await;
        assert!(status < 300, "{path}: {status} {text}");
        serde_json::from_str(&text).unwrap()
    }

    /// What is known of all sources.
    pub(crate) async fn sources(&self) -> Vec<Value> {
        let answer = self.api("GET", "/sources").await;
        answer["items"].as_array().unwrap().clone()
    }

    /// Waits until `is_so` of what is known of a source.
    pub(crate) async fn until(&self, source: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + SOON;
        let id = format!("team.{source}");
        loop {
            let sources = self.sources().await;
            let found = sources.iter().find(|known| known["id"] == *id);
            if let Some(found) = found.filter(|found| is_so(found)) {
                return found.clone();
            }
            assert!(Instant::now() < deadline, "{source}: {found:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Usage rows of a provider, newest first, once there are `count`.
    pub(crate) async fn usage(&self, provider: &str, count: usize) -> Vec<Value> {
        let deadline = Instant::now() + SOON;
        loop {
            let answer = self
                .api("GET", &format!("/usage?provider={provider}"))
                .await;
            let items = answer["items"].as_array().unwrap().clone();
            if items.len() >= count || Instant::now() > deadline {
                assert_eq!(items.len(), count, "{items:#?}");
                return items;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_built_in(name: &str) -> bool {
    name.starts_with("agnt_") || ["task", "memory", "skills", "workspace", "help"].contains(&name)
}

fn folder(manifests: &[Value]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("manifests")).unwrap();
    write(&root.path().join("manifests/all.yaml"), manifests);
    root
}

fn write(path: &Path, manifests: &[Value]) {
    // JSON is YAML.
    let all: Vec<String> = manifests.iter().map(Value::to_string).collect();
    std::fs::write(path, all.join("\n---\n")).unwrap();
}

pub(crate) fn workspace() -> Value {
    object("Workspace", "lab", json!({}))
}

/// An Agent of the Workspace `lab` with `spec` beside it.
pub(crate) fn agent(name: &str, mut spec: Value) -> Value {
    spec["workspaceRef"] = json!({"name": "lab"});
    object("Agent", name, spec)
}

/// A ToolGrant of these entries for all agents, with `spec` beside it.
pub(crate) fn grant(name: &str, tools: &[&str], mut spec: Value) -> Value {
    spec["workspaceRef"] = json!({"name": "lab"});
    spec["tools"] = json!(tools);
    if spec["agents"].is_null() {
        spec["agents"] = json!({"all": true});
    }
    object("ToolGrant", name, spec)
}

/// A ToolSource that may use 127.0.0.3, where the tests' upstreams listen.
pub(crate) fn source(name: &str, mut spec: Value) -> Value {
    if spec["allowedHosts"].is_null() {
        spec["allowedHosts"] = json!(["127.0.0.3"]);
    }
    object("ToolSource", name, spec)
}

pub(crate) fn secret(name: &str, value: &str, hosts: Option<&str>) -> Value {
    let mut secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "team"},
        "stringData": {"value": value},
    });
    if let Some(hosts) = hosts {
        secret["metadata"]["annotations"] = json!({"chandlery.dev/allowed-hosts": hosts});
    }
    secret
}

pub(crate) fn config_map(name: &str, key: &str, text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "team"},
        "data": {key: text},
    })
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "chandlery.dev/v1alpha1", "kind": kind,
        "metadata": {"name": name, "namespace": "team"}, "spec": spec,
    })
}
