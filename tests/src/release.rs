//! The charts on the cluster, installed once per process: Helm refuses two installations of one release at a time.

use anyhow::Result;
use tokio::sync::OnceCell;

use crate::cluster;

/// Namespace of the releases.
pub const NAMESPACE: &str = "chandlery-system";

/// Installs or upgrades the CRDs, and waits until they are served.
pub async fn crds() -> Result<()> {
    static DONE: OnceCell<()> = OnceCell::const_new();
    DONE.get_or_try_init(async || {
        let chart = cluster::repository().join("charts/chandlery-crds");
        let chart = chart.to_string_lossy();
        let to = ["--namespace", NAMESPACE, "--create-namespace"];
        cluster::helm(&[&["upgrade", "--install", "chandlery-crds", &chart], &to[..]].concat())
            .await?;
        let served = [
            "wait",
            "--for=condition=Established",
            "--timeout=60s",
            "crd",
        ];
        let crds = ["workspaces", "agents", "toolsources", "toolgrants"]
            .map(|plural| format!("{plural}.chandlery.dev"));
        let crds = crds.each_ref().map(String::as_str);
        cluster::kubectl(&[&served[..], &crds].concat())
            .await
            .map(drop)
    })
    .await
    .copied()
}
