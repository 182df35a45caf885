//! What the gateways have found of a source, put together: the worst of it counts.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use chandlery_crds::conditions::{Wanted, kind, reason};
use chandlery_crds::report::SourceReport;
use chandlery_crds::{PinningPolicy, SourceTools, ToolSource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;

use super::{Asked, Observed};
use crate::replicas::{Replica, Word};

/// What there is to say of how a source is reached and of what it offers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found {
    pub(super) reachable: Wanted,
    pub(super) changed: Wanted,
    pub(super) revision: Option<String>,
    pub(super) tools: Option<SourceTools>,
}

/// What the status says stays until the gateways have said something about this generation; and while one of them has
/// not reported at all, as after the operator's start, only what is worse counts.
pub(super) fn found(source: &ToolSource, observed: &Observed) -> Found {
    match observed.asked {
        Asked::ByNobody => {
            return unknown("no ToolGrant names this source yet, so no gateway asks it");
        }
        Asked::Later => {
            return unknown(
                "no ToolGrant that names this source counts at the moment, so no gateway asks it",
            );
        }
        Asked::Now => {}
    }
    let is_silent = observed.words.iter().any(|(_, word)| *word == Word::Silent);
    match (said(source, &observed.words), before(source)) {
        (Some(said), Some(before)) if is_silent => worse(said, before),
        (Some(said), _) => said,
        (None, Some(before)) => before,
        (None, None) => {
            let status = source.status.clone().unwrap_or_default();
            Found {
                revision: status.revision,
                tools: status.tools,
                ..unknown("no gateway has said yet what this source offers")
            }
        }
    }
}

fn unknown(message: &str) -> Found {
    let condition = |kind| Wanted::new(kind, None, reason::NOT_DISCOVERED_YET, message);
    Found {
        reachable: condition(kind::REACHABLE),
        changed: condition(kind::TOOLS_CHANGED),
        revision: None,
        tools: None,
    }
}

/// What the replicas have found that have asked by this generation; `None` while none has.
fn said(source: &ToolSource, words: &[(Replica, Word)]) -> Option<Found> {
    let generation = source.metadata.generation.unwrap_or_default();
    let reports: Vec<(&Replica, &SourceReport)> = words
        .iter()
        .filter_map(|(replica, word)| match word {
            Word::Found(report) => {
                let has_asked = report.revision.is_some() || report.failure.is_some();
                (report.generation >= generation && has_asked).then_some((replica, report))
            }
            Word::Silent | Word::Nothing => None,
        })
        .collect();
    let (_, worst) = reports.iter().max_by_key(|(_, report)| {
        let tools = &report.tools;
        (
            // One that has never had an answer has nothing to say of the tools.
            report.revision.is_some(),
            tools.withheld,
            report.changed,
            tools.left_out,
            Reverse(tools.served),
            &report.revision,
        )
    })?;
    Some(Found {
        reachable: reachable(&reports),
        changed: changed(source, worst),
        revision: worst.revision.as_deref().map(|text| cut(text, 64)),
        tools: worst.revision.as_ref().map(|_| fitting(&worst.tools)),
    })
}

fn reachable(reports: &[(&Replica, &SourceReport)]) -> Wanted {
    let failing = reports
        .iter()
        .find_map(|(replica, report)| Some((replica, report, report.failure.as_ref()?)));
    let Some((replica, report, failure)) = failing else {
        let message = "the source has said what it offers";
        return Wanted::new(kind::REACHABLE, Some(true), reason::DISCOVERED, message);
    };
    let accounts: BTreeSet<&str> = reports
        .iter()
        .map(|(replica, _)| replica.account.name.as_str())
        .collect();
    let mut message = cut(&failure.message, 1024);
    if accounts.len() > 1 {
        message = format!("at Workspace {}: {message}", replica.account.name);
    }
    if report.revision.is_some() {
        message.push_str("; what it offered before goes on being served");
    }
    Wanted::new(
        kind::REACHABLE,
        Some(false),
        reason_of(&failure.reason),
        message,
    )
}

