//! Why an agent has a tool, or has it not: the chain that decided, in words for people.

use std::sync::Arc;

use chandlery_crds::Level;
use jiff::Timestamp;
use serde::Serialize;

use super::rights::{Absence, Rights, Source, own_rule};
use crate::directory::{Agent, ToolGrant};
use crate::tool::Tool;

/// What an agent has of one tool, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// Per-operation name.
    pub tool: String,
    /// The agent's list has it.
    pub seen: bool,
    /// What a call needs: `act`, `ask` or `always_ask`; absent when no call gets through. A grant's rules and limits may
    /// still refuse a call; then they are among the steps.
    pub level: Option<Level>,
    /// In the order in which they decide.
    pub steps: Vec<Step>,
}

/// One link of the chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// `never`, `always`, `switch`, `entry`, `grant_required`, `grant`, `rule`, `limit` or `level`.
    pub by: &'static str,
    /// The step speaks for the tool; `false` when it speaks against it.
    pub passes: bool,
    /// What decided, and what to write for another outcome.
    pub says: String,
}

/// Explains what `agent` has of `tool`. `others` are the Workspace's grants, whoever they are about.
pub fn explain<'a>(
    agent: &Agent,
    tool: &Tool,
    others: impl Iterator<Item = &'a Arc<ToolGrant>>,
    now: Timestamp,
) -> Explanation {
    let rights = match Rights::of(agent, tool) {
        Ok(rights) => rights,
        Err(absence) => {
            let steps = vec![absent(absence, &tool.entry())];
            return Explanation {
                tool: tool.name.to_string(),
                seen: false,
                level: None,
                steps,
            };
        }
    };
    let seen = rights.is_visible(now);
    let mut steps = vec![present(&rights.source)];
    if rights.needs_grant {
        grants(&mut steps, agent, tool, &rights, others, now);
    }
    let level = seen.then(|| level(&mut steps, agent, tool, &rights, now));
    Explanation {
        tool: tool.name.to_string(),
        seen,
        level,
        steps,
    }
}

fn absent(absence: Absence, tool: &str) -> Step {
    let (by, says) = match absence {
        Absence::NeverServed => (
            "never",
            "tools that manage the platform are never served to an agent; the agent can file agnt_request_config_change"
                .to_owned(),
        ),
        Absence::SwitchedOff(switch) => (
            "switch",
            format!("write {} in the Agent's spec to serve it", switch.turn_on()),
        ),
        Absence::NotListed => (
            "entry",
            format!("no entry of spec.tools names it: add {tool} there"),
        ),
    };
    step(by, false, says)
}

fn present(source: &Source) -> Step {
    match source {
        Source::Always => step("always", true, "every agent has it"),
        Source::Switch(switch) => step("switch", true, format!("served by {}", switch.turn_on())),
        Source::Entry(entry) => step("entry", true, format!("named by {entry} in spec.tools")),
    }
}

fn grants<'a>(
    steps: &mut Vec<Step>,
    agent: &Agent,
    tool: &Tool,
    rights: &Rights,
    others: impl Iterator<Item = &'a Arc<ToolGrant>>,
    now: Timestamp,
) {
    let named = agent.workspace.spec.grant_required.iter();
    let naming = named.clone().find(|entry| tool.is_named_by(entry));
    let says = match &tool.origin {
        Some(origin) => format!(
            "tools of ToolSource {} are served under a live ToolGrant only",
            origin.source
        ),
        None => format!(
            "Workspace {} serves it under a live ToolGrant only ({} in grantRequired)",
            agent.workspace.id,
            naming.map_or("", String::as_str)
        ),
    };
    steps.push(step("grant_required", rights.is_visible(now), says));
    for grant in &rights.grants {
        steps.push(time_of(grant, now));
        if !grant.is_live(now) {
            continue;
        }
        for rule in &grant.constraints {
            let says = format!(
                "ToolGrant {} lets a call pass while {} ({}) holds",
                grant.name, rule.source, rule.name
            );
            steps.push(step("rule", true, says));
        }
        for limit in grant.limits() {
            let says = format!("ToolGrant {} is good for {limit}", grant.name);
            steps.push(step("limit", true, says));
        }
    }
    for other in others {
        let is_about = rights.grants.iter().any(|grant| grant.uid == other.uid);
        let names_it = |entry: &String| tool.is_named_by(entry);
        if !is_about && other.spec.tools.iter().any(names_it) {
            let says = format!(
                "ToolGrant {} names the tool, but its agents do not include this one",
                other.name
            );
            steps.push(step("grant", false, says));
        }
    }
    if rights.grants.is_empty() {
        let says = format!("no ToolGrant gives this agent {}: make one", tool.entry());
        steps.push(step("grant", false, says));
    }
}

fn time_of(grant: &ToolGrant, now: Timestamp) -> Step {
    let name = &grant.name;
    if let Some(flaw) = &grant.flaw {
        return step(
            "grant",
            false,
            format!("ToolGrant {name} does not count: {flaw}"),
        );
    }
    match (grant.not_before, grant.expires_at) {
        (Some(begin), _) if now < begin => step(
            "grant",
            false,
            format!("ToolGrant {name} begins at {begin}"),
        ),
        (_, Some(end)) if end <= now => {
            step("grant", false, format!("ToolGrant {name} ended at {end}"))
        }
        (_, Some(end)) => step(
            "grant",
            true,
            format!("ToolGrant {name} gives it until {end}"),
        ),
        (_, None) => step("grant", true, format!("ToolGrant {name} gives it")),
    }
}

fn level(
    steps: &mut Vec<Step>,
    agent: &Agent,
    tool: &Tool,
    rights: &Rights,
    now: Timestamp,
) -> Level {
    let (rule, level) = own_rule(agent, tool);
    let rule = rule.map_or_else(
        || "permissions.default".to_owned(),
        |name| format!("permissions.tools[{name}]"),
    );
    let own = format!("{rule} of the Agent: {}", level.name());
    steps.push(step("level", true, own));
    if let Some(origin) = &tool.origin
        && origin.permission > Level::Act
    {
        let says = format!(
            "ToolSource {} asks for {}",
            origin.source,
            origin.permission.name()
        );
        steps.push(step("level", true, says));
    }
    let mut strictest = rights.level;
    for grant in rights.grants.iter().filter(|grant| grant.is_live(now)) {
        let least = grant.spec.permission;
        if least > Level::Act {
            let says = format!("ToolGrant {} asks for {}", grant.name, least.name());
            steps.push(step("level", true, says));
        }
        strictest = strictest.max(least);
    }
    strictest
}

fn step(by: &'static str, passes: bool, says: impl Into<String>) -> Step {
    Step {
        by,
        passes,
        says: says.into(),
    }
}
