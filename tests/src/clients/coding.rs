//! Coding agents, configured as `chandlery connect` says, each with a home of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

use super::{Home, Server, installed};
use crate::model::Model;
use crate::output;

/// How long Codex may take for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A coding agent whose model calls one tool, and whose user accepts whatever the server asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodingAgent {
    /// `claude -p`, where a hook on `Elicitation` answers for the user.
    ClaudeCode,
    /// `codex app-server`, where the editor answers for the user. `codex exec` would decline by itself.
    Codex,
    /// `opencode run`. It declares no elicitation, so there is nothing that its user could accept.
    OpenCode,
}

/// All of them, for tests that must hold with each.
pub const CODING_AGENTS: [CodingAgent; 3] = [
    CodingAgent::ClaudeCode,
    CodingAgent::Codex,
    CodingAgent::OpenCode,
];

/// What came of a call.
#[derive(Debug)]
pub struct Told {
    /// What the tool gave, as the model reads it.
    pub result: String,
    /// What the server asked the user, in order.
    pub asked: Vec<String>,
}

impl CodingAgent {
    /// Has the agent call the tool. Its user accepts whatever is asked, with `content` for a form.
    pub async fn call_and_accept(
        self,
        server: &Server,
        tool: &str,
        arguments: &Value,
        content: &Value,
    ) -> Result<Told> {
        let model = Model::start(tool, arguments).await?;
        let asked = match self {
            Self::ClaudeCode => run_claude_code(server, &model, content).await?,
            Self::Codex => run_codex(server, &model, content).await?,
            Self::OpenCode => run_opencode(server, &model).await?,
        };
        let result = model.told().context("the tool was not called")?.to_owned();
        Ok(Told { result, asked })
    }
}

/// What the user says. The model does the same whatever it is.
const PROMPT: &str = "Call the tool.";

/// What `claude mcp list` says, with the `.mcp.json` that `chandlery connect` prints, approved by the user.
pub async fn claude_code(server: &Server) -> Result<String> {
    let home = claude_code_home(server, json!({})).await?;
    output(
        home.command(&installed("node/bin/claude")?)?
            .args(["mcp", "list"]),
    )
    .await
}

async fn run_claude_code(server: &Server, model: &Model, content: &Value) -> Result<Vec<String>> {
    let hook = json!({"type": "command", "command": "cat >>asked; cat accept"});
    let hooks = json!({"Elicitation": [{"hooks": [hook]}]});
    let home = claude_code_home(server, hooks).await?;
    let accept = json!({"hookEventName": "Elicitation", "action": "accept", "content": content});
    home.write("accept", &json!({"hookSpecificOutput": accept}).to_string())?;
    home.write("asked", "")?;
    output(
        home.command(&installed("node/bin/claude")?)?
            .env("ANTHROPIC_BASE_URL", &model.url)
            .env("ANTHROPIC_API_KEY", "none")
            .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
            // Nothing on its side shall hold a call up; as root it would insist.
            .env("IS_SANDBOX", "1")
            .args(["-p", PROMPT, "--dangerously-skip-permissions"]),
    )
    .await?;
    let asked = fs::read_to_string(home.folder.path().join("asked"))?;
    serde_json::Deserializer::from_str(&asked)
        .into_iter::<Value>()
        .map(|question| message(&question?))
        .collect()
}

async fn claude_code_home(server: &Server, hooks: Value) -> Result<Home<'_>> {
    let home = Home::new(server)?;
    home.write(".mcp.json", &home.snippet("claude-code").await?)?;
    let settings = json!({"enableAllProjectMcpServers": true, "hooks": hooks});
    home.write(".claude/settings.json", &settings.to_string())?;
    Ok(home)
}

/// What `codex app-server` says of the server that the command of `chandlery connect` made known to it: `tools` by name,
/// and `toolsError`.
pub async fn codex(server: &Server) -> Result<Value> {
    let home = Home::new(server)?;
    let mut codex = AppServer::start(&home, &[], Value::Null).await?;
    let status = codex.request("mcpServerStatus/list", json!({})).await?;
    codex.process.kill().await?;
    Ok(status["data"][0].clone())
}

async fn run_codex(server: &Server, model: &Model, content: &Value) -> Result<Vec<String>> {
    let home = Home::new(server)?;
    let provider = format!(
        r#"model_providers.none={{name="none",base_url="{}/v1"}}"#,
        model.url
    );
    let config = [&provider, "model_provider=none", "model=none"];
    let mut codex = AppServer::start(&home, &config, content.clone()).await?;
    // The policy `never` would have it decline for its user.
    let thread = json!({"approvalPolicy": "on-request"});
    let thread = codex.request("thread/start", thread).await?;
    let prompt = json!([{"type": "text", "text": PROMPT}]);
    let turn = json!({"threadId": thread["thread"]["id"], "input": prompt});
    codex.request("turn/start", turn).await?;
    codex
        .until(|message| message["method"] == "turn/completed")
        .await?;
    codex.process.kill().await?;
    Ok(codex.asked)
}

