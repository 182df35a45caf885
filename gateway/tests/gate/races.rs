//! A thousand approvals, raced: no execution without an approval, and none twice.

use std::time::Duration;

use chandlery_crds::Level;
use chandlery_gateway::approvals::{Standpoint, Wanted};
use futures::future::join;
use serde_json::{Value, json};

use crate::harness::{Desk, Said, WORKSPACE, agent};

const TOOL: &str = "agnt_queues_enqueue";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_thousand_raced_approvals_run_what_was_approved_and_only_once() {
    let permissions = "permissions: {tools: {agnt_queues_enqueue: always_ask}}";
    let desk = Desk::open(&[WORKSPACE.to_owned(), agent("one", permissions)].concat()).await;
    let desk = &desk;
    let mut approved = Vec::new();
    // In rounds, since an agent may have a hundred open.
    for round in 0..20 {
        let races = (0..50).map(|at| async move {
            let number = round * 50 + at;
            let arguments = json!({"amount": number});
            let call = || desk.call("one", TOOL, arguments.clone());
            let id = call().await.approval().to_owned();
            let approve = || async { desk.approve(&id).await == 200 };
            let deny = || async {
                let path = format!("/approvals/{id}/deny");
                desk.api("POST", &path, Value::Null).await.0 == 200
            };
            let is_approved = match number % 5 {
                // Two approvers at once: one of them decides.
                0 => {
                    let (one, other) = join(approve(), approve()).await;
                    assert!(one ^ other);
                    true
                }
                // Approved and denied at once: what came first counts.
                1 => {
                    let (yes, no) = join(approve(), deny()).await;
                    assert!(yes ^ no);
                    yes
                }
                // Called again while it is decided.
                2 => {
                    let (yes, _) = join(approve(), call()).await;
                    yes
                }
                // Changed arguments after the approval.
                3 => {
                    assert!(approve().await);
                    let changed = json!({"amount": number, "rows": [1]});
                    desk.call("one", TOOL, changed).await.approval();
                    // Make room again.
                    let (_, open) = desk
                        .api("GET", "/approvals?state=pending&limit=200", Value::Null)
                        .await;
                    for item in open["items"].as_array().unwrap() {
                        if item["arguments"] == json!({"amount": number, "rows": [1]}) {
                            let path = format!("/approvals/{}/deny", item["id"].as_str().unwrap());
                            desk.api("POST", &path, Value::Null).await;
                        }
                    }
                    true
                }
                _ => !deny().await,
            };
            // The client retries, twice at once.
            let (first, second) = join(call(), call()).await;
            let third = call().await;
            for said in [first, second, third] {
                match said {
                    Said::Text(_) => assert!(is_approved, "{number} ran without an approval"),
                    Said::Refused(_) | Said::Awaiting(_) => {}
                    other => panic!("{other:?}"),
                }
            }
            (number, is_approved)
        });
        approved.extend(futures::future::join_all(races).await);
    }
    let executed = desk.executed.of(TOOL);
    for (number, is_approved) in approved {
        let count = executed
            .iter()
            .filter(|arguments| arguments["amount"] == number)
            .count();
        assert_eq!(count, usize::from(is_approved), "number {number}");
    }
}

// Between the decision and the end of the call the gateway dies: what may have run never runs again.
#[tokio::test]
async fn a_call_that_began_and_never_ended_is_not_run_again() {
    let permissions = "permissions: {tools: {agnt_queues_enqueue: always_ask}}";
    let desk = Desk::open(&[WORKSPACE.to_owned(), agent("one", permissions)].concat()).await;
    let id = desk
        .call("one", TOOL, json!({"amount": 1}))
        .await
        .approval()
        .to_owned();
    assert_eq!(desk.approve(&id).await, 200);
    let snapshot = desk.pipeline.directory.snapshot().unwrap();
    let wanted = Wanted {
        agent: &snapshot.agents["team.one"],
        tool: TOOL,
        arguments: r#"{"amount":1}"#,
        worker: None,
        level: Level::AlwaysAsk,
    };
    // Claimed, and then nothing: as kill -9 leaves it.
    let claimed = desk.pipeline.approvals.stand(&wanted).await.unwrap();
    assert!(matches!(claimed, Standpoint::Claimed(..)));
    let said = desk.call("one", TOOL, json!({"amount": 1})).await;
    assert!(said.refusal().contains("its end is not known"), "{said:?}");
    desk.pass_time(Duration::from_secs(601));
    // Given up: a person is asked anew.
    let next = desk
        .call("one", TOOL, json!({"amount": 1}))
        .await
        .approval()
        .to_owned();
    assert_ne!(next, id);
    assert_eq!(desk.executed.count(TOOL), 0);
    desk.close().await;
}
