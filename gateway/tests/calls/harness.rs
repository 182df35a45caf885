use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use chandlery_gateway::audit::Audit;
use chandlery_gateway::catalog::Registry;
use chandlery_gateway::directory::{Agent, Directory, Publisher, Workspace};
use chandlery_gateway::families;
use chandlery_gateway::family::{Client, RpcError};
use chandlery_gateway::pipeline::{Answer, Patience, Pipeline, Request};
use chandlery_gateway::store::{Clock, Store, StoreUrl};
use chandlery_gateway::tool::{ErrorKind, Output, ToolError};
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sqlx::{AnyConnection, Connection};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// A database that a test has to itself.
pub(crate) struct Database {
    pub(crate) url: StoreUrl,
    _folder: Option<TempDir>,
}

impl Database {
    /// One of each kind that is there.
    pub(crate) async fn each() -> Vec<Self> {
        let mut all = vec![Self::sqlite()];
        if let Ok(server) = std::env::var("TEST_DATABASE_URL") {
            all.push(Self::postgres(&server).await);
        }
        all
    }

    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path: PathBuf = folder.path().join("a folder with % and #");
        Self {
            url: StoreUrl::Sqlite(path),
            _folder: Some(folder),
        }
    }

    /// A store that is there already.
    pub(crate) fn at(url: StoreUrl) -> Self {
        Self { url, _folder: None }
    }

    /// Another replica's view of a PostgreSQL database.
    pub(crate) fn beside(url: &StoreUrl) -> Self {
        let StoreUrl::Postgres(url) = url else {
            panic!("SQLite has one writer");
        };
        Self {
            url: StoreUrl::Postgres(url.clone()),
            _folder: None,
        }
    }

    /// A schema of its own on `server`.
    pub(crate) async fn postgres(server: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let schema = format!("t{}_{count}", std::process::id());
        sqlx::any::install_default_drivers();
        let mut connection = AnyConnection::connect(server).await.unwrap();
        let sql = format!("drop schema if exists {schema} cascade; create schema {schema}");
        let sql = sqlx::raw_sql(sqlx::AssertSqlSafe(sql));
        sql.execute(&mut connection).await.unwrap();
        let joint = if server.contains('?') { '&' } else { '?' };
        let url = format!("{server}{joint}options[search_path]={schema}");
        Self {
            url: StoreUrl::Postgres(url.into()),
            _folder: None,
        }
    }

    pub(crate) async fn open(&self) -> Store {
        Store::open(&self.url, Clock::system()).await.unwrap()
    }
}

/// Every family of the product over a database, and a clock that the test can move.
pub(crate) struct Gateway {
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) store: Store,
    _publisher: Publisher,
    later: Arc<AtomicI64>,
    database: Database,
}

impl Gateway {
    pub(crate) async fn each() -> Vec<Self> {
        let mut all = Vec::new();
        for database in Database::each().await {
            all.push(Self::on(database).await);
        }
        all
    }

    pub(crate) async fn on(database: Database) -> Self {
        let later = Arc::new(AtomicI64::new(0));
        let clock = Clock::from_fn({
            let later = later.clone();
            move || Timestamp::now() + Duration::from_secs(later.load(Ordering::Relaxed) as u64)
        });
        let store = Store::open(&database.url, clock.clone()).await.unwrap();
        let (publisher, directory) = Directory::new();
        let pipeline = Arc::new(Pipeline::new(
            Registry::new(families::all(&store)),
            &store,
            Audit::start(store.clone(), &"audit-key".into(), Default::default()),
            Default::default(),
            directory,
        ));
        Self {
            pipeline,
            store,
            _publisher: publisher,
            later,
            database,
        }
    }

    /// Where the store is.
    pub(crate) fn url(&self) -> &StoreUrl {
        &self.database.url
    }

    pub(crate) fn pass_time(&self, time: Duration) {
        let seconds = i64::try_from(time.as_secs()).unwrap();
        self.later.fetch_add(seconds, Ordering::Relaxed);
    }

    pub(crate) async fn answer(&self, agent: &Caller, tool: &str, arguments: Value) -> Answer {
        let request = Request {
            agent: agent.agent.clone(),
            key_id: "k1".into(),
            tool: tool.to_owned(),
            arguments: RawValue::from_string(arguments.to_string()).unwrap(),
            worker: agent.worker.map(str::to_owned),
            client: Arc::new(NoClient),
            patience: Patience::Wait,
            cancelled: CancellationToken::new(),
        };
        self.pipeline.call(request).await
    }

