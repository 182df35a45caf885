//! Public clients, each as it is installed from its registry, on one agent of the gateway without Kubernetes.
//!
//! That is R-C-010 as its users meet it: libraries list the tools, call one and are told of one that there is not;
//! coding agents connect with the key and with no other, with the configuration that `chandlery connect` prints.
//! The Inspector, and Python programs as they are printed, are in `standalone.rs`.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use chandlery_gateway::http::Settings;
use chandlery_tests::client::Era;
use chandlery_tests::clients::{LIBRARIES, Library, Server, coding};
use chandlery_tests::endpoint::Endpoint;
use chandlery_tests::fixture::Conformance;
use chandlery_tests::standalone::Gateway;
use serde_json::json;

/// Has the tools of the time, tasks and memory.
const RESEARCHER: &str = "default.researcher";

fn server(gateway: &Gateway) -> Result<Server> {
    Ok(Server {
        url: gateway.endpoint(RESEARCHER)?.uri.to_string(),
        key: gateway.key(RESEARCHER)?,
    })
}

/// Another agent's key opens nothing here.
fn stranger(gateway: &Gateway) -> Result<Server> {
    Ok(Server {
        key: gateway.key("default.clock")?,
        ..server(gateway)?
    })
}

// R-C-010, R-C-014, R-C-055, and R-C-008 with the key of another agent.
async fn works_with(library: Library, era: Era) -> Result<()> {
    let gateway = Gateway::start().await?;
    let server = server(&gateway)?;
    let seen = library.list(&server).await?;
    ensure!(seen.protocol == era.version(), "{seen:?}");
    for tool in ["agnt_datetime_now", "task", "memory"] {
        ensure!(seen.tools.iter().any(|name| name == tool), "{seen:?}");
    }
    let berlin = json!({"timezone": "Europe/Berlin"});
    let seen = library.call(&server, "agnt_datetime_now", &berlin).await?;
    let text = seen.result["content"][0]["text"].as_str();
    ensure!(
        text.is_some_and(|text| text.contains("Europe/Berlin")) && seen.result["isError"] != true,
        "{seen:?}"
    );
    let seen = library.call(&server, "not_a_tool", &json!({})).await?;
    let message = seen.error["message"].as_str();
    ensure!(
        message.is_some_and(|message| message.ends_with("Unknown tool 'not_a_tool'"))
            && seen.error["code"] == -32602
            && seen.result.is_null(),
        "{seen:?}"
    );
    ensure!(library.list(&stranger(&gateway)?).await.is_err());
    gateway.stop().await.map(drop)
}

#[tokio::test]
#[ignore = "needs the clients of tests/setup"]
async fn python_mcp() -> Result<()> {
    works_with(Library::Mcp, Era::Stateless).await
}

#[tokio::test]
#[ignore = "needs the clients of tests/setup"]
async fn python_mcp_legacy() -> Result<()> {
    works_with(Library::McpLegacy, Era::Sessions).await
}

#[tokio::test]
#[ignore = "needs the clients of tests/setup"]
async fn python_fastmcp() -> Result<()> {
    works_with(Library::FastMcp, Era::Stateless).await
}

#[tokio::test]
#[ignore = "needs the clients of tests/setup"]
async fn typescript_v1() -> Result<()> {
    works_with(Library::TypeScriptV1, Era::Sessions).await
}

#[tokio::test]
#[ignore = "needs the clients of tests/setup"]
async fn typescript_v2() -> Result<()> {
    works_with(Library::TypeScriptV2, Era::Sessions).await
}

#[tokio::test]
#[ignore = "needs the clients of tests/setup"]
async fn typescript_v2_auto() -> Result<()> {
    works_with(Library::TypeScriptV2Auto, Era::Stateless).await
}

// With a tool that asks, since none of ours does yet.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the clients of tests/setup"]
async fn a_user_is_asked_through_each_library() -> Result<()> {
    let tools = vec![Arc::new(Conformance::default()) as _];
    let endpoint = Endpoint::start(tools, Settings::default()).await?;
    let server = Server {
        url: format!("http://{}{}", endpoint.address, endpoint.path),
        key: endpoint.key.clone(),
    };
    // The older protocol asks within the call, the newer one in place of its result.
    let within = "test_elicitation";
    let between = "test_input_required_result_elicitation";
    for (library, tool) in LIBRARIES.map(|library| match library {
        Library::McpLegacy | Library::TypeScriptV1 | Library::TypeScriptV2 => (library, within),
        Library::Mcp | Library::FastMcp | Library::TypeScriptV2Auto => (library, between),
    }) {
        let question = json!({"message": "What is your name?"});
        let content = match tool == within {
            true => json!({"username": "ada", "email": "ada@example.org"}),
            false => json!({"name": "ada"}),
        };
        let seen = library
            .call_and_accept(&server, tool, &question, &content)
            .await
            .with_context(|| format!("{library:?}"))?;
        let text = seen.result["content"][0]["text"].as_str();
        ensure!(
            seen.asked == ["What is your name?"] && text.is_some_and(|text| text.contains("ada")),
            "{library:?}: {seen:?}"
        );
    }
    endpoint.stop().await
}

