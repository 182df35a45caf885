//! What a gateway without Kubernetes says once it serves: where its agents connect, and how.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use super::cli;
use super::connect::{Client, Endpoint};
use crate::directory::Directory;
use crate::directory::files::{ADMIN, key_file, person_file};

/// Agents that get all their snippets printed; for more there is `chandlery connect`.
const WITH_SNIPPETS: usize = 3;
const CLIENTS: [(&str, Client); 3] = [
    ("Claude Code", Client::ClaudeCode),
    ("Python", Client::Python),
    ("MCP Inspector", Client::Inspector),
];

pub(super) struct Announcement {
    base: String,
    health: String,
    agents: Vec<Endpoint>,
    /// The token that was made since no Workspace names people.
    token: Option<PathBuf>,
}

impl Announcement {
    pub(super) fn new(
        listen: SocketAddr,
        health: SocketAddr,
        data: &Path,
        directory: &Directory,
    ) -> Self {
        let base = url(listen);
        let snapshot = directory.snapshot();
        let mut ids: Vec<&String> = snapshot
            .iter()
            .flat_map(|known| known.agents.keys())
            .collect();
        ids.sort();
        let agents = ids
            .into_iter()
            .map(|id| Endpoint::new(&base, id, &key_file(data, id)))
            .collect();
        let is_admin = |known: &crate::directory::Snapshot| {
            known.people.values().any(|person| *person.name == *ADMIN)
        };
        let token = person_file(data, ADMIN);
        let is_made = token.is_file() && snapshot.as_deref().is_some_and(is_admin);
        let token = is_made.then(|| std::path::absolute(&token).unwrap_or(token));
        Self {
            token,
            base,
            health: url(health),
            agents,
        }
    }

    pub(super) fn print(&self) {
        cli::print(self);
    }
}

/// An address that listens everywhere is reached here at loopback.
fn url(mut address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        address.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    format!("http://{address}")
}

impl fmt::Display for Announcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for agent in &self.agents {
            writeln!(f, "agent {}", agent.agent)?;
            writeln!(f, "  endpoint  {}", agent.url)?;
            if agent.key_file.is_file() {
                writeln!(f, "  key file  {}", agent.key_file.display())?;
            } else {
                writeln!(
                    f,
                    "  key file  none: it is not deployed, or its key is in a Secret"
                )?;
            }
        }
        let with_key = self.agents.iter().filter(|agent| agent.key_file.is_file());
        for agent in with_key.take(WITH_SNIPPETS) {
            for (name, client) in CLIENTS {
                writeln!(f, "\n--- {}, {name}: {}", agent.agent, agent.hint(client))?;
                writeln!(f, "{}", agent.snippet(client))?;
            }
        }
        writeln!(
            f,
            "\nMore agents and clients: chandlery connect AGENT --client …"
        )?;
        if let Some(token) = &self.token {
            writeln!(f, "people    token of {ADMIN}: {}", token.display())?;
            writeln!(
                f,
                "          for chandlery inbox, approve and deny, and {}/api/v1",
                self.base
            )?;
        }
        writeln!(f, "health    {}/readyz", self.health)?;
        write!(f, "serving   {}", self.base)
    }
}
