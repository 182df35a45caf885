//! NetworkPolicies, as pods feel them.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use chandlery_crds::names::{GATEWAY_HEALTH_PORT, GATEWAY_INTERNAL_PORT, GATEWAY_PORT};
use chandlery_crds::{Workspace, names};
use chandlery_tests::agents::DESK;
use chandlery_tests::namespace::in_namespace;
use chandlery_tests::{cluster, eventually, postgres, release};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch};
use kube::{Api, Client};
use serde_json::json;

const SOON: Duration = Duration::from_secs(60);
/// Cluster DNS and the API server, as every pod knows them.
const DNS: ([u8; 4], u16) = ([198, 19, 0, 10], 53);
const API_SERVER: ([u8; 4], u16) = ([198, 19, 0, 1], 443);

const PODS: &str = "
apiVersion: v1
kind: Pod
metadata: {name: friend, labels: {role: friend}}
spec:
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: pause
    image: localhost/pause:1
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
---
apiVersion: v1
kind: Pod
metadata: {name: stranger, labels: {role: stranger}}
spec:
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: pause
    image: localhost/pause:1
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
";

/// A running pod.
struct Running {
    container: String,
    address: String,
}

impl Running {
    async fn find(client: &Client, namespace: &str, selector: &str) -> Result<Self> {
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        eventually(&format!("a pod with {selector} runs"), SOON, async || {
            let found = pods.list(&ListParams::default().labels(selector)).await?;
            Ok(found.items.into_iter().find_map(|pod| {
                let status = pod.status?;
                let container = status
                    .container_statuses?
                    .into_iter()
                    .find(|container| container.ready)?;
                Some(Self {
                    container: container.container_id?,
                    address: status.pod_ip?,
                })
            }))
        })
        .await
    }

    fn at(&self, port: u16) -> Result<SocketAddr> {
        Ok(SocketAddr::new(self.address.parse()?, port))
    }

    /// Whether a connection from this pod opens. A fresh pod may be fenced in for a moment before its policies stand.
    async fn reaches(&self, to: SocketAddr) -> bool {
        let connect = format!("exec 3<>/dev/tcp/{}/{}", to.ip(), to.port());
        let enter = [
            "enter",
            &self.container,
            "timeout",
            "3",
            "bash",
            "-c",
            &connect,
        ];
        cluster::script(&enter).await.is_ok()
    }

    async fn comes_to_reach(&self, to: SocketAddr) -> Result<()> {
        eventually(&format!("{to} can be reached"), SOON, async || {
            Ok(self.reaches(to).await.then_some(()))
        })
        .await
    }

    async fn comes_to_miss(&self, to: SocketAddr) -> Result<()> {
        eventually(&format!("{to} cannot be reached"), SOON, async || {
            Ok((!self.reaches(to).await).then_some(()))
        })
        .await
    }
}

