//! Agents as their clients meet them.

use std::time::Duration;

use anyhow::{Context, Result};
use chandlery_crds::names::binding_secret;
use chandlery_crds::{Agent, names};
use k8s_openapi::api::core::v1::Secret;

use crate::client::{Client, Endpoint, Era};
use crate::eventually;
use crate::namespace::Namespace;

/// What an agent's Secret tells its client.
#[derive(Clone, Debug)]
pub struct Binding {
    pub endpoint: Endpoint,
    pub key: String,
}

impl Binding {
    pub async fn connect(&self, era: Era) -> Result<Client> {
        Client::connect(&self.endpoint, &self.key, era).await
    }
}

/// An account `desk` with two agents, `one` and `two`; small and quick to start.
pub const DESK: &str = "
apiVersion: chandlery.dev/v1alpha1
kind: Workspace
metadata: {name: desk}
spec: {store: {sqlite: {size: 64Mi}}}
---
apiVersion: chandlery.dev/v1alpha1
kind: Agent
metadata: {name: one}
spec: {workspaceRef: {name: desk}}
---
apiVersion: chandlery.dev/v1alpha1
kind: Agent
metadata: {name: two}
spec: {workspaceRef: {name: desk}}
";

impl Namespace {
    /// Waits as people do, until all Agents are Ready.
    pub async fn agents_ready(&self) -> Result<()> {
        let wait = [
            "wait",
            "--for=condition=Ready",
            "agents.chandlery.dev",
            "--all",
            "--timeout=120s",
        ];
        self.kubectl(&wait).await.map(drop)
    }

    /// Reads an agent's Secret. An error while there is none.
    pub async fn binding(&self, agent: &str) -> Result<Binding> {
        let secret = self
            .api::<Secret>()
            .get(&names::agent_secret(agent))
            .await?;
        let data = secret.data.unwrap_or_default();
        let text = |key: &str| {
            let value = data
                .get(key)
                .with_context(|| format!("the Secret has no {key}"))?;
            anyhow::Ok(String::from_utf8(value.0.clone())?)
        };
        Ok(Binding {
            endpoint: Endpoint::of_service(&self.client, &text(binding_secret::URI)?).await?,
            key: text(binding_secret::TOKEN)?,
        })
    }

    /// Merges `spec` into an Agent's.
    pub async fn change_agent(&self, agent: &str, spec: serde_json::Value) -> Result<Agent> {
        let patch = kube::api::Patch::Merge(serde_json::json!({"spec": spec}));
        Ok(self
            .api::<Agent>()
            .patch(agent, &Default::default(), &patch)
            .await?)
    }

    /// Waits until a key gets this status from an endpoint.
    pub async fn until_status(
        &self,
        binding: &Binding,
        wanted: u16,
        within: Duration,
    ) -> Result<()> {
        eventually(&format!("the key gets {wanted}"), within, async || {
            let status = binding.endpoint.status_for(&binding.key).await?;
            anyhow::ensure!(status == wanted, "it gets {status}");
            Ok(Some(()))
        })
        .await
    }
}
