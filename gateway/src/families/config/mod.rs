//! What an agent says about itself: the changes of its config that it asks a person for, and its standing directives
//! (R-C-044, R-C-077…082). Nothing here changes a spec.

mod patch;
mod requests;
mod store;

use std::sync::Arc;

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tracing::warn;

pub use self::requests::{ConfigRequest, ConfigRequests, Decided, Decision, Status};
use crate::approvals::digest;
use crate::directory::Agent;
use crate::families::Entry;
use crate::families::arguments::{closed, decode, wrong};
use crate::family::{Call, Family};
use crate::gate::Permit;
use crate::store::{Causes, Scope, Store};
use crate::times::rfc3339;
use crate::tool::{Effect, Output, Served, Tool, ToolError};

const REQUEST: &str = "agnt_request_config_change";
const LIST: &str = "agnt_list_config_requests";
const DIRECTIVES: &str = "agnt_update_self_directives";

/// Characters of a summary and of directives.
const SUMMARY: usize = 1_000;
const TEXT: usize = 4_000;
/// Requests of one agent that may be open at once.
const MOST_OPEN: i64 = 100;
/// Requests of a list, unless the caller says otherwise, and at most.
const PAGE: i64 = 20;
const MOST: i64 = 50;
/// Bytes of patches and summaries after which a list ends, one request at least.
const PAGE_BYTES: usize = 256 * 1024;

/// The line that `families/mod.rs` has of this family.
pub const FAMILY: Entry = Entry {
    tools,
    make: |store| Arc::new(Config::new(store.clone())),
};

pub struct Config {
    store: Store,
}

#[derive(Deserialize)]
struct Ask {
    summary: String,
    patch: Map<String, Value>,
    #[serde(default)]
    blocking: bool,
}

#[derive(Deserialize)]
struct List {
    status: Option<Status>,
    limit: Option<i64>,
}

#[derive(Deserialize)]
struct Rewrite {
    directives: String,
}

fn tools() -> Vec<Tool> {
    let tool =
        |name: &'static str, title: &'static str, description: &'static str, schema, effect| Tool {
            name: name.into(),
            title: title.into(),
            description: description.into(),
            input_schema: schema,
            effect,
            served: Served::Always,
            group: None,
            interactive: false,
            origin: None,
        };
    vec![
        tool(
            REQUEST,
            "Ask for a config change",
            "Ask a person to change your config: to give you a tool that you lack, or a setting. A person decides; see agnt_list_config_requests. Asking again with the same patch takes the place of the request before.",
            closed(
                json!({
                    "summary": {"type": "string", "minLength": 1, "maxLength": SUMMARY, "description": "What should change and why, for the person who decides."},
                    "patch": {"type": "object", "description": "JSON merge patch of your Agent's spec, at most 16 KiB, such as {\"tools\": [\"crm/list_customers\"]}. A list replaces the whole list that is there."},
                    "blocking": {"type": "boolean", "description": "Whether you can't go on without it. Default: false."}
                }),
                &["summary", "patch"],
            ),
            Effect::Writes { idempotent: false },
        ),
        tool(
            LIST,
            "Your config requests",
            "The config changes that you have asked for, newest first, and what people decided about them.",
            closed(
                json!({
                    "status": {"type": "string", "enum": ["open", "approved", "rejected", "superseded"], "description": "Only those. Default: all."},
                    "limit": {"type": "integer", "minimum": 1, "maximum": MOST, "description": "How many at most. Default: 20."}
                }),
                &[],
            ),
            Effect::Reads,
        ),
        tool(
            DIRECTIVES,
            "Rewrite your standing directives",
            "Rewrite your own standing directives: what you tell yourself at the start of each session, from the next one on. This replaces all of the old ones; an empty text leaves none.",
            closed(
                json!({
                    "directives": {"type": "string", "maxLength": TEXT, "description": "All of the new directives, at most 4,000 characters."}
                }),
                &["directives"],
            ),
            Effect::Destroys { idempotent: true },
        ),
    ]
}

impl Config {
    pub fn new(store: Store) -> Self {
        Self { store }
    }

