//! What a gateway may do at the API server: read the four kinds of its own namespace and the one Secret that holds the
//! tokens of people, and nothing else.

use chandlery_crds::names;
use chandlery_crds::workspace::PeopleSpec;
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

pub(super) fn role(owner: &Owner, people: Option<&PeopleSpec>) -> Role {
    let account = &owner.name;
    let text = |list: &[&str]| list.iter().map(|&item| item.to_owned()).collect::<Vec<_>>();
    let kinds = PolicyRule {
        api_groups: Some(text(&[names::GROUP])),
        resources: Some(text(&["workspaces", "agents", "toolsources", "toolgrants"])),
        verbs: text(&["list", "watch"]),
        ..PolicyRule::default()
    };
    let tokens = people.map(|people| PolicyRule {
        api_groups: Some(text(&[""])),
        resources: Some(text(&["secrets"])),
        resource_names: Some(vec![people.tokens_secret_ref.name.clone()]),
        verbs: text(&["get"]),
        ..PolicyRule::default()
    });
    Role {
        metadata: objects::metadata(owner, &names::gateway(account), account),
        rules: Some([kinds].into_iter().chain(tokens).collect()),
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
