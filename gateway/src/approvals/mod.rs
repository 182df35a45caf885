//! Calls that a person has to allow: durable, bound to the agent's UID, the tool and the arguments, good for one
//! execution (R-C-210…213). What is in doubt does not run.

mod digest;
mod news;
mod store;

use std::sync::Arc;
use std::time::Duration;

use chandlery_crds::Level;
use dashmap::DashMap;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tracing::warn;

pub use self::digest::digest;
pub use self::news::News;
use crate::directory::Agent;
use crate::families::actions::one_of;
use crate::gate::Allowed;
use crate::metrics::Metrics;
use crate::store::{Causes, Dialect, Id, Scope, Store, StoreError};
use crate::tool::{ErrorKind, Output, ToolError};

/// How long a person has, and how long an approval waits for its call.
const LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// How long a result, or a refusal, answers further calls of the same arguments.
const KEPT: Duration = Duration::from_secs(15 * 60);
/// When a call that began and never reported its end is given up. It may have run: it is never run again.
const LOST: Duration = Duration::from_secs(10 * 60);
/// How long "for this session" lasts.
const SESSION: Duration = Duration::from_secs(8 * 3600);
/// How long rows are kept for people to read.
const ROWS: Duration = Duration::from_secs(30 * 24 * 3600);
/// Calls of one agent that may wait for people at once.
const MOST: i64 = 100;
/// How often another replica's decisions are looked for, while somebody waits.
const POLL: Duration = Duration::from_millis(500);
/// How often old rows are forgotten.
const HOUSEKEEPING: Duration = Duration::from_secs(600);
/// Approvals that are asked about in one statement.
const CHUNK: usize = 256;

/// The account's approvals.
pub struct Approvals {
    store: Store,
    metrics: Arc<Metrics>,
    /// Who waits for which decision.
    waiting: DashMap<i64, watch::Sender<()>>,
    /// What happened lately.
    pub news: News,
}

/// One row.
#[derive(Clone, Debug)]
pub struct Approval {
    pub id: Id,
    /// `<namespace>.<name>`.
    pub agent: String,
    pub agent_uid: String,
    /// Per-operation name.
    pub tool: String,
    /// JSON.
    pub arguments: String,
    pub worker: Option<String>,
    /// `ask` or `always_ask`.
    pub level: String,
    pub state: State,
    /// Unix milliseconds, like all times here.
    pub created_at: i64,
    pub expires_at: i64,
    pub decided_at: Option<i64>,
    pub decided_by: Option<String>,
    pub reason: Option<String>,
    pub started_at: Option<i64>,
    pub ended_at: Option<i64>,
    result: Option<String>,
}

one_of! {
    /// Where a call stands.
    pub State {
        Pending = "pending",
        Approved = "approved",
        Denied = "denied",
        Running = "running",
        Done = "done",
        Withdrawn = "withdrawn",
    }
}

struct NewApproval {
    agent: String,
    agent_uid: String,
    tool: String,
    digest: String,
    arguments: String,
    worker: Option<String>,
    level: &'static str,
    lifetime_ms: i64,
}

/// Which rows a list has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Listed<'a> {
    /// `<namespace>.<name>`; `None` is every agent.
    pub agent: Option<&'a str>,
    /// One of [`Approval::standing`]'s words; `None` is every one.
    pub state: Option<&'a str>,
}

/// The word for a row that nobody decided about, or that nobody called again, in time.
pub const EXPIRED: &str = "expired";

/// What somebody decides about a call.
#[derive(Clone, Debug)]
pub struct Decision {
    pub approves: bool,
    /// Whom the records name.
    pub by: String,
    /// What the agent reads of a refusal.
    pub reason: Option<String>,
    /// Later calls of the tool run without asking; only of level `ask`.
    pub remember: Option<Remember>,
}

#[derive(Clone, Copy, Debug)]
pub enum Remember {
    Session { lifetime_ms: i64 },
    Always,
}

impl Remember {
    /// For the caller's session.
    pub fn session() -> Self {
        Self::Session {
            lifetime_ms: ms(SESSION),
        }
    }
}

/// What came of a decision.
#[derive(Debug)]
pub enum Decided {
    Now(Approval),
    /// It was too late: the row as it is.
    Before(Approval),
}

