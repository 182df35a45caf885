//! What is known of a scope of the cluster, and what can be asked of it.

use std::collections::HashSet;
use std::sync::Arc;

use chandlery_crds::{Agent, ToolGrant, ToolSource, Workspace};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt as _;
use kube::runtime::reflector::{ObjectRef, Store};
use tokio::sync::Notify;

use crate::replicas::Board;

/// What is known of one scope.
pub(crate) struct Caches {
    pub(crate) workspaces: Store<Workspace>,
    pub(crate) agents: Store<Agent>,
    pub(crate) sources: Store<ToolSource>,
    pub(crate) grants: Store<ToolGrant>,
    pub(crate) deployments: Store<Deployment>,
    pub(crate) services: Store<Service>,
    pub(crate) service_accounts: Store<ServiceAccount>,
    pub(crate) claims: Store<PersistentVolumeClaim>,
    pub(crate) policies: Store<NetworkPolicy>,
    pub(crate) budgets: Store<PodDisruptionBudget>,
    pub(crate) roles: Store<Role>,
    pub(crate) role_bindings: Store<RoleBinding>,
    pub(crate) pods: Store<Pod>,
    /// What the gateway pods report.
    pub(crate) board: Board,
    pub(crate) pods_changed: Notify,
}

impl Caches {
    /// Waits until every cache has seen the whole of its kind. `false`: a watch has ended, there is nothing to wait for.
    pub(crate) async fn filled(&self) -> bool {
        self.workspaces.wait_until_ready().await.is_ok()
            && self.agents.wait_until_ready().await.is_ok()
            && self.sources.wait_until_ready().await.is_ok()
            && self.grants.wait_until_ready().await.is_ok()
            && self.deployments.wait_until_ready().await.is_ok()
            && self.services.wait_until_ready().await.is_ok()
            && self.service_accounts.wait_until_ready().await.is_ok()
            && self.claims.wait_until_ready().await.is_ok()
            && self.policies.wait_until_ready().await.is_ok()
            && self.budgets.wait_until_ready().await.is_ok()
            && self.roles.wait_until_ready().await.is_ok()
            && self.role_bindings.wait_until_ready().await.is_ok()
            && self.pods.wait_until_ready().await.is_ok()
    }

    pub(crate) fn workspace(&self, namespace: &str, name: &str) -> Option<Arc<Workspace>> {
        self.workspaces.get(&ObjectRef::new(name).within(namespace))
    }

    /// The account that a grant is for; `None` while its Workspace is not there.
    pub(crate) fn account_of(&self, grant: &ToolGrant) -> Option<String> {
        let name = &grant.spec.workspace_ref.name;
        let workspace = self.workspace(&grant.namespace().unwrap_or_default(), name)?;
        Some(workspace.spec.account(name).to_owned())
    }

    /// The grants that name a source, whether or not it is their time.
    pub(crate) fn grants_of(&self, namespace: &str, source: &str) -> Vec<Arc<ToolGrant>> {
        self.grants
            .state_filter(|grant| is_naming(grant, namespace, source))
    }

    /// The sources that the grants of an account's Workspaces name, whether or not it is their time.
    pub(crate) fn sources_of(&self, namespace: &str, account: &str) -> Vec<Arc<ToolSource>> {
        let grants = self.grants.state_filter(|grant| {
            grant.metadata.namespace.as_deref() == Some(namespace)
                && self.account_of(grant).as_deref() == Some(account)
        });
        let named: HashSet<&str> = grants
            .iter()
            .flat_map(|grant| grant.spec.sources())
            .collect();
        self.sources.state_filter(|source| {
            let name = source.metadata.name.as_deref().unwrap_or_default();
            source.metadata.namespace.as_deref() == Some(namespace) && named.contains(name)
        })
    }

    /// Whether a Secret is where an Agent has its key, or people their tokens, so that no source may show it to anybody.
    pub(crate) fn keeps_keys(&self, namespace: &str, secret: &str) -> bool {
        let is_key = |agent: &Agent| {
            agent.metadata.namespace.as_deref() == Some(namespace)
                && key_secret(agent) == Some(secret)
        };
        let is_tokens = |workspace: &Workspace| {
            workspace.metadata.namespace.as_deref() == Some(namespace)
                && tokens_secret(workspace) == Some(secret)
        };
        self.agents.find(is_key).is_some() || self.workspaces.find(is_tokens).is_some()
    }
}

/// Whether a grant names a source of a namespace.
pub(super) fn is_naming(grant: &ToolGrant, namespace: &str, source: &str) -> bool {
    grant.metadata.namespace.as_deref() == Some(namespace)
        && grant.spec.sources().any(|named| named == source)
}

/// The Secret that an Agent names for its key.
pub(super) fn key_secret(agent: &Agent) -> Option<&str> {
    agent.spec.key.as_ref()?.secret_name.as_deref()
}

/// The Secret that a Workspace names for its people's tokens.
pub(super) fn tokens_secret(workspace: &Workspace) -> Option<&str> {
    let people = workspace.spec.people.as_ref()?;
    Some(&people.tokens_secret_ref.name)
}
