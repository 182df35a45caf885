//! The operator under kill -9, in pairs, and without an API server: keys and status stay what they are.
//!
//! Here it runs as a process of this machine, so that it can be killed at any moment, but with the service account of
//! the release: with the rights that the chart gives it, and with what the status policy lets it write.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use chandlery_crds::conditions::is_true;
use chandlery_crds::key::Key;
use chandlery_crds::{Agent, AgentStatus, Workspace, names};
use chandlery_tests::client::Endpoint;
use chandlery_tests::namespace::{Namespace, alone_in_namespace, in_namespace};
use chandlery_tests::{audit, cluster, eventually, release};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

/// A loaded machine is slow, and nobody promised a figure for what waits this long.
const PATIENCE: Duration = Duration::from_secs(240);

/// What a process needs to be the operator.
struct Stage {
    folder: TempDir,
    gateway_image: String,
}

/// A running operator; killed when it is dropped.
struct Operator {
    child: Child,
    health: SocketAddr,
}

impl Stage {
    /// Takes the release's own operator away, so that those of the test are the only ones.
    async fn set() -> Result<Self> {
        release::installed().await?;
        let (gateway_image, _) = release::images().await?;
        scale(0).await?;
        let folder = TempDir::new()?;
        let token =
            kubectl_in_release(&["create", "token", "chandlery-operator", "--duration=2h"]).await?;
        let mut config: serde_json::Value = serde_json::from_str(
            &cluster::kubectl(&["config", "view", "--raw", "--output=json"]).await?,
        )?;
        config["users"][0]["user"] = json!({ "token": token.trim() });
        std::fs::write(folder.path().join("kubeconfig"), config.to_string())?;
        Ok(Self {
            folder,
            gateway_image,
        })
    }

    fn start(&self, arguments: &[&str]) -> Result<Operator> {
        static NEXT: AtomicU16 = AtomicU16::new(18_100);
        let health = SocketAddr::from(([127, 0, 0, 1], NEXT.fetch_add(1, Ordering::Relaxed)));
        let this = std::env::current_exe()?;
        let program = this
            .ancestors()
            .nth(2)
            .context("a test lies in cargo's folder")?
            .join("chandlery-operator");
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.log())?;
        let child = Command::new(program)
            .arg(format!("--gateway-image={}", self.gateway_image))
            .arg("--gateway-image-pull-policy=Never")
            .arg(format!("--health={health}"))
            .arg(format!("--lease-namespace={}", release::NAMESPACE))
            .args(arguments)
            .env("KUBECONFIG", self.folder.path().join("kubeconfig"))
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("start the operator")?;
        Ok(Operator { child, health })
    }

    fn log(&self) -> std::path::PathBuf {
        self.folder.path().join("log")
    }

    /// Gives the release its operator back.
    async fn strike(self) -> Result<()> {
        scale(1).await
    }
}

impl Operator {
    async fn kill(mut self) -> Result<()> {
        self.child.kill().await.context("kill the operator")
    }

    async fn terminate(&mut self) -> Result<()> {
        let id = self.child.id().context("the operator runs")?.to_string();
        cluster::run("kill", &["-TERM", &id], "").await?;
        let status = self.child.wait().await?;
        ensure!(status.success(), "the operator ended with {status}");
        Ok(())
    }

    async fn leads(&self) -> Result<bool> {
        let stream = tokio::net::TcpStream::connect(self.health).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let request = http::Request::get("/metrics")
            .header("host", "operator")
            .body(String::new())?;
        let body = sender
            .send_request(request)
            .await?
            .into_body()
            .collect()
            .await?
            .to_bytes();
        connection.abort();
        Ok(String::from_utf8(body.to_vec())?
            .lines()
            .any(|line| line == "chandlery_operator_leader 1"))
    }
}

async fn scale(replicas: u8) -> Result<()> {
    kubectl_in_release(&[
        "scale",
        "deployment/chandlery-operator",
        &format!("--replicas={replicas}"),
    ])
    .await?;
    match replicas {
        0 => {
            let selector = "--selector=app.kubernetes.io/component=operator";
            kubectl_in_release(&["wait", "--for=delete", "pods", selector, "--timeout=120s"]).await
        }
        _ => {
            kubectl_in_release(&[
                "rollout",
                "status",
                "deployment/chandlery-operator",
                "--timeout=120s",
            ])
            .await
        }
    }
    .map(drop)
}

