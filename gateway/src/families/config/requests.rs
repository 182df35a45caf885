//! The people's side: what agents have asked for, and the decisions.

use super::store;
use crate::families::actions::one_of;
use crate::store::{Id, Store, StoreError};

one_of! {
    /// Where a request stands.
    pub Status {
        Open = "open",
        Approved = "approved",
        Rejected = "rejected",
        Superseded = "superseded",
    }
}

/// A change of its own config that an agent has asked for.
#[derive(Clone, Debug)]
pub struct ConfigRequest {
    pub id: Id,
    /// `<namespace>.<name>`.
    pub agent: String,
    pub agent_uid: String,
    pub summary: String,
    /// Merge patch of the Agent's spec: a JSON object.
    pub patch: String,
    /// The agent says that it can't go on without.
    pub is_blocking: bool,
    pub status: Status,
    /// Unix milliseconds, like all times here.
    pub created_at: i64,
    /// Absent while it is open, and when a newer request has taken its place.
    pub decided_at: Option<i64>,
    pub decided_by: Option<String>,
    /// What the agent reads of the decision.
    pub reason: Option<String>,
}

/// What somebody decides about a request.
#[derive(Clone, Debug)]
pub struct Decision {
    pub approves: bool,
    /// Whom the records name.
    pub by: String,
    pub reason: Option<String>,
}

/// What came of a decision.
#[derive(Debug)]
pub enum Decided {
    Now(ConfigRequest),
    /// It was too late: the row as it is.
    Before(ConfigRequest),
}

/// The requests of an account's agents. To approve one changes no spec: that is the approver's to do.
#[derive(Clone)]
pub struct ConfigRequests {
    store: Store,
}

impl ConfigRequests {
    pub fn new(store: Store) -> Self {
        Self { store }
    }

    /// Requests of a Workspace, newest first: those older than `before`, at most `limit`.
    pub async fn list(
        &self,
        workspace: &str,
        status: Option<Status>,
        before: Option<Id>,
        limit: i64,
    ) -> Result<Vec<ConfigRequest>, StoreError> {
        let scope = self.store.scope(workspace).await?;
        store::list(&self.store, scope, None, status, before, limit).await
    }

    /// One request of a Workspace.
    pub async fn get(&self, workspace: &str, id: Id) -> Result<Option<ConfigRequest>, StoreError> {
        let scope = self.store.scope(workspace).await?;
        store::by_id(&self.store, scope, id).await
    }

    /// Records a decision; the first one counts. `None` when there is no such request.
    pub async fn decide(
        &self,
        workspace: &str,
        id: Id,
        decision: Decision,
    ) -> Result<Option<Decided>, StoreError> {
        let scope = self.store.scope(workspace).await?;
        store::decide(&self.store, scope, id, decision).await
    }

    /// What the agent of this UID has told itself for its next sessions.
    pub async fn directives(
        &self,
        workspace: &str,
        agent_uid: &str,
    ) -> Result<Option<String>, StoreError> {
        let scope = self.store.scope(workspace).await?;
        store::directives(&self.store, scope, agent_uid).await
    }
}
