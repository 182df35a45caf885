//! A grant as the gate uses it: its rules compiled and its times read, once for each generation.

use std::collections::BTreeMap;
use std::sync::Arc;

use chandlery_crds::ToolGrantSpec;
use chandlery_crds::check::{self, Terms};
use chandlery_crds::constraint::{Constraint, Facts};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// A grant of one of the served Workspaces.
#[derive(Debug)]
pub struct ToolGrant {
    pub name: String,
    pub uid: String,
    pub generation: i64,
    /// The Workspace that it is about, as `<namespace>.<name>`.
    pub workspace: String,
    pub spec: ToolGrantSpec,
    pub constraints: Vec<Rule>,
    pub not_before: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
    /// What makes the grant count for nothing: a rule or a time that cannot be read.
    pub flaw: Option<String>,
}

/// How much a grant is good for, in a minute or a day of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limit {
    pub most: i64,
    pub per: Per,
    pub unit: Unit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Per {
    Minute,
    Day,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    Calls,
    /// What calls cost.
    Cents,
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let unit = match self.unit {
            Unit::Calls => "calls",
            Unit::Cents => "cents",
        };
        let per = match self.per {
            Per::Minute => "minute",
            Per::Day => "day",
        };
        write!(f, "{} {unit} per {per}", self.most)
    }
}

/// One constraint.
#[derive(Debug)]
pub struct Rule {
    pub name: String,
    pub source: String,
    /// What the agent reads when the rule does not hold.
    pub message: String,
    constraint: Constraint,
}

impl Rule {
    pub fn holds(&self, facts: &Facts) -> bool {
        self.constraint.holds(facts)
    }
}

impl PartialEq for ToolGrant {
    fn eq(&self, other: &Self) -> bool {
        self.uid == other.uid && self.generation == other.generation
    }
}

impl ToolGrant {
    pub(super) fn new(
        name: &str,
        uid: &str,
        generation: i64,
        workspace: String,
        spec: &ToolGrantSpec,
    ) -> Self {
        let (terms, flaw) = match check::terms(spec) {
            Ok(terms) => (terms, None),
            Err(findings) => {
                let first = findings.first();
                let flaw = first.map(|first| format!("{}: {}", first.field, first.message));
                (Terms::default(), Some(flaw.unwrap_or_default()))
            }
        };
        let rules = spec.constraints.iter().zip(terms.constraints);
        let constraints = rules.map(|(rule, constraint)| Rule {
            name: rule.name.clone(),
            source: rule.cel.clone(),
            message: rule.message.clone(),
            constraint,
        });
        Self {
            name: name.to_owned(),
            uid: uid.to_owned(),
            generation,
            workspace,
            constraints: constraints.collect(),
            not_before: terms.not_before,
            expires_at: terms.expires_at,
            flaw,
            spec: spec.clone(),
        }
    }

    /// Whether the grant counts at `now`, by the local clock.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.flaw.is_none()
            && self.not_before.is_none_or(|begin| begin <= now)
            && self.expires_at.is_none_or(|end| now < end)
    }

    /// When [`ToolGrant::is_live`] changes.
    pub fn moments(&self) -> impl Iterator<Item = Timestamp> {
        self.not_before.into_iter().chain(self.expires_at)
    }

    /// What the grant is good for in a minute and in a day.
    pub fn limits(&self) -> impl Iterator<Item = Limit> + use<> {
        let limits = self.spec.limits.clone().unwrap_or_default();
        let limit = |most: Option<i64>, per, unit| most.map(|most| Limit { most, per, unit });
        [
            limit(limits.calls_per_minute, Per::Minute, Unit::Calls),
            limit(limits.calls_per_day, Per::Day, Unit::Calls),
            limit(limits.cost_cents_per_day, Per::Day, Unit::Cents),
        ]
        .into_iter()
        .flatten()
    }

    /// Whether the grant is about an agent of its Workspace.
    pub(super) fn is_about(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        let agents = &self.spec.agents;
        agents.all == Some(true)
            || agents.names.iter().flatten().any(|named| named == name)
            || agents
                .selector
                .as_ref()
                .is_some_and(|selector| selects(selector, labels))
    }
}

/// Whether a selector that says something selects the labels. An operator that nobody knows selects nothing.
fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let wanted = selector.match_labels.iter().flatten();
    let rules = selector.match_expressions.iter().flatten();
    let is_empty = wanted.clone().next().is_none() && rules.clone().next().is_none();
    !is_empty
        && wanted
            .clone()
            .all(|(key, value)| labels.get(key) == Some(value))
        && rules.clone().all(|rule| {
            let value = labels.get(&rule.key);
            let values = rule.values.as_deref().unwrap_or_default();
            let is_among = value.is_some_and(|value| values.contains(value));
            match rule.operator.as_str() {
                "In" => is_among,
                "NotIn" => !is_among,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

/// The grants of `agent`'s Workspace that are about it, by name.
pub(super) fn of_agent<'a>(
    grants: impl Iterator<Item = &'a Arc<ToolGrant>>,
    name: &str,
    labels: &BTreeMap<String, String>,
    workspace: &str,
) -> Vec<Arc<ToolGrant>> {
    let mut own: Vec<Arc<ToolGrant>> = grants
        .filter(|grant| grant.workspace == workspace && grant.is_about(name, labels))
        .cloned()
        .collect();
    own.sort_by(|one, other| one.name.cmp(&other.name));
    own
}

/// Whether both hold the same grants.
pub(super) fn are_same(one: &[Arc<ToolGrant>], other: &[Arc<ToolGrant>]) -> bool {
    one.len() == other.len()
        && one
            .iter()
            .zip(other)
            .all(|(one, other)| Arc::ptr_eq(one, other))
}
