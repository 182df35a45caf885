//! What a gateway may do at the API server: read the four kinds of its own namespace, and nothing else.

use chandlery_crds::names;
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

pub(super) fn role(owner: &Owner) -> Role {
    let account = &owner.name;
    let text = |list: &[&str]| list.iter().map(|&item| item.to_owned()).collect::<Vec<_>>();
    Role {
        metadata: objects::metadata(owner, &names::gateway(account), account),
        rules: Some(vec![PolicyRule {
            api_groups: Some(text(&[names::GROUP])),
            resources: Some(text(&["workspaces", "agents", "toolsources", "toolgrants"])),
            verbs: text(&["list", "watch"]),
            ..PolicyRule::default()
        }]),
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
