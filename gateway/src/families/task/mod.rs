//! `task`: this workspace's tasks, and talking to the human in them (R-A-060…123).
//!
//! `create` and `reply` are at least once: a client that repeats one after a lost answer may find it done twice.
//! All else can be repeated freely.

mod model;
mod store;
mod text;

use std::sync::Arc;

use futures::future::BoxFuture;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use serde_json::value::RawValue;

use crate::families::Entry;
use crate::families::actions::{ActionTool, Decoded, as_payload_of, payload};
use crate::family::{Alias, Call, Family};
use crate::gate::Permit;
use crate::store::{Id, Scope, Store};
use crate::tool::{Effect, Operation, Output, Tool, ToolError};
use model::{Asker, Page, Party, Status};

/// Characters of a title.
const TITLE: usize = 255;
/// Bytes of a body and of a message.
const TEXT: usize = 64 * 1024;
/// Messages of a page, unless the caller says otherwise, and at most.
const MESSAGES: u32 = 20;
const MOST_MESSAGES: u32 = 100;

/// The line that `families/mod.rs` has of this family.
pub const FAMILY: Entry = Entry {
    tools,
    make: |store| Arc::new(Tasks::new(store.clone())),
};

fn tools() -> Vec<Tool> {
    vec![actions().tool()]
}

pub struct Tasks {
    store: Store,
    actions: ActionTool<Action>,
}

#[derive(Debug)]
enum Action {
    Create(Create),
    Get(Get),
    UpdateStatus(UpdateStatus),
    Reply(Reply),
}

payload! {
    Create {
        title: String = "title", "Short title of the task, at most 255 characters.";
        body: String = "body", "What is to be done, in full, at most 64 KiB.";
        assignee: Option<Party> = "assignee", "Who should do it: 'human' or 'agent'. Default is 'agent'.";
    }
}

payload! {
    Get {
        task_id: Option<Id> = "taskId", "ID of the task to read, which is not dequeued by that. Leave it out to dequeue: you get the oldest not started task assigned to the agent, kept for you for 10 minutes so that you can set it ongoing, or null when there is none.";
        include_conversation: Option<bool> = "includeConversation", "Whether the task's messages come with it, oldest first. Default is false.";
        cursor: Option<u32> = "cursor", "How many messages to pass over: the cursor of the page before. Default is 0.";
        limit: Option<u32> = "limit", "How many messages to return at most, from 1 to 100. Default is 20.";
    }
}

payload! {
    UpdateStatus {
        task_id: Id = "taskId", "ID of the task.";
        status: Status = "status", "'ongoing' when you start, 'completed' when it is done, 'blocked' while you wait for the human, 'rejected' when it will not be done, 'notstarted' to put it back into the queue.";
    }
}

payload! {
    Reply {
        task_id: Id = "taskId", "ID of the task: the chat_id that it arrived with.";
        text: String = "text", "The message, at most 64 KiB.";
        "chatId" => "taskId";
    }
}

fn actions() -> ActionTool<Action> {
    ActionTool::new(
        "task",
        "Workspace tasks",
        "The workspace's tasks, and the place to talk with the human about them.",
        "Begin with updateStatus ongoing: the human then knows that somebody is at it, and no other agent is handed the task. End with completed, and use blocked while you need the human. What you print elsewhere reaches nobody; use reply.",
    )
    .action(
        "create",
        Effect::Writes { idempotent: false },
        "Create a task for the human or for an agent; answers with its ID.",
        r#"{"title": "Approve the new price list", "body": "It goes live on Friday. Please check the three new items.", "assignee": "human"}"#,
        Action::Create,
    )
    .action(
        "get",
        Effect::Writes { idempotent: true },
        "Read one task, or without taskId take the oldest one that waits for an agent (dequeue).",
        r#"{"taskId": "0HtDqT3kVbW", "includeConversation": true}"#,
        Action::Get,
    )
    .action(
        "updateStatus",
        Effect::Writes { idempotent: true },
        "Say how far a task is: ongoing once you begin, completed at the end, blocked while you wait for the human.",
        r#"{"taskId": "0HtDqT3kVbW", "status": "ongoing"}"#,
        Action::UpdateStatus,
    )
    .action(
        "reply",
        Effect::Writes { idempotent: false },
        "Write a message into a task, for the human to read.",
        r#"{"taskId": "0HtDqT3kVbW", "text": "The list is online; two prices were rounded."}"#,
        Action::Reply,
    )
}

impl Tasks {
    pub fn new(store: Store) -> Self {
        Self {
            store,
            actions: actions(),
        }
    }

    async fn create(&self, who: Who, create: Create) -> Result<Output, ToolError> {
        let title = create.title.trim();
        let length = title.chars().count();
        if title.is_empty() {
            return Err(wrong("create", "title is required: it is empty"));
        }
        if length > TITLE {
            return Err(wrong(
                "create",
                &format!(
                    "title is {length} characters long; the limit is {TITLE}. Put the details into body"
                ),
            ));
        }
        check_text("create", "body", &create.body)?;
        let title = title.to_owned();
        let assignee = create.assignee.unwrap_or(Party::Agent);
        let id = store::create(
            &self.store,
            who.scope,
            who.agent,
            title,
            create.body,
            assignee,
        )
        .await?;
        Ok(Output::Structured {
            text: format!("task created with id={id}"),
            value: json!({"taskId": id.to_string()}),
        })
    }

