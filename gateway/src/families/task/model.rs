//! What a task is.

use serde::Serialize;

use crate::families::actions::one_of;
use crate::store::Id;

one_of! {
    /// Who should do a task, and who sent a message.
    pub(super) Party { Human = "human", Agent = "agent" }
}

one_of! {
    /// How far a task is.
    pub(super) Status {
        Ongoing = "ongoing",
        Completed = "completed",
        Blocked = "blocked",
        Rejected = "rejected",
        NotStarted = "notstarted",
    }
}

/// Who dequeues: two workers of one agent are two askers.
pub(super) struct Asker {
    pub(super) agent_uid: String,
    /// Empty when the caller does not tell its workers apart.
    pub(super) worker: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Task {
    pub(super) id: Id,
    pub(super) title: String,
    pub(super) body: String,
    pub(super) status: Status,
    pub(super) assignee: Party,
}

/// Which part of a conversation is asked for.
#[derive(Clone, Copy)]
pub(super) struct Page {
    pub(super) cursor: u32,
    pub(super) limit: u32,
}

/// A page of a conversation, oldest message first.
#[derive(Serialize)]
pub(super) struct Conversation {
    pub(super) messages: Vec<Message>,
    /// Messages of the whole conversation.
    pub(super) total: i64,
    /// Where the next page begins.
    pub(super) cursor: i64,
}

#[derive(Serialize)]
pub(super) struct Message {
    pub(super) id: Id,
    pub(super) sender: Party,
    pub(super) text: String,
    /// RFC 3339.
    pub(super) created_at: String,
}
