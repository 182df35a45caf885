//! The gateway under test: the program itself, on a folder with one agent.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::{LOAD_CORE, SERVER_CORE};

const MANIFESTS: &str = r"
apiVersion: chandlery.dev/v1alpha1
kind: Workspace
metadata: {name: team}
spec: {}
---
apiVersion: chandlery.dev/v1alpha1
kind: Agent
metadata: {name: bench}
spec: {workspaceRef: {name: team}}
";

/// What is added where the tool is an MCP server's.
fn source(upstream: SocketAddr, approved: Option<&str>) -> String {
    let pinning = match approved {
        Some(revision) => format!("pinning: {{approvedRevision: '{revision}'}}, "),
        None => String::new(),
    };
    format!(
        r"
---
apiVersion: chandlery.dev/v1alpha1
kind: ToolSource
metadata: {{name: bare}}
spec: {{{pinning}mcp: {{url: 'http://{upstream}/mcp'}}, allowedHosts: ['{upstream}']}}
---
apiVersion: chandlery.dev/v1alpha1
kind: ToolGrant
metadata: {{name: bare}}
spec: {{workspaceRef: {{name: team}}, agents: {{all: true}}, tools: [bare/*]}}
"
    )
}

/// A server in a process of its own, which ends with it.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    process: Child,
    folder: Option<TempDir>,
}

impl Server {
    /// The gateway, and the key of its agent.
    pub(crate) fn gateway() -> Result<(Self, String)> {
        Self::gateway_on(MANIFESTS)
    }

    /// The gateway with the tools of the MCP server at `upstream`, and the key of its agent.
    pub(crate) fn gateway_to(upstream: SocketAddr) -> Result<(Self, String)> {
        Self::gateway_on(&Self::with_source(upstream, None))
    }

    fn with_source(upstream: SocketAddr, approved: Option<&str>) -> String {
        let agent = MANIFESTS.replace("{name: team}}", "{name: team}, tools: [bare/*]}");
        agent + &source(upstream, approved)
    }

    /// Approves what the MCP server at `upstream` offers, as a person would.
    pub(crate) fn approve(&self, upstream: SocketAddr) -> Result<()> {
        let folder = self.folder.as_ref().context("a gateway")?.path();
        let listed = Command::new(env!("CARGO_BIN_EXE_chandlery"))
            .args(["sources", "list", "--output", "json", "--url"])
            .arg(format!("http://{}", self.address))
            .arg("--data")
            .arg(folder.join("data"))
            .output()?;
        let sources: serde_json::Value = serde_json::from_slice(&listed.stdout)?;
        let revision = sources[0]["revision"].as_str().context("its revision")?;
        let manifests = Self::with_source(upstream, Some(revision));
        Ok(fs::write(folder.join("manifests/bench.yaml"), manifests)?)
    }

    fn gateway_on(manifests_text: &str) -> Result<(Self, String)> {
        let folder = tempfile::tempdir()?;
        let (manifests, data) = (folder.path().join("manifests"), folder.path().join("data"));
        fs::create_dir(&manifests)?;
        fs::write(manifests.join("bench.yaml"), manifests_text)?;
        let address = free_address()?;
        let process = Command::new("taskset")
            .args(["-c", SERVER_CORE, env!("CARGO_BIN_EXE_chandlery"), "serve"])
            .arg("--manifests")
            .arg(&manifests)
            .arg("--data")
            .arg(&data)
            .args(["--listen", &address.to_string()])
            .args(["--health", &free_address()?.to_string()])
            .stdout(Stdio::null())
            .spawn()
            .context("start the gateway")?;
        let server = Self {
            address,
            process,
            folder: Some(folder),
        };
        let key = data.join("keys/default.bench");
        until("the gateway serves", || {
            key.exists() && TcpStream::connect(address).is_ok()
        })?;
        let key = fs::read_to_string(key)?;
        Ok((server, key.trim().to_owned()))
    }

    /// The echo server.
    pub(crate) fn echo() -> Result<Self> {
        Self::own(SERVER_CORE, &["echo"])
    }

    /// The MCP server that proxies go to. It shares the load's core: what is measured has one to itself.
    pub(crate) fn upstream() -> Result<Self> {
        Self::own(LOAD_CORE, &["upstream"])
    }

    /// The bare proxy.
    pub(crate) fn raw_proxy(upstream: SocketAddr) -> Result<Self> {
        Self::own(SERVER_CORE, &["raw-proxy", &upstream.to_string()])
    }

    /// This program in another role.
    fn own(core: &str, role: &[&str]) -> Result<Self> {
        let mut process = Command::new("taskset")
            .args(["-c", core])
            .arg(std::env::current_exe()?)
            .args(role)
            .stdout(Stdio::piped())
            .spawn()
            .context("start a server of the bench")?;
        let output = process.stdout.take().context("its output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let server = Self {
            address: line.trim().parse().context("its address")?,
            process,
            folder: None,
        };
        Ok(server)
    }

    /// Time that it has spent on a core so far.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let mut spent = 0;
        for task in fs::read_dir(format!("/proc/{}/task", self.process.id()))? {
            // A thread may have ended meanwhile.
            let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) else {
                continue;
            };
            let first = text.split_whitespace().next().unwrap_or_default();
            spent += first.parse::<u64>().context("schedstat")?;
        }
        Ok(Duration::from_nanos(spent))
    }

    /// Memory that belongs to it, in bytes, once it has settled.
    pub(crate) fn memory(&self) -> Result<usize> {
        // The allocator gives back what has been free for a second.
        sleep(Duration::from_secs(3));
        let path = format!("/proc/{}/smaps_rollup", self.process.id());
        let text = fs::read_to_string(path)?;
        for line in text.lines() {
            if let Some(size) = line.strip_prefix("Pss:") {
                let kilobytes: usize = size.trim().trim_end_matches(" kB").parse()?;
                return Ok(kilobytes * 1024);
            }
        }
        bail!("no Pss in smaps_rollup")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has nothing to finish.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        ensure!(Instant::now() < deadline, "never: {what}");
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