    async fn ask(&self, agent: &Agent, scope: Scope, ask: Ask) -> Result<Output, ToolError> {
        let patch = patch::check(agent, &ask.patch).map_err(|problem| wrong(REQUEST, &problem))?;
        let new = store::NewRequest {
            agent: agent.id.clone(),
            agent_uid: agent.uid.clone(),
            summary: ask.summary,
            digest: digest(&patch),
            patch,
            is_blocking: ask.blocking,
        };
        let filed = store::file(&self.store, scope, new, MOST_OPEN).await?;
        let Some(id) = filed else {
            return Err(ToolError::refused(format!(
                "{REQUEST}: {MOST_OPEN} of your requests are open already; wait until a person has decided about some of them"
            )));
        };
        Ok(Output::Structured {
            text: format!(
                "request {id} is open: a person decides about it. {LIST} tells how it went"
            ),
            value: json!({"request_id": id, "status": Status::Open}),
        })
    }

    async fn list(&self, agent: &Agent, scope: Scope, list: List) -> Result<Output, ToolError> {
        let limit = list.limit.unwrap_or(PAGE);
        let uid = Some(agent.uid.as_str());
        let rows = store::list(&self.store, scope, uid, list.status, None, limit + 1).await?;
        let mut bytes = 0;
        let mut shown = Vec::new();
        for row in rows.iter().zip(0..limit).map(|(row, _)| row) {
            bytes += row.patch.len() + row.summary.len();
            if bytes > PAGE_BYTES && !shown.is_empty() {
                break;
            }
            shown.push(show(row));
        }
        let value = json!({"requests": shown, "more": shown.len() < rows.len()});
        Ok(Output::Structured {
            text: value.to_string(),
            value,
        })
    }

    async fn rewrite(
        &self,
        agent: &Agent,
        scope: Scope,
        rewrite: Rewrite,
    ) -> Result<Output, ToolError> {
        let directives = match rewrite.directives {
            blank if blank.trim().is_empty() => String::new(),
            directives => directives,
        };
        let chars = directives.chars().count();
        let (id, uid) = (agent.id.clone(), agent.uid.clone());
        store::rewrite_directives(&self.store, scope, id, uid, directives).await?;
        Ok(Output::Structured {
            text: match chars {
                0 => "directives cleared, from your next session on".to_owned(),
                chars => format!(
                    "directives rewritten ({chars} characters), in effect from your next session on"
                ),
            },
            value: json!({"chars": chars, "effective": "next_session"}),
        })
    }
}

fn show(request: &ConfigRequest) -> Value {
    let mut shown = json!({
        "id": request.id,
        "status": request.status,
        "summary": request.summary,
        "patch": serde_json::from_str::<Value>(&request.patch).unwrap_or_default(),
        "blocking": request.is_blocking,
        "created_at": rfc3339(request.created_at),
    });
    if let Some(at) = request.decided_at {
        shown["decided_at"] = rfc3339(at).into();
    }
    if let Some(reason) = &request.reason {
        shown["reason"] = reason.as_str().into();
    }
    shown
}

impl Family for Config {
    fn tools(&self) -> Vec<Tool> {
        tools()
    }

    fn instructions(&self) -> Option<&'static str> {
        Some(
            "A tool or a right that you lack: ask a person for it with the tool `agnt_request_config_change`.",
        )
    }

    fn standing<'a>(&'a self, agent: &'a Agent) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move {
            let requests = ConfigRequests::new(self.store.clone());
            match requests.directives(&agent.workspace.id, &agent.uid).await {
                Ok(directives) => directives.map(|directives| {
                    format!(
                        "Your standing directives, which you have written yourself with the tool `{DIRECTIVES}`:\n\n{directives}"
                    )
                }),
                Err(failure) => {
                    warn!(error = %Causes(&failure), agent.name = %agent.id, "an agent's directives could not be read; its session begins without");
                    None
                }
            }
        })
    }

    fn call<'a>(
        &'a self,
        permit: &'a Permit<'a>,
        call: Call<'a>,
    ) -> BoxFuture<'a, Result<Output, ToolError>> {
        Box::pin(async move {
            let (tool, agent) = (permit.tool(), permit.agent());
            let workspace = &agent.workspace.id;
            match &*tool.name {
                REQUEST => {
                    let ask = decode(tool, call.arguments)?;
                    let scope = self.store.scope(workspace).await?;
                    self.ask(agent, scope, ask).await
                }
                LIST => {
                    let list = decode(tool, call.arguments)?;
                    let scope = self.store.scope(workspace).await?;
                    self.list(agent, scope, list).await
                }
                _ => {
                    let rewrite = decode(tool, call.arguments)?;
                    let scope = self.store.scope(workspace).await?;
                    self.rewrite(agent, scope, rewrite).await
                }
            }
        })
    }
}
