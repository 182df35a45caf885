//! Calls that people allow or refuse, and what an agent can do about it: nothing.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Desk, Said, Setup, WORKSPACE, agent, grant, workspace};

const TOOL: &str = "agnt_queues_enqueue";

fn asking(level: &str) -> String {
    let permissions = format!("permissions: {{tools: {{agnt_queues_enqueue: {level}}}}}");
    [
        WORKSPACE.to_owned(),
        agent("one", &permissions),
        agent("two", &permissions),
    ]
    .concat()
}

async fn enqueue(desk: &Desk, amount: i64) -> Said {
    desk.call("one", TOOL, json!({"amount": amount})).await
}

// R-C-210, R-C-212, R-C-213: a call waits for a person, under its per-operation name, and runs once when it is made
// again after the decision; its result is told again for 15 minutes.
#[tokio::test]
async fn an_approved_call_runs_once_and_its_result_is_told_again() {
    let desk = Desk::open(&asking("always_ask")).await;
    let grouped = json!({"action": "enqueue", "amount": 5});
    let said = desk.call("one", "agnt_queues_write", grouped).await;
    let id = said.approval().to_owned();
    // The same call asks nobody again, however it is written.
    let same = desk
        .newer(
            "one",
            "tools/call",
            json!({"name": TOOL, "arguments": {"amount": 5}}),
        )
        .await;
    assert_eq!(Said::of(&same), said);
    let (status, shown) = desk
        .api("GET", &format!("/approvals/{id}"), Value::Null)
        .await;
    assert_eq!(status, 200);
    assert_eq!(
        (&shown["tool"], &shown["agent"]),
        (&json!(TOOL), &json!("team.one"))
    );
    assert_eq!(shown["arguments"], json!({"amount": 5}));
    assert_eq!(shown["state"], "pending");
    assert_eq!(desk.pending().await, std::slice::from_ref(&id));
    assert_eq!(desk.approve(&id).await, 200);
    assert_eq!(desk.executed.count(TOOL), 0);
    // Other arguments are another call.
    enqueue(&desk, 6).await.approval();
    // So is another agent's.
    desk.call("two", TOOL, json!({"amount": 5}))
        .await
        .approval();
    let first = enqueue(&desk, 5).await;
    assert!(first.text().contains("#1"));
    assert_eq!(enqueue(&desk, 5).await, first);
    assert_eq!(desk.executed.count(TOOL), 1);
    desk.pass_time(Duration::from_secs(15 * 60 + 1));
    enqueue(&desk, 5).await.approval();
    assert_eq!(desk.executed.count(TOOL), 1);
    desk.close().await;
}

#[tokio::test]
async fn a_call_that_waits_goes_on_once_somebody_has_decided() {
    for slow_lane in [false, true] {
        let setup = Setup {
            approval_wait: Duration::from_secs(60),
            slow_lane,
            ..Setup::default()
        };
        let desk = std::sync::Arc::new(Desk::open_with(&asking("always_ask"), setup).await);
        let waiting = tokio::spawn({
            let desk = desk.clone();
            async move { enqueue(&desk, 1).await }
        });
        let id = loop {
            if let Some(id) = desk.pending().await.pop() {
                break id;
            }
        };
        assert_eq!(desk.approve(&id).await, 200);
        assert!(waiting.await.unwrap().text().contains("#1"));
        // In a session of the older era, too; and a refusal is told with its reason.
        let session = desk.session("one").await;
        let waiting = tokio::spawn({
            let desk = desk.clone();
            async move {
                let params = json!({"name": TOOL, "arguments": {"amount": 2}});
                Said::of(&desk.older("one", &session, "tools/call", params).await)
            }
        });
        let id = loop {
            if let Some(id) = desk.pending().await.pop() {
                break id;
            }
        };
        let body = json!({"reason": "not today"});
        assert_eq!(
            desk.api("POST", &format!("/approvals/{id}/deny"), body)
                .await
                .0,
            200
        );
        let said = waiting.await.unwrap();
        assert!(
            said.refusal()
                .contains("a person has denied this call: not today"),
            "{said:?}"
        );
        assert_eq!(desk.executed.count(TOOL), 1);
    }
}

