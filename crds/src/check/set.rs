//! What can be said of many objects together: duplicates, Secrets that two want to write, and each one's references.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::{
    Credential, Data, Finding, Held, SourceReferences, agent, tool_grant, tool_source, workspace,
};
use crate::fields::{ConfigMapKeyRef, SecretKeyRef};
use crate::manifest::{Object, Problem, Resource};
use crate::report::Unresolved;
use crate::{Agent, AgentState, Workspace, names};

/// Everything that can be said of `objects` as a whole: duplicates, and each one's references to the others.
///
/// A Secret or ConfigMap that is not among them may well be elsewhere, so it is not missed; one that is must hold
/// what it is asked for. Whether entries of `spec.tools` name anything is for [`entries`] to say, where somebody knows
/// the tools.
pub fn all(objects: &[Object]) -> Vec<Problem> {
    let mut by_name = BTreeMap::new();
    let mut problems = Vec::new();
    for object in objects {
        match by_name.entry((object.kind(), object.namespace(), object.name())) {
            Entry::Vacant(entry) => drop(entry.insert(object)),
            Entry::Occupied(entry) => {
                let first = entry.get();
                let message = format!(
                    "is written twice: it is also in {}:{}",
                    first.file,
                    first.line("")
                );
                problems.push(object.problem("", message));
            }
        }
    }
    problems.extend(secret_conflicts(objects));
    let known = Known(by_name);
    for object in objects {
        problems.extend(
            known
                .findings(object)
                .into_iter()
                .map(|finding| object.problem(&finding.field, finding.message)),
        );
    }
    problems
}

/// What is said of the entries and switches of an Agent that serve nothing, each where it is written.
pub fn entries(object: &Object, agent: &Agent, unresolved: Vec<Unresolved>) -> Vec<Problem> {
    let place = |entry: &str| {
        let at = agent.spec.tools.iter().position(|written| written == entry);
        at.map_or_else(|| format!("spec.{entry}"), |at| format!("spec.tools[{at}]"))
    };
    unresolved
        .into_iter()
        .map(|unresolved| object.problem(&place(&unresolved.entry), unresolved.message))
        .collect()
}

/// Secrets that two objects want to write, or that is there already and belongs to nobody of ours.
fn secret_conflicts(objects: &[Object]) -> Vec<Problem> {
    let mut owners: BTreeMap<(&str, String), &Object> = BTreeMap::new();
    let (foreign, ours): (Vec<_>, Vec<_>) = objects
        .iter()
        .partition(|object| matches!(object.resource, Resource::Secret(_)));
    let mut problems = Vec::new();
    for object in foreign.into_iter().chain(ours) {
        for (name, field) in secrets_of(object) {
            match owners.entry((object.namespace(), name)) {
                Entry::Vacant(entry) => drop(entry.insert(object)),
                // Written twice, which is said already.
                Entry::Occupied(entry)
                    if entry.get().kind() == object.kind()
                        && entry.get().name() == object.name() => {}
                Entry::Occupied(entry) => {
                    let (owner, name) = (entry.get(), &entry.key().1);
                    let message = match owner.resource {
                        Resource::Secret(_) => format!(
                            "Secret {name} is yours and will not be overwritten: remove it, or name another"
                        ),
                        _ => format!(
                            "Secret {name} is that of {} {}: name another",
                            owner.kind(),
                            owner.name()
                        ),
                    };
                    problems.push(object.problem(field, message));
                }
            }
        }
    }
    problems
}

/// Names of the Secrets that come of `object`, and the field that decides on the name.
fn secrets_of(object: &Object) -> Vec<(String, &'static str)> {
    match &object.resource {
        // What the operator wrote and somebody printed has an owner.
        Resource::Secret(secret) => match secret.metadata.owner_references {
            None => vec![(object.name().to_owned(), "")],
            Some(_) => Vec::new(),
        },
        Resource::Workspace(workspace) => {
            let key = (names::workspace_secret(object.name()), "metadata.name");
            let gateway = (names::gateway(object.name()), "metadata.name");
            match workspace.spec.account_ref {
                None => vec![key, gateway],
                Some(_) => vec![key],
            }
        }
        Resource::Agent(agent) if agent.spec.state != AgentState::Draft => match &agent.spec.key {
            Some(key) if key.existing_secret_ref.is_some() => Vec::new(),
            key => {
                let chosen = key.as_ref().and_then(|key| key.secret_name.clone());
                vec![(
                    chosen.unwrap_or_else(|| names::agent_secret(object.name())),
                    "spec.key.secretName",
                )]
            }
        },
        Resource::Agent(_)
        | Resource::ToolSource(_)
        | Resource::ToolGrant(_)
        | Resource::ConfigMap(_) => Vec::new(),
    }
}

