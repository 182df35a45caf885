//! Prompts and resources.

use serde_json::{Value, json};

use crate::fake::Fake;
use crate::harness::{Desk, World, request};

#[tokio::test]
async fn prompts_and_resources_are_there_under_grants_that_say_so() {
    for (newer, older) in [(true, false), (false, true)] {
        let upstream = Fake::start(newer, older).await;
        for (grant, prompts, resources) in [
            ("", false, false),
            ("  prompts: true", true, false),
            ("  resources: true", false, true),
        ] {
            let world = World {
                grant,
                ..World::default()
            };
            let desk = Desk::open(&upstream, &world).await;
            let discovered = desk
                .newer("one", json!({}), "server/discover", json!({}))
                .await;
            let can = &discovered["result"]["capabilities"];
            assert_eq!(can.get("prompts").is_some(), prompts, "{can}");
            assert_eq!(can.get("resources").is_some(), resources, "{can}");
            let ask = async |method: &str, params: Value| {
                desk.newer("one", json!({}), method, params).await
            };
            let listed = ask("prompts/list", json!({})).await;
            let got = ask("prompts/get", json!({"name": "crm_greet"})).await;
            if prompts {
                assert_eq!(listed["result"]["prompts"][0]["name"], "crm_greet");
                assert_eq!(listed["result"]["prompts"][0]["description"], "Greets.");
                assert_eq!(got["result"]["messages"][0]["content"]["text"], "hello");
                let unknown = ask("prompts/get", json!({"name": "greet"})).await;
                assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
            } else {
                assert_eq!(listed["error"]["code"], -32601, "{listed}");
                assert_eq!(got["error"]["code"], -32601, "{got}");
            }
            let listed = ask("resources/list", json!({})).await;
            let got = ask("resources/read", json!({"uri": "crm://1"})).await;
            if resources {
                assert_eq!(listed["result"]["resources"][0]["uri"], "crm://1");
                assert_eq!(got["result"]["contents"][0]["text"], "one");
            } else {
                assert_eq!(listed["error"]["code"], -32601, "{listed}");
                assert_eq!(got["error"]["code"], -32601, "{got}");
            }
        }
    }
}

#[tokio::test]
async fn a_log_level_reaches_the_session_of_the_agent() {
    let upstream = Fake::start(false, true).await;
    let desk = Desk::open(&upstream, &World::default()).await;
    let session = desk.session("one", json!({})).await;
    desk.call_in("one", &session, "crm_echo").await;
    let level = request("logging/setLevel", json!({"level": "warning"}));
    let answer = desk.older("one", &session, &level).await.last().await;
    assert_eq!(answer["result"], json!({}));
    let seen = upstream.seen("logging/setLevel");
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].message["params"]["level"], "warning");
}
