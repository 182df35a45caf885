//! What there is. Reads only; what is absent is data.

use std::collections::BTreeSet;
use std::sync::Arc;

use chandlery_crds::{ToolSource, Workspace, check, names};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;

use super::plan::MOST_NAMES;
use super::plan::network::ApiServer;
use crate::api::Error;
use crate::context::Context;
use crate::objects::Live;

/// What there is of a Workspace.
#[derive(Default)]
pub(crate) struct Observed {
    /// The Secret under the name of the Workspace's key.
    pub(crate) key_secret: Option<Secret>,
    /// The Workspace that `accountRef` names.
    pub(crate) account: Option<Arc<Workspace>>,
    /// Only of an account.
    pub(crate) gateway: Gateway,
}

/// What there is of an account's gateway.
#[derive(Default)]
pub(crate) struct Gateway {
    pub(crate) own_secret: Option<Secret>,
    pub(crate) service_account: Live<ServiceAccount>,
    pub(crate) role: Live<Role>,
    pub(crate) role_binding: Live<RoleBinding>,
    pub(crate) policy: Live<NetworkPolicy>,
    pub(crate) claim: Live<PersistentVolumeClaim>,
    pub(crate) service: Live<Service>,
    pub(crate) deployment: Live<Deployment>,
    pub(crate) budget: Live<PodDisruptionBudget>,
    /// The Secret that is to hold the PostgreSQL URL.
    pub(crate) store_secret: Option<Secret>,
    /// The Secret that is to hold the tokens of people.
    pub(crate) people_secret: Option<Secret>,
    /// The ToolSources that grants of the account's Workspaces name.
    pub(crate) sources: Vec<Arc<ToolSource>>,
    /// Those of the Secrets with their credentials that are where keys or people's tokens lie, or belong to us otherwise.
    pub(crate) kept_secrets: BTreeSet<String>,
    pub(crate) pods: Vec<Arc<Pod>>,
    pub(crate) api_server: Vec<ApiServer>,
}

pub(super) async fn observe(ctx: &Context, workspace: &Workspace) -> Result<Observed, Error> {
    let namespace = workspace.namespace().unwrap_or_default();
    let name = workspace.name_any();
    let key_secret = ctx
        .cluster
        .get(&namespace, &names::workspace_secret(&name))
        .await?;
    Ok(match &workspace.spec.account_ref {
        Some(account) => Observed {
            key_secret,
            account: ctx.caches.workspace(&namespace, &account.name),
            gateway: Gateway::default(),
        },
        None => Observed {
            key_secret,
            account: None,
            gateway: gateway(ctx, workspace, &namespace, &name).await?,
        },
    })
}

async fn gateway(
    ctx: &Context,
    workspace: &Workspace,
    namespace: &str,
    account: &str,
) -> Result<Gateway, Error> {
    let Context {
        cluster, caches, ..
    } = ctx;
    let name = &names::gateway(account);
    let claim = &names::store_claim(account);
    let store_url = workspace
        .spec
        .store
        .as_ref()
        .and_then(|store| store.postgres.as_ref());
    let store_secret = match store_url {
        Some(postgres) => {
            cluster
                .get(namespace, &postgres.url_from.secret_key_ref.name)
                .await?
        }
        None => None,
    };
    let people_secret = match &workspace.spec.people {
        Some(people) => {
            cluster
                .get(namespace, &people.tokens_secret_ref.name)
                .await?
        }
        None => None,
    };
    let pods = caches.pods.state_filter(|pod| {
        pod.metadata.namespace.as_deref() == Some(namespace)
            && pod
                .labels()
                .get(names::WORKSPACE_LABEL)
                .is_some_and(|label| label == account)
    });
    let sources = caches.sources_of(namespace, account);
    let kept_secrets = kept_secrets(ctx, namespace, &sources).await?;
    Ok(Gateway {
        own_secret: cluster.get(namespace, name).await?,
        service_account: Live::observe(cluster, &caches.service_accounts, namespace, name, account)
            .await?,
        role: Live::observe(cluster, &caches.roles, namespace, name, account).await?,
        role_binding: Live::observe(cluster, &caches.role_bindings, namespace, name, account)
            .await?,
        policy: Live::observe(cluster, &caches.policies, namespace, name, account).await?,
        claim: Live::observe(cluster, &caches.claims, namespace, claim, account).await?,
        service: Live::observe(cluster, &caches.services, namespace, name, account).await?,
        deployment: Live::observe(cluster, &caches.deployments, namespace, name, account).await?,
        budget: Live::observe(cluster, &caches.budgets, namespace, name, account).await?,
        store_secret,
        people_secret,
        sources,
        kept_secrets,
        pods,
        api_server: ctx.api_server.borrow().clone(),
    })
}

/// Looks at each Secret that the sources name, a few at a time; of the first that a Role has room for.
async fn kept_secrets(
    ctx: &Context,
    namespace: &str,
    sources: &[Arc<ToolSource>],
) -> Result<BTreeSet<String>, Error> {
    const AT_A_TIME: usize = 8;
    let credentials = sources.iter().filter_map(|source| {
        let (reference, _) = source.spec.credential_ref()?;
        Some(reference.name.clone())
    });
    let names: BTreeSet<String> = credentials.collect();
    let look = async |name: String| {
        let is_kept = names::is_own_secret(&name) || ctx.caches.keeps_keys(namespace, &name) || {
            let secret: Option<Secret> = ctx.cluster.get(namespace, &name).await?;
            secret.as_ref().is_some_and(check::is_ours)
        };
        Ok(is_kept.then_some(name))
    };
    stream::iter(names.into_iter().take(MOST_NAMES).map(look))
        .buffer_unordered(AT_A_TIME)
        .try_filter_map(|kept| std::future::ready(Ok(kept)))
        .try_collect()
        .await
}
