//! Whether an agent may: one rule for lists and calls, without I/O.

use chandlery_crds::names;
use jiff::Timestamp;

use crate::directory::Agent;
use crate::tool::{Served, Tool};

/// Proof that a call may run. Only [`decide`] makes one, so code that skips the gate does not compile.
#[derive(Debug)]
pub struct Permit<'a> {
    agent: &'a Agent,
    tool: &'a Tool,
    now: Timestamp,
}

impl<'a> Permit<'a> {
    /// Who calls.
    pub fn agent(&self) -> &'a Agent {
        self.agent
    }

    /// What is called, under its per-operation name.
    pub fn tool(&self) -> &'a Tool {
        self.tool
    }

    /// The moment of the decision.
    pub fn now(&self) -> Timestamp {
        self.now
    }
}

/// What the gate says to a call.
#[derive(Debug)]
pub enum Decision<'a> {
    Permit(Permit<'a>),
    /// As if the tool did not exist.
    Unknown,
}

/// Decides one call.
pub fn decide<'a>(agent: &'a Agent, tool: &'a Tool, now: Timestamp) -> Decision<'a> {
    if visible(agent, tool) {
        Decision::Permit(Permit { agent, tool, now })
    } else {
        Decision::Unknown
    }
}

/// Whether the agent's list has the tool.
pub fn visible(agent: &Agent, tool: &Tool) -> bool {
    match tool.served {
        Served::Always => true,
        Served::WorkspaceTools => agent.spec.workspace_tools_enabled || named(agent, tool),
        Served::Entry => named(agent, tool),
    }
}

fn named(agent: &Agent, tool: &Tool) -> bool {
    agent
        .spec
        .tools
        .iter()
        .any(|entry| names::glob_matches(entry, &tool.name))
}
