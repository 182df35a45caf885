//! `/livez`, `/readyz` and `/metrics`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

/// What the health port tells.
pub(crate) struct Health {
    pub(crate) metrics: Metrics,
    /// Ready: has spoken with the API server, and works or stands by.
    pub(crate) ready: AtomicBool,
}

/// Serves until `shutdown`.
pub(crate) async fn serve(
    address: SocketAddr,
    health: Arc<Health>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::bind(address)
        .await
        .with_context(|| format!("listen on {address} for health and metrics"))?;
    let router = Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(health);
    axum::serve(listener, router)
        .with_graceful_shutdown(shutdown.cancelled_owned())
        .await
        .context("serve health and metrics")
}

async fn readyz(State(health): State<Arc<Health>>) -> (StatusCode, &'static str) {
    match health.ready.load(Ordering::Relaxed) {
        true => (StatusCode::OK, "ok\n"),
        false => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the API server has not answered yet\n",
        ),
    }
}

async fn metrics(State(health): State<Arc<Health>>) -> impl IntoResponse {
    (
        [(
            header::CONTENT_TYPE,
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        )],
        health.metrics.text(),
    )
}
