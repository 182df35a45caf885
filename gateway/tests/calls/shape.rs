//! What all action tools have in common: the shape of calls, strictness, help, and how they are listed.

use chandlery_gateway::families;
use expect_test::{expect, expect_file};
use serde_json::{Value, json};

use crate::harness::{Caller, Database, Gateway};

async fn gateway() -> (Gateway, Caller) {
    let gateway = Gateway::on(Database::sqlite()).await;
    (gateway, Caller::new("one", "lab"))
}

// R-A-010, R-A-033, R-A-034: one snapshot per tool; UPDATE_EXPECT=1 writes them.
#[test]
fn each_tool_is_listed_as_its_snapshot_says() {
    for tool in families::tools() {
        let listed = json!({
            "name": tool.name,
            "title": tool.title,
            "description": tool.description,
            "inputSchema": tool.input_schema,
            "effect": format!("{:?}", tool.effect),
            "served": format!("{:?}", tool.served),
            "group": tool.group.as_ref().map(|group| format!("{}.{}", group.name, group.action)),
        });
        let text = serde_json::to_string_pretty(&listed).unwrap() + "\n";
        expect_file![format!("./tools/{}.json", tool.name)].assert_eq(&text);
    }
}

// R-A-005, R-A-280: the older names are answered and not listed.
#[tokio::test]
async fn older_names_are_not_listed() {
    let (gateway, one) = gateway().await;
    let catalog = gateway
        .pipeline
        .catalogs
        .of(&one.agent, gateway.pipeline.clock.now());
    let names: Vec<&str> = catalog.tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(
        names,
        [
            "task",
            "memory",
            "agnt_datetime_now",
            "agnt_request_config_change",
            "agnt_list_config_requests",
            "agnt_update_self_directives",
            "agnt_support_read",
            "agnt_support_write",
        ]
    );
}

// R-A-150, R-A-152: what an agent should know before its first call, for the tools that it has.
#[tokio::test]
async fn an_agent_is_told_how_to_begin() {
    let (gateway, one) = gateway().await;
    let told = gateway
        .pipeline
        .catalogs
        .of(&one.agent, gateway.pipeline.clock.now())
        .instructions();
    assert!(
        told.contains("`ongoing`") && told.contains("`memory`"),
        "{told}"
    );
    let spec = json!({"workspaceToolsEnabled": false});
    let two = Caller::with_spec("two", "lab", spec);
    let told = gateway
        .pipeline
        .catalogs
        .of(&two.agent, gateway.pipeline.clock.now())
        .instructions();
    assert!(
        !told.contains("`ongoing`") && !told.contains("`memory`"),
        "{told}"
    );
}

// R-A-013…018, R-A-022…024, R-A-303, Q1: every refusal names the action and the field.
#[tokio::test]
async fn a_refusal_says_what_was_wrong_and_what_to_write() {
    let (gateway, one) = gateway().await;
    let mut told = String::new();
    for (tool, arguments) in [
        ("task", json!({})),
        ("task", json!({"action": 7})),
        ("task", json!({"action": "creat"})),
        ("task", json!({"action": "task_create"})),
        ("task", json!({"action": "update-status"})),
        ("task", json!({"action": "sing"})),
        ("task", json!({"action": "create", "payload": "{}"})),
        (
            "task",
            json!({"action": "create", "payload": {"title": "t", "body": "b", "titel": "x"}}),
        ),
        (
            "task",
            json!({"action": "create", "payload": {"title": "t"}}),
        ),
        (
            "task",
            json!({"action": "create", "payload": {"title": null, "body": "b"}}),
        ),
        (
            "task",
            json!({"action": "create", "payload": {"title": 5, "body": "b"}}),
        ),
        (
            "task",
            json!({"action": "create", "payload": {"title": "t", "body": ["b"]}}),
        ),
        (
            "task",
            json!({"action": "create", "payload": {"title": "t", "body": "b", "assignee": "bot"}}),
        ),
        (
            "task",
            json!({"action": "create", "payload": {"title": "t", "body": "b", "cronSchedule": "30 * * * *"}}),
        ),
        (
            "task",
            json!({"action": "create", "payload": {"title": "t", "body": "b", "attachments": []}}),
        ),
        ("task", json!({"action": "get", "payload": {"taskId": "x"}})),
        (
            "task",
            json!({"action": "get", "payload": {"includeConversation": "yes"}}),
        ),
        (
            "task",
            json!({"action": "get", "payload": {"includeConversation": true, "limit": 101}}),
        ),
        ("task", json!({"action": "get", "payload": {"cursor": -1}})),
        (
            "task",
            json!({"action": "create", "title": "a", "payload": {"title": "b", "body": "c"}}),
        ),
        (
            "task",
            json!({"action": "create", "title": "a", "bodi": "b"}),
        ),
        (
            "task",
            json!({"action": "reply", "chatId": "0kGogHmaqvZ", "payload": {"taskId": "0kGogHmaqvY", "text": "t"}}),
        ),
        (
            "memory",
            json!({"action": "load", "payload": {"chatId": "a.md"}}),
        ),
        (
            "createTask",
            json!({"title": "t", "chatId": "x", "body": "b"}),
        ),
        (
            "task",
            json!({"action": "help", "payload": {"topic": "replay"}}),
        ),
        (
            "task",
            json!({"action": "help", "payload": {"about": "reply"}}),
        ),
    ] {
        let refused = gateway.refusal(&one, tool, arguments).await;
        told.push_str(&refused);
        told.push('\n');
    }
    expect_file!["./refusals.txt"].assert_eq(&told);
    // R-A-016: none of them did anything.
    let next = gateway.value(&one, "task", json!({"action": "get"})).await;
    assert_eq!(next, json!({"task": null}));
}

