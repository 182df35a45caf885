//! What one agent has of one tool: worked out once per revision of its config, asked at every call.

use std::sync::Arc;

use chandlery_crds::{Level, names};
use jiff::Timestamp;

use super::never::is_never_served;
use crate::directory::{Agent, ToolGrant};
use crate::tool::{Served, Switch, Tool};

/// The part of the config that has to do with one tool.
#[derive(Debug)]
pub struct Rights {
    pub source: Source,
    /// The tool is served only under a live grant.
    pub needs_grant: bool,
    /// The grants that are about the agent and name the tool, whatever their times and rules say. None of them counts
    /// unless `needs_grant`.
    pub grants: Vec<Arc<ToolGrant>>,
    /// What the agent's own permissions ask for.
    pub level: Level,
}

/// What puts a tool on an agent's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Always,
    Switch(Switch),
    /// The entry of `spec.tools`, as written.
    Entry(String),
}

/// Why a tool is not on an agent's list, whatever its grants say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// See [`is_never_served`].
    NeverServed,
    SwitchedOff(Switch),
    NotListed,
}

impl Rights {
    /// What `agent` has of `tool`; the error says why that is nothing.
    pub fn of(agent: &Agent, tool: &Tool) -> Result<Self, Absence> {
        let source = source(agent, tool)?;
        let needs_grant = needs_grant(agent, tool);
        let grants = if needs_grant {
            let named = |grant: &&Arc<ToolGrant>| names_tool(&grant.spec.tools, tool);
            agent.grants.iter().filter(named).cloned().collect()
        } else {
            Vec::new()
        };
        Ok(Self {
            source,
            needs_grant,
            grants,
            level: own_level(agent, tool),
        })
    }

    /// Whether the agent's list has the tool.
    pub fn is_visible(&self, now: Timestamp) -> bool {
        !self.needs_grant || self.grants.iter().any(|grant| grant.is_live(now))
    }

    /// Whether what happens to a call depends on its arguments.
    pub fn looks_at_arguments(&self) -> bool {
        self.may_ask()
            || self
                .grants
                .iter()
                .any(|grant| !grant.constraints.is_empty())
    }

    /// Whether a call may have to wait for a person.
    pub fn may_ask(&self) -> bool {
        self.level > Level::Act
            || self
                .grants
                .iter()
                .any(|grant| grant.spec.permission > Level::Act)
    }

    /// When [`Rights::is_visible`] has to be asked again.
    pub fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        let moments = self.grants.iter().flat_map(|grant| grant.moments());
        moments.filter(|moment| now < *moment).min()
    }
}

fn source(agent: &Agent, tool: &Tool) -> Result<Source, Absence> {
    if is_never_served(&tool.name) {
        return Err(Absence::NeverServed);
    }
    let entry = || {
        let entries = agent.spec.tools.iter();
        let mut naming = entries.filter(|entry| tool.is_named_by(entry));
        naming.next().map(|entry| Source::Entry(entry.clone()))
    };
    match tool.served {
        Served::Always => Ok(Source::Always),
        Served::Switch(switch) if switch.is_on(&agent.spec) => Ok(Source::Switch(switch)),
        Served::Switch(switch) => entry()
            .filter(|_| switch.yields_to_entries())
            .ok_or(Absence::SwitchedOff(switch)),
        Served::Entry => entry().ok_or(Absence::NotListed),
    }
}

/// What the agent's permissions ask for, and its source's.
fn own_level(agent: &Agent, tool: &Tool) -> Level {
    let floor = tool.origin.as_ref().map(|origin| origin.permission);
    let (_, own) = own_rule(agent, tool);
    own.max(floor.unwrap_or_default())
}

/// The entry of the agent's permissions that decides about the tool, and its level. A source's tool goes by the name
/// that it is served under as well as by its operation's.
pub(super) fn own_rule<'a>(agent: &'a Agent, tool: &Tool) -> (Option<&'a str>, Level) {
    let is_named_by =
        |entry: &str| tool.is_named_by(entry) || names::glob_matches(entry, &tool.name);
    let names: &[&str] = &[&tool.name, &tool.entry()];
    agent.spec.permissions.rule(names, is_named_by)
}

fn needs_grant(agent: &Agent, tool: &Tool) -> bool {
    tool.origin.is_some() || names_tool(&agent.workspace.spec.grant_required, tool)
}

fn names_tool(entries: &[String], tool: &Tool) -> bool {
    entries.iter().any(|entry| tool.is_named_by(entry))
}
