//! What goes with what, and what stays.

use std::time::Duration;

use chandlery_crds::{Agent, Workspace, names};
use chandlery_tests::agents::DESK;
use chandlery_tests::client::Era;
use chandlery_tests::namespace::{Namespace, in_namespace};
use chandlery_tests::{eventually, release};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch};
use serde_json::json;

const SOON: Duration = Duration::from_secs(120);

#[tokio::test]
#[ignore = "needs the test cluster"]
async fn deleting_an_agent_takes_its_secret_and_its_key() {
    release::installed().await.unwrap();
    in_namespace(async |namespace| {
        namespace.apply(DESK).await?;
        namespace.agents_ready().await?;
        let one = namespace.binding("one").await?;
        namespace
            .api::<Agent>()
            .delete("one", &DeleteParams::default())
            .await?;
        namespace.until_status(&one, 401, SOON).await?;
        eventually("the Secret is gone", SOON, async || {
            Ok(namespace
                .api::<Secret>()
                .get_opt(&names::agent_secret("one"))
                .await?
                .is_none()
                .then_some(()))
        })
        .await?;

        // The one that is made again under the same name is another agent, with another key.
        namespace.apply(DESK).await?;
        namespace.agents_ready().await?;
        let again = namespace.binding("one").await?;
        assert_ne!(again.key, one.key);
        assert_eq!(again.endpoint.status_for(&again.key).await?, 200);
        assert_eq!(again.endpoint.status_for(&one.key).await?, 401);
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster"]
async fn deleting_a_workspace_leaves_its_claim_and_a_new_one_finds_the_data() {
    release::installed().await.unwrap();
    in_namespace(async |namespace| {
        let before = namespace.objects().await?;
        namespace.apply(DESK).await?;
        namespace.agents_ready().await?;
        let client = namespace
            .binding("one")
            .await?
            .connect(Era::Stateless)
            .await?;
        let save = json!({"action": "save", "payload": {"content": "where the spare key lies"}});
        client.call("memory", save).await?;

        delete_all(namespace).await?;
        let claim = format!("persistentvolumeclaim/{}", names::store_claim("desk"));
        let mut left = before.clone();
        left.push(claim);
        left.sort();
        namespace.until_only(&left).await?;

        namespace.apply(DESK).await?;
        namespace.agents_ready().await?;
        let client = namespace
            .binding("one")
            .await?
            .connect(Era::Stateless)
            .await?;
        let memory = client.call("memory", json!({"action": "load"})).await?;
        assert!(
            memory["content"]
                .to_string()
                .contains("where the spare key lies"),
            "{memory}"
        );
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster"]
async fn deleting_a_workspace_whose_policy_is_delete_leaves_nothing() {
    release::installed().await.unwrap();
    in_namespace(async |namespace| {
        let before = namespace.objects().await?;
        namespace.apply(DESK).await?;
        let delete = Patch::Merge(json!({"spec": {"store": {"deletionPolicy": "Delete"}}}));
        namespace
            .api::<Workspace>()
            .patch("desk", &Default::default(), &delete)
            .await?;
        namespace.agents_ready().await?;
        delete_all(namespace).await?;
        namespace.until_only(&before).await
    })
    .await;
}

async fn delete_all(namespace: &Namespace) -> anyhow::Result<()> {
    namespace
        .kubectl(&["delete", "chandlery", "--all", "--timeout=60s"])
        .await
        .map(drop)
}