/// Whether the Secret of that name is where `object` has a key or its people's tokens.
fn keeps(object: &Object, name: &str) -> bool {
    let is_tokens = match &object.resource {
        Resource::Secret(_) => return false,
        Resource::Workspace(workspace) => workspace
            .spec
            .people
            .as_ref()
            .is_some_and(|people| people.tokens_secret_ref.name == name),
        _ => false,
    };
    let mut secrets = secrets_of(object).into_iter();
    is_tokens || secrets.any(|(secret, _)| secret == name)
}

/// Objects by kind, namespace and name.
struct Known<'a>(BTreeMap<(&'static str, &'a str, &'a str), &'a Object>);

impl<'a> Known<'a> {
    fn findings(&self, object: &Object) -> Vec<Finding> {
        let namespace = object.namespace();
        match &object.resource {
            Resource::Workspace(found) => {
                let postgres = found
                    .spec
                    .store
                    .as_ref()
                    .and_then(|store| store.postgres.as_ref());
                let url = postgres.map_or(Held::Unknown, |postgres| {
                    self.secret(namespace, &postgres.url_from.secret_key_ref)
                });
                let people = found.spec.people.as_ref();
                let people = people.map_or(Data::Unknown, |people| {
                    self.data(namespace, &people.tokens_secret_ref.name)
                });
                workspace(found, self.account(namespace, Some(&**found)), url, people)
            }
            Resource::Agent(found) => {
                let workspace = self.workspace(namespace, &found.spec.workspace_ref.name);
                let reference = found
                    .spec
                    .key
                    .as_ref()
                    .and_then(|key| key.existing_secret_ref.as_ref());
                let key = reference.map_or(Held::Unknown, |reference| {
                    self.held("Secret", namespace, &reference.name, &reference.key)
                });
                agent(found, workspace, self.account(namespace, workspace), key)
            }
            Resource::ToolSource(found) => {
                let map = |reference: Option<&ConfigMapKeyRef>| {
                    reference.map_or(Held::Unknown, |reference| {
                        self.held("ConfigMap", namespace, &reference.name, &reference.key)
                    })
                };
                let credential = found.spec.credential_ref();
                let references = SourceReferences {
                    document: map(found.spec.document_ref()),
                    credential: credential.map_or(Credential::Unknown, |(reference, _)| {
                        self.credential(namespace, &reference.name)
                    }),
                    ca_bundle: map(found.spec.ca_ref()),
                    // Whether a cluster requires it is not written in any manifest.
                    requires_hosts: false,
                };
                tool_source(found, references)
            }
            Resource::ToolGrant(found) => {
                let workspace = self.workspace(namespace, &found.spec.workspace_ref.name);
                let workplace =
                    |name: &str| match &self.0.get(&("Agent", namespace, name))?.resource {
                        Resource::Agent(agent) => Some(agent.spec.workspace_ref.name.clone()),
                        _ => None,
                    };
                let is_source = |name: &str| self.0.contains_key(&("ToolSource", namespace, name));
                tool_grant(
                    found,
                    workspace,
                    self.account(namespace, workspace),
                    workplace,
                    is_source,
                )
            }
            Resource::Secret(_) | Resource::ConfigMap(_) => Vec::new(),
        }
    }

