//! A real gateway process, killed in the middle of writes: what it has acknowledged is there.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use chandlery_tests::client::{Client, Endpoint, Era};
use chandlery_tests::{eventually, output, postgres, release};
use futures::future::{join_all, try_join_all};
use serde_json::json;
use sqlx::{AnyConnection, Connection, Row};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

/// Writers at once.
const CLIENTS: usize = 8;
const AGENT: &str = "default.writer";
const START: Duration = Duration::from_secs(60);

const MANIFESTS: &str = r"
apiVersion: chandlery.dev/v1alpha1
kind: Workspace
metadata: {name: team}
spec: {}
---
apiVersion: chandlery.dev/v1alpha1
kind: Agent
metadata: {name: writer}
spec: {workspaceRef: {name: team}}
";

// P1, P16
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_keeps_what_was_acknowledged_through_fifty_kills() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let store = format!("sqlite://{}/data/store.db", folder.path().display());
    killed_while_writing(folder.path(), None, &store, 50).await
}

// P1, P16
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_keeps_what_was_acknowledged_through_twenty_kills() -> Result<()> {
    if std::env::var_os("TEST_DATABASE_URL").is_none() {
        return Ok(()); // `make test` sets it
    }
    let folder = tempfile::tempdir()?;
    let store = postgres::database().await?;
    killed_while_writing(folder.path(), Some(&store), &store, 20).await
}

/// Rounds of deciding, calling and killing.
const DECISIONS: usize = 30;

// P1: killed between a person's decision and the end of the call, the gateway runs the call once or not at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approved_call_runs_at_most_once_through_kills() -> Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::create_dir(folder.path().join("manifests"))?;
    let asking = MANIFESTS.replace(
        "workspaceRef: {name: team}",
        "workspaceRef: {name: team}, permissions: {tools: {task: always_ask}}",
    );
    std::fs::write(folder.path().join("manifests/all.yaml"), asking)?;
    let program = release::programs().await?.join("chandlery");
    let start = || Gateway::start(&program, folder.path(), None);
    let (mut results, mut unknown) = (Vec::new(), 0);
    for round in 0..DECISIONS {
        let mut gateway = start().await?;
        let title = format!("round {round}");
        let create = json!({"action": "create", "payload": {"title": title, "body": "b"}});
        let asked = gateway.client.call("task", create.clone()).await?;
        let id = asked["structuredContent"]["approval_id"]
            .as_str()
            .with_context(|| format!("nobody was asked: {asked}"))?;
        let mut approve = Command::new(&program);
        approve
            .args(["approve", id, "--url", &gateway.base, "--data"])
            .arg(folder.path().join("data"));
        output(&mut approve).await?;
        let call = tokio::spawn({
            let (client, create) = (gateway.client.clone(), create.clone());
            async move { client.call("task", create).await }
        });
        sleep(Duration::from_micros(random(12_000))).await;
        gateway.kill().await?;
        let told = call.await?.ok();
        let mut gateway = start().await?;
        let again = gateway.client.call("task", create).await;
        gateway.kill().await?;
        let has_run =
            |answer: &serde_json::Value| answer["structuredContent"]["taskId"].is_string();
        match again {
            Ok(again) => {
                ensure!(has_run(&again), "{title}: {again}");
                results.push(title);
            }
            Err(refusal) => {
                let refusal = refusal.to_string();
                ensure!(
                    refusal.contains("its end is not known"),
                    "{title}: {refusal}"
                );
                ensure!(
                    !told.as_ref().is_some_and(has_run),
                    "{title}: a result was lost"
                );
                unknown += 1;
            }
        }
    }
    sqlx::any::install_default_drivers();
    let store = format!("sqlite://{}/data/store.db", folder.path().display());
    let mut connection = AnyConnection::connect(&store).await?;
    for round in 0..DECISIONS {
        let title = format!("round {round}");
        let count: i64 = sqlx::query("select count(*) from task where title = $1")
            .bind(title.clone())
            .fetch_one(&mut connection)
            .await?
            .try_get(0)?;
        let least = i64::from(results.contains(&title));
        ensure!(
            (least..=1).contains(&count),
            "{title} was made {count} times"
        );
    }
    eprintln!(
        "{DECISIONS} kills: {} calls ran once, of {unknown} the end is not known",
        results.len()
    );
    Ok(())
}

/// What one client was told is saved.
#[derive(Default)]
struct Acknowledged {
    /// Id and title.
    tasks: Vec<(String, String)>,
    /// Name and a number that only rises.
    memories: Vec<(String, u64)>,
}

