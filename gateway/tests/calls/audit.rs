//! Every call leaves one row.

use serde_json::json;
use sqlx::Row;
use sqlx::any::AnyRow;

use crate::harness::{Caller, Database, Gateway};

async fn rows(gateway: &Gateway) -> Vec<AnyRow> {
    let mut reader = gateway.store.read().await.unwrap();
    sqlx::query(
        "select w.name as workspace_name, a.* from audit a join workspace w on w.id = a.workspace order by a.id",
    )
    .fetch_all(reader.connection())
    .await
    .unwrap()
}

// P16
#[tokio::test]
async fn every_call_leaves_one_row_refusals_included() {
    for gateway in Gateway::each().await {
        let one = Caller::new("one", "lab");
        let bare = Caller::with_spec("bare", "lab", json!({"workspaceToolsEnabled": false}));
        let text = gateway.text(&one, "agnt_datetime_now", json!({})).await;
        gateway
            .answer(
                &one,
                "task",
                json!({"action": "create", "payload": {"title": "t", "body": "the secret b"}}),
            )
            .await;
        gateway
            .answer(&one, "createTask", json!({"title": "t"}))
            .await;
        gateway
            .answer(&one, "memory", json!({"action": "load"}))
            .await;
        gateway
            .answer(&bare, "memory", json!({"action": "load"}))
            .await;
        gateway.answer(&one, &"x".repeat(1000), json!({})).await;
        gateway.pipeline.audit.close().await;

        let rows = rows(&gateway).await;
        let text_of = |row: &AnyRow, column: &str| row.get::<String, _>(column);
        let told: Vec<[String; 4]> = rows
            .iter()
            .map(|row| ["agent", "tool", "decision", "outcome"].map(|column| text_of(row, column)))
            .collect();
        let long = "x".repeat(128);
        let expected = [
            ["demo.one", "agnt_datetime_now", "permit", "done"],
            ["demo.one", "task.create", "permit", "done"],
            ["demo.one", "task.create", "permit", "bad_arguments"],
            ["demo.one", "memory.load", "permit", "done"],
            ["demo.bare", "memory.load", "not_listed", "unknown_tool"],
            ["demo.one", long.as_str(), "unknown_tool", "unknown_tool"],
        ];
        assert_eq!(told, expected);
        for row in &rows {
            assert_eq!(text_of(row, "workspace_name"), "demo.lab");
            assert_eq!(text_of(row, "key_id"), "k1");
            assert_eq!(text_of(row, "arguments_digest").len(), 64);
        }
        assert_eq!(text_of(&rows[0], "agent_uid"), "uid-of-one");
        assert_eq!(rows[0].get::<i64, _>("request_bytes"), 2);
        assert_eq!(rows[0].get::<i64, _>("response_bytes"), text.len() as i64);
        // Equal arguments have equal digests, others have others.
        assert_eq!(
            text_of(&rows[3], "arguments_digest"),
            text_of(&rows[4], "arguments_digest")
        );
        assert_ne!(
            text_of(&rows[0], "arguments_digest"),
            text_of(&rows[1], "arguments_digest")
        );
    }
}

// P16: the row of a call that writes is there when the call is answered.
#[tokio::test]
async fn a_call_that_writes_is_answered_after_its_row_is_durable() {
    for gateway in Gateway::each().await {
        let one = Caller::new("one", "lab");
        for count in 1..=5 {
            gateway
                .text(
                    &one,
                    "memory",
                    json!({"action": "save", "payload": {"content": "c"}}),
                )
                .await;
            assert_eq!(rows(&gateway).await.len(), count);
        }
    }
}

// P16: no row is dropped, however many calls come at once.
#[tokio::test]
async fn many_calls_at_once_leave_as_many_rows() {
    for gateway in Gateway::each().await {
        let one = Caller::new("one", "lab");
        let calls = (0..3_000).map(|_| gateway.text(&one, "agnt_datetime_now", json!({})));
        futures::future::join_all(calls).await;
        gateway.pipeline.audit.close().await;
        assert_eq!(rows(&gateway).await.len(), 3_000);
    }
}

#[tokio::test]
async fn calls_after_the_end_are_refused_and_do_nothing() {
    let gateway = Gateway::on(Database::sqlite()).await;
    let one = Caller::new("one", "lab");
    gateway.pipeline.audit.close().await;
    let answer = gateway
        .answer(
            &one,
            "memory",
            json!({"action": "save", "payload": {"content": "c"}}),
        )
        .await;
    assert!(
        format!("{answer:?}").contains("nothing was done"),
        "{answer:?}"
    );
    assert_eq!(rows(&gateway).await.len(), 0);
}
