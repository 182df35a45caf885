//! What is listed, in which shape, and what is never.

use std::fmt::Write as _;

use expect_test::expect_file;
use serde_json::{Value, json};

use crate::harness::{Desk, Said, WORKSPACE, agent};

/// Six agents, of the kinds that people make.
fn examples() -> String {
    [
        WORKSPACE.to_owned(),
        agent("new", ""),
        agent("reader", "workspaceDb: {readOnly: true, allowApplyMigration: true}"),
        agent("flat", "listing: PerOperation, workspaceDb: {allowApplyMigration: true}"),
        agent(
            "everything",
            "tools: ['*'], connectionsDb: {postgresEnabled: true, supabaseEnabled: true}, documentCollectionIds: [handbook], \
             observabilityEnabled: true, agentInvocationEnabled: true, dashboardsEnabled: true, \
             codeExecution: {enabled: true, skills: [report]}, workspaceDb: {allowApplyMigration: true}",
        ),
        agent(
            "bare",
            "workspaceToolsEnabled: false, workspaceDb: {enabled: false}, dataJobsEnabled: false",
        ),
        agent(
            "helper",
            "listing: PerOperation, tools: [escalate_to_human, 'agnt_memory_*', agnt_usage_recent], codeExecution: {enabled: true}",
        ),
    ]
    .concat()
}

// R-C-002, R-C-020…025, R-C-060…125, R-C-140…151, R-C-160…175: the exact lists of six agents.
#[tokio::test]
async fn six_agents_have_exactly_these_lists() {
    let desk = Desk::open(&examples()).await;
    let mut told = String::new();
    for name in ["new", "reader", "flat", "everything", "bare", "helper"] {
        writeln!(told, "{name}:").unwrap();
        for tool in desk.tools(name).await {
            let actions = &tool["inputSchema"]["properties"]["action"]["enum"];
            let is_group = tool["description"]
                .as_str()
                .unwrap()
                .contains("\n\nActions:\n- ");
            write!(told, "  {}", tool["name"].as_str().unwrap()).unwrap();
            if let (true, Some(actions)) = (is_group, actions.as_array()) {
                let actions: Vec<&str> = actions.iter().filter_map(Value::as_str).collect();
                write!(told, ": {}", actions.join(", ")).unwrap();
            }
            told.push('\n');
        }
    }
    expect_file!["./six_agents.txt"].assert_eq(&told);
    desk.close().await;
}

// R-C-161, R-C-202: what a grouped tool of the product says of itself.
#[tokio::test]
async fn grouped_tools_are_listed_as_their_snapshot_says() {
    let desk = Desk::open(&examples()).await;
    let listed = desk.tools("new").await;
    let grouped: Vec<&Value> = listed
        .iter()
        .filter(|tool| tool["name"].as_str().unwrap().starts_with("agnt_support_"))
        .collect();
    let text = serde_json::to_string_pretty(&grouped).unwrap() + "\n";
    expect_file!["./grouped.json"].assert_eq(&text);
    desk.close().await;
}

// R-C-173…175: the seed's example, word for word.
#[tokio::test]
async fn a_read_only_agent_reads_and_runs_sql() {
    let desk = Desk::open(&examples()).await;
    let tools = desk.tools("reader").await;
    let actions = |name: &str| {
        let tool = tools.iter().find(|tool| tool["name"] == name)?;
        Some(tool["inputSchema"]["properties"]["action"]["enum"].clone())
    };
    assert_eq!(
        actions("agnt_db_read"),
        Some(json!([
            "status",
            "list_tables",
            "list_extensions",
            "list_migrations",
            "select"
        ]))
    );
    assert_eq!(actions("agnt_db_sql"), Some(json!(["execute_sql"])));
    assert_eq!(actions("agnt_db_write"), None);
    desk.close().await;
}

