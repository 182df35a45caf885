//! Agents: the key that opens an agent's endpoint, and what is known of how it is served.

mod apply;
mod approvals;
mod observe;
mod plan;
mod status;

use std::sync::Arc;

use chandlery_crds::Agent;

use super::{Next, Reconciled, keys_happened, tell_conflict};
use crate::api::Error;
use crate::context::{Context, fresh_key, now};

impl Reconciled for Agent {
    const KIND: &'static str = "Agent";

    async fn reconcile(agent: Arc<Self>, ctx: Arc<Context>) -> Result<Next, Error> {
        let observed = observe::observe(&ctx, &agent).await?;
        let plan = plan::plan(&agent, &observed, fresh_key, now());
        apply::apply(&ctx, &plan).await?;
        let status = status::status(&agent, &plan, now());
        let before = agent.status.clone().unwrap_or_default();
        if agent.status.as_ref() != Some(&status) {
            ctx.cluster.apply_status(agent.as_ref(), &status).await?;
        }
        keys_happened(&ctx, agent.as_ref(), plan.happened).await;
        tell_conflict(&ctx, agent.as_ref(), &before.conditions, &status.conditions).await;
        approvals::tell(&ctx, &agent, &observed.approvals).await;
        Ok(Next::read_again(plan.is_waiting, plan.again_at))
    }
}
