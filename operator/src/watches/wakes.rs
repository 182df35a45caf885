//! What a change of an object wakes.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use chandlery_crds::conditions::{self, kind};
use chandlery_crds::fields::Conditions;
use chandlery_crds::{Agent, ToolGrant, ToolSource, Workspace, names};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;

use super::caches::{Caches, is_naming, key_secret, tokens_secret};
use crate::api::Kind;
use crate::objects::MANAGED_BY;

/// A controller to wake, and for what.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum Wake {
    Workspace(ObjectRef<Workspace>),
    Agent(ObjectRef<Agent>),
    Source(ObjectRef<ToolSource>),
    Grant(ObjectRef<ToolGrant>),
    Replicas,
}

/// One wake per object: a list of a thousand agents would wake those that wait a thousand times.
pub(super) fn dedup(wakes: impl Iterator<Item = Wake>) -> Vec<Wake> {
    let mut seen = HashSet::new();
    wakes.filter(|wake| seen.insert(wake.clone())).collect()
}

/// A kind that is watched.
pub(crate) trait Watched: Kind + Send + Sync + 'static {
    /// Which of its objects; `None`: all of them.
    const LABELS: Option<&str>;

    /// What a change of this object wakes. `gone`: it has been deleted.
    fn wakes(&self, caches: &Caches, gone: bool) -> Vec<Wake>;
}

impl Watched for Workspace {
    const LABELS: Option<&str> = None;

    fn wakes(&self, caches: &Caches, gone: bool) -> Vec<Wake> {
        let (namespace, name) = (self.namespace().unwrap_or_default(), self.name_any());
        let members = caches.workspaces.state_filter(|other| {
            other.namespace().as_deref() == Some(&namespace)
                && other
                    .spec
                    .account_ref
                    .as_ref()
                    .is_some_and(|account| account.name == name)
        });
        let mut wakes = vec![Wake::Workspace(ObjectRef::from_obj(self))];
        wakes.extend(
            members
                .iter()
                .map(|member| Wake::Workspace(ObjectRef::from_obj(member.as_ref()))),
        );
        if gone {
            let agents = caches
                .agents
                .state_filter(|agent| agent.namespace().as_deref() == Some(&namespace));
            wakes.extend(
                agents
                    .iter()
                    .map(|agent| Wake::Agent(ObjectRef::from_obj(agent.as_ref()))),
            );
        }
        wakes.extend(caches.waiting(&namespace));
        wakes.extend(caches.showing(&namespace, tokens_secret(self)));
        // What a grant may name is up to its Workspace.
        let grants = caches.grants.state_filter(|grant| {
            grant.namespace().as_deref() == Some(&namespace)
                && grant.spec.workspace_ref.name == name
        });
        wakes.extend(
            grants
                .iter()
                .map(|grant| Wake::Grant(ObjectRef::from_obj(grant.as_ref()))),
        );
        wakes
    }
}

impl Watched for Agent {
    const LABELS: Option<&str> = None;

    fn wakes(&self, caches: &Caches, _gone: bool) -> Vec<Wake> {
        let namespace = self.namespace().unwrap_or_default();
        let mut wakes = vec![Wake::Agent(ObjectRef::from_obj(self))];
        // A grant may wait for this agent, and an agent for a key that this one held.
        wakes.extend(caches.waiting_grants(&namespace));
        wakes.extend(caches.waiting_agents(&namespace, brings_its_key));
        wakes.extend(caches.showing(&namespace, key_secret(self)));
        wakes
    }
}

fn brings_its_key(agent: &Agent) -> bool {
    agent
        .spec
        .key
        .as_ref()
        .is_some_and(|key| key.existing_secret_ref.is_some())
}

impl Watched for ToolSource {
    const LABELS: Option<&str> = None;

    fn wakes(&self, caches: &Caches, gone: bool) -> Vec<Wake> {
        let namespace = self.namespace().unwrap_or_default();
        let mut wakes = vec![Wake::Source(ObjectRef::from_obj(self))];
        if gone {
            let grants = caches
                .grants
                .state_filter(|grant| grant.namespace().as_deref() == Some(&namespace));
            wakes.extend(
                grants
                    .iter()
                    .map(|grant| Wake::Grant(ObjectRef::from_obj(grant.as_ref()))),
            );
        } else {
            wakes.extend(caches.waiting_grants(&namespace));
        }
        // What a gateway may read is up to the sources that it asks.
        wakes.extend(caches.accounts_asking(&namespace, &self.name_any()));
        wakes
    }
}

impl Watched for ToolGrant {
    const LABELS: Option<&str> = None;

    fn wakes(&self, caches: &Caches, _gone: bool) -> Vec<Wake> {
        let namespace = self.namespace().unwrap_or_default();
        let mut wakes = vec![Wake::Grant(ObjectRef::from_obj(self))];
        let account = caches.account_of(self);
        wakes.extend(
            account.map(|account| Wake::Workspace(ObjectRef::new(&account).within(&namespace))),
        );
        // Those that it names, and those that it may have named before: they are known, and no grant names them now.
        let sources = caches.sources.state_filter(|source| {
            let name = source.metadata.name.as_deref().unwrap_or_default();
            source.metadata.namespace.as_deref() == Some(&namespace)
                && (is_naming(self, &namespace, name)
                    || (is_known(source)
                        && caches
                            .grants
                            .find(|grant| is_naming(grant, &namespace, name))
                            .is_none()))
        });
        wakes.extend(sources.iter().map(source_wake));
        wakes
    }
}

