//! What the cross-crate tests share. All of it works on a real Kubernetes (`tests/cluster/cluster`) and on the real
//! charts, images and clients; nothing here pretends to be one of them.
//!
//! Tests that need the cluster run inside its network namespace: `make test-cluster`, or
//! `tests/cluster/cluster exec cargo test …`.

pub mod agents;
pub mod audit;
pub mod client;
pub mod clients;
pub mod cluster;
pub mod endpoint;
pub mod fixture;
pub mod model;
pub mod namespace;
pub mod people;
pub mod postgres;
pub mod proxy;
pub mod release;
pub mod standalone;

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::process::Command;
use tokio::time::{Instant, sleep};

/// Asks `probe` ten times a second until it gives a value; fails after `within`, naming `what`.
///
/// An error of the probe is what it saw last, not the end: much fails while something starts.
pub async fn eventually<T>(
    what: &str,
    within: Duration,
    mut probe: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + within;
    loop {
        let seen = match tokio::time::timeout_at(deadline, probe()).await {
            Ok(Ok(Some(value))) => return Ok(value),
            Ok(Ok(None)) => "it is not so yet".to_owned(),
            Ok(Err(error)) => format!("{error:#}"),
            Err(_) => "the last look did not end".to_owned(),
        };
        if Instant::now() >= deadline {
            bail!("{what}: not within {within:?}; at last: {seen}");
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// Runs a command to its end, within a minute, and gives back its standard output.
pub async fn output(command: &mut Command) -> Result<String> {
    let ran = command.kill_on_drop(true).output();
    let ran = tokio::time::timeout(Duration::from_secs(60), ran)
        .await
        .with_context(|| format!("{:?} did not end", command.as_std().get_program()))??;
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    ensure!(
        ran.status.success(),
        "{}: {text}{}",
        ran.status,
        String::from_utf8_lossy(&ran.stderr)
    );
    Ok(text)
}
