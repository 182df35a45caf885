//! Whether an agent may: one rule for lists and calls, pure and without I/O.
//!
//! A source's tool, and a built-in of the Workspace's `grantRequired`, is served under live grants alone. One grant must
//! pass every check by itself; among those that pass the strictest level counts, and each one's limits are charged.

mod explain;
mod never;
mod rights;
mod switches;

use std::sync::Arc;

use chandlery_crds::Level;
use chandlery_crds::constraint::Facts;
use jiff::Timestamp;
use serde_json::json;

use crate::directory::{Agent, ToolGrant};
use crate::tool::Tool;

pub use self::explain::{Explanation, Step, explain};
pub use self::never::is_never_served;
pub use self::rights::{Absence, Rights, Source};

/// Proof that a call may run. Only the gate makes one, so code that skips the gate does not compile.
#[derive(Debug)]
pub struct Permit<'a> {
    agent: &'a Arc<Agent>,
    tool: &'a Tool,
    now: Timestamp,
}

impl<'a> Permit<'a> {
    /// Who calls.
    pub fn agent(&self) -> &'a Arc<Agent> {
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

/// One call, as the gate sees it.
pub struct Question<'a, 'f> {
    pub agent: &'a Arc<Agent>,
    pub tool: &'a Tool,
    pub rights: &'a Rights,
    /// A JSON object.
    pub arguments: &'a str,
    pub now: Timestamp,
    /// Until when a grant's limits are used up; `None` while there is room.
    pub used_up: &'f dyn Fn(&ToolGrant) -> Option<Timestamp>,
}

/// What the gate says to a call.
#[derive(Debug)]
pub enum Decision<'a> {
    Permit(Permit<'a>, Passed<'a>),
    /// A person has to allow it.
    Ask(Ask<'a>),
    Deny(Denial),
    /// As if the tool did not exist.
    Unknown,
}

/// The grants that a call passes: their limits are charged when it runs. Empty when the tool needs none.
#[derive(Debug, Default)]
pub struct Passed<'a>(pub Vec<&'a Arc<ToolGrant>>);

/// A call that waits for a person.
#[derive(Debug)]
pub struct Ask<'a> {
    permit: Permit<'a>,
    pub passed: Passed<'a>,
    /// [`Level::Ask`] or [`Level::AlwaysAsk`].
    pub level: Level,
    /// Every grant that passes lets the person at the agent's own client decide.
    pub client_may_approve: bool,
}

/// That somebody has allowed a call: made by `approvals` alone, from what the store says.
#[derive(Debug)]
pub struct Allowed(());

impl Allowed {
    /// Only for `approvals`, which has just read or claimed the row that says so.
    pub(crate) fn by_store() -> Self {
        Self(())
    }
}

impl<'a> Ask<'a> {
    /// Turns the question into a permit.
    pub fn allowed(self, _: Allowed) -> (Permit<'a>, Passed<'a>) {
        (self.permit, self.passed)
    }
}

/// Why a call of a tool that the agent has does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denial {
    /// No grant's rules hold: the first that does not, of the grant that came closest.
    Constraint {
        grant: String,
        rule: String,
        message: String,
    },
    /// The rules of grants look at arguments up to a length, and these are longer.
    ArgumentsTooLong,
    /// Every grant whose rules hold is used up; the first has room again at `until`.
    Limit { grant: String, until: Timestamp },
}

impl Denial {
    /// The name that records and metrics give it.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Constraint { .. } => "constraint",
            Self::ArgumentsTooLong => "arguments_too_long",
            Self::Limit { .. } => "limit",
        }
    }

    /// What the agent reads.
    pub fn message(&self, tool: &str, now: Timestamp) -> String {
        match self {
            Self::Constraint {
                grant,
                rule,
                message,
            } => format!("{tool}: {message} (rule {rule} of ToolGrant {grant})"),
            Self::ArgumentsTooLong => format!(
                "{tool}: the arguments have more than {} bytes, and the ToolGrants of this tool have rules about them; send less at a time",
                chandlery_crds::constraint::MAX_ARGUMENTS
            ),
            Self::Limit { grant, until } => {
                let seconds = until.duration_since(now).as_secs().max(0) + 1;
                format!(
                    "{tool}: the limit of ToolGrant {grant} is used up; try again in {seconds} s, after {}",
                    until.strftime("%Y-%m-%dT%H:%M:%SZ")
                )
            }
        }
    }
}