/// A tool that somebody has allowed for a session or for good.
#[derive(Clone, Debug, Serialize)]
pub struct Standing {
    pub id: Id,
    pub agent: String,
    pub tool: String,
    /// Absent: every session.
    pub session: Option<String>,
    pub expires_at: Option<i64>,
    pub granted_by: String,
    pub granted_at: i64,
}

/// A call that needs a person, as the pipeline asks about it.
pub struct Wanted<'a> {
    pub agent: &'a Agent,
    pub tool: &'a str,
    /// A JSON object.
    pub arguments: &'a str,
    pub worker: Option<&'a str>,
    pub level: Level,
}

/// Where such a call stands.
#[derive(Debug)]
pub enum Standpoint {
    /// It may run, now, once: report its end with [`Approvals::finish`].
    Claimed(Claim, Allowed),
    /// A person has allowed the tool for this session or for good.
    Remembered(Allowed),
    /// It has run: what it gave back.
    Ran(Result<Output, ToolError>),
    /// It does not run, and why.
    Refused(ToolError),
    /// Nobody has decided yet.
    Pending(Ticket),
}

/// An approved call that this caller, and nobody else, runs.
#[derive(Debug)]
pub struct Claim {
    scope: Scope,
    id: Id,
}

/// A row that waits for a decision.
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    pub id: Id,
    /// Unix milliseconds.
    pub expires_at: i64,
    pub created_at: i64,
}

impl Approvals {
    pub fn new(store: Store, metrics: Arc<Metrics>) -> Self {
        Self {
            store,
            metrics,
            waiting: DashMap::new(),
            news: News::new(),
        }
    }

    /// Finds out where a call stands, and asks for it if nobody has.
    pub async fn stand(&self, wanted: &Wanted<'_>) -> Result<Standpoint, StoreError> {
        let scope = self.store.scope(&wanted.agent.workspace.id).await?;
        let uid = &wanted.agent.uid;
        if wanted.level == Level::Ask {
            let worker = wanted.worker.unwrap_or_default();
            if store::is_remembered(&self.store, scope, uid, wanted.tool, worker).await? {
                return Ok(Standpoint::Remembered(Allowed::by_store()));
            }
        }
        let digest = digest(wanted.arguments);
        let active = store::active(&self.store, scope, uid, wanted.tool, &digest).await?;
        let before = active.as_ref().map(|active| active.id);
        if let Some(active) = active
            && let Some(standpoint) = self.of_row(scope, &active).await?
        {
            return Ok(standpoint);
        }
        let new = NewApproval {
            agent: wanted.agent.id.clone(),
            agent_uid: uid.clone(),
            tool: wanted.tool.to_owned(),
            digest,
            arguments: wanted.arguments.to_owned(),
            worker: wanted.worker.map(str::to_owned),
            level: wanted.level.name(),
            lifetime_ms: ms(LIFETIME),
        };
        let Some(made) = store::ask(&self.store, scope, new, before, MOST).await? else {
            return Ok(Standpoint::Refused(ToolError::refused(format!(
                "{}: {MOST} calls of this agent wait for a person already; wait until some are decided",
                wanted.tool
            ))));
        };
        self.metrics.approval("asked");
        self.news.tell(&made);
        // Another caller may have been first, and its row may even be decided by now.
        let standpoint = self.of_row(scope, &made).await?;
        Ok(standpoint.unwrap_or_else(|| Standpoint::Pending(made.ticket())))
    }

    /// What this very call gave back, if it has run a while ago.
    pub async fn result_of(
        &self,
        wanted: &Wanted<'_>,
    ) -> Result<Option<Result<Output, ToolError>>, StoreError> {
        let scope = self.store.scope(&wanted.agent.workspace.id).await?;
        let digest = digest(wanted.arguments);
        let uid = &wanted.agent.uid;
        let active = store::active(&self.store, scope, uid, wanted.tool, &digest).await?;
        let now = self.store.clock().now().as_millisecond();
        let is_recent = |row: &Approval| row.ended_at.is_some_and(|at| now < at + ms(KEPT));
        Ok(active.filter(is_recent).and_then(|row| row.result()))
    }

