//! Agent: one agent's config; its spec is what the tool list is built from.

use std::collections::BTreeMap;

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
#[x_kube(validation = Rule::new("(has(self.listing) ? self.listing : 'Grouped') == (has(oldSelf.listing) ? oldSelf.listing : 'Grouped')")
    .message("listing is fixed for the Agent's life: delete the Agent and make it again").field_path(".listing"))]
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
    /// How tools are listed. Grouped: one tool per resource and risk level, with an `action` argument. PerOperation: one
    /// tool per operation. Neither changes what the agent may call. Immutable. Default: Grouped.
    #[serde(default)]
    pub listing: Listing,
    /// Serves the workspace tools (task, memory). Default: true.
    #[serde(default = "yes")]
    pub workspace_tools_enabled: bool,
    /// The database of the Workspace. Default: readable and writable.
    #[serde(default, skip_serializing_if = "WorkspaceDb::is_default")]
    pub workspace_db: WorkspaceDb,
    /// Databases that the Workspace is connected to. Default: none.
    #[serde(default, skip_serializing_if = "ConnectionsDb::is_default")]
    pub connections_db: ConnectionsDb,
    /// Document collections that the agent may search and read, at most 64. Default: none, and no document tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 63)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub document_collection_ids: Vec<String>,
    /// Serves the tools that read what every agent of the Workspace did. Default: false.
    #[serde(default)]
    pub observability_enabled: bool,
    /// Serves the tools that run other agents. Default: false.
    #[serde(default)]
    pub agent_invocation_enabled: bool,
    /// Serves the tools that read, draft and publish dashboards. Default: false.
    #[serde(default)]
    pub dashboards_enabled: bool,
    /// Skills that run code. Default: none.
    #[serde(default, skip_serializing_if = "CodeExecution::is_default")]
    pub code_execution: CodeExecution,
    /// Serves the tool that feeds data jobs. Default: true.
    #[serde(default = "yes")]
    pub data_jobs_enabled: bool,
    /// Which calls a person has to allow. Default: none.
    #[serde(default, skip_serializing_if = "Permissions::is_default")]
    pub permissions: Permissions,
    /// The agent's key: how long it lives and which Secret holds it. Default: one that is minted once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeySpec>,
}

fn yes() -> bool {
    true
}

/// How tools are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Listing {
    #[default]
    Grouped,
    PerOperation,
}

/// What an agent may do with the Workspace's database.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkspaceDb {
    /// Serves the database tools. Default: true.
    #[schemars(default = "yes")]
    pub enabled: bool,
    /// Takes away the tools that write. Default: false.
    pub read_only: bool,
    /// Adds the tool that changes the schema, unless readOnly. Default: false.
    pub allow_apply_migration: bool,
}

impl WorkspaceDb {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for WorkspaceDb {
    fn default() -> Self {
        Self {
            enabled: true,
            read_only: false,
            allow_apply_migration: false,
        }
    }
}

/// Which connected databases an agent may query.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConnectionsDb {
    /// Serves the tools of the connected PostgreSQL database. Default: false.
    pub postgres_enabled: bool,
    /// Serves the tools of the allowed Supabase projects. Default: false.
    pub supabase_enabled: bool,
}

impl ConnectionsDb {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Skills that run code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CodeExecution {
    /// Serves the tool that lists skills, and with any skill those that run them. Default: false.
    pub enabled: bool,
    /// Names of the TypeScript skills that the agent carries, at most 64. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 63)), extend("x-kubernetes-list-type" = "set"))]
    pub skills: Vec<String>,
}

impl CodeExecution {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Which calls a person has to allow. An exact name counts more than a glob, and of several globs the strictest.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Permissions {
    /// The level of every tool that `tools` does not name. Default: act.
    #[serde(default)]
    pub default: Level,
    /// Levels by per-operation name or glob, at most 256, such as `agnt_db_*: ask`. Default: none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 256))]
    #[x_kube(validation = Rule::new(r"self.all(tool, tool.size() <= 200 && (tool.matches('^[A-Za-z0-9_.*-]+$') || tool.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[!-~][ -~]*$')))")
        .message("write a tool's name or a glob of at most 200 characters, such as agnt_*, or <source>/<operation>"))]
    pub tools: BTreeMap<String, Level>,
}

impl Permissions {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The entry of `tools` that decides about a tool, `None` where `default` does; and its level. An entry that is one
    /// of the tool's `names` comes before those that name it some other way.
    pub fn rule(
        &self,
        names: &[&str],
        is_named_by: impl Fn(&str) -> bool,
    ) -> (Option<&str>, Level) {
        let exact = names
            .iter()
            .find_map(|name| self.tools.get_key_value(*name));
        if let Some((exact, level)) = exact {
            return (Some(exact), *level);
        }
        self.tools
            .iter()
            .filter(|(entry, _)| is_named_by(entry))
            .max_by_key(|(_, level)| **level)
            .map_or((None, self.default), |(glob, level)| {
                (Some(glob.as_str()), *level)
            })
    }
}

/// What a call needs; the later the stricter.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// It runs.
    #[default]
    Act,
    /// A person allows it, once, for a session or for good.
    Ask,
    /// A person allows each call.
    AlwaysAsk,
}

impl Level {
    /// The word that manifests have for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Act => "act",
            Self::Ask => "ask",
            Self::AlwaysAsk => "always_ask",
        }
    }
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
