//! The people's side: the tickets of an account's agents, and the answers.

use super::store;
use crate::families::actions::one_of;
use crate::store::{Id, Store, StoreError};

one_of! {
    /// Whose turn it is in a ticket.
    pub Status {
        /// The people's.
        Open = "open",
        /// The agent's.
        Answered = "answered",
        Closed = "closed",
    }
}

one_of! {
    /// How much hurry there is, as the agent says.
    pub Priority {
        Low = "low",
        Normal = "normal",
        High = "high",
        Urgent = "urgent",
    }
}

one_of! {
    /// Which side has sent a message.
    pub Sender { Agent = "agent", Team = "team" }
}

/// A question of an agent to the people who run the installation.
#[derive(Clone, Debug)]
pub struct Ticket {
    pub id: Id,
    /// `<namespace>.<name>`.
    pub agent: String,
    pub agent_uid: String,
    pub subject: String,
    pub priority: Priority,
    pub status: Status,
    /// Unix milliseconds, like all times here.
    pub created_at: i64,
    /// Of the last message or change of status.
    pub updated_at: i64,
    /// Who has set the status, and when: the agent's id, or a person's name.
    pub status_by: String,
    pub status_at: i64,
}

#[derive(Clone, Debug)]
pub struct Message {
    pub id: Id,
    pub sender: Sender,
    /// The agent's id, or the person's name.
    pub author: String,
    pub body: String,
    pub sent_at: i64,
}

/// A ticket and a page of what was said in it, oldest first.
#[derive(Clone, Debug)]
pub struct Conversation {
    pub ticket: Ticket,
    pub messages: Vec<Message>,
    /// Later messages did not fit: ask again after the last one here.
    pub has_more: bool,
}

/// What came of a change.
#[derive(Debug)]
pub enum Changed {
    Now(Ticket),
    /// Nothing was to be done: it was closed, or was not, before.
    Already(Ticket),
}

/// The tickets of an account's Workspaces.
#[derive(Clone)]
pub struct Tickets {
    store: Store,
}

impl Tickets {
    pub fn new(store: Store) -> Self {
        Self { store }
    }

    /// Tickets of a Workspace, newest first: those older than `before`, at most `limit`.
    pub async fn list(
        &self,
        workspace: &str,
        status: Option<Status>,
        before: Option<Id>,
        limit: i64,
    ) -> Result<Vec<Ticket>, StoreError> {
        let scope = self.store.scope(workspace).await?;
        store::list(&self.store, scope, None, status, before, limit).await
    }

    /// A ticket of a Workspace with its messages after `after`, about 256 KiB of them at most.
    pub async fn get(
        &self,
        workspace: &str,
        id: Id,
        after: Option<Id>,
    ) -> Result<Option<Conversation>, StoreError> {
        let scope = self.store.scope(workspace).await?;
        store::conversation(&self.store, scope, None, id, after).await
    }

    /// Answers a ticket, which is the agent's turn then, even if it was closed. `None` when there is no such ticket.
    pub async fn reply(
        &self,
        workspace: &str,
        id: Id,
        by: &str,
        body: &str,
    ) -> Result<Option<Message>, StoreError> {
        let scope = self.store.scope(workspace).await?;
        store::answer(&self.store, scope, id, by.to_owned(), body.to_owned()).await
    }

    /// `None` when there is no such ticket.
    pub async fn close(
        &self,
        workspace: &str,
        id: Id,
        by: &str,
    ) -> Result<Option<Changed>, StoreError> {
        let scope = self.store.scope(workspace).await?;
        store::set_status(&self.store, scope, id, Status::Closed, by.to_owned()).await
    }

    /// Opens a closed ticket again. `None` when there is no such ticket.
    pub async fn reopen(
        &self,
        workspace: &str,
        id: Id,
        by: &str,
    ) -> Result<Option<Changed>, StoreError> {
        let scope = self.store.scope(workspace).await?;
        store::set_status(&self.store, scope, id, Status::Open, by.to_owned()).await
    }
}
