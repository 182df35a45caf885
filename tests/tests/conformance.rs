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

/// Runs the suite's requirements of one revision; nothing may fail.
async fn run(requirements: &str, fast_lane: bool) -> Result<()> {
    let settings = Settings {
        fast_lane,
        ..Settings::default()
    };
    let endpoint = Endpoint::start(vec![Arc::new(Conformance::default())], settings).await?;
    let proxy = Proxy::start(endpoint.address, &endpoint.key).await?;
    let results = tempfile::tempdir()?;
    let output = Command::new(clients::node()?)
        .arg(clients::node_program("conformance")?)
        .args(["server", "--requirements", requirements, "--url"])
        .arg(format!("http://{}{}", proxy.address, endpoint.path))
        .arg("-o")
        .arg(results.path())
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
    endpoint.stop().await
}

/// The checks that failed, a line each.
fn failures(results: &Path) -> Result<String> {
    let mut lines = String::new();
    for scenario in fs::read_dir(results)? {
        let scenario = scenario?;
        let checks: Vec<Value> =
            serde_json::from_slice(&fs::read(scenario.path().join("checks.json"))?)?;
        for check in checks.iter().filter(|check| check["status"] == "FAILURE") {
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
