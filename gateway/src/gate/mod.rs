//! Whether an agent may: one rule for lists and calls, without I/O.

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
        .any(|entry| matches(entry, &tool.name))
}

/// Whether `entry`, a name or a glob whose `*` stands for any run of characters, names `tool`.
pub fn matches(entry: &str, tool: &str) -> bool {
    let mut parts = entry.split('*');
    let Some(mut rest) = parts.next().and_then(|first| tool.strip_prefix(first)) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glob_names_what_its_parts_enclose() {
        for (entry, tool, expected) in [
            ("memory", "memory", true),
            ("memory", "memory2", false),
            ("agnt_*", "agnt_datetime_now", true),
            ("*", "anything", true),
            ("agnt_*_now", "agnt_datetime_now", true),
            ("agnt_*_now", "agnt_now", false),
            ("*time*now", "agnt_datetime_now", true),
            ("a*a", "a", false),
            ("", "task", false),
        ] {
            assert_eq!(matches(entry, tool), expected, "{entry} names {tool}");
        }
    }
}
