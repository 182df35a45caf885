//! `agnt_support_*`: the documentation, and tickets that the people who run the installation answer (R-C-072…076).
//!
//! A ticket belongs to its Workspace and is seen by the agent that made it alone.

mod docs;
mod store;
mod tickets;

use std::sync::Arc;

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};

use self::docs::Index;
use self::store::{Request, Sent, Unsent, Writer};
pub use self::tickets::{
    Changed, Conversation, Message, Priority, Sender, Status, Ticket, Tickets,
};
use crate::approvals::digest;
use crate::directory::Agent;
use crate::families::Entry;
use crate::families::arguments::{closed, decode, wrong};
use crate::family::{Call, Family};
use crate::gate::Permit;
use crate::store::{Id, Scope, Store};
use crate::times::rfc3339;
use crate::tool::{Effect, Group, Output, Served, Tool, ToolError};

const SEARCH: &str = "agnt_support_docs_search";
const LIST: &str = "agnt_support_tickets_list";
const GET: &str = "agnt_support_ticket_get";
const CREATE: &str = "agnt_support_ticket_create";
const REPLY: &str = "agnt_support_ticket_reply";

/// Characters of a message, and of the question that a ticket begins with.
pub const BODY: usize = 16_000;
/// Characters of a query, a subject and a request's id.
const QUERY: usize = 400;
const SUBJECT: usize = 200;

const REQUEST: usize = 64;
/// Hits of a search and tickets of a list, unless the caller says otherwise, and at most.
const HITS: usize = 5;
const MOST_HITS: usize = 20;
const PAGE: i64 = 20;
const MOST: i64 = 100;

/// The line that `families/mod.rs` has of this family.
pub const FAMILY: Entry = Entry {
    tools,
    make: |store| Arc::new(Support::new(store.clone())),
};

pub struct Support {
    store: Store,
    docs: Index,
}

#[derive(Deserialize)]
struct Search {
    query: String,
    limit: Option<usize>,
}

#[derive(Deserialize)]
struct List {
    status: Option<Status>,
    limit: Option<i64>,
}

#[derive(Deserialize)]
struct Get {
    ticket_id: String,
    after: Option<String>,
}

#[derive(Deserialize)]
struct Create {
    subject: String,
    body: String,
    priority: Option<Priority>,
    request_id: Option<String>,
}

#[derive(Deserialize)]
struct Reply {
    ticket_id: String,
    body: String,
    request_id: Option<String>,
}

fn tools() -> Vec<Tool> {
    let ticket_id = || json!({"type": "string", "minLength": Id::LENGTH, "maxLength": Id::LENGTH, "description": "ID of a ticket of yours."});
    let body = || json!({"type": "string", "minLength": 1, "maxLength": BODY, "description": "What you tried, what happened and what you need, at most 16,000 characters."});
    let request_id = || json!({"type": "string", "minLength": 1, "maxLength": REQUEST, "description": "An id of your own for this call, at most 64 characters: sent again with the same content it gives the same answer and does nothing more."});
    let read = |action: &'static str| {
        Some(Group {
            name: "agnt_support_read".into(),
            title: "Support: look".into(),
            description: "Searches the documentation of what you run on, and reads your tickets at the people who run it.".into(),
            action: action.into(),
        })
    };
    let write = |action: &'static str| {
        Some(Group {
            name: "agnt_support_write".into(),
            title: "Support: ask".into(),
            description: "Asks the people who run this installation for help, in tickets.".into(),
            action: action.into(),
        })
    };
    let tool = |name: &'static str,
                title: &'static str,
                description: &'static str,
                schema,
                effect,
                group| Tool {
        name: name.into(),
        title: title.into(),
        description: description.into(),
        input_schema: schema,
        effect,
        served: Served::Always,
        group,
        interactive: false,
        origin: None,
    };
    vec![
        tool(
            SEARCH,
            "Search the documentation",
            "Search the documentation of Chandlery, which serves you these tools: how they work, what a setting does, what an error means.",
            closed(
                json!({
                    "query": {"type": "string", "minLength": 1, "maxLength": QUERY, "description": "The words to look for, at most 400 characters. Sections with all of them come first."},
                    "limit": {"type": "integer", "minimum": 1, "maximum": MOST_HITS, "description": "How many sections at most. Default: 5."}
                }),
                &["query"],
            ),
            Effect::Reads,
            read("docs_search"),
        ),
        tool(
            LIST,
            "Your support tickets",
            "The tickets that you have made, newest first. One that is answered waits for you.",
            closed(
                json!({
                    "status": {"type": "string", "enum": ["open", "answered", "closed"], "description": "Only those. Default: all."},
                    "limit": {"type": "integer", "minimum": 1, "maximum": MOST, "description": "How many at most. Default: 20."}
                }),
                &[],
            ),
            Effect::Reads,
            read("tickets_list"),
        ),
        tool(
            GET,
            "Read a support ticket",
            "Read a ticket of yours with its messages, oldest first.",
            closed(
                json!({
                    "ticket_id": ticket_id(),
                    "after": {"type": "string", "minLength": Id::LENGTH, "maxLength": Id::LENGTH, "description": "ID of a message: only later ones. Default: all."}
                }),
                &["ticket_id"],
            ),
            Effect::Reads,
            read("ticket_get"),
        ),
        tool(
            CREATE,
            "Make a support ticket",
            "Ask the people who run this installation for help. They answer in the ticket; look there later.",
            closed(
                json!({
                    "subject": {"type": "string", "minLength": 1, "maxLength": SUBJECT, "description": "What it is about, at most 200 characters."},
                    "body": body(),
                    "priority": {"type": "string", "enum": ["low", "normal", "high", "urgent"], "description": "How much hurry there is. Default: normal."},
                    "request_id": request_id()
                }),
                &["subject", "body"],
            ),
            Effect::Writes { idempotent: false },
            write("ticket_create"),
        ),
        tool(
            REPLY,
            "Reply in a support ticket",
            "Add a message to a ticket of yours. A closed one is opened again.",
            closed(
                json!({
                    "ticket_id": ticket_id(),
                    "body": body(),
                    "request_id": request_id()
                }),
                &["ticket_id", "body"],
            ),
            Effect::Writes { idempotent: false },
            write("ticket_reply"),
        ),
    ]
}

