//! The Secret that an agent or a Workspace mounts: its layout, and how one of ours is told from somebody else's.

use std::collections::BTreeMap;

use chandlery_crds::key::Key;
use chandlery_crds::names::{self, binding_secret};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;
use serde_json::json;

use super::{Stored, Tokens, Write};
use crate::objects::{self, NotOurs, Owner, SecretWrite};

/// Where the key opens something. A Workspace's key has no endpoint yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) uri: String,
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// What is found under the Secret's name, seen from `owner`.
pub(crate) fn stored(secret: Option<&Secret>, owner: &Owner) -> Stored {
    let Some(secret) = secret else {
        return Stored::Absent;
    };
    match objects::check_owned(secret, owner) {
        Ok(()) if secret.type_.as_deref() == Some(names::BINDING_SECRET_TYPE) => {
            Stored::Ours(tokens(secret))
        }
        Err(NotOurs::Going) => Stored::Going,
        Ok(()) | Err(NotOurs::Foreign) => Stored::Foreign,
    }
}

fn tokens(secret: &Secret) -> Option<Tokens> {
    Some(Tokens {
        token: key(secret, binding_secret::TOKEN)?,
        next: key(secret, binding_secret::NEXT_TOKEN),
    })
}

/// The key in the Secret's entry `name`; `None` when there is none in our format.
pub(crate) fn key(secret: &Secret, name: &str) -> Option<Key> {
    let value = secret.data.as_ref()?.get(name)?;
    Key::parse(std::str::from_utf8(&value.0).ok()?)
}

/// The Secret that holds somebody's key.
pub(crate) struct Binding<'a> {
    pub(crate) owner: &'a Owner,
    pub(crate) name: &'a str,
    pub(crate) workspace: &'a str,
    pub(crate) endpoint: Option<&'a Endpoint>,
    /// What lies there now.
    pub(crate) seen: Option<&'a Secret>,
}

impl Binding<'_> {
    /// What a decision about the key means for the Secret. One that says nothing still keeps the rest of the Secret
    /// current.
    pub(crate) fn write(&self, decision: &Write, stored: &Stored) -> SecretWrite {
        match (decision, stored) {
            (Write::Create(tokens), _) => SecretWrite::Create(self.secret(tokens)),
            (Write::Update(tokens), _) => SecretWrite::Update(self.secret(tokens)),
            (Write::Delete, _) => self
                .seen
                .cloned()
                .map_or(SecretWrite::Nothing, SecretWrite::Delete),
            (Write::Nothing, Stored::Ours(Some(tokens))) if !self.is_current(tokens) => {
                SecretWrite::Update(self.secret(tokens))
            }
            (Write::Nothing, _) => SecretWrite::Nothing,
        }
    }

    /// The Secret as it should be, tied to the version that it replaces.
    fn secret(&self, tokens: &Tokens) -> Secret {
        let seen = self.seen.map(|seen| &seen.metadata);
        Secret {
            metadata: ObjectMeta {
                uid: seen.and_then(|seen| seen.uid.clone()),
                resource_version: seen.and_then(|seen| seen.resource_version.clone()),
                ..objects::metadata(self.owner, self.name, self.workspace)
            },
            type_: Some(names::BINDING_SECRET_TYPE.to_owned()),
            data: Some(data(self.endpoint, tokens)),
            ..Secret::default()
        }
    }

    fn is_current(&self, tokens: &Tokens) -> bool {
        let stored = self.seen.and_then(|seen| seen.data.as_ref());
        data(self.endpoint, tokens)
            .iter()
            .all(|(name, value)| stored.and_then(|stored| stored.get(name)) == Some(value))
    }
}

fn data(endpoint: Option<&Endpoint>, tokens: &Tokens) -> BTreeMap<String, ByteString> {
    let token = tokens.token.expose();
    let authorization = format!("Bearer {token}");
    let mut data = vec![
        (binding_secret::TYPE, "mcp".to_owned()),
        (binding_secret::PROVIDER, "chandlery".to_owned()),
        (binding_secret::TOKEN, token.to_owned()),
    ];
    if let Some(Endpoint { uri, host, port }) = endpoint {
        let client = json!({ "mcpServers": { "chandlery": {
            "type": "http", "url": uri, "headers": { "Authorization": authorization },
        } } });
        data.extend([
            (binding_secret::URI, uri.clone()),
            (binding_secret::HOST, host.clone()),
            (binding_secret::PORT, port.to_string()),
            (binding_secret::MCP_JSON, format!("{client:#}\n")),
        ]);
    }
    data.push((binding_secret::AUTHORIZATION, authorization));
    if let Some(next) = &tokens.next {
        data.push((binding_secret::NEXT_TOKEN, next.expose().to_owned()));
    }
    data.into_iter()
        .map(|(name, value)| (name.to_owned(), ByteString(value.into_bytes())))
        .collect()
}
