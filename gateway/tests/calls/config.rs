//! What an agent asks about itself (R-C-044, R-C-077…083).

use std::time::Duration;

use chandlery_gateway::families::config::{Config, ConfigRequests, Decided, Decision, Status};
use chandlery_gateway::family::Family;
use chandlery_gateway::pipeline::Answer;
use chandlery_gateway::store::Id;
use serde_json::{Value, json};

use crate::harness::{Caller, Gateway};

const ASK: &str = "agnt_request_config_change";
const LIST: &str = "agnt_list_config_requests";
const DIRECTIVES: &str = "agnt_update_self_directives";

fn ask(summary: &str, patch: Value) -> Value {
    json!({"summary": summary, "patch": patch})
}

impl Gateway {
    /// Files a request; its id.
    async fn asked(&self, agent: &Caller, arguments: Value) -> String {
        let answer = self.value(agent, ASK, arguments).await;
        assert_eq!(answer["status"], "open");
        answer["request_id"].as_str().unwrap().to_owned()
    }

    /// The requests that the agent sees, each as `<summary> <status>`.
    async fn seen(&self, agent: &Caller, filter: Value) -> Vec<String> {
        let list = self.value(agent, LIST, filter).await;
        let shown = |row: &Value| {
            let text = |field: &str| row[field].as_str().unwrap().to_owned();
            format!("{} {}", text("summary"), text("status"))
        };
        list["requests"]
            .as_array()
            .unwrap()
            .iter()
            .map(shown)
            .collect()
    }
}

fn decision(approves: bool, reason: Option<&str>) -> Decision {
    Decision {
        approves,
        by: "ada".into(),
        reason: reason.map(str::to_owned),
    }
}

// R-C-044, R-C-077, R-C-078
#[tokio::test]
async fn a_person_decides_about_a_request_once() {
    for gateway in Gateway::each().await {
        let one = Caller::new("one", "lab");
        let patch = json!({"tools": ["crm/list_customers"], "workspaceDb": {"readOnly": true}});
        let arguments = json!({"summary": "the customers", "patch": patch, "blocking": true});
        let id = gateway.asked(&one, arguments).await;
        let people = ConfigRequests::new(gateway.store.clone());
        let row: Id = id.parse().unwrap();
        let found = people.get("demo.lab", row).await.unwrap().unwrap();
        assert_eq!((&*found.agent, found.is_blocking), ("demo.one", true));
        assert_eq!(serde_json::from_str::<Value>(&found.patch).unwrap(), patch);

        // Another Workspace's people have no such row.
        let elsewhere = people.decide("demo.other", row, decision(true, None)).await;
        assert!(elsewhere.unwrap().is_none());
        let no = decision(false, Some("not before May"));
        let decided = people.decide("demo.lab", row, no).await.unwrap();
        assert!(matches!(decided, Some(Decided::Now(row)) if row.status == Status::Rejected));
        let late = people
            .decide("demo.lab", row, decision(true, None))
            .await
            .unwrap();
        assert!(
            matches!(late, Some(Decided::Before(row)) if row.decided_by.as_deref() == Some("ada") && row.status == Status::Rejected)
        );

        let list = gateway.value(&one, LIST, json!({})).await;
        let shown = &list["requests"][0];
        assert_eq!(shown["id"], id);
        assert_eq!(shown["patch"], patch);
        assert_eq!(shown["reason"], "not before May");
        assert!(
            shown["decided_at"].is_string() && shown["created_at"].is_string(),
            "{shown}"
        );
        // Nothing of the agent's config has changed by that.
        assert!(one.agent.spec.tools.is_empty());
    }
}

// R-C-078: an agent sees its own requests alone, newest first; one that is made again under the same name sees none.
#[tokio::test]
async fn an_agent_sees_its_own_requests() {
    for gateway in Gateway::each().await {
        let (one, two) = (Caller::new("one", "lab"), Caller::new("two", "lab"));
        let mut ids = Vec::new();
        for (agent, summary) in [(&one, "a"), (&two, "b"), (&one, "c"), (&one, "d")] {
            ids.push(
                gateway
                    .asked(agent, ask(summary, json!({"displayName": summary})))
                    .await,
            );
        }
        let people = ConfigRequests::new(gateway.store.clone());
        let id: Id = ids[2].parse().unwrap();
        people
            .decide("demo.lab", id, decision(true, None))
            .await
            .unwrap();
        assert_eq!(
            gateway.seen(&one, json!({})).await,
            ["d open", "c approved", "a open"]
        );
        assert_eq!(
            gateway
                .seen(&one, json!({"status": "open", "limit": 1}))
                .await,
            ["d open"]
        );
        assert_eq!(
            gateway.seen(&one, json!({"status": "approved"})).await,
            ["c approved"]
        );
        assert_eq!(gateway.seen(&two, json!({})).await, ["b open"]);
        assert!(gateway.seen(&one.made_again(), json!({})).await.is_empty());
        let more = gateway.value(&one, LIST, json!({"limit": 2})).await["more"].clone();
        assert_eq!(more, true);

        // People see all of the Workspace, page by page.
        let page = people.list("demo.lab", None, None, 3).await.unwrap();
        let summaries: Vec<&str> = page.iter().map(|row| &*row.summary).collect();
        assert_eq!(summaries, ["d", "c", "b"]);
        let last = page.last().map(|row| row.id);
        let page = people
            .list("demo.lab", Some(Status::Open), last, 3)
            .await
            .unwrap();
        assert_eq!(page.len(), 1);
        assert_eq!(page[0].summary, "a");
    }
}

