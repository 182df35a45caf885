//! What is said of an Agent.

use chandlery_crds::agent::ToolsStatus;
use chandlery_crds::check::Finding;
use chandlery_crds::conditions::{Wanted, kind, reason};
use chandlery_crds::{Agent, AgentState, AgentStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::controllers::agent::observe::{Observed, secret_name};
use crate::controllers::summary::{self, Obstacle};
use crate::keys::{Decision, Standing};
use crate::replicas::Coverage;

/// KeyReady, ToolsResolved, Served and Ready, with Reconciling or Stalled beside them.
pub(super) fn conditions(
    agent: &Agent,
    observed: &Observed,
    findings: &[Finding],
    decision: &Decision,
    keys_change: bool,
    tools: Option<&ToolsStatus>,
) -> Vec<Wanted> {
    let status = agent.status.clone().unwrap_or_default();
    let mut obstacles: Vec<Obstacle> = findings.iter().map(Obstacle::from).collect();
    let (key_ready, key_obstacle) = key_ready(agent, observed, decision, &obstacles);
    obstacles.extend(key_obstacle);
    let served = served(agent, observed, &status, keys_change);
    // While only a key changes, the agent stays as ready as it was: its active key works all along.
    if served.status != Some(true) && !was_true(agent, &status, kind::READY) {
        obstacles.push(Obstacle::waiting(served.reason, served.message.clone()));
    }
    let tools_resolved = tools_resolved(agent, observed, &status, tools);
    let mut conditions = vec![key_ready, tools_resolved, served];
    conditions.extend(match resting(agent) {
        Some((reason, message)) => vec![Wanted::new(kind::READY, Some(false), reason, message)],
        None => summary::conditions(&obstacles, &ready_message(tools)),
    });
    conditions
}

/// The status' view of `spec.tools`; what was known stays until a gateway has said something about this generation.
pub(super) fn tools(
    agent: &Agent,
    observed: &Observed,
    status: &AgentStatus,
) -> Option<ToolsStatus> {
    let report = observed
        .report
        .as_ref()
        .filter(|report| report.generation >= generation(agent));
    match report {
        Some(report) => Some(ToolsStatus {
            listed: report.listed,
            unresolved_count: report.unresolved_count,
            unresolved: report.unresolved.iter().take(32).cloned().collect(),
        }),
        None => status.tools.clone(),
    }
}

/// Why an Agent is not served although nothing is wrong.
fn resting(agent: &Agent) -> Option<(&'static str, &'static str)> {
    if agent.metadata.deletion_timestamp.is_some() {
        return Some((
            reason::DELETING,
            "the Agent is being deleted, and its key is revoked",
        ));
    }
    match agent.spec.state {
        AgentState::Deployed => None,
        AgentState::Draft => Some((
            reason::DRAFT,
            "a draft has no key and no endpoint: write state: Deployed",
        )),
        AgentState::Disabled => Some((
            reason::DISABLED,
            "the key is suspended: write state: Deployed to let it work again",
        )),
        AgentState::Archived => Some((reason::ARCHIVED, "the key is revoked for good")),
    }
}

fn key_ready(
    agent: &Agent,
    observed: &Observed,
    decision: &Decision,
    findings: &[Obstacle],
) -> (Wanted, Option<Obstacle>) {
    let condition = |status, reason, message: String| {
        Wanted::new(kind::KEY_READY, Some(status), reason, message)
    };
    if let Some((reason, message)) = resting(agent) {
        return (condition(false, reason, message.to_owned()), None);
    }
    let minted = secret_name(agent);
    let reference = agent
        .spec
        .key
        .as_ref()
        .and_then(|key| key.existing_secret_ref.as_ref());
    let name = reference.map_or(&minted, |reference| &reference.name);
    let obstacle = match decision.standing {
        Standing::Active => {
            return (
                condition(
                    true,
                    reason::KEY_MINTED,
                    format!("the key is in Secret \"{name}\""),
                ),
                None,
            );
        }
        Standing::Rotating => {
            let next = match &observed.accepted {
                Coverage::Waiting(pods) => format!("waits for {}", few(pods)),
                Coverage::NoReplica | Coverage::All => "is being published".to_owned(),
            };
            let message = format!("the key is in Secret \"{name}\"; the next one {next}");
            return (condition(true, reason::KEY_ROTATING, message), None);
        }
        Standing::None => {
            return (
                condition(
                    false,
                    reason::NO_KEY,
                    "there is no key without a Workspace".to_owned(),
                ),
                None,
            );
        }
        Standing::Conflict => summary::secret_conflict(name),
        Standing::Going => summary::secret_going(name),
        Standing::InUse => Obstacle::stalled(
            reason::KEY_IN_USE,
            format!(
                "the key in Secret \"{name}\" belongs to another: `chandlery key new` makes one of its own"
            ),
        ),
        // Said by the check of the reference already.
        Standing::NotFound | Standing::Invalid => {
            let is_meant = |obstacle: &&Obstacle| {
                [reason::SECRET_NOT_FOUND, reason::SECRET_INVALID].contains(&obstacle.reason)
            };
            let (reason, message) = findings
                .iter()
                .find(is_meant)
                .map_or((reason::SECRET_NOT_FOUND, String::new()), |found| {
                    (found.reason, found.message.clone())
                });
            return (condition(false, reason, message), None);
        }
    };
    (
        condition(false, obstacle.reason, obstacle.message.clone()),
        Some(obstacle),
    )
}

/// Latches: once every replica has served this generation with these keys, one that is lost later is the Workspace's
/// matter.
fn served(agent: &Agent, observed: &Observed, status: &AgentStatus, keys_change: bool) -> Wanted {
    let condition =
        |status, reason, message: String| Wanted::new(kind::SERVED, Some(status), reason, message);
    let serves = || {
        condition(
            true,
            reason::SERVED,
            "every replica serves this generation and its keys".to_owned(),
        )
    };
    if let Some((reason, message)) = resting(agent) {
        return condition(false, reason, message.to_owned());
    }
    match &observed.served {
        // A Workspace that comes back brings another gateway, which has to serve the agent anew.
        _ if observed.workspace.is_none() => condition(
            false,
            reason::WORKSPACE_NOT_FOUND,
            "there is no Workspace, and so no gateway".to_owned(),
        ),
        _ if keys_change => condition(
            false,
            reason::NOT_SERVED_YET,
            "the keys have changed".to_owned(),
        ),
        _ if was_true(agent, status, kind::SERVED) => serves(),
        _ if status.keys.is_empty() => {
            condition(false, reason::NO_KEY, "there is no key yet".to_owned())
        }
        Coverage::All => serves(),
        Coverage::NoReplica => condition(
            false,
            reason::GATEWAY_NOT_READY,
            "the account has no gateway that takes calls".to_owned(),
        ),
        Coverage::Waiting(pods) => condition(
            false,
            reason::NOT_SERVED_YET,
            format!("waits for {}", few(pods)),
        ),
    }
}

fn tools_resolved(
    agent: &Agent,
    observed: &Observed,
    status: &AgentStatus,
    tools: Option<&ToolsStatus>,
) -> Wanted {
    let generation = generation(agent);
    let is_reported = observed
        .report
        .as_ref()
        .is_some_and(|report| report.generation >= generation);
    let was_known = of_this_generation(status, kind::TOOLS_RESOLVED, generation)
        .is_some_and(|condition| condition.status != "Unknown");
    match tools.filter(|_| is_reported || was_known) {
        Some(tools) if tools.unresolved_count == 0 => {
            let message = "every entry of spec.tools names a tool";
            Wanted::new(kind::TOOLS_RESOLVED, Some(true), reason::RESOLVED, message)
        }
        Some(tools) => Wanted::new(
            kind::TOOLS_RESOLVED,
            Some(false),
            reason::UNRESOLVED,
            unresolved(tools),
        ),
        None => {
            let message = "no gateway has said yet what it makes of spec.tools";
            Wanted::new(kind::TOOLS_RESOLVED, None, reason::NOT_SERVED_YET, message)
        }
    }
}

fn unresolved(tools: &ToolsStatus) -> String {
    let first = tools.unresolved.first().map_or("", |first| &first.message);
    match tools.unresolved_count {
        1 => format!("one entry of spec.tools names nothing: {first}"),
        count => format!("{count} entries of spec.tools name nothing, the first: {first}"),
    }
}

fn ready_message(tools: Option<&ToolsStatus>) -> String {
    match tools {
        None => "the agent is served".to_owned(),
        Some(ToolsStatus {
            listed,
            unresolved_count: 0,
            ..
        }) => format!("the agent is served with {listed} tools"),
        Some(tools) => format!(
            "the agent is served with {} tools; {}",
            tools.listed,
            unresolved(tools)
        ),
    }
}

/// The names of at most three pods.
fn few(pods: &[String]) -> String {
    let shown = pods
        .iter()
        .take(3)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    match pods.len().saturating_sub(3) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn generation(agent: &Agent) -> i64 {
    agent.metadata.generation.unwrap_or_default()
}

fn was_true(agent: &Agent, status: &AgentStatus, kind: &str) -> bool {
    of_this_generation(status, kind, generation(agent))
        .is_some_and(|condition| condition.status == "True")
}

fn of_this_generation<'a>(
    status: &'a AgentStatus,
    kind: &str,
    generation: i64,
) -> Option<&'a Condition> {
    let of_kind = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == kind)?;
    (of_kind.observed_generation == Some(generation)).then_some(of_kind)
}
