//! Calls that talk: progress, log messages, questions.

use serde_json::{Value, json};

use crate::fake::Fake;
use crate::harness::{Desk, NEWER, World, eventually, request, text};

#[tokio::test]
async fn progress_and_log_messages_reach_a_client_that_wants_them() {
    for (newer, older) in [(true, false), (false, true)] {
        let upstream = Fake::start(newer, older).await;
        let desk = Desk::open(&upstream, &World::default()).await;
        let session = desk.session("one", json!({})).await;
        let call = request(
            "tools/call",
            json!({"name": "crm_talk", "arguments": {}, "_meta": {"progressToken": "mine"}}),
        );
        let messages = desk.older("one", &session, &call).await.all().await;
        let progress: Vec<_> = messages
            .iter()
            .filter(|message| message["method"] == "notifications/progress")
            .map(|message| {
                (
                    &message["params"]["progressToken"],
                    &message["params"]["progress"],
                )
            })
            .collect();
        assert_eq!(
            progress,
            [(&json!("mine"), &json!(1)), (&json!("mine"), &json!(2))]
        );
        assert!(
            messages
                .iter()
                .any(|message| message["params"]["data"] == "at work")
        );
        assert_eq!(text(messages.last().unwrap()), "talked");
        // One that wants nothing gets the result alone, at once.
        let quiet = desk.call("one", "crm_talk", json!({})).await;
        assert_eq!(text(&quiet), "talked");
    }
}

#[tokio::test]
async fn a_question_of_the_older_era_goes_to_a_client_that_can_be_asked() {
    let upstream = Fake::start(false, true).await;
    let desk = Desk::open(&upstream, &World::default()).await;
    let session = desk.session("one", json!({"elicitation": {}})).await;
    let call = request("tools/call", json!({"name": "crm_ask", "arguments": {}}));
    let mut events = desk.older("one", &session, &call).await;
    let question = events.next().await.unwrap();
    assert_eq!(question["method"], "elicitation/create");
    assert_eq!(question["params"]["message"], "Who?");
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"name": "Ada"}}});
    desk.older("one", &session, &answer).await;
    let result = events.last().await;
    assert!(text(&result).contains("Ada"), "{result}");

    // Others have sessions of their own, in which nothing is declared, and the server hears that nobody can be asked.
    let deaf = desk.session("one", json!({})).await;
    let result = desk.call_in("one", &deaf, "crm_ask").await;
    assert!(text(&result).contains("-32601"), "{result}");
    let note = |answer: &Value| answer["result"]["content"][1]["text"].to_string();
    assert!(
        note(&result).contains("has not declared that it can be asked"),
        "{result}"
    );
    let params = json!({"name": "crm_ask", "arguments": {}});
    let newer = desk
        .newer("one", json!({"elicitation": {}}), "tools/call", params)
        .await;
    assert!(text(&newer).contains("-32601"), "{newer}");
    assert!(
        note(&newer).contains("connect with an older one"),
        "{newer}"
    );
    let declared: Vec<Value> = upstream
        .seen("initialize")
        .iter()
        .map(|seen| seen.message["params"]["capabilities"].clone())
        .collect();
    assert_eq!(declared, [json!({}), json!({"elicitation": {}}), json!({})]);
}

