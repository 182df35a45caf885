//! Condition types and reasons, and how they are merged into a status.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Condition types.
pub mod kind {
    pub const READY: &str = "Ready";
    pub const RECONCILING: &str = "Reconciling";
    pub const STALLED: &str = "Stalled";
    pub const STORE_READY: &str = "StoreReady";
    pub const GATEWAY_READY: &str = "GatewayReady";
    pub const KEY_READY: &str = "KeyReady";
    pub const TOOLS_RESOLVED: &str = "ToolsResolved";
    pub const SERVED: &str = "Served";
    pub const RESOLVED_REFS: &str = "ResolvedRefs";
    pub const ACCEPTED: &str = "Accepted";
    pub const REACHABLE: &str = "Reachable";
    pub const TOOLS_CHANGED: &str = "ToolsChanged";
}

/// Reasons: facts in PascalCase.
pub mod reason {
    pub const READY: &str = "Ready";
    pub const PROGRESSING: &str = "Progressing";
    pub const WORKSPACE_NOT_FOUND: &str = "WorkspaceNotFound";
    pub const ACCOUNT_NOT_FOUND: &str = "AccountNotFound";
    pub const ACCOUNT_IS_NOT_AN_ACCOUNT: &str = "AccountRefersToAnother";
    pub const SECRET_CONFLICT: &str = "SecretConflict";
    pub const SECRET_NOT_FOUND: &str = "SecretNotFound";
    pub const SECRET_INVALID: &str = "SecretInvalid";
    pub const KEY_IN_USE: &str = "KeyInUse";
    pub const KEY_MINTED: &str = "KeyMinted";
    pub const KEY_ROTATING: &str = "KeyRotating";
    pub const NO_KEY: &str = "NoKey";
    pub const DRAFT: &str = "Draft";
    pub const DISABLED: &str = "Disabled";
    pub const ARCHIVED: &str = "Archived";
    pub const DELETING: &str = "Deleting";
    pub const GATEWAY_NOT_READY: &str = "GatewayNotReady";
    pub const NOT_SERVED_YET: &str = "NotServedYet";
    pub const SERVED: &str = "Served";
    pub const RESOLVED: &str = "Resolved";
    pub const UNRESOLVED: &str = "Unresolved";
    pub const CONFIG_MAP_NOT_FOUND: &str = "ConfigMapNotFound";
    pub const AGENT_NOT_FOUND: &str = "AgentNotFound";
    pub const TOOL_SOURCE_NOT_FOUND: &str = "ToolSourceNotFound";
    pub const ACCEPTED: &str = "Accepted";
    pub const INVALID_CONSTRAINT: &str = "InvalidConstraint";
    pub const NOT_YET_BEGUN: &str = "NotYetBegun";
    pub const EXPIRED: &str = "Expired";
    pub const NEVER_SERVED: &str = "NeverServed";
    pub const SWITCHED_OFF: &str = "SwitchedOff";
    pub const NOT_GRANTED: &str = "NotGranted";
    pub const NOT_GRANTABLE: &str = "NotGrantable";
    pub const NO_SUCH_TOOL: &str = "NoSuchTool";
    pub const SOURCE_NOT_SERVED: &str = "SourceNotServed";
    pub const INVALID: &str = "Invalid";
    pub const CONFLICT: &str = "Conflict";
    pub const REPLICAS_SERVE: &str = "ReplicasServe";
    pub const CLAIM_BOUND: &str = "ClaimBound";
    pub const EXTERNAL_DATABASE: &str = "ExternalDatabase";
    pub const SECRET_HOST_NOT_ALLOWED: &str = "SecretHostNotAllowed";
    pub const DISCOVERED: &str = "Discovered";
    pub const NOT_DISCOVERED_YET: &str = "NotDiscoveredYet";
    pub const STALE: &str = "Stale";
    pub const BLOCKED: &str = "Blocked";
    pub const UNREACHABLE: &str = "Unreachable";
    pub const DOCUMENT_INVALID: &str = "DocumentInvalid";
    pub const CREDENTIAL_REFUSED: &str = "CredentialRefused";
    pub const AS_APPROVED: &str = "AsApproved";
    pub const TOOLS_WITHHELD: &str = "ToolsWithheld";
    pub const TOOLS_CHANGED: &str = "ToolsChanged";
}

/// What a plan says of one condition; [`merge`] gives it its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub kind: &'static str,
    /// `None` is `Unknown`.
    pub status: Option<bool>,
    pub reason: &'static str,
    pub message: String,
}

impl Wanted {
    pub fn new(
        kind: &'static str,
        status: Option<bool>,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            status,
            reason,
            message: message.into(),
        }
    }
}

/// The conditions to store: `lastTransitionTime` moves only where the status changes, so an unchanged plan
/// gives back exactly `old`. A condition that is no longer wanted is dropped.
pub fn merge(
    old: &[Condition],
    wanted: &[Wanted],
    generation: i64,
    now: Timestamp,
) -> Vec<Condition> {
    wanted
        .iter()
        .map(|wanted| {
            let status = match wanted.status {
                Some(true) => "True",
                Some(false) => "False",
                None => "Unknown",
            };
            let before = old.iter().find(|old| old.type_ == wanted.kind);
            let last_transition_time = match before {
                Some(before) if before.status == status => before.last_transition_time.clone(),
                _ => Time(Timestamp::from_second(now.as_second()).unwrap_or(now)),
            };
            Condition {
                type_: wanted.kind.to_owned(),
                status: status.to_owned(),
                reason: wanted.reason.to_owned(),
                message: wanted.message.clone(),
                observed_generation: Some(generation),
                last_transition_time,
            }
        })
        .collect()
}

/// Whether the condition `kind` is `True`.
pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    conditions
        .iter()
        .any(|condition| condition.type_ == kind && condition.status == "True")
}
