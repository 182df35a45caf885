//! Calls that last, are given up, or give too much.

use std::time::Duration;

use chandlery_gateway::http::Settings;
use serde_json::{Value, json};

use crate::harness::{Call, Gateway, eventually, request};

fn call(id: u32, tool: &str) -> Value {
    request(id, "tools/call", json!({"name": tool}))
}

fn with_token(id: u32, tool: &str) -> Value {
    request(
        id,
        "tools/call",
        json!({"name": tool, "_meta": {"progressToken": "tok"}}),
    )
}

/// The same message in each era.
async fn eras(gateway: &Gateway, message: Value) -> [Call; 2] {
    let session = gateway.session().await;
    [
        gateway.one().in_session(&session).message(message.clone()),
        gateway.one().newer(message),
    ]
}

async fn started(gateway: &Gateway, count: usize) {
    eventually("the call runs", async || gateway.seen.started() == count).await;
}

// R-C-011, R-C-012: a call with a progress token is a stream that says again and again that it goes on.
#[tokio::test]
async fn a_call_with_a_progress_token_reports_until_its_result() {
    let gateway = Gateway::start(Settings {
        progress_interval: Duration::from_millis(50),
        ..Settings::default()
    })
    .await;
    for call in eras(&gateway, with_token(1, "fixture_wait")).await {
        let mut stream = call.open().await;
        assert_eq!(stream.kind, "text/event-stream");
        let mut before = 0.0;
        for _ in 0..3 {
            let progress = stream.next_message().await.unwrap();
            assert_eq!(progress["method"], "notifications/progress");
            assert_eq!(progress["params"]["progressToken"], "tok");
            let reached = progress["params"]["progress"].as_f64().unwrap();
            assert!(reached > before);
            before = reached;
        }
        gateway.seen.go.notify_waiters();
        let answer = loop {
            let message = stream.next_message().await.unwrap();
            if message["id"] == 1 {
                break message;
            }
        };
        assert_eq!(answer["result"]["content"][0]["text"], "waited");
        assert_eq!(stream.next().await, None);
    }
    gateway.stop().await;
}

// R-C-011: however soon the result is there.
#[tokio::test]
async fn a_short_call_with_a_progress_token_is_a_stream_too() {
    let gateway = Gateway::start(Settings::default()).await;
    for call in eras(&gateway, with_token(1, "fixture_echo")).await {
        let answer = call.send().await;
        let messages = answer.messages().expect("a stream");
        assert_eq!(messages.len(), 1, "{messages:?}");
        assert_eq!(messages[0]["id"], 1);
    }
    gateway.stop().await;
}

// Progress may only grow, whoever reports it: the tool's 1 and 2, then ours.
#[tokio::test]
async fn our_progress_goes_on_from_the_tools_own() {
    let gateway = Gateway::start(Settings {
        progress_interval: Duration::from_millis(50),
        ..Settings::default()
    })
    .await;
    for call in eras(&gateway, with_token(1, "fixture_talk")).await {
        let mut stream = call.open().await;
        let mut reached = Vec::new();
        for _ in 0..4 {
            let progress = stream.next_message().await.unwrap();
            reached.push(progress["params"]["progress"].as_f64().unwrap());
        }
        assert!(reached.is_sorted_by(|a, b| a < b), "{reached:?}");
        assert_eq!(reached[..2], [1.0, 2.0]);
        assert!(reached[3] < 2.1);
        gateway.seen.go.notify_waiters();
    }
    gateway.stop().await;
}

// R-C-013, R-C-014: without a token nothing but comments, and the result as the stream's one message.
#[tokio::test]
async fn a_long_call_without_a_token_becomes_a_stream_of_comments() {
    for fast_lane in [true, false] {
        let gateway = Gateway::start(Settings {
            stream_after: Duration::from_millis(100),
            longest_silence: Duration::from_millis(50),
            fast_lane,
            ..Settings::default()
        })
        .await;
        for (at, call) in eras(&gateway, call(5, "fixture_wait"))
            .await
            .into_iter()
            .enumerate()
        {
            let mut stream = call.open().await;
            assert_eq!(stream.kind, "text/event-stream");
            for _ in 0..2 {
                assert_eq!(stream.next().await.unwrap(), ": ");
            }
            started(&gateway, at + 1).await;
            gateway.seen.go.notify_waiters();
            let answer = stream.next_message().await.unwrap();
            assert_eq!(answer["id"], 5);
            assert_eq!(answer["result"]["content"][0]["text"], "waited");
            assert_eq!(stream.next().await, None);
        }
        gateway.stop().await;
    }
}

