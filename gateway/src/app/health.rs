//! `/livez`, `/readyz` and `/metrics`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{Request, StatusCode};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

use super::side::{Answer, text, with_type};
use crate::directory::Directory;
use crate::metrics::Metrics;
use crate::store::Clock;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// How the gateway is.
pub(super) struct Health {
    pub(super) directory: Directory,
    pub(super) metrics: Arc<Metrics>,
    pub(super) clock: Clock,
    /// The store is open and agents are served.
    pub(super) is_open: AtomicBool,
    /// Cancelled once the gateway is about to stop.
    pub(super) stop: CancellationToken,
}

impl Health {
    pub(super) fn answer<B>(&self, request: &Request<B>) -> Answer {
        match request.uri().path() {
            "/livez" => text(StatusCode::OK, "ok\n"),
            "/readyz" => match self.missing() {
                None => text(StatusCode::OK, "ok\n"),
                Some(missing) => text(StatusCode::SERVICE_UNAVAILABLE, missing),
            },
            "/metrics" => with_type(StatusCode::OK, OPENMETRICS, self.metrics()),
            _ => text(
                StatusCode::NOT_FOUND,
                "ask for /livez, /readyz or /metrics\n",
            ),
        }
    }

    /// Why agents should not be sent here; `None` when they may come.
    fn missing(&self) -> Option<&'static str> {
        if self.stop.is_cancelled() {
            Some("stopping\n")
        } else if !self.is_open.load(Ordering::Acquire) {
            Some("the store is not open yet\n")
        } else if self.directory.snapshot().is_none() {
            Some("the configuration has not been read yet\n")
        } else {
            None
        }
    }

    fn metrics(&self) -> String {
        let mut registry = Registry::default();
        self.metrics.register(&mut registry);
        let snapshot = self.directory.snapshot();
        let stale_since = snapshot.as_ref().and_then(|snapshot| snapshot.stale_since);
        let age = stale_since.map_or(0, |since| self.clock.now().duration_since(since).as_secs());
        let agents = snapshot
            .as_ref()
            .map_or(0, |snapshot| snapshot.agents.len());
        registry.register(
            "chandlery_config_connected",
            "Whether the source of the configuration is being heard of",
            ConstGauge::new(i64::from(snapshot.is_some() && stale_since.is_none())),
        );
        registry.register(
            "chandlery_config_age_seconds",
            "How long the source of the configuration has not been heard of",
            ConstGauge::new(age),
        );
        registry.register(
            "chandlery_agents",
            "Agents that have an endpoint here",
            ConstGauge::new(i64::try_from(agents).unwrap_or(i64::MAX)),
        );
        registry.register(
            "chandlery_build",
            "The program that runs",
            Info::new([("version", env!("CARGO_PKG_VERSION"))]),
        );
        let mut lines = String::new();
        // Writing to a String does not fail.
        let _ = encode(&mut lines, &registry);
        lines
    }
}