#[tokio::test]
#[ignore = "needs the test cluster"]
async fn pods_reach_what_they_are_allowed_to_and_nothing_else_of_ours() {
    release::installed().await.unwrap();
    in_namespace(async |namespace| {
        let client = &namespace.client;
        namespace.apply(DESK).await?;
        namespace.apply(PODS).await?;
        namespace.agents_ready().await?;
        let service = namespace.binding("one").await?.endpoint.address;
        let gateway = Running::find(client, &namespace.name, "app.kubernetes.io/name=chandlery-gateway").await?;
        let friend = Running::find(client, &namespace.name, "role=friend").await?;
        let stranger = Running::find(client, &namespace.name, "role=stranger").await?;
        let operator = Running::find(client, release::NAMESPACE, "app.kubernetes.io/component=operator").await?;

        // Unless the Workspace says more: every pod of the namespace, and no pod of another.
        friend.comes_to_reach(service).await?;
        stranger.comes_to_reach(service).await?;
        assert!(!operator.reaches(gateway.at(GATEWAY_PORT)?).await);

        let allowed = json!({"spec": {"gateway": {"allowedFrom": [{"podSelector": {"matchLabels": {"role": "friend"}}}]}}});
        namespace.api::<Workspace>().patch("desk", &Default::default(), &Patch::Merge(allowed)).await?;
        stranger.comes_to_miss(service).await?;
        friend.comes_to_reach(service).await?;
        friend.comes_to_reach(gateway.at(GATEWAY_PORT)?).await?;
        for port in [GATEWAY_PORT, GATEWAY_INTERNAL_PORT, GATEWAY_HEALTH_PORT] {
            assert!(!stranger.reaches(gateway.at(port)?).await, "a stranger reaches {port}");
        }
        for port in [GATEWAY_INTERNAL_PORT, GATEWAY_HEALTH_PORT] {
            assert!(!friend.reaches(gateway.at(port)?).await, "a friend reaches {port}");
            assert!(!friend.reaches(operator.at(port)?).await, "a friend reaches the operator's {port}");
        }
        assert!(operator.reaches(gateway.at(GATEWAY_INTERNAL_PORT)?).await);
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster"]
async fn a_gateway_reaches_dns_the_api_server_and_its_egress_cidrs_only() {
    release::installed().await.unwrap();
    in_namespace(async |namespace| {
        namespace.apply(DESK).await?;
        namespace.apply(PODS).await?;
        namespace.agents_ready().await?;
        let gateway = Running::find(
            &namespace.client,
            &namespace.name,
            "app.kubernetes.io/name=chandlery-gateway",
        )
        .await?;
        let friend = Running::find(&namespace.client, &namespace.name, "role=friend").await?;
        let database: SocketAddr = {
            let url = postgres::database().await?;
            let (_, rest) = url.rsplit_once('@').context("a URL with a password")?;
            rest.split('/').next().unwrap_or_default().parse()?
        };
        gateway.comes_to_reach(DNS.into()).await?;
        gateway.comes_to_reach(API_SERVER.into()).await?;
        friend.comes_to_reach(database).await?;
        assert!(!gateway.reaches(database).await);

        let egress =
            json!({"spec": {"gateway": {"egressCidrs": [format!("{}/32", database.ip())]}}});
        namespace
            .api::<Workspace>()
            .patch("desk", &Default::default(), &Patch::Merge(egress))
            .await?;
        gateway.comes_to_reach(database).await
    })
    .await;
}

// Design §2: an account on PostgreSQL may have several replicas.
#[tokio::test]
#[ignore = "needs the test cluster"]
async fn an_account_on_postgresql_serves_with_two_replicas() {
    release::installed().await.unwrap();
    in_namespace(async |namespace| {
        let url = postgres::database().await?;
        let (_, address) = url.rsplit_once('@').context("a URL with a password")?;
        let host = address.split(':').next().unwrap_or_default();
        namespace
            .apply(&format!(
                "
apiVersion: v1
kind: Secret
metadata: {{name: database}}
stringData: {{url: '{url}'}}
---
apiVersion: chandlery.dev/v1alpha1
kind: Workspace
metadata: {{name: desk}}
spec:
  gateway: {{replicas: 2, egressCidrs: [{host}/32]}}
  store: {{postgres: {{urlFrom: {{secretKeyRef: {{name: database, key: url}}}}}}}}
---
apiVersion: chandlery.dev/v1alpha1
kind: Agent
metadata: {{name: one}}
spec: {{workspaceRef: {{name: desk}}}}
"
            ))
            .await?;
        namespace.agents_ready().await?;
        let client = namespace
            .binding("one")
            .await?
            .connect(chandlery_tests::client::Era::Stateless)
            .await?;
        let save = json!({"action": "save", "payload": {"content": "seen by both"}});
        client.call("memory", save).await?;
        // Either replica may answer each of these.
        for _ in 0..20 {
            let memory = client.call("memory", json!({"action": "load"})).await?;
            assert!(
                memory["content"].to_string().contains("seen by both"),
                "{memory}"
            );
        }
        let budget = format!("poddisruptionbudget.policy/{}", names::gateway("desk"));
        let objects = namespace.objects().await?;
        assert!(objects.contains(&budget), "{objects:?}");
        // A budget for one replica would only stop drains.
        let one = r#"{"spec": {"gateway": {"replicas": 1}}}"#;
        let workspace = "workspaces.chandlery.dev/desk";
        namespace
            .kubectl(&["patch", workspace, "--type=merge", "--patch", one])
            .await?;
        namespace
            .kubectl(&["wait", "--for=delete", "--timeout=120s", &budget])
            .await?;
        Ok(())
    })
    .await;
}
