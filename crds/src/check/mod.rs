//! References between objects: what an object names and what is wrong with that.
//!
//! The operator turns each [`Finding`] into a condition, `chandlery lint` into a line; both say the same words.
//! Nothing here looks anything up: whoever calls hands in what it found.

mod hosts;
mod set;
mod source;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;

pub use self::hosts::AllowedHosts;
pub use self::set::{all, entries};
pub use self::source::{Credential, SourceReferences, tool_source};
use crate::conditions::reason;
use crate::constraint::Constraint;
use crate::fields::{ConfigMapKeyRef, SecretKeyRef};
use crate::key::Key;
use crate::report::Unresolved;
use crate::{Agent, ToolGrant, ToolGrantSpec, Workspace, names};

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
        if is_ours(secret) {
            return Self::Ours;
        }
        Self::Entries(secret.data.as_ref().unwrap_or(&NOTHING))
    }
}

/// Whether a Secret belongs to one of our resources: a key, or a gateway's own.
pub fn is_ours(secret: &Secret) -> bool {
    let owners = secret.metadata.owner_references.iter().flatten();
    let mut groups = owners.filter_map(|owner| owner.api_version.split('/').next());
    groups.any(|group| group == names::GROUP)
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
    findings.extend(terms(&grant.spec).err().unwrap_or_default());
    findings
}

/// Whether the Workspace's `grantRequired` has any tool in common with a grant's entry for built-ins.
fn is_granted(entry: &str, workspace: &Workspace) -> bool {
    workspace.spec.grant_required.iter().any(|required| {
        names::glob_matches(required, entry) || names::glob_matches(entry, required)
    })
}

/// What a grant says by itself, read.
#[derive(Debug, Default)]
pub struct Terms {
    /// In the order in which they are written.
    pub constraints: Vec<Constraint>,
    pub not_before: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
}

/// Reads what a grant says by itself: its rules and its times. The error says of each that cannot be read what is wrong.
pub fn terms(grant: &ToolGrantSpec) -> Result<Terms, Vec<Finding>> {
    let mut findings = Vec::new();
    let mut constraints = Vec::new();
    for (at, rule) in grant.constraints.iter().enumerate() {
        match Constraint::parse(&rule.cel) {
            Ok(constraint) => constraints.push(constraint),
            Err(message) => findings.push(Finding {
                reason: reason::INVALID_CONSTRAINT,
                field: format!("spec.constraints[{at}].cel"),
                message: format!("rule {}: {message}", rule.name),
            }),
        }
    }
    let mut time = |field: &str, text: &Option<String>| {
        let text = text.as_deref()?;
        let time = text.parse::<Timestamp>();
        if time.is_err() {
            findings.push(Finding {
                reason: reason::INVALID,
                field: field.to_owned(),
                message: format!("\"{text}\" is no time; write one such as 2027-01-31T18:00:00Z"),
            });
        }
        time.ok()
    };
    let not_before = time("spec.notBefore", &grant.not_before);
    let expires_at = time("spec.expiresAt", &grant.expires_at);
    if findings.is_empty() {
        Ok(Terms {
            constraints,
            not_before,
            expires_at,
        })
    } else {
        Err(findings)
    }
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
