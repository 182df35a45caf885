//! Resources and prompts of several servers at once: what one is, says or fails is no other one's.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Gateway, agent, grant, source, workspace};
use crate::server::{Answer, Seen, Server, reply};
use crate::upstreams::{json_of, mcp, mcp_tool, serve};

/// A server of the newer era with resources and prompts, whose other answers `answer` gives: a result, or an error.
async fn having(
    answer: impl Fn(&str, &Value) -> Result<Value, Answer> + Send + Sync + 'static,
) -> Server {
    serve(move |seen: &Seen, _| {
        let message: Value = serde_json::from_str(&seen.body).unwrap_or_default();
        let method = message["method"].as_str().unwrap_or_default();
        let result = match method {
            "server/discover" => Ok(json!({
                "resultType": "complete", "supportedVersions": ["2026-07-28"], "ttlMs": 0, "cacheScope": "public",
                "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
                "serverInfo": {"name": "fake", "version": "1"},
            })),
            "tools/list" => return mcp(seen, &json!([mcp_tool("x", "Does x.")])),
            _ => answer(method, &message["params"]),
        };
        match result {
            Ok(result) => json_of(
                "200 OK",
                &json!({"jsonrpc": "2.0", "id": message["id"], "result": result}),
            ),
            Err(answer) => answer,
        }
    })
    .await
}

fn unknown() -> Answer {
    let error = json!({"code": -32002, "message": "unknown"});
    json_of(
        "200 OK",
        &json!({"jsonrpc": "2.0", "id": 1, "error": error}),
    )
}

fn contents(text: &str) -> Value {
    json!({"resultType": "complete", "contents": [{"uri": "b://doc", "text": text}]})
}

/// The first server is the older one, and is asked first.
async fn both(first: &Server, second: &Server, names: [&str; 2]) -> Gateway {
    let tools = names.map(|name| format!("{name}/*"));
    let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
    let of =
        |name: &str, server: &Server| source(name, json!({"mcp": {"url": server.url("/mcp")}}));
    let gateway = Gateway::open(&[
        workspace(),
        of(names[0], first),
        agent("a", json!({"tools": tools})),
        grant("g", &tools, json!({"resources": true, "prompts": true})),
    ])
    .await;
    gateway.until(names[0], |known| known["served"] == 1).await;
    gateway.write("more.yaml", &[of(names[1], second)]);
    gateway.until(names[1], |known| known["served"] == 1).await;
    gateway
}

async fn read(gateway: &Gateway, more: Value) -> Value {
    let mut params = json!({"uri": "b://doc"});
    for (name, value) in more.as_object().unwrap() {
        params[name] = value.clone();
    }
    gateway.ask("a", "resources/read", params).await
}

