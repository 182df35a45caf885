//! Whom the endpoint lets in.

use std::time::Duration;

use chandlery_gateway::http::Settings;
use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{
    Call, Gateway, NEWER, OLDER, ONE, SOON, TWO, WORKSPACE, World, initialize, key, request,
};

fn list() -> Value {
    request(1, "tools/list", json!({}))
}

#[track_caller]
fn is(answer: &crate::harness::Answer, status: u16) {
    assert_eq!(answer.status.as_u16(), status, "{answer:?}");
}

// R-C-003, R-C-005, R-C-010: an agent reaches its own endpoint with its own key, in both eras.
#[tokio::test]
async fn an_agent_calls_its_tools_in_both_eras() {
    let gateway = Gateway::start(Settings::default()).await;
    let answer = gateway.one().message(initialize(json!({}))).send().await;
    is(&answer, 200);
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
    let older = gateway.one().in_session(session).message(call.clone());
    let result = older.send().await.json()["result"].clone();
    assert_eq!(result["structuredContent"]["arguments"], json!({"a": 1}));
    assert_eq!(result["structuredContent"]["worker"], session);
    assert_eq!(result.get("resultType"), None);
    let newer = gateway.one().newer(call).send().await;
    assert_eq!(newer.json()["result"]["resultType"], "complete");

    let discovered = gateway
        .one()
        .newer(request(1, "server/discover", json!({})));
    let result = discovered.send().await.json()["result"].clone();
    assert_eq!(result["supportedVersions"][4], NEWER, "{result}");
    assert_eq!(result["instructions"], "The fixture says hello.");
    gateway.stop().await;
}

// R-C-007, R-C-008: 401 for what is no live key, 403 with one body for every live key on another endpoint.
#[tokio::test]
async fn only_the_agents_own_key_opens_its_endpoint() {
    let gateway = Gateway::start(Settings::default()).await;
    let (one, two) = (key(ONE), key(TWO));
    let unknown = |call: Call| call.newer(list());
    for call in [
        gateway.to("one"),
        gateway.to("one").key(""),
        gateway.to("one").key("chd_"),
        gateway.to("one").key(&key(77)),
        gateway.to("one").key(&one[..one.len() - 1]),
        gateway.to("one").key(&format!("{one}x")),
        gateway.to("one").header("authorization", one.clone()),
        gateway
            .to("one")
            .header("authorization", format!("Basic {one}")),
        gateway.to("one").key(&one).key(&one),
        gateway.at(&format!(
            "/runtime/agents/demo.one/mcp?key={one}&access_token={one}"
        )),
        gateway.to("nobody").key(&key(77)),
    ] {
        let answer = unknown(call).send().await;
        is(&answer, 401);
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    }
    let mut bodies = Vec::new();
    for call in [
        gateway.to("one").key(&two),
        gateway.to("one").key(&key(WORKSPACE)),
        gateway.to("two").key(&one),
        gateway.to("nobody").key(&one),
        gateway.to("").key(&one),
        gateway.at("/runtime/agents/demo%2Eone/mcp").key(&one),
        gateway.to("one").key(&two).method(Method::GET),
        gateway.to("one").key(&two).method(Method::DELETE),
    ] {
        let answer = call.newer(list()).send().await;
        is(&answer, 403);
        bodies.push(answer.text);
    }
    bodies.dedup();
    assert_eq!(bodies.len(), 1, "{bodies:?}");
    is(
        &gateway
            .to("one")
            .header("authorization", format!("bearer {one}"))
            .newer(list())
            .send()
            .await,
        200,
    );
    gateway.stop().await;
}

// R-A-001 (facts of clients: no OAuth metadata, or static keys are ignored).
#[tokio::test]
async fn nothing_is_served_beside_the_endpoints() {
    let gateway = Gateway::start(Settings::default()).await;
    for path in [
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/runtime/agents/demo.one/mcp",
        "/.well-known/oauth-authorization-server",
        "/",
        "/runtime/agents/demo.one",
        "/workspaces/demo.team/mcp",
        "/metrics",
    ] {
        is(&gateway.at(path).method(Method::GET).send().await, 404);
        is(
            &gateway.at(path).key(&key(ONE)).newer(list()).send().await,
            404,
        );
    }
    gateway.stop().await;
}

// P6: never a false 401 while the directory is not known, or too old to be believed.
#[tokio::test]
async fn a_directory_that_is_missing_or_stale_is_no_reason_to_refuse_a_key() {
    let settings = Settings {
        max_config_staleness: Some(Duration::from_secs(60)),
        ..Settings::default()
    };
    let gateway = Gateway::start_without_snapshot(settings).await;
    let missing = gateway.one().newer(list()).send().await;
    is(&missing, 503);
    assert!(missing.header("retry-after").is_some());
    let mut world = World::default();
    gateway.publish(&world);
    is(&gateway.one().newer(list()).send().await, 200);
    world.stale_since = Some(Timestamp::now() - SignedDuration::from_secs(30));
    gateway.publish(&world);
    is(&gateway.one().newer(list()).send().await, 200);
    world.stale_since = Some(Timestamp::now() - SignedDuration::from_secs(61));
    gateway.publish(&world);
    is(&gateway.one().newer(list()).send().await, 503);
    gateway.stop().await;
}

