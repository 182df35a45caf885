//! The gateway under test: the program itself, on a folder with one agent.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::SERVER_CORE;

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

/// A server in a process of its own, which ends with it.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    process: Child,
    _folder: Option<TempDir>,
}

impl Server {
    /// The gateway, and the key of its agent.
    pub(crate) fn gateway() -> Result<(Self, String)> {
        let folder = tempfile::tempdir()?;
        let (manifests, data) = (folder.path().join("manifests"), folder.path().join("data"));
        fs::create_dir(&manifests)?;
        fs::write(manifests.join("bench.yaml"), MANIFESTS)?;
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
            _folder: Some(folder),
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
        let mut process = Command::new("taskset")
            .args(["-c", SERVER_CORE])
            .arg(std::env::current_exe()?)
            .arg("echo")
            .stdout(Stdio::piped())
            .spawn()
            .context("start the echo server")?;
        let output = process.stdout.take().context("its output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let server = Self {
            address: line.trim().parse().context("its address")?,
            process,
            _folder: None,
        };
        Ok(server)
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
