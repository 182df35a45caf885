//! Coding agents, configured as `chandlery connect` says, each with a home of its own.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use super::{Home, Server, installed};
use crate::output;

/// How long Codex may take for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// What `claude mcp list` says, with the `.mcp.json` that `chandlery connect` prints, approved by the user.
pub async fn claude_code(server: &Server) -> Result<String> {
    let home = Home::new(server)?;
    home.write(".mcp.json", &home.snippet("claude-code").await?)?;
    let approved = json!({"enableAllProjectMcpServers": true});
    home.write(".claude/settings.json", &approved.to_string())?;
    output(
        home.command(&installed("node/bin/claude")?)?
            .args(["mcp", "list"]),
    )
    .await
}

/// What `codex app-server` says of the server that the command of `chandlery connect` made known to it: `tools` by name,
/// and `toolsError`.
pub async fn codex(server: &Server) -> Result<Value> {
    let home = Home::new(server)?;
    let program = installed("node/bin/codex")?;
    let add = home.snippet("codex").await?;
    let add = add.replacen("codex", &program.display().to_string(), 1);
    output(home.command(Path::new("sh"))?.args(["-c", &add])).await?;
    let log = home.folder.path().join("log");
    let mut codex = home
        .command(&program)?
        .arg("app-server")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(fs::File::create(&log)?)
        .kill_on_drop(true)
        .spawn()?;
    let mut requests = codex.stdin.take().context("a pipe")?;
    let about = json!({"name": "chandlery-tests", "title": "Tests", "version": "0"});
    for message in [
        json!({"id": 1, "method": "initialize", "params": {"clientInfo": about}}),
        json!({"method": "initialized"}),
        json!({"id": 2, "method": "mcpServerStatus/list", "params": {}}),
    ] {
        requests
            .write_all(format!("{message}\n").as_bytes())
            .await?;
    }
    let mut answers = BufReader::new(codex.stdout.take().context("a pipe")?).lines();
    let status = async {
        while let Some(line) = answers.next_line().await? {
            let message: Value = serde_json::from_str(&line).with_context(|| line.clone())?;
            if message["id"] == 2 {
                return Ok(message["result"]["data"][0].clone());
            }
        }
        bail!("codex ended without an answer")
    };
    let status = tokio::time::timeout(PATIENCE, status).await;
    codex.kill().await?;
    let said = || fs::read_to_string(&log).unwrap_or_default();
    status
        .context("codex does not answer")
        .flatten()
        .with_context(said)
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
