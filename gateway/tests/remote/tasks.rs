//! Calls that go on as tasks of their server.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use chandlery_gateway::approvals::Decision;
use serde_json::{Value, json};

use crate::fake::Fake;
use crate::harness::{Desk, TASKS, World, eventually, request, text};

fn takes_tasks() -> Value {
    json!({"extensions": {TASKS: {}}, "elicitation": {}})
}

/// Begins a task of agent `one`'s; its id.
async fn begin(desk: &Desk, tool: &str) -> String {
    let params = json!({"name": tool, "arguments": {}});
    let answer = desk.newer("one", takes_tasks(), "tools/call", params).await;
    let result = &answer["result"];
    assert_eq!(result["resultType"], "task", "{answer}");
    assert_eq!(result["status"], "working", "{answer}");
    assert!(!answer.to_string().contains("upstream-task"), "{answer}");
    result["taskId"].as_str().unwrap().to_owned()
}

/// Looks after a task of `agent`'s.
async fn task(desk: &Desk, agent: &str, method: &str, id: &str) -> Value {
    let params = json!({"taskId": id});
    let answer = desk.newer(agent, takes_tasks(), method, params).await;
    assert!(!answer.to_string().contains("upstream-task"), "{answer}");
    answer
}

/// Looks after a task of agent `one`'s until it does not work any more.
async fn settled(desk: &Desk, id: &str) -> Value {
    loop {
        let answer = task(desk, "one", "tasks/get", id).await;
        assert_eq!(answer["result"]["taskId"], id, "{answer}");
        if answer["result"]["status"] != "working" {
            return answer["result"].clone();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

// Issue: tasks relayed under our own sealed state.
#[tokio::test]
async fn a_client_that_takes_tasks_looks_after_one_under_an_id_of_ours() {
    let upstream = Fake::start(true, false).await;
    for fast_lane in [true, false] {
        let mut desk = Desk::open_with(&upstream, &World::default(), fast_lane).await;
        let offered = desk
            .newer("one", json!({}), "server/discover", json!({}))
            .await;
        let can = &offered["result"]["capabilities"]["extensions"];
        assert!(can.get(TASKS).is_some(), "{offered}");
        let id = begin(&desk, "crm_job").await;
        let sealed = BASE64_URL_SAFE_NO_PAD.decode(id.strip_prefix("task:").unwrap());
        assert!(!String::from_utf8_lossy(&sealed.unwrap()).contains("upstream"));

        let before = upstream.seen("tasks/get").len();
        for (agent, id) in [
            ("two", &*id),
            ("one", &format!("{id}x")),
            ("one", "upstream-task-0"),
            ("one", "task:dXBzdHJlYW0tdGFzay0w"),
        ] {
            for method in ["tasks/get", "tasks/cancel"] {
                let refused = desk
                    .newer(agent, takes_tasks(), method, json!({"taskId": id}))
                    .await;
                assert_eq!(refused["error"]["code"], -32602, "{refused}");
                assert_eq!(refused["error"]["message"], "Unknown task");
            }
        }
        assert_eq!(upstream.seen("tasks/get").len(), before);
        assert_eq!(upstream.seen("tasks/cancel").len(), 0);

        let answer = task(&desk, "one", "tasks/get", &id).await;
        let working = &answer["result"];
        assert_eq!(working["status"], "working");
        assert_eq!(working["statusMessage"], format!("at {id}"));
        assert_eq!(working["pollIntervalMs"], 500);
        assert_eq!(working["ttlMs"], 7 * 24 * 3_600_000);
        desk.move_on().await;
        let done = settled(&desk, &id).await;
        assert_eq!(done["status"], "completed", "{done}");
        assert_eq!(done["result"]["content"][0]["text"], "done None");
        let related = &done["result"]["_meta"]["io.modelcontextprotocol/related-task"];
        assert_eq!(related["taskId"], id);
        let asked = &upstream.seen("tasks/get")[before].message["params"];
        let own = asked["taskId"].as_str().unwrap();
        assert!(own.starts_with("upstream-task-"), "{asked}");

        let failed = settled(&desk, &begin(&desk, "crm_job_fails").await).await;
        let id = failed["taskId"].as_str().unwrap();
        assert_eq!(failed["error"]["message"], format!("{id} broke"));
        drop(desk);
        upstream.state.forget_calls();
    }
}

#[tokio::test]
async fn a_task_asks_its_client_and_can_be_cancelled() {
    let upstream = Fake::start(true, true).await;
    let desk = Desk::open(&upstream, &World::default()).await;
    let id = begin(&desk, "crm_job_asks").await;
    let asks = settled(&desk, &id).await;
    assert_eq!(asks["status"], "input_required", "{asks}");
    assert_eq!(asks["inputRequests"]["who"]["method"], "elicitation/create");
    let answers = json!({"who": {"action": "accept", "content": {"name": "Ada"}}});
    let update = json!({"taskId": id, "inputResponses": answers});
    let taken = desk
        .newer("one", takes_tasks(), "tasks/update", update)
        .await;
    assert_eq!(taken["result"]["resultType"], "complete", "{taken}");
    let done = settled(&desk, &id).await;
    assert!(done.to_string().contains("Ada"), "{done}");

    let id = begin(&desk, "crm_job_hangs").await;
    let taken = task(&desk, "one", "tasks/cancel", &id).await;
    assert_eq!(taken["result"]["resultType"], "complete", "{taken}");
    assert_eq!(settled(&desk, &id).await["status"], "cancelled");
}

#[tokio::test]
async fn a_task_is_lost_with_its_tool() {
    let upstream = Fake::start(true, false).await;
    let desk = Desk::open(&upstream, &World::default()).await;
    let id = begin(&desk, "crm_job_hangs").await;
    assert!(task(&desk, "one", "tasks/get", &id).await["result"].is_object());
    desk.apply(&World {
        grant: "  expiresAt: '2020-01-01T00:00:00Z'",
        ..World::default()
    });
    let lost = async || task(&desk, "one", "tasks/get", &id).await["error"].is_object();
    eventually("the task is lost", lost).await;
    let before = upstream.seen("tasks/get").len();
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let params = json!({"taskId": id, "inputResponses": {}});
        let refused = desk.newer("one", takes_tasks(), method, params).await;
        assert!(refused["error"].is_object(), "{refused}");
    }
    assert_eq!(upstream.seen("tasks/get").len(), before);
    assert_eq!(upstream.seen("tasks/cancel").len(), 0);
}

#[tokio::test]
async fn for_other_clients_the_gateway_waits_for_a_task() {
    let upstream = Fake::start(true, false).await;
    let world = World {
        source: "  timeout: 2s",
        ..World::default()
    };
    for fast_lane in [true, false] {
        let desk = Desk::open_with(&upstream, &world, fast_lane).await;
        let session = desk.session("one", json!({"elicitation": {}})).await;
        assert_eq!(
            text(&desk.call("one", "crm_job", json!({})).await),
            "done None"
        );
        let answer = desk.call_in("one", &session, "crm_job").await;
        assert_eq!(text(&answer), "done None");
        // Whoever can do without a task gets none.
        let answer = desk.call("one", "crm_job_maybe", json!({})).await;
        assert_eq!(text(&answer), "done at once");

        let failed = desk.call("one", "crm_job_fails", json!({})).await;
        assert_eq!(failed["result"]["isError"], true, "{failed}");
        for call in [
            desk.call("one", "crm_job_hangs", json!({})).await,
            desk.call_in("one", &session, "crm_job_hangs").await,
        ] {
            assert_eq!(call["result"]["isError"], true);
            assert!(text(&call).contains("did not finish in time"), "{call}");
            assert!(text(&call).contains(TASKS), "{call}");
        }
        assert_eq!(upstream.seen("tasks/cancel").len(), 2);

        let call = request(
            "tools/call",
            json!({"name": "crm_job_asks", "arguments": {}}),
        );
        let mut events = desk.older("one", &session, &call).await;
        let question = events.next().await.unwrap();
        assert_eq!(question["method"], "elicitation/create", "{question}");
        let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"name": "Ada"}}});
        desk.older("one", &session, &answer).await;
        let result = events.last().await;
        assert!(text(&result).contains("Ada"), "{result}");
        let asks = desk.call("one", "crm_job_asks", json!({})).await;
        assert!(
            text(&asks).contains("only a client that takes tasks"),
            "{asks}"
        );
        drop(desk);
        upstream.state.forget_calls();
    }
}

// A person allows a call that then goes on as a task: its client looks after both under one id.
#[tokio::test]
async fn a_call_that_was_allowed_goes_on_as_a_task() {
    let upstream = Fake::start(true, false).await;
    let world = World {
        grant: "  permission: ask",
        ..World::default()
    };
    let desk = Desk::open(&upstream, &world).await;
    let id = begin(&desk, "crm_job").await;
    assert!(upstream.seen("tools/call").is_empty());
    let decision = Decision {
        approves: true,
        by: "Ada".to_owned(),
        reason: None,
        remember: None,
    };
    let agent = desk.pipeline.directory.snapshot().unwrap().agents["team.one"].clone();
    let workspace = &agent.workspace.id;
    let approvals = &desk.pipeline.approvals;
    approvals
        .decide(workspace, id.parse().unwrap(), decision)
        .await
        .unwrap();
    let done = settled(&desk, &id).await;
    assert_eq!(done["status"], "completed", "{done}");
    assert_eq!(done["result"]["content"][0]["text"], "done None");
    assert_eq!(upstream.seen("tools/call").len(), 1);
    assert!(!upstream.seen("tasks/get").is_empty());
}