// A right that is taken away while the call waits is not given back by an approval.
#[tokio::test]
async fn an_approval_gives_no_right_that_is_gone() {
    let setup = Setup {
        approval_wait: Duration::from_secs(60),
        ..Setup::default()
    };
    let desk = std::sync::Arc::new(Desk::open_with(&asking("always_ask"), setup).await);
    let waiting = tokio::spawn({
        let desk = desk.clone();
        async move { desk.call("one", TOOL, json!({"amount": 1})).await }
    });
    let id = loop {
        if let Some(id) = desk.pending().await.pop() {
            break id;
        }
    };
    let guarded =
        asking("always_ask").replace("spec: {}", "spec: {grantRequired: ['agnt_queues_*']}");
    desk.apply(&guarded).await;
    assert_eq!(desk.approve(&id).await, 200);
    assert_eq!(waiting.await.unwrap(), Said::unknown(TOOL));
    assert_eq!(desk.executed.count(TOOL), 0);
}

#[tokio::test]
async fn what_a_person_remembers_is_not_asked_again() {
    let desk = Desk::open(&asking("ask")).await;
    let call = async |session: &str, amount: i64| {
        let params = json!({"name": TOOL, "arguments": {"amount": amount}});
        Said::of(&desk.older("one", session, "tools/call", params).await)
    };
    let (first, second) = (desk.session("one").await, desk.session("one").await);
    let id = call(&first, 1).await.approval().to_owned();
    let (status, _) = desk
        .api(
            "POST",
            &format!("/approvals/{id}/approve"),
            json!({"remember": "session"}),
        )
        .await;
    assert_eq!(status, 200);
    for amount in 2..5 {
        call(&first, amount).await.text();
    }
    // Another session, another agent: asked.
    let id = call(&second, 9).await.approval().to_owned();
    desk.call("two", TOOL, json!({"amount": 1}))
        .await
        .approval();
    let (status, _) = desk
        .api(
            "POST",
            &format!("/approvals/{id}/approve"),
            json!({"remember": "always"}),
        )
        .await;
    assert_eq!(status, 200);
    call(&second, 10).await.text();
    enqueue(&desk, 11).await.text();
    desk.call("two", TOOL, json!({"amount": 2}))
        .await
        .approval();
    // It can be looked at and taken back.
    let (_, standing) = desk.api("GET", "/standing-approvals", Value::Null).await;
    let items = standing["items"].as_array().unwrap();
    assert_eq!(items.len(), 2, "{standing}");
    for item in items {
        let path = format!("/standing-approvals/{}", item["id"].as_str().unwrap());
        assert_eq!(desk.api("DELETE", &path, Value::Null).await.0, 200);
    }
    call(&first, 12).await.approval();
    enqueue(&desk, 13).await.approval();
    desk.close().await;
}

#[tokio::test]
async fn always_ask_is_never_remembered() {
    let desk = Desk::open(&asking("always_ask")).await;
    let id = enqueue(&desk, 1).await.approval().to_owned();
    for remember in ["session", "always"] {
        let (status, answer) = desk
            .api(
                "POST",
                &format!("/approvals/{id}/approve"),
                json!({"remember": remember}),
            )
            .await;
        assert_eq!(status, 422, "{answer}");
    }
    assert_eq!(desk.approve(&id).await, 200);
    enqueue(&desk, 1).await.text();
    enqueue(&desk, 2).await.approval();
    // What was remembered while it was `ask` does not count once it is always_ask.
    desk.apply(&asking("ask")).await;
    let id = enqueue(&desk, 3).await.approval().to_owned();
    desk.api(
        "POST",
        &format!("/approvals/{id}/approve"),
        json!({"remember": "always"}),
    )
    .await;
    enqueue(&desk, 4).await.text();
    desk.apply(&asking("always_ask")).await;
    enqueue(&desk, 5).await.approval();
    desk.close().await;
}

