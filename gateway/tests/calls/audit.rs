//! Every call leaves one row.

use chandlery_gateway::audit::{Noted, Verdict, verify};
use chandlery_gateway::store::StoreUrl;
use futures::StreamExt;
use serde_json::json;
use sqlx::Row;
use sqlx::any::AnyRow;
use tempfile::TempDir;

use crate::harness::{Caller, Database, Gateway};

async fn rows(gateway: &Gateway) -> Vec<AnyRow> {
    let mut reader = gateway.store.read().await.unwrap();
    sqlx::query(
        "select w.name as workspace_name, c.agent, c.agent_uid, c.key_id, a.* from audit a
         join workspace w on w.id = a.workspace join audit_caller c on c.workspace = a.workspace and c.id = a.caller
         order by a.seq",
    )
    .fetch_all(reader.connection())
    .await
    .unwrap()
}

fn digest_of(row: &AnyRow) -> Vec<u8> {
    row.get("arguments_digest")
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
            assert_eq!(digest_of(row).len(), 32);
        }
        assert_eq!(text_of(&rows[0], "agent_uid"), "uid-of-one");
        assert_eq!(rows[0].get::<i64, _>("request_bytes"), 2);
        assert_eq!(rows[0].get::<i64, _>("response_bytes"), text.len() as i64);
        // Equal arguments have equal digests, others have others.
        assert_eq!(digest_of(&rows[3]), digest_of(&rows[4]));
        assert_ne!(digest_of(&rows[0]), digest_of(&rows[1]));
    }
}

/// What is on the disk at this moment, as a crash would leave it.
fn crashed(url: &StoreUrl) -> (TempDir, StoreUrl) {
    let StoreUrl::Sqlite(folder) = url else {
        panic!("a database server has a disk of its own");
    };
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    let url = StoreUrl::Sqlite(copy.path().to_owned());
    (copy, url)
}

// P16: the row of a call that writes is there when the call is answered.
#[tokio::test]
async fn a_call_that_writes_is_answered_after_its_row_is_durable() {
    for gateway in Gateway::each().await {
        let one = Caller::new("one", "lab");
        for count in 1..=5 {
            let save = json!({"action": "save", "payload": {"content": "c"}});
            gateway.text(&one, "memory", save).await;
            let (_folder, url) = match gateway.url() {
                StoreUrl::Sqlite(_) => {
                    let (folder, url) = crashed(gateway.url());
                    (Some(folder), url)
                }
                StoreUrl::Postgres(url) => (None, StoreUrl::Postgres(url.clone())),
            };
            let verdicts = verify(&url, &"audit-key".into(), &[]).await.unwrap();
            let found: Vec<_> = verdicts.iter().map(|verdict| verdict.sound).collect();
            assert_eq!((found, &verdicts[0].flaw), (vec![count], &None));
        }
    }
}

// P16: after a crash each row is there once, those of the calls that only read and came before a call that writes
// among them, and the chain goes on behind them.
#[tokio::test]
async fn what_a_crash_left_in_the_journal_is_brought_to_the_database() {
    let mut gateway = Gateway::on(Database::sqlite()).await;
    let one = Caller::new("one", "lab");
    let two = Caller::new("two", "office");
    let save = || json!({"action": "save", "payload": {"content": "c"}});
    let mut folders = Vec::new();
    for round in 1..=3 {
        for caller in [&one, &two] {
            gateway.text(caller, "agnt_datetime_now", json!({})).await;
            let many = (0..20).map(|_| gateway.text(caller, "memory", save()));
            futures::future::join_all(many).await;
        }
        let (folder, left) = crashed(gateway.url());
        folders.push(folder);
        let verdicts = verify(&left, &"audit-key".into(), &[]).await.unwrap();
        let found: Vec<_> = verdicts
            .iter()
            .map(|verdict| (verdict.sound, verdict.flaw.as_deref()))
            .collect();
        assert_eq!(found, [(21 * round, None); 2]);
        gateway = Gateway::on(Database::at(left)).await;
    }
    gateway.pipeline.audit.close().await;
    assert_eq!(rows(&gateway).await.len(), 2 * 21 * 3);
}

