use std::collections::BTreeSet;

use chandlery_crds::conditions::{self, kind};
use chandlery_crds::manifest::{self, Resource};
use kube::ResourceExt as _;

use super::wakes::Wake;
use super::*;

/// Caches with the objects that `text` holds, as if they had been watched.
fn caches(text: &str) -> Caches {
    let (workspaces, mut workspaces_writer) = store();
    let (agents, mut agents_writer) = store();
    let (sources, mut sources_writer) = store();
    let (grants, mut grants_writer) = store();
    let read = manifest::read(
        "f.yaml",
        &text.replace("v1alpha1 ", "apiVersion: chandlery.dev/v1alpha1\nkind: "),
    );
    assert_eq!(read.problems, []);
    for object in read.objects {
        match object.resource {
            Resource::Workspace(object) => {
                workspaces_writer.apply_watcher_event(&Event::Apply(*object))
            }
            Resource::Agent(object) => agents_writer.apply_watcher_event(&Event::Apply(*object)),
            Resource::ToolSource(object) => {
                sources_writer.apply_watcher_event(&Event::Apply(*object))
            }
            Resource::ToolGrant(object) => {
                grants_writer.apply_watcher_event(&Event::Apply(*object))
            }
            Resource::Secret(_) | Resource::ConfigMap(_) => panic!("neither is cached"),
        }
    }
    Caches {
        workspaces,
        agents,
        sources,
        grants,
        deployments: store().0,
        services: store().0,
        service_accounts: store().0,
        claims: store().0,
        policies: store().0,
        budgets: store().0,
        roles: store().0,
        role_bindings: store().0,
        pods: store().0,
        board: Board::default(),
        pods_changed: Notify::new(),
    }
}

/// The names of what is woken, each once, in order.
fn names_of(wakes: Vec<Wake>) -> Vec<String> {
    let names = wakes.into_iter().map(|wake| match wake {
        Wake::Workspace(object) => format!("workspace {}", object.name),
        Wake::Agent(object) => format!("agent {}", object.name),
        Wake::Source(object) => format!("source {}", object.name),
        Wake::Grant(object) => format!("grant {}", object.name),
        Wake::Replicas => "replicas".to_owned(),
    });
    let names: BTreeSet<String> = names.collect();
    names.into_iter().collect()
}

const HARBOUR: &str = "\
v1alpha1 Workspace\nmetadata: {name: home}\nspec: {}\n---\n\
v1alpha1 Workspace\nmetadata: {name: annex}\nspec: {accountRef: {name: home}}\n---\n\
v1alpha1 Workspace\nmetadata: {name: other}\nspec: {people: {tokensSecretRef: {name: tokens}}}\n---\n\
v1alpha1 ToolSource\nmetadata: {name: crm}\nspec: {mcp: {url: 'https://a.example'}, auth: {bearer: {secretKeyRef: {name: crm, key: t}}}}\n---\n\
v1alpha1 ToolSource\nmetadata: {name: hr}\nspec: {mcp: {url: 'https://a.example'}, auth: {bearer: {secretKeyRef: {name: mine, key: t}}}}\n---\n\
v1alpha1 ToolSource\nmetadata: {name: spare}\nspec: {mcp: {url: 'https://a.example'}}\n---\n\
v1alpha1 Agent\nmetadata: {name: a}\nspec: {workspaceRef: {name: home}, key: {secretName: mine}}\n---\n\
v1alpha1 ToolGrant\nmetadata: {name: of-annex}\nspec: {workspaceRef: {name: annex}, agents: {all: true}, tools: [crm/list, crm/get, memory]}\n---\n\
v1alpha1 ToolGrant\nmetadata: {name: of-other}\nspec: {workspaceRef: {name: other}, agents: {all: true}, tools: [hr/*]}\n---\n\
v1alpha1 ToolGrant\nmetadata: {name: of-nobody}\nspec: {workspaceRef: {name: gone}, agents: {all: true}, tools: [crm/*]}\n";

#[test]
fn an_account_asks_the_sources_that_grants_of_its_workspaces_name() {
    let caches = caches(HARBOUR);
    let sources = |account| {
        let sources = caches.sources_of("default", account);
        sources
            .iter()
            .map(|source| source.name_any())
            .collect::<Vec<_>>()
    };
    assert_eq!(sources("home"), ["crm"]);
    assert_eq!(sources("other"), ["hr"]);
    assert!(sources("annex").is_empty());
    assert_eq!(caches.grants_of("default", "crm").len(), 2);
    assert!(caches.grants_of("elsewhere", "crm").is_empty());
    for (secret, expected) in [("mine", true), ("tokens", true), ("crm", false)] {
        assert_eq!(caches.keeps_keys("default", secret), expected, "{secret}");
    }
}

#[test]
fn what_a_gateway_may_read_and_a_source_says_follows_grants_and_sources() {
    let caches = caches(HARBOUR);
    let source = |name: &str| {
        let found = caches.sources.find(|source| source.name_any() == name);
        found.unwrap()
    };
    let grant = caches
        .grants
        .find(|grant| grant.name_any() == "of-annex")
        .unwrap();
    let of_grant = ["grant of-annex", "source crm", "workspace home"];
    assert_eq!(names_of(grant.wakes(&caches, false)), of_grant);
    assert_eq!(names_of(grant.wakes(&caches, true)), of_grant);
    let of_source = names_of(source("hr").wakes(&caches, false));
    assert!(
        of_source.contains(&"workspace other".to_owned()),
        "{of_source:?}"
    );
    assert!(
        !of_source.contains(&"workspace home".to_owned()),
        "{of_source:?}"
    );
    // Its key's Secret is the one that hr names for a credential.
    let agent = caches.agents.find(|agent| agent.name_any() == "a").unwrap();
    let of_agent = names_of(agent.wakes(&caches, false));
    for expected in ["source hr", "workspace other"] {
        assert!(of_agent.contains(&expected.to_owned()), "{of_agent:?}");
    }
}

#[test]
fn a_source_that_no_grant_names_any_more_is_woken() {
    let (sources, mut writer) = store();
    let mut caches = caches(HARBOUR);
    let mut spare = (*caches
        .sources
        .find(|source| source.name_any() == "spare")
        .unwrap())
    .clone();
    let known = conditions::Wanted::new(kind::REACHABLE, Some(true), "Discovered", "");
    spare.status = Some(chandlery_crds::ToolSourceStatus {
        conditions: conditions::merge(&[], &[known], 1, jiff::Timestamp::UNIX_EPOCH),
        ..Default::default()
    });
    writer.apply_watcher_event(&Event::Apply(spare));
    caches.sources = sources;
    let grant = caches
        .grants
        .find(|grant| grant.name_any() == "of-other")
        .unwrap();
    assert_eq!(
        names_of(grant.wakes(&caches, false)),
        ["grant of-other", "source spare", "workspace other"]
    );
}
