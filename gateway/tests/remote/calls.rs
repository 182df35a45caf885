//! Calls, and what comes back.

use std::sync::atomic::Ordering;

use serde_json::json;

use crate::fake::{Fake, rich};
use crate::harness::{Desk, NEWER, OLDER, World, eventually, request, text};

#[tokio::test]
async fn a_result_comes_back_as_it_was_given_in_either_era_from_either_era() {
    for (newer, older) in [(true, false), (false, true), (true, true)] {
        for streams in [false, true] {
            for fast_lane in [true, false] {
                let upstream = Fake::start(newer, older).await;
                upstream.state.streams.store(streams, Ordering::SeqCst);
                let desk = Desk::open_with(&upstream, &World::default(), fast_lane).await;
                let arguments = json!({"id": 7, "deep": {"a": [1, null]}});

                let answer = desk.call("one", "crm_echo", arguments.clone()).await;
                let mut expected = rich(&arguments);
                expected["resultType"] = json!("complete");
                let mut result = answer["result"].clone();
                // The slow lane writes it out.
                if result["isError"] == false {
                    result.as_object_mut().unwrap().remove("isError");
                }
                assert_eq!(result, expected, "{answer}");

                let session = desk.session("one", json!({})).await;
                let call = request(
                    "tools/call",
                    json!({"name": "crm_echo", "arguments": arguments}),
                );
                let answer = desk.older("one", &session, &call).await.last().await;
                let mut result = answer["result"].clone();
                if result["isError"] == false {
                    result.as_object_mut().unwrap().remove("isError");
                }
                assert_eq!(result, rich(&arguments), "{answer}");

                let seen = upstream.seen("tools/call");
                let versions: Vec<_> = seen
                    .iter()
                    .map(|seen| seen.header("mcp-protocol-version"))
                    .collect();
                let expected = match (newer, older) {
                    (true, true) => [NEWER, OLDER],
                    (true, false) => [NEWER, NEWER],
                    _ => [OLDER, OLDER],
                };
                assert_eq!(versions, expected);
                assert_eq!(seen[0].message["params"]["arguments"], arguments);
                assert_eq!(seen[0].message["params"]["name"], "echo");
                if newer {
                    assert_eq!(seen[0].header("mcp-method"), "tools/call");
                    assert_eq!(seen[0].header("mcp-name"), "echo");
                }
            }
        }
    }
}

#[tokio::test]
async fn each_agent_has_one_session_and_a_lost_one_is_opened_anew() {
    let upstream = Fake::start(false, true).await;
    let desk = Desk::open(&upstream, &World::default()).await;
    let sessions = || -> Vec<String> {
        let seen = upstream.seen("tools/call");
        let ids = seen
            .iter()
            .map(|seen| seen.header("mcp-session-id").to_owned());
        ids.collect()
    };
    for agent in ["one", "one", "two", "two", "one"] {
        desk.call(agent, "crm_echo", json!({})).await;
    }
    let used = sessions();
    assert!(used[0] == used[1] && used[1] == used[4] && used[2] == used[3]);
    assert_ne!(used[0], used[2]);

    upstream.state.sessions.lock().clear();
    let answer = desk.call("one", "crm_echo", json!({})).await;
    assert!(answer["result"]["content"].is_array(), "{answer}");
    let used = sessions();
    assert_ne!(used[0], used[used.len() - 1]);
    let opened = upstream.seen("initialize");
    assert_eq!(
        opened[0].message["params"]["clientInfo"]["name"],
        "chandlery"
    );
    assert_eq!(
        upstream.seen("notifications/initialized").len(),
        opened.len()
    );
}

#[tokio::test]
async fn what_goes_wrong_is_said_in_a_sentence() {
    let upstream = Fake::start(true, true).await;
    for fast_lane in [true, false] {
        let desk = Desk::open_with(&upstream, &World::default(), fast_lane).await;
        let answer = desk.call("one", "crm_big", json!({})).await;
        assert_eq!(answer["result"]["isError"], true);
        assert!(text(&answer).contains("ask for less"), "{answer}");
        let answer = desk.call("one", "crm_strict", json!({})).await;
        assert_eq!(answer["error"]["code"], -32602);
        assert_eq!(answer["error"]["message"], "the argument `id` is missing");
        let answer = desk.call("one", "crm_broken", json!({})).await;
        assert_eq!(answer["result"]["isError"], true);
        assert_eq!(
            text(&answer),
            "crm answered with error -32603: out of order"
        );
    }
    let desk = Desk::open(
        &upstream,
        &World {
            source: "  maxResponseBytes: 50000",
            ..World::default()
        },
    )
    .await;
    let answer = desk.call("one", "crm_big", json!({})).await;
    assert!(
        text(&answer).contains("larger than 50000 bytes"),
        "{answer}"
    );
    drop(upstream);
    let answer = desk.call("one", "crm_echo", json!({})).await;
    assert_eq!(answer["result"]["isError"], true);
    assert!(!text(&answer).contains("refused (os error"), "{answer}");
}

// Cancelled by its client, a call is not left running at the server.
#[tokio::test]
async fn a_call_that_is_cancelled_is_cancelled_at_the_server() {
    let upstream = Fake::start(false, true).await;
    let desk = Desk::open(&upstream, &World::default()).await;
    let session = desk.session("one", json!({"elicitation": {}})).await;
    let call = request(
        "tools/call",
        json!({"name": "crm_hang", "arguments": {}, "_meta": {"progressToken": "t"}}),
    );
    let hanging = desk.older("one", &session, &call).await;
    let began = async || !upstream.seen("tools/call").is_empty();
    eventually("the server has the call", began).await;
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    desk.older("one", &session, &cancel).await;
    assert!(hanging.all().await.is_empty());
    let told = async || !upstream.seen("notifications/cancelled").is_empty();
    eventually("the server is told", told).await;
    let call = &upstream.seen("tools/call")[0];
    let cancelled = &upstream.seen("notifications/cancelled")[0];
    assert_eq!(cancelled.message["params"]["requestId"], call.message["id"]);
}