    /// Calls and expects that it works.
    pub(crate) async fn ok(&self, agent: &Caller, tool: &str, arguments: Value) -> Output {
        match self.answer(agent, tool, arguments.clone()).await {
            Answer::Done(output) => output,
            other => panic!("{tool} {arguments}: {other:?}"),
        }
    }

    /// The text of a call that works.
    pub(crate) async fn text(&self, agent: &Caller, tool: &str, arguments: Value) -> String {
        match self.ok(agent, tool, arguments).await {
            Output::Text(text) | Output::Structured { text, .. } => text,
            Output::Raw(result) => String::from_utf8(result.to_vec()).unwrap(),
            Output::NeedsInput(value) | Output::Task { task: value, .. } => value.to_string(),
        }
    }

    /// The structured content of a call that works.
    pub(crate) async fn value(&self, agent: &Caller, tool: &str, arguments: Value) -> Value {
        match self.ok(agent, tool, arguments).await {
            Output::Structured { value, .. } => value,
            other => panic!("{tool}: {other:?}"),
        }
    }

    /// The text of a call whose arguments are refused.
    pub(crate) async fn refusal(&self, agent: &Caller, tool: &str, arguments: Value) -> String {
        match self.answer(agent, tool, arguments.clone()).await {
            Answer::Failed(ToolError {
                kind: ErrorKind::Arguments,
                message,
            }) => message,
            other => panic!("{tool} {arguments}: {other:?}"),
        }
    }
}

/// An agent that calls.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) agent: Arc<Agent>,
    worker: Option<&'static str>,
}

impl Caller {
    /// The agent `demo.<name>` of the Workspace `demo.<workspace>`.
    pub(crate) fn new(name: &str, workspace: &str) -> Self {
        Self::with_spec(name, workspace, json!({}))
    }

    pub(crate) fn with_spec(name: &str, workspace: &str, spec: Value) -> Self {
        Self::of(name, workspace, spec, json!({}))
    }

    /// An agent of a Workspace with this spec.
    pub(crate) fn in_workspace(name: &str, workspace: &str, spec_of_workspace: Value) -> Self {
        Self::of(name, workspace, json!({}), spec_of_workspace)
    }

    fn of(name: &str, workspace: &str, mut spec: Value, spec_of_workspace: Value) -> Self {
        spec["workspaceRef"] = json!({"name": workspace});
        let id = format!("demo.{workspace}");
        let workspace = Workspace {
            account: id.clone(),
            uid: format!("uid-of-{id}"),
            id,
            generation: 1,
            spec: serde_json::from_value(spec_of_workspace).unwrap(),
        };
        let agent = Agent {
            id: format!("demo.{name}"),
            uid: format!("uid-of-{name}"),
            generation: 1,
            key_revision: 1,
            labels: Default::default(),
            grants: Vec::new(),
            spec: serde_json::from_value(spec).unwrap(),
            workspace: Arc::new(workspace),
        };
        Self {
            agent: Arc::new(agent),
            worker: None,
        }
    }

    /// An agent that was deleted and made again: the same but for its UID.
    pub(crate) fn made_again(&self) -> Self {
        let Agent {
            id,
            uid,
            generation,
            key_revision,
            labels,
            spec,
            grants,
            workspace,
        } = &*self.agent;
        let agent = Agent {
            id: id.clone(),
            uid: format!("{uid}-again"),
            generation: *generation,
            key_revision: *key_revision,
            labels: labels.clone(),
            spec: spec.clone(),
            grants: grants.clone(),
            workspace: workspace.clone(),
        };
        Self {
            agent: Arc::new(agent),
            worker: self.worker,
        }
    }

    pub(crate) fn worker(&self, worker: &'static str) -> Self {
        Self {
            worker: Some(worker),
            ..self.clone()
        }
    }
}

/// A client that can do nothing but call.
struct NoClient;

impl Client for NoClient {
    fn protocol_version(&self) -> &str {
        "2026-07-28"
    }

    fn capabilities(&self) -> Value {
        json!({})
    }

    fn progress_token(&self) -> Option<Value> {
        None
    }

    fn retry(&self) -> Option<Value> {
        None
    }

    fn notify(&self, _: &str, _: Value) -> BoxFuture<'_, Result<(), RpcError>> {
        Box::pin(async { Ok(()) })
    }

    fn request(&self, method: &str, _: Value) -> BoxFuture<'_, Result<Value, RpcError>> {
        let message = format!("Method not found: {method}");
        Box::pin(async {
            Err(RpcError {
                code: -32601,
                message,
                data: None,
            })
        })
    }
}