// R-C-077: the same patch again takes the place of the request before, however it is written.
#[tokio::test]
async fn the_same_patch_again_supersedes_the_open_request() {
    for gateway in Gateway::each().await {
        let one = Caller::new("one", "lab");
        let patch = json!({"displayName": "A", "workspaceDb": {"readOnly": true, "enabled": true}});
        let first = gateway.asked(&one, ask("first", patch)).await;
        let patch = json!({"workspaceDb": {"enabled": true, "readOnly": true}, "displayName": "A"});
        let second = gateway.asked(&one, ask("second", patch)).await;
        assert_ne!(first, second);
        assert_eq!(
            gateway.seen(&one, json!({})).await,
            ["second open", "first superseded"]
        );
        let people = ConfigRequests::new(gateway.store.clone());
        let late = people
            .decide("demo.lab", first.parse().unwrap(), decision(true, None))
            .await
            .unwrap();
        assert!(matches!(late, Some(Decided::Before(row)) if row.status == Status::Superseded));
        // Another agent's is another request.
        let two = Caller::new("two", "lab");
        gateway
            .asked(&two, ask("other", json!({"displayName": "A"})))
            .await;
        gateway
            .asked(&one, ask("third", json!({"displayName": "A"})))
            .await;
        assert_eq!(gateway.seen(&two, json!({})).await, ["other open"]);
        // What is no longer open is forgotten some time.
        gateway.pass_time(Duration::from_secs(91 * 24 * 3600));
        gateway
            .asked(&one, ask("fourth", json!({"displayName": "B"})))
            .await;
        assert_eq!(
            gateway.seen(&one, json!({})).await,
            ["fourth open", "third open", "second open"]
        );
    }
}

// R-C-077: many callers with one patch leave one open request.
#[tokio::test]
async fn requests_of_one_moment_leave_one_open() {
    for gateway in Gateway::each().await {
        let one = Caller::new("one", "lab");
        let calls = (0..4).map(|_| gateway.asked(&one, ask("s", json!({"displayName": "A"}))));
        futures::future::join_all(calls).await;
        assert_eq!(
            gateway.seen(&one, json!({"status": "open"})).await,
            ["s open"]
        );
        assert_eq!(gateway.seen(&one, json!({})).await.len(), 4);
    }
}

// R-C-077: bounds, each with a sentence.
#[tokio::test]
async fn what_is_wrong_with_a_request_is_said() {
    for gateway in Gateway::each().await {
        let one = Caller::new("one", "lab");
        let named = |field: &str, value: Value| json!({"summary": "s", "patch": {field: value}});
        for (arguments, part) in [
            (json!({}), "summary is required (string)"),
            (json!({"summary": "s"}), "patch is required (object)"),
            (
                ask(" ", json!({"displayName": "A"})),
                "summary must not be empty",
            ),
            (
                ask(&"é".repeat(1_001), json!({"displayName": "A"})),
                "summary is 1001 characters long; the limit is 1000",
            ),
            (
                ask("s", json!("{}")),
                "patch must be an object, not a string",
            ),
            (ask("s", json!({})), "patch is empty"),
            (
                named("displayName", json!("x".repeat(17_000))),
                "patch is 17018 bytes",
            ),
            (
                json!({"summary": "s", "patch": {"displayName": "A"}, "urgent": true}),
                "there is no argument \"urgent\"; the arguments are",
            ),
            (
                json!({"summary": "s", "patch": {"displayName": "A"}, "blocking": "yes"}),
                "blocking must be a boolean, not a string",
            ),
            // What would not be taken as a manifest is no use to anybody.
            (named("toools", json!([])), "spec.toools"),
            (named("tools", json!("task")), "spec.tools"),
            (named("state", json!("Sleeping")), "spec.state"),
            (
                named("listing", json!("PerOperation")),
                "patch may not change listing",
            ),
            (
                named("workspaceRef", json!({"name": "b"})),
                "patch may not change workspaceRef",
            ),
        ] {
            let refused = gateway.refusal(&one, ASK, arguments).await;
            assert!(
                refused.starts_with("agnt_request_config_change: "),
                "{refused}"
            );
            assert!(refused.contains(part), "{part} in {refused}");
        }
        for (arguments, part) in [
            (
                json!({"status": "new"}),
                "status must be one of open, approved, rejected, superseded, not \"new\"",
            ),
            (
                json!({"limit": 0}),
                "limit must be an integer from 1 to 50, not 0",
            ),
            (json!({"limit": 51}), "not 51"),
            (json!({"page": 1}), "there is no argument \"page\""),
        ] {
            let refused = gateway.refusal(&one, LIST, arguments).await;
            assert!(refused.contains(part), "{part} in {refused}");
        }
        assert!(gateway.seen(&one, json!({})).await.is_empty());
    }
}

