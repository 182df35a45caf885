//! The status to store. Pure; equal to the old one when nothing has changed.

use chandlery_crds::{Agent, AgentStatus, conditions, names};
use jiff::Timestamp;
use kube::ResourceExt;

use super::plan::Plan;

pub(crate) fn status(agent: &Agent, plan: &Plan, now: Timestamp) -> AgentStatus {
    let generation = agent.metadata.generation.unwrap_or_default();
    let old = agent
        .status
        .as_ref()
        .map_or(&[][..], |status| &status.conditions);
    AgentStatus {
        observed_generation: Some(generation),
        observed_rotate_key: plan.observed_rotate_key.clone(),
        agent_id: Some(names::agent_id(
            &agent.namespace().unwrap_or_default(),
            &agent.name_any(),
        )),
        endpoint: plan.endpoint.clone(),
        binding: plan.binding.clone(),
        keys: plan.keys.clone(),
        key_revision: plan.key_revision,
        tools: plan.tools.clone(),
        conditions: conditions::merge(old, &plan.conditions, generation, now),
    }
}