/// Decides one call.
pub fn decide<'a>(question: &Question<'a, '_>) -> Decision<'a> {
    let Question {
        agent,
        tool,
        rights,
        arguments,
        now,
        used_up,
    } = *question;
    if !rights.is_visible(now) {
        return Decision::Unknown;
    }
    let passed = match pass(agent, tool, rights, arguments, now, used_up) {
        Ok(passed) => passed,
        Err(denial) => return Decision::Deny(denial),
    };
    let strictest = passed.0.iter().map(|grant| grant.spec.permission).max();
    let level = rights.level.max(strictest.unwrap_or_default());
    let permit = Permit { agent, tool, now };
    match level {
        Level::Act => Decision::Permit(permit, passed),
        Level::Ask | Level::AlwaysAsk => Decision::Ask(Ask {
            client_may_approve: !passed.0.is_empty()
                && passed
                    .0
                    .iter()
                    .all(|grant| grant.spec.client_user_may_approve),
            permit,
            passed,
            level,
        }),
    }
}

/// The grants that pass every check by themselves.
fn pass<'a>(
    agent: &Agent,
    tool: &Tool,
    rights: &'a Rights,
    arguments: &str,
    now: Timestamp,
    used_up: &dyn Fn(&ToolGrant) -> Option<Timestamp>,
) -> Result<Passed<'a>, Denial> {
    if !rights.needs_grant {
        return Ok(Passed::default());
    }
    let live: Vec<&Arc<ToolGrant>> = rights
        .grants
        .iter()
        .filter(|grant| grant.is_live(now))
        .collect();
    let needs_facts = live.iter().any(|grant| !grant.constraints.is_empty());
    let facts = needs_facts
        .then(|| facts(agent, tool, arguments, now))
        .flatten();
    let (mut passed, mut constraint, mut limit) = (Vec::new(), None, None);
    for grant in live {
        let broken = grant
            .constraints
            .iter()
            .find(|rule| !facts.as_ref().is_some_and(|facts| rule.holds(facts)));
        if let Some(rule) = broken {
            constraint.get_or_insert_with(|| match &facts {
                Some(_) => Denial::Constraint {
                    grant: grant.name.clone(),
                    rule: rule.name.clone(),
                    message: rule.message.clone(),
                },
                None => Denial::ArgumentsTooLong,
            });
        } else if let Some(until) = used_up(grant) {
            let sooner = match &limit {
                Some((_, earliest)) => until < *earliest,
                None => true,
            };
            if sooner {
                limit = Some((grant, until));
            }
        } else {
            passed.push(grant);
        }
    }
    match (passed.is_empty(), limit, constraint) {
        (false, _, _) => Ok(Passed(passed)),
        (true, Some((grant, until)), _) => Err(Denial::Limit {
            grant: grant.name.clone(),
            until,
        }),
        (true, None, Some(constraint)) => Err(constraint),
        // Visible means that a grant is live, and a live grant ends in one of the three.
        (true, None, None) => Err(Denial::ArgumentsTooLong),
    }
}

fn facts(agent: &Agent, tool: &Tool, arguments: &str, now: Timestamp) -> Option<Facts> {
    let agent = json!({
        "id": agent.id,
        "name": agent.name(),
        "namespace": agent.namespace(),
        "workspace": agent.spec.workspace_ref.name,
        "labels": agent.labels,
    });
    Facts::new(arguments, &agent, &tool.name, now)
}