impl Support {
    pub fn new(store: Store) -> Self {
        Self {
            store,
            docs: Index::new(),
        }
    }

    async fn search(&self, search: Search) -> Result<Output, ToolError> {
        let Search { query, limit } = search;
        let hits = self.docs.search(&query, limit.unwrap_or(HITS)).await;
        let hits = hits.map_err(|failure| {
            tracing::error!(error = %crate::store::Causes(&failure), "the documentation could not be searched");
            ToolError::unavailable(format!(
                "{SEARCH}: the documentation can't be searched right now; try again in a few seconds"
            ))
        })?;
        let text = match hits.as_slice() {
            [] => format!(
                "nothing in the documentation has these words; try others, or ask people with {CREATE}"
            ),
            hits => {
                let hits = hits.iter().map(|hit| {
                    format!(
                        "{} › {} ({})\n{}",
                        hit.title, hit.section, hit.path, hit.excerpt
                    )
                });
                hits.collect::<Vec<_>>().join("\n\n---\n\n")
            }
        };
        Ok(Output::Structured {
            text,
            value: json!({"results": hits}),
        })
    }

    async fn list(&self, agent: &Agent, scope: Scope, list: List) -> Result<Output, ToolError> {
        let limit = list.limit.unwrap_or(PAGE);
        let uid = Some(agent.uid.as_str());
        let rows = store::list(&self.store, scope, uid, list.status, None, limit + 1).await?;
        let shown: Vec<Value> = rows
            .iter()
            .zip(0..limit)
            .map(|(row, _)| show(row))
            .collect();
        let value = json!({"tickets": shown, "more": shown.len() < rows.len()});
        Ok(Output::Structured {
            text: value.to_string(),
            value,
        })
    }

    async fn get(&self, agent: &Agent, scope: Scope, get: Get) -> Result<Output, ToolError> {
        let after = get.after.as_deref().map(|text| {
            text.parse::<Id>().map_err(|_| {
                wrong(GET, "after must be the id of a message of the ticket, as a call before has shown it")
            })
        });
        let after = after.transpose()?;
        let id = ticket(GET, &get.ticket_id)?;
        let uid = Some(agent.uid.as_str());
        let found = store::conversation(&self.store, scope, uid, id, after).await?;
        let Some(Conversation {
            ticket,
            messages,
            has_more,
        }) = found
        else {
            return Err(no_such_ticket(GET, &get.ticket_id));
        };
        let mut value = show(&ticket);
        let messages = messages.iter().map(|message| {
            json!({
                "id": message.id,
                "from": message.sender,
                "author": message.author,
                "body": message.body,
                "sent_at": rfc3339(message.sent_at),
            })
        });
        value["messages"] = messages.collect();
        value["more"] = has_more.into();
        Ok(Output::Structured {
            text: value.to_string(),
            value,
        })
    }

