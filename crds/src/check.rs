//! References between objects: what an object names and what is wrong with that.
//!
//! The operator turns each [`Finding`] into a condition, `chandlery lint` into a line; both say the same words.
//! Nothing here looks anything up: whoever calls hands in what it found.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;

use crate::conditions::reason;
use crate::constraint::Constraint;
use crate::fields::{ConfigMapKeyRef, SecretKeyRef};
use crate::key::Key;
use crate::manifest::{Object, Problem, Resource};
use crate::report::Unresolved;
use crate::{Agent, AgentState, ToolGrant, ToolGrantSpec, ToolSource, Workspace, names};

/// A reference that leads nowhere, or to the wrong thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// One of [`reason`].
    pub reason: &'static str,
    /// Where the reference is written, such as `spec.workspaceRef.name`.
    pub field: String,
    /// What is wrong and what to do about it. Never a value out of a Secret.
    pub message: String,
}

/// What lies under a key of a Secret or ConfigMap.
#[derive(Clone, Copy, Debug)]
pub enum Held<'a> {
    /// Nobody looked: no finding comes of it.
    Unknown,
    /// There is no such object.
    NoObject,
    /// The object has no such key.
    NoKey,
    Value(&'a [u8]),
}

/// What a Secret holds as a whole.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// Nobody looked: no finding comes of it.
    Unknown,
    /// There is no such Secret.
    NoObject,
    /// It belongs to one of our resources: a key, or a gateway's own.
    Ours,
    Entries(&'a BTreeMap<String, ByteString>),
}

/// Checks whom a Workspace is served by, the URL of its database, and the tokens of its people.
///
/// `account` is the Workspace that `spec.accountRef` names; `store_url` what `spec.store.postgres.urlFrom` names,
/// `people` what `spec.people.tokensSecretRef` names. Each is ignored when nothing is named.
pub fn workspace(
    workspace: &Workspace,
    account: Option<&Workspace>,
    store_url: Held<'_>,
    people: Data<'_>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(reference) = &workspace.spec.account_ref {
        findings.extend(account_of(&reference.name, account, "spec.accountRef.name"));
    }
    let postgres = workspace
        .spec
        .store
        .as_ref()
        .and_then(|store| store.postgres.as_ref());
    if let Some(postgres) = postgres {
        let field = "spec.store.postgres.urlFrom.secretKeyRef";
        findings.extend(secret(
            &postgres.url_from.secret_key_ref,
            store_url,
            field,
            flaw_of_url,
        ));
    }
    if let Some(spec) = &workspace.spec.people {
        findings.extend(tokens(&spec.tokens_secret_ref.name, people));
    }
    findings
}

impl<'a> Data<'a> {
    /// What there is in a Secret that was found.
    pub fn of(secret: &'a Secret) -> Self {
        static NOTHING: BTreeMap<String, ByteString> = BTreeMap::new();
        let owners = secret.metadata.owner_references.iter().flatten();
        let mut groups = owners.filter_map(|owner| owner.api_version.split('/').next());
        if groups.any(|group| group == names::GROUP) {
            return Self::Ours;
        }
        Self::Entries(secret.data.as_ref().unwrap_or(&NOTHING))
    }
}

/// Where a Workspace names the tokens of its people.
pub const TOKENS_FIELD: &str = "spec.people.tokensSecretRef.name";

/// What is wrong with the tokens of people: a finding for each that does not work.
fn tokens(name: &str, people: Data<'_>) -> Vec<Finding> {
    let finding = |reason, message| Finding {
        reason,
        field: TOKENS_FIELD.to_owned(),
        message,
    };
    match people {
        Data::Unknown => Vec::new(),
        Data::NoObject => vec![finding(
            reason::SECRET_NOT_FOUND,
            format!("there is no Secret {name} in this namespace: make it, or correct the name"),
        )],
        Data::Ours => vec![finding(
            reason::SECRET_INVALID,
            format!(
                "Secret {name} is one of Chandlery's own: write people's tokens into one of yours"
            ),
        )],
        Data::Entries(entries) => entries
            .iter()
            .filter_map(|(person, value)| {
                let token = value.0.trim_ascii();
                let other = entries
                    .iter()
                    .find(|(other, value)| *other != person && value.0.trim_ascii() == token);
                let flaw = match (flaw_of_key(token), other) {
                    (Some(flaw), _) => flaw.to_owned(),
                    (None, Some((other, _))) => {
                        format!(
                            "holds the token of {other} too, so it opens nothing: make one for each"
                        )
                    }
                    (None, None) => return None,
                };
                let message = format!("key {person} of Secret {name} {flaw}");
                Some(finding(reason::SECRET_INVALID, message))
            })
            .collect(),
    }
}