// R-A-011, R-A-012, R-A-022…024, Q1
#[tokio::test]
async fn fields_may_stand_next_to_the_action() {
    let (gateway, one) = gateway().await;
    for arguments in [
        json!({"action": "create", "title": "t", "body": "b"}),
        json!({"action": "create", "title": "t", "payload": {"body": "b"}}),
        json!({"action": "create", "title": "t", "payload": {"title": "t", "body": "b"}}),
        json!({"action": "create", "payload": {"title": "t", "body": "b", "assignee": null}}),
        json!({"action": "create", "title": "t", "body": "b", "payload": null}),
    ] {
        let text = gateway.text(&one, "task", arguments).await;
        assert!(text.starts_with("task created with id="), "{text}");
    }
}

// R-A-040, R-A-041, R-A-050
#[tokio::test]
async fn help_lists_the_actions() {
    let (gateway, one) = gateway().await;
    let text = gateway
        .text(&one, "memory", json!({"action": "help"}))
        .await;
    expect![[r#"
        Usage: memory {"action": "<action>", "payload": {...}}

        Actions:
          load                 Read a memory, or with no name the index MEMORY.md.
          save                 Write a memory, replacing all of it. To add something: load, change, and save the whole.
          delete               Delete a memory, or with no name MEMORY.md itself.
          help                 This list; with payload {"topic": "<action>"}, what that action takes."#]]
    .assert_eq(&text);
}

// R-A-043…046, R-A-049
#[tokio::test]
async fn help_explains_an_action() {
    let (gateway, one) = gateway().await;
    let help = json!({"action": "help", "payload": {"topic": "create"}});
    let text = gateway.text(&one, "task", help).await;
    expect![[r#"
        Usage: task {"action": "create", "payload": {"title": <string>, "body": <string>, ...}}

        Create a task for the human or for an agent; answers with its ID.

        Required:
          title                string   Short title of the task, at most 255 characters.
          body                 string   What is to be done, in full, at most 64 KiB.

        Optional:
          assignee             string   Who should do it: 'human' or 'agent'. Default is 'agent'.

        Example:
          task {"action": "create", "payload": {"title": "Approve the new price list", "body": "It goes live on Friday. Please check the three new items.", "assignee": "human"}}"#]]
    .assert_eq(&text);
}

// R-A-048, R-A-051: what help prints as an example is a call whose arguments are taken.
#[tokio::test]
async fn every_example_is_a_valid_call() {
    let (gateway, one) = gateway().await;
    for tool in families::tools() {
        let Some(actions) = tool.input_schema["properties"]["action"]["enum"].as_array() else {
            continue;
        };
        for action in actions.iter().filter(|action| *action != "help") {
            let help = json!({"action": "help", "payload": {"topic": action}});
            let text = gateway.text(&one, &tool.name, help).await;
            let (_, example) = text.split_once("\nExample:\n  ").unwrap();
            let arguments = example.strip_prefix(&*tool.name).unwrap();
            let arguments: Value = serde_json::from_str(arguments).unwrap();
            assert_eq!(arguments["action"], *action);
            let answer = format!("{:?}", gateway.answer(&one, &tool.name, arguments).await);
            let taken = answer.starts_with("Done") || answer.contains("there is no task");
            assert!(taken, "{example}: {answer}");
        }
    }
}

// R-A-002: the switch takes all of them away, a call by name included.
#[tokio::test]
async fn an_agent_without_workspace_tools_has_none_of_them() {
    let (gateway, _) = gateway().await;
    let bare = Caller::with_spec("bare", "lab", json!({"workspaceToolsEnabled": false}));
    for tool in ["task", "memory", "createTask", "loadMemory", "no_such_tool"] {
        let answer = gateway.answer(&bare, tool, json!({"action": "help"})).await;
        assert_eq!(format!("{answer:?}"), "UnknownTool", "{tool}");
    }
}

// Tools that do one thing say of each argument what it is and how large it may be.
#[test]
fn every_argument_of_a_closed_schema_is_described_and_bounded() {
    for tool in families::tools() {
        let schema = &tool.input_schema;
        if schema.get("additionalProperties") != Some(&json!(false)) || tool.name == NAMES_A_ZONE {
            continue;
        }
        for (name, property) in schema["properties"].as_object().unwrap() {
            let has = |keyword: &str| property.get(keyword).is_some();
            assert!(has("description"), "{}: {name}", tool.name);
            let is_bounded = match property["type"].as_str().unwrap() {
                "string" => has("enum") || has("maxLength"),
                "integer" => has("minimum") && has("maximum"),
                _ => true,
            };
            assert!(is_bounded, "{}: {name}", tool.name);
        }
    }
}

/// Its one argument is looked up in a list.
const NAMES_A_ZONE: &str = "agnt_datetime_now";