#[tokio::test]
async fn a_question_is_answered_to_the_server_that_asked_and_to_no_other() {
    for state in [json!("B-PRIVATE-STATE"), Value::Null] {
        let first = having(|_, _| Err(unknown())).await;
        let asks = state.clone();
        let second = having(move |method, params| {
            if method != "resources/read" {
                return Err(unknown());
            }
            if params["inputResponses"].is_object() {
                let told = json!([params["inputResponses"]["q"], params["requestState"]]);
                return Ok(contents(&told.to_string()));
            }
            let question = json!({
                "method": "elicitation/create",
                "params": {"message": "Your PIN?", "requestedSchema": {"type": "object", "properties": {}}},
            });
            let mut asked = json!({"resultType": "input_required", "inputRequests": {"q": question}});
            if !asks.is_null() {
                asked["requestState"] = asks.clone();
            }
            Ok(asked)
        })
        .await;
        let gateway = both(&first, &second, ["z", "b"]).await;
        let asked = read(&gateway, json!({})).await;
        assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
        let sealed = asked["result"]["requestState"].as_str().unwrap().to_owned();
        let responses = json!({"q": {"action": "accept", "content": {"pin": "PIN-9876"}}});
        let told = read(
            &gateway,
            json!({"inputResponses": responses, "requestState": sealed}),
        )
        .await;
        let told = told["result"]["contents"][0]["text"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(told.contains("PIN-9876"), "{told}");
        assert_eq!(told.contains("B-PRIVATE-STATE"), !state.is_null());
        // An answer that says of nothing to what it is one goes nowhere.
        read(&gateway, json!({"inputResponses": responses})).await;
        let leaked = |server: &Server| {
            let mut seen = server.seen().into_iter();
            seen.any(|seen| seen.body.contains("PIN-9876") || seen.body.contains("B-PRIVATE"))
        };
        assert!(!leaked(&first));
        let answers = |seen: &Seen| seen.body.contains("PIN-9876");
        assert_eq!(second.seen().iter().filter(|seen| answers(seen)).count(), 1);
    }
}

#[tokio::test]
async fn a_server_that_fails_or_hangs_keeps_nobody_from_the_others() {
    for ill in ["fails", "hangs"] {
        let first = having(move |_, _| {
            Err(match ill {
                "fails" => Answer::Raw(reply("500 Oops", "", "")),
                _ => Answer::Hang,
            })
        })
        .await;
        let second = having(|method, _| match method {
            "resources/read" => Ok(contents("from b")),
            "resources/list" => Ok(json!({
                "resultType": "complete", "ttlMs": 0, "cacheScope": "public",
                "resources": [{"uri": "b://doc", "name": "doc"}],
            })),
            _ => Err(unknown()),
        })
        .await;
        let gateway = both(&first, &second, ["z", "b"]).await;
        let answer = read(&gateway, json!({})).await;
        assert_eq!(
            answer["result"]["contents"][0]["text"], "from b",
            "{ill}: {answer}"
        );
        for round in 0..2 {
            let began = Instant::now();
            let listed = gateway.ask("a", "resources/list", json!({})).await;
            assert_eq!(
                listed["result"]["resources"][0]["uri"], "b://doc",
                "{listed}"
            );
            // One that has hung is not waited for again.
            assert!(round == 0 || began.elapsed() < Duration::from_secs(5));
        }
    }
}

#[tokio::test]
async fn what_one_server_writes_wrongly_or_twice_is_left_out_of_lists() {
    let list = |field: &'static str, items: Value| {
        Ok(json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "public", field: items}))
    };
    let first = having(move |method, _| match method {
        "prompts/list" => list(
            "prompts",
            json!([
                {"name": 5},
                {"name": "b_login"},
                {"name": "hid\u{200b}den"},
                {"name": "read", "arguments": [{"name": "x", "description": "seen\u{e0041}"}]},
            ]),
        ),
        "prompts/get" => Ok(json!({
            "resultType": "complete",
            "messages": [{"role": "user", "content": {"type": "text", "text": "from a"}}],
        })),
        "resources/list" => list(
            "resources",
            json!([{"uri": 7}, {"uri": "a://1", "name": "o\u{200b}ne"}, {"uri": "a://1", "name": "again"}]),
        ),
        "resources/templates/list" => list("resourceTemplates", json!([{"uriTemplate": null}])),
        _ => Err(unknown()),
    })
    .await;
    let second = having(move |method, _| match method {
        "prompts/list" => list("prompts", json!([{"name": "login"}])),
        "resources/list" => list("resources", json!([{"uri": "b://1", "name": "b"}])),
        "resources/templates/list" => list(
            "resourceTemplates",
            json!([{"uriTemplate": "b://{id}", "name": "b"}]),
        ),
        _ => Err(unknown()),
    })
    .await;
    let gateway = both(&first, &second, ["a", "a-b"]).await;
    let listed = async |method: &str, field: &str, id: &str| {
        let answer = gateway.ask("a", method, json!({})).await;
        let items = answer["result"][field].as_array();
        let items = items.unwrap_or_else(|| panic!("{answer}")).iter();
        let ids = items.map(|item| item[id].as_str().unwrap().to_owned());
        ids.collect::<Vec<_>>()
    };
    assert_eq!(
        listed("prompts/list", "prompts", "name").await,
        ["a_b_login", "a_read"]
    );
    assert_eq!(
        listed("resources/list", "resources", "uri").await,
        ["a://1", "b://1"]
    );
    assert_eq!(
        listed(
            "resources/templates/list",
            "resourceTemplates",
            "uriTemplate"
        )
        .await,
        ["b://{id}"]
    );
    let prompts = gateway
        .ask("a", "prompts/list", json!({}))
        .await
        .to_string();
    let resources = gateway
        .ask("a", "resources/list", json!({}))
        .await
        .to_string();
    assert!(
        prompts.contains("\"seen\"") && resources.contains("\"one\""),
        "{prompts} {resources}"
    );
    let got = gateway
        .ask("a", "prompts/get", json!({"name": "a_b_login"}))
        .await;
    assert_eq!(got["result"]["messages"][0]["content"]["text"], "from a");
    let seen = second.seen();
    assert!(!seen.iter().any(|seen| seen.body.contains("prompts/get")));
}

