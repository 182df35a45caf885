//! What a gateway may do at the API server: read the four kinds of its own namespace, the Secret that holds the tokens of
//! people, the Secrets and ConfigMaps of the ToolSources that are granted, and nothing else.

use std::collections::BTreeSet;
use std::sync::Arc;

use chandlery_crds::{ToolSource, names};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};

use crate::objects::{self, Owner};

pub(super) fn service_account(owner: &Owner) -> ServiceAccount {
    let account = &owner.name;
    ServiceAccount {
        metadata: objects::metadata(owner, &names::gateway(account), account),
        // The gateway's pod asks for its token; nobody else gets one by using this account.
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    }
}

/// Secrets of ToolSources that a gateway may get, and as many ConfigMaps.
pub(crate) const MOST_NAMES: usize = 256;

/// Names of what a gateway may get.
#[derive(Debug)]
pub(super) struct Readable<'a> {
    secrets: BTreeSet<&'a str>,
    config_maps: BTreeSet<&'a str>,
    /// There were more than [`MOST_NAMES`] of a kind.
    pub(super) is_cut: bool,
}

/// `tokens`: the Secret with the tokens of people. `kept`: Secrets that no source may have, whatever it names.
pub(super) fn readable<'a>(
    tokens: Option<&'a str>,
    sources: &'a [Arc<ToolSource>],
    kept: &BTreeSet<String>,
) -> Readable<'a> {
    let credentials = sources.iter().filter_map(|source| {
        let (reference, _) = source.spec.credential_ref()?;
        Some(reference.name.as_str())
    });
    let credentials: BTreeSet<&str> = credentials.collect();
    let maps = sources.iter().flat_map(|source| {
        let spec = &source.spec;
        spec.document_ref().into_iter().chain(spec.ca_ref())
    });
    let maps: BTreeSet<&str> = maps.map(|reference| reference.name.as_str()).collect();
    Readable {
        is_cut: credentials.len().max(maps.len()) > MOST_NAMES,
        // Only the first have been looked at.
        secrets: credentials
            .into_iter()
            .take(MOST_NAMES)
            .filter(|&name| !kept.contains(name))
            .chain(tokens)
            .collect(),
        config_maps: maps.into_iter().take(MOST_NAMES).collect(),
    }
}

pub(super) fn role(owner: &Owner, readable: &Readable<'_>) -> Role {
    let Readable {
        secrets,
        config_maps,
        is_cut: _,
    } = readable;
    let account = &owner.name;
    let text = |list: &[&str]| list.iter().map(|&item| item.to_owned()).collect::<Vec<_>>();
    let kinds = PolicyRule {
        api_groups: Some(text(&[names::GROUP])),
        resources: Some(text(&["workspaces", "agents", "toolsources", "toolgrants"])),
        verbs: text(&["list", "watch"]),
        ..PolicyRule::default()
    };
    // A rule without names would be about all of them.
    let get = |resource: &str, names: &BTreeSet<&str>| {
        (!names.is_empty()).then(|| PolicyRule {
            api_groups: Some(text(&[""])),
            resources: Some(text(&[resource])),
            resource_names: Some(names.iter().map(|&name| name.to_owned()).collect()),
            verbs: text(&["get"]),
            ..PolicyRule::default()
        })
    };
    let rules = [kinds]
        .into_iter()
        .chain(get("secrets", secrets))
        .chain(get("configmaps", config_maps));
    Role {
        metadata: objects::metadata(owner, &names::gateway(account), account),
        rules: Some(rules.collect()),
    }
}

pub(super) fn role_binding(owner: &Owner) -> RoleBinding {
    let account = &owner.name;
    let name = names::gateway(account);
    RoleBinding {
        metadata: objects::metadata(owner, &name, account),
        role_ref: RoleRef {
            api_group: "rbac.authorization.k8s.io".to_owned(),
            kind: "Role".to_owned(),
            name: name.clone(),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name,
            namespace: Some(owner.namespace.clone()),
            api_group: None,
        }]),
    }
}
