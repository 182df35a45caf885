//! The operator: makes in the cluster what Chandlery's resources describe.

mod api;
mod context;
mod controllers;
mod health;
mod keys;
mod lease;
mod metrics;
mod objects;
mod replicas;
mod rights;
mod settings;
mod watches;

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use tracing_subscriber::EnvFilter;

use crate::api::Cluster;
use crate::health::Health;
use crate::metrics::Metrics;
use crate::settings::{Command, LogFormat, Settings};

/// How long one connection attempt to the API server may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

fn main() -> anyhow::Result<()> {
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok()
        .context("install the TLS provider")?;
    let settings = match settings::read()? {
        Command::Run(settings) => *settings,
        Command::PrintRights => {
            let rights =
                serde_json::to_string_pretty(rights::RIGHTS).context("print the rights")?;
            return writeln!(std::io::stdout(), "{rights}").context("print the rights");
        }
    };
    let logs = tracing_subscriber::fmt()
        .with_env_filter(
            EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info")),
        )
        .with_writer(std::io::stderr);
    match settings.log_format {
        LogFormat::Json => logs.json().flatten_event(true).init(),
        LogFormat::Text => logs.init(),
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("start the runtime")?;
    runtime.block_on(run(settings))
}

async fn run(settings: Settings) -> anyhow::Result<()> {
    let mut config = kube::Config::infer()
        .await
        .context("find out how to reach the API server")?;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    let client = kube::Client::try_from(config).context("set up the API server's client")?;
    let health = Arc::new(Health {
        metrics: Metrics::new(),
        ready: AtomicBool::new(false),
    });
    let shutdown = CancellationToken::new();

    let mut tasks = JoinSet::new();
    let served = health::serve(settings.health, health.clone(), shutdown.clone());
    tasks.spawn(served);
    tasks.spawn(end_on_signal(shutdown.clone()));
    let (leading_sender, mut leading) = watch::channel(settings.lease.is_none());
    let mut election = JoinSet::new();
    if let Some(lease) = settings.lease.clone() {
        election.spawn(lease::run(
            client.clone(),
            lease,
            leading_sender,
            shutdown.clone(),
        ));
    }
    info!(version = env!("CARGO_PKG_VERSION"), scopes = ?settings.scopes, "the operator starts");

    let work = async {
        wait_for_api_server(&client).await;
        health.ready.store(true, Ordering::Relaxed);
        loop {
            if leading.wait_for(|&leads| leads).await.is_err() {
                return;
            }
            health.metrics.leader.set(1);
            tokio::select! {
                () = work(&client, &settings, &health) => warn!("the work has ended; it begins anew"),
                lost = leading.wait_for(|&leads| !leads) => {
                    warn!("another replica works now");
                    if lost.is_err() { return }
                }
            }
            health.metrics.leader.set(0);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    // Dropping the work ends it at its next await; every reconcile survives that.
    let failed = tokio::select! {
        () = work => None,
        () = shutdown.cancelled() => None,
        Some(ended) = tasks.join_next() => Some(ended),
    };
    shutdown.cancel();
    if let Some(lease) = &settings.lease {
        // A renewal that is under way would undo the release.
        let ended = async { while election.join_next().await.is_some() {} };
        if tokio::time::timeout(Duration::from_secs(2), ended)
            .await
            .is_ok()
        {
            lease::release(client, lease).await;
        }
    }
    match failed {
        Some(ended) => ended.context("a task of the operator was ended")?,
        None => Ok(()),
    }
}

/// Looks after every scope until it is dropped.
async fn work(client: &kube::Client, settings: &Settings, health: &Arc<Health>) {
    let cluster = Cluster::new(client.clone());
    let scopes = settings.scopes.iter().map(|scope| {
        Box::pin(controllers::run(
            cluster.clone(),
            settings,
            scope,
            health.clone(),
        ))
    });
    futures::future::select_all(scopes).await;
}

async fn wait_for_api_server(client: &kube::Client) {
    loop {
        match tokio::time::timeout(CONNECT_TIMEOUT, client.apiserver_version()).await {
            Ok(Ok(_)) => return,
            Ok(Err(_)) | Err(_) => warn!("the API server does not answer yet"),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn end_on_signal(shutdown: CancellationToken) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    info!("the operator stops");
    shutdown.cancel();
    Ok(())
}
