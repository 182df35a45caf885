//! `memory`: notes that outlive a task, shared by every agent of the workspace (R-A-160…174).

mod name;
mod store;

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::value::RawValue;

use crate::families::Entry;
use crate::families::actions::{ActionTool, Decoded, as_payload_of, payload};
use crate::family::{Alias, Call, Family};
use crate::gate::Permit;
use crate::store::{Scope, Store};
use crate::tool::{Effect, Operation, Output, Tool, ToolError};
use name::Name;

/// Bytes that one memory may hold.
const LIMIT: usize = 16 * 1024;

pub struct Memory {
    store: Store,
    actions: ActionTool<Action>,
}

#[derive(Debug)]
enum Action {
    Load(Load),
    Save(Save),
    Delete(Delete),
}

payload! {
    Load {
        name: Option<String> = "name", "Name of the memory, such as deploys.md: lowercase words joined by single hyphens, ending in .md, at most 32 characters. Default is MEMORY.md, the index.";
    }
}

payload! {
    Save {
        content: String = "content", "The full new content, at most 16 KiB. It replaces what was there; nothing is appended.";
        name: Option<String> = "name", "Name of the memory, such as deploys.md: lowercase words joined by single hyphens, ending in .md, at most 32 characters. Default is MEMORY.md, the index that links the others as memory://<name>.";
    }
}

payload! {
    Delete {
        name: Option<String> = "name", "Name of the memory to delete. Default is MEMORY.md itself; the memories that it links stay.";
    }
}

/// The line that `families/mod.rs` has of this family.
pub const FAMILY: Entry = Entry {
    tools,
    make: |store| Arc::new(Memory::new(store.clone())),
};

fn tools() -> Vec<Tool> {
    vec![actions().tool()]
}

fn actions() -> ActionTool<Action> {
    ActionTool::new(
            "memory",
            "Workspace memory",
            "The workspace's notes: written by one agent, there for all of them, long after the task.",
            "MEMORY.md is the index and links the rest as memory://<name>. Read it when a task begins: the human may have told another agent already what you are about to ask.",
        )
        .action(
            "load",
            Effect::Reads,
            "Read a memory, or with no name the index MEMORY.md.",
            r#"{"name": "deploys.md"}"#,
            Action::Load,
        )
        .action(
            "save",
            Effect::Destroys { idempotent: true },
            "Write a memory, replacing all of it. To add something: load, change, and save the whole.",
            r##"{"name": "deploys.md", "content": "# How we deploy\n\nPush a tag; CI does the rest."}"##,
            Action::Save,
        )
        .action(
            "delete",
            Effect::Destroys { idempotent: true },
            "Delete a memory, or with no name MEMORY.md itself.",
            r#"{"name": "deploys.md"}"#,
            Action::Delete,
        )
}

impl Memory {
    pub fn new(store: Store) -> Self {
        Self {
            store,
            actions: actions(),
        }
    }

    async fn load(&self, scope: Scope, load: Load) -> Result<String, ToolError> {
        let name = Name::parse("memory.load", load.name)?;
        let found = store::load(&self.store, scope, &name).await?;
        Ok(found.unwrap_or_else(|| {
            format!("No memory saved under \"{name}\" yet. Use memory save to write one.")
        }))
    }

    async fn save(
        &self,
        permit: &Permit<'_>,
        scope: Scope,
        save: Save,
    ) -> Result<String, ToolError> {
        let name = Name::parse("memory.save", save.name)?;
        let size = save.content.len();
        if size > LIMIT {
            return Err(ToolError::arguments(format!(
                "memory.save: the memory is {size} bytes; the limit is {LIMIT} bytes (16 KiB), and nothing was changed. Split it into several memories and link them from MEMORY.md as memory://<name>."
            )));
        }
        let text = format!("Saved \"{name}\" ({size} bytes).");
        store::save(
            &self.store,
            scope,
            name,
            save.content,
            permit.agent().id.clone(),
        )
        .await?;
        Ok(text)
    }

    async fn delete(&self, scope: Scope, delete: Delete) -> Result<String, ToolError> {
        let name = Name::parse("memory.delete", delete.name)?;
        let deleted = format!("Deleted \"{name}\".");
        let nothing = format!("No memory was stored under \"{name}\"; nothing to delete.");
        let existed = store::delete(&self.store, scope, name).await?;
        Ok(if existed { deleted } else { nothing })
    }
}

impl Family for Memory {
    fn tools(&self) -> Vec<Tool> {
        tools()
    }

    fn instructions(&self) -> Option<&'static str> {
        Some(
            "Memory: load it with the tool `memory` at the start of every task, before you ask a person something that \
             they may have told you already.",
        )
    }

    fn aliases(&self) -> Vec<Alias> {
        let alias = |name, rewrite| Alias {
            name,
            tool: "memory",
            rewrite,
        };
        vec![
            alias("loadMemory", |old| as_payload_of("load", old)),
            alias("saveMemory", |old| as_payload_of("save", old)),
            alias("deleteMemory", |old| as_payload_of("delete", old)),
        ]
    }

    fn operation(&self, _tool: &Tool, arguments: &RawValue) -> Operation {
        self.actions.operation(arguments)
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
            let scope = self.store.scope(&permit.agent().workspace.id).await?;
            let text = match action {
                Action::Load(load) => self.load(scope, load).await,
                Action::Save(save) => self.save(permit, scope, save).await,
                Action::Delete(delete) => self.delete(scope, delete).await,
            };
            text.map(Output::Text)
        })
    }
}