async fn killed_while_writing(
    folder: &Path,
    postgres: Option<&str>,
    store: &str,
    rounds: usize,
) -> Result<()> {
    std::fs::create_dir(folder.join("manifests"))?;
    std::fs::write(folder.join("manifests/all.yaml"), MANIFESTS)?;
    let program = release::programs().await?.join("chandlery");
    let start = || Gateway::start(&program, folder, postgres);
    let mut all = Vec::new();
    for round in 0..rounds {
        let mut gateway = start().await?;
        let count = Arc::new(AtomicU64::new(0));
        let writers = (0..CLIENTS).map(|writer| {
            let (client, name) = (gateway.client.clone(), format!("r{round}-w{writer}"));
            tokio::spawn(write_until_killed(client, name, count.clone()))
        });
        let writers: Vec<_> = writers.collect();
        let enough = 1 + random(60);
        eventually("writes are acknowledged", START, async || {
            Ok((count.load(Ordering::Relaxed) >= enough).then_some(()))
        })
        .await?;
        sleep(Duration::from_millis(random(20))).await;
        gateway.kill().await?;
        for writer in join_all(writers).await {
            all.push(writer?);
        }
    }
    let mut gateway = start().await?;
    try_join_all(
        all.iter()
            .map(|acknowledged| check(&gateway.client, acknowledged)),
    )
    .await?;
    gateway.kill().await?;

    let tasks: usize = all
        .iter()
        .map(|acknowledged| acknowledged.tasks.len())
        .sum();
    let saved: u64 = all
        .iter()
        .flat_map(|acknowledged| acknowledged.memories.iter().map(|(_, saves)| saves))
        .sum();
    ensure!(tasks >= rounds, "only {tasks} tasks were acknowledged");
    // P16: and each of those calls has its row.
    let recorded = recorded(store).await?;
    ensure!(
        recorded >= i64::try_from(tasks)? + i64::try_from(saved)?,
        "{recorded} rows for {tasks} tasks and {saved} saves"
    );
    eprintln!("{rounds} kills: {tasks} tasks and {saved} saves were acknowledged, none lost");
    Ok(())
}

async fn write_until_killed(
    client: Client,
    name: String,
    acknowledged_by_all: Arc<AtomicU64>,
) -> Acknowledged {
    let mut acknowledged = Acknowledged::default();
    let memory = format!("{name}.md");
    for count in 1.. {
        let title = format!("{name} {count}");
        let create = json!({"action": "create", "payload": {"title": title, "body": "b"}});
        let Ok(created) = client.call("task", create).await else {
            break;
        };
        acknowledged_by_all.fetch_add(1, Ordering::Relaxed);
        let id = created["structuredContent"]["taskId"].as_str();
        acknowledged
            .tasks
            .push((id.unwrap_or_default().to_owned(), title));
        let save =
            json!({"action": "save", "payload": {"name": memory, "content": count.to_string()}});
        if client.call("memory", save).await.is_err() {
            break;
        }
        acknowledged.memories = vec![(memory.clone(), count)];
    }
    acknowledged
}

async fn check(client: &Client, acknowledged: &Acknowledged) -> Result<()> {
    for (id, title) in &acknowledged.tasks {
        let get = json!({"action": "get", "payload": {"taskId": id}});
        let task = client.call("task", get).await?;
        ensure!(
            task["structuredContent"]["task"]["title"] == title.as_str(),
            "{title}: {task}"
        );
    }
    for (name, saved) in &acknowledged.memories {
        let load = json!({"action": "load", "payload": {"name": name}});
        let content = client.call("memory", load).await?["content"][0]["text"].take();
        // A save that was not acknowledged may have been done.
        let found: u64 = content.as_str().unwrap_or_default().parse()?;
        ensure!(
            found == *saved || found == saved + 1,
            "{name}: {saved} was saved, {found} is there"
        );
    }
    Ok(())
}

/// Audit rows of calls that wrote.
async fn recorded(store: &str) -> Result<i64> {
    sqlx::any::install_default_drivers();
    let mut connection = AnyConnection::connect(store).await?;
    let sql = "select count(*) from audit where tool in ('task.create', 'memory.save') and outcome = 'done'";
    Ok(sqlx::query(sql)
        .fetch_one(&mut connection)
        .await?
        .try_get(0)?)
}

/// `chandlery serve`, as a process of its own.
struct Gateway {
    process: Child,
    client: Client,
    /// Its URL, without a path.
    base: String,
}

impl Gateway {
    async fn start(program: &Path, folder: &Path, postgres: Option<&str>) -> Result<Self> {
        let data = folder.join("data");
        let mut command = Command::new(program);
        command
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--health",
                "127.0.0.1:0",
                "--log",
                "error",
                "--approval-wait",
                "1ms",
                "--manifests",
            ])
            .arg(folder.join("manifests"))
            .arg("--data")
            .arg(&data)
            .env_remove("CHANDLERY_STORE_URL")
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        if let Some(url) = postgres {
            command.env("CHANDLERY_STORE_URL", url);
        }
        let mut process = command.spawn().context("start chandlery")?;
        let stdout = process.stdout.take().context("its output")?;
        let url = timeout(START, announced(stdout))
            .await
            .context("no endpoint was announced")??;
        let key = std::fs::read_to_string(key_file(&data))?;
        let uri: http::Uri = url.parse()?;
        let address: SocketAddr = uri.authority().context("an address")?.as_str().parse()?;
        let client =
            Client::connect(&Endpoint { uri, address }, key.trim(), Era::Stateless).await?;
        Ok(Self {
            process,
            client,
            base: format!("http://{address}"),
        })
    }

    /// SIGKILL.
    async fn kill(&mut self) -> Result<()> {
        Ok(self.process.kill().await?)
    }
}

/// The agent's endpoint, from what the process prints. The rest is read too, or the process would stop at a full pipe.
async fn announced(stdout: tokio::process::ChildStdout) -> Result<String> {
    let mut lines = BufReader::new(stdout).lines();
    while let Some(line) = lines.next_line().await? {
        if let Some(url) = line.trim().strip_prefix("endpoint") {
            let url = url.trim().to_owned();
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return Ok(url);
        }
    }
    anyhow::bail!("the gateway ended without serving")
}

fn key_file(data: &Path) -> PathBuf {
    data.join("keys").join(AGENT)
}

/// A number below `limit`; which one does not matter.
fn random(limit: u64) -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u64::from(now.unwrap_or_default().subsec_nanos()) / 1000 % limit
}