// R-C-077: at most 100 are open at once.
#[tokio::test]
async fn an_agent_has_at_most_a_hundred_open_requests() {
    for gateway in Gateway::each().await {
        let one = Caller::new("one", "lab");
        let patch = |n: u32| ask("s", json!({"displayName": n.to_string()}));
        for n in 0..100 {
            gateway.asked(&one, patch(n)).await;
        }
        match gateway.answer(&one, ASK, patch(100)).await {
            Answer::Failed(error) => {
                assert!(error.message.contains("100 of your requests"), "{error}")
            }
            other => panic!("{other:?}"),
        }
        // One that takes another's place is no more.
        gateway.asked(&one, patch(7)).await;
        // Another agent has its own hundred.
        gateway.asked(&Caller::new("two", "lab"), patch(100)).await;
    }
}

// R-C-079, R-C-080, R-C-082
#[tokio::test]
async fn directives_are_rewritten_up_to_4000_characters() {
    for gateway in Gateway::each().await {
        let one = Caller::new("one", "lab");
        let people = ConfigRequests::new(gateway.store.clone());
        let kept = async || people.directives("demo.lab", "uid-of-one").await.unwrap();
        assert_eq!(kept().await, None);
        // Characters, not bytes.
        for text in ["first".to_owned(), "é".repeat(4_000)] {
            let value = json!({"chars": text.chars().count(), "effective": "next_session"});
            let answer = gateway
                .value(&one, DIRECTIVES, json!({"directives": text}))
                .await;
            assert_eq!(answer, value);
            assert_eq!(kept().await, Some(text));
        }
        let long = json!({"directives": "é".repeat(4_001)});
        let refused = gateway.refusal(&one, DIRECTIVES, long).await;
        assert_eq!(
            refused,
            "agnt_update_self_directives: directives is 4001 characters long; the limit is 4000, and nothing was done: shorten it"
        );
        for (arguments, part) in [
            (json!({}), "directives is required"),
            (
                json!({"directives": 5}),
                "directives must be a string, not a number",
            ),
            (json!({"directives": "a\0b"}), "directives contains a NUL"),
            (
                json!({"directives": "a", "append": true}),
                "no argument \"append\"; the only one is directives",
            ),
        ] {
            let refused = gateway.refusal(&one, DIRECTIVES, arguments).await;
            assert!(refused.contains(part), "{part} in {refused}");
        }
        assert_eq!(kept().await, Some("é".repeat(4_000)));
        let cleared = gateway
            .value(&one, DIRECTIVES, json!({"directives": ""}))
            .await;
        assert_eq!(cleared["chars"], 0);
        assert_eq!(kept().await, None);
    }
}

// R-C-083: whatever the config says.
#[tokio::test]
async fn every_agent_has_these_tools() {
    for gateway in Gateway::each().await {
        let spec = json!({"workspaceToolsEnabled": false, "dataJobsEnabled": false, "workspaceDb": {"enabled": false}});
        let bare = Caller::with_spec("bare", "lab", spec);
        gateway
            .asked(&bare, ask("s", json!({"workspaceToolsEnabled": true})))
            .await;
        assert_eq!(gateway.seen(&bare, json!({})).await, ["s open"]);
        gateway
            .text(&bare, DIRECTIVES, json!({"directives": "d"}))
            .await;
        gateway
            .text(&bare, "agnt_support_tickets_list", json!({}))
            .await;
    }
}

// R-C-081: a store that is away keeps no session from beginning.
#[tokio::test]
async fn directives_that_cannot_be_read_are_left_out() {
    for gateway in Gateway::each().await {
        let one = Caller::new("one", "lab");
        gateway
            .text(&one, DIRECTIVES, json!({"directives": "d"}))
            .await;
        let config = Config::new(gateway.store.clone());
        let told = config.standing(&one.agent).await.unwrap();
        assert!(told.ends_with("\n\nd"), "{told}");
        gateway.store.close().await;
        assert_eq!(config.standing(&one.agent).await, None);
    }
}