/// A server of sessions, whose calls are answered by `answer`.
async fn of_sessions(
    answer: impl Fn(&Value) -> (&'static str, Value) + Send + Sync + 'static,
) -> Server {
    serve(move |seen: &Seen, _| {
        let Ok(message) = serde_json::from_str::<Value>(&seen.body) else {
            return Answer::Raw(reply("405 Method Not Allowed", "", ""));
        };
        let of = |result: Value| json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
        match message["method"].as_str().unwrap_or_default() {
            "initialize" => {
                let result = json!({
                    "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                    "serverInfo": {"name": "fake", "version": "1"},
                });
                let headers = "content-type: application/json\r\nmcp-session-id: one\r\n";
                Answer::Raw(reply("200 OK", headers, &of(result).to_string()))
            }
            "tools/list" => json_of(
                "200 OK",
                &of(json!({"tools": [mcp_tool("book", "Books.")]})),
            ),
            "tools/call" => {
                let (status, answer) = answer(&message);
                json_of(status, &answer)
            }
            "server/discover" => Answer::Raw(reply("400 Bad Request", "", "")),
            _ => Answer::Raw(reply("202 Accepted", "", "")),
        }
    })
    .await
}

fn calls(server: &Server) -> usize {
    let seen = server.seen();
    let calls = seen.iter().filter(|seen| seen.body.contains("tools/call"));
    calls.count()
}

#[tokio::test]
async fn a_call_is_sent_again_only_where_the_server_does_not_know_the_session() {
    for (said, expected, times) in [
        (
            "the training session is full; choose another",
            "the training session is full; choose another",
            1,
        ),
        ("Bad Request: No valid session ID provided", "session", 2),
        ("Session not found", "session", 2),
    ] {
        let server = of_sessions(move |message| {
            let error = json!({"code": -32000, "message": said});
            let answer = json!({"jsonrpc": "2.0", "id": message["id"], "error": error});
            ("400 Bad Request", answer)
        })
        .await;
        let gateway = one_server(&server).await;
        let told = gateway.result("a", "m_book", json!({})).await.to_string();
        assert!(told.contains(expected), "{told}");
        assert_eq!(calls(&server), times, "{said}");
    }
}

async fn one_server(server: &Server) -> Gateway {
    let gateway = Gateway::open(&[
        workspace(),
        source("m", json!({"mcp": {"url": server.url("/mcp")}})),
        agent("a", json!({"tools": ["m/*"]})),
        grant("g", &["m/*"], json!({})),
    ])
    .await;
    gateway.until("m", |known| known["served"] == 1).await;
    gateway
}

// What a server writes is passed on as it is, also what our own reading would stumble over.
#[tokio::test]
async fn odd_results_pass_as_they_are() {
    let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
    for odd in [
        r#"{"big":123456789012345678901234567890}"#.to_owned(),
        r#"{"small":1e-999,"large":1.5e300}"#.to_owned(),
        r#"{"half":"\ud800"}"#.to_owned(),
        format!("{{\"deep\":{deep}}}"),
    ] {
        let written = odd.clone();
        let server = serve(move |seen: &Seen, _| {
            let message: Value = serde_json::from_str(&seen.body).unwrap_or_default();
            if message["method"] != "tools/call" {
                return mcp(seen, &json!([mcp_tool("book", "Books.")]));
            }
            let body = format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{{\"resultType\":\"complete\",\"content\":[],\"structuredContent\":{written}}}}}",
                message["id"]
            );
            Answer::Raw(reply("200 OK", "content-type: application/json\r\n", &body))
        })
        .await;
        let gateway = one_server(&server).await;
        let told = gateway.in_session("a", "m_book").await;
        assert!(told.contains(&odd), "{odd}: {told}");
        assert_eq!(gateway.usage("m", 1).await[0]["outcome"], "done");
    }
}

// Whoever was let in is answered, though the answers are streams and many.
#[tokio::test]
async fn as_many_answers_may_be_streams_as_calls_may_run() {
    let server = serve(|seen: &Seen, _| {
        let message: Value = serde_json::from_str(&seen.body).unwrap_or_default();
        if message["method"] != "tools/call" {
            return mcp(seen, &json!([mcp_tool("book", "Books.")]));
        }
        let result =
            json!({"resultType": "complete", "content": [{"type": "text", "text": "booked"}]});
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
        let headers = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n: begun\n\n";
        let answer = format!("data: {answer}\n\n");
        let pause = Duration::from_secs(1);
        Answer::Endless(headers.as_bytes().to_vec(), answer.into_bytes(), pause)
    })
    .await;
    let gateway = one_server(&server).await;
    let calls = (0..150).map(|_| gateway.call("a", "m_book", json!({})));
    for said in futures::future::join_all(calls).await {
        assert_eq!(said.text(), "booked");
    }
}