/// Checks where an Agent works, and the key that it brings.
///
/// `workspace` is the Workspace that `spec.workspaceRef` names, `account` the one that its `accountRef` names in turn,
/// `key` what `spec.key.existingSecretRef` names.
pub fn agent(
    agent: &Agent,
    workspace: Option<&Workspace>,
    account: Option<&Workspace>,
    key: Held<'_>,
) -> Vec<Finding> {
    let mut findings: Vec<Finding> = workspace_of(&agent.spec.workspace_ref.name, workspace)
        .into_iter()
        .collect();
    if let Some(workspace) = workspace {
        findings.extend(account_behind(workspace, account));
    }
    if let Some(reference) = agent
        .spec
        .key
        .as_ref()
        .and_then(|key| key.existing_secret_ref.as_ref())
    {
        let reference = SecretKeyRef {
            name: reference.name.clone(),
            key: reference.key.clone(),
        };
        findings.extend(secret(
            &reference,
            key,
            "spec.key.existingSecretRef",
            flaw_of_key,
        ));
    }
    findings
}

/// Checks the document and the credential of a ToolSource.
///
/// `document` is what `spec.openapi.configMapKeyRef` names, `credential` what `spec.auth.bearer` names.
pub fn tool_source(source: &ToolSource, document: Held<'_>, credential: Held<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let reference = source
        .spec
        .openapi
        .as_ref()
        .and_then(|openapi| openapi.config_map_key_ref.as_ref());
    if let Some(reference) = reference {
        findings.extend(config_map(
            reference,
            document,
            "spec.openapi.configMapKeyRef",
        ));
    }
    if let Some(auth) = &source.spec.auth {
        findings.extend(secret(
            &auth.bearer.secret_key_ref,
            credential,
            "spec.auth.bearer.secretKeyRef",
            flaw_of_credential,
        ));
    }
    findings
}

/// Checks whom a ToolGrant is about, and what it grants.
///
/// `workspace` is the Workspace that `spec.workspaceRef` names, `account` as for [`agent`]. `workplace` says of the
/// name of an Agent in which Workspace it works, `None` when there is no such Agent; `is_source` whether there is a
/// ToolSource of that name.
pub fn tool_grant(
    grant: &ToolGrant,
    workspace: Option<&Workspace>,
    account: Option<&Workspace>,
    workplace: impl Fn(&str) -> Option<String>,
    is_source: impl Fn(&str) -> bool,
) -> Vec<Finding> {
    let mut findings: Vec<Finding> = workspace_of(&grant.spec.workspace_ref.name, workspace)
        .into_iter()
        .collect();
    if let Some(workspace) = workspace {
        findings.extend(account_behind(workspace, account));
    }
    let home = &grant.spec.workspace_ref.name;
    for (at, name) in grant.spec.agents.names.iter().flatten().enumerate() {
        let message = match workplace(name) {
            Some(workspace) if workspace == *home => continue,
            Some(workspace) => format!(
                "Agent {name} works in Workspace {workspace}, not in {home}: grant it there"
            ),
            None => format!(
                "there is no Agent {name} in this namespace: make it, or take it out of the grant"
            ),
        };
        findings.push(Finding {
            reason: reason::AGENT_NOT_FOUND,
            field: format!("spec.agents.names[{at}]"),
            message,
        });
    }
    for (at, entry) in grant.spec.tools.iter().enumerate() {
        let (reason, message) = match entry.split_once('/') {
            Some((source, _)) if is_source(source) => continue,
            Some((source, _)) => (
                reason::TOOL_SOURCE_NOT_FOUND,
                format!(
                    "there is no ToolSource {source} in this namespace: make it, or take {entry} out of the grant"
                ),
            ),
            None if workspace.is_none_or(|workspace| is_granted(entry, workspace)) => continue,
            None => (
                reason::NOT_GRANTABLE,
                format!(
                    "{entry} names a built-in tool, which Workspace {home} serves without a grant: write it under tools of the Agent, or under grantRequired of the Workspace"
                ),
            ),
        };
        findings.push(Finding {
            reason,
            field: format!("spec.tools[{at}]"),
            message,
        });
    }
    findings.extend(grant_terms(&grant.spec));
    findings
}

/// Whether the Workspace's `grantRequired` has any tool in common with a grant's entry for built-ins.
fn is_granted(entry: &str, workspace: &Workspace) -> bool {
    workspace.spec.grant_required.iter().any(|required| {
        names::glob_matches(required, entry) || names::glob_matches(entry, required)
    })
}

/// Checks what a grant says by itself: its rules and its times.
pub fn grant_terms(grant: &ToolGrantSpec) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, rule) in grant.constraints.iter().enumerate() {
        if let Err(message) = Constraint::parse(&rule.cel) {
            findings.push(Finding {
                reason: reason::INVALID_CONSTRAINT,
                field: format!("spec.constraints[{at}].cel"),
                message: format!("rule {}: {message}", rule.name),
            });
        }
    }
    let times = [
        ("spec.notBefore", &grant.not_before),
        ("spec.expiresAt", &grant.expires_at),
    ];
    for (field, time) in times {
        if let Some(time) = time
            && time.parse::<Timestamp>().is_err()
        {
            findings.push(Finding {
                reason: reason::INVALID,
                field: field.to_owned(),
                message: format!("\"{time}\" is no time; write one such as 2027-01-31T18:00:00Z"),
            });
        }
    }
    findings
}

