//! Public clients, each as it is installed from its registry, on one agent of the gateway without Kubernetes.
//!
//! That is R-C-010 as its users meet it: libraries list the tools, call one and are told of one that there is not;
//! coding agents connect with the key and with no other, with the configuration that `chandlery connect` prints, and
//! call a tool for a model that is none. The Inspector, and Python programs as they are printed, are in `standalone.rs`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use chandlery_gateway::http::Settings;
use chandlery_tests::client::Era;
use chandlery_tests::clients::coding::{self, CODING_AGENTS, CodingAgent, Told};
use chandlery_tests::clients::{self, LIBRARIES, Library, Server};
use chandlery_tests::endpoint::Endpoint;
use chandlery_tests::eventually;
use chandlery_tests::fixture::Conformance;
use chandlery_tests::standalone::Gateway;
use serde_json::{Value, json};

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

/// A tool that asks, as the older protocol does it: within the call.
const ASKS: &str = "test_elicitation";

/// What it asks.
fn question() -> Value {
    json!({"message": "What is your name?"})
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
    // The newer protocol asks in place of the result.
    let between = "test_input_required_result_elicitation";
    for (library, tool) in LIBRARIES.map(|library| match library {
        Library::McpLegacy | Library::TypeScriptV1 | Library::TypeScriptV2 => (library, ASKS),
        Library::Mcp | Library::FastMcp | Library::TypeScriptV2Auto => (library, between),
    }) {
        let content = match tool == ASKS {
            true => json!({"username": "ada", "email": "ada@example.org"}),
            false => json!({"name": "ada"}),
        };
        let seen = library
            .call_and_accept(&server, tool, &question(), &content)
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

// That the user of each does accept is what gives `no_client_answers_for_a_person` its meaning.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the clients of tests/setup"]
async fn a_user_is_asked_through_each_coding_agent_that_can() -> Result<()> {
    let tools = vec![Arc::new(Conformance::default()) as _];
    let endpoint = Endpoint::start(tools, Settings::default()).await?;
    let server = Server {
        url: format!("http://{}{}", endpoint.address, endpoint.path),
        key: endpoint.key.clone(),
    };
    let content = json!({"username": "ada", "email": "ada@example.org"});
    for agent in CODING_AGENTS {
        let told = agent
            .call_and_accept(&server, ASKS, &question(), &content)
            .await
            .with_context(|| format!("{agent:?}"))?;
        let as_it_should = match agent {
            CodingAgent::ClaudeCode | CodingAgent::Codex => {
                told.asked == ["What is your name?"] && told.result.contains("ada@example.org")
            }
            CodingAgent::OpenCode => told.result.contains("cannot do elicitation"),
        };
        ensure!(as_it_should, "{agent:?}: {told:?}");
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

/// A client of the list, as one that calls and accepts whatever its user is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    Library(Library),
    Coding(CodingAgent),
    Inspector,
}

impl Client {
    /// Each with a zone of its own, so that no two make the same call.
    const ALL: [(Self, &str); 10] = [
        (Self::Library(Library::Mcp), "Asia/Tokyo"),
        (Self::Library(Library::McpLegacy), "Asia/Kolkata"),
        (Self::Library(Library::FastMcp), "Europe/Berlin"),
        (Self::Library(Library::TypeScriptV1), "Europe/Paris"),
        (Self::Library(Library::TypeScriptV2), "Africa/Cairo"),
        (Self::Library(Library::TypeScriptV2Auto), "America/Lima"),
        (Self::Coding(CodingAgent::ClaudeCode), "Asia/Seoul"),
        (Self::Coding(CodingAgent::Codex), "Europe/Madrid"),
        (Self::Coding(CodingAgent::OpenCode), "Africa/Lagos"),
        (Self::Inspector, "America/Bogota"),
    ];

    async fn asks_the_time(self, server: &Server, zone: &str) -> Result<Told> {
        let (tool, arguments) = ("agnt_datetime_now", json!({"timezone": zone}));
        let accept = json!({"decision": "allow"});
        let told = match self {
            Self::Library(library) => library
                .call_and_accept(server, tool, &arguments, &accept)
                .await
                .map(|seen| Told {
                    result: seen.result.to_string(),
                    asked: seen.asked,
                }),
            Self::Coding(agent) => {
                agent
                    .call_and_accept(server, tool, &arguments, &accept)
                    .await
            }
            Self::Inspector => inspects_the_time(server, Era::Sessions, zone)
                .await
                .map(|result| Told {
                    result,
                    asked: Vec::new(),
                }),
        };
        told.with_context(|| format!("{self:?}"))
    }

    /// What a call that waits is known by in what the client shows of its result.
    fn waiting(self) -> &'static str {
        match self {
            // Its model gets the text, the others' what is structured.
            Self::Coding(CodingAgent::OpenCode) => "A person has to allow this call",
            _ => "awaiting_approval",
        }
    }
}

async fn inspects_the_time(server: &Server, era: Era, zone: &str) -> Result<String> {
    let argument = format!("timezone={zone}");
    clients::inspector(server, era, "agnt_datetime_now", &argument).await
}

/// Allows all calls, as soon as so many wait.
async fn approves(gateway: &Gateway, waiting: usize) -> Result<()> {
    let inbox = eventually("calls wait", Duration::from_secs(30), async || {
        let inbox = gateway.person(&["inbox"]).await?;
        Ok((inbox.lines().count() == waiting).then_some(inbox))
    });
    for line in inbox.await?.lines() {
        let id = line.split_whitespace().next().context("an id")?;
        let said = gateway.person(&["approve", id]).await?;
        ensure!(said.contains("approved"), "{said}");
    }
    Ok(())
}

// R-C-210, R-C-212: clients that accept whatever they are asked get no call through that a person has to allow; once a
// person has, each gets its result.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the clients of tests/setup"]
async fn no_client_answers_for_a_person() -> Result<()> {
    let gateway = Gateway::start_on(ASKING, &["--approval-wait=300ms"]).await?;
    let server = server(&gateway)?;
    for (client, zone) in Client::ALL {
        let told = client.asks_the_time(&server, zone).await?;
        ensure!(
            told.asked.is_empty()
                && told.result.contains(client.waiting())
                && !told.result.contains(zone),
            "{client:?}: {told:?}"
        );
    }
    // With the newest protocol the Inspector declares tasks: its call ends once a person has decided.
    let patient = inspects_the_time(&server, Era::Stateless, "Asia/Dhaka");
    let (result, ()) = tokio::try_join!(patient, approves(&gateway, Client::ALL.len() + 1))?;
    ensure!(result.contains("Asia/Dhaka"), "{result}");
    for (client, zone) in Client::ALL {
        let told = client.asks_the_time(&server, zone).await?;
        ensure!(told.result.contains(zone), "{client:?}: {told:?}");
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

async fn gets_the_time(agent: CodingAgent, server: &Server) -> Result<()> {
    let told = Client::Coding(agent)
        .asks_the_time(server, "Europe/Berlin")
        .await?;
    ensure!(told.result.contains("Europe/Berlin)"), "{told:?}");
    Ok(())
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
    gets_the_time(CodingAgent::ClaudeCode, &server(&gateway)?).await?;
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
    gets_the_time(CodingAgent::Codex, &server(&gateway)?).await?;
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
    gets_the_time(CodingAgent::OpenCode, &server(&gateway)?).await?;
    gateway.stop().await.map(drop)
}
