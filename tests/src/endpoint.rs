//! One agent's endpoint of the real gateway library, in process: for what is about the protocol, not about a cluster.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use chandlery_crds::key::Key;
use chandlery_crds::manifest::Object;
use chandlery_crds::names;
use chandlery_gateway::audit::Audit;
use chandlery_gateway::catalog::Registry;
use chandlery_gateway::directory::files::{Files, key_file};
use chandlery_gateway::directory::{
    Agent, Directory, Holder, Principal, Publisher, Snapshot, Workspace,
};
use chandlery_gateway::families::connect::Connectors;
use chandlery_gateway::family::Family;
use chandlery_gateway::http::{self, Settings};
use chandlery_gateway::outbound::{self, Outbound};
use chandlery_gateway::pipeline::Pipeline;
use chandlery_gateway::store::{Clock, Store, StoreUrl};
use chandlery_gateway::usage::Usage;
use jiff::Timestamp;
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// For what must happen; how long it takes is not what tests are about.
const SOON: Duration = Duration::from_secs(30);

pub struct Endpoint {
    pub address: SocketAddr,
    /// Path of the endpoint.
    pub path: String,
    /// The agent's key.
    pub key: String,
    shutdown: CancellationToken,
    server: JoinHandle<io::Result<()>>,
    _publisher: Option<Publisher>,
    _data: TempDir,
}

impl Endpoint {
    /// Serves the agent `demo.agent`, which has every tool of `families`, on a loopback port.
    pub async fn start(families: Vec<Arc<dyn Family>>, settings: Settings) -> Result<Self> {
        let data = tempfile::tempdir()?;
        let store = Store::open(&StoreUrl::Sqlite(data.path().to_owned()), Clock::system()).await?;
        let (publisher, directory) = Directory::new();
        let pipeline = pipeline(Registry::new(families), &store, directory);
        let key = Key::from_random([7; 32]);
        publisher.publish(snapshot(&key)?);
        let key = key.expose().to_owned();
        let mut endpoint = Self::serve(pipeline, settings, key, data).await?;
        // It lives as long as the server, which else would take the directory for dead.
        endpoint._publisher = Some(publisher);
        Ok(endpoint)
    }

    /// Serves the agent `demo.agent`, which has every tool, resource and prompt of the MCP server at `upstream` under the
    /// names that they have there. Waits until the upstream has said what they are.
    pub async fn in_front_of(upstream: &Endpoint, settings: Settings) -> Result<Self> {
        let (data, manifests) = (tempfile::tempdir()?, tempfile::tempdir()?);
        std::fs::write(manifests.path().join("all.yaml"), front(upstream))?;
        let clock = Clock::system();
        let url = StoreUrl::Sqlite(data.path().join("store"));
        let store = Store::open(&url, clock.clone()).await?;
        let (publisher, directory) = Directory::new();
        let check = Box::new(|_: &[Object], _: Timestamp| Vec::new());
        let files = Files::open(manifests.path(), data.path(), check, clock, publisher)?;
        let connectors = Connectors {
            outbound: Outbound::new(outbound::Settings::default())?,
            references: files.references(),
            usage: Usage::start(store.clone(), Arc::default()),
        };
        let key = std::fs::read_to_string(key_file(data.path(), "demo.agent"))?;
        let pipeline = pipeline(Registry::new(Vec::new()), &store, directory);
        let mut served = pipeline.catalogs.changes();
        let endpoint = Self::serve(pipeline.clone(), settings, key, data).await?;
        let end = endpoint.shutdown.clone();
        tokio::spawn(pipeline.follow_sources(connectors).run(end.clone()));
        tokio::spawn(async move {
            let _manifests = manifests;
            files.follow(end).await;
        });
        tokio::time::timeout(SOON, served.changed())
            .await
            .context("the upstream has not said what it offers")??;
        Ok(endpoint)
    }

    async fn serve(
        pipeline: Arc<Pipeline>,
        settings: Settings,
        key: String,
        data: TempDir,
    ) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shutdown = CancellationToken::new();
        let stop = shutdown.clone();
        let server = tokio::spawn(async move {
            http::serve(listener, pipeline, settings, stop)
                .await
                .map(drop)
        });
        Ok(Self {
            address,
            path: names::agent_path("demo.agent"),
            key,
            shutdown,
            server,
            _publisher: None,
            _data: data,
        })
    }

    pub async fn stop(self) -> Result<()> {
        self.shutdown.cancel();
        self.server.await??;
        Ok(())
    }
}

fn pipeline(registry: Registry, store: &Store, directory: Directory) -> Arc<Pipeline> {
    let audit = Audit::start(store.clone(), &"audit-key".into(), Arc::default());
    Arc::new(Pipeline::new(
        registry,
        store,
        audit,
        Arc::default(),
        directory,
    ))
}

/// Manifests of an agent with one source.
fn front(upstream: &Endpoint) -> String {
    let Endpoint {
        address, path, key, ..
    } = upstream;
    format!(
        "
apiVersion: chandlery.dev/v1alpha1
kind: Workspace
metadata: {{name: team, namespace: demo}}
spec: {{}}
---
apiVersion: chandlery.dev/v1alpha1
kind: Agent
metadata: {{name: agent, namespace: demo}}
spec: {{workspaceRef: {{name: team}}, tools: [upstream/*]}}
---
apiVersion: chandlery.dev/v1alpha1
kind: ToolSource
metadata: {{name: upstream, namespace: demo}}
spec:
  mcp: {{url: 'http://{address}{path}'}}
  toolPrefix: ''
  allowedHosts: [127.0.0.1]
  auth: {{bearer: {{secretKeyRef: {{name: upstream, key: token}}}}}}
---
apiVersion: v1
kind: Secret
metadata: {{name: upstream, namespace: demo}}
stringData: {{token: {key}}}
---
apiVersion: chandlery.dev/v1alpha1
kind: ToolGrant
metadata: {{name: all, namespace: demo}}
spec:
  workspaceRef: {{name: team}}
  agents: {{all: true}}
  tools: [upstream/*]
  resources: true
  prompts: true
"
    )
}

fn snapshot(key: &Key) -> Result<Snapshot> {
    let workspace = Arc::new(Workspace {
        id: "demo.team".to_owned(),
        uid: "uid-team".to_owned(),
        generation: 1,
        account: "demo.team".to_owned(),
        spec: Default::default(),
    });
    let agent = Arc::new(Agent {
        id: "demo.agent".to_owned(),
        uid: "uid-agent".to_owned(),
        generation: 1,
        key_revision: 1,
        labels: Default::default(),
        grants: Vec::new(),
        spec: serde_json::from_value(json!({"workspaceRef": {"name": "team"}, "tools": ["*"]}))?,
        workspace,
    });
    let mut snapshot = Snapshot::default();
    let digest = key.digest();
    let holder = Holder {
        principal: Principal::Agent(agent.clone()),
        key_id: digest.id().into(),
        expires_at: None,
    };
    ensure!(snapshot.keys.insert(digest, holder).is_none());
    snapshot.agents.insert(agent.id.clone(), agent);
    Ok(snapshot)
}
