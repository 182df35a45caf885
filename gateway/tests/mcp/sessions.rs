//! Sessions of the older era.

use std::time::Duration;

use chandlery_gateway::http::{Limits, Settings};
use http::Method;
use serde_json::{Value, json};

use crate::harness::{Gateway, OLDER, ONE, SOON, TWO, World, eventually, initialize, key, request};

fn ping() -> Value {
    request(1, "ping", json!({}))
}

// R-C-010: another key, even of the same agent, does not find the session.
#[tokio::test]
async fn a_session_belongs_to_the_key_that_opened_it() {
    let gateway = Gateway::start(Settings::default()).await;
    let mut world = World::default();
    world.agents[0].keys = vec![ONE, 3];
    gateway.publish(&world);
    let session = gateway.session().await;
    let own = || gateway.one().in_session(&session);
    assert_eq!(own().message(ping()).send().await.status, 200);
    for stranger in [
        gateway.to("one").key(&key(3)),
        gateway.to("two").key(&key(TWO)),
    ] {
        assert_eq!(
            stranger
                .in_session(&session)
                .message(ping())
                .send()
                .await
                .status,
            404
        );
    }
    for method in [Method::GET, Method::DELETE] {
        let stranger = gateway
            .to("one")
            .key(&key(3))
            .in_session(&session)
            .method(method);
        assert_eq!(stranger.send().await.status, 404);
    }
    for wrong in ["", "x", "0123456789abcdef0123456789abcdef"] {
        let answer = gateway.one().in_session(wrong).message(ping()).send().await;
        assert_eq!(answer.status, 404);
    }
    assert_eq!(own().message(ping()).send().await.status, 200);
    gateway.stop().await;
}

#[tokio::test]
async fn a_deleted_session_is_gone_with_its_stream_and_its_calls() {
    let gateway = Gateway::start(Settings::default()).await;
    let session = gateway.session().await;
    let own = || gateway.one().in_session(&session);
    let mut stream = own().method(Method::GET).open().await;
    assert_eq!(
        (stream.status.as_u16(), &*stream.kind),
        (200, "text/event-stream")
    );
    assert_eq!(stream.next().await.unwrap(), ": ");
    let wait = own().message(request(1, "tools/call", json!({"name": "fixture_wait"})));
    let (answer, ()) = tokio::join!(wait.send(), async {
        eventually("the call runs", async || gateway.seen.started() == 1).await;
        assert_eq!(own().method(Method::DELETE).send().await.status, 200);
    });
    assert_eq!((answer.kind(), &*answer.text), ("text/event-stream", ""));
    assert_eq!(gateway.seen.abandoned(), 1);
    assert_eq!(stream.next().await, None);
    assert_eq!(own().message(ping()).send().await.status, 404);
    assert_eq!(own().method(Method::DELETE).send().await.status, 404);
    gateway.stop().await;
}

#[tokio::test]
async fn the_newest_get_stream_wins() {
    let gateway = Gateway::start(Settings {
        longest_silence: Duration::from_millis(20),
        ..Settings::default()
    })
    .await;
    let session = gateway.session().await;
    let get = || gateway.one().in_session(&session).method(Method::GET);
    let mut first = get().open().await;
    first.next().await.unwrap();
    let mut second = get().open().await;
    while first.next().await.is_some() {}
    for _ in 0..3 {
        assert_eq!(second.next().await.unwrap(), ": ", "comments keep it open");
    }
    let wrong = get().without("accept").header("accept", "application/json");
    assert_eq!(wrong.send().await.status, 406);
    gateway.stop().await;
}

// R-C-009, P8: what hangs on a key ends with it.
#[tokio::test]
async fn sessions_and_streams_end_with_their_key() {
    let gateway = Gateway::start(Settings::default()).await;
    let session = gateway.session().await;
    let mut stream = gateway
        .one()
        .in_session(&session)
        .method(Method::GET)
        .open()
        .await;
    let listen = request(7, "subscriptions/listen", json!({"notifications": {}}));
    let mut subscription = gateway.one().newer(listen).open().await;
    subscription.next_message().await.unwrap();
    stream.next().await.unwrap();
    let mut world = World::default();
    world.agents[0].keys.clear();
    gateway.publish(&world);
    assert_eq!(stream.next().await, None);
    let farewell = subscription.next_message().await.unwrap();
    assert_eq!(farewell["id"], 7);
    assert_eq!(farewell["result"]["resultType"], "complete");
    assert_eq!(subscription.next().await, None);
    // The same key for the same agent later: the session does not come back.
    gateway.publish(&World::default());
    let answer = gateway
        .one()
        .in_session(&session)
        .message(ping())
        .send()
        .await;
    assert_eq!(answer.status, 404);
    // An agent of that name with another UID is another agent.
    let session = gateway.session().await;
    world.agents[0].keys = vec![ONE];
    world.agents[0].uid = "uid-new";
    gateway.publish(&world);
    let answer = gateway
        .one()
        .in_session(&session)
        .message(ping())
        .send()
        .await;
    assert_eq!(answer.status, 404);
    gateway.stop().await;
}

