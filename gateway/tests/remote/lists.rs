//! What is offered, and what becomes of it.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::fake::{CANARY, Fake, tool};
use crate::harness::{Desk, World, eventually};

// R-C-200, and every page.
#[tokio::test]
async fn tools_of_either_era_are_listed_as_they_are_published() {
    for (newer, older) in [(true, false), (false, true), (true, true)] {
        let upstream = Fake::start(newer, older).await;
        upstream.state.page.store(2, Ordering::SeqCst);
        let schema = json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": {"id": {"$ref": "#/$defs/id"}}, "$defs": {"id": {"type": "integer"}}});
        let mut tools: Vec<Value> = (0..5).map(|at| tool(&format!("t{at}"))).collect();
        tools[4]["inputSchema"] = schema.clone();
        tools[4]["outputSchema"] = json!({"type": "object"});
        tools[4]["title"] = json!("The last one");
        // It lies: what is shown is what holds for a tool that says nothing.
        tools[4]["annotations"] = json!({"readOnlyHint": true, "destructiveHint": false});
        upstream.offer(tools);
        let desk = Desk::open(&upstream, &World::default()).await;
        let tools = desk.tools("one").await;
        assert_eq!(tools.len(), 5, "{newer} {older}");
        assert_eq!(tools[4]["name"], "crm_t4");
        assert_eq!(tools[4]["title"], "The last one");
        assert_eq!(tools[4]["inputSchema"], schema);
        assert_eq!(tools[4]["outputSchema"], json!({"type": "object"}));
        assert_eq!(tools[4]["annotations"]["readOnlyHint"], false);
        assert_eq!(tools[4]["annotations"]["destructiveHint"], true);
    }
}

#[tokio::test]
async fn what_cannot_be_a_tool_is_left_out_with_a_reason() {
    let upstream = Fake::start(true, false).await;
    let with = |name: &str, field: &str, value: Value| {
        let mut tool = tool(name);
        tool[field] = value;
        tool
    };
    let properties = |property: Value| json!({"type": "object", "properties": {"p": property}});
    upstream.offer(vec![
        tool("fine"),
        tool("fine"),
        tool("two words"),
        tool("zero\u{200b}width"),
        tool(&"x".repeat(129)),
        tool("pаy"),
        json!({"description": "nameless"}),
        with("list", "inputSchema", json!({"type": "array"})),
        with("none", "inputSchema", Value::Null),
        with("large", "inputSchema", properties(json!({"description": "x".repeat(65 << 10)}))),
        with("crlf", "inputSchema", properties(json!({"type": "string", "x-mcp-header": "A\r\nB: c"}))),
        with("secret", "inputSchema", json!({"type": "object", "properties": {"password": {"type": "string", "x-mcp-header": "P"}}})),
        with("hidden", "description", json!("seen\u{e0041}<!-- unseen -->\u{1b}[31m")),
        with("smuggler", "inputSchema", properties(json!({"enum": ["a", "b\u{e0041}\u{e0042}"]}))),
        with("param", "inputSchema", json!({"type": "object", "properties": {"id\u{200b}": {}}})),
    ]);
    let desk = Desk::open(&upstream, &World::default()).await;
    let names = desk.names("one").await;
    // The look-alike has a name that nobody takes for another.
    assert_eq!(names, ["crm_fine", "crm_p_y_dc64c629", "crm_hidden"]);
    for (name, reason) in [
        ("fine", "DuplicateName"),
        ("two words (#3)", "InvalidName"),
        ("zerowidth (#4)", "InvalidName"),
        ("#7", "InvalidTool"),
        ("list", "InvalidSchema"),
        ("none", "InvalidSchema"),
        ("large", "InvalidSchema"),
        ("crlf", "InvalidHeader"),
        ("secret", "InvalidHeader"),
        ("hidden", "HiddenCharacters"),
        ("smuggler", "HiddenCharacters"),
        ("param", "HiddenCharacters"),
    ] {
        assert_eq!(desk.noted(name), reason);
    }
    let tools = desk.tools("one").await;
    assert_eq!(tools[2]["description"], "seen");
}