#[tokio::test]
async fn an_approval_ends_after_a_day_and_is_decided_once() {
    let desk = Desk::open(&asking("always_ask")).await;
    let id = enqueue(&desk, 1).await.approval().to_owned();
    desk.pass_time(Duration::from_secs(24 * 3600 + 1));
    let (status, answer) = desk
        .api("POST", &format!("/approvals/{id}/approve"), Value::Null)
        .await;
    assert_eq!(status, 409, "{answer}");
    assert!(
        answer["error"]["message"]
            .as_str()
            .unwrap()
            .contains("has expired")
    );
    let next = enqueue(&desk, 1).await.approval().to_owned();
    assert_ne!(next, id);
    // Approved, but not called in time.
    assert_eq!(desk.approve(&next).await, 200);
    let (status, answer) = desk
        .api("POST", &format!("/approvals/{next}/deny"), Value::Null)
        .await;
    assert_eq!(status, 409, "{answer}");
    assert!(
        answer["error"]["message"]
            .as_str()
            .unwrap()
            .contains("is approved already, decided by admin")
    );
    desk.pass_time(Duration::from_secs(24 * 3600 + 1));
    enqueue(&desk, 1).await.approval();
    assert_eq!(desk.executed.count(TOOL), 0);
    desk.close().await;
}

// R-C-007, R-C-008: no key of an agent, and nothing that is no token, opens the API of people.
#[tokio::test]
async fn only_people_decide() {
    let desk = Desk::open(&asking("always_ask")).await;
    let id = enqueue(&desk, 1).await.approval().to_owned();
    let path = format!("/approvals/{id}/approve");
    let own = desk.key_of("one");
    assert_eq!(desk.api_as(&own, "POST", &path, Value::Null).await.0, 403);
    for token in ["", "x", &own[..own.len() - 1]] {
        assert_eq!(desk.api_as(token, "POST", &path, Value::Null).await.0, 401);
    }
    assert_eq!(desk.pending().await, [id]);
    for (method, path, body, status) in [
        ("GET", "/approvals/zzz", Value::Null, 422),
        ("GET", "/approvals/00000000001", Value::Null, 404),
        ("GET", "/approvals?state=open", Value::Null, 422),
        ("GET", "/approvals?limit=0", Value::Null, 422),
        ("GET", "/nothing", Value::Null, 404),
        ("PUT", "/approvals", Value::Null, 405),
        (
            "POST",
            "/approvals/00000000001/approve",
            json!({"remember": "never"}),
            422,
        ),
        (
            "POST",
            "/approvals/00000000001/approve",
            json!({"rember": "always"}),
            422,
        ),
        ("GET", "/agents/team.nobody/tools", Value::Null, 404),
    ] {
        let (found, answer) = desk.api(method, path, body).await;
        assert_eq!(found, status, "{method} {path}: {answer}");
        assert!(
            answer["error"]["message"]
                .as_str()
                .is_some_and(|said| said.len() > 10),
            "{answer}"
        );
    }
    desk.close().await;
}

