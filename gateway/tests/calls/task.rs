//! The task family (R-A-060…123).

use std::collections::HashSet;
use std::time::Duration;

use expect_test::expect;
use serde_json::{Value, json};

use crate::harness::{Caller, Gateway};

async fn create(gateway: &Gateway, agent: &Caller, title: &str, assignee: Option<&str>) -> String {
    let mut payload = json!({"title": title, "body": "the body"});
    if let Some(assignee) = assignee {
        payload["assignee"] = assignee.into();
    }
    let arguments = json!({"action": "create", "payload": payload});
    let text = gateway.text(agent, "task", arguments).await;
    let id = text.strip_prefix("task created with id=").unwrap();
    assert!(
        id.len() == 11 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()),
        "{id}"
    );
    id.to_owned()
}

/// Title of the task that `agent` is handed.
async fn dequeue(gateway: &Gateway, agent: &Caller) -> Option<String> {
    let value = gateway.value(agent, "task", json!({"action": "get"})).await;
    value["task"]["title"].as_str().map(str::to_owned)
}

async fn set_status(gateway: &Gateway, agent: &Caller, id: &str, status: &str) -> String {
    let payload = json!({"taskId": id, "status": status});
    gateway
        .text(
            agent,
            "task",
            json!({"action": "updateStatus", "payload": payload}),
        )
        .await
}

// R-A-063, R-A-064, R-A-080…082, R-A-100, R-A-105, R-A-120
#[tokio::test]
async fn a_task_is_read_with_its_conversation() {
    for gateway in Gateway::each().await {
        let (one, two) = (Caller::new("one", "lab"), Caller::new("two", "lab"));
        let id = create(&gateway, &one, "  Fix the door ", None).await;
        for text in ["On my way.", "Done."] {
            let reply = json!({"action": "reply", "payload": {"taskId": id, "text": text}});
            assert_eq!(gateway.text(&two, "task", reply).await, "reply sent");
        }
        let get = json!({"action": "get", "payload": {"taskId": id}});
        let text = gateway.text(&two, "task", get.clone()).await;
        let expected = format!(
            "Task details:\nID: {id}\nTitle: Fix the door\nStatus: notstarted\nDetails: the body"
        );
        assert_eq!(text, expected);
        let value = gateway.value(&two, "task", get).await;
        let task = json!({"id": id, "title": "Fix the door", "body": "the body", "status": "notstarted", "assignee": "agent"});
        assert_eq!(value, json!({"task": task}));

        let page = async |cursor: u32, limit: u32| {
            let payload = json!({"taskId": id, "includeConversation": true, "cursor": cursor, "limit": limit});
            let get = json!({"action": "get", "payload": payload});
            let value = gateway.value(&two, "task", get).await;
            let messages = value["conversation"]["messages"].as_array().unwrap();
            let texts: Vec<String> = messages
                .iter()
                .map(|message| {
                    format!(
                        "{}: {}",
                        message["sender"].as_str().unwrap(),
                        message["text"].as_str().unwrap()
                    )
                })
                .collect();
            (
                texts,
                value["conversation"]["cursor"].clone(),
                value["conversation"]["total"].clone(),
            )
        };
        assert_eq!(
            page(0, 1).await,
            (vec!["agent: On my way.".to_owned()], json!(1), json!(2))
        );
        assert_eq!(
            page(1, 20).await,
            (vec!["agent: Done.".to_owned()], json!(2), json!(2))
        );

        // R-A-003, R-A-064: to another workspace the task does not exist.
        let other = Caller::new("other", "elsewhere");
        for arguments in [
            json!({"action": "get", "taskId": id}),
            json!({"action": "reply", "taskId": id, "text": "t"}),
            json!({"action": "updateStatus", "taskId": id, "status": "ongoing"}),
        ] {
            let refused = gateway.refusal(&other, "task", arguments).await;
            assert!(
                refused.contains(&format!("there is no task {id}")),
                "{refused}"
            );
        }
        assert_eq!(dequeue(&gateway, &other).await, None);
    }
}

