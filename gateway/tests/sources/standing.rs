//! An Agent's entry of a source that serves nothing says why, and what to do (R-C-023).

use serde_json::{Value, json};

use crate::harness::{Gateway, agent, grant, source, workspace};
use crate::upstreams::{Service, document, operation};

/// Entry and reason of what is unresolved, once `is_so` holds of it.
async fn unresolved(gateway: &Gateway, is_so: impl Fn(&str) -> bool) -> String {
    for _ in 0..200 {
        let tools = gateway.api("GET", "/agents/team.a/tools").await;
        let all = tools["unresolved"].as_array().unwrap();
        let told = all.iter().map(|one| {
            let text = |field: &str| one[field].as_str().unwrap().to_owned();
            format!(
                "{} {}: {}\n",
                text("entry"),
                text("reason"),
                text("message")
            )
        });
        let told: String = told.collect();
        if is_so(&told) {
            return told;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!(
        "never: {}",
        gateway.api("GET", "/agents/team.a/tools").await
    );
}

// R-C-023
#[tokio::test]
async fn an_entry_of_a_source_says_why_it_serves_nothing() {
    let with = |get: &str| {
        let mut changed = operation("get");
        changed["description"] = json!(get);
        let mut broken = operation("broken");
        broken["parameters"] = json!([{"$ref": "elsewhere.yaml#/p"}]);
        document(json!({
            "/ping": {"get": operation("ping")},
            "/thing": {"get": changed},
            "/broken": {"get": broken},
        }))
    };
    let service = Service::start(with("Gets.")).await;
    let entries = [
        "s/ping",
        "s/get",
        "s/broken",
        "s/none_*",
        "gone/list",
        "dead/x",
        "idle/x",
    ];
    let manifests = |timeout: &str| -> Vec<Value> {
        vec![
            workspace(),
            source("s", json!({"openapi": service.spec(), "timeout": timeout})),
            source("dead", json!({"mcp": {"url": "http://127.0.0.3:1/mcp"}})),
            source("idle", json!({"openapi": service.spec()})),
            agent("a", json!({"tools": entries, "listing": "PerOperation"})),
            grant("g", &["s/*", "dead/*"], json!({})),
        ]
    };
    let gateway = Gateway::open(&manifests("20s")).await;
    let told = unresolved(&gateway, |told| {
        told.contains("s/broken Unreadable") && told.contains("dead/x Unreachable")
    })
    .await;
    expect_test::expect![[r#"
        s/broken Unreadable: broken of the ToolSource s is left out: GET /broken: `$ref: elsewhere.yaml#/p` leaves the document; only references within it are followed
        s/none_* NoSuchTool: the ToolSource s offers nothing that none_* names
        gone/list ToolSourceNotFound: there is no ToolSource gone in this namespace: make it, or correct the entry
        dead/x Unreachable: the ToolSource dead could not be asked: 127.0.0.3 cannot be reached
        idle/x NotGranted: no live ToolGrant names the ToolSource idle, so it is not asked: make one, or wait for its time
    "#]]
    .assert_eq(&told);
    service.change(with("Gets all of it."));
    gateway.apply(&manifests("21s"));
    let told = unresolved(&gateway, |told| told.contains("s/get ToolsWithheld")).await;
    let line = told.lines().next().unwrap();
    assert_eq!(
        line,
        "s/get ToolsWithheld: get of the ToolSource s is not as it was approved and is withheld: `chandlery sources diff s` shows what changed"
    );
}