/// Whether `entry` of an Agent's `tools` names something that can be served; `built_in` are the names of all
/// built-in tools.
pub fn tool_entry<'a>(
    entry: &str,
    mut built_in: impl Iterator<Item = &'a str>,
) -> Option<Unresolved> {
    if built_in.any(|tool| names::glob_matches(entry, tool)) {
        return None;
    }
    let (reason, message) = if entry.contains('/') {
        (
            reason::SOURCE_NOT_SERVED,
            format!("no tool of a ToolSource is served as {entry}"),
        )
    } else if entry.contains('*') {
        (
            reason::NO_SUCH_TOOL,
            format!("no built-in tool matches {entry}"),
        )
    } else {
        (
            reason::NO_SUCH_TOOL,
            format!("there is no built-in tool {entry}"),
        )
    };
    Some(Unresolved {
        entry: entry.to_owned(),
        reason: reason.to_owned(),
        message,
    })
}

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
                let reference = found
                    .spec
                    .openapi
                    .as_ref()
                    .and_then(|openapi| openapi.config_map_key_ref.as_ref());
                let document = reference.map_or(Held::Unknown, |reference| {
                    self.held("ConfigMap", namespace, &reference.name, &reference.key)
                });
                let auth = found.spec.auth.as_ref();
                let credential = auth.map_or(Held::Unknown, |auth| {
                    self.secret(namespace, &auth.bearer.secret_key_ref)
                });
                tool_source(found, document, credential)
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

fn workspace_of(name: &str, workspace: Option<&Workspace>) -> Option<Finding> {
    workspace.is_none().then(|| Finding {
        reason: reason::WORKSPACE_NOT_FOUND,
        field: "spec.workspaceRef.name".to_owned(),
        message: format!(
            "there is no Workspace {name} in this namespace: make it, or correct workspaceRef"
        ),
    })
}

/// The fault of another object's `accountRef`, as whoever works in that Workspace is told of it.
fn account_behind(workspace: &Workspace, account: Option<&Workspace>) -> Option<Finding> {
    let reference = workspace.spec.account_ref.as_ref()?;
    account_of(&reference.name, account, "spec.workspaceRef.name")
}

fn account_of(name: &str, account: Option<&Workspace>, field: &str) -> Option<Finding> {
    let (reason, message) = match account.map(|account| account.spec.account_ref.as_ref()) {
        Some(None) => return None,
        Some(Some(other)) => (
            reason::ACCOUNT_IS_NOT_AN_ACCOUNT,
            format!(
                "accountRef names Workspace {name}, which is no account itself: name its account {} instead",
                other.name
            ),
        ),
        None => (
            reason::ACCOUNT_NOT_FOUND,
            format!(
                "accountRef names Workspace {name}, which is not in this namespace: make it, or correct accountRef"
            ),
        ),
    };
    Some(Finding {
        reason,
        field: field.to_owned(),
        message,
    })
}

fn secret(
    reference: &SecretKeyRef,
    held: Held<'_>,
    field: &str,
    flaw: fn(&[u8]) -> Option<&'static str>,
) -> Option<Finding> {
    let SecretKeyRef { name, key } = reference;
    let (reason, message) = match held {
        Held::Unknown => return None,
        Held::NoObject => (
            reason::SECRET_NOT_FOUND,
            format!("there is no Secret {name} in this namespace: make it, or correct the name"),
        ),
        Held::NoKey => (
            reason::SECRET_INVALID,
            format!("Secret {name} has no key {key}: add it, or name another key"),
        ),
        Held::Value(value) => (
            reason::SECRET_INVALID,
            format!("key {key} of Secret {name} {}", flaw(value)?),
        ),
    };
    Some(Finding {
        reason,
        field: field.to_owned(),
        message,
    })
}

fn config_map(reference: &ConfigMapKeyRef, held: Held<'_>, field: &str) -> Option<Finding> {
    let ConfigMapKeyRef { name, key } = reference;
    let message = match held {
        Held::NoObject => {
            format!("there is no ConfigMap {name} in this namespace: make it, or correct the name")
        }
        Held::NoKey => format!("ConfigMap {name} has no key {key}: add it, or name another key"),
        Held::Unknown | Held::Value(_) => return None,
    };
    Some(Finding {
        reason: reason::CONFIG_MAP_NOT_FOUND,
        field: field.to_owned(),
        message,
    })
}

fn flaw_of_key(value: &[u8]) -> Option<&'static str> {
    let key = std::str::from_utf8(value).ok().and_then(Key::parse);
    key.is_none()
        .then_some("holds no key in Chandlery's format: `chandlery key new` makes one")
}

fn flaw_of_url(value: &[u8]) -> Option<&'static str> {
    let is_url = value.starts_with(b"postgres://") || value.starts_with(b"postgresql://");
    (!is_url).then_some("holds no database URL: write postgres://user:password@host:5432/database")
}

/// What goes into a header may hold no line break; a trailing one is the most common slip.
fn flaw_of_credential(value: &[u8]) -> Option<&'static str> {
    if value.is_empty() {
        return Some("is empty: put the credential there");
    }
    let is_visible = value.iter().all(|byte| (0x20..0x7f).contains(byte));
    (!is_visible).then_some("cannot be sent in a header: write it without a line break, in ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;
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