// R-A-083, R-A-101, R-A-103, R-A-104, Q4
#[tokio::test]
async fn dequeuing_hands_over_the_oldest_task_of_the_agent_or_null() {
    for gateway in Gateway::each().await {
        let one = Caller::new("one", "lab");
        let get = json!({"action": "get"});
        assert_eq!(gateway.text(&one, "task", get.clone()).await, "null");
        assert_eq!(
            gateway.value(&one, "task", get.clone()).await,
            json!({"task": null})
        );
        create(&gateway, &one, "the human's", Some("human")).await;
        let first = create(&gateway, &one, "first", Some("agent")).await;
        create(&gateway, &one, "second", None).await;
        let text = gateway.text(&one, "task", get).await;
        let expected = format!(
            "Next assigned task:\nID: {first}\nTitle: first\nStatus: notstarted\nDetails: the body"
        );
        assert_eq!(text, expected);
    }
}

// R-A-102, R-A-107, R-A-111, R-A-112, Q5
#[tokio::test]
async fn a_dequeued_task_is_kept_for_its_asker_until_it_is_started_or_the_lease_ends() {
    for gateway in Gateway::each().await {
        let (one, two) = (Caller::new("one", "lab"), Caller::new("two", "lab"));
        let a = create(&gateway, &one, "a", None).await;
        create(&gateway, &one, "b", None).await;
        create(&gateway, &one, "c", None).await;
        let next = async |caller: &Caller| dequeue(&gateway, caller).await.unwrap_or_default();
        // Two workers under one key, and another agent, are three askers.
        assert_eq!(next(&one.worker("w1")).await, "a");
        assert_eq!(next(&one.worker("w2")).await, "b");
        assert_eq!(next(&two).await, "c");
        assert_eq!(next(&one).await, "");
        // The same asker asks again and gets the same, which renews the lease.
        gateway.pass_time(Duration::from_secs(9 * 60));
        assert_eq!(next(&one.worker("w1")).await, "a");
        gateway.pass_time(Duration::from_secs(2 * 60));
        assert_eq!(next(&one).await, "b", "the lease of w2 has ended");
        assert_eq!(next(&one.worker("w1")).await, "a");
        // Once it is ongoing nobody is handed it; put back, anybody.
        assert_eq!(
            set_status(&gateway, &one, &a, "ongoing").await,
            format!("task {a} updated to status=ongoing")
        );
        assert_eq!(
            next(&one.worker("w1")).await,
            "c",
            "the lease of two has ended"
        );
        gateway.pass_time(Duration::from_secs(60 * 60));
        assert_eq!(next(&two).await, "b");
        set_status(&gateway, &one, &a, "notstarted").await;
        assert_eq!(next(&two.worker("w")).await, "a");
    }
}