async fn kubectl_in_release(arguments: &[&str]) -> Result<String> {
    cluster::kubectl(&[&["--namespace", release::NAMESPACE], arguments].concat()).await
}

/// Runs `test` with operators of its own, alone in the cluster; prints their log when it fails.
async fn on_stage(test: impl AsyncFnOnce(&Namespace, &Stage) -> Result<()>) {
    alone_in_namespace(async |namespace| {
        let stage = Stage::set().await?;
        let outcome = test(namespace, &stage).await;
        if outcome.is_err() {
            let log = std::fs::read_to_string(stage.log()).unwrap_or_default();
            let tail: Vec<&str> = log.lines().rev().take(60).collect();
            eprintln!(
                "--- operators\n{}",
                tail.into_iter().rev().collect::<Vec<_>>().join("\n")
            );
        }
        let struck = stage.strike().await;
        outcome.and(struck)
    })
    .await;
}

const WORKSPACE: &str =
    "{apiVersion: chandlery.dev/v1alpha1, kind: Workspace, metadata: {name: crew}, spec: {}}\n";

fn agents(count: usize, spec: &str) -> String {
    (0..count)
        .map(|number| format!("---\n{}", agent(&format!("agent-{number:03}"), spec)))
        .collect()
}

fn agent(name: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: chandlery.dev/v1alpha1, kind: Agent, metadata: {{name: {name}}}, spec: {{workspaceRef: {{name: crew}}, {spec}}}}}\n"
    )
}

/// Waits until there are `count` Agents and each says `condition`.
async fn all_agents(
    namespace: &Namespace,
    count: usize,
    condition: &str,
    within: Duration,
) -> Result<Vec<Agent>> {
    eventually(
        &format!("{count} Agents are {condition}"),
        within,
        async || {
            let agents = namespace
                .api::<Agent>()
                .list(&ListParams::default())
                .await?
                .items;
            let good = agents.iter().filter(|agent| is(agent, condition)).count();
            match good {
                _ if good == count => Ok(Some(agents)),
                _ => bail!("{good} of {} are", agents.len()),
            }
        },
    )
    .await
}

fn is(agent: &Agent, condition: &str) -> bool {
    let status = agent.status.clone().unwrap_or_default();
    status.observed_generation == agent.metadata.generation
        && is_true(&status.conditions, condition)
}

async fn status_of(namespace: &Namespace, name: &str) -> Result<AgentStatus> {
    Ok(namespace
        .api::<Agent>()
        .get(name)
        .await?
        .status
        .unwrap_or_default())
}

async fn annotate(namespace: &Namespace, name: &str, value: &str) -> Result<()> {
    let patch = json!({ "metadata": { "annotations": { names::ROTATE_KEY_ANNOTATION: value } } });
    namespace
        .api::<Agent>()
        .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .map(drop)?;
    Ok(())
}

/// Whatever the operator stores that must not change by itself.
#[derive(Debug, PartialEq)]
struct Stored {
    secret_version: Option<String>,
    status: AgentStatus,
}

async fn stored(namespace: &Namespace) -> Result<BTreeMap<String, Stored>> {
    let secrets = namespace
        .api::<Secret>()
        .list(&ListParams::default())
        .await?;
    let versions: BTreeMap<String, Option<String>> = secrets
        .iter()
        .map(|secret| (secret.name_any(), secret.resource_version()))
        .collect();
    let agents = namespace
        .api::<Agent>()
        .list(&ListParams::default())
        .await?;
    Ok(agents
        .iter()
        .map(|agent| {
            let name = agent.name_any();
            let secret_version = versions.get(&names::agent_secret(&name)).cloned().flatten();
            (
                name,
                Stored {
                    secret_version,
                    status: agent.status.clone().unwrap_or_default(),
                },
            )
        })
        .collect())
}

async fn token(namespace: &Namespace, agent: &str) -> Result<String> {
    let secret = namespace
        .api::<Secret>()
        .get(&names::agent_secret(agent))
        .await?;
    let value = secret
        .data
        .and_then(|mut data| data.remove("token"))
        .context("the Secret has a token")?;
    Ok(String::from_utf8(value.0)?)
}

