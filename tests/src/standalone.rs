//! The gateway without Kubernetes, as a process on loopback.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::StatusCode;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::client::Endpoint;
use crate::{cluster, output, release};

/// How long a gateway may take to start and to stop.
const SOON: Duration = Duration::from_secs(30);

/// A gateway on manifests and data of its own.
pub struct Gateway {
    /// Where it was started: `manifests/`, `data/` and `log` lie here.
    pub root: TempDir,
    process: Child,
    /// What it printed.
    pub printed: String,
}

impl Gateway {
    /// Serves a copy of `examples/quickstart`.
    pub async fn start() -> Result<Self> {
        let root = tempfile::tempdir()?;
        let manifests = root.path().join("manifests");
        fs::create_dir(&manifests)?;
        for entry in fs::read_dir(cluster::repository().join("examples/quickstart"))? {
            let path = entry?.path();
            fs::copy(&path, manifests.join(path.file_name().context("a file")?))?;
        }
        Self::start_in(root).await
    }

    /// Serves the manifests of `root`, with the data of an earlier gateway if there is some.
    pub async fn start_in(root: TempDir) -> Result<Self> {
        let log = fs::File::create(root.path().join("log"))?;
        let mut process = Command::new(release::programs().await?.join("chandlery"))
            .args(["serve", "--listen=127.0.0.1:0", "--health=127.0.0.1:0"])
            .args(["--manifests", "manifests", "--data", "data"])
            .current_dir(root.path())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        let mut lines = BufReader::new(process.stdout.take().context("a pipe")?).lines();
        let mut printed = String::new();
        while let Some(line) = tokio::time::timeout(SOON, lines.next_line()).await?? {
            printed.push_str(&line);
            printed.push('\n');
            if line.starts_with("serving ") {
                break;
            }
        }
        let gateway = Self {
            root,
            process,
            printed,
        };
        ensure!(gateway.printed.contains("\nserving "), "{}", gateway.log());
        Ok(gateway)
    }

    /// Ends as on a server's shutdown; the folder stays.
    pub async fn stop(mut self) -> Result<TempDir> {
        let id = self.process.id().context("it runs")?.to_string();
        output(Command::new("kill").args(["-TERM", &id])).await?;
        let status = tokio::time::timeout(SOON, self.process.wait()).await??;
        ensure!(status.success(), "{status}: {}", self.log());
        Ok(self.root)
    }

    /// Makes or changes a manifest.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        Ok(fs::write(
            self.root.path().join("manifests").join(name),
            text,
        )?)
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.root.path().join("log")).unwrap_or_default()
    }

    /// The value behind `name` in the lines that were printed, from the line that starts with `after` on.
    pub fn shown(&self, after: &str, name: &str) -> Result<String> {
        let mut lines = self
            .printed
            .lines()
            .skip_while(|line| !line.starts_with(after));
        let value = lines.find_map(|line| line.trim_start().strip_prefix(name));
        Ok(value
            .with_context(|| format!("{name} is printed"))?
            .trim()
            .to_owned())
    }

    /// What is printed between the heading that names `client` and the next blank line before a heading.
    pub fn snippet(&self, agent: &str, client: &str) -> Result<String> {
        let heading = format!("--- {agent}, {client}: ");
        let (_, rest) = self
            .printed
            .split_once(&heading)
            .with_context(|| heading.clone())?;
        let (_, rest) = rest.split_once('\n').context("a line")?;
        let end = ["\n\n--- ", "\n\nMore "]
            .iter()
            .filter_map(|next| rest.find(next))
            .min();
        Ok(rest[..end.context("an end")?].to_owned())
    }

    pub fn endpoint(&self, agent: &str) -> Result<Endpoint> {
        let uri: http::Uri = self.shown(&format!("agent {agent}"), "endpoint")?.parse()?;
        let address = uri.authority().context("an address")?.as_str().parse()?;
        Ok(Endpoint { uri, address })
    }

    pub fn key(&self, agent: &str) -> Result<String> {
        let file = self.shown(&format!("agent {agent}"), "key file")?;
        Ok(fs::read_to_string(file)?)
    }

    /// What the agent's key gets from the agent's endpoint.
    pub async fn status(&self, agent: &str) -> Result<StatusCode> {
        self.endpoint(agent)?.status_for(&self.key(agent)?).await
    }
}
