//! Workspaces: an account's gateway with everything around it, and each Workspace's key.

mod apply;
pub(crate) mod observe;
pub(crate) mod plan;
mod status;

use std::sync::Arc;

use chandlery_crds::Workspace;

use super::{Next, Reconciled, keys_happened, tell_conflict};
use crate::api::Error;
use crate::context::{Context, now, random};

impl Reconciled for Workspace {
    const KIND: &'static str = "Workspace";

    async fn reconcile(workspace: Arc<Self>, ctx: Arc<Context>) -> Result<Next, Error> {
        if workspace.metadata.deletion_timestamp.is_some() {
            // The garbage collector takes what belongs to it; making anything anew would only hold it up.
            return Ok(Next::Change);
        }
        let observed = observe::observe(&ctx, &workspace).await?;
        let plan = plan::plan(&workspace, &observed, &ctx.gateway, &mut random, now());
        let refusals = apply::apply(&ctx, &plan, &observed).await?;
        let status = status::status(&workspace, &plan, &refusals, now());
        let before = workspace.status.clone().unwrap_or_default();
        if workspace.status.as_ref() != Some(&status) {
            ctx.cluster
                .apply_status(workspace.as_ref(), &status)
                .await?;
        }
        keys_happened(&ctx, workspace.as_ref(), plan.happened).await;
        tell_conflict(
            &ctx,
            workspace.as_ref(),
            &before.conditions,
            &status.conditions,
        )
        .await;
        Ok(Next::read_again(
            plan.is_waiting || !refusals.is_empty(),
            plan.again_at,
        ))
    }
}