/// Calls an agent's endpoint all the time, as a client that reads its key again before each call.
async fn caller(
    namespace: &Namespace,
    name: &str,
    is_over: &AtomicBool,
    calls: &AtomicU32,
) -> Result<()> {
    let url = status_of(namespace, name)
        .await?
        .endpoint
        .context("a ready agent has an endpoint")?;
    let endpoint = Endpoint::of_service(&namespace.client, &url).await?;
    while !is_over.load(Ordering::Relaxed) {
        let key = token(namespace, name).await?;
        let status = endpoint.status_for(&key).await?;
        ensure!(
            status.is_success(),
            "call {} of {name}: {status}",
            calls.load(Ordering::Relaxed)
        );
        calls.fetch_add(1, Ordering::Relaxed);
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

// P3, P7: 50 restarts by kill -9 with 100 Agents, five of which rotate meanwhile.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the test cluster"]
async fn restarts_change_nothing_but_what_a_rotation_asks_for() {
    on_stage(async |namespace, stage| {
        let operator = stage.start(&["--leader-elect=false"])?;
        namespace
            .apply(&(WORKSPACE.to_owned() + &agents(100, "key: {overlap: 10s}")))
            .await?;
        all_agents(namespace, 100, "Ready", PATIENCE).await?;
        operator.kill().await?;
        let before = stored(namespace).await?;

        let rotating: Vec<String> = (0..5)
            .map(|number| format!("agent-{:03}", number * 20))
            .collect();
        let is_over = AtomicBool::new(false);
        let calls = AtomicU32::new(0);
        let restarts = async {
            for round in 0..50_usize {
                if round % 10 == 3 {
                    annotate(namespace, &rotating[round / 10], "now").await?;
                }
                let operator = stage.start(&["--leader-elect=false"])?;
                sleep(Duration::from_millis((round as u64 * 379) % 1_500)).await;
                operator.kill().await?;
            }
            let operator = stage.start(&["--leader-elect=false"])?;
            for name in &rotating {
                eventually(&format!("{name} has rotated"), PATIENCE, async || {
                    let status = status_of(namespace, name).await?;
                    let is_done = status.observed_rotate_key.as_deref() == Some("now")
                        && status.keys.len() == 1;
                    Ok((is_done && is_true(&status.conditions, "Served")).then_some(()))
                })
                .await?;
            }
            is_over.store(true, Ordering::Relaxed);
            operator.kill().await
        };
        let callers = rotating
            .iter()
            .map(|name| caller(namespace, name, &is_over, &calls));
        let callers = futures::future::try_join_all(callers);
        tokio::try_join!(restarts, callers)?;
        ensure!(calls.load(Ordering::Relaxed) > 100, "the callers called");

        let after = stored(namespace).await?;
        for (name, before) in &before {
            let after = after.get(name).context("no Agent has gone")?;
            if !rotating.contains(name) {
                assert_eq!(before, after, "{name} was not to change");
                continue;
            }
            // Prepared, activated, retired: three changes of the keys, whatever was interrupted in between.
            assert_eq!(
                after.status.key_revision,
                before.status.key_revision + 3,
                "{name}"
            );
            assert_ne!(after.status.keys, before.status.keys, "{name}");
            let key =
                Key::parse(&token(namespace, name).await?).context("the Secret holds a key")?;
            assert_eq!(
                after.status.keys[0].digest,
                key.digest().to_string(),
                "{name}"
            );
        }
        Ok(())
    })
    .await;
}

// P3: without election, with two that work on the same Agents at the same moment.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the test cluster"]
async fn two_operators_at_once_make_one_key_each() {
    on_stage(async |namespace, stage| {
        let both = [
            stage.start(&["--leader-elect=false"])?,
            stage.start(&["--leader-elect=false"])?,
        ];
        let mark = audit::mark()?;
        namespace
            .apply(&(WORKSPACE.to_owned() + &agents(200, "")))
            .await?;
        let agents = all_agents(namespace, 200, "Ready", PATIENCE).await?;
        for agent in &agents {
            let name = agent.name_any();
            let status = agent.status.clone().unwrap_or_default();
            let key = token(namespace, &name).await?;
            let digest = Key::parse(&key)
                .context("the Secret holds a key")?
                .digest()
                .to_string();
            let digests: Vec<&String> = status.keys.iter().map(|key| &key.digest).collect();
            assert_eq!(digests, [&digest], "{name}");
            assert_eq!(status.key_revision, 1, "{name}");
            let endpoint =
                Endpoint::of_service(&namespace.client, &status.endpoint.context("an endpoint")?)
                    .await?;
            let answer = endpoint.status_for(&key).await?;
            assert!(answer.is_success(), "{name} opens its endpoint: {answer}");
        }
        for operator in both {
            operator.kill().await?;
        }
        let made = audit::since(mark, |user| user == release::OPERATOR_USER)?
            .iter()
            .filter(|event| {
                event.verb == "create"
                    && event
                        .response_status
                        .as_ref()
                        .is_some_and(|status| status.code == 201)
            })
            .filter_map(|event| event.object_ref.as_ref())
            .filter(|object| object.resource == "secrets" && object.namespace == namespace.name)
            .count();
        assert_eq!(
            made, 202,
            "a Secret for each Agent, one for the Workspace, one for its gateway"
        );
        Ok(())
    })
    .await;
}

// P4: a standby leads within 20 s of a kill -9, and within 2 s of a SIGTERM.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the test cluster"]
async fn a_standby_takes_over() {
    on_stage(async |namespace, stage| {
        namespace.apply(WORKSPACE).await?;
        let first = stage.start(&[])?;
        becomes_leader(&first, Duration::from_secs(30)).await?;
        let mut second = stage.start(&[])?;
        let third = stage.start(&[])?;
        sleep(Duration::from_secs(4)).await;
        ensure!(
            !second.leads().await? && !third.leads().await?,
            "one leads at a time"
        );

        first.kill().await?;
        let started = Instant::now();
        let second_leads = tokio::select! {
            leads = becomes_leader(&second, Duration::from_secs(20)) => { leads?; true }
            leads = becomes_leader(&third, Duration::from_secs(20)) => { leads?; false }
        };
        eprintln!("led {:?} after kill -9", started.elapsed());
        let mut third = third;
        let (leader, standby) = if second_leads {
            (&mut second, &third)
        } else {
            (&mut third, &second)
        };
        ensure!(!standby.leads().await?, "one leads at a time");

        let started = Instant::now();
        let (ended, led) = tokio::join!(
            leader.terminate(),
            becomes_leader(standby, Duration::from_secs(2))
        );
        ended?;
        led?;
        eprintln!("led {:?} after SIGTERM", started.elapsed());
        namespace.apply(&agent("late", "")).await?;
        all_agents(namespace, 1, "KeyReady", Duration::from_secs(60))
            .await
            .map(drop)
    })
    .await;
}

async fn becomes_leader(operator: &Operator, within: Duration) -> Result<()> {
    eventually("an operator leads", within, async || {
        Ok(operator.leads().await?.then_some(()))
    })
    .await
}

// P5: the operator's side of an outage. Nothing changes, and what is asked for afterwards is done.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the test cluster"]
async fn an_outage_of_the_api_server_changes_nothing() {
    on_stage(async |namespace, stage| {
        let mut operator = stage.start(&["--leader-elect=true"])?;
        namespace
            .apply(&(WORKSPACE.to_owned() + &agents(10, "")))
            .await?;
        all_agents(namespace, 10, "Ready", PATIENCE).await?;
        let before = stored(namespace).await?;

        // It hangs: connections stay open, and nothing answers.
        cluster::script(&["signal", "kube-apiserver", "STOP"]).await?;
        sleep(Duration::from_secs(60)).await;
        cluster::script(&["signal", "kube-apiserver", "CONT"]).await?;
        works_again(namespace, &mut operator, "after-stop").await?;

        // It dies: connections break and are refused.
        cluster::script(&["signal", "kube-apiserver", "KILL"]).await?;
        sleep(Duration::from_secs(5)).await;
        cluster::script(&["start", "kube-apiserver"]).await?;
        works_again(namespace, &mut operator, "after-kill").await?;

        let after = stored(namespace).await?;
        for (name, before) in &before {
            assert_eq!(Some(before), after.get(name), "{name} was not to change");
        }
        operator.kill().await
    })
    .await;
}

async fn works_again(namespace: &Namespace, operator: &mut Operator, name: &str) -> Result<()> {
    ensure!(
        operator.child.try_wait()?.is_none(),
        "the operator lives on"
    );
    eventually("the API server answers", PATIENCE, async || {
        namespace.apply(&agent(name, "")).await.map(Some)
    })
    .await?;
    eventually("a new Agent has its key", PATIENCE, async || {
        Ok(is_true(&status_of(namespace, name).await?.conditions, "Ready").then_some(()))
    })
    .await
}

// Nothing of other people's is overwritten; what was lost is made anew; what is archived is gone for good.
#[tokio::test]
#[ignore = "needs the test cluster"]
async fn secrets_are_only_written_where_they_are_ours() {
    release::installed().await.expect("install the release");
    in_namespace(async |namespace| {
        let foreign = "{apiVersion: v1, kind: Secret, metadata: {name: agent-taken-mcp}, stringData: {token: mine}}\n";
        namespace.apply(&format!("{foreign}---\n{WORKSPACE}---\n{}---\n{}", agent("taken", ""), agent("free", ""))).await?;
        let ready = async |name: &str, reason: &str| {
            eventually(&format!("{name} says {reason}"), PATIENCE, async || {
                let status = status_of(namespace, name).await?;
                let said = status.conditions.iter().find(|condition| condition.type_ == "KeyReady");
                Ok(said.filter(|said| said.reason == reason).map(|_| status.clone()))
            })
            .await
        };
        ready("taken", "SecretConflict").await?;
        assert_eq!(token(namespace, "taken").await?, "mine");
        let events = namespace.kubectl(&["get", "events.events.k8s.io", "--output=yaml"]).await?;
        assert!(events.contains("reason: SecretConflict"), "{events}");

        // Twice, and the second time counts in the Event of the first.
        let mut keys = ready("free", "KeyMinted").await?.keys;
        for look in ["again", "once-more"] {
            namespace.kubectl(&["delete", "secret", "agent-free-mcp"]).await?;
            let label = format!("look={look}");
            namespace.kubectl(&["label", "--overwrite", "agents.chandlery.dev/free", &label]).await?;
            keys = eventually("a lost key is made anew", PATIENCE, async || {
                let now = status_of(namespace, "free").await?.keys;
                Ok((now != keys && now.len() == 1).then_some(now))
            })
            .await?;
            let digest = Key::parse(&token(namespace, "free").await?).context("a key")?.digest().to_string();
            assert_eq!(keys[0].digest, digest);
        }
        let counted = "--output=jsonpath={.items[?(@.reason==\"KeyRegenerated\")].series.count}";
        eventually("the Event counts", PATIENCE, async || {
            let count = namespace.kubectl(&["get", "events.events.k8s.io", counted]).await?;
            Ok((count.trim() == "2").then_some(()))
        })
        .await?;

        let archive = json!({ "spec": { "state": "Archived" } });
        namespace.api::<Agent>().patch("free", &PatchParams::default(), &Patch::Merge(&archive)).await?;
        let archived = ready("free", "Archived").await?;
        assert_eq!(archived.keys, []);
        assert!(namespace.api::<Secret>().get_opt("agent-free-mcp").await?.is_none());

        // Deleting takes along what is ours, and leaves what is not.
        let workspace = namespace.api::<Workspace>().get("crew").await?;
        assert!(workspace.metadata.finalizers.is_none());
        namespace.kubectl(&["delete", "chandlery", "--all", "--timeout=30s"]).await?;
        eventually("nothing of ours is left but the claim", PATIENCE, async || {
            let kinds = "deployments,services,serviceaccounts,roles,rolebindings,networkpolicies,poddisruptionbudgets,secrets";
            let left = namespace
                .kubectl(&["get", kinds, "--selector=app.kubernetes.io/managed-by=chandlery-operator", "--output=name"])
                .await?;
            if left.is_empty() { Ok(Some(())) } else { bail!("{left}") }
        })
        .await?;
        assert_eq!(token(namespace, "taken").await?, "mine");
        let claims = namespace.kubectl(&["get", "persistentvolumeclaims", "--output=name"]).await?;
        assert_eq!(claims.trim(), "persistentvolumeclaim/gateway-crew-store");
        Ok(())
    })
    .await;
}
