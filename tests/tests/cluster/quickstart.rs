//! What the README promises: apply four files, and agents call their tools.

use std::time::{Duration, Instant};

use chandlery_crds::Agent;
use chandlery_tests::client::ERAS;
use chandlery_tests::namespace::in_namespace;
use chandlery_tests::{cluster, release};
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::json;

#[tokio::test]
#[ignore = "needs the test cluster"]
async fn the_quickstart_is_ready_within_a_minute_and_its_agents_call_their_tools() {
    release::installed().await.unwrap();
    in_namespace(async |namespace| {
        let folder = cluster::repository().join("examples/quickstart");
        let begin = Instant::now();
        namespace
            .kubectl(&["apply", "--filename", &folder.display().to_string()])
            .await?;
        namespace.agents_ready().await?;
        let took = begin.elapsed();
        assert!(took <= Duration::from_secs(60), "it took {took:?}");

        let agents = namespace
            .api::<Agent>()
            .list(&ListParams::default())
            .await?;
        assert_eq!(agents.items.len(), 2);
        for agent in &agents {
            let binding = namespace.binding(&agent.name_any()).await?;
            let status = agent.status.as_ref().expect("a Ready agent has a status");
            assert_eq!(status.endpoint, Some(binding.endpoint.uri.to_string()));
            let listed = status
                .tools
                .as_ref()
                .expect("a Ready agent counts its tools")
                .listed;
            for era in ERAS {
                let client = binding.connect(era).await?;
                let tools = client.tools().await?;
                assert_eq!(i64::try_from(tools.len())?, listed, "{tools:?}");
                assert!(tools.contains(&"agnt_datetime_now".to_owned()), "{tools:?}");
                client.call("agnt_datetime_now", json!({})).await?;
            }
        }
        Ok(())
    })
    .await;
}

// Design §3: what an agent's list does not have, it cannot call.
#[tokio::test]
#[ignore = "needs the test cluster"]
async fn a_switched_off_tool_is_unknown_within_a_second_of_the_change() {
    release::installed().await.unwrap();
    in_namespace(async |namespace| {
        namespace.apply(chandlery_tests::agents::DESK).await?;
        namespace.agents_ready().await?;
        let client = namespace
            .binding("one")
            .await?
            .connect(chandlery_tests::client::Era::Stateless)
            .await?;
        client.call("memory", json!({"action": "load"})).await?;
        namespace
            .change_agent("one", json!({"workspaceToolsEnabled": false}))
            .await?;
        let changed = Instant::now();
        let refusal =
            chandlery_tests::eventually("the tool is gone", Duration::from_secs(60), async || {
                Ok(client.call("memory", json!({"action": "load"})).await.err())
            })
            .await?;
        let took = changed.elapsed();
        assert!(
            refusal.to_string().contains("Unknown tool 'memory'"),
            "{refusal:#}"
        );
        assert!(took <= Duration::from_secs(1), "it took {took:?}");
        assert!(!client.tools().await?.contains(&"memory".to_owned()));
        Ok(())
    })
    .await;
}
