//! Least privilege, from the API server's own log of what the tests before made the operator and the gateways do.
//!
//! A program of its own: cargo runs test programs by name, and this one has to come after `cluster`.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use chandlery_tests::audit::{self, Event, Mark};
use chandlery_tests::{cluster, people, release};
use serde::Deserialize;

/// API group, resource with its subresource, verb.
type Right = (String, String, String);

// P20
#[tokio::test]
#[ignore = "needs the test cluster"]
async fn the_rights_used_are_the_rights_granted() {
    let granted = granted().await.expect("ask the operator for its rights");
    let events = audit::since(Mark::default(), |user| user == release::OPERATOR_USER).unwrap();
    let used = used(&events);
    let unused: Vec<_> = granted.difference(&used).collect();
    assert!(unused.is_empty(), "granted and never used: {unused:?}");
    let beyond: Vec<_> = used.difference(&granted).collect();
    assert!(beyond.is_empty(), "used and not in the table: {beyond:?}");
}

/// What the ToolSources of the tests name. Keys of agents are not among them.
const OF_SOURCES: [&str; 4] = ["about", "crm", "hr", "to-books"];

// P20, design §2 and §8: a gateway holds no write verb on anything, and reads by name the Secret of its people and what
// its granted ToolSources name.
#[tokio::test]
#[ignore = "needs the test cluster"]
async fn gateways_list_and_watch_the_four_kinds_and_read_what_is_named_and_nothing_else() {
    let events = audit::since(Mark::default(), |user| {
        user.starts_with("system:serviceaccount:") && user.contains(":gateway-")
    })
    .unwrap();
    let kinds = ["agents", "toolgrants", "toolsources", "workspaces"];
    let expected: BTreeSet<Right> = kinds
        .into_iter()
        .flat_map(|kind| ["list", "watch"].map(|verb| (kind, verb)))
        .map(|(kind, verb)| ("chandlery.dev".to_owned(), kind.to_owned(), verb.to_owned()))
        .chain(
            ["configmaps", "secrets"]
                .map(|kind| (String::new(), kind.to_owned(), "get".to_owned())),
        )
        .collect();
    assert_eq!(used(&events), expected);
    let named = |kind: &str| -> BTreeSet<&str> {
        let answered = events.iter().filter(|event| code(event) != 403);
        answered
            .filter_map(|event| event.object_ref.as_ref())
            .filter(|object| object.resource == kind)
            .map(|object| object.name.as_str())
            .collect()
    };
    let (secrets, maps) = (named("secrets"), named("configmaps"));
    for needed in [people::TOKENS, "to-books"] {
        assert!(secrets.contains(needed), "{needed} was never read");
    }
    let known = |name: &&str| *name == people::TOKENS || OF_SOURCES.contains(name);
    let strange: Vec<_> = secrets.union(&maps).filter(|name| !known(name)).collect();
    assert!(
        strange.is_empty(),
        "read besides what is named: {strange:?}"
    );
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    api_group: String,
    resources: Vec<String>,
    verbs: Vec<String>,
}

async fn granted() -> Result<BTreeSet<Right>> {
    let operator = release::programs().await?.join("chandlery-operator");
    let operator = operator.to_str().context("a path that is text")?;
    let table = cluster::run_anywhere(operator, &["--print-rights"], "").await?;
    let rules: Vec<Rule> = serde_json::from_str(&table)?;
    let mut rights = BTreeSet::new();
    for rule in &rules {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                rights.insert((rule.api_group.clone(), resource.clone(), verb.clone()));
            }
        }
    }
    Ok(rights)
}

fn code(event: &Event) -> u16 {
    let status = event.response_status.as_ref();
    status.map_or(0, |status| status.code)
}

/// The rights that answered requests took. A server-side apply that makes an object takes `create` as well.
fn used(events: &[Event]) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for event in events {
        let Some(object) = &event.object_ref else {
            continue;
        };
        let code = code(event);
        if object.resource.is_empty() || code == 401 || code == 403 {
            continue;
        }
        let resource = match object.subresource.as_str() {
            "" => object.resource.clone(),
            subresource => format!("{}/{subresource}", object.resource),
        };
        let right = |verb: &str| (object.api_group.clone(), resource.clone(), verb.to_owned());
        rights.insert(right(&event.verb));
        if event.verb == "patch" && code == 201 {
            rights.insert(right("create"));
        }
    }
    rights
}
