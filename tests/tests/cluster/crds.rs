//! The CRDs on a real API server: the table of what is accepted and refused, and two managers of one object.

use anyhow::{Context, Result, bail, ensure};
use chandlery_crds::crd::Kind;
use chandlery_crds::names;
use chandlery_tests::namespace::{Namespace, in_namespace};
use chandlery_tests::release;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

/// Strict, as kubectl asks.
const QUERY: &str = "fieldValidation=Strict&fieldManager=table";

#[tokio::test]
#[ignore = "needs the test cluster"]
async fn the_api_server_says_what_the_table_says() {
    release::crds().await.unwrap();
    let rows: Vec<Value> =
        serde_saphyr::from_str(include_str!("../../../crds/tests/table.yaml")).unwrap();
    in_namespace(async |namespace| {
        let mut wrong = Vec::new();
        for row in &rows {
            if let Err(error) = ask(namespace, row).await {
                wrong.push(format!("{} {}: {error:#}", row["kind"], row["it"]));
            }
        }
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    })
    .await;
}

/// Makes the row's object and, if it says so, changes it; compares the answer with what the row says.
async fn ask(namespace: &Namespace, row: &Value) -> Result<()> {
    let kind = row["kind"]
        .as_str()
        .and_then(Kind::named)
        .context("a row has a kind")?;
    let name = row["name"].as_str().unwrap_or("w");
    let object = |spec: &Value| {
        json!({
            "apiVersion": format!("{}/{}", names::GROUP, names::VERSION),
            "kind": kind.name(),
            "metadata": {"name": name, "namespace": namespace.name, "labels": row["labels"]},
            "spec": spec,
        })
    };
    let path = format!(
        "/apis/{}/{}/namespaces/{}/{}s",
        names::GROUP,
        names::VERSION,
        namespace.name,
        kind.name().to_lowercase()
    );
    let created = format!("{path}?{QUERY}");
    let answer = match row.get("becomes") {
        None => {
            send(
                namespace,
                "POST",
                &format!("{created}&dryRun=All"),
                &object(&row["spec"]),
            )
            .await
        }
        Some(spec) => {
            let made = send(namespace, "POST", &created, &object(&row["spec"])).await?;
            let mut changed = object(spec);
            changed["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"].clone();
            let answer = send(
                namespace,
                "PUT",
                &format!("{path}/{name}?{QUERY}&dryRun=All"),
                &changed,
            )
            .await;
            send(namespace, "DELETE", &format!("{path}/{name}"), &json!({})).await?;
            answer
        }
    };
    match (answer, row["says"].as_str()) {
        (Ok(_), None) => Ok(()),
        (Ok(_), Some(words)) => bail!("accepted, but was to be refused with {words:?}"),
        (Err(refusal), Some(words)) if refusal.to_string().contains(words) => Ok(()),
        (Err(refusal), Some(words)) => bail!("{refusal} lacks {words:?}"),
        (Err(refusal), None) => Err(refusal),
    }
}

async fn send(namespace: &Namespace, method: &str, path: &str, body: &Value) -> Result<Value> {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(serde_json::to_vec(body)?)?;
    namespace
        .client
        .request(request)
        .await
        .map_err(|error| match error {
            kube::Error::Api(status) => anyhow::Error::msg(status.message),
            other => other.into(),
        })
}

#[tokio::test]
#[ignore = "needs the test cluster"]
async fn two_managers_each_apply_some_of_an_agents_tools() {
    release::crds().await.unwrap();
    in_namespace(async |namespace| {
        let agents = namespace.api::<chandlery_crds::Agent>();
        for (manager, tools) in [("flux", json!(["memory", "task"])), ("console", json!(["agnt_*", "task"]))] {
            let applied = json!({
                "apiVersion": "chandlery.dev/v1alpha1", "kind": "Agent", "metadata": {"name": "coder"},
                "spec": {"workspaceRef": {"name": "home"}, "tools": tools},
            });
            agents.patch("coder", &PatchParams::apply(manager), &Patch::Apply(&applied)).await?;
        }
        let mut merged = agents.get("coder").await?.spec.tools;
        merged.sort();
        ensure!(merged == ["agnt_*", "memory", "task"], "merged: {merged:?}");
        Ok(())
    })
    .await;
}
