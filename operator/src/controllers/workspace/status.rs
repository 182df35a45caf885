//! The status to store. Pure; equal to the old one when nothing has changed.

use chandlery_crds::conditions::{self, kind};
use chandlery_crds::fields::Binding;
use chandlery_crds::{Workspace, WorkspaceStatus, names};
use jiff::Timestamp;
use kube::ResourceExt;

use super::plan::Plan;
use crate::controllers::summary::{self, Obstacle};

/// `refusals`: what the API server said against the plan's objects; they come before what the plan knew.
pub(crate) fn status(
    workspace: &Workspace,
    plan: &Plan,
    refusals: &[Obstacle],
    now: Timestamp,
) -> WorkspaceStatus {
    let generation = workspace.metadata.generation.unwrap_or_default();
    let old = workspace.status.clone().unwrap_or_default();
    let mut wanted = plan.conditions.clone();
    if !refusals.is_empty() {
        wanted.retain(|wanted| {
            ![kind::READY, kind::RECONCILING, kind::STALLED].contains(&wanted.kind)
        });
        wanted.extend(summary::conditions(refusals, ""));
    }
    WorkspaceStatus {
        observed_generation: Some(generation),
        binding: plan.has_binding.then(|| Binding {
            name: names::workspace_secret(&workspace.name_any()),
        }),
        keys: plan.keys.clone(),
        conditions: conditions::merge(&old.conditions, &wanted, generation, now),
    }
}
