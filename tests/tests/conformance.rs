//! The official conformance suite, through an agent's endpoint of the real gateway library.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, ensure};
use chandlery_gateway::http::Settings;
use chandlery_tests::clients;
use chandlery_tests::endpoint::Endpoint;
use chandlery_tests::fixture::Conformance;
use chandlery_tests::proxy::Proxy;
use serde_json::Value;
use tokio::process::Command;

/// What a gateway in front of the suite's server must answer differently, each with its reason.
const THROUGH_GATEWAY: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/conformance-through-gateway.yaml"
);

fn settings(fast_lane: bool) -> Settings {
    Settings {
        fast_lane,
        ..Settings::default()
    }
}

/// An endpoint whose tools are the suite's.
async fn fixture(fast_lane: bool) -> Result<Endpoint> {
    Endpoint::start(vec![Arc::new(Conformance::default())], settings(fast_lane)).await
}

/// Runs the suite's requirements of one revision; nothing may fail.
async fn run(requirements: &str, fast_lane: bool) -> Result<()> {
    let endpoint = fixture(fast_lane).await?;
    check(requirements, &endpoint, None).await?;
    endpoint.stop().await
}

/// The same where the suite's server is a source of another gateway, which it does not see.
async fn run_through(requirements: &str, fast_lane: bool) -> Result<()> {
    let upstream = fixture(true).await?;
    let front = Endpoint::in_front_of(&upstream, settings(fast_lane)).await?;
    check(requirements, &front, Some(THROUGH_GATEWAY)).await?;
    front.stop().await?;
    upstream.stop().await
}

/// Nothing may fail but what the file `expected` says, and that has to.
async fn check(requirements: &str, endpoint: &Endpoint, expected: Option<&str>) -> Result<()> {
    let proxy = Proxy::start(endpoint.address, &endpoint.key).await?;
    let results = tempfile::tempdir()?;
    let output = Command::new(clients::node()?)
        .arg(clients::node_program("conformance")?)
        .args(["server", "--requirements", requirements, "--url"])
        .arg(format!("http://{}{}", proxy.address, endpoint.path))
        .arg("-o")
        .arg(results.path())
        .args(
            expected
                .iter()
                .flat_map(|file| ["--expected-failures", file]),
        )
        .kill_on_drop(true)
        .output()
        .await?;
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{said}\n{complained}\n{}",
        failures(results.path())?
    );
    // A suite that could not run anything would not fail anything either.
    ensure!(said.contains("passed, 0 failed"), "{said}");
    Ok(())
}

/// The checks that failed or warn, a line each.
fn failures(results: &Path) -> Result<String> {
    let mut lines = String::new();
    for scenario in fs::read_dir(results)? {
        let scenario = scenario?;
        let checks: Vec<Value> =
            serde_json::from_slice(&fs::read(scenario.path().join("checks.json"))?)?;
        let counts = |check: &&Value| check["status"] == "FAILURE" || check["status"] == "WARNING";
        for check in checks.iter().filter(counts) {
            let name = scenario.file_name();
            writeln!(
                lines,
                "{}: {} {}",
                name.display(),
                check["id"],
                check["errorMessage"]
            )?;
        }
    }
    Ok(lines)
}

// R-C-010, for both eras and both lanes.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the clients of tests/setup"]
async fn revision_2025_11_25_on_both_lanes() -> Result<()> {
    run("2025-11-25", true).await?;
    run("2025-11-25", false).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the clients of tests/setup"]
async fn revision_2026_07_28_on_both_lanes() -> Result<()> {
    run("2026-07-28", true).await?;
    run("2026-07-28", false).await
}

// Issue: remote MCP servers, both eras, on both lanes.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the clients of tests/setup"]
async fn revision_2025_11_25_of_a_source_on_both_lanes() -> Result<()> {
    run_through("2025-11-25", true).await?;
    run_through("2025-11-25", false).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the clients of tests/setup"]
async fn revision_2026_07_28_of_a_source_on_both_lanes() -> Result<()> {
    run_through("2026-07-28", true).await?;
    run_through("2026-07-28", false).await
}
