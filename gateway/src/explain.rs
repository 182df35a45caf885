//! What an agent may use and why, for all tools at once, and what a change of manifests would do to that.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use crate::directory::{Agent, Snapshot, ToolGrant};
use crate::gate::{Explanation, explain};
use crate::tool::Tool;

/// Explains `tools`, in their order.
pub fn explain_all<'a>(
    tools: impl Iterator<Item = &'a Tool>,
    snapshot: &Snapshot,
    agent: &Agent,
    now: Timestamp,
) -> Vec<Explanation> {
    let mut grants: Vec<&Arc<ToolGrant>> = snapshot
        .grants
        .values()
        .filter(|grant| grant.workspace == agent.workspace.id)
        .collect();
    grants.sort_by(|one, other| one.name.cmp(&other.name));
    tools
        .map(|tool| explain(agent, tool, grants.iter().copied(), now))
        .collect()
}

/// A tool whose explanation a change would change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    pub tool: String,
    pub before: Option<Explanation>,
    pub after: Option<Explanation>,
}

/// The tools that two explanations of one agent differ in.
pub fn changes(before: Vec<Explanation>, after: Vec<Explanation>) -> Vec<Change> {
    let mut earlier: BTreeMap<String, Explanation> = before
        .into_iter()
        .map(|explanation| (explanation.tool.clone(), explanation))
        .collect();
    let mut changes: Vec<Change> = after
        .into_iter()
        .map(|after| Change {
            tool: after.tool.clone(),
            before: earlier.remove(&after.tool),
            after: Some(after),
        })
        .filter(|change| change.before != change.after)
        .collect();
    changes.extend(earlier.into_iter().map(|(tool, before)| Change {
        tool,
        before: Some(before),
        after: None,
    }));
    changes
}
