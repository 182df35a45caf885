//! `chandlery connect`: how a client is told of an agent's endpoint. No snippet holds the key, only where it lies.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use chandlery_crds::names;
use clap::ValueEnum;

use super::cli::{fail, note, print};
use super::people::with_namespace;
use crate::directory::files::key_file;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The agent: its name, or <namespace>.<name>.
    agent: String,
    /// Which client to configure.
    #[arg(long, value_enum)]
    client: Client,
    /// Where the gateway listens.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    url: String,
    /// The gateway's data folder.
    #[arg(long, value_name = "DIR", default_value = super::settings::DATA)]
    data: PathBuf,
    /// File with the agent's key, if it is not in the data folder.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Client {
    /// .mcp.json of a project.
    ClaudeCode,
    /// Commands for the Codex CLI.
    Codex,
    /// opencode.json of a project.
    Opencode,
    /// A program for the Python package mcp.
    Python,
    /// A command of the MCP Inspector.
    Inspector,
}

/// An agent's endpoint, as a client needs it.
pub(super) struct Endpoint {
    /// `<namespace>.<name>`.
    pub(super) agent: String,
    pub(super) url: String,
    /// Absolute, so that snippets work from anywhere.
    pub(super) key_file: PathBuf,
}

impl Endpoint {
    /// `base` is the gateway's URL without a path.
    pub(super) fn new(base: &str, agent: &str, key_file: &Path) -> Self {
        Self {
            agent: agent.to_owned(),
            url: format!("{}{}", base.trim_end_matches('/'), names::agent_path(agent)),
            key_file: std::path::absolute(key_file).unwrap_or_else(|_| key_file.to_owned()),
        }
    }

    /// What a person has to do with the snippet.
    pub(super) fn hint(&self, client: Client) -> String {
        let key_file = self.key_file.display();
        let export = format!(r#"export CHANDLERY_KEY="$(cat '{key_file}')""#);
        match client {
            Client::ClaudeCode => format!("write this to .mcp.json; before claude: {export}"),
            Client::Opencode => format!("write this to opencode.json; before opencode: {export}"),
            Client::Codex => format!("run this; before codex: {export}"),
            Client::Python => "run this with Python; it needs: pip install mcp==2.3.0".to_owned(),
            Client::Inspector => "run this with Node 22 or newer".to_owned(),
        }
    }

    /// A whole file or command that works as it is; ends without a line break.
    pub(super) fn snippet(&self, client: Client) -> String {
        let Self {
            agent,
            url,
            key_file,
        } = self;
        let name = agent.replace('.', "-");
        let key_file = key_file.display();
        match client {
            Client::ClaudeCode => format!(
                r#"{{
  "mcpServers": {{
    "{name}": {{
      "type": "http",
      "url": "{url}",
      "headers": {{ "Authorization": "Bearer ${{CHANDLERY_KEY}}" }}
    }}
  }}
}}"#
            ),
            Client::Codex => {
                format!("codex mcp add {name} --url {url} --bearer-token-env-var CHANDLERY_KEY")
            }
            Client::Opencode => format!(
                r#"{{
  "mcp": {{
    "{name}": {{
      "type": "remote",
      "url": "{url}",
      "headers": {{ "Authorization": "Bearer {{env:CHANDLERY_KEY}}" }}
    }}
  }}
}}"#
            ),
            Client::Python => format!(
                r#"import asyncio
from pathlib import Path

from mcp import Client
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

URL = "{url}"
KEY = Path("{key_file}").read_text().strip()
MODE = "auto"  # the newest protocol that both know; "legacy" is that of 2025


async def main():
    http = create_mcp_http_client(headers={{"Authorization": f"Bearer {{KEY}}"}})
    async with Client(streamable_http_client(URL, http_client=http), mode=MODE) as client:
        print([tool.name for tool in (await client.list_tools()).tools])
        print((await client.call_tool("agnt_datetime_now", {{}})).content[0].text)


asyncio.run(main())"#
            ),
            Client::Inspector => format!(
                r#"npx @modelcontextprotocol/inspector@2.12.0 --cli {url} --transport http \
  --header "Authorization: Bearer $(cat '{key_file}')" --protocol-era auto --method tools/list"#
            ),
        }
    }
}

pub(super) fn run(args: Args) -> ExitCode {
    let agent = with_namespace(&args.agent);
    let key_file = args
        .key_file
        .unwrap_or_else(|| key_file(&args.data, &agent));
    if !key_file.is_file() {
        return fail(format_args!(
            "{} is missing: write --data with the data folder of the gateway that serves {agent}, or --key-file",
            key_file.display()
        ));
    }
    let endpoint = Endpoint::new(&args.url, &agent, &key_file);
    note(endpoint.hint(args.client));
    print(endpoint.snippet(args.client))
}
