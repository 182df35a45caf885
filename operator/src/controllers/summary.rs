//! From what is in the way to the conditions that tools wait for: Ready, Reconciling, Stalled.

use chandlery_crds::check::{Data, Finding, Held};
use chandlery_crds::conditions::{Wanted, kind, reason};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};

/// Something that keeps an object from being ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Obstacle {
    /// Only a person can take it away; otherwise it may go by itself.
    pub(crate) is_stalled: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Obstacle {
    pub(crate) fn waiting(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            is_stalled: false,
            reason,
            message: message.into(),
        }
    }

    pub(crate) fn stalled(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            is_stalled: true,
            reason,
            message: message.into(),
        }
    }
}

impl From<&Finding> for Obstacle {
    fn from(finding: &Finding) -> Self {
        let Finding {
            reason,
            field: _,
            message,
        } = finding;
        // What is missing may be on its way: in GitOps everything arrives at once, in any order.
        let may_come = [
            reason::WORKSPACE_NOT_FOUND,
            reason::ACCOUNT_NOT_FOUND,
            reason::AGENT_NOT_FOUND,
            reason::TOOL_SOURCE_NOT_FOUND,
            reason::SECRET_NOT_FOUND,
            reason::CONFIG_MAP_NOT_FOUND,
        ];
        Self {
            is_stalled: !may_come.contains(reason),
            reason,
            message: message.clone(),
        }
    }
}

/// Whether everything that the object names is there.
pub(crate) fn resolved_refs(findings: &[Finding]) -> Wanted {
    none_of(findings, kind::RESOLVED_REFS).unwrap_or_else(|| {
        let message = "everything named is there";
        Wanted::new(kind::RESOLVED_REFS, Some(true), reason::RESOLVED, message)
    })
}

/// Whether what the object says can be understood.
pub(crate) fn accepted(findings: &[Finding]) -> Wanted {
    none_of(findings, kind::ACCEPTED).unwrap_or_else(|| {
        let message = "everything written can be understood";
        Wanted::new(kind::ACCEPTED, Some(true), reason::ACCEPTED, message)
    })
}

/// The condition that findings make false; `None` when there are none.
fn none_of(findings: &[Finding], kind: &'static str) -> Option<Wanted> {
    let first = findings.first()?;
    let few: Vec<&str> = findings
        .iter()
        .take(3)
        .map(|finding| finding.message.as_str())
        .collect();
    let text = match findings.len().saturating_sub(3) {
        0 => few.join("; "),
        more => format!("{}; and {more} more", few.join("; ")),
    };
    Some(Wanted::new(kind, Some(false), first.reason, text))
}

/// Whether the object waits for something that can come any moment.
pub(crate) fn is_waiting(conditions: &[Wanted]) -> bool {
    conditions
        .iter()
        .any(|condition| condition.kind == kind::RECONCILING)
}

/// What lies under `key` of a Secret that was looked for.
pub(crate) fn held<'a>(secret: Option<&'a Secret>, key: &str) -> Held<'a> {
    let Some(secret) = secret else {
        return Held::NoObject;
    };
    let value = secret.data.as_ref().and_then(|data| data.get(key));
    value.map_or(Held::NoKey, |value| Held::Value(&value.0))
}

/// What a Secret holds that was looked for.
pub(crate) fn data(secret: Option<&Secret>) -> Data<'_> {
    secret.map_or(Data::NoObject, Data::of)
}

/// What lies under `key` of a ConfigMap that was looked for.
pub(crate) fn held_in_map<'a>(map: Option<&'a ConfigMap>, key: &str) -> Held<'a> {
    let Some(map) = map else {
        return Held::NoObject;
    };
    let value = map.data.as_ref().and_then(|data| data.get(key));
    value.map_or(Held::NoKey, |value| Held::Value(value.as_bytes()))
}

/// Ready says the first obstacle, one that needs a person before one that does not. Reconciling or Stalled stand
/// beside it for kstatus, and are gone when nothing is in the way.
pub(crate) fn conditions(obstacles: &[Obstacle], ready: &str) -> Vec<Wanted> {
    let Some(first) = obstacles
        .iter()
        .find(|obstacle| obstacle.is_stalled)
        .or(obstacles.first())
    else {
        return vec![Wanted::new(kind::READY, Some(true), reason::READY, ready)];
    };
    let beside = if first.is_stalled {
        kind::STALLED
    } else {
        kind::RECONCILING
    };
    vec![
        Wanted::new(
            kind::READY,
            Some(false),
            first.reason,
            first.message.clone(),
        ),
        Wanted::new(beside, Some(true), first.reason, first.message.clone()),
    ]
}

pub(crate) fn secret_conflict(name: &str) -> Obstacle {
    let message = format!(
        "Secret \"{name}\" exists and is not Chandlery's, so nothing was written: rename or delete it"
    );
    Obstacle::stalled(reason::SECRET_CONFLICT, message)
}

pub(crate) fn secret_going(name: &str) -> Obstacle {
    Obstacle::waiting(
        reason::PROGRESSING,
        format!("waits until the former Secret \"{name}\" is gone"),
    )
}
