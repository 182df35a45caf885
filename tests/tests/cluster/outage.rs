//! The API server away, as agents see it: frozen, then killed.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use chandlery_crds::key::{Key, base62_of};
use chandlery_crds::names::gateway_secret;
use chandlery_tests::agents::Binding;
use chandlery_tests::client::{Endpoint, Era};
use chandlery_tests::namespace::{Namespace, alone_in_namespace};
use chandlery_tests::people::{ask, desk_with_people};
use chandlery_tests::{cluster, eventually, release};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::sleep;

const FROZEN: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(120);

// P5, P6, and the bar: "The API server stopped for 60 s, and killed and started again".
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the test cluster"]
async fn agents_are_served_while_the_api_server_is_away() {
    release::installed().await.expect("install the charts");
    alone_in_namespace(async |namespace| {
        let alice = Key::from_random([9; 32]);
        namespace.write_token(&alice).await?;
        namespace.apply(&desk_with_people()).await?;
        namespace.agents_ready().await?;
        let one = namespace.binding("one").await?;
        let let_in = async || {
            let (status, _) = ask(&one, alice.expose(), "GET", "/api/v1/me").await?;
            ensure!(status == 200, "a person's token gets {status}");
            anyhow::Ok(Some(()))
        };
        eventually("the token works", SOON, let_in).await?;

        let calls = Calls::start(one.clone());
        let frozen = Frozen::now()?;
        sleep(FROZEN).await;
        let_in().await?;
        calls.stop("while the API server was frozen").await?;
        a_gateway_that_starts_now_is_not_ready(namespace, &one).await?;
        drop(frozen);
        namespace.until_status(&one, 200, SOON).await?;
        changes_are_served(namespace, &one, false).await?;

        let calls = Calls::start(one.clone());
        signal("KILL")?;
        sleep(Duration::from_secs(5)).await;
        cluster::script(&["start", "kube-apiserver"]).await?;
        eventually("the token still works", SOON, let_in).await?;
        changes_are_served(namespace, &one, true).await?;
        calls
            .stop("while the API server was killed and started again")
            .await
    })
    .await;
}

/// A gateway that starts while nobody can tell it who is who. A process: no pod starts without an API server.
async fn a_gateway_that_starts_now_is_not_ready(
    namespace: &Namespace,
    one: &Binding,
) -> Result<()> {
    let folder = tempfile::tempdir()?;
    for name in [
        gateway_secret::INTERNAL_TOKEN,
        gateway_secret::AUDIT_KEY,
        gateway_secret::STATE_KEY,
    ] {
        std::fs::write(folder.path().join(name), base62_of(&[7; 32], 43))?;
    }
    let folder = folder.path().to_str().context("a path that is text")?;
    let account = format!("{}/desk", namespace.name);
    let _gateway = tokio::process::Command::new(release::programs().await?.join("chandlery"))
        .args([
            "serve",
            "--account",
            &account,
            "--keys",
            folder,
            "--data",
            folder,
        ])
        .args([
            "--listen",
            "127.0.0.1:18080",
            "--internal",
            "127.0.0.1:18081",
            "--health",
            "127.0.0.1:18082",
        ])
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let endpoint = Endpoint {
        uri: format!("http://127.0.0.1:18080{}", one.endpoint.uri.path()).parse()?,
        address: ([127, 0, 0, 1], 18080).into(),
    };
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}
    }})
    .to_string();
    let authorization = format!("Bearer {}", one.key);
    let answer = eventually("an answer of the new gateway", SOON, async || {
        let headers = [
            ("authorization", authorization.as_str()),
            ("accept", "application/json, text/event-stream"),
            ("content-type", "application/json"),
        ];
        endpoint
            .send("POST", &headers, hello.clone())
            .await
            .map(Some)
    })
    .await?;
    ensure!(answer.status == 503, "it answers {}", answer.status);
    ensure!(
        answer.headers.contains_key("retry-after"),
        "it says when to ask again"
    );
    Ok(())
}

async fn changes_are_served(namespace: &Namespace, one: &Binding, on: bool) -> Result<()> {
    let client = one.connect(Era::Stateless).await?;
    eventually("the API server takes a change", SOON, async || {
        namespace
            .change_agent("one", json!({"workspaceToolsEnabled": on}))
            .await
            .map(Some)
    })
    .await?;
    eventually("the change is served", SOON, async || {
        let has = client.tools().await?.contains(&"memory".to_owned());
        Ok((has == on).then_some(()))
    })
    .await
}

fn signal(name: &str) -> Result<()> {
    let script = cluster::repository().join("tests/cluster/cluster");
    let status = Command::new(script)
        .args(["signal", "kube-apiserver", name])
        .status()?;
    ensure!(status.success(), "signal {name}");
    Ok(())
}

/// The API server, stopped until this goes.
struct Frozen;

impl Frozen {
    fn now() -> Result<Self> {
        signal("STOP").map(|()| Self)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        signal("CONT").expect("thaw the API server");
    }
}

/// An agent that never stops calling.
struct Calls {
    is_over: Arc<AtomicBool>,
    caller: JoinHandle<Result<u32>>,
}

impl Calls {
    fn start(binding: Binding) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let caller = tokio::spawn(async move {
            let client = binding.connect(Era::Stateless).await?;
            let mut calls = 0;
            while !over.load(Ordering::Relaxed) {
                let began = Instant::now();
                client
                    .call("agnt_datetime_now", json!({}))
                    .await
                    .with_context(|| format!("call {calls}, {:?} long", began.elapsed()))?;
                calls += 1;
                sleep(Duration::from_millis(20)).await;
            }
            Ok(calls)
        });
        Self { is_over, caller }
    }

    /// Every call was answered, and there were some.
    async fn stop(self, when: &str) -> Result<()> {
        self.is_over.store(true, Ordering::Relaxed);
        let calls = self.caller.await?.context(when.to_owned())?;
        ensure!(calls > 10, "only {calls} calls {when}");
        Ok(())
    }
}
