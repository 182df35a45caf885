//! What the operator says of ToolSources and ToolGrants: whether what they refer to is there.

use anyhow::{Result, ensure};
use chandlery_tests::agents::DESK;
use chandlery_tests::namespace::{Namespace, in_namespace};
use chandlery_tests::release;

const SOURCE: &str = "
apiVersion: chandlery.dev/v1alpha1
kind: ToolSource
metadata: {name: crm}
spec:
  openapi: {configMapKeyRef: {name: crm, key: openapi.json}}
  auth: {bearer: {secretKeyRef: {name: crm, key: token}}}
";
const REFERRED: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: crm}
data: {openapi.json: '{}'}
---
apiVersion: v1
kind: Secret
metadata: {name: crm}
stringData: {token: of-the-upstream}
";
const GRANT: &str = "
apiVersion: chandlery.dev/v1alpha1
kind: ToolGrant
metadata: {name: crm-for-one}
spec:
  workspaceRef: {name: desk}
  agents: {names: [one]}
  tools: [crm/*]
";

// Issue: ToolSource and ToolGrant, references and status.
#[tokio::test]
#[ignore = "needs the test cluster"]
async fn sources_and_grants_say_what_they_miss_until_it_is_there() {
    release::installed().await.expect("install the charts");
    in_namespace(async |namespace| {
        namespace.apply(SOURCE).await?;
        namespace.apply(GRANT).await?;
        until(namespace, "toolsources.chandlery.dev/crm", "False").await?;
        let said = message(namespace, "toolsources.chandlery.dev/crm").await?;
        ensure!(said.contains("crm"), "it names what is missing: {said}");
        until(namespace, "toolgrants.chandlery.dev/crm-for-one", "False").await?;

        namespace.apply(REFERRED).await?;
        namespace.apply(DESK).await?;
        namespace.agents_ready().await?;
        until(namespace, "toolsources.chandlery.dev/crm", "True").await?;
        until(namespace, "toolgrants.chandlery.dev/crm-for-one", "True").await?;
        let said = message(namespace, "toolsources.chandlery.dev/crm").await?;
        ensure!(!said.contains("of-the-upstream"), "{said}"); // P15
        Ok(())
    })
    .await;
}

async fn until(namespace: &Namespace, object: &str, status: &str) -> Result<()> {
    let wait = format!("--for=condition=ResolvedRefs={status}");
    let within = "--timeout=120s";
    namespace
        .kubectl(&["wait", &wait, object, within])
        .await
        .map(drop)
}

async fn message(namespace: &Namespace, object: &str) -> Result<String> {
    let path = "--output=jsonpath={.status.conditions[*].message}";
    namespace.kubectl(&["get", object, path]).await
}