// R-C-162, R-C-168…172, R-C-177
#[tokio::test]
async fn both_names_run_the_same_operation() {
    let desk = Desk::open(&examples()).await;
    let grouped = desk
        .call(
            "new",
            "agnt_db_read",
            json!({"action": "select", "select": "x", "status": "y"}),
        )
        .await;
    assert_eq!(grouped.text(), r#"agnt_db_select #1 {"select":"x"}"#);
    let alone = desk
        .call("new", "agnt_db_select", json!({"select": "x"}))
        .await;
    assert_eq!(alone.text(), r#"agnt_db_select #2 {"select":"x"}"#);
    // An operation that is named like its group.
    let grouped = desk
        .call(
            "new",
            "agnt_files_read",
            json!({"action": "get", "get": "f"}),
        )
        .await;
    assert_eq!(grouped.text(), r#"agnt_files_get #1 {"get":"f"}"#);
    let alone = desk
        .call("new", "agnt_files_read", json!({"read": "f"}))
        .await;
    assert_eq!(alone.text(), r#"agnt_files_read #1 {"read":"f"}"#);
    // What the agent has not, no name reaches.
    let sql = json!({"action": "apply_migration"});
    let said = desk.call("reader", "agnt_db_sql", sql.clone()).await;
    assert!(
        said.refusal()
            .contains("there is no action \"apply_migration\"; write one of execute_sql")
    );
    for name in ["agnt_db_apply_migration", "agnt_db_write", "agnt_db_insert"] {
        assert_eq!(
            desk.call("reader", name, sql.clone()).await,
            Said::unknown(name)
        );
    }
    // R-C-164: an agent that lists operations has no grouped names.
    let said = desk
        .call("flat", "agnt_db_read", json!({"action": "select"}))
        .await;
    assert_eq!(said, Said::unknown("agnt_db_read"));
    assert_eq!(desk.executed.count("agnt_db_apply_migration"), 0);
    desk.close().await;
}

// R-C-030…055: control and management tools, though families have them and the manifest names them.
#[tokio::test]
async fn what_manages_the_platform_is_never_served() {
    let manifests = [
        WORKSPACE.to_owned(),
        agent(
            "grabby",
            "listing: PerOperation, tools: ['*', agnt_tools_enable]",
        ),
    ]
    .concat();
    let desk = Desk::open(&manifests).await;
    let list = desk.list("grabby").await;
    for name in [
        "agnt_onboarding",
        "agnt_platform_map",
        "agnt_tools_search",
        "agnt_tools_enable",
        "agnt_tools_disable",
        "agnt_tools_list_enabled",
        "agnt_subscription_get",
        "agnt_subscription_preview",
        "agnt_subscription_change",
        "agnt_setup_claim",
        "agnt_bounties_list",
        "agnt_bounties_claim",
        "agnt_agents_create",
        "agnt_schedules_create",
        "agnt_queues_create",
        "agnt_webhooks_create_endpoint",
        "agnt_knowledge_create",
        "agnt_platform_guidance",
        "agnt_data_job_create",
        "agnt_sync_create",
        "agnt_slack_bind_channel",
        "agnt_imessage_bind_number",
    ] {
        assert!(
            !list.iter().any(|listed| listed == name),
            "{name} is listed"
        );
        assert_eq!(
            desk.call("grabby", name, json!({})).await,
            Said::unknown(name)
        );
        assert_eq!(desk.executed.count(name), 0);
    }
    let (_, tools) = desk
        .api("GET", "/agents/team.grabby/tools", Value::Null)
        .await;
    assert_eq!(tools["unresolved"][0]["reason"], "NeverServed", "{tools}");
    desk.close().await;
}

// R-C-023, R-C-024: an entry that serves nothing is left out and said, and the rest works.
#[tokio::test]
async fn an_entry_that_serves_nothing_is_left_out_and_named() {
    let manifests = [
        WORKSPACE.to_owned(),
        agent(
            "hopeful",
            "tools: [agnt_report, agnt_reports, crm/list, agnt_db_insert, 'zzz_*'], workspaceDb: {readOnly: true}",
        ),
    ]
    .concat();
    let desk = Desk::open(&manifests).await;
    assert!(
        desk.call("hopeful", "agnt_report", json!({}))
            .await
            .text()
            .contains("agnt_report #1")
    );
    let (_, tools) = desk
        .api("GET", "/agents/team.hopeful/tools", Value::Null)
        .await;
    let said: Vec<(&str, &str)> = tools["unresolved"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            (
                entry["entry"].as_str().unwrap(),
                entry["reason"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        said,
        [
            ("agnt_reports", "NoSuchTool"),
            ("crm/list", "ToolSourceNotFound"),
            ("agnt_db_insert", "SwitchedOff"),
            ("zzz_*", "NoSuchTool"),
        ]
    );
    desk.close().await;
}

// R-C-026, R-C-105…107: a change of the config is served; a session keeps its list until the next one.
#[tokio::test]
async fn a_session_keeps_its_list_and_loses_rights_at_once() {
    let desk = Desk::open(&[WORKSPACE.to_owned(), agent("one", "")].concat()).await;
    let session = desk.session("one").await;
    let names = |answer: Value| {
        let tools = answer["result"]["tools"].as_array().unwrap().iter();
        tools
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let before = names(desk.older("one", &session, "tools/list", json!({})).await);
    assert!(before.contains(&"agnt_db_write".to_owned()));
    desk.apply(
        &[
            WORKSPACE.to_owned(),
            agent("one", "workspaceDb: {readOnly: true}"),
        ]
        .concat(),
    )
    .await;
    let after = names(desk.older("one", &session, "tools/list", json!({})).await);
    assert_eq!(after, before);
    for name in ["agnt_db_write", "agnt_db_insert"] {
        let params = json!({"name": name, "arguments": {"action": "insert"}});
        let said = desk.older("one", &session, "tools/call", params).await;
        assert_eq!(Said::of(&said), Said::unknown(name));
    }
    let next = desk.session("one").await;
    let next = names(desk.older("one", &next, "tools/list", json!({})).await);
    assert!(!next.contains(&"agnt_db_write".to_owned()));
    assert!(!desk.list("one").await.contains(&"agnt_db_write".to_owned()));
    desk.close().await;
}

// R-C-160, R-C-167: nothing changes the shape of a list.
#[tokio::test]
async fn the_shape_of_a_list_is_fixed() {
    let desk = Desk::open(&[WORKSPACE.to_owned(), agent("one", "")].concat()).await;
    let before = desk.list("one").await;
    let flat = [WORKSPACE.to_owned(), agent("one", "listing: PerOperation")].concat();
    std::fs::write(desk.manifest_file(), flat).unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(desk.list("one").await, before);
    desk.close().await;
}
