//! Whether a source's tools are those that somebody has approved. Pure.

use std::collections::{BTreeMap, BTreeSet};

use chandlery_crds::PinningPolicy;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::connector::OfferedTool;

/// The tools of one revision, as people look at them; by operation.
pub type Tools = BTreeMap<String, Shown>;

/// What is approved of one tool.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Shown {
    /// SHA-256 of everything here.
    pub digest: String,
    /// What an agent does not see, such as method and path.
    pub identity: String,
    pub description: String,
    pub input_schema: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Map<String, Value>>,
}

impl Shown {
    fn of(operation: &str, offered: &OfferedTool) -> Self {
        let tool = &offered.tool;
        let origin = tool.origin.as_ref();
        let output_schema = origin.and_then(|origin| origin.output_schema.clone());
        // A grouped list shows it.
        let group = tool.group.as_ref();
        let group = group.map(|group| (&group.name, &group.title, &group.description));
        let all = (
            operation,
            &offered.identity,
            &tool.title,
            &tool.description,
            &tool.input_schema,
            &output_schema,
            group,
        );
        let all = serde_json::to_vec(&all).expect("text and JSON values always serialize");
        Self {
            digest: hex::encode(Sha256::digest(all)),
            identity: offered.identity.clone(),
            description: tool.description.to_string(),
            input_schema: tool.input_schema.clone(),
            output_schema,
        }
    }
}

/// What is offered, as people look at it.
pub fn shown(offered: &[OfferedTool]) -> Tools {
    let tools = offered.iter().filter_map(|offered| {
        let operation = offered.tool.origin.as_ref()?.operation().to_owned();
        let shown = Shown::of(&operation, offered);
        Some((operation, shown))
    });
    tools.collect()
}

/// The name of a revision: 32 hex digits, so that nobody makes two lists of one name.
pub fn revision(tools: &Tools) -> String {
    let mut digest = Sha256::new();
    for (operation, shown) in tools {
        digest.update(operation);
        digest.update([0]);
        digest.update(&shown.digest);
        digest.update([0]);
    }
    hex::encode(&digest.finalize()[..16])
}

/// How a tool differs from what was approved.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The operation, as entries name it.
    pub name: String,
    pub kind: Kind,
    /// As it was approved.
    pub before: Option<Shown>,
    pub after: Option<Shown>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Kind {
    New,
    Changed,
    Gone,
}

impl Kind {
    /// The fact as conditions name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::New => "New",
            Self::Changed => "Changed",
            Self::Gone => "Gone",
        }
    }
}

/// How `now` differs from what was approved, by name.
pub fn changes(approved: &Tools, now: &Tools) -> Vec<Change> {
    let names: BTreeSet<&String> = approved.keys().chain(now.keys()).collect();
    let changes = names.into_iter().filter_map(|name| {
        if is_approved(approved, now, name) {
            return None;
        }
        let (before, after) = (approved.get(name), now.get(name));
        let kind = match (before, after) {
            (Some(_), Some(_)) => Kind::Changed,
            (None, _) => Kind::New,
            (_, None) => Kind::Gone,
        };
        Some(Change {
            name: name.clone(),
            kind,
            before: before.cloned(),
            after: after.cloned(),
        })
    });
    changes.collect()
}

/// Whether the tool of that operation is as it was approved.
pub fn is_approved(approved: &Tools, now: &Tools, operation: &str) -> bool {
    let (before, after) = (approved.get(operation), now.get(operation));
    matches!((before, after), (Some(before), Some(after)) if before.digest == after.digest)
}

/// The operations that are not served until somebody approves them.
pub fn withheld(changes: &[Change], policy: PinningPolicy) -> BTreeSet<&str> {
    let is_withheld = |change: &&Change| {
        policy == PinningPolicy::Quarantine && matches!(change.kind, Kind::New | Kind::Changed)
    };
    let withheld = changes.iter().filter(is_withheld);
    withheld.map(|change| change.name.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(of: &[(&str, &str)]) -> Tools {
        let tools = of.iter().map(|(name, description)| {
            let shown = Shown {
                digest: hex::encode(Sha256::digest(description)),
                identity: String::new(),
                description: (*description).to_owned(),
                input_schema: Map::new(),
                output_schema: None,
            };
            ((*name).to_owned(), shown)
        });
        tools.collect()
    }

    #[test]
    fn a_renamed_tool_is_a_new_one_and_a_gone_one() {
        let approved = tools(&[("list", "Lists."), ("get", "Gets one."), ("add", "Adds.")]);
        let now = tools(&[
            ("list", "Lists."),
            ("get", "Gets all!"),
            ("create", "Adds."),
        ]);
        let changes = changes(&approved, &now);
        let told: Vec<_> = changes
            .iter()
            .map(|change| (change.name.as_str(), change.kind))
            .collect();
        assert_eq!(
            told,
            [
                ("add", Kind::Gone),
                ("create", Kind::New),
                ("get", Kind::Changed)
            ]
        );
        let quarantined = withheld(&changes, PinningPolicy::Quarantine);
        assert_eq!(quarantined, BTreeSet::from(["create", "get"]));
        for policy in [PinningPolicy::Warn, PinningPolicy::Off] {
            assert_eq!(withheld(&changes, policy), BTreeSet::new());
        }
    }

    #[test]
    fn a_revision_is_named_by_what_it_holds() {
        let one = tools(&[("list", "Lists."), ("get", "Gets one.")]);
        let same = tools(&[("get", "Gets one."), ("list", "Lists.")]);
        let other = tools(&[("get", "Gets two."), ("list", "Lists.")]);
        assert_eq!(revision(&one), revision(&same));
        assert_ne!(revision(&one), revision(&other));
        assert_eq!(revision(&one).len(), 32);
    }
}
