//! What a gateway pod tells the operator over the internal port.
//!
//! `GET /internal/report?since=<revision>` with `Authorization: Bearer <internal-token>` waits up to 25 s until
//! something differs from `since`, then answers with the whole [`Report`] as JSON.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tool_source::SourceTools;

/// Path of the long poll on the internal port.
pub const PATH: &str = "/internal/report";
/// How long the gateway holds a poll when there is nothing new, in seconds.
pub const HOLD_SECONDS: u64 = 25;

/// Everything a gateway replica serves right now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Changes with every change of this report; meaningless across restarts of the gateway.
    pub revision: u64,
    /// By Agent UID.
    pub agents: BTreeMap<String, AgentReport>,
    /// By Workspace UID: the generation that this replica serves.
    pub workspaces: BTreeMap<String, i64>,
    /// By ToolGrant UID: the generation that this replica serves.
    pub grants: BTreeMap<String, i64>,
    /// By ToolSource UID: what this replica has found of those that are granted.
    #[serde(default)]
    pub sources: BTreeMap<String, SourceReport>,
}

/// What a gateway replica has found of one ToolSource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceReport {
    /// `metadata.generation` that the replica has looked at.
    pub generation: i64,
    /// Names what the source offers; absent until it has answered once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    pub tools: SourceTools,
    /// How many tools are not as they were approved, whether or not they are withheld for it.
    #[serde(default)]
    pub changed: i64,
    /// Why it could not be asked the last time; what it offered before goes on being served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<SourceFailure>,
}

/// Why a source could not be asked what it offers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceFailure {
    /// A fact in PascalCase, for example `Unreachable`.
    pub reason: String,
    /// What is wrong and what to do about it. Nothing secret.
    pub message: String,
}

/// What a gateway replica serves of one Agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentReport {
    /// `metadata.generation` that the replica serves.
    pub generation: i64,
    /// `status.keyRevision` that the replica accepts keys of.
    pub key_revision: i64,
    /// How many tools the agent's list has.
    pub listed: i64,
    /// How many entries of `spec.tools` name nothing.
    pub unresolved_count: i64,
    /// The first 32 of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unresolved: Vec<Unresolved>,
    /// Calls that wait for a person, and what was decided in the last 10 minutes: at most 16, the latest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<ApprovalNews>,
}

/// Where a call stands that a person has to allow. Never what its arguments are.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalNews {
    pub id: String,
    /// Per-operation name.
    pub tool: String,
    pub state: ApprovalState,
    /// Who decided; absent while nobody has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalState {
    Pending,
    Approved,
    Denied,
}

/// An entry of `spec.tools` that names nothing which can be served.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Unresolved {
    /// The entry as written.
    #[schemars(length(max = 200))]
    pub entry: String,
    /// A fact in PascalCase, for example `NoSuchTool`.
    #[schemars(length(max = 128))]
    pub reason: String,
    /// What is wrong and what to write instead.
    #[schemars(length(max = 1024))]
    pub message: String,
}
