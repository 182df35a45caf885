//! What the operator says of ToolSources and ToolGrants: whether what they refer to is there and may be used so, and what
//! a gateway may read for them.

use std::time::Duration;

use anyhow::{Result, ensure};
use chandlery_tests::agents::DESK;
use chandlery_tests::client::Era;
use chandlery_tests::namespace::{Namespace, in_namespace};
use chandlery_tests::{eventually, release};
use k8s_openapi::api::rbac::v1::Role;
use kube::Api;
use serde_json::json;

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

const HR: &str = "
apiVersion: v1
kind: Secret
metadata: {name: hr, annotations: {chandlery.dev/allowed-hosts: hr.example}}
stringData: {token: of-the-upstream}
---
apiVersion: chandlery.dev/v1alpha1
kind: ToolSource
metadata: {name: hr}
spec:
  mcp: {url: 'https://crm.example/mcp'}
  auth: {bearer: {secretKeyRef: {name: hr, key: token}}}
";
const KEY: &str = "
apiVersion: chandlery.dev/v1alpha1
kind: ToolSource
metadata: {name: key}
spec:
  mcp: {url: 'https://crm.example/mcp'}
  auth: {bearer: {secretKeyRef: {name: agent-one-mcp, key: token}}}
";

// Design §8: a gateway reads the Secrets and ConfigMaps of granted sources by their names, and never a key.
#[tokio::test]
#[ignore = "needs the test cluster"]
async fn a_gateway_may_read_what_granted_sources_name_and_nothing_else() {
    release::installed().await.expect("install the charts");
    in_namespace(async |namespace| {
        for manifests in [REFERRED, SOURCE, HR, KEY, DESK] {
            namespace.apply(manifests).await?;
        }
        until_readable(namespace, &[]).await?;
        namespace.apply(GRANT).await?;
        until_readable(namespace, &["configmaps crm", "secrets crm"]).await?;
        let more = GRANT.replace("tools: [crm/*]", "tools: [crm/*, hr/*, key/*]");
        namespace.apply(&more).await?;
        let expected = ["configmaps crm", "secrets crm", "secrets hr"];
        until_readable(namespace, &expected).await?;
        namespace
            .kubectl(&["delete", "toolgrants.chandlery.dev/crm-for-one"])
            .await?;
        until_readable(namespace, &[]).await
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster"]
async fn a_secret_goes_to_the_hosts_that_it_names_alone() {
    release::installed().await.expect("install the charts");
    in_namespace(async |namespace| {
        namespace.apply(HR).await?;
        namespace.apply(KEY).await?;
        let wait = |reason: &str| {
            format!(
                "--for=jsonpath={{.status.conditions[?(@.type==\"ResolvedRefs\")].reason}}={reason}"
            )
        };
        for (source, reason) in [("hr", "SecretHostNotAllowed"), ("key", "SecretInvalid")] {
            let object = format!("toolsources.chandlery.dev/{source}");
            namespace
                .kubectl(&["wait", &wait(reason), &object, "--timeout=60s"])
                .await?;
        }
        let allowed = HR.replace("allowed-hosts: hr.example", "allowed-hosts: '*.example'");
        namespace.apply(&allowed).await?;
        until(namespace, "toolsources.chandlery.dev/hr", "True").await
    })
    .await;
}

/// Two accounts: `desk`, whose agent has tools of sources, and `library`, whose gateway is what they come from.
fn desk_and_library(namespace: &str, key: &str) -> String {
    let desk = DESK
        .replace(
            "{store: ",
            "{gateway: {egressCidrs: [198.18.0.0/15]}, store: ",
        )
        .replace(
            "metadata: {name: one}\nspec: {workspaceRef: {name: desk}}",
            "metadata: {name: one}\nspec: {workspaceRef: {name: desk}, listing: PerOperation, tools: [books/*, about/*]}",
        );
    let host = format!("gateway-library.{namespace}.svc");
    format!(
        "{desk}
---
apiVersion: v1
kind: Secret
metadata: {{name: to-books, annotations: {{chandlery.dev/allowed-hosts: {host}}}}}
stringData: {{token: {key}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: about}}
data:
  openapi.yaml: |
    openapi: 3.1.0
    info: {{title: People's API, version: '1'}}
    servers: [{{url: 'http://{host}/api/v1'}}]
    paths:
      /openapi.json: {{get: {{operationId: describe, summary: What the API can do}}}}
---
apiVersion: chandlery.dev/v1alpha1
kind: ToolSource
metadata: {{name: books}}
spec:
  mcp: {{url: 'http://{host}/runtime/agents/{namespace}.librarian/mcp'}}
  allowedHosts: [{host}]
  auth: {{bearer: {{secretKeyRef: {{name: to-books, key: token}}}}}}
---
apiVersion: chandlery.dev/v1alpha1
kind: ToolSource
metadata: {{name: about}}
spec:
  openapi: {{configMapKeyRef: {{name: about, key: openapi.yaml}}}}
  allowedHosts: [{host}]
---
apiVersion: chandlery.dev/v1alpha1
kind: ToolGrant
metadata: {{name: reading}}
spec: {{workspaceRef: {{name: desk}}, agents: {{names: [one]}}, tools: [books/*, about/*]}}
"
    )
}

const LIBRARY: &str = "
apiVersion: chandlery.dev/v1alpha1
kind: Workspace
metadata: {name: library}
spec: {store: {sqlite: {size: 64Mi}}}
---
apiVersion: chandlery.dev/v1alpha1
kind: Agent
metadata: {name: librarian}
spec: {workspaceRef: {name: library}}
";

// R-C-021, R-C-022: tools of an OpenAPI service and of a remote MCP server, by way of real pods, names and policies.
#[tokio::test]
#[ignore = "needs the test cluster"]
async fn an_agent_calls_tools_of_a_service_and_of_an_mcp_server() {
    release::installed().await.expect("install the charts");
    in_namespace(async |namespace| {
        namespace.apply(LIBRARY).await?;
        namespace.agents_ready().await?;
        let key = namespace.binding("librarian").await?.key;
        namespace
            .apply(&desk_and_library(&namespace.name, &key))
            .await?;
        namespace.agents_ready().await?;
        for source in ["books", "about"] {
            let object = format!("toolsources.chandlery.dev/{source}");
            for condition in ["Reachable", "Ready"] {
                let wait = format!("--for=condition={condition}");
                namespace
                    .kubectl(&["wait", &wait, &object, "--timeout=60s"])
                    .await?;
            }
            let path = "--output=jsonpath={.status.revision} {.status.tools.served}";
            let said = namespace.kubectl(&["get", &object, path]).await?;
            let (revision, served) = said.split_once(' ').unwrap_or_default();
            ensure!(revision.len() == 32 && served.parse::<u32>()? > 0, "{said}");
        }
        let client = namespace
            .binding("one")
            .await?
            .connect(Era::Stateless)
            .await?;
        let tools = client.tools().await?;
        for tool in ["books_agnt_datetime_now", "books_memory", "about_describe"] {
            ensure!(tools.iter().any(|listed| listed == tool), "{tools:?}");
        }
        let zone = json!({"timezone": "Asia/Tokyo"});
        let answer = client.call("books_agnt_datetime_now", zone).await?;
        ensure!(answer.to_string().contains("Asia/Tokyo"), "{answer}");
        let answer = client.call("about_describe", json!({})).await?;
        ensure!(answer.to_string().contains("/approvals"), "{answer}");
        ensure!(!answer.to_string().contains(&key)); // P15
        Ok(())
    })
    .await;
}

/// Waits until the gateway's Role names exactly these, each as `<resource> <name>`, in order.
async fn until_readable(namespace: &Namespace, expected: &[&str]) -> Result<()> {
    eventually("the gateway's Role", Duration::from_secs(30), async || {
        let roles: Api<Role> = namespace.api();
        let role = roles.get("gateway-desk").await?;
        let mut readable = Vec::new();
        for rule in role.rules.unwrap_or_default() {
            for name in rule.resource_names.unwrap_or_default() {
                let resources = rule.resources.iter().flatten();
                readable.extend(resources.map(|resource| format!("{resource} {name}")));
            }
        }
        readable.sort();
        ensure!(readable == expected, "{readable:?}");
        Ok(Some(()))
    })
    .await
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
