//! The public clients that `tests/setup` put into the cache, and what each sees of an agent.
//!
//! They run as people run them, but with a home of their own, with nothing of this process's environment, and with no
//! way out: whatever is not on loopback goes to a proxy that does not exist.

pub mod coding;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use crate::client::Era;
use crate::{cluster, output, release};

/// Python with the packages `mcp` and `fastmcp`.
pub fn python() -> Result<PathBuf> {
    installed("python/bin/python")
}

/// Node, at least 22.
pub fn node() -> Result<PathBuf> {
    installed("node/bin/node")
}

/// A program of a Node package, such as `conformance` or `mcp-inspector`: the script to give to [`node`].
pub fn node_program(name: &str) -> Result<PathBuf> {
    installed(&format!("node/node_modules/.bin/{name}"))
}

fn installed(path: &str) -> Result<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache")))
        .context("neither XDG_CACHE_HOME nor HOME is set")?;
    let path = cache.join("chandlery/clients").join(path);
    ensure!(
        path.exists(),
        "{} is missing: run tests/setup",
        path.display()
    );
    Ok(path)
}

/// What a client has to know of an agent.
pub struct Server {
    /// The agent's endpoint, `http://HOST/runtime/agents/ID/mcp`.
    pub url: String,
    pub key: String,
}

/// A client that is a library, driven by a script of `tests/clients`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// Python's `mcp`, which takes the newest protocol that both know.
    Mcp,
    /// The same, as it spoke until 2025.
    McpLegacy,
    FastMcp,
    /// `@modelcontextprotocol/sdk`.
    TypeScriptV1,
    /// `@modelcontextprotocol/client` as it is without options: the protocol of 2025.
    TypeScriptV2,
    /// The same, told to take the newest protocol that both know.
    TypeScriptV2Auto,
}

/// All of them, for tests that must hold with each.
pub const LIBRARIES: [Library; 6] = [
    Library::Mcp,
    Library::McpLegacy,
    Library::FastMcp,
    Library::TypeScriptV1,
    Library::TypeScriptV2,
    Library::TypeScriptV2Auto,
];

/// What a library saw of an agent.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seen {
    /// The version that client and server agreed on.
    pub protocol: String,
    /// Names of all tools.
    pub tools: Vec<String>,
    /// The tool's result, if one was called. It may say `isError`.
    #[serde(default)]
    pub result: Value,
    /// `code` and `message` of the JSON-RPC error that the call was answered with instead.
    #[serde(default)]
    pub error: Value,
    /// What the server asked the user, in order.
    pub asked: Vec<String>,
}

impl Library {
    /// Lists the agent's tools.
    pub async fn list(self, server: &Server) -> Result<Seen> {
        self.run(server, &[]).await
    }

    /// Lists the tools and calls one. This client has no user who could be asked.
    pub async fn call(self, server: &Server, tool: &str, arguments: &Value) -> Result<Seen> {
        let arguments = arguments.to_string();
        self.run(server, &["--tool", tool, "--arguments", &arguments])
            .await
    }

    /// The same with a user who accepts whatever is asked, and fills in `content` where there is a form.
    pub async fn call_and_accept(
        self,
        server: &Server,
        tool: &str,
        arguments: &Value,
        content: &Value,
    ) -> Result<Seen> {
        let (arguments, content) = (arguments.to_string(), content.to_string());
        let call = ["--tool", tool, "--arguments", &arguments];
        self.run(server, &[&call[..], &["--accept", &content]].concat())
            .await
    }

    async fn run(self, server: &Server, options: &[&str]) -> Result<Seen> {
        let (program, script, name) = match self {
            Self::Mcp => (python()?, "call.py", "mcp"),
            Self::McpLegacy => (python()?, "call.py", "mcp-legacy"),
            Self::FastMcp => (python()?, "call.py", "fastmcp"),
            Self::TypeScriptV1 => (node()?, "call.cjs", "v1"),
            Self::TypeScriptV2 => (node()?, "call.cjs", "v2"),
            Self::TypeScriptV2Auto => (node()?, "call.cjs", "v2-auto"),
        };
        let home = Home::new(server)?;
        let script = cluster::repository().join("tests/clients").join(script);
        let printed = output(home.command(&program)?.arg(script).arg(name).args(options)).await?;
        serde_json::from_str(&printed).with_context(|| format!("{self:?} printed {printed}"))
    }
}

/// What the Inspector's command line prints of a call, whose one argument is `NAME=VALUE`.
///
/// It declares no elicitation. With the newest protocol it declares tasks, and waits for theirs to end.
pub async fn inspector(server: &Server, era: Era, tool: &str, argument: &str) -> Result<String> {
    let era = match era {
        Era::Stateless => "auto",
        Era::Sessions => "legacy",
    };
    let home = Home::new(server)?;
    output(
        home.command(&node()?)?
            .arg(node_program("mcp-inspector")?)
            .args(["--cli", &server.url, "--transport", "http"])
            .args(["--header", &format!("Authorization: Bearer {}", server.key)])
            .args(["--protocol-era", era, "--method", "tools/call"])
            .args(["--tool-name", tool, "--tool-arg", argument]),
    )
    .await
}

/// Where a client runs: a folder that is its home and its project, with the agent's key in the environment.
struct Home<'a> {
    folder: TempDir,
    server: &'a Server,
}

impl<'a> Home<'a> {
    fn new(server: &'a Server) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        Ok(Self { folder, server })
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().context("a folder")?)?;
        Ok(fs::write(path, text)?)
    }

    fn command(&self, program: &Path) -> Result<Command> {
        let Server { url, key } = self.server;
        let uri: http::Uri = url.parse()?;
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.folder.path())
            .env("NODE_PATH", installed("node/node_modules")?)
            .env("CHANDLERY_URL", url)
            .env("CHANDLERY_KEY", key)
            // Agents look for updates, models and plugins. Nothing listens on this port. The model that some tests
            // have is on loopback, as the gateway is.
            .env("HTTP_PROXY", "http://127.0.0.1:9")
            .env("HTTPS_PROXY", "http://127.0.0.1:9")
            .env("NO_PROXY", uri.host().context("a host")?)
            .stdin(Stdio::null())
            .current_dir(self.folder.path());
        Ok(command)
    }

    /// What `chandlery connect` prints for this client.
    async fn snippet(&self, client: &str) -> Result<String> {
        let (base, agent) = self
            .server
            .url
            .split_once("/runtime/agents/")
            .and_then(|(base, path)| Some((base, path.strip_suffix("/mcp")?)))
            .context("an agent's endpoint")?;
        self.write("key", &self.server.key)?;
        let mut connect = Command::new(release::programs().await?.join("chandlery"));
        let connect = connect
            .args(["connect", agent, "--client", client, "--url", base])
            .args(["--key-file", "key"])
            .current_dir(self.folder.path());
        output(connect).await
    }
}