/// Whether the status says something of what gateways have found.
fn is_known(source: &ToolSource) -> bool {
    let conditions = source.status.iter().flat_map(|status| &status.conditions);
    conditions
        .into_iter()
        .any(|condition| condition.type_ == kind::REACHABLE && condition.status != "Unknown")
}

/// Selects what the operator has made.
const OURS: Option<&str> = Some("app.kubernetes.io/managed-by=chandlery-operator");

/// The Workspace that an object of ours belongs to.
fn workspace_of(object: &impl ResourceExt) -> Vec<Wake> {
    debug_assert!(object.labels().contains_key(MANAGED_BY));
    let workspace = object.labels().get(names::WORKSPACE_LABEL);
    workspace
        .map(|name| {
            Wake::Workspace(ObjectRef::new(name).within(&object.namespace().unwrap_or_default()))
        })
        .into_iter()
        .collect()
}

macro_rules! watched_for_its_workspace {
    ($($kind:ty),+) => {$(
        impl Watched for $kind {
            const LABELS: Option<&str> = OURS;

            fn wakes(&self, _caches: &Caches, _gone: bool) -> Vec<Wake> {
                workspace_of(self)
            }
        }
    )+};
}

watched_for_its_workspace!(
    Deployment,
    Service,
    ServiceAccount,
    PersistentVolumeClaim,
    NetworkPolicy,
    PodDisruptionBudget,
    Role,
    RoleBinding
);

impl Watched for Pod {
    const LABELS: Option<&str> = OURS;

    fn wakes(&self, caches: &Caches, _gone: bool) -> Vec<Wake> {
        let mut wakes = workspace_of(self);
        wakes.push(Wake::Replicas);
        // Who waits for every replica may have waited for this one.
        wakes.extend(caches.waiting(&self.namespace().unwrap_or_default()));
        wakes
    }
}

impl Caches {
    /// The accounts whose gateways ask a source of that name.
    fn accounts_asking(&self, namespace: &str, source: &str) -> Vec<Wake> {
        let grants = self.grants_of(namespace, source);
        let accounts: BTreeSet<String> = grants
            .iter()
            .filter_map(|grant| self.account_of(grant))
            .collect();
        let account = |name: String| Wake::Workspace(ObjectRef::new(&name).within(namespace));
        accounts.into_iter().map(account).collect()
    }

    /// The sources that have their credential in a Secret, and the accounts that ask them.
    fn showing(&self, namespace: &str, secret: Option<&str>) -> Vec<Wake> {
        let Some(secret) = secret else {
            return Vec::new();
        };
        let sources = self.sources.state_filter(|source| {
            let credential = source.spec.credential_ref();
            source.metadata.namespace.as_deref() == Some(namespace)
                && credential.is_some_and(|(reference, _)| reference.name == secret)
        });
        let wakes = sources.iter().flat_map(|source| {
            let accounts = self.accounts_asking(namespace, &source.name_any());
            accounts.into_iter().chain([source_wake(source)])
        });
        wakes.collect()
    }

    /// Agents, grants and sources that wait for something may get it from any change around them; what is ready does not.
    fn waiting(&self, namespace: &str) -> Vec<Wake> {
        let mut wakes = self.waiting_agents(namespace, |_| true);
        wakes.extend(self.waiting_grants(namespace));
        wakes.extend(self.waiting_sources(namespace));
        wakes
    }

    fn waiting_sources(&self, namespace: &str) -> Vec<Wake> {
        let sources = self.sources.state_filter(|source| {
            source.metadata.namespace.as_deref() == Some(namespace)
                && !is_ready(source.status.as_ref().map(|status| &status.conditions))
        });
        sources.iter().map(source_wake).collect()
    }

    fn waiting_agents(&self, namespace: &str, is_meant: impl Fn(&Agent) -> bool) -> Vec<Wake> {
        let agents = self.agents.state_filter(|agent| {
            is_meant(agent)
                && agent.metadata.namespace.as_deref() == Some(namespace)
                && !is_ready(agent.status.as_ref().map(|status| &status.conditions))
        });
        agents
            .iter()
            .map(|agent| Wake::Agent(ObjectRef::from_obj(agent.as_ref())))
            .collect()
    }

    fn waiting_grants(&self, namespace: &str) -> Vec<Wake> {
        let grants = self.grants.state_filter(|grant| {
            grant.metadata.namespace.as_deref() == Some(namespace)
                && !is_ready(grant.status.as_ref().map(|status| &status.conditions))
        });
        grants
            .iter()
            .map(|grant| Wake::Grant(ObjectRef::from_obj(grant.as_ref())))
            .collect()
    }
}

pub(super) fn source_wake(source: &Arc<ToolSource>) -> Wake {
    Wake::Source(ObjectRef::from_obj(source.as_ref()))
}

fn is_ready(conditions: Option<&Conditions>) -> bool {
    conditions.is_some_and(|conditions| conditions::is_true(conditions, kind::READY))
}