#[tokio::test]
async fn a_client_cancels_its_call_in_either_lane() {
    for fast_lane in [true, false] {
        let gateway = Gateway::start(Settings {
            fast_lane,
            ..Settings::default()
        })
        .await;
        let session = gateway.session().await;
        let own = || gateway.one().in_session(&session);
        let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 3}});
        let (answer, ()) = tokio::join!(own().message(call(3, "fixture_wait")).send(), async {
            started(&gateway, 1).await;
            // Ids are the session's own: another session's call of that number is another call.
            let other = gateway.session().await;
            let sent = gateway.one().in_session(&other).message(cancel.clone());
            assert_eq!(sent.send().await.status, 202);
            assert_eq!(gateway.seen.abandoned(), 0);
            assert_eq!(own().message(cancel.clone()).send().await.status, 202);
        });
        assert_eq!((answer.status.as_u16(), &*answer.text), (200, ""));
        eventually("the call was given up", async || {
            gateway.seen.abandoned() == 1
        })
        .await;
        gateway.stop().await;
    }
}

// Two running calls of one id could not be told apart.
#[tokio::test]
async fn an_id_that_is_in_use_is_refused() {
    let gateway = Gateway::start(Settings::default()).await;
    let session = gateway.session().await;
    let own = || gateway.one().in_session(&session);
    let (first, ()) = tokio::join!(own().message(call(3, "fixture_wait")).send(), async {
        started(&gateway, 1).await;
        let second = own().message(call(3, "fixture_talk")).send().await;
        assert_eq!(second.json()["error"]["code"], -32600);
        gateway.seen.go.notify_waiters();
    });
    assert_eq!(first.result_text(), "waited");
    gateway.stop().await;
}

// design §4: a client that goes cancels its reads; a call that writes runs to its end.
#[tokio::test]
async fn a_client_that_goes_ends_reads_and_not_writes() {
    for fast_lane in [true, false] {
        let gateway = Gateway::start(Settings {
            fast_lane,
            ..Settings::default()
        })
        .await;
        let mut runs = 0;
        for tool in ["fixture_wait", "fixture_write"] {
            for call in eras(&gateway, call(1, tool)).await {
                runs += 1;
                tokio::select! {
                    answer = call.send() => panic!("an answer: {answer:?}"),
                    () = started(&gateway, runs) => {}
                }
            }
        }
        eventually("the reads were given up", async || {
            gateway.seen.abandoned() == 2
        })
        .await;
        assert_eq!(gateway.seen.finished(), 0);
        gateway.seen.go.notify_waiters();
        eventually("the writes finished", async || gateway.seen.finished() == 2).await;
        gateway.stop().await;
    }
}

// A common client breaks above 1 MiB.
#[tokio::test]
async fn a_result_that_is_too_large_is_cut() {
    for fast_lane in [true, false] {
        let gateway = Gateway::start(Settings {
            fast_lane,
            ..Settings::default()
        })
        .await;
        for call in eras(&gateway, call(1, "fixture_much")).await {
            let answer = call.send().await;
            assert!(answer.text.len() < 1 << 20);
            assert!(answer.result_text().contains("Ask for less"));
        }
        gateway.stop().await;
    }
}

#[tokio::test]
async fn failures_are_results_and_unknown_tools_are_errors() {
    let gateway = Gateway::start(Settings::default()).await;
    let failing = json!({"name": "fixture_echo", "arguments": {"fail": true}});
    for call in eras(&gateway, request(1, "tools/call", failing)).await {
        let answer = call.send().await;
        assert_eq!(answer.json()["result"]["isError"], true);
        assert_eq!(answer.result_text(), "told to fail");
    }
    // `other_tool` exists but is not the agent's.
    for name in ["other_tool", "nothing", "it's \"quoted\""] {
        for call in eras(&gateway, call(1, name)).await {
            let answer = call.send().await;
            let error = json!({"code": -32602, "message": format!("Unknown tool '{name}'")});
            assert_eq!(answer.json()["error"], error);
        }
    }
    gateway.stop().await;
}

// Clients under one key are told apart by the worker they name, or by their session.
#[tokio::test]
async fn a_stateless_caller_may_name_its_worker() {
    let gateway = Gateway::start(Settings::default()).await;
    for extra in [json!({}), json!({"progressToken": 1})] {
        let mut params = json!({"name": "fixture_echo", "_meta": extra});
        params["_meta"]["chandlery.dev/worker"] = json!("w1");
        let answer = gateway
            .one()
            .newer(request(1, "tools/call", params))
            .send()
            .await;
        let worker = &answer.json()["result"]["structuredContent"]["worker"];
        assert_eq!(worker, "w1");
    }
    gateway.stop().await;
}