    async fn get(&self, who: Who, asker: Asker, get: Get) -> Result<Output, ToolError> {
        let page = get
            .include_conversation
            .unwrap_or(false)
            .then(|| page_of(&get))
            .transpose()?;
        let (heading, task) = match get.task_id {
            Some(id) => {
                let task = store::find(&self.store, who.scope, id).await?;
                let task = task.ok_or_else(|| no_such_task("get", id))?;
                ("Task details:", task)
            }
            None => match store::dequeue(&self.store, who.scope, asker).await? {
                Some(task) => ("Next assigned task:", task),
                None => {
                    return Ok(Output::Structured {
                        text: "null".to_owned(),
                        value: json!({"task": null}),
                    });
                }
            },
        };
        let conversation = match page {
            Some(page) => Some(store::conversation(&self.store, who.scope, task.id, page).await?),
            None => None,
        };
        Ok(text::of(heading, &task, conversation.as_ref()))
    }

    async fn update_status(&self, who: Who, update: UpdateStatus) -> Result<Output, ToolError> {
        let UpdateStatus { task_id, status } = update;
        let updated = store::set_status(&self.store, who.scope, who.agent, task_id, status).await?;
        if !updated {
            return Err(no_such_task("updateStatus", task_id));
        }
        Ok(Output::Structured {
            text: format!("task {task_id} updated to status={}", status.word()),
            value: json!({"taskId": task_id.to_string(), "status": status}),
        })
    }

    async fn reply(&self, who: Who, reply: Reply) -> Result<Output, ToolError> {
        let Reply { task_id, text } = reply;
        check_text("reply", "text", &text)?;
        let posted = store::post(&self.store, who.scope, who.agent, task_id, text).await?;
        let message = posted.ok_or_else(|| no_such_task("reply", task_id))?;
        Ok(Output::Structured {
            text: "reply sent".to_owned(),
            value: json!({"taskId": task_id.to_string(), "messageId": message.to_string()}),
        })
    }
}

/// Where a call works, and the agent whose name goes with what it writes.
struct Who {
    scope: Scope,
    agent: String,
}

fn page_of(get: &Get) -> Result<Page, ToolError> {
    let limit = get.limit.unwrap_or(MESSAGES);
    if limit == 0 || limit > MOST_MESSAGES {
        return Err(wrong(
            "get",
            &format!("limit must be from 1 to {MOST_MESSAGES}, not {limit}"),
        ));
    }
    Ok(Page {
        cursor: get.cursor.unwrap_or(0),
        limit,
    })
}

fn check_text(action: &str, field: &str, text: &str) -> Result<(), ToolError> {
    if text.trim().is_empty() {
        return Err(wrong(action, &format!("{field} is required: it is empty")));
    }
    if text.len() > TEXT {
        return Err(wrong(
            action,
            &format!(
                "{field} is {} bytes; the limit is {TEXT} bytes (64 KiB), and nothing was done. Shorten it, or split it",
                text.len()
            ),
        ));
    }
    Ok(())
}

fn no_such_task(action: &str, id: Id) -> ToolError {
    wrong(
        action,
        &format!(
            "there is no task {id} in this workspace; take taskId from task create or task get"
        ),
    )
}

fn wrong(action: &str, message: &str) -> ToolError {
    ToolError::arguments(format!("task.{action}: {message}"))
}

impl Family for Tasks {
    fn tools(&self) -> Vec<Tool> {
        tools()
    }

    fn instructions(&self) -> Option<&'static str> {
        Some(
            "Tasks: get one with the tool `task` and set its status to `ongoing` before you do anything else. Set it to \
             `completed` when it is done, and to `blocked` when you need a person.",
        )
    }

    fn aliases(&self) -> Vec<Alias> {
        let alias = |name, rewrite| Alias {
            name,
            tool: "task",
            rewrite,
        };
        vec![
            alias("createTask", |old| as_payload_of("create", old)),
            alias("getTask", |old| as_payload_of("get", old)),
            alias("updateTaskStatus", |old| as_payload_of("updateStatus", old)),
            alias("reply", |old| as_payload_of("reply", old)),
            alias("getNextTask", |old| as_payload_of("get", old)),
            alias("getTaskMessages", text::messages_of),
        ]
    }

    fn operation(&self, _tool: &Tool, arguments: &RawValue) -> Operation {
        let operation = self.actions.operation(arguments);
        if operation.name == "task.get" && names_a_task(arguments) {
            return Operation {
                effect: Effect::Reads,
                ..operation
            };
        }
        operation
    }

    fn call<'a>(
        &'a self,
        permit: &'a Permit<'a>,
        call: Call<'a>,
    ) -> BoxFuture<'a, Result<Output, ToolError>> {
        Box::pin(async move {
            let action = match self.actions.decode(call.arguments)? {
                Decoded::Help(text) => return Ok(Output::Text(text)),
                Decoded::Action(action) => action,
            };
            let agent = permit.agent();
            let who = Who {
                scope: self.store.scope(&agent.workspace.id).await?,
                agent: agent.id.clone(),
            };
            match action {
                Action::Create(create) => self.create(who, create).await,
                Action::Get(get) => {
                    let asker = Asker {
                        agent_uid: agent.uid.clone(),
                        worker: call.worker.unwrap_or_default().to_owned(),
                    };
                    self.get(who, asker, get).await
                }
                Action::UpdateStatus(update) => self.update_status(who, update).await,
                Action::Reply(reply) => self.reply(who, reply).await,
            }
        })
    }
}

/// Whether a `get` reads one task, and so changes nothing.
fn names_a_task(arguments: &RawValue) -> bool {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Arguments {
        task_id: Option<IgnoredAny>,
        payload: Option<Payload>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Payload {
        task_id: Option<IgnoredAny>,
    }
    serde_json::from_str::<Arguments>(arguments.get()).is_ok_and(|arguments| {
        let inside = arguments.payload.and_then(|payload| payload.task_id);
        arguments.task_id.or(inside).is_some()
    })
}