#[tokio::test]
async fn questions_of_the_newer_era_are_bound_to_agent_tool_and_arguments() {
    let upstream = Fake::start(true, false).await;
    for fast_lane in [true, false] {
        let desk = Desk::open_with(&upstream, &World::default(), fast_lane).await;
        let can = json!({"elicitation": {}});
        let ask = async |agent: &str, tool: &str, arguments: Value, state: Option<&Value>| {
            let mut params = json!({"name": tool, "arguments": arguments});
            if let Some(state) = state {
                params["requestState"] = state.clone();
                params["inputResponses"] =
                    json!({"who": {"action": "accept", "content": {"name": "Ada"}}});
            }
            desk.newer(agent, can.clone(), "tools/call", params).await
        };
        let asked = ask("one", "crm_ask", json!({"a": 1}), None).await;
        assert_eq!(asked["result"]["resultType"], "input_required");
        assert_eq!(
            asked["result"]["inputRequests"]["who"]["method"],
            "elicitation/create"
        );
        let state = &asked["result"]["requestState"];
        assert_ne!(state, "state-of-the-upstream");

        let before = upstream.seen("tools/call").len();
        for (agent, tool, arguments, state) in [
            ("two", "crm_ask", json!({"a": 1}), state.clone()),
            ("one", "crm_other", json!({"a": 1}), state.clone()),
            ("one", "crm_ask", json!({"a": 2}), state.clone()),
            (
                "one",
                "crm_ask",
                json!({"a": 1}),
                json!("state-of-the-upstream"),
            ),
            (
                "one",
                "crm_ask",
                json!({"a": 1}),
                json!(format!("{}x", state.as_str().unwrap())),
            ),
        ] {
            let refused = ask(agent, tool, arguments, Some(&state)).await;
            assert_eq!(refused["error"]["code"], -32602, "{refused}");
        }
        assert_eq!(upstream.seen("tools/call").len(), before);

        let done = ask("one", "crm_ask", json!({"a": 1}), Some(state)).await;
        assert!(text(&done).starts_with("state-of-the-upstream"), "{done}");
        assert!(text(&done).contains("Ada"), "{done}");
        let seen = upstream.seen("tools/call").pop().unwrap();
        let meta = &seen.message["params"]["_meta"];
        assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], can);
        assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], NEWER);
    }
}

#[tokio::test]
async fn a_client_of_the_older_era_is_asked_what_a_newer_server_asks() {
    let upstream = Fake::start(true, false).await;
    let desk = Desk::open(&upstream, &World::default()).await;
    let session = desk.session("one", json!({"elicitation": {}})).await;
    let call = request("tools/call", json!({"name": "crm_ask", "arguments": {}}));
    let mut events = desk.older("one", &session, &call).await;
    let question = events.next().await.unwrap();
    assert_eq!(question["method"], "elicitation/create");
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"name": "Ada"}}});
    desk.older("one", &session, &answer).await;
    let result = events.last().await;
    assert!(text(&result).contains("Ada"), "{result}");
    assert!(result["result"].get("resultType").is_none());
}

// A client that could be asked does not pay for it: its answer is a stream only if something is said before the result.
#[tokio::test]
async fn what_a_call_says_reaches_its_client_on_either_lane() {
    for (newer, older) in [(true, false), (false, true)] {
        for fast_lane in [true, false] {
            let upstream = Fake::start(newer, older).await;
            let desk = Desk::open_with(&upstream, &World::default(), fast_lane).await;
            let session = desk
                .session("one", json!({"elicitation": {}, "roots": {}}))
                .await;
            let level = request("logging/setLevel", json!({"level": "info"}));
            desk.older("one", &session, &level).await.last().await;
            let call = |tool: &str| request("tools/call", json!({"name": tool, "arguments": {}}));
            let quiet = desk.older("one", &session, &call("crm_echo")).await;
            assert!(!quiet.is_stream);
            let talk = desk.older("one", &session, &call("crm_talk")).await;
            assert!(talk.is_stream);
            let said = talk.all().await;
            assert_eq!(said.len(), 2, "{said:?}");
            assert_eq!(said[0]["params"]["data"], "at work");
            assert_eq!(text(&said[1]), "talked");

            for (level, messages) in [("warning", 1), ("info", 2)] {
                let meta = json!({"io.modelcontextprotocol/logLevel": level});
                let params = json!({"name": "crm_talk", "arguments": {}, "_meta": meta});
                let talk = desk.begin("one", json!({}), "tools/call", params).await;
                let said = talk.all().await;
                assert_eq!(said.len(), messages, "{said:?}");
                assert_eq!(text(&said[messages - 1]), "talked");
            }
        }
    }
}

#[tokio::test]
async fn a_client_that_goes_while_it_is_asked_has_cancelled_its_call() {
    for fast_lane in [true, false] {
        let upstream = Fake::start(false, true).await;
        let desk = Desk::open_with(&upstream, &World::default(), fast_lane).await;
        let session = desk.session("one", json!({"elicitation": {}})).await;
        let call = request("tools/call", json!({"name": "crm_ask", "arguments": {}}));
        let mut events = desk.older("one", &session, &call).await;
        let question = events.next().await.unwrap();
        assert_eq!(question["method"], "elicitation/create");
        drop(events);
        let told = async || !upstream.seen("notifications/cancelled").is_empty();
        eventually("the server is told", told).await;
    }
}
