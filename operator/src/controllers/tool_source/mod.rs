//! ToolSources: whether what they refer to is there. What they offer is the gateways' matter.

use std::sync::Arc;

use chandlery_crds::check::{self, Finding, Held};
use chandlery_crds::conditions;
use chandlery_crds::{ToolSource, ToolSourceStatus};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt;

use super::summary::{self, Obstacle, held, held_in_map};
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
    credential: Option<Secret>,
}

async fn observe(ctx: &Context, source: &ToolSource) -> Result<Observed, Error> {
    let namespace = source.namespace().unwrap_or_default();
    let (document, credential) = (source.spec.document_ref(), source.spec.credential_ref());
    Ok(Observed {
        document: match document {
            Some(document) => ctx.cluster.get(&namespace, &document.name).await?,
            None => None,
        },
        credential: match credential {
            Some(credential) => ctx.cluster.get(&namespace, &credential.name).await?,
            None => None,
        },
    })
}

fn plan(source: &ToolSource, observed: &Observed) -> Vec<Finding> {
    let (document, credential) = (source.spec.document_ref(), source.spec.credential_ref());
    check::tool_source(
        source,
        document.map_or(Held::Unknown, |document| {
            held_in_map(observed.document.as_ref(), &document.key)
        }),
        credential.map_or(Held::Unknown, |credential| {
            held(observed.credential.as_ref(), &credential.key)
        }),
    )
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
    }
}

#[cfg(test)]
mod tests;