    /// What the row says to a call of its arguments; `None` when it no longer answers.
    async fn of_row(&self, scope: Scope, row: &Approval) -> Result<Option<Standpoint>, StoreError> {
        let now = self.store.clock().now().as_millisecond();
        let is_recent = |at: Option<i64>, kept: Duration| at.is_some_and(|at| now < at + ms(kept));
        Ok(match row.state {
            State::Pending if now < row.expires_at => Some(Standpoint::Pending(row.ticket())),
            State::Approved if now < row.expires_at => {
                if store::claim(&self.store, scope, row.id).await? {
                    let claim = Claim { scope, id: row.id };
                    Some(Standpoint::Claimed(claim, Allowed::by_store()))
                } else {
                    Some(Standpoint::Refused(running(&row.tool)))
                }
            }
            State::Running if is_recent(row.started_at, LOST) => {
                Some(Standpoint::Refused(running(&row.tool)))
            }
            State::Done if is_recent(row.ended_at, KEPT) => row.result().map(Standpoint::Ran),
            State::Denied if is_recent(row.decided_at, KEPT) => {
                Some(Standpoint::Refused(row.refusal()))
            }
            _ => None,
        })
    }

    /// Waits until somebody has decided about the ticket, or `patience` is over.
    pub async fn wait(&self, ticket: Ticket, patience: Duration) {
        let mut decided = self
            .waiting
            .entry(ticket.id.row())
            .or_insert_with(|| watch::Sender::new(()))
            .subscribe();
        let _leave = Leave(self, ticket.id);
        // It may have been decided before anybody listened.
        if matches!(store::no_longer_pending(&self.store, &[ticket.id]).await, Ok(ids) if ids.is_empty())
        {
            let _ = tokio::time::timeout(patience, decided.changed()).await;
        }
    }

    /// Reports what a claimed call gave back. When that cannot be kept, the call is never run again all the same.
    pub async fn finish(&self, claim: Claim, result: &Result<Output, ToolError>) {
        let kept = Kept::of(result);
        let Ok(json) = serde_json::to_string(&kept) else {
            return;
        };
        if let Err(failure) = store::finish(&self.store, claim.scope, claim.id, json).await {
            warn!(error = %Causes(&failure), approval.id = %claim.id, "the result of an approved call could not be kept");
        }
    }

    /// One row of a Workspace.
    pub async fn get(&self, workspace: &str, id: Id) -> Result<Option<Approval>, StoreError> {
        let scope = self.store.scope(workspace).await?;
        store::by_id(&self.store, scope, id).await
    }

    /// Rows of a Workspace, newest first.
    pub async fn list(
        &self,
        workspace: &str,
        listed: Listed<'_>,
        before: Option<Id>,
        limit: i64,
    ) -> Result<Vec<Approval>, StoreError> {
        let scope = self.store.scope(workspace).await?;
        store::list(&self.store, scope, listed, before, limit).await
    }

    /// Records a decision; the first one counts. `None` when there is no such row.
    pub async fn decide(
        &self,
        workspace: &str,
        id: Id,
        decision: Decision,
    ) -> Result<Option<Decided>, StoreError> {
        let scope = self.store.scope(workspace).await?;
        let outcome = if decision.approves {
            "approved"
        } else {
            "denied"
        };
        let decided = store::decide(&self.store, scope, id, decision).await?;
        if let Some(Decided::Now(row)) = &decided {
            self.news.tell(row);
            self.metrics.approval(outcome);
            self.wake(id);
        }
        Ok(decided)
    }

    /// The agent gives up on a call that waits; whether it still did.
    pub async fn withdraw(&self, workspace: &str, id: Id) -> Result<bool, StoreError> {
        let scope = self.store.scope(workspace).await?;
        let withdrawn = store::withdraw(&self.store, scope, id).await?;
        self.news.forget(id);
        self.wake(id);
        Ok(withdrawn)
    }

    /// Tools of a Workspace's agents that run without asking because somebody said so.
    pub async fn standing(&self, workspace: &str) -> Result<Vec<Standing>, StoreError> {
        let scope = self.store.scope(workspace).await?;
        store::standing(&self.store, scope).await
    }

    /// Takes such a word back; whether there was one.
    pub async fn forget(&self, workspace: &str, id: Id) -> Result<bool, StoreError> {
        let scope = self.store.scope(workspace).await?;
        store::forget(&self.store, scope, id).await
    }

    fn wake(&self, id: Id) {
        if let Some(waiting) = self.waiting.get(&id.row()) {
            waiting.send_replace(());
        }
    }