fn changed(source: &ToolSource, report: &SourceReport) -> Wanted {
    let Some(revision) = report.revision.as_deref().map(|text| cut(text, 64)) else {
        let message = "the source has not said yet what it offers";
        let reason = reason::NOT_DISCOVERED_YET;
        return Wanted::new(kind::TOOLS_CHANGED, None, reason, message);
    };
    let pinning = source.spec.pinning();
    let other = pinning
        .approved_revision
        .filter(|approved| *approved != revision);
    if report.changed <= 0 {
        let message = match (pinning.policy, other) {
            (PinningPolicy::Off, _) => "no tool is pinned".to_owned(),
            (PinningPolicy::Quarantine | PinningPolicy::Warn, None) => {
                "every tool is as it was approved".to_owned()
            }
            (PinningPolicy::Quarantine | PinningPolicy::Warn, Some(other)) => format!(
                "every tool is as it was approved; spec.pinning.approvedRevision names {other}, which is not what the source offers now: {revision}"
            ),
        };
        return Wanted::new(
            kind::TOOLS_CHANGED,
            Some(false),
            reason::AS_APPROVED,
            message,
        );
    }
    let count = match report.changed {
        1 => "1 tool is".to_owned(),
        count => format!("{count} tools are"),
    };
    let (reason, fate) = match report.tools.withheld {
        ..=0 => (reason::TOOLS_CHANGED, "served all the same".to_owned()),
        withheld if withheld >= report.changed => (reason::TOOLS_WITHHELD, "withheld".to_owned()),
        withheld => (reason::TOOLS_WITHHELD, format!("{withheld} withheld")),
    };
    let instead = other.map_or(String::new(), |other| format!(" in place of {other}"));
    let message = format!(
        "{count} not as approved, and {fate}: look at `chandlery sources diff {}`, then write spec.pinning.approvedRevision: {revision}{instead}",
        source.name_any(),
    );
    Wanted::new(kind::TOOLS_CHANGED, Some(true), reason, message)
}

/// What the status says of this generation, if gateways had found something.
fn before(source: &ToolSource) -> Option<Found> {
    let status = source.status.as_ref()?;
    let condition = |kind: &'static str| {
        let condition = status.conditions.iter().find(|old| old.type_ == kind)?;
        let is_current = condition.observed_generation == source.metadata.generation;
        is_current.then(|| wanted(kind, condition))
    };
    let reachable = condition(kind::REACHABLE).filter(|old| old.status.is_some())?;
    Some(Found {
        reachable,
        changed: condition(kind::TOOLS_CHANGED)?,
        revision: status.revision.clone(),
        tools: status.tools.clone(),
    })
}

fn wanted(kind: &'static str, condition: &Condition) -> Wanted {
    let status = match condition.status.as_str() {
        "True" => Some(true),
        "False" => Some(false),
        _ => None,
    };
    let message = condition.message.clone();
    Wanted::new(kind, status, reason_of(&condition.reason), message)
}

/// Of what is said now and what was said before, the worse.
fn worse(said: Found, before: Found) -> Found {
    let badness = |found: &Found| {
        let tools = found.tools.as_ref();
        (
            found.revision.is_some(),
            tools.map_or(0, |tools| tools.withheld),
            found.changed.status == Some(true),
            tools.map_or(0, |tools| tools.left_out),
        )
    };
    let is_worse = badness(&before) > badness(&said);
    let was_unreachable = before.reachable.status == Some(false);
    let reachable = if was_unreachable && said.reachable.status == Some(true) {
        before.reachable.clone()
    } else {
        said.reachable.clone()
    };
    let of_tools = if is_worse { before } else { said };
    Found {
        reachable,
        ..of_tools
    }
}

/// A reason out of a report or a status: one of ours, since a condition holds no other text.
fn reason_of(text: &str) -> &'static str {
    const KNOWN: [&str; 15] = [
        reason::DISCOVERED,
        reason::NOT_DISCOVERED_YET,
        reason::AS_APPROVED,
        reason::TOOLS_CHANGED,
        reason::TOOLS_WITHHELD,
        reason::UNREACHABLE,
        reason::STALE,
        reason::BLOCKED,
        reason::CREDENTIAL_REFUSED,
        reason::DOCUMENT_INVALID,
        reason::SECRET_NOT_FOUND,
        reason::SECRET_INVALID,
        reason::SECRET_HOST_NOT_ALLOWED,
        reason::CONFIG_MAP_NOT_FOUND,
        reason::INVALID,
    ];
    let known = KNOWN.into_iter().find(|known| *known == text);
    known.unwrap_or(reason::UNREACHABLE)
}

/// The tools of a report within the bounds of a status: the API server would refuse the whole of it.
fn fitting(tools: &SourceTools) -> SourceTools {
    let mut names = BTreeSet::new();
    let noted = tools.noted.iter().map(|noted| {
        let mut noted = noted.clone();
        noted.name = cut(&noted.name, 256);
        noted.reason = cut(&noted.reason, 128);
        noted.message = cut(&noted.message, 1024);
        noted
    });
    SourceTools {
        noted: noted
            .filter(|noted| names.insert(noted.name.clone()))
            .take(32)
            .collect(),
        ..*tools
    }
}

fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}