// P16: rows in the journal that were changed, or that do not follow the chain, are not taken for rows.
#[tokio::test]
async fn a_journal_that_was_tampered_with_adds_nothing() {
    let gateway = Gateway::on(Database::sqlite()).await;
    let one = Caller::new("one", "lab");
    let save = || json!({"action": "save", "payload": {"content": "c"}});
    gateway.text(&one, "memory", save()).await;
    let (folder, url) = crashed(gateway.url());
    let journal = folder.path().join("audit.0.journal");
    let text = std::fs::read_to_string(&journal).unwrap();
    assert!(text.contains("\"outcome\":\"done\""), "{text}");
    std::fs::write(&journal, text.replace("\"done\"", "\"none\"")).unwrap();
    let sound = async |url: &StoreUrl| {
        let verdicts = verify(url, &"audit-key".into(), &[]).await.unwrap();
        assert_eq!(verdicts[0].flaw, None);
        verdicts[0].sound
    };
    // Only if the database had it already.
    let before = sound(&url).await;
    assert!(before <= 1);
    let again = Gateway::on(Database::at(url)).await;
    again.text(&one, "memory", save()).await;
    again.pipeline.audit.close().await;
    assert_eq!(sound(again.url()).await, before + 1);
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

/// What verifying says, and the chain's one verdict.
async fn verdict(gateway: &Gateway, noted: &[Noted]) -> Verdict {
    let key = "audit-key".into();
    let verdicts = verify(gateway.url(), &key, noted).await.unwrap();
    assert_eq!(verdicts.len(), 1, "{verdicts:?}");
    verdicts.into_iter().next().unwrap()
}

async fn tamper(gateway: &Gateway, sql: &'static str) {
    gateway
        .store
        .write(move |tx| {
            Box::pin(async move {
                for sql in sql.split(';') {
                    sqlx::query(sql).execute(tx.connection()).await.unwrap();
                }
                Ok::<_, chandlery_gateway::store::StoreError>(())
            })
        })
        .await
        .unwrap();
}

// P16: a changed, missing, reordered, added or truncated row is found, and which one it is.
#[tokio::test]
async fn tampering_with_the_rows_shows() {
    for (sql, expected) in [
        (
            "update audit set outcome = 'refused' where seq = 3",
            "row 3 is not what was written",
        ),
        (
            "update audit set at = at + 1 where seq = 1",
            "row 1 is not what was written",
        ),
        (
            "update audit_caller set agent = 'demo.other'",
            "row 1 is not what was written",
        ),
        (
            "update audit set duration_us = duration_us + 1 where seq = 5",
            "row 5 is not what was written",
        ),
        ("delete from audit where seq = 4", "row 4 is missing"),
        ("delete from audit where seq = 1", "row 1 is missing"),
        (
            "delete from audit where seq > 6",
            "rows 7 to 8 are missing at the end",
        ),
        (
            "update audit set seq = 100 where seq = 2;update audit set seq = 2 where seq = 3;update audit set seq = 3 where seq = 100",
            "row 2 is not what was written",
        ),
        (
            "insert into audit select workspace, 9, id + 1, at, caller, tool, decision, outcome, duration_us, request_bytes, response_bytes, arguments_digest, arguments, mac from audit where seq = 8",
            "row 9 is not what was written",
        ),
        ("update audit_head set seq = 5", "the head names row 5"),
        ("delete from audit_head", "the head is missing"),
        (
            "update audit set seq = 0 where seq = 8;update audit_head set seq = 7, mac = (select mac from audit where audit.seq = 7)",
            "row 0 was put in",
        ),
        (
            "update workspace set name = 'demo.other' where name = 'demo.lab'",
            "row 1 is not what was written",
        ),
        ("delete from audit", "rows 1 to 8 are missing at the end"),
    ] {
        for gateway in Gateway::each().await {
            let one = Caller::new("one", "lab");
            for count in 0..8 {
                let name = if count % 2 == 0 {
                    "agnt_datetime_now"
                } else {
                    "nothing"
                };
                gateway.answer(&one, name, json!({})).await;
            }
            gateway.pipeline.audit.close().await;
            let before = verdict(&gateway, &[]).await;
            assert_eq!((before.sound, before.flaw), (8, None));
            tamper(&gateway, sql).await;
            let after = verdict(&gateway, &[]).await;
            let flaw = after.flaw.unwrap_or_else(|| panic!("not found: {sql}"));
            assert!(flaw.contains(expected), "{sql}: {flaw}");
        }
    }
}

// P16: a chain that was cut off together with its head, or written anew, shows by a head that was noted.
#[tokio::test]
async fn a_noted_head_shows_what_the_store_cannot() {
    for gateway in Gateway::each().await {
        let one = Caller::new("one", "lab");
        for _ in 0..8 {
            gateway.text(&one, "agnt_datetime_now", json!({})).await;
        }
        gateway.pipeline.audit.close().await;
        let head = verdict(&gateway, &[]).await;
        let noted = |seq, mac: &str| {
            let (workspace, mac) = ("demo.lab".to_owned(), mac.to_owned());
            [Noted {
                workspace,
                seq,
                mac,
            }]
        };
        assert_eq!(verdict(&gateway, &noted(8, &head.mac)).await.flaw, None);
        let other = verdict(&gateway, &noted(8, &"0".repeat(64))).await;
        assert!(
            other
                .flaw
                .unwrap()
                .contains("row 8 is not the one that was noted")
        );
        tamper(
            &gateway,
            "delete from audit where seq > 5;update audit_head set seq = 5, mac = (select mac from audit where audit.seq = 5)",
        )
        .await;
        assert_eq!(verdict(&gateway, &[]).await.flaw, None);
        let cut = verdict(&gateway, &noted(8, &head.mac)).await;
        assert!(
            cut.flaw
                .unwrap()
                .contains("rows 6 to 8 are missing at the end")
        );
    }
}

// P16: two replicas that write at once keep one chain.
#[tokio::test]
async fn two_replicas_keep_one_chain() {
    let Ok(server) = std::env::var("TEST_DATABASE_URL") else {
        return;
    };
    let first = Gateway::on(Database::postgres(&server).await).await;
    let second = Gateway::on(Database::beside(first.url())).await;
    let one = Caller::new("one", "lab");
    let calls = (0..1_000).map(|at| {
        let gateway = if at % 2 == 0 { &first } else { &second };
        gateway.text(&one, "memory", json!({"action": "load"}))
    });
    // As many at once as a reader's wait allows.
    let mut calls = futures::stream::iter(calls).buffer_unordered(50);
    while calls.next().await.is_some() {}
    for gateway in [&first, &second] {
        gateway.pipeline.audit.close().await;
    }
    let found = verdict(&first, &[]).await;
    assert_eq!((found.sound, found.flaw), (1_000, None));
}

// Arguments are kept in clear only where the Workspace says so, and then they are part of the chain.
#[tokio::test]
async fn arguments_are_kept_only_where_the_workspace_says_so() {
    for gateway in Gateway::each().await {
        let quiet = Caller::new("one", "quiet");
        let open = Caller::in_workspace("two", "open", json!({"auditArguments": "Clear"}));
        for caller in [&quiet, &open] {
            gateway
                .text(
                    caller,
                    "agnt_datetime_now",
                    json!({"timezone": "Europe/Berlin"}),
                )
                .await;
        }
        gateway.pipeline.audit.close().await;
        let kept: Vec<Option<String>> = rows(&gateway)
            .await
            .iter()
            .map(|row| row.get("arguments"))
            .collect();
        let said: Vec<&str> = kept.iter().flatten().map(String::as_str).collect();
        assert_eq!(
            (kept.len(), said),
            (2, vec![r#"{"timezone":"Europe/Berlin"}"#])
        );
        tamper(
            &gateway,
            "update audit set arguments = '{}' where arguments is not null",
        )
        .await;
        let verdicts = verify(gateway.url(), &"audit-key".into(), &[]).await;
        let flawed: Vec<String> = verdicts
            .unwrap()
            .into_iter()
            .filter(|verdict| verdict.flaw.is_some())
            .map(|verdict| verdict.workspace)
            .collect();
        assert_eq!(flawed, ["demo.open"]);
    }
}

// P16: a gateway that goes on writing is not taken for somebody who tampers.
#[tokio::test]
async fn a_chain_can_be_verified_while_it_grows() {
    for gateway in Gateway::each().await {
        let one = Caller::new("one", "lab");
        let calls = async {
            for _ in 0..40 {
                let more = (0..20).map(|_| gateway.text(&one, "agnt_datetime_now", json!({})));
                futures::future::join_all(more).await;
            }
        };
        let verifying = async {
            for _ in 0..20 {
                let key = "audit-key".into();
                let verdicts = verify(gateway.url(), &key, &[]).await;
                for verdict in verdicts.unwrap() {
                    assert_eq!(verdict.flaw, None);
                }
            }
        };
        futures::future::join(calls, verifying).await;
        gateway.pipeline.audit.close().await;
        let found = verdict(&gateway, &[]).await;
        assert_eq!((found.sound, found.flaw), (800, None));
    }
}
