//! The cluster that this process runs in.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::Client;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// How long a program may take. Helm waits for pods within it, and cargo may have to build first.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(1800);

/// The folder where the cluster keeps its files; only known inside the cluster's network namespace.
pub fn state() -> Result<PathBuf> {
    std::env::var_os("CLUSTER_STATE")
        .map(PathBuf::from)
        .context("this test needs the test cluster: run it with `make test-cluster`, or through `tests/cluster/cluster exec`")
}

/// The root of the repository.
pub fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// A client with all rights. Make one per test: it lives on the test's own runtime.
pub async fn client() -> Result<Client> {
    state()?;
    Client::try_default()
        .await
        .context("connect to the API server")
}

/// `tests/cluster/cluster` with these arguments.
pub async fn script(arguments: &[&str]) -> Result<String> {
    run(
        concat!(env!("CARGO_MANIFEST_DIR"), "/cluster/cluster"),
        arguments,
        "",
    )
    .await
}

pub async fn kubectl(arguments: &[&str]) -> Result<String> {
    run("kubectl", arguments, "").await
}

pub async fn helm(arguments: &[&str]) -> Result<String> {
    run("helm", arguments, "").await
}

/// Runs a program and gives back its output; what it says on stderr is part of the error when it fails.
pub async fn run(program: &str, arguments: &[&str], input: &str) -> Result<String> {
    state()?;
    run_anywhere(program, arguments, input).await
}

/// The same for a program that has nothing to do with the cluster.
pub async fn run_anywhere(program: &str, arguments: &[&str], input: &str) -> Result<String> {
    let line = format!("{program} {}", arguments.join(" "));
    let mut command = Command::new(program);
    // Cargo tells a test about its package, and would take that for news when it is run again: ring watches these.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    let mut child = command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("start {line}"))?;
    let mut stdin = child.stdin.take().context("stdin is piped")?;
    let work = async {
        // A program that ends without reading it all has its own reason, and says so on stderr.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        child.wait_with_output().await
    };
    let output = tokio::time::timeout(COMMAND_TIMEOUT, work)
        .await
        .with_context(|| format!("{line}: not within {COMMAND_TIMEOUT:?}"))?
        .with_context(|| line.clone())?;
    ensure!(
        output.status.success(),
        "{line}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
