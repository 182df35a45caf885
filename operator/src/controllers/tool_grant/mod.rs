//! ToolGrants: whether their rules can be read, whether what they name is there, whether every gateway replica goes by
//! them, and whether their time has come.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chandlery_crds::check::{self, Finding};
use chandlery_crds::conditions::{self, Wanted, kind, reason};
use chandlery_crds::{ToolGrant, ToolGrantStatus, Workspace};
use jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;

use super::summary::{self, Obstacle};
use super::{Next, Reconciled};
use crate::api::Error;
use crate::context::{Context, now};
use crate::replicas::{Account, Coverage};

impl Reconciled for ToolGrant {
    const KIND: &'static str = "ToolGrant";

    async fn reconcile(grant: Arc<Self>, ctx: Arc<Context>) -> Result<Next, Error> {
        let observed = observe(&ctx, &grant);
        let plan = plan(&grant, &observed, now());
        let status = status(&grant, &plan, now());
        if grant.status.as_ref() != Some(&status) {
            ctx.cluster.apply_status(grant.as_ref(), &status).await?;
        }
        let moment = next_moment(&grant, now());
        Ok(Next::read_again(summary::is_waiting(&plan), moment))
    }
}

/// What there is of what the grant names, from the caches.
struct Observed {
    workspace: Option<Arc<Workspace>>,
    /// The Workspace that the Workspace's `accountRef` names.
    account: Option<Arc<Workspace>>,
    /// In which Workspace each Agent works that the grant names.
    workplaces: BTreeMap<String, String>,
    sources: BTreeSet<String>,
    /// Which replicas go by this generation.
    served: Coverage,
}

fn observe(ctx: &Context, grant: &ToolGrant) -> Observed {
    let namespace = grant.namespace().unwrap_or_default();
    let name = &grant.spec.workspace_ref.name;
    let workspace = ctx.caches.workspace(&namespace, name);
    let account_ref = workspace
        .as_ref()
        .and_then(|workspace| workspace.spec.account_ref.as_ref());
    let account = account_ref.and_then(|account| ctx.caches.workspace(&namespace, &account.name));
    let named = grant.spec.agents.names.iter().flatten();
    let workplaces = named
        .filter_map(|name| {
            let agent = ctx
                .caches
                .agents
                .get(&ObjectRef::new(name).within(&namespace))?;
            Some((name.clone(), agent.spec.workspace_ref.name.clone()))
        })
        .collect();
    let sources = ctx
        .caches
        .sources
        .state_filter(|source| source.metadata.namespace.as_deref() == Some(&namespace));
    let uid = grant.uid().unwrap_or_default();
    let generation = grant.metadata.generation.unwrap_or_default();
    let served = workspace.as_ref().map_or(Coverage::NoReplica, |workspace| {
        let account = Account {
            namespace: namespace.clone(),
            name: workspace.spec.account(name).to_owned(),
        };
        ctx.caches.board.coverage(&account, |report| {
            report
                .grants
                .get(&uid)
                .is_some_and(|&served| served >= generation)
        })
    });
    Observed {
        workspace,
        account,
        workplaces,
        sources: sources.iter().map(|source| source.name_any()).collect(),
        served,
    }
}

fn plan(grant: &ToolGrant, observed: &Observed, now: Timestamp) -> Vec<Wanted> {
    let findings = check::tool_grant(
        grant,
        observed.workspace.as_deref(),
        observed.account.as_deref(),
        |agent| observed.workplaces.get(agent).cloned(),
        |source| observed.sources.contains(source),
    );
    let served = served(grant, observed);
    let mut obstacles: Vec<Obstacle> = findings.iter().map(Obstacle::from).collect();
    if served.status != Some(true) {
        obstacles.push(Obstacle::waiting(served.reason, served.message.clone()));
    }
    let (own, references): (Vec<Finding>, Vec<Finding>) = findings
        .into_iter()
        .partition(|finding| OWN.contains(&finding.reason));
    let mut wanted = vec![
        summary::accepted(&own),
        summary::resolved_refs(&references),
        served,
    ];
    match resting(grant, now) {
        // What is wrong is worth more to know than that it does not matter at the moment.
        Some((reason, message)) if obstacles.iter().all(|obstacle| !obstacle.is_stalled) => {
            wanted.push(Wanted::new(kind::READY, Some(false), reason, message));
        }
        _ => wanted.extend(summary::conditions(&obstacles, "the grant is in force")),
    }
    wanted
}

/// What is wrong with a grant by itself, whatever there is around it.
const OWN: [&str; 2] = [reason::INVALID_CONSTRAINT, reason::INVALID];

/// Why a grant counts for nothing although nothing is wrong with it.
fn resting(grant: &ToolGrant, now: Timestamp) -> Option<(&'static str, String)> {
    let (not_before, expires_at) = times(grant);
    if let Some(end) = expires_at.filter(|end| *end <= now) {
        let message = format!("the grant ended at {end}: write a later expiresAt, or delete it");
        return Some((reason::EXPIRED, message));
    }
    let begin = not_before.filter(|begin| now < *begin)?;
    Some((
        reason::NOT_YET_BEGUN,
        format!("the grant begins to count at {begin}"),
    ))
}

/// When time alone changes what is said next.
fn next_moment(grant: &ToolGrant, now: Timestamp) -> Option<Timestamp> {
    let (not_before, expires_at) = times(grant);
    let moments = not_before.into_iter().chain(expires_at);
    moments.filter(|moment| now < *moment).min()
}

/// When the grant begins and ends; what cannot be read is among the findings.
fn times(grant: &ToolGrant) -> (Option<Timestamp>, Option<Timestamp>) {
    let time = |text: &Option<String>| text.as_deref().and_then(|text| text.parse().ok());
    (time(&grant.spec.not_before), time(&grant.spec.expires_at))
}

/// Latches, as an Agent's does.
fn served(grant: &ToolGrant, observed: &Observed) -> Wanted {
    let was_served = grant
        .status
        .iter()
        .flat_map(|status| &status.conditions)
        .any(|condition| {
            condition.type_ == kind::SERVED
                && condition.status == "True"
                && condition.observed_generation == grant.metadata.generation
        });
    let (status, reason, message) = match &observed.served {
        _ if observed.workspace.is_none() => (
            false,
            reason::WORKSPACE_NOT_FOUND,
            "there is no Workspace, and so no gateway",
        ),
        _ if was_served => (
            true,
            reason::SERVED,
            "every replica goes by this generation",
        ),
        Coverage::All => (
            true,
            reason::SERVED,
            "every replica goes by this generation",
        ),
        Coverage::NoReplica => (
            false,
            reason::GATEWAY_NOT_READY,
            "the account has no gateway that takes calls",
        ),
        Coverage::Waiting(_) => (
            false,
            reason::NOT_SERVED_YET,
            "not every replica goes by this generation yet",
        ),
    };
    Wanted::new(kind::SERVED, Some(status), reason, message)
}

fn status(grant: &ToolGrant, wanted: &[Wanted], now: Timestamp) -> ToolGrantStatus {
    let generation = grant.metadata.generation.unwrap_or_default();
    let old = grant
        .status
        .as_ref()
        .map_or(&[][..], |status| &status.conditions);
    ToolGrantStatus {
        observed_generation: Some(generation),
        conditions: conditions::merge(old, wanted, generation, now),
    }
}

#[cfg(test)]
mod tests;