#[tokio::test]
async fn an_idle_session_ends_and_a_connected_one_does_not() {
    let limits = Limits {
        idle: Duration::from_secs(1),
        ..Limits::default()
    };
    let gateway = Gateway::start(Settings {
        sessions: limits,
        ..Settings::default()
    })
    .await;
    let (idle, connected) = (gateway.session().await, gateway.session().await);
    let mut stream = gateway
        .one()
        .in_session(&connected)
        .method(Method::GET)
        .open()
        .await;
    stream.next().await.unwrap();
    tokio::time::sleep(Duration::from_millis(2100)).await;
    // A change of the directory makes the server look at once.
    gateway.publish(&World::default());
    tokio::time::sleep(Duration::from_millis(100)).await;
    eventually("the idle session has ended", async || {
        gateway.publish(&World::default());
        // Looking for it keeps it alive, so look rarely.
        tokio::time::sleep(Duration::from_millis(2100)).await;
        gateway
            .one()
            .in_session(&idle)
            .message(ping())
            .send()
            .await
            .status
            == 404
    })
    .await;
    let answer = gateway
        .one()
        .in_session(&connected)
        .message(ping())
        .send()
        .await;
    assert_eq!(answer.status, 200);
    gateway.stop().await;
}

#[tokio::test]
async fn too_many_sessions_cost_the_longest_idle_or_are_refused() {
    let limits = Limits {
        per_key: 2,
        total: 3,
        ..Limits::default()
    };
    let gateway = Gateway::start(Settings {
        sessions: limits,
        ..Settings::default()
    })
    .await;
    let connected = gateway.session().await;
    let mut stream = gateway
        .one()
        .in_session(&connected)
        .method(Method::GET)
        .open()
        .await;
    stream.next().await.unwrap();
    let idle = gateway.session().await;
    gateway.session().await;
    let status = async |session: &str| {
        gateway
            .one()
            .in_session(session)
            .message(ping())
            .send()
            .await
            .status
            .as_u16()
    };
    assert_eq!(status(&connected).await, 200);
    assert_eq!(status(&idle).await, 404);
    let two = || {
        gateway
            .to("two")
            .key(&key(TWO))
            .message(initialize(json!({})))
    };
    assert_eq!(two().send().await.status, 200);
    let refused = two().send().await;
    assert_eq!(refused.status, 503);
    assert!(refused.header("retry-after").is_some());
    gateway.stop().await;
}

#[tokio::test]
async fn the_client_names_the_revision_of_its_session() {
    let gateway = Gateway::start(Settings::default()).await;
    for (asked, given) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-06-18", "2025-06-18"),
        ("2026-07-28", OLDER),
        ("1999-01-01", OLDER),
    ] {
        let mut first = initialize(json!({}));
        first["params"]["protocolVersion"] = json!(asked);
        let answer = gateway.one().message(first).send().await;
        assert_eq!(
            answer.json()["result"]["protocolVersion"],
            given,
            "asked for {asked}"
        );
    }
    let newer = gateway.one().header("mcp-protocol-version", "2026-07-28");
    let answer = newer.message(initialize(json!({}))).send().await;
    assert_eq!(answer.status, 404);
    assert_eq!(answer.json()["error"]["code"], -32601);
    gateway.stop().await;
}

#[tokio::test]
async fn a_stopping_server_ends_its_streams_and_lets_calls_finish() {
    let gateway = Gateway::start(Settings::default()).await;
    let session = gateway.session().await;
    let mut stream = gateway
        .one()
        .in_session(&session)
        .method(Method::GET)
        .open()
        .await;
    stream.next().await.unwrap();
    let seen = gateway.seen.clone();
    let write = gateway
        .one()
        .newer(request(1, "tools/call", json!({"name": "fixture_write"})))
        .start();
    eventually("the call runs", async || seen.started() == 1).await;
    let stopped = tokio::spawn(gateway.stop());
    assert_eq!(stream.next().await, None);
    seen.go.notify_waiters();
    let answer = tokio::time::timeout(SOON, write).await.unwrap().unwrap();
    assert_eq!(answer.result_text(), "waited");
    stopped.await.unwrap();
    assert_eq!(seen.finished(), 1);
}

// Questions travel on the call's stream, and the answer finds the call, whatever ids rmcp gives them.
#[tokio::test]
async fn a_tool_asks_its_client_and_gets_its_own_answer() {
    let gateway = Gateway::start(Settings::default()).await;
    let call = gateway
        .one()
        .message(initialize(json!({"elicitation": {}})));
    let session = call
        .send()
        .await
        .header("mcp-session-id")
        .unwrap()
        .to_owned();
    let ask = |id: u32| {
        let message = request(id, "tools/call", json!({"name": "fixture_ask"}));
        gateway.one().in_session(&session).message(message).open()
    };
    let (mut first, mut second) = tokio::join!(ask(1), ask(2));
    let questions = (
        first.next_message().await.unwrap(),
        second.next_message().await.unwrap(),
    );
    assert_eq!(questions.0["method"], "elicitation/create");
    assert_ne!(questions.0["id"], questions.1["id"]);
    let reply = async |question: &Value, text: &str| {
        let reply = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"text": text}}});
        gateway
            .one()
            .in_session(&session)
            .message(reply)
            .send()
            .await
            .status
    };
    // A stranger's answer is no answer.
    let forged =
        json!({"jsonrpc": "2.0", "id": questions.0["id"], "result": {"action": "decline"}});
    let stranger = gateway
        .to("two")
        .key(&key(TWO))
        .in_session(&session)
        .message(forged);
    assert_eq!(stranger.send().await.status, 404);
    assert_eq!(reply(&questions.1, "for two").await, 202);
    assert_eq!(reply(&questions.0, "for one").await, 202);
    let text = first.next_message().await.unwrap().to_string();
    assert!(text.contains("for one"), "{text}");
    let text = second.next_message().await.unwrap().to_string();
    assert!(text.contains("for two"), "{text}");
    gateway.stop().await;
}