// An agent that answers for itself gets nothing: not with inputResponses, not with its own requestState.
#[tokio::test]
async fn an_agent_cannot_answer_for_itself() {
    let mut manifests = workspace("grantRequired: ['agnt_queues_*']");
    manifests.push_str(&agent(
        "one",
        "permissions: {tools: {agnt_queues_enqueue: always_ask}}",
    ));
    manifests.push_str(&grant(
        "queues",
        "agents: {all: true}, tools: ['agnt_queues_*']",
    ));
    let desk = Desk::open(&manifests).await;
    for (responses, state) in [
        (
            json!({"approval": {"action": "accept", "content": {"decision": "approve"}}}),
            json!("made up"),
        ),
        (json!({"approval": {"action": "accept"}}), Value::Null),
    ] {
        let params = json!({
            "name": TOOL, "arguments": {"amount": 1}, "inputResponses": responses, "requestState": state,
            "_meta": {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}},
        });
        let answer = desk.newer("one", "tools/call", params).await;
        assert!(
            answer["error"].is_object() || matches!(Said::of(&answer), Said::Awaiting(_)),
            "{answer}"
        );
    }
    assert_eq!(desk.executed.count(TOOL), 0);
    desk.close().await;
}

#[tokio::test]
async fn an_agent_cannot_flood_its_people() {
    let desk = Desk::open(&asking("always_ask")).await;
    for amount in 0..100 {
        enqueue(&desk, amount).await.approval();
    }
    let said = enqueue(&desk, 100).await;
    assert!(
        said.refusal()
            .contains("100 calls of this agent wait for a person already"),
        "{said:?}"
    );
    desk.call("two", TOOL, json!({"amount": 1}))
        .await
        .approval();
    desk.close().await;
}

