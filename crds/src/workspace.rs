//! Workspace: where agents and people work. One without `accountRef` is an account and has a gateway.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    LocalObjectReference, ResourceRequirements, Toleration, TopologySpreadConstraint,
};
use k8s_openapi::api::networking::v1::NetworkPolicyPeer;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fields::{Binding, Conditions, Duration, KeyStatus, LocalRef, SecretSource};

/// Where agents and people work.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "chandlery.dev",
    version = "v1alpha1",
    kind = "Workspace",
    namespaced,
    status = "WorkspaceStatus",
    derive = "PartialEq",
    derive = "Default",
    shortname = "chw",
    category = "chandlery",
    doc = "A workspace: where agents and people work. One without accountRef is an account and gets a gateway.",
    selectable = ".spec.accountRef.name",
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Account", type_ = "string", json_path = ".spec.accountRef.name"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Title", type_ = "string", json_path = ".spec.title", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message", priority = 1),
    validation = Rule::new("self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && self.metadata.name.size() <= 40")
        .message("name a Workspace with at most 40 lower-case letters, digits and hyphens (no dots)"),
    validation = Rule::new("!has(self.spec.accountRef) || self.spec.accountRef.name != self.metadata.name")
        .message("accountRef names this Workspace itself: leave it out to make the Workspace an account")
)]
#[x_kube(validation = Rule::new("has(self.accountRef) == has(oldSelf.accountRef) && (!has(self.accountRef) || self.accountRef.name == oldSelf.accountRef.name)")
    .message("accountRef is immutable, and so is leaving it out: make another Workspace instead"))]
#[x_kube(validation = Rule::new("!has(self.accountRef) || (!has(self.gateway) && !has(self.store) && !has(self.people))")
    .message("gateway, store and people belong on the account: remove them here, or remove accountRef"))]
#[x_kube(validation = Rule::new("!has(self.gateway) || !has(self.gateway.replicas) || self.gateway.replicas <= 1 || (has(self.store) && has(self.store.postgres))")
    .message("more than one replica needs store.postgres").field_path(".gateway"))]
#[x_kube(validation = Rule::new("(has(self.store) && has(self.store.postgres)) == (has(oldSelf.store) && has(oldSelf.store.postgres))")
    .message("the kind of store is immutable: make a new Workspace and move the data").field_path(".store"))]
// On spec, which cannot vanish: further down, taking store or sqlite away and writing it anew would get around them.
#[x_kube(validation = Rule::new("(has(self.store) && has(self.store.postgres)) || quantity(has(self.store) && has(self.store.sqlite) ? self.store.sqlite.size : '1Gi').compareTo(quantity(has(oldSelf.store) && has(oldSelf.store.sqlite) ? oldSelf.store.sqlite.size : '1Gi')) >= 0")
    .message("a volume can grow but not shrink: write at least the size it has").field_path(".store"))]
#[x_kube(validation = Rule::new("(has(self.store) && has(self.store.sqlite) && has(self.store.sqlite.storageClassName) ? self.store.sqlite.storageClassName : '') == (has(oldSelf.store) && has(oldSelf.store.sqlite) && has(oldSelf.store.sqlite.storageClassName) ? oldSelf.store.sqlite.storageClassName : '')")
    .message("storageClassName is immutable, and so is leaving it out: make a new Workspace and move the data").field_path(".store"))]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceSpec {
    /// Name for people, at most 128 characters. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub title: Option<String>,
    /// What agents are here to do, in Markdown, at most 16,384 characters. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16384))]
    pub mission: Option<String>,
    /// The Workspace whose gateway and store serve this one. Left out: this Workspace is an account. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account_ref: Option<LocalRef>,
    /// How the account's gateway runs. Only on an account. Default: one replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<GatewaySpec>,
    /// Where the account keeps its data. Only on an account. Default: `sqlite` of 1Gi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreSpec>,
    /// When clients with a session (MCP 2025-11-25 and older) see a changed tool list. NextSession: when they connect
    /// again. Live: they are told at once. Clients of MCP 2026-07-28 always see the newest. Default: NextSession.
    #[serde(default)]
    pub tool_list_updates: ToolListUpdates,
    /// What the record of calls keeps of their arguments. Digest: a keyed digest alone. Clear: the arguments, too.
    /// Default: Digest.
    #[serde(default)]
    pub audit_arguments: AuditArguments,
    /// Built-in tools that are served only under a live ToolGrant, at most 256 names or globs, such as `agnt_db_*`.
    /// Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(min = 1, max = 200)))]
    #[x_kube(validation = Rule::new("self.all(tool, tool.matches('^[A-Za-z0-9_.*-]+$'))")
        .message("write a built-in tool's name or a glob, such as agnt_*; tools of sources always need a grant"))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub grant_required: Vec<String>,
    /// Who may allow calls, answer and look on. Only on an account. Default: nobody in a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub people: Option<PeopleSpec>,
}

/// Who may allow calls, answer and look on.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PeopleSpec {
    /// A Secret with a token for each person: the key is the person's name, the value a key that
    /// `chandlery key new` makes.
    pub tokens_secret_ref: SecretRef,
}

/// A Secret of the same namespace.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretRef {
    /// Name of the Secret, in the same namespace.
    #[schemars(length(max = 253))]
    #[x_kube(validation = crate::fields::subdomain())]
    pub name: String,
}