// How long an answer may be says nothing of lists, which have a bound of their own.
#[tokio::test]
async fn a_long_list_is_read_and_one_that_is_too_long_leaves_the_last_good_one() {
    for (newer, older) in [(true, false), (false, true)] {
        let upstream = Fake::start(newer, older).await;
        let world = World {
            source: "  maxResponseBytes: 1024\n  refreshEvery: 10s",
            ..World::default()
        };
        let long = |name: &str, bytes: usize| {
            let mut tool = tool(name);
            tool["description"] = json!("x".repeat(bytes));
            tool
        };
        upstream.offer(vec![tool("short"), long("long", 3 << 20)]);
        let desk = Desk::open(&upstream, &world).await;
        assert_eq!(desk.names("one").await, ["crm_short", "crm_long"]);
        let listens = async || {
            let seen = upstream.state.seen.lock();
            seen.iter()
                .any(|seen| seen.http == "GET" || seen.method() == "subscriptions/listen")
        };
        eventually("the gateway listens", listens).await;
        upstream.offer(vec![tool("short"), long("long", 21 << 20)]);
        let failed = async || desk.state().report.failure.is_some();
        eventually("the list is too long", failed).await;
        let failure = desk.state().report.failure.unwrap();
        assert!(
            failure.message.contains("let the server publish less"),
            "{failure:?}"
        );
        assert_eq!(desk.names("one").await, ["crm_short", "crm_long"]);
        let answer = desk.call("one", "crm_echo", json!({})).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
}

#[tokio::test]
async fn nothing_shadows_what_is_ours() {
    let upstream = Fake::start(true, false).await;
    upstream.offer(["task", "agnt_x", "arc_y", "fine"].map(tool).to_vec());
    let world = World {
        source: "  toolPrefix: ''",
        ..World::default()
    };
    let desk = Desk::open(&upstream, &world).await;
    assert_eq!(desk.names("one").await, ["fine"]);
    for name in ["task", "agnt_x", "arc_y"] {
        assert_eq!(desk.noted(name), "NameTaken");
    }
}

#[tokio::test]
async fn a_change_is_noticed_when_the_server_tells_and_served_once_it_is_approved() {
    for (newer, older) in [(true, false), (false, true)] {
        let upstream = Fake::start(newer, older).await;
        upstream.offer(vec![tool("old")]);
        let desk = Desk::open(&upstream, &World::default()).await;
        let listens = async || {
            let seen = upstream.state.seen.lock();
            seen.iter()
                .any(|seen| seen.http == "GET" || seen.method() == "subscriptions/listen")
        };
        eventually("the gateway listens", listens).await;
        upstream.offer(vec![tool("old"), tool("new")]);
        let changed = async || desk.state().report.changed == 1;
        eventually("the change is seen", changed).await;
        assert_eq!(desk.names("one").await, ["crm_old"]);
        let answer = desk.call("one", "crm_new", json!({})).await;
        assert_eq!(answer["error"]["message"], "Unknown tool 'crm_new'");
        desk.apply(&World {
            approved: desk.state().report.revision,
            ..World::default()
        });
        let served = async || desk.names("one").await == ["crm_old", "crm_new"];
        eventually("the new tool is served", served).await;
    }
}

#[tokio::test]
async fn the_credential_goes_to_the_server_and_nowhere_else() {
    let upstream = Fake::start(true, true).await;
    let desk = Desk::open(&upstream, &World::default()).await;
    let answer = desk.call("one", "crm_leak", json!({})).await;
    let mut said = answer.to_string();
    said += &format!("{:?}", desk.tools("one").await);
    said += &format!("{:?}", desk.state());
    assert!(!said.contains(CANARY), "{said}");
    let seen = upstream.seen("tools/call");
    assert_eq!(seen[0].header("authorization"), format!("Bearer {CANARY}"));
}
