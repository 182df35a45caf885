//! Names that no agent is ever served, whatever its config says (R-C-030…054): a deployed agent can neither give
//! itself tools nor manage the platform.

use chandlery_crds::names;

/// The control tools of a workspace's own server (R-C-031…042).
const CONTROL: [&str; 12] = [
    "agnt_onboarding",
    "agnt_platform_map",
    "agnt_tools_search",
    "agnt_tools_enable",
    "agnt_tools_disable",
    "agnt_tools_list_enabled",
    "agnt_subscription_get",
    "agnt_subscription_preview",
    "agnt_subscription_change",
    "agnt_setup_claim",
    "agnt_bounties_list",
    "agnt_bounties_claim",
];

/// The families that manage the platform (R-C-046…053). What an agent may have of a resource is named elsewhere:
/// queues can be filled but not made, data jobs fed but not defined, syncs read but not set up.
const MANAGEMENT: [&str; 25] = [
    "agnt_agents_create",
    "agnt_agents_get",
    "agnt_agents_list",
    "agnt_agents_update*",
    "agnt_agents_deploy",
    "agnt_agents_set_enabled",
    "agnt_agents_archive",
    "agnt_agents_delete",
    "agnt_schedules_*",
    "agnt_queues_create",
    "agnt_queues_update",
    "agnt_queues_delete",
    "agnt_webhooks_create*",
    "agnt_webhooks_update*",
    "agnt_webhooks_delete*",
    "agnt_knowledge_*",
    "agnt_platform_*",
    "agnt_data_job_create",
    "agnt_data_job_update",
    "agnt_data_job_backfill",
    "agnt_data_job_delete",
    "agnt_sync_create",
    "agnt_sync_delete",
    "agnt_slack_bind*",
    "agnt_imessage_bind*",
];

/// Whether a tool of this name stays off agents' endpoints.
pub fn is_never_served(tool: &str) -> bool {
    CONTROL
        .iter()
        .chain(&MANAGEMENT)
        .any(|name| names::glob_matches(name, tool))
}