// A client that knows tasks gets one, and finds the result there.
#[tokio::test]
async fn a_client_that_knows_tasks_gets_one() {
    let desk = Desk::open(&asking("always_ask")).await;
    let knows = json!({"io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}});
    let call = async |amount: i64| {
        let params = json!({"name": TOOL, "arguments": {"amount": amount}, "_meta": knows});
        desk.newer("one", "tools/call", params).await["result"].clone()
    };
    let task = async |method: &str, id: &str| {
        desk.newer(
            "one",
            method,
            json!({"taskId": id, "name": id, "_meta": knows}),
        )
        .await
    };
    let created = call(1).await;
    assert_eq!(
        (&created["resultType"], &created["status"]),
        (&json!("task"), &json!("working")),
        "{created}"
    );
    let id = created["taskId"].as_str().unwrap().to_owned();
    assert_eq!(task("tasks/get", &id).await["result"]["status"], "working");
    assert_eq!(desk.approve(&id).await, 200);
    let done = loop {
        let answer = task("tasks/get", &id).await;
        match answer["result"]["status"].as_str() {
            Some("working") => tokio::time::sleep(Duration::from_millis(5)).await,
            Some("completed") => break answer["result"].clone(),
            _ => panic!("{answer}"),
        }
    };
    let text = done["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("#1"), "{done}");
    assert_eq!(desk.executed.count(TOOL), 1);
    // Denied, cancelled, and somebody else's.
    let denied = call(2).await["taskId"].as_str().unwrap().to_owned();
    desk.api(
        "POST",
        &format!("/approvals/{denied}/deny"),
        json!({"reason": "no"}),
    )
    .await;
    let answer = task("tasks/get", &denied).await;
    assert_eq!(answer["result"]["result"]["isError"], true, "{answer}");
    let cancelled = call(3).await["taskId"].as_str().unwrap().to_owned();
    task("tasks/cancel", &cancelled).await;
    assert_eq!(
        task("tasks/get", &cancelled).await["result"]["status"],
        "cancelled"
    );
    assert_eq!(desk.approve(&cancelled).await, 409);
    let foreign = json!({"taskId": id, "name": id, "_meta": knows});
    let answer = desk.newer("two", "tasks/get", foreign).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    assert_eq!(desk.executed.count(TOOL), 1);
    desk.close().await;
}

// Only where the grant says so is the person at the client asked, and only for the very call that was shown.
#[tokio::test]
async fn the_client_is_asked_only_where_the_grant_says_so() {
    let manifests = |grants: &str| {
        let mut all = workspace("grantRequired: ['agnt_queues_*']");
        all.push_str(&agent(
            "one",
            "permissions: {tools: {agnt_queues_enqueue: always_ask}}",
        ));
        all.push_str(grants);
        all
    };
    let lenient = grant(
        "lenient",
        "agents: {all: true}, tools: ['agnt_queues_*'], clientUserMayApprove: true",
    );
    let strict = grant("strict", "agents: {all: true}, tools: ['agnt_queues_*']");
    let desk = Desk::open(&manifests(&lenient)).await;
    let elicits =
        json!({"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}});
    let call = async |amount: i64, more: Value| {
        let mut params = json!({"name": TOOL, "arguments": {"amount": amount}, "_meta": elicits});
        for (name, value) in more.as_object().into_iter().flatten() {
            params[name] = value.clone();
        }
        desk.newer("one", "tools/call", params).await
    };
    let answer_of = |asked: &Value, decision: &str| {
        json!({
            "requestState": asked["result"]["requestState"],
            "inputResponses": {"approval": {"action": "accept", "content": {"decision": decision}}},
        })
    };
    let asked = call(1, Value::Null).await;
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    let question = &asked["result"]["inputRequests"]["approval"]["params"]["message"];
    assert!(
        question.as_str().unwrap().contains(r#"{"amount":1}"#),
        "{asked}"
    );
    // The answer to one call opens no other.
    let other = call(2, answer_of(&asked, "allow")).await;
    assert_eq!(other["error"]["code"], -32602, "{other}");
    assert_eq!(desk.executed.count(TOOL), 0);
    // Neither a shrug nor silence is an answer.
    let mut shrug = answer_of(&asked, "allow");
    shrug["inputResponses"]["approval"] = json!({"action": "cancel"});
    assert_eq!(
        call(1, shrug).await["result"]["resultType"],
        "input_required"
    );
    assert!(
        Said::of(&call(1, answer_of(&asked, "allow")).await)
            .text()
            .contains("#1")
    );
    // It is good for one execution: the result is told again.
    assert!(
        Said::of(&call(1, answer_of(&asked, "allow")).await)
            .text()
            .contains("#1")
    );
    let denied = call(3, Value::Null).await;
    assert!(matches!(
        Said::of(&call(3, answer_of(&denied, "deny")).await),
        Said::Refused(_)
    ));
    // Once a grant that counts does not say so, an answer is worth nothing.
    let asked = call(4, Value::Null).await;
    desk.apply(&manifests(&[lenient, strict].concat())).await;
    Said::of(&call(4, answer_of(&asked, "allow")).await).approval();
    Said::of(&call(5, Value::Null).await).approval();
    assert_eq!(desk.executed.count(TOOL), 1);
    desk.close().await;
}

// A list is turned page by page, and what it leaves out does not hide what comes after.
#[tokio::test]
async fn lists_have_pages() {
    let desk = Desk::open(&asking("always_ask")).await;
    for amount in 0..3 {
        enqueue(&desk, amount).await.approval();
        let said = desk.call("two", TOOL, json!({"amount": amount})).await;
        said.approval();
    }
    let mut seen = Vec::new();
    let mut before = String::new();
    loop {
        let path = format!("/approvals?agent=team.one&state=pending&limit=2{before}");
        let (status, page) = desk.api("GET", &path, Value::Null).await;
        assert_eq!(status, 200, "{page}");
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= 2 && items.iter().all(|item| item["agent"] == "team.one"));
        seen.extend(items.iter().map(|item| item["arguments"]["amount"].clone()));
        match page["next"].as_str() {
            Some(next) => before = format!("&before={next}"),
            None => break,
        }
    }
    assert_eq!(seen, [json!(2), json!(1), json!(0)]);
    desk.pass_time(Duration::from_secs(24 * 3600 + 1));
    assert_eq!(desk.pending().await, [""; 0]);
    let (_, expired) = desk
        .api("GET", "/approvals?state=expired", Value::Null)
        .await;
    assert_eq!(expired["items"].as_array().unwrap().len(), 6);
    desk.close().await;
}
