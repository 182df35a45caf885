//! One agent's endpoint of the real gateway library, in process: for what is about the protocol, not about a cluster.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Result, ensure};
use chandlery_crds::key::Key;
use chandlery_crds::names;
use chandlery_gateway::audit::Audit;
use chandlery_gateway::catalog::Registry;
use chandlery_gateway::directory::{Agent, Directory, Holder, Principal, Snapshot, Workspace};
use chandlery_gateway::family::Family;
use chandlery_gateway::http::{self, Settings};
use chandlery_gateway::pipeline::Pipeline;
use chandlery_gateway::store::{Clock, Store, StoreUrl};
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub struct Endpoint {
    pub address: SocketAddr,
    /// Path of the endpoint.
    pub path: String,
    /// The agent's key.
    pub key: String,
    shutdown: CancellationToken,
    server: JoinHandle<io::Result<()>>,
    _data: TempDir,
}

impl Endpoint {
    /// Serves the agent `demo.agent`, which has every tool of `families`, on a loopback port.
    pub async fn start(families: Vec<Arc<dyn Family>>, settings: Settings) -> Result<Self> {
        let data = tempfile::tempdir()?;
        let store = Store::open(&StoreUrl::Sqlite(data.path().to_owned()), Clock::system()).await?;
        let (publisher, directory) = Directory::new();
        let pipeline = Arc::new(Pipeline::new(
            Registry::new(families),
            &store,
            Audit::start(store.clone(), &"audit-key".into(), Arc::default()),
            Arc::default(),
            directory,
        ));
        let key = Key::from_random([7; 32]);
        publisher.publish(snapshot(&key)?);
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shutdown = CancellationToken::new();
        let stop = shutdown.clone();
        let server = tokio::spawn(async move {
            // The publisher lives as long as the server, which else would take the directory for dead.
            let _publisher = publisher;
            http::serve(listener, pipeline, settings, stop)
                .await
                .map(drop)
        });
        Ok(Self {
            address,
            path: names::agent_path("demo.agent"),
            key: key.expose().to_owned(),
            shutdown,
            server,
            _data: data,
        })
    }

    pub async fn stop(self) -> Result<()> {
        self.shutdown.cancel();
        self.server.await??;
        Ok(())
    }
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
