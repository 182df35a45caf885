//! What the operator counts. Labels have few values: never a name of a person's object.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reconcile {
    kind: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Result {
    result: &'static str,
}

/// The metrics of this process.
pub(crate) struct Metrics {
    registry: Registry,
    reconciles: Family<Reconcile, Counter>,
    durations: Family<OfKind, Histogram>,
    watch_errors: Family<OfKind, Counter>,
    invalid_objects: Family<OfKind, Counter>,
    /// 1 while this replica works.
    pub(crate) leader: Gauge,
    pub(crate) key_rotations: Counter,
    pub(crate) keys_regenerated: Counter,
    reports: Family<Result, Counter>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("chandlery_operator");
        let reconciles = Family::default();
        let durations = Family::<OfKind, Histogram>::new_with_constructor(|| {
            Histogram::new([
                0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0,
            ])
        });
        let watch_errors = Family::default();
        let invalid_objects = Family::default();
        let leader = Gauge::default();
        let key_rotations = Counter::default();
        let keys_regenerated = Counter::default();
        let reports = Family::default();
        registry.register(
            "reconcile",
            "Reconciles by kind and result",
            reconciles.clone(),
        );
        registry.register(
            "reconcile_duration_seconds",
            "How long reconciles took",
            durations.clone(),
        );
        registry.register(
            "watch_errors",
            "Watches that broke and were started again",
            watch_errors.clone(),
        );
        registry.register(
            "invalid_objects",
            "Objects seen that do not fit their schema",
            invalid_objects.clone(),
        );
        registry.register(
            "leader",
            "1 while this replica works, 0 while it stands by",
            leader.clone(),
        );
        registry.register(
            "key_rotations",
            "Keys that were replaced by a rotation",
            key_rotations.clone(),
        );
        registry.register(
            "keys_regenerated",
            "Keys made anew because their Secret was lost",
            keys_regenerated.clone(),
        );
        registry.register(
            "gateway_reports",
            "Polls of gateway pods by result",
            reports.clone(),
        );
        Self {
            registry,
            reconciles,
            durations,
            watch_errors,
            invalid_objects,
            leader,
            key_rotations,
            keys_regenerated,
            reports,
        }
    }

    pub(crate) fn reconciled(&self, kind: &'static str, result: &'static str, took: Duration) {
        self.reconciles
            .get_or_create(&Reconcile { kind, result })
            .inc();
        self.durations
            .get_or_create(&OfKind { kind })
            .observe(took.as_secs_f64());
    }

    pub(crate) fn watch_failed(&self, kind: &'static str) {
        self.watch_errors.get_or_create(&OfKind { kind }).inc();
    }

    pub(crate) fn found_invalid(&self, kind: &'static str) {
        self.invalid_objects.get_or_create(&OfKind { kind }).inc();
    }

    pub(crate) fn reported(&self, result: &'static str) {
        self.reports.get_or_create(&Result { result }).inc();
    }

    /// The Prometheus text format.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a string cannot fail");
        text
    }
}
