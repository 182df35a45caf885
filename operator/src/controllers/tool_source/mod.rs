//! ToolSources: whether what they refer to is there, and what the gateways that ask them have found.

mod found;

use std::collections::BTreeSet;
use std::sync::Arc;

use chandlery_crds::check::{self, Credential, Finding, Held, SourceReferences};
use chandlery_crds::conditions::{self, Wanted, reason};
use chandlery_crds::fields::ConfigMapKeyRef;
use chandlery_crds::{SourceTools, ToolGrantSpec, ToolSource, ToolSourceStatus};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt;

use self::found::Found;
use super::summary::{self, Obstacle, held_in_map};
use super::{Next, Reconciled};
use crate::api::Error;
use crate::context::{Context, now};
use crate::replicas::{Replica, Word};

impl Reconciled for ToolSource {
    const KIND: &'static str = "ToolSource";

    async fn reconcile(source: Arc<Self>, ctx: Arc<Context>) -> Result<Next, Error> {
        let observed = observe(&ctx, &source, now()).await?;
        let plan = plan(&source, &observed, ctx.gateway.require_secret_hosts);
        let status = status(&source, &plan, now());
        if source.status.as_ref() != Some(&status) {
            ctx.cluster.apply_status(source.as_ref(), &status).await?;
        }
        // What is put right in a Secret or a ConfigMap is no change of anything that is watched.
        Ok(Next::read_again(!plan.findings.is_empty(), None))
    }
}

/// What there is around the source; `None` where it refers to nothing, or to nothing that exists.
#[derive(Default)]
struct Observed {
    document: Option<ConfigMap>,
    ca_bundle: Option<ConfigMap>,
    credential: Option<Secret>,
    /// Whether the credential lies where an Agent has its key, or people their tokens.
    is_kept: bool,
    asked: Asked,
    /// What each replica says of the source whose account has to ask it.
    words: Vec<(Replica, Word)>,
}

/// Whether gateways ask a source what it offers: those do whose account has a live grant on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Asked {
    #[default]
    ByNobody,
    /// There are grants, and it is not their time, or they do not count.
    Later,
    Now,
}

async fn observe(ctx: &Context, source: &ToolSource, now: Timestamp) -> Result<Observed, Error> {
    let namespace = source.namespace().unwrap_or_default();
    let map = async |reference: Option<&ConfigMapKeyRef>| match reference {
        Some(reference) => ctx.cluster.get(&namespace, &reference.name).await,
        None => Ok(None),
    };
    let credential = source.spec.credential_ref();
    let credential = credential.map(|(reference, _)| reference.name.as_str());

    let grants = ctx.caches.grants_of(&namespace, &source.name_any());
    let live = grants.iter().filter(|grant| is_live(&grant.spec, now));
    let accounts: BTreeSet<String> = live
        .filter_map(|grant| ctx.caches.account_of(grant))
        .collect();
    let asked = match (grants.is_empty(), accounts.is_empty()) {
        (true, _) => Asked::ByNobody,
        (false, true) => Asked::Later,
        (false, false) => Asked::Now,
    };
    let uid = source.uid().unwrap_or_default();
    let mut words = ctx.caches.board.source(&namespace, &uid);
    words.retain(|(replica, _)| accounts.contains(&replica.account.name));
    Ok(Observed {
        document: map(source.spec.document_ref()).await?,
        ca_bundle: map(source.spec.ca_ref()).await?,
        is_kept: credential.is_some_and(|name| ctx.caches.keeps_keys(&namespace, name)),
        credential: match credential {
            Some(name) => ctx.cluster.get(&namespace, name).await?,
            None => None,
        },
        asked,
        words,
    })
}

/// Whether a grant counts. One that begins or ends is a change of its status, which wakes its sources.
fn is_live(grant: &ToolGrantSpec, now: Timestamp) -> bool {
    check::terms(grant).is_ok_and(|terms| {
        terms.not_before.is_none_or(|begin| begin <= now)
            && terms.expires_at.is_none_or(|end| now < end)
    })
}

/// What to say of a source.
struct Plan {
    findings: Vec<Finding>,
    conditions: Vec<Wanted>,
    revision: Option<String>,
    tools: Option<SourceTools>,
}

fn plan(source: &ToolSource, observed: &Observed, requires_hosts: bool) -> Plan {
    let findings = references(source, observed, requires_hosts);
    let Found {
        reachable,
        changed,
        revision,
        tools,
    } = found::found(source, observed);
    let mut obstacles: Vec<Obstacle> = findings.iter().map(Obstacle::from).collect();
    obstacles.extend(unreachable(observed.asked, &reachable));
    let message = ready_message(observed.asked, &reachable, tools.as_ref());
    let mut conditions = vec![summary::resolved_refs(&findings), reachable, changed];
    conditions.extend(summary::conditions(&obstacles, &message));
    Plan {
        findings,
        conditions,
        revision,
        tools,
    }
}

fn references(source: &ToolSource, observed: &Observed, requires_hosts: bool) -> Vec<Finding> {
    let map = |reference: Option<&ConfigMapKeyRef>, map| {
        reference.map_or(Held::Unknown, |reference| held_in_map(map, &reference.key))
    };
    let references = SourceReferences {
        document: map(source.spec.document_ref(), observed.document.as_ref()),
        ca_bundle: map(source.spec.ca_ref(), observed.ca_bundle.as_ref()),
        credential: match &observed.credential {
            _ if observed.is_kept => Credential::Ours,
            Some(secret) => Credential::Secret(secret),
            None => Credential::NoObject,
        },
        requires_hosts,
    };
    check::tool_source(source, references)
}

/// A source that nobody is granted is as ready as it can be: who waits for it to be ready would wait for ever.
fn unreachable(asked: Asked, reachable: &Wanted) -> Option<Obstacle> {
    // A service that is down comes back by itself; what it says, or what we may do, does not change by itself.
    let may_pass = [
        reason::UNREACHABLE,
        reason::STALE,
        reason::NOT_DISCOVERED_YET,
    ];
    (asked == Asked::Now && reachable.status != Some(true)).then(|| Obstacle {
        is_stalled: !may_pass.contains(&reachable.reason),
        reason: reachable.reason,
        message: reachable.message.clone(),
    })
}

/// Tools that are withheld do not make a source less ready: what was approved is served.
fn ready_message(asked: Asked, reachable: &Wanted, tools: Option<&SourceTools>) -> String {
    let Some(tools) = tools.filter(|_| asked == Asked::Now) else {
        return format!(
            "everything that the source refers to is there; {}",
            reachable.message
        );
    };
    let mut message = match tools.served {
        1 => "1 tool can be granted".to_owned(),
        served => format!("{served} tools can be granted"),
    };
    for (count, what) in [(tools.withheld, "withheld"), (tools.left_out, "left out")] {
        if count > 0 {
            message.push_str(&format!(", {count} {what}"));
        }
    }
    message
}

fn status(source: &ToolSource, plan: &Plan, now: Timestamp) -> ToolSourceStatus {
    let generation = source.metadata.generation.unwrap_or_default();
    let old = source
        .status
        .as_ref()
        .map_or(&[][..], |status| &status.conditions);
    ToolSourceStatus {
        observed_generation: Some(generation),
        conditions: conditions::merge(old, &plan.conditions, generation, now),
        revision: plan.revision.clone(),
        tools: plan.tools.clone(),
    }
}

#[cfg(test)]
mod tests;