    /// Looks for the decisions of other replicas and forgets what is old, until dropped.
    pub async fn keep_house(&self) {
        let mut housekeeping = tokio::time::interval(HOUSEKEEPING);
        loop {
            tokio::select! {
                _ = housekeeping.tick() => {
                    if let Err(failure) = store::purge(&self.store, ms(KEPT), ms(ROWS)).await {
                        warn!(error = %Causes(&failure), "old approvals could not be forgotten");
                    }
                }
                () = tokio::time::sleep(POLL), if self.store.dialect() == Dialect::Postgres => self.poll().await,
            }
        }
    }

    async fn poll(&self) {
        let waiting: Vec<Id> = self
            .waiting
            .iter()
            .map(|row| Id::from_row(*row.key()))
            .collect();
        for ids in waiting.chunks(CHUNK) {
            match store::no_longer_pending(&self.store, ids).await {
                Ok(decided) => decided.into_iter().for_each(|id| self.wake(id)),
                Err(failure) => {
                    warn!(error = %Causes(&failure), "decisions of other replicas could not be read");
                }
            }
        }
    }
}

/// Takes the entry of a ticket away once nobody waits for it.
struct Leave<'a>(&'a Approvals, Id);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0
            .waiting
            .remove_if(&self.1.row(), |_, waiting| waiting.receiver_count() <= 1);
    }
}

impl Approval {
    fn ticket(&self) -> Ticket {
        Ticket {
            id: self.id,
            expires_at: self.expires_at,
            created_at: self.created_at,
        }
    }

    /// Whether nobody has decided in time.
    pub fn has_expired(&self, now_ms: i64) -> bool {
        matches!(self.state, State::Pending | State::Approved) && self.expires_at <= now_ms
    }

    /// Where it stands in a word: its state, or [`EXPIRED`].
    pub fn standing(&self, now_ms: i64) -> &'static str {
        if self.has_expired(now_ms) {
            EXPIRED
        } else {
            self.state.word()
        }
    }

    /// What the agent reads of a denied call.
    pub fn refusal(&self) -> ToolError {
        let why = match &self.reason {
            Some(reason) => format!(": {reason}"),
            None => " without a reason".to_owned(),
        };
        ToolError::refused(format!("{}: a person has denied this call{why}", self.tool))
    }

    /// What the call gave back, as long as it is kept.
    pub fn result(&self) -> Option<Result<Output, ToolError>> {
        let kept: Kept = serde_json::from_str(self.result.as_deref()?).ok()?;
        Some(kept.into_result())
    }
}

fn running(tool: &str) -> ToolError {
    ToolError::refused(format!(
        "{tool}: this very call was approved and has begun, and its end is not known. Look at what it changed before you ask for it again."
    ))
}

fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// A result as it is kept.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kept {
    Text(String),
    Structured {
        text: String,
        value: serde_json::Value,
    },
    Raw(serde_json::Value),
    Task {
        source: String,
        task: serde_json::Value,
    },
    Failed {
        refused: bool,
        message: String,
    },
}

impl Kept {
    fn of(result: &Result<Output, ToolError>) -> Self {
        match result {
            Ok(Output::Text(text)) => Self::Text(text.clone()),
            Ok(Output::Structured { text, value }) => Self::Structured {
                text: text.clone(),
                value: value.clone(),
            },
            Ok(Output::Raw(result)) => {
                Self::Raw(serde_json::from_slice(result).unwrap_or_default())
            }
            Ok(Output::NeedsInput(value)) => Self::Raw(value.clone()),
            Ok(Output::Task { source, task }) => Self::Task {
                source: source.clone(),
                task: task.clone(),
            },
            Err(error) => Self::Failed {
                refused: error.kind == ErrorKind::Refused,
                message: error.message.clone(),
            },
        }
    }

    fn into_result(self) -> Result<Output, ToolError> {
        match self {
            Self::Text(text) => Ok(Output::Text(text)),
            Self::Structured { text, value } => Ok(Output::Structured { text, value }),
            Self::Raw(value) => Ok(Output::Raw(value.to_string().into())),
            Self::Task { source, task } => Ok(Output::Task { source, task }),
            Self::Failed {
                refused: true,
                message,
            } => Err(ToolError::refused(message)),
            Self::Failed { message, .. } => Err(ToolError::unavailable(message)),
        }
    }
}