// P8, R-C-009: a key that is taken away is refused at once.
#[tokio::test]
async fn a_revoked_key_is_unknown() {
    let gateway = Gateway::start(Settings::default()).await;
    let mut world = World::default();
    world.agents[0].keys = vec![ONE, 3];
    gateway.publish(&world);
    let other = || gateway.to("one").key(&key(3)).newer(list());
    is(&other().send().await, 200);
    world.agents[0].keys = vec![3];
    gateway.publish(&world);
    is(&gateway.one().newer(list()).send().await, 401);
    is(&other().send().await, 200);
    gateway.stop().await;
}

// P10 (DNS rebinding): foreign hosts and origins are refused, with or without a key.
#[tokio::test]
async fn foreign_hosts_and_origins_are_refused() {
    let settings = Settings {
        hostnames: vec!["gateway-team.demo.svc".into(), "*.example.com".into()],
        ..Settings::default()
    };
    let gateway = Gateway::start(settings).await;
    for (host, origin, status) in [
        ("localhost", None, 200),
        ("localhost:8080", Some("http://localhost:3000"), 200),
        ("127.0.0.1:1", None, 200),
        ("[::1]:80", Some("http://[::1]"), 200),
        ("GATEWAY-team.demo.svc:80", None, 200),
        ("a.example.com", Some("https://b.example.com"), 200),
        ("example.com", None, 403),
        ("evil.com", None, 403),
        ("evil.com:localhost", None, 403),
        ("localhost.evil.com", None, 403),
        ("evilexample.com", None, 403),
        ("localhost", Some("http://evil.com"), 403),
        ("localhost", Some("null"), 403),
        ("localhost", Some("localhost"), 403),
    ] {
        let mut call = gateway.one().header("host", host);
        if let Some(origin) = origin {
            call = call.header("origin", origin);
        }
        let answer = call.newer(list()).send().await;
        assert_eq!(answer.status, status, "host {host}, origin {origin:?}");
    }
    let twice = gateway
        .one()
        .header("origin", "http://localhost")
        .header("origin", "http://evil.com");
    is(&twice.newer(list()).send().await, 403);
    gateway.stop().await;
}

// P10: what is no message is refused with a status and a JSON-RPC error, and a large body is not read.
#[tokio::test]
async fn what_is_no_message_is_refused() {
    let gateway = Gateway::start(Settings::default()).await;
    for (call, status, code) in [
        (gateway.one().body("{"), 400, -32700),
        (gateway.one().body(""), 400, -32700),
        (gateway.one().body("[]"), 400, -32600),
        (
            gateway.one().body(r#"["2.0", 1, "tools/list", {}]"#),
            400,
            -32600,
        ),
        (gateway.one().body("{}"), 400, -32600),
        (gateway.one().without("accept").message(list()), 406, -32600),
        (
            gateway
                .one()
                .without("accept")
                .header("accept", "application/json")
                .message(list()),
            406,
            -32600,
        ),
        (
            gateway.one().without("content-type").message(list()),
            415,
            -32600,
        ),
        (gateway.one().message(list()), 400, -32600),
        (
            gateway
                .one()
                .header("mcp-protocol-version", "1999-01-01")
                .message(list()),
            400,
            -32600,
        ),
        (gateway.one().body(vec![b' '; (4 << 20) + 1]), 413, -32600),
    ] {
        let answer = call.send().await;
        is(&answer, status);
        assert_eq!(answer.json()["error"]["code"], code, "{answer:?}");
    }
    let put = gateway
        .one()
        .method(Method::PUT)
        .message(list())
        .send()
        .await;
    is(&put, 405);
    for method in [Method::GET, Method::DELETE] {
        let newer = gateway
            .one()
            .header("mcp-protocol-version", NEWER)
            .method(method);
        is(&newer.send().await, 405);
    }
    gateway.stop().await;
}

// P10: a client that never finishes its request does not hold on to the server.
#[tokio::test]
async fn a_request_that_does_not_come_to_its_end_is_given_up() {
    let gateway = Gateway::start(Settings {
        idle_connection: Duration::from_millis(200),
        ..Settings::default()
    })
    .await;
    for (started, status) in [("POST /runtime", ""), ("content-length: 9\r\n\r\n{", "408")] {
        let mut connection = TcpStream::connect(gateway.address).await.unwrap();
        let head = format!(
            "POST /runtime/agents/demo.one/mcp HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\n{started}",
            key(ONE)
        );
        connection.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let end = connection.read_to_string(&mut answer);
        tokio::time::timeout(SOON, end).await.unwrap().unwrap();
        assert!(answer.contains(status), "{answer}");
    }
    gateway.stop().await;
}
