//! What the gateway counts while it works. Who shows the counts is another matter: `app/health`.

use std::sync::atomic::AtomicU64;

use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Counters and gauges; cheap to share and to change.
#[derive(Debug, Default)]
pub struct Metrics {
    calls: Family<Outcome, Counter>,
    refusals: Family<Reason, Counter>,
    sessions: Gauge,
    approvals: Family<Outcome, Counter>,
    source_answers: Family<OfSource, Gauge<f64, AtomicU64>>,
    source_failures: Family<OfSource, Counter>,
    usage_lost: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfSource {
    source: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

impl Metrics {
    /// A tool call ended: `done`, `unknown_tool`, `cancelled`, or an [`ErrorKind`](crate::tool::ErrorKind)'s outcome.
    pub fn call_finished(&self, outcome: &'static str) {
        self.calls.get_or_create(&Outcome { outcome }).inc();
    }

    /// A request was refused before it reached a tool: `host`, `not_ready`, `key` or `other_endpoint`.
    pub fn refused(&self, reason: &'static str) {
        self.refusals.get_or_create(&Reason { reason }).inc();
    }

    /// A call was `asked` about, `approved` or `denied`.
    pub fn approval(&self, outcome: &'static str) {
        self.approvals.get_or_create(&Outcome { outcome }).inc();
    }

    /// How many sessions of older clients are open.
    pub fn set_sessions(&self, open: usize) {
        self.sessions.set(i64::try_from(open).unwrap_or(i64::MAX));
    }

    /// A source has said what it offers.
    pub fn source_answered(&self, source: &str, at: Option<Timestamp>) {
        if let Some(at) = at {
            let seconds = at.as_millisecond() as f64 / 1000.0;
            self.source_answers.get_or_create(&of(source)).set(seconds);
        }
    }

    /// A source could not be asked what it offers.
    pub fn source_failed(&self, source: &str) {
        self.source_failures.get_or_create(&of(source)).inc();
    }

    /// A source is followed no longer.
    pub fn source_gone(&self, source: &str) {
        self.source_answers.remove(&of(source));
        self.source_failures.remove(&of(source));
    }

    /// A call to a source was not taken down, since too many waited to be.
    pub fn usage_lost(&self) {
        self.usage_lost.inc();
    }

    /// Makes the counters part of what `registry` shows.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "chandlery_tool_calls",
            "Tool calls that ended, by outcome",
            self.calls.clone(),
        );
        registry.register(
            "chandlery_requests_refused",
            "Requests refused before they reached a tool, by reason",
            self.refusals.clone(),
        );
        registry.register(
            "chandlery_sessions",
            "Open sessions of clients that speak an older protocol",
            self.sessions.clone(),
        );
        registry.register(
            "chandlery_approvals",
            "Calls that people were asked about, approved or denied",
            self.approvals.clone(),
        );
        registry.register(
            "chandlery_source_last_answer_timestamp_seconds",
            "When a ToolSource last said what it offers",
            self.source_answers.clone(),
        );
        registry.register(
            "chandlery_source_failures",
            "Attempts to ask a ToolSource what it offers that failed",
            self.source_failures.clone(),
        );
        registry.register(
            "chandlery_usage_rows_lost",
            "Calls to sources that were not taken down, since too many waited to be",
            self.usage_lost.clone(),
        );
    }
}

fn of(source: &str) -> OfSource {
    OfSource {
        source: source.to_owned(),
    }
}