/// `codex app-server`: JSON-RPC, one message a line.
struct AppServer {
    requests: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    log: PathBuf,
    sent: u64,
    /// What a form is filled in with for the user.
    content: Value,
    /// What the user was asked.
    asked: Vec<String>,
    process: Child,
}

impl AppServer {
    async fn start(home: &Home<'_>, config: &[&str], content: Value) -> Result<Self> {
        let program = installed("node/bin/codex")?;
        let add = home.snippet("codex").await?;
        let add = add.replacen("codex", &program.display().to_string(), 1);
        output(home.command(Path::new("sh"))?.args(["-c", &add])).await?;
        let log = home.folder.path().join("log");
        let mut process = home
            .command(&program)?
            .arg("app-server")
            .args(config.iter().flat_map(|entry| ["-c", entry]))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&log)?)
            .kill_on_drop(true)
            .spawn()?;
        let mut codex = Self {
            requests: process.stdin.take().context("a pipe")?,
            answers: BufReader::new(process.stdout.take().context("a pipe")?).lines(),
            log,
            sent: 0,
            content,
            asked: Vec::new(),
            process,
        };
        let about = json!({"name": "chandlery-tests", "title": "Tests", "version": "0"});
        codex
            .request("initialize", json!({"clientInfo": about}))
            .await?;
        codex.send(&json!({"method": "initialized"})).await?;
        Ok(codex)
    }

    async fn send(&mut self, message: &Value) -> Result<()> {
        let line = format!("{message}\n");
        Ok(self.requests.write_all(line.as_bytes()).await?)
    }

    /// The result of this request.
    async fn request(&mut self, method: &str, params: Value) -> Result<Value> {
        self.sent += 1;
        let id = self.sent;
        self.send(&json!({"id": id, "method": method, "params": params}))
            .await?;
        let answer = self
            .until(|message| message["id"] == id && message["method"].is_null())
            .await?;
        ensure!(answer["error"].is_null(), "{method}: {answer}");
        Ok(answer["result"].clone())
    }

    /// Reads until the message that is looked for; accepts what the user is asked meanwhile.
    async fn until(&mut self, found: impl Fn(&Value) -> bool) -> Result<Value> {
        let log = self.log.clone();
        let read = tokio::time::timeout(PATIENCE, self.read_until(found)).await;
        read.context("codex does not answer")
            .flatten()
            .with_context(|| fs::read_to_string(log).unwrap_or_default())
    }

    async fn read_until(&mut self, found: impl Fn(&Value) -> bool) -> Result<Value> {
        while let Some(line) = self.answers.next_line().await? {
            let read: Value = serde_json::from_str(&line).with_context(|| line.clone())?;
            if found(&read) {
                return Ok(read);
            }
            if read["method"] == "mcpServer/elicitation/request" {
                self.asked.push(message(&read["params"])?);
                let accept = json!({"action": "accept", "content": self.content});
                self.send(&json!({"id": read["id"], "result": accept}))
                    .await?;
            }
        }
        bail!("codex ended without an answer")
    }
}

/// What `opencode mcp list` says, with the `opencode.json` that `chandlery connect` prints.
pub async fn opencode(server: &Server) -> Result<String> {
    let home = Home::new(server)?;
    home.write("opencode.json", &home.snippet("opencode").await?)?;
    output(
        home.command(&installed("node/bin/opencode")?)?
            .args(["mcp", "list"]),
    )
    .await
}

async fn run_opencode(server: &Server, model: &Model) -> Result<Vec<String>> {
    let home = Home::new(server)?;
    let mut config: Value = serde_json::from_str(&home.snippet("opencode").await?)?;
    config["model"] = json!("none/none");
    // A provider that is part of the program; another would be fetched.
    config["provider"]["none"] = json!({
        "npm": "@ai-sdk/anthropic",
        "options": {"baseURL": format!("{}/v1", model.url), "apiKey": "none"},
        "models": {"none": {}},
    });
    home.write("opencode.json", &config.to_string())?;
    output(
        home.command(&installed("node/bin/opencode")?)?
            .args(["run", PROMPT]),
    )
    .await?;
    Ok(Vec::new())
}

/// The text of a question, which the agents pass on under the name that it has in MCP.
fn message(question: &Value) -> Result<String> {
    let message = question["message"].as_str();
    Ok(message.with_context(|| question.to_string())?.to_owned())
}
