//! Agent: one agent's config; its spec is what the tool list is built from.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fields::{Binding, Conditions, Duration, KeyStatus, LocalRef};
use crate::report::Unresolved;

/// What one agent may use, and the key it uses it with.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "chandlery.dev",
    version = "v1alpha1",
    kind = "Agent",
    namespaced,
    status = "AgentStatus",
    derive = "PartialEq",
    shortname = "cha",
    category = "chandlery",
    doc = "An agent: what it may use, and the key it uses it with.",
    selectable = ".spec.workspaceRef.name",
    selectable = ".spec.state",
    selectable = ".status.agentId",
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Workspace", type_ = "string", json_path = ".spec.workspaceRef.name"),
    printcolumn(name = "Tools", type_ = "integer", json_path = ".status.tools.listed"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "State", type_ = "string", json_path = ".spec.state", priority = 1),
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".status.endpoint", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message", priority = 1),
    validation = Rule::new("self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && self.metadata.name.size() <= 63")
        .message("name an Agent with at most 63 lower-case letters, digits and hyphens (no dots)")
)]
#[x_kube(validation = Rule::new("self.workspaceRef.name == oldSelf.workspaceRef.name")
    .message("workspaceRef is immutable: delete the Agent and make it again in the other Workspace").field_path(".workspaceRef"))]
#[x_kube(validation = Rule::new("!has(self.key) || !(has(self.key.secretName) && has(self.key.existingSecretRef))")
    .message("write secretName or existingSecretRef, not both").field_path(".key"))]
#[x_kube(validation = Rule::new("!has(self.key) || !(has(self.key.rotateEvery) && has(self.key.existingSecretRef))")
    .message("rotateEvery needs a key that Chandlery mints: remove existingSecretRef").field_path(".key"))]
#[x_kube(validation = Rule::new("!has(self.key) || !has(self.key.rotateEvery) || duration(self.key.rotateEvery) >= duration(self.key.overlap)")
    .message("rotateEvery may not be shorter than overlap, or keys would pile up").field_path(".key.rotateEvery"))]
#[serde(rename_all = "camelCase")]
pub struct AgentSpec {
    /// The Workspace that the agent works in. Immutable.
    pub workspace_ref: LocalRef,
    /// Name for people, at most 128 characters. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub display_name: Option<String>,
    /// Draft: no key and no endpoint yet. Deployed: served. Disabled: the key answers 401 until the agent is
    /// Deployed again. Archived: the key is revoked for good; once Deployed again, the agent gets a new one. Default: Deployed.
    #[serde(default)]
    pub state: AgentState,
    /// Tools on top of those that are always served, at most 512: names or globs of built-in tools (`agnt_*`), or
    /// `<source>/<operation>` (`crm/list_customers`, `crm/*`). Several managers may each apply some of them.
    /// Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 512), inner(length(min = 1, max = 200)))]
    #[x_kube(validation = crate::fields::tool_entries())]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub tools: Vec<String>,
    /// Serves the workspace tools (task, memory). Default: true.
    #[serde(default = "yes")]
    pub workspace_tools_enabled: bool,
    /// The agent's key: how long it lives and which Secret holds it. Default: one that is minted once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeySpec>,
}

fn yes() -> bool {
    true
}

/// Life of an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum AgentState {
    Draft,
    #[default]
    Deployed,
    Disabled,
    Archived,
}

/// An agent's key.
#[derive(KubeSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeySpec {
    /// Makes a new key this often, for example `720h`; at least `1m`, and no shorter than overlap. Default: never.
    /// The annotation `chandlery.dev/rotate-key` with any new value makes one now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = crate::fields::at_least("1m", "720h"))]
    pub rotate_every: Option<Duration>,
    /// How long the old key goes on working after a rotation; at least `1s`. Default: 15m.
    #[serde(default = "overlap")]
    #[x_kube(validation = crate::fields::at_least("1s", "15m"))]
    pub overlap: Duration,
    /// Name of the Secret to write. Default: `agent-<name>-mcp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    #[x_kube(validation = crate::fields::subdomain())]
    pub secret_name: Option<String>,
    /// A Secret of yours whose key to use instead of a minted one. It is never written; its value must be in
    /// Chandlery's key format (`chandlery key new` makes one). Default: a key is minted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub existing_secret_ref: Option<ExistingSecretRef>,
}

impl Default for KeySpec {
    fn default() -> Self {
        Self {
            rotate_every: None,
            overlap: overlap(),
            secret_name: None,
            existing_secret_ref: None,
        }
    }
}

/// How long an old key works after a rotation when nothing else is written.
pub fn overlap() -> Duration {
    Duration("15m".to_owned())
}

/// A Secret that already holds a key.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExistingSecretRef {
    /// Name of the Secret, in the same namespace.
    #[schemars(length(max = 253))]
    #[x_kube(validation = crate::fields::subdomain())]
    pub name: String,
    /// Key in the Secret's data. Default: token.
    #[serde(default = "token")]
    #[schemars(length(max = 253))]
    #[x_kube(validation = crate::fields::data_key())]
    pub key: String,
}

fn token() -> String {
    "token".to_owned()
}

/// What the operator found and did. Nobody else may write it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    /// The `metadata.generation` that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The last value of the annotation `chandlery.dev/rotate-key` that was acted upon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 262144))]
    pub observed_rotate_key: Option<String>,
    /// `<namespace>.<name>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 127))]
    pub agent_id: Option<String>,
    /// URL of the agent's MCP endpoint inside the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub endpoint: Option<String>,
    /// The Secret with the endpoint and the key (Service Binding).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<Binding>,
    /// Digests of the keys that work or are about to, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["digest"]))]
    pub keys: Vec<KeyStatus>,
    /// Grows with every change of `keys`.
    #[serde(default)]
    pub key_revision: i64,
    /// What the gateway made of `spec.tools`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<ToolsStatus>,
    /// Ready, KeyReady, ToolsResolved, Served, and Reconciling or Stalled while something is open or wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::embedded::conditions")]
    pub conditions: Conditions,
}

/// What the gateway made of `spec.tools`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolsStatus {
    /// How many tools the agent's list has.
    pub listed: i64,
    /// How many entries name nothing.
    #[serde(default)]
    pub unresolved_count: i64,
    /// The first 32 entries that name nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["entry"]))]
    pub unresolved: Vec<Unresolved>,
}
