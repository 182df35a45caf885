//! Whose key opens what, and until when.

use std::time::{Duration, Instant};

use anyhow::ensure;
use chandlery_crds::key::Key;
use chandlery_crds::{Agent, names};
use chandlery_tests::agents::DESK;
use chandlery_tests::client::Era;
use chandlery_tests::namespace::in_namespace;
use chandlery_tests::{eventually, release};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio_util::sync::CancellationToken;

const SOON: Duration = Duration::from_secs(60);

// R-A-081, design §3: a key opens its own agent's endpoint and nothing else.
// R-C-003…008: a key is minted for each agent, lies in its Secret and nowhere else, and opens its own endpoint.
#[tokio::test]
#[ignore = "needs the test cluster"]
async fn a_key_opens_the_endpoint_of_its_own_agent_only() {
    release::installed().await.unwrap();
    in_namespace(async |namespace| {
        namespace.apply(DESK).await?;
        namespace.agents_ready().await?;
        let (one, two) = (
            namespace.binding("one").await?,
            namespace.binding("two").await?,
        );
        assert_eq!(one.endpoint.status_for(&one.key).await?, 200);
        assert_eq!(one.endpoint.status_for(&two.key).await?, 403);
        assert_eq!(
            one.endpoint
                .status_for(Key::from_random([7; 32]).expose())
                .await?,
            401
        );
        assert_eq!(one.endpoint.status_for("").await?, 401);
        // Whether an endpoint exists is nobody's business: a valid key gets the same answer for one that does not.
        let nowhere = one.endpoint.at(&names::agent_path(&names::agent_id(
            &namespace.name,
            "nobody",
        )))?;
        assert_eq!(nowhere.status_for(&one.key).await?, 403);
        assert_eq!(nowhere.status_for("").await?, 401);
        Ok(())
    })
    .await;
}

// P8: what is taken away bites within 2 s.
#[tokio::test]
#[ignore = "needs the test cluster"]
async fn a_disabled_agent_is_shut_out_within_two_seconds_until_enabled_and_an_archived_one_for_good()
 {
    release::installed().await.unwrap();
    in_namespace(async |namespace| {
        namespace.apply(DESK).await?;
        namespace.agents_ready().await?;
        for (agent, state) in [("one", "Disabled"), ("two", "Archived")] {
            let binding = namespace.binding(agent).await?;
            assert_eq!(binding.endpoint.status_for(&binding.key).await?, 200);
            namespace
                .change_agent(agent, json!({"state": state}))
                .await?;
            let changed = Instant::now();
            namespace.until_status(&binding, 401, SOON).await?;
            let took = changed.elapsed();
            assert!(
                took <= Duration::from_secs(2),
                "{state}: the key went on working for {took:?}"
            );
        }
        let one = namespace.binding("one").await?;
        namespace
            .change_agent("one", json!({"state": "Deployed"}))
            .await?;
        namespace.until_status(&one, 200, SOON).await?;
        Ok(())
    })
    .await;
}

// P7: a rotation loses no call of a client that reads its Secret again now and then.
#[tokio::test]
#[ignore = "needs the test cluster"]
async fn rotating_a_key_loses_no_call_of_a_client_that_reads_its_secret_again() {
    release::installed().await.unwrap();
    in_namespace(async |namespace| {
        namespace.apply(DESK).await?;
        namespace
            .change_agent("one", json!({"key": {"overlap": "5s"}}))
            .await?;
        namespace.agents_ready().await?;

        let enough = CancellationToken::new();
        let client = async {
            let mut calls = 0;
            while !enough.is_cancelled() {
                let binding = namespace.binding("one").await?;
                let client = binding.connect(Era::Stateless).await?;
                let read = Instant::now();
                while read.elapsed() < Duration::from_secs(1) {
                    client.call("agnt_datetime_now", json!({})).await?;
                    calls += 1;
                }
            }
            anyhow::Ok(calls)
        };
        let rotation = async {
            let _stop = enough.drop_guard_ref();
            for time in ["once", "again"] {
                let old = namespace.binding("one").await?;
                let rotate =
                    json!({"metadata": {"annotations": {names::ROTATE_KEY_ANNOTATION: time}}});
                namespace
                    .api::<Agent>()
                    .patch("one", &PatchParams::default(), &Patch::Merge(rotate))
                    .await?;
                eventually("the Secret has a new key", SOON, async || {
                    Ok((namespace.binding("one").await?.key != old.key).then_some(()))
                })
                .await?;
                namespace.until_status(&old, 401, SOON).await?;
            }
            anyhow::Ok(())
        };
        let (calls, ()) = tokio::try_join!(client, rotation)?;
        ensure!(calls > 10, "only {calls} calls");
        let new = namespace.binding("one").await?;
        assert_eq!(new.endpoint.status_for(&new.key).await?, 200);
        Ok(())
    })
    .await;
}

// P20, design §2: key digests live in status, so nobody but the operator may write it.
#[tokio::test]
#[ignore = "needs the test cluster"]
async fn a_person_who_may_patch_status_cannot_make_a_key_work() {
    const FORGER: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: forger}
rules: [{apiGroups: [chandlery.dev], resources: [agents, agents/status], verbs: [get, patch, update]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: forger}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: forger}
subjects: [{kind: User, name: mallory, apiGroup: rbac.authorization.k8s.io}]
";
    release::installed().await.unwrap();
    in_namespace(async |namespace| {
        namespace.apply(DESK).await?;
        namespace.apply(FORGER).await?;
        namespace.agents_ready().await?;
        let forged = Key::from_random([42; 32]);
        let digest = forged.digest();
        let mut status = serde_json::to_value(namespace.api::<Agent>().get("one").await?.status)?;
        let keys = status["keys"].as_array_mut().expect("the agent has keys");
        let mut key = keys[0].clone();
        key["id"] = json!(digest.id());
        key["digest"] = json!(digest.to_string());
        keys.push(key);
        status["keyRevision"] = json!(1_000);
        let patch = json!({"status": status}).to_string();
        let patch = [
            "patch",
            "agents.chandlery.dev",
            "one",
            "--subresource=status",
            "--type=merge",
            "--patch",
            &patch,
        ];
        // Not even cluster-admin, who the tests are when they are nobody else.
        for person in [&["--as=mallory"][..], &[]] {
            let refusal = namespace
                .kubectl(&[&patch[..], person].concat())
                .await
                .expect_err("only the operator writes status");
            assert!(
                format!("{refusal:#}").contains("only the operator"),
                "{refusal:#}"
            );
        }
        let one = namespace.binding("one").await?;
        assert_eq!(one.endpoint.status_for(forged.expose()).await?, 401);
        assert_eq!(one.endpoint.status_for(&one.key).await?, 200);
        Ok(())
    })
    .await;
}