    fn workspace(&self, namespace: &str, name: &str) -> Option<&'a Workspace> {
        match &self.0.get(&("Workspace", namespace, name))?.resource {
            Resource::Workspace(workspace) => Some(workspace),
            _ => None,
        }
    }

    fn account(&self, namespace: &str, workspace: Option<&Workspace>) -> Option<&'a Workspace> {
        self.workspace(namespace, &workspace?.spec.account_ref.as_ref()?.name)
    }

    fn secret(&self, namespace: &str, reference: &SecretKeyRef) -> Held<'a> {
        self.held("Secret", namespace, &reference.name, &reference.key)
    }

    /// A Secret that is not among the objects may be elsewhere.
    fn data(&self, namespace: &str, name: &str) -> Data<'a> {
        let object = self.0.get(&("Secret", namespace, name));
        match object.map(|object| &object.resource) {
            Some(Resource::Secret(secret)) => Data::of(secret),
            _ => Data::Unknown,
        }
    }

    /// A Secret of that name for a ToolSource. One that is not among the objects may be elsewhere.
    fn credential(&self, namespace: &str, name: &str) -> Credential<'a> {
        let mut here = self
            .0
            .values()
            .filter(|object| object.namespace() == namespace);
        if here.any(|object| keeps(object, name)) {
            return Credential::Ours;
        }
        match self.0.get(&("Secret", namespace, name)) {
            Some(object) => match &object.resource {
                Resource::Secret(secret) => Credential::Secret(secret),
                _ => Credential::Unknown,
            },
            None => Credential::Unknown,
        }
    }

    fn held(&self, kind: &'static str, namespace: &str, name: &str, key: &str) -> Held<'a> {
        let value = match self
            .0
            .get(&(kind, namespace, name))
            .map(|object| &object.resource)
        {
            Some(Resource::Secret(secret)) => secret
                .data
                .as_ref()
                .and_then(|data| data.get(key))
                .map(|value| value.0.as_slice()),
            Some(Resource::ConfigMap(map)) => map
                .data
                .as_ref()
                .and_then(|data| data.get(key))
                .map(|value| value.as_bytes()),
            _ => return Held::Unknown,
        };
        value.map_or(Held::NoKey, Held::Value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tool_entry;
    use crate::key::Key;
    use crate::manifest;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let text: String = text.replace("v1alpha1 ", "apiVersion: chandlery.dev/v1alpha1\nkind: ");
        let read = manifest::read("f.yaml", &text);
        assert_eq!(read.problems, []);
        let built_in = ["task", "memory", "agnt_datetime_now"];
        let of_agents = read.objects.iter().flat_map(|object| {
            let Resource::Agent(agent) = &object.resource else {
                return Vec::new();
            };
            let entries = agent.spec.tools.iter();
            let unresolved = entries.filter_map(|entry| tool_entry(entry, built_in.into_iter()));
            super::entries(object, agent, unresolved.collect())
        });
        let problems: Vec<String> = all(&read.objects)
            .into_iter()
            .chain(of_agents)
            .map(|problem| problem.to_string())
            .collect();
        assert_eq!(problems, expected);
    }

    const HOME: &str = "v1alpha1 Workspace\nmetadata: {name: home}\nspec: {}\n---\n";

    #[test]
    fn what_is_whole_has_no_findings() {
        check(
            &format!(
                "{HOME}v1alpha1 Workspace\nmetadata: {{name: annex}}\nspec: {{accountRef: {{name: home}}}}\n---\n\
                 v1alpha1 Agent\nmetadata: {{name: a}}\nspec: {{workspaceRef: {{name: annex}}, tools: [task, 'agnt_*']}}\n---\n\
                 v1alpha1 ToolSource\nmetadata: {{name: crm}}\nspec: {{mcp: {{url: 'https://crm.example/mcp'}}, auth: {{bearer: {{secretKeyRef: {{name: elsewhere, key: token}}}}}}}}\n---\n\
                 v1alpha1 ToolGrant\nmetadata: {{name: g}}\nspec: {{workspaceRef: {{name: annex}}, agents: {{names: [a]}}, tools: [crm/*]}}\n"
            ),
            &[],
        );
    }

    #[test]
    fn a_reference_that_leads_nowhere_is_found() {
        check(
            "v1alpha1 Workspace\nmetadata: {name: annex}\nspec: {accountRef: {name: home}}\n---\n\
             v1alpha1 Agent\nmetadata: {name: a}\nspec: {workspaceRef: {name: gone}, tools: [tsk, 'x_*', crm/list]}\n",
            &[
                "f.yaml:4: Workspace/annex: spec.accountRef.name: accountRef names Workspace home, which is not in this namespace: make it, or correct accountRef",
                "f.yaml:9: Agent/a: spec.workspaceRef.name: there is no Workspace gone in this namespace: make it, or correct workspaceRef",
                "f.yaml:9: Agent/a: spec.tools[0]: there is no built-in tool tsk",
                "f.yaml:9: Agent/a: spec.tools[1]: no built-in tool matches x_*",
                "f.yaml:9: Agent/a: spec.tools[2]: no tool of a ToolSource is served as crm/list",
            ],
        );
    }

    #[test]
    fn an_account_refers_to_no_other() {
        check(
            &format!(
                "{HOME}v1alpha1 Workspace\nmetadata: {{name: annex}}\nspec: {{accountRef: {{name: home}}}}\n---\n\
                 v1alpha1 Workspace\nmetadata: {{name: attic}}\nspec: {{accountRef: {{name: annex}}}}\n---\n\
                 v1alpha1 Agent\nmetadata: {{name: a}}\nspec: {{workspaceRef: {{name: attic}}}}\n"
            ),
            &[
                "f.yaml:14: Workspace/attic: spec.accountRef.name: accountRef names Workspace annex, which is no account itself: name its account home instead",
                "f.yaml:19: Agent/a: spec.workspaceRef.name: accountRef names Workspace annex, which is no account itself: name its account home instead",
            ],
        );
    }

    #[test]
    fn a_grant_names_agents_and_sources_of_its_workspace() {
        check(
            &format!(
                "{HOME}v1alpha1 Workspace\nmetadata: {{name: other}}\nspec: {{}}\n---\n\
                 v1alpha1 Agent\nmetadata: {{name: a}}\nspec: {{workspaceRef: {{name: other}}}}\n---\n\
                 v1alpha1 ToolGrant\nmetadata: {{name: g}}\nspec: {{workspaceRef: {{name: home}}, agents: {{names: [a, b]}}, tools: [crm/x, task]}}\n"
            ),
            &[
                "f.yaml:19: ToolGrant/g: spec.agents.names[0]: Agent a works in Workspace other, not in home: grant it there",
                "f.yaml:19: ToolGrant/g: spec.agents.names[1]: there is no Agent b in this namespace: make it, or take it out of the grant",
                "f.yaml:19: ToolGrant/g: spec.tools[0]: there is no ToolSource crm in this namespace: make it, or take crm/x out of the grant",
                "f.yaml:19: ToolGrant/g: spec.tools[1]: task names a built-in tool, which Workspace home serves without a grant: write it under tools of the Agent, or under grantRequired of the Workspace",
            ],
        );
    }

    #[test]
    fn a_secret_at_hand_holds_what_is_asked_for() {
        check(
            "v1alpha1 Workspace\nmetadata: {name: home}\nspec: {store: {postgres: {urlFrom: {secretKeyRef: {name: s, key: url}}}}}\n---\n\
             v1alpha1 Agent\nmetadata: {name: a}\nspec: {workspaceRef: {name: home}, key: {existingSecretRef: {name: s}}}\n---\n\
             v1alpha1 ToolSource\nmetadata: {name: crm}\nspec: {openapi: {configMapKeyRef: {name: m, key: api}}, auth: {bearer: {secretKeyRef: {name: s, key: none}}}}\n---\n\
             apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {url: 'mysql://u:hunter2@h/d', token: hunter2}\n---\n\
             apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {}\n",
            &[
                "f.yaml:4: Workspace/home: spec.store.postgres.urlFrom.secretKeyRef: key url of Secret s holds no database URL: write postgres://user:password@host:5432/database",
                "f.yaml:9: Agent/a: spec.key.existingSecretRef: key token of Secret s holds no key in Chandlery's format: `chandlery key new` makes one",
                "f.yaml:14: ToolSource/crm: spec.openapi.configMapKeyRef: ConfigMap m has no key api: add it, or name another key",
                "f.yaml:14: ToolSource/crm: spec.auth.bearer.secretKeyRef: Secret s has no key none: add it, or name another key",
            ],
        );
    }

    #[test]
    fn a_secret_is_for_the_sources_that_it_is_for() {
        let source = |name: &str, secret: &str| {
            format!(
                "---\nv1alpha1 ToolSource\nmetadata: {{name: {name}}}\nspec: {{mcp: {{url: 'https://crm.example/mcp'}}, auth: {{bearer: {{secretKeyRef: {{name: {secret}, key: token}}}}}}}}\n"
            )
        };
        check(
            &format!(
                "v1alpha1 Workspace\nmetadata: {{name: home}}\nspec: {{people: {{tokensSecretRef: {{name: people}}}}}}\n---\n\
                 v1alpha1 Agent\nmetadata: {{name: a}}\nspec: {{workspaceRef: {{name: home}}, key: {{secretName: mine}}}}\n---\n\
                 apiVersion: v1\nkind: Secret\nmetadata: {{name: hr, annotations: {{chandlery.dev/allowed-hosts: hr.example}}}}\nstringData: {{token: hunter2}}\n\
                 {}{}{}{}",
                source("hr", "hr"),
                source("key", "mine"),
                source("tokens", "people"),
                source("workspace", "workspace-elsewhere-mcp"),
            ),
            &[
                "f.yaml:19: ToolSource/hr: spec.mcp.url: Secret hr is not for crm.example: correct spec.mcp.url, or have its owner add the host to the annotation chandlery.dev/allowed-hosts",
                "f.yaml:24: ToolSource/key: spec.auth.bearer.secretKeyRef: Secret mine is one of Chandlery's own (a key, or people's tokens), or named like one: put the credential into one of yours",
                "f.yaml:29: ToolSource/tokens: spec.auth.bearer.secretKeyRef: Secret people is one of Chandlery's own (a key, or people's tokens), or named like one: put the credential into one of yours",
                "f.yaml:34: ToolSource/workspace: spec.auth.bearer.secretKeyRef: Secret workspace-elsewhere-mcp is one of Chandlery's own (a key, or people's tokens), or named like one: put the credential into one of yours",
            ],
        );
    }

    #[test]
    fn tokens_of_people_are_keys() {
        let (key, other) = (Key::from_random([7; 32]), Key::from_random([8; 32]));
        let other = other.expose();
        check(
            &format!(
                "v1alpha1 Workspace\nmetadata: {{name: home}}\nspec: {{people: {{tokensSecretRef: {{name: p}}}}}}\n---\n\
                 v1alpha1 Workspace\nmetadata: {{name: other}}\nspec: {{people: {{tokensSecretRef: {{name: elsewhere}}}}}}\n---\n\
                 apiVersion: v1\nkind: Secret\nmetadata: {{name: p}}\nstringData: {{alice: '{}\n', bob: hunter2, carol: {other}, dave: {other}}}\n",
                key.expose(),
            ),
            &[
                "f.yaml:4: Workspace/home: spec.people.tokensSecretRef.name: key bob of Secret p holds no key in Chandlery's format: `chandlery key new` makes one",
                "f.yaml:4: Workspace/home: spec.people.tokensSecretRef.name: key carol of Secret p holds the token of dave too, so it opens nothing: make one for each",
                "f.yaml:4: Workspace/home: spec.people.tokensSecretRef.name: key dave of Secret p holds the token of carol too, so it opens nothing: make one for each",
            ],
        );
    }

    #[test]
    fn a_secret_has_one_owner() {
        check(
            &format!(
                "{HOME}v1alpha1 Agent\nmetadata: {{name: a}}\nspec: {{workspaceRef: {{name: home}}}}\n---\n\
                 v1alpha1 Agent\nmetadata: {{name: b}}\nspec: {{workspaceRef: {{name: home}}, key: {{secretName: agent-a-mcp}}}}\n---\n\
                 v1alpha1 Agent\nmetadata: {{name: c}}\nspec: {{workspaceRef: {{name: home}}, key: {{secretName: mine}}}}\n---\n\
                 apiVersion: v1\nkind: Secret\nmetadata: {{name: mine}}\n"
            ),
            &[
                "f.yaml:14: Agent/b: spec.key.secretName: Secret agent-a-mcp is that of Agent a: name another",
                "f.yaml:19: Agent/c: spec.key.secretName: Secret mine is yours and will not be overwritten: remove it, or name another",
            ],
        );
    }

    #[test]
    fn an_object_is_written_once() {
        check(
            &format!("{HOME}{HOME}"),
            &["f.yaml:6: Workspace/home: is written twice: it is also in f.yaml:1"],
        );
    }
}
