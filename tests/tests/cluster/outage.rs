//! The API server away, as agents see it: frozen, then killed.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use chandlery_tests::agents::{Binding, DESK};
use chandlery_tests::client::Era;
use chandlery_tests::namespace::{Namespace, alone_in_namespace};
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
        namespace.apply(DESK).await?;
        namespace.agents_ready().await?;
        let one = namespace.binding("one").await?;

        let calls = Calls::start(one.clone());
        let frozen = Frozen::now()?;
        sleep(FROZEN).await;
        calls.stop("while the API server was frozen").await?;
        a_gateway_that_starts_now_is_not_ready(namespace, &one).await?;
        drop(frozen);
        namespace.until_status(&one, 200, SOON).await?;
        changes_are_served(namespace, &one, false).await?;

        let calls = Calls::start(one.clone());
        signal("KILL")?;
        sleep(Duration::from_secs(5)).await;
        cluster::script(&["start", "kube-apiserver"]).await?;
        changes_are_served(namespace, &one, true).await?;
        calls
            .stop("while the API server was killed and started again")
            .await
    })
    .await;
}

/// Kills the gateway: the kubelet starts it again, without an API server to ask.
async fn a_gateway_that_starts_now_is_not_ready(
    namespace: &Namespace,
    one: &Binding,
) -> Result<()> {
    let account = format!("--account\0{}/desk\0", namespace.name);
    for entry in std::fs::read_dir("/proc")? {
        let process = entry?.path();
        let command = std::fs::read(process.join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&command).contains(&account) {
            let id = process.file_name().context("a process id")?;
            ensure!(
                Command::new("kill")
                    .arg("-KILL")
                    .arg(id)
                    .status()?
                    .success()
            );
        }
    }
    eventually("503 from the gateway that starts anew", SOON, async || {
        let answer = one
            .endpoint
            .send(
                "POST",
                &[("authorization", &format!("Bearer {}", one.key))],
                String::new(),
            )
            .await?;
        ensure!(
            ![401, 403].contains(&answer.status.as_u16()),
            "a false {}",
            answer.status
        );
        let may_retry = answer.headers.contains_key("retry-after");
        Ok((answer.status == 503 && may_retry).then_some(()))
    })
    .await
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
        Ok(((client.tools().await?.len() > 1) == on).then_some(()))
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
