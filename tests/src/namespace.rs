//! A namespace for each test.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::FutureExt;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Namespace as NamespaceObject;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::RwLock;

use crate::{cluster, eventually};

/// A fresh namespace that enforces Pod Security *restricted*.
pub struct Namespace {
    pub name: String,
    pub client: Client,
}

/// Who stops the API server or the operator needs the cluster alone.
static CLUSTER: RwLock<()> = RwLock::const_new(());

/// Like [`in_namespace`], while no other test of this program runs.
pub async fn alone_in_namespace(test: impl AsyncFnOnce(&Namespace) -> Result<()>) {
    let _alone = CLUSTER.write().await;
    run(test).await;
}

/// Runs `test` in a namespace of its own. Afterwards the namespace goes, and it is an error when something holds it up.
///
/// When `test` fails, what the namespace holds is printed first: events, objects, and logs of pods.
pub async fn in_namespace(test: impl AsyncFnOnce(&Namespace) -> Result<()>) {
    let _shared = CLUSTER.read().await;
    run(test).await;
}

async fn run(test: impl AsyncFnOnce(&Namespace) -> Result<()>) {
    let namespace = Namespace::create().await.expect("create a namespace");
    let outcome = AssertUnwindSafe(test(&namespace)).catch_unwind().await;
    if !matches!(outcome, Ok(Ok(()))) {
        namespace.print().await;
    }
    let removed = namespace.remove().await;
    match outcome {
        Ok(Ok(())) => removed.expect("remove the namespace"),
        Ok(Err(error)) => panic!("{error:?}"),
        Err(panic) => resume_unwind(panic),
    }
}

impl Namespace {
    async fn create() -> Result<Self> {
        let client = cluster::client().await?;
        let object = serde_json::from_value(json!({
            "metadata": {"generateName": "test-", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}
        }))?;
        let made: NamespaceObject = Api::all(client.clone())
            .create(&PostParams::default(), &object)
            .await?;
        let name = made.metadata.name.context("a namespace has a name")?;
        Ok(Self { name, client })
    }

    /// The objects of one kind in this namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + DeserializeOwned
            + Clone
            + Debug,
    {
        Api::namespaced(self.client.clone(), &self.name)
    }

    /// `kubectl` in this namespace.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        cluster::kubectl(&[&["--namespace", &self.name], arguments].concat()).await
    }

    /// Applies manifests that name no namespace.
    pub async fn apply(&self, manifests: &str) -> Result<()> {
        let arguments = [
            "--namespace",
            &self.name,
            "apply",
            "--server-side",
            "--filename=-",
        ];
        cluster::run("kubectl", &arguments, manifests)
            .await
            .map(drop)
    }

    /// Names of all that people and operators make in a namespace, sorted: `deployment.apps/gateway-team`.
    pub async fn objects(&self) -> Result<Vec<String>> {
        const KINDS: &str = "chandlery,deployments,replicasets,pods,services,endpointslices,serviceaccounts,roles,rolebindings,networkpolicies,poddisruptionbudgets,secrets,configmaps,persistentvolumeclaims";
        let names = self.kubectl(&["get", KINDS, "--output=name"]).await?;
        let mut names: Vec<_> = names.lines().map(str::to_owned).collect();
        names.sort();
        Ok(names)
    }

    /// Waits until the namespace holds these objects only.
    pub async fn until_only(&self, objects: &[String]) -> Result<()> {
        eventually("the rest is gone", Duration::from_secs(120), async || {
            let rest: Vec<_> = self
                .objects()
                .await?
                .into_iter()
                .filter(|name| !objects.contains(name))
                .collect();
            anyhow::ensure!(rest.is_empty(), "still there: {rest:?}");
            Ok(Some(()))
        })
        .await?;
        let left = self.objects().await?;
        anyhow::ensure!(left == objects, "left: {left:?}, expected: {objects:?}");
        Ok(())
    }

    /// Deletes the namespace and waits until it is gone.
    pub async fn remove(&self) -> Result<()> {
        let namespaces: Api<NamespaceObject> = Api::all(self.client.clone());
        let gone = eventually(
            "the namespace is gone",
            Duration::from_secs(120),
            async || match namespaces
                .delete(&self.name, &DeleteParams::default())
                .await
            {
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(Some(())),
                other => other.map(|_| None).context("delete the namespace"),
            },
        );
        match gone.await {
            Err(error) => Err(error.context(
                self.kubectl(&["get", "namespace", &self.name, "--output=yaml"])
                    .await?,
            )),
            Ok(()) => Ok(()),
        }
    }

    /// Prints what helps to understand a failure. No Secrets.
    async fn print(&self) {
        let looks: &[&[&str]] = &[
            &["get", "events", "--sort-by=.lastTimestamp"],
            &[
                "get",
                "pods,deployments,services,endpointslices,networkpolicies,persistentvolumeclaims",
                "--output=wide",
            ],
            &["get", "chandlery", "--output=yaml"],
            &["describe", "pods"],
        ];
        for look in looks {
            self.show(look).await;
        }
        let pods = self
            .kubectl(&["get", "pods", "--output=name"])
            .await
            .unwrap_or_default();
        for pod in pods.lines() {
            self.show(&["logs", pod, "--all-containers", "--prefix", "--tail=200"])
                .await;
        }
    }

    async fn show(&self, arguments: &[&str]) {
        let shown = self
            .kubectl(arguments)
            .await
            .unwrap_or_else(|error| format!("{error:#}"));
        eprintln!("--- {}: {}\n{shown}", self.name, arguments.join(" "));
    }
}
