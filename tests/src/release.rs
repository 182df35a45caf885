//! Our charts, installed as people install them, with images of the programs as they are now.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tokio::sync::OnceCell;

use crate::cluster::{self, helm, kubectl, repository, run};

/// Where the operator runs.
pub const NAMESPACE: &str = "chandlery-system";
/// The user that the operator is for the API server.
pub const OPERATOR_USER: &str = "system:serviceaccount:chandlery-system:chandlery-operator";

const UPGRADE: [&str; 6] = [
    "upgrade",
    "--install",
    "--wait",
    "--timeout=180s",
    "--namespace",
    NAMESPACE,
];

/// Installs or upgrades the CRDs, and waits until they are served. Once per process: Helm refuses two at a time.
pub async fn crds() -> Result<()> {
    static DONE: OnceCell<()> = OnceCell::const_new();
    DONE.get_or_try_init(async || {
        let system = format!(
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: {NAMESPACE}, labels: {{pod-security.kubernetes.io/enforce: restricted}}}}}}"
        );
        run("kubectl", &["apply", "--filename=-"], &system).await?;
        helm(&[&UPGRADE[..], &["chandlery-crds", &chart("chandlery-crds")]].concat()).await?;
        let names = ["workspaces", "agents", "toolsources", "toolgrants"].map(|plural| format!("crd/{plural}.chandlery.dev"));
        let wait = ["wait", "--for=condition=Established", "--timeout=60s"];
        kubectl(&[&wait[..], &names.each_ref().map(String::as_str)].concat()).await.map(drop)
    })
    .await
    .copied()
}

/// Installs or upgrades both charts, and waits for the operator. Once per process; whoever needs an operator calls it.
pub async fn installed() -> Result<()> {
    static DONE: OnceCell<()> = OnceCell::const_new();
    DONE.get_or_try_init(async || {
        crds().await?;
        let (gateway, operator) = images().await?;
        let tags = format!(
            "image.tag={},gateway.image.tag={}",
            tag(&operator)?,
            tag(&gateway)?
        );
        let installed = helm(
            &[
                &UPGRADE[..],
                &["chandlery", &chart("chandlery"), "--set", &tags],
            ]
            .concat(),
        )
        .await;
        if let Err(error) = installed {
            let pods = kubectl(&["describe", "pods", "--namespace", NAMESPACE])
                .await
                .unwrap_or_default();
            return Err(error.context(format!("{pods}\n{}", operator_log().await)));
        }
        Ok(())
    })
    .await
    .copied()
}

fn chart(name: &str) -> String {
    repository().join("charts").join(name).display().to_string()
}

/// The last lines of the operator's log.
pub async fn operator_log() -> String {
    let arguments = [
        "logs",
        "--namespace",
        NAMESPACE,
        "--selector=app.kubernetes.io/component=operator",
        "--tail=200",
    ];
    kubectl(&arguments)
        .await
        .unwrap_or_else(|error| format!("{error:#}"))
}

/// Names of the images of gateway and operator.
pub async fn images() -> Result<(String, String)> {
    let programs = programs().await?;
    Ok((
        image(&programs, "chandlery").await?,
        image(&programs, "chandlery-operator").await?,
    ))
}

/// The folder of the programs, made once per process from what this test was built with: same profile, same artifacts.
pub async fn programs() -> Result<PathBuf> {
    static BUILT: OnceCell<PathBuf> = OnceCell::const_new();
    BUILT.get_or_try_init(build).await.cloned()
}

async fn build() -> Result<PathBuf> {
    let this = std::env::current_exe()?;
    // <target>/<triple>/<profile>/deps/<this>
    let up = |levels: usize| {
        this.ancestors()
            .nth(levels)
            .context("a test lies in cargo's target directory")
    };
    let (programs, target) = (up(2)?, up(4)?);
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let profile = match programs.file_name().and_then(OsStr::to_str) {
        Some("debug") | None => "dev",
        Some(profile) => profile,
    };
    let manifest = repository().join("Cargo.toml").display().to_string();
    let target = format!("--target-dir={}", target.display());
    cluster::run_anywhere(
        &cargo,
        // The selection decides which features dependencies have; with a test among it, the ones that tests have.
        &[
            "build",
            "--quiet",
            "--locked",
            "--offline",
            "--workspace",
            "--bins",
            "--test=cluster",
            "--profile",
            profile,
            "--manifest-path",
            &manifest,
            &target,
        ],
        "",
    )
    .await?;
    Ok(programs.to_owned())
}

async fn image(programs: &Path, name: &str) -> Result<String> {
    let program: PathBuf = programs.join(name);
    let image = cluster::script(&["image", &program.display().to_string()]).await?;
    Ok(image.trim().to_owned())
}

fn tag(image: &str) -> Result<&str> {
    image
        .rsplit_once(':')
        .map(|(_, tag)| tag)
        .context("an image has a tag")
}
