//! ToolGrant: who may use what.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::agent::Level;
use crate::fields::{Conditions, LocalRef};

/// Which agents may use which tools.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "chandlery.dev",
    version = "v1alpha1",
    kind = "ToolGrant",
    namespaced,
    status = "ToolGrantStatus",
    derive = "PartialEq",
    shortname = "chg",
    category = "chandlery",
    doc = "A grant: which agents of a Workspace may use which tools.",
    selectable = ".spec.workspaceRef.name",
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Workspace", type_ = "string", json_path = ".spec.workspaceRef.name"),
    printcolumn(name = "Expires", type_ = "string", json_path = ".spec.expiresAt"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message", priority = 1),
    validation = Rule::new("self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && self.metadata.name.size() <= 63")
        .message("name a ToolGrant with at most 63 lower-case letters, digits and hyphens (no dots)")
)]
#[x_kube(validation = Rule::new("!has(self.notBefore) || !has(self.expiresAt) || self.notBefore < self.expiresAt")
    .message("expiresAt must be later than notBefore").field_path(".expiresAt"))]
#[x_kube(validation = Rule::new("self.workspaceRef.name == oldSelf.workspaceRef.name")
    .message("workspaceRef is immutable: make another ToolGrant instead").field_path(".workspaceRef"))]
#[serde(rename_all = "camelCase")]
pub struct ToolGrantSpec {
    /// The Workspace whose agents this grant is about. Immutable.
    pub workspace_ref: LocalRef,
    /// Which of its agents: exactly one of names, selector and all.
    pub agents: AgentsSpec,
    /// What they may use, 1 to 512 entries: `<source>/<operation>`, and globs of it (`crm/*`), or built-in tools that
    /// the Workspace's `grantRequired` names.
    #[schemars(length(min = 1, max = 512), inner(length(min = 1, max = 200)))]
    #[x_kube(validation = crate::fields::tool_entries())]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub tools: Vec<String>,
    /// The least that a call under this grant needs, however lenient the Agent's permissions are. Default: act.
    #[serde(default)]
    pub permission: Level,
    /// Lets the person at the agent's own client allow calls, too. Default: false.
    #[serde(default)]
    pub client_user_may_approve: bool,
    /// Passes on the resources of the MCP sources that `tools` names. Default: false.
    #[serde(default)]
    pub resources: bool,
    /// Passes on the prompts of the MCP sources that `tools` names. Default: false.
    #[serde(default)]
    pub prompts: bool,
    /// What must hold for a call, all of it, at most 16. Default: nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub constraints: Vec<ConstraintSpec>,
    /// How many calls the grant is good for, over all agents and replicas. Default: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// When the grant begins to count, RFC 3339. Default: at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 40), extend("format" = "date-time"))]
    pub not_before: Option<String>,
    /// When the grant ends, RFC 3339. Default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 40), extend("format" = "date-time"))]
    pub expires_at: Option<String>,
}

impl ToolGrantSpec {
    /// Names of the ToolSources whose tools are granted, as they are written: one may come more than once.
    pub fn sources(&self) -> impl Iterator<Item = &str> {
        let entries = self.tools.iter();
        entries.filter_map(|entry| Some(entry.split_once('/')?.0))
    }
}

/// A rule about a call, in the Common Expression Language.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConstraintSpec {
    /// Name of the rule, unique in the grant.
    #[schemars(length(max = 63))]
    #[x_kube(validation = crate::fields::label())]
    pub name: String,
    /// True when the call may go on. It knows `args`, `agent` (`id`, `name`, `namespace`, `workspace`, `labels`), `tool`
    /// (the per-operation name) and `now`. At most 1,024 characters, without comprehensions.
    #[schemars(length(min = 1, max = 1024))]
    pub cel: String,
    /// What the agent reads when the rule does not hold: what to do instead.
    #[schemars(length(min = 1, max = 512))]
    pub message: String,
}

/// How many calls a grant is good for. A refused call says when the next one may be made.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// Calls per minute of the clock, at least 1. Default: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub calls_per_minute: Option<i64>,
    /// Calls per day (UTC), at least 1. Default: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub calls_per_day: Option<i64>,
    /// What calls may cost per day (UTC), in cents, at least 1, as their operations say (`x-chandlery-cost`).
    /// Default: any amount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub cost_cents_per_day: Option<i64>,
}

/// Which agents a grant is about.
#[derive(KubeSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
#[x_kube(validation = Rule::new("(has(self.names) ? 1 : 0) + (has(self.selector) ? 1 : 0) + (has(self.all) ? 1 : 0) == 1")
    .message("write exactly one of: names, selector, all"))]
#[serde(rename_all = "camelCase")]
pub struct AgentsSpec {
    /// Agents by name, at most 256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256), inner(length(min = 1, max = 63)))]
    #[x_kube(validation = Rule::new("self.all(name, name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'))").message("write names of Agents: lower-case letters, digits and hyphens"))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub names: Option<Vec<String>>,
    /// Agents by their labels. The Agents that have them later on are in it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::embedded::some_labels")]
    pub selector: Option<LabelSelector>,
    /// Every agent of the Workspace; the only value is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self").message("write all: true, or name the agents"))]
    pub all: Option<bool>,
}

/// What the operator found.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolGrantStatus {
    /// The `metadata.generation` that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, Accepted, ResolvedRefs, Served, and Reconciling or Stalled while something is open or wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::embedded::conditions")]
    pub conditions: Conditions,
}
