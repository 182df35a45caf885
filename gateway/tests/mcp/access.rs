//! Whom the endpoint lets in.

use chandlery_gateway::http::Settings;
use serde_json::json;

use crate::harness::{Gateway, NEWER, OLDER, initialize, request};

// R-C-003, R-C-005, R-C-010: an agent reaches its own endpoint with its own key, in both eras.
#[tokio::test]
async fn an_agent_calls_its_tools_in_both_eras() {
    let gateway = Gateway::start(Settings::default()).await;
    let answer = gateway.one().message(initialize(json!({}))).send().await;
    assert_eq!(answer.status, 200);
    let result = &answer.json()["result"];
    assert_eq!(result["protocolVersion"], OLDER);
    assert_eq!(result["serverInfo"]["name"], "chandlery");
    assert_eq!(result["instructions"], "The fixture says hello.");
    assert_eq!(result["capabilities"], json!({"tools": {}}));
    let session = answer.header("mcp-session-id").unwrap();
    let call = request(
        1,
        "tools/call",
        json!({"name": "fixture_echo", "arguments": {"a": 1}}),
    );
    let older = gateway
        .one()
        .in_session(session)
        .message(call.clone())
        .send()
        .await;
    assert_eq!(
        older.json()["result"]["structuredContent"]["arguments"],
        json!({"a": 1})
    );
    let newer = gateway.one().newer(call).send().await;
    assert_eq!(newer.json()["result"]["resultType"], "complete");

    let discovered = gateway
        .one()
        .newer(request(1, "server/discover", json!({})))
        .send()
        .await;
    assert_eq!(
        discovered.json()["result"]["supportedVersions"][0],
        NEWER,
        "{discovered:?}"
    );
    let list = gateway
        .one()
        .newer(request(1, "tools/list", json!({})))
        .send()
        .await;
    let tools = list.json()["result"]["tools"].as_array().unwrap().len();
    assert_eq!(tools, 7, "{list:?}");
    gateway.stop().await;
}
