//! Who may come in: the keys of agents and the tokens of people, out of Secrets of the folder or made here.

use std::collections::BTreeMap;

use chandlery_crds::check;
use chandlery_crds::fields::KeyStatus;
use chandlery_crds::key::{Digest, Key};
use chandlery_crds::manifest::{Object, Resource};
use chandlery_crds::names::{ROTATE_KEY_ANNOTATION, agent_id};
use chandlery_crds::{Agent, AgentState};
use k8s_openapi::api::core::v1::Secret;

use super::identities::{Identities, IdentityError, key_file};
use super::{ADMIN, note};
use crate::directory::people::{self as tokens, Tokens};

/// The tokens of people, by account: those of the Secrets that accounts name, or else one that is made here, since
/// nobody could allow anything without it.
pub(super) fn people(
    identities: &Identities,
    objects: &[Object],
) -> Result<BTreeMap<String, Tokens>, IdentityError> {
    let mut people = BTreeMap::new();
    for object in objects {
        let Resource::Workspace(workspace) = &object.resource else {
            continue;
        };
        if workspace.spec.account_ref.is_some() {
            continue;
        }
        let tokens = match &workspace.spec.people {
            Some(people) => {
                let name = &people.tokens_secret_ref.name;
                let secret = find_secret(objects, object.namespace(), name);
                if secret.is_none() {
                    let message = format!("no tokens yet: put the Secret {name} into this folder");
                    note(&object.problem(check::TOKENS_FIELD, message));
                }
                // What is wrong with single tokens is said by the check of all manifests.
                tokens::read(name, secret.and_then(|secret| secret.data.as_ref())).tokens
            }
            None => match identities.person(ADMIN) {
                Err(error @ IdentityError::NotAKey { .. }) => {
                    note(&object.problem("", error.to_string()));
                    Tokens::new()
                }
                token => Tokens::from([(ADMIN.to_owned(), token?)]),
            },
        };
        people.insert(agent_id(object.namespace(), object.name()), tokens);
    }
    Ok(people)
}

/// The public half of the agent's key; `None` while it has none.
pub(super) fn key(
    identities: &Identities,
    id: &str,
    object: &Object,
    agent: &Agent,
    objects: &[Object],
) -> Result<Option<KeyStatus>, IdentityError> {
    let spec = agent.spec.key.clone().unwrap_or_default();
    let annotations = agent.metadata.annotations.as_ref();
    if spec.rotate_every.is_some()
        || annotations.is_some_and(|all| all.contains_key(ROTATE_KEY_ANNOTATION))
    {
        let file = key_file(identities.data(), id);
        let message = format!(
            "keys are rotated on Kubernetes only: remove {} to get a new one",
            file.display()
        );
        note(&object.problem("spec.key", message));
    }
    let digest = match (agent.spec.state, &spec.existing_secret_ref) {
        (AgentState::Draft, _) => None,
        (AgentState::Archived, _) => {
            identities.revoke(id)?;
            None
        }
        (AgentState::Deployed | AgentState::Disabled, None) => match identities.key(id) {
            Err(error @ IdentityError::NotAKey { .. }) => {
                note(&object.problem("", error.to_string()));
                None
            }
            key => Some(key?),
        },
        (AgentState::Deployed | AgentState::Disabled, Some(secret)) => {
            identities.revoke(id)?;
            let found = find_secret(objects, object.namespace(), &secret.name);
            if found.is_none() {
                let message = format!(
                    "no key yet: put the Secret {} into this folder",
                    secret.name
                );
                note(&object.problem("spec.key.existingSecretRef", message));
            }
            found.and_then(|found| key_in(found, &secret.key))
        }
    };
    Ok(digest.map(|digest| KeyStatus {
        id: digest.id(),
        digest: digest.to_string(),
        created_at: String::new(),
        expires_at: None,
    }))
}

fn find_secret<'a>(objects: &'a [Object], namespace: &str, name: &str) -> Option<&'a Secret> {
    objects.iter().find_map(|object| match &object.resource {
        Resource::Secret(secret) if object.namespace() == namespace && object.name() == name => {
            Some(&**secret)
        }
        _ => None,
    })
}

fn key_in(secret: &Secret, key: &str) -> Option<Digest> {
    let bytes = &secret.data.as_ref()?.get(key)?.0;
    Some(Key::parse(std::str::from_utf8(bytes).ok()?.trim())?.digest())
}