// R-A-061, R-A-110
#[tokio::test]
async fn any_status_may_follow_any_other() {
    for gateway in Gateway::each().await {
        let one = Caller::new("one", "lab");
        let id = create(&gateway, &one, "t", None).await;
        for status in [
            "ongoing",
            "blocked",
            "rejected",
            "completed",
            "completed",
            "notstarted",
        ] {
            let text = set_status(&gateway, &one, &id, status).await;
            assert_eq!(text, format!("task {id} updated to status={status}"));
            let get = json!({"action": "get", "taskId": id});
            let value = gateway.value(&one, "task", get).await;
            assert_eq!(value["task"]["status"], status);
        }
        let wrong = json!({"action": "updateStatus", "payload": {"taskId": id, "status": "done"}});
        let refused = gateway.refusal(&one, "task", wrong).await;
        expect![[r#"task.updateStatus: status must be one of ongoing, completed, blocked, rejected, notstarted, not "done""#]]
            .assert_eq(&refused);
    }
}

#[tokio::test]
async fn texts_have_bounds() {
    for gateway in Gateway::each().await {
        let one = Caller::new("one", "lab");
        let id = create(&gateway, &one, &"ü".repeat(255), None).await;
        let payload = |title: String, body: String| json!({"action": "create", "payload": {"title": title, "body": body}});
        let reply =
            |text: String| json!({"action": "reply", "payload": {"taskId": id, "text": text}});
        let full = "x".repeat(65_536);
        gateway
            .text(&one, "task", payload("t".into(), full.clone()))
            .await;
        gateway.text(&one, "task", reply(full.clone())).await;
        for (arguments, part) in [
            (
                payload("ü".repeat(256), "b".into()),
                "title is 256 characters long; the limit is 255",
            ),
            (payload(" ".into(), "b".into()), "title is required"),
            (payload("t".into(), "\n".into()), "body is required"),
            (
                payload("t".into(), format!("{full}x")),
                "body is 65537 bytes; the limit is 65536 bytes (64 KiB)",
            ),
            (reply(String::new()), "text is required"),
            (reply(format!("{full}x")), "text is 65537 bytes"),
        ] {
            let refused = gateway.refusal(&one, "task", arguments).await;
            assert!(refused.contains(part), "{part} in {refused}");
        }
        // A page of a conversation stays far below what clients can take, and goes on where it ended.
        for _ in 0..5 {
            gateway.text(&one, "task", reply(full.clone())).await;
        }
        let get = json!({"action": "get", "payload": {"taskId": id, "includeConversation": true, "limit": 100}});
        let value = gateway.value(&one, "task", get).await;
        assert_eq!(value["conversation"]["cursor"], 4);
        assert_eq!(value["conversation"]["total"], 6);
    }
}

// R-A-122, R-A-123, R-A-283…286, R-A-302, design §7
#[tokio::test]
async fn the_older_names_answer_the_same() {
    for gateway in Gateway::each().await {
        let one = Caller::new("one", "lab");
        let call = async |tool: &str, arguments: Value| gateway.text(&one, tool, arguments).await;
        let created = call("createTask", json!({"title": "t", "body": "b"})).await;
        let id = created.strip_prefix("task created with id=").unwrap();
        assert!(
            call("getNextTask", json!({}))
                .await
                .starts_with("Next assigned task:")
        );
        assert!(
            call("getTask", json!({"taskId": id}))
                .await
                .starts_with("Task details:")
        );
        let status = json!({"taskId": id, "status": "ongoing"});
        assert!(
            call("updateTaskStatus", status)
                .await
                .ends_with("status=ongoing")
        );
        assert_eq!(
            call("reply", json!({"chatId": id, "text": "old"})).await,
            "reply sent"
        );
        let flat = json!({"action": "reply", "chatId": id, "text": "flat"});
        assert_eq!(call("task", flat).await, "reply sent");
        let messages = call("getTaskMessages", json!({"taskId": id})).await;
        assert!(
            messages.contains("\"text\":\"old\"") && messages.contains("\"text\":\"flat\""),
            "{messages}"
        );
        let refused = gateway
            .refusal(&one, "getTask", json!({"chatId": id}))
            .await;
        assert!(
            refused.starts_with("task.get: unknown field \"chatId\""),
            "{refused}"
        );
    }
}

// R-A-107, P2: 16 workers empty a queue; nobody gets what another got.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_race_never_share_a_task() {
    const WORKERS: usize = 16;
    const TASKS: usize = 200;
    for gateway in Gateway::each().await {
        let one = Caller::new("one", "lab");
        let titles: Vec<String> = (0..TASKS).map(|n| n.to_string()).collect();
        futures::future::join_all(
            titles
                .iter()
                .map(|title| create(&gateway, &one, title, None)),
        )
        .await;
        let work = (0..WORKERS).map(async |worker: usize| {
            let agent = Caller::new(&format!("worker{worker}"), "lab");
            let mut got = Vec::new();
            loop {
                let value = gateway
                    .value(&agent, "task", json!({"action": "get"}))
                    .await;
                let Some(id) = value["task"]["id"].as_str() else {
                    return got;
                };
                got.push(id.to_owned());
                set_status(&gateway, &agent, id, "ongoing").await;
            }
        });
        let got: Vec<String> = futures::future::join_all(work).await.concat();
        let distinct: HashSet<&String> = got.iter().collect();
        assert_eq!((got.len(), distinct.len()), (TASKS, TASKS));
    }
}