/// What an agent that asks for each call looks like.
const ASKING: &str = "
apiVersion: chandlery.dev/v1alpha1
kind: Workspace
metadata: {name: team}
spec: {}
---
apiVersion: chandlery.dev/v1alpha1
kind: Agent
metadata: {name: researcher}
spec: {workspaceRef: {name: team}, permissions: {tools: {agnt_datetime_now: always_ask}}}
";

// R-C-210, R-C-212: clients that accept whatever they are asked get no call through that a person has to allow; once a
// person has, each gets its result.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the clients of tests/setup"]
async fn no_client_answers_for_a_person() -> Result<()> {
    let gateway = Gateway::start_on(ASKING, &["--approval-wait=300ms"]).await?;
    let server = server(&gateway)?;
    // Each library calls with arguments of its own.
    let zones = [
        "Asia/Tokyo",
        "Asia/Kolkata",
        "Europe/Berlin",
        "Europe/Paris",
        "Africa/Cairo",
        "America/Lima",
    ];
    let libraries = LIBRARIES.into_iter().zip(zones);
    let accept = json!({"decision": "allow"});
    for (library, zone) in libraries.clone() {
        let arguments = json!({"timezone": zone});
        let seen = library
            .call_and_accept(&server, "agnt_datetime_now", &arguments, &accept)
            .await
            .with_context(|| format!("{library:?}"))?;
        ensure!(
            seen.asked.is_empty()
                && seen.result["structuredContent"]["status"] == "awaiting_approval",
            "{library:?}: {seen:?}"
        );
    }
    let inbox = gateway.person(&["inbox"]).await?;
    ensure!(inbox.lines().count() == zones.len(), "{inbox}");
    for line in inbox.lines() {
        let id = line.split_whitespace().next().context("an id")?;
        let said = gateway.person(&["approve", id]).await?;
        ensure!(said.contains("approved"), "{said}");
    }
    for (library, zone) in libraries {
        let seen = library
            .call(&server, "agnt_datetime_now", &json!({"timezone": zone}))
            .await?;
        let text = seen.result["content"][0]["text"].as_str();
        ensure!(
            text.is_some_and(|text| text.contains(zone)),
            "{library:?}: {seen:?}"
        );
    }
    let denied = Library::Mcp
        .call(&server, "agnt_datetime_now", &json!({}))
        .await?;
    let id = denied.result["structuredContent"]["approval_id"]
        .as_str()
        .context("an id")?;
    gateway
        .person(&["deny", id, "--reason", "look at your watch"])
        .await?;
    let seen = Library::Mcp
        .call(&server, "agnt_datetime_now", &json!({}))
        .await?;
    ensure!(
        seen.result.to_string().contains("look at your watch"),
        "{seen:?}"
    );
    gateway.stop().await.map(drop)
}

#[tokio::test]
#[ignore = "needs the clients of tests/setup"]
async fn claude_code() -> Result<()> {
    let gateway = Gateway::start().await?;
    let said = coding::claude_code(&server(&gateway)?).await?;
    ensure!(
        said.contains("default-researcher: ") && said.contains(" Connected"),
        "{said}"
    );
    let said = coding::claude_code(&stranger(&gateway)?).await?;
    ensure!(said.contains(" Failed to connect"), "{said}");
    gateway.stop().await.map(drop)
}

#[tokio::test]
#[ignore = "needs the clients of tests/setup"]
async fn codex() -> Result<()> {
    let gateway = Gateway::start().await?;
    let status = coding::codex(&server(&gateway)?).await?;
    ensure!(
        status["name"] == "default-researcher" && status["toolsError"].is_null(),
        "{status}"
    );
    for tool in ["agnt_datetime_now", "task", "memory"] {
        ensure!(status["tools"][tool]["name"] == tool, "{status}");
    }
    let status = coding::codex(&stranger(&gateway)?).await?;
    ensure!(
        status["tools"] == json!({}) && status["toolsError"].is_string(),
        "{status}"
    );
    gateway.stop().await.map(drop)
}

#[tokio::test]
#[ignore = "needs the clients of tests/setup"]
async fn opencode() -> Result<()> {
    let gateway = Gateway::start().await?;
    let said = coding::opencode(&server(&gateway)?).await?;
    ensure!(
        said.contains("default-researcher") && said.contains("connected"),
        "{said}"
    );
    let said = coding::opencode(&stranger(&gateway)?).await?;
    ensure!(said.contains("failed"), "{said}");
    gateway.stop().await.map(drop)
}
