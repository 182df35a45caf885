//! ToolSources: whether what they refer to is there. What they offer is the gateways' matter.

use std::sync::Arc;

use chandlery_crds::check::{self, Credential, Finding, Held, SourceReferences};
use chandlery_crds::conditions;
use chandlery_crds::fields::ConfigMapKeyRef;
use chandlery_crds::{ToolSource, ToolSourceStatus};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt;

use super::summary::{self, Obstacle, held_in_map};
use super::{Next, Reconciled};
use crate::api::Error;
use crate::context::{Context, now};

impl Reconciled for ToolSource {
    const KIND: &'static str = "ToolSource";

    async fn reconcile(source: Arc<Self>, ctx: Arc<Context>) -> Result<Next, Error> {
        let observed = observe(&ctx, &source).await?;
        let findings = plan(&source, &observed);
        let status = status(&source, &findings, now());
        if source.status.as_ref() != Some(&status) {
            ctx.cluster.apply_status(source.as_ref(), &status).await?;
        }
        Ok(Next::read_again(!findings.is_empty(), None))
    }
}

/// What the source refers to; `None` where it refers to nothing, or to nothing that exists.
#[derive(Default)]
struct Observed {
    document: Option<ConfigMap>,
    ca_bundle: Option<ConfigMap>,
    credential: Option<Secret>,
}

async fn observe(ctx: &Context, source: &ToolSource) -> Result<Observed, Error> {
    let namespace = source.namespace().unwrap_or_default();
    let map = async |reference: Option<&ConfigMapKeyRef>| match reference {
        Some(reference) => ctx.cluster.get(&namespace, &reference.name).await,
        None => Ok(None),
    };
    Ok(Observed {
        document: map(source.spec.document_ref()).await?,
        ca_bundle: map(source.spec.ca_ref()).await?,
        credential: match source.spec.credential_ref() {
            Some((credential, _)) => ctx.cluster.get(&namespace, &credential.name).await?,
            None => None,
        },
    })
}

fn plan(source: &ToolSource, observed: &Observed) -> Vec<Finding> {
    let map = |reference: Option<&ConfigMapKeyRef>, map| {
        reference.map_or(Held::Unknown, |reference| held_in_map(map, &reference.key))
    };
    let references = SourceReferences {
        document: map(source.spec.document_ref(), observed.document.as_ref()),
        ca_bundle: map(source.spec.ca_ref(), observed.ca_bundle.as_ref()),
        credential: match &observed.credential {
            Some(secret) => Credential::Secret(secret),
            None => Credential::NoObject,
        },
        requires_hosts: false,
    };
    check::tool_source(source, references)
}

fn status(source: &ToolSource, findings: &[Finding], now: Timestamp) -> ToolSourceStatus {
    let generation = source.metadata.generation.unwrap_or_default();
    let old = source
        .status
        .as_ref()
        .map_or(&[][..], |status| &status.conditions);
    let obstacles: Vec<Obstacle> = findings.iter().map(Obstacle::from).collect();
    let mut wanted = vec![summary::resolved_refs(findings)];
    wanted.extend(summary::conditions(
        &obstacles,
        "everything that the source refers to is there",
    ));
    ToolSourceStatus {
        observed_generation: Some(generation),
        conditions: conditions::merge(old, &wanted, generation, now),
        ..ToolSourceStatus::default()
    }
}

#[cfg(test)]
mod tests;
