//! What there is. Reads only; what is absent is data.

use std::sync::Arc;

use chandlery_crds::key::{Digest, Key};
use chandlery_crds::names::{self, binding_secret};
use chandlery_crds::report::{AgentReport, ApprovalNews, Report};
use chandlery_crds::{Agent, Workspace};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;

use crate::api::Error;
use crate::context::Context;
use crate::keys::{self, binding};
use crate::replicas::{Account, Coverage};

/// What there is of an Agent.
pub(crate) struct Observed {
    pub(crate) workspace: Option<Arc<Workspace>>,
    /// The Workspace that the Workspace's `accountRef` names.
    pub(crate) account: Option<Arc<Workspace>>,
    /// The Secret under the name that a minted key has.
    pub(crate) secret: Option<Secret>,
    /// The Secret that the status names, when the key lies elsewhere now.
    pub(crate) former: Option<Secret>,
    /// The Secret that `existingSecretRef` names.
    pub(crate) existing: Option<Secret>,
    /// Whether the key that lies there, and that the status does not list, belongs to another.
    pub(crate) is_taken: bool,
    /// Which replicas accept the keys of the status.
    pub(crate) accepted: Coverage,
    /// Which replicas serve this generation with these keys.
    pub(crate) served: Coverage,
    pub(crate) report: Option<AgentReport>,
    /// Calls that wait for people or were decided lately.
    pub(crate) approvals: Vec<ApprovalNews>,
}

pub(super) async fn observe(ctx: &Context, agent: &Agent) -> Result<Observed, Error> {
    let namespace = agent.namespace().unwrap_or_default();
    let workspace = ctx
        .caches
        .workspace(&namespace, &agent.spec.workspace_ref.name);
    let account_ref = workspace
        .as_ref()
        .and_then(|workspace| workspace.spec.account_ref.as_ref());
    let account = account_ref.and_then(|account| ctx.caches.workspace(&namespace, &account.name));

    let minted = secret_name(agent);
    let secret: Option<Secret> = ctx.cluster.get(&namespace, &minted).await?;
    let reference = agent
        .spec
        .key
        .as_ref()
        .and_then(|key| key.existing_secret_ref.as_ref());
    let existing: Option<Secret> = match reference {
        Some(reference) => ctx.cluster.get(&namespace, &reference.name).await?,
        None => None,
    };
    let status = agent.status.clone().unwrap_or_default();
    let former = match status.binding.map(|binding| binding.name) {
        Some(name)
            if name != minted && reference.is_none_or(|reference| reference.name != name) =>
        {
            ctx.cluster.get(&namespace, &name).await?
        }
        _ => None,
    };
    let key = match reference {
        Some(reference) => existing
            .as_ref()
            .and_then(|secret| binding::key(secret, &reference.key)),
        None => secret
            .as_ref()
            .and_then(|secret| binding::key(secret, binding_secret::TOKEN)),
    };
    // A key that was brought is looked at again and again: an older owner may have come to it later.
    let is_settled = |key: &Key| reference.is_none() && keys::holds(&status.keys, key.digest());
    let is_taken =
        key.is_some_and(|key| !is_settled(&key) && belongs_to_another(ctx, agent, key.digest()));

    let uid = agent.uid().unwrap_or_default();
    let generation = agent.metadata.generation.unwrap_or_default();
    let account_name = workspace
        .as_ref()
        .map(|workspace| workspace.spec.account(&agent.spec.workspace_ref.name));
    let served_by = account_name.map(|name| Account {
        namespace: namespace.clone(),
        name: name.to_owned(),
    });
    let coverage = |is_meant: &dyn Fn(&AgentReport) -> bool| match &served_by {
        Some(account) => {
            let serves = |report: &Report| report.agents.get(&uid).is_some_and(is_meant);
            ctx.caches.board.coverage(account, serves)
        }
        None => Coverage::NoReplica,
    };
    let has_keys = |report: &AgentReport| report.key_revision == status.key_revision;
    Ok(Observed {
        accepted: coverage(&has_keys),
        served: coverage(&|report| has_keys(report) && report.generation >= generation),
        report: served_by
            .as_ref()
            .and_then(|account| ctx.caches.board.agent(account, &uid)),
        approvals: served_by
            .as_ref()
            .map(|account| ctx.caches.board.approvals(account, &uid))
            .unwrap_or_default(),
        workspace,
        account,
        secret,
        former,
        existing,
        is_taken,
    })
}

/// Name of the Secret that a minted key lies in.
pub(super) fn secret_name(agent: &Agent) -> String {
    let named = agent
        .spec
        .key
        .as_ref()
        .and_then(|key| key.secret_name.clone());
    named.unwrap_or_else(|| names::agent_secret(&agent.name_any()))
}

/// Whether an older Agent, or any Workspace, has this key.
fn belongs_to_another(ctx: &Context, agent: &Agent, digest: Digest) -> bool {
    let age = |agent: &Agent| (agent.metadata.creation_timestamp.clone(), agent.uid());
    let by_agent = ctx.caches.agents.find(|other| {
        other.metadata.uid != agent.metadata.uid
            && other
                .status
                .as_ref()
                .is_some_and(|status| keys::holds(&status.keys, digest))
            && age(other) < age(agent)
    });
    let by_workspace = ctx.caches.workspaces.find(|other| {
        other
            .status
            .as_ref()
            .is_some_and(|status| keys::holds(&status.keys, digest))
    });
    by_agent.is_some() || by_workspace.is_some()
}
