//! Why an agent has a tool or not, and what a change would do.

use serde_json::{Value, json};

use crate::harness::{Desk, agent, grant, workspace};

fn manifests(more: &str) -> String {
    let mut all = workspace("grantRequired: ['agnt_queues_*']");
    all.push_str(&agent(
        "one",
        "tools: [agnt_report], permissions: {default: ask, tools: {'agnt_db_*': always_ask, agnt_db_status: act}}",
    ));
    all.push_str(more);
    all
}

async fn row(desk: &Desk, tool: &str) -> Value {
    let (status, answer) = desk.api("GET", "/agents/team.one/tools", Value::Null).await;
    assert_eq!(status, 200, "{answer}");
    let tools = answer["tools"].as_array().unwrap();
    let row = tools.iter().find(|row| row["tool"] == tool);
    row.unwrap_or_else(|| panic!("{tool} is not explained"))
        .clone()
}

#[track_caller]
fn check(row: &Value, seen: bool, level: Value, words: &[&str]) {
    assert_eq!(row["seen"], seen, "{row}");
    assert_eq!(row["level"], level, "{row}");
    for words in words {
        assert!(row["steps"].to_string().contains(words), "{words}: {row}");
    }
}

#[tokio::test]
async fn each_tool_is_seen_or_not_for_a_reason() {
    let desk = Desk::open(&manifests("")).await;
    check(
        &row(&desk, "agnt_files_list").await,
        true,
        json!("ask"),
        &["every agent has it", "permissions.default"],
    );
    check(
        &row(&desk, "agnt_report").await,
        true,
        json!("ask"),
        &["named by agnt_report in spec.tools"],
    );
    check(
        &row(&desk, "agnt_db_select").await,
        true,
        json!("always_ask"),
        &[
            "served by workspaceDb.enabled: true",
            "permissions.tools[agnt_db_*]",
        ],
    );
    check(
        &row(&desk, "agnt_db_status").await,
        true,
        json!("act"),
        &["permissions.tools[agnt_db_status]"],
    );
    check(
        &row(&desk, "agnt_db_apply_migration").await,
        false,
        Value::Null,
        &["write workspaceDb.allowApplyMigration: true"],
    );
    check(
        &row(&desk, "notify_human").await,
        false,
        Value::Null,
        &["add notify_human there"],
    );
    check(
        &row(&desk, "agnt_queues_enqueue").await,
        false,
        Value::Null,
        &[
            "agnt_queues_* in grantRequired",
            "no ToolGrant gives this agent",
        ],
    );
    desk.apply(&manifests(&[
        grant("others", "agents: {names: [two]}, tools: ['agnt_queues_*']"),
        grant(
            "mine",
            "agents: {names: [one]}, tools: ['agnt_queues_*'], permission: always_ask, limits: {callsPerMinute: 7}, \
             constraints: [{name: small, cel: 'args.amount < 9', message: less}]",
        ),
        grant("past", "agents: {all: true}, tools: ['agnt_queues_*'], expiresAt: '2020-01-01T00:00:00Z'"),
    ]
    .concat()))
    .await;
    check(
        &row(&desk, "agnt_queues_enqueue").await,
        true,
        json!("always_ask"),
        &[
            "ToolGrant mine gives it",
            "args.amount < 9 (small) holds",
            "7 calls per minute",
            "ToolGrant others names the tool, but its agents do not include this one",
            "ToolGrant past ended at 2020-01-01T00:00:00Z",
            "ToolGrant mine asks for always_ask",
        ],
    );
    desk.close().await;
}

#[tokio::test]
async fn a_change_can_be_looked_at_before_it_is_made() {
    let desk = Desk::open(&manifests("")).await;
    let change = grant("queues", "agents: {all: true}, tools: [agnt_queues_list]");
    let (status, answer) = desk
        .api(
            "POST",
            "/agents/team.one/tools/preview",
            json!({"manifests": change}),
        )
        .await;
    assert_eq!(status, 200, "{answer}");
    let changes = answer["changes"].as_array().unwrap();
    assert_eq!(changes.len(), 1, "{answer}");
    assert_eq!(changes[0]["tool"], "agnt_queues_list");
    assert_eq!(changes[0]["before"]["seen"], false);
    assert_eq!(changes[0]["after"]["seen"], true);
    // Nothing has happened.
    assert_eq!(row(&desk, "agnt_queues_list").await["seen"], false);
    let (status, answer) = desk
        .api(
            "POST",
            "/agents/team.one/tools/preview",
            json!({"manifests": "kind: Nothing"}),
        )
        .await;
    assert_eq!(status, 422, "{answer}");
    desk.close().await;
}