/// What the record of calls keeps of their arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum AuditArguments {
    #[default]
    Digest,
    Clear,
}

/// When clients with a session see a changed tool list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ToolListUpdates {
    #[default]
    NextSession,
    Live,
}

impl WorkspaceSpec {
    /// Name of the account that serves this Workspace, itself included.
    pub fn account<'a>(&'a self, name: &'a str) -> &'a str {
        self.account_ref
            .as_ref()
            .map_or(name, |account| &account.name)
    }
}

/// How an account's gateway runs.
#[derive(KubeSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewaySpec {
    /// How many pods serve, 1 to 32. More than one needs `store.postgres`. Default: 1.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 32))]
    pub replicas: i32,
    /// CPU and memory of the gateway's container. Default: the operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::embedded::resources")]
    pub resources: Option<ResourceRequirements>,
    /// Host names that clients use besides those of the Service, without scheme or port, at most 32.
    /// Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 253)))]
    #[x_kube(validation = Rule::new("self.all(host, host.matches('^([*][.])?[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'))")
        .message("write host names in lower case, without scheme or port, such as mcp.example.com"))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub hostnames: Vec<String>,
    /// Which pods may reach the gateway, as peers of a NetworkPolicy, at most 32. An empty list: none.
    /// Default: every pod of this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::embedded::peers")]
    pub allowed_from: Option<Vec<NetworkPolicyPeer>>,
    /// Networks that the gateway may reach besides cluster DNS and the API server: its database, say. At most 64.
    /// Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 64)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    #[x_kube(validation = Rule::new("self.all(network, isCIDR(network))").message("write each network as a CIDR, such as 10.20.0.0/16"))]
    pub egress_cidrs: Vec<String>,
    /// How long a gateway that cannot reach the API server goes on serving what it knew, at least `10s`.
    /// Default: without limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = crate::fields::at_least("10s", "30m"))]
    pub max_config_staleness: Option<Duration>,
    /// Image of the gateway. Default: the one that came with the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    #[x_kube(validation = Rule::new("self.matches('^[!-~]+$')").message("write an image, such as registry.example.com/chandlery:1.0"))]
    pub image: Option<String>,
    /// Secrets to pull the image with, at most 16. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::embedded::pull_secrets")]
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// PriorityClass of the pods. Default: the cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    #[x_kube(validation = crate::fields::subdomain())]
    pub priority_class_name: Option<String>,
    /// How pods spread over nodes and zones, at most 8 constraints. Default: the cluster's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::embedded::spread")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// Taints that the pods tolerate, at most 32. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::embedded::tolerations")]
    pub tolerations: Vec<Toleration>,
    /// Labels of the nodes to run on, at most 32. Default: any node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32, "additionalProperties" = {"type": "string", "maxLength": 63}))]
    pub node_selector: BTreeMap<String, String>,
}

fn one() -> i32 {
    1
}

impl Default for GatewaySpec {
    /// What an account runs whose spec says nothing about its gateway.
    fn default() -> Self {
        Self {
            replicas: one(),
            resources: None,
            hostnames: Vec::new(),
            allowed_from: None,
            egress_cidrs: Vec::new(),
            max_config_staleness: None,
            image: None,
            image_pull_secrets: Vec::new(),
            priority_class_name: None,
            topology_spread_constraints: Vec::new(),
            tolerations: Vec::new(),
            node_selector: BTreeMap::new(),
        }
    }
}

/// Where an account keeps its data.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[x_kube(validation = Rule::new("has(self.sqlite) != has(self.postgres)").message("write exactly one of: sqlite, postgres"))]
#[serde(rename_all = "camelCase")]
pub struct StoreSpec {
    /// A SQLite file on a volume of its own; one replica. Write either this or postgres.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sqlite: Option<SqliteSpec>,
    /// A PostgreSQL database of yours. Write either this or sqlite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub postgres: Option<PostgresSpec>,
    /// What becomes of the volume claim when the Workspace is deleted. Retain: a new Workspace of that name finds
    /// its data. Default: Retain.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// A SQLite file on a volume.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SqliteSpec {
    /// Size of the volume, such as 10Gi. It can grow but not shrink. Default: 1Gi.
    #[serde(default = "gibibyte")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("isQuantity(self) && quantity(self).isGreaterThan(quantity('0'))").message("write a size, such as 10Gi"))]
    pub size: String,
    /// StorageClass of the claim. Default: the cluster's. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    #[x_kube(validation = crate::fields::subdomain())]
    pub storage_class_name: Option<String>,
}

fn gibibyte() -> String {
    "1Gi".to_owned()
}

impl Default for SqliteSpec {
    fn default() -> Self {
        Self {
            size: gibibyte(),
            storage_class_name: None,
        }
    }
}

/// A PostgreSQL database.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PostgresSpec {
    /// Where the URL `postgres://user:password@host:5432/database` lies.
    pub url_from: SecretSource,
}

/// What becomes of the volume claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum DeletionPolicy {
    #[default]
    Retain,
    Delete,
}

/// What the operator found and did. Nobody else may write it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceStatus {
    /// The `metadata.generation` that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The Secret with the Workspace's key (Service Binding).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<Binding>,
    /// Digests of the Workspace's keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["digest"]))]
    pub keys: Vec<KeyStatus>,
    /// Ready, StoreReady, GatewayReady, and Reconciling or Stalled while something is open or wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::embedded::conditions")]
    pub conditions: Conditions,
}