    async fn create(
        &self,
        agent: &Agent,
        scope: Scope,
        create: Create,
    ) -> Result<Output, ToolError> {
        let Create {
            subject,
            body,
            priority,
            request_id,
        } = create;
        let priority = priority.unwrap_or(Priority::Normal);
        let content = json!({"subject": subject, "body": body, "priority": priority});
        let writer = writer(agent, request_id, &content);
        let sent = store::create(&self.store, scope, writer, subject, body, priority).await;
        let Sent { ticket, message: _ } = sent.map_err(|unsent| unsent.told(CREATE, ""))?;
        Ok(Output::Structured {
            text: format!("ticket {ticket} is made; read the answer with {GET} later"),
            value: json!({"ticket_id": ticket, "status": Status::Open}),
        })
    }

    async fn reply(&self, agent: &Agent, scope: Scope, reply: Reply) -> Result<Output, ToolError> {
        let Reply {
            ticket_id,
            body,
            request_id,
        } = reply;
        let id = ticket(REPLY, &ticket_id)?;
        let writer = writer(agent, request_id, &json!({"ticket_id": id, "body": body}));
        let sent = store::reply(&self.store, scope, writer, id, body).await;
        let Sent { ticket, message } = sent.map_err(|unsent| unsent.told(REPLY, &ticket_id))?;
        Ok(Output::Structured {
            text: format!("reply sent in ticket {ticket}"),
            value: json!({"ticket_id": ticket, "message_id": message, "status": Status::Open}),
        })
    }
}

impl Unsent {
    /// For the agent.
    fn told(self, tool: &str, ticket: &str) -> ToolError {
        match self {
            Self::Store(error) => error.into(),
            Self::OtherContent => wrong(
                tool,
                "request_id was used for other content before, and nothing was done: take a new one for something new",
            ),
            Self::TooManyTickets => ToolError::refused(format!(
                "{tool}: {} of your tickets are not closed yet; reply in one of them with {REPLY}",
                store::MOST_OPEN
            )),
            Self::TooManyMessages => ToolError::refused(format!(
                "{tool}: the ticket holds {} messages, and takes no more; make a new one with {CREATE}",
                store::MOST_MESSAGES
            )),
            Self::NoSuchTicket => no_such_ticket(tool, ticket),
        }
    }
}

fn writer(agent: &Agent, request_id: Option<String>, content: &Value) -> Writer {
    Writer {
        agent: agent.id.clone(),
        agent_uid: agent.uid.clone(),
        request: request_id.map(|id| Request {
            id,
            digest: digest(&content.to_string()),
        }),
    }
}

fn ticket(tool: &str, text: &str) -> Result<Id, ToolError> {
    text.parse().map_err(|_| no_such_ticket(tool, text))
}

fn no_such_ticket(tool: &str, id: &str) -> ToolError {
    let id: String = id.chars().take(32).collect();
    wrong(
        tool,
        &format!("ticket_id: you have no ticket \"{id}\"; {LIST} shows those that you have"),
    )
}

fn show(ticket: &Ticket) -> Value {
    json!({
        "id": ticket.id,
        "subject": ticket.subject,
        "priority": ticket.priority,
        "status": ticket.status,
        "created_at": rfc3339(ticket.created_at),
        "updated_at": rfc3339(ticket.updated_at),
    })
}

impl Family for Support {
    fn tools(&self) -> Vec<Tool> {
        tools()
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
                SEARCH => self.search(decode(tool, call.arguments)?).await,
                LIST => {
                    let list = decode(tool, call.arguments)?;
                    let scope = self.store.scope(workspace).await?;
                    self.list(agent, scope, list).await
                }
                GET => {
                    let get = decode(tool, call.arguments)?;
                    let scope = self.store.scope(workspace).await?;
                    self.get(agent, scope, get).await
                }
                CREATE => {
                    let create = decode(tool, call.arguments)?;
                    let scope = self.store.scope(workspace).await?;
                    self.create(agent, scope, create).await
                }
                _ => {
                    let reply = decode(tool, call.arguments)?;
                    let scope = self.store.scope(workspace).await?;
                    self.reply(agent, scope, reply).await
                }
            }
        })
    }
}
