//! The SQL of tasks.

use jiff::Timestamp;
use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row};

use super::model::{Asker, Conversation, Message, Page, Party, Status, Task};
use crate::store::{Id, Scope, Store, StoreError, WriteTx, while_doing};

/// How long a dequeued task is kept for its asker.
const LEASE_MS: i64 = 10 * 60 * 1000;
/// Bytes of texts after which a page of a conversation ends, one message at least.
const PAGE_BYTES: usize = 256 * 1024;

pub(super) async fn create(
    store: &Store,
    scope: Scope,
    agent: String,
    title: String,
    body: String,
    assignee: Party,
) -> Result<Id, StoreError> {
    store
        .write(move |tx| {
            Box::pin(async move {
                let (id, now) = (tx.new_id(), tx.now());
                let sql = "insert into task
                               (workspace, id, title, body, status, assignee, created_by, created_at, updated_at, version)
                           values ($1, $2, $3, $4, $5, $6, $7, $8, $8, 1)";
                sqlx::query(sql)
                    .bind(scope.row())
                    .bind(id.row())
                    .bind(title)
                    .bind(body)
                    .bind(Status::NotStarted.word())
                    .bind(assignee.word())
                    .bind(&agent)
                    .bind(now)
                    .execute(tx.connection())
                    .await
                    .map_err(while_doing("create a task"))?;
                note_status(tx, scope, id, Status::NotStarted, agent).await?;
                Ok(id)
            })
        })
        .await
}

pub(super) async fn find(store: &Store, scope: Scope, id: Id) -> Result<Option<Task>, StoreError> {
    let failed = while_doing("read a task");
    let mut reader = store.read().await?;
    let sql = "select id, title, body, status, assignee from task where workspace = $1 and id = $2";
    let row = sqlx::query(sql)
        .bind(scope.row())
        .bind(id.row())
        .fetch_optional(reader.connection())
        .await
        .map_err(&failed)?;
    row.as_ref().map(task).transpose().map_err(&failed)
}

/// Leases the oldest task that waits for an agent to `asker`, or the one that it has leased already.
///
/// `None` when nothing waits. The lease ends by itself, and when the task's status is set.
pub(super) async fn dequeue(
    store: &Store,
    scope: Scope,
    asker: Asker,
) -> Result<Option<Task>, StoreError> {
    let skip_locked = store.dialect().skip_locked();
    // First what the asker has: its last answer may have been lost.
    let own = format!(
        "{LEASE}
         (select id from task
          where workspace = $1 and leased_agent = $2 and leased_worker = $3 and leased_until > $5
            and status = 'notstarted' and assignee = 'agent'
          order by id limit 1{skip_locked})
         {RETURNING}"
    );
    let next = format!(
        "{LEASE}
         (select id from task
          where workspace = $1 and status = 'notstarted' and assignee = 'agent'
            and (leased_until is null or leased_until <= $5)
          order by id limit 1{skip_locked})
         {RETURNING}"
    );
    store
        .write(move |tx| {
            Box::pin(async move {
                if let Some(task) = lease(tx, own, scope, &asker).await? {
                    return Ok(Some(task));
                }
                lease(tx, next, scope, &asker).await
            })
        })
        .await
}

const LEASE: &str = "update task set leased_agent = $2, leased_worker = $3, leased_until = $4
         where workspace = $1 and id =";
const RETURNING: &str = "returning id, title, body, status, assignee";

async fn lease(
    tx: &mut WriteTx<'_>,
    sql: String,
    scope: Scope,
    asker: &Asker,
) -> Result<Option<Task>, StoreError> {
    let failed = while_doing("dequeue a task");
    let now = tx.now();
    let row = sqlx::query(AssertSqlSafe(sql))
        .bind(scope.row())
        .bind(&asker.agent_uid)
        .bind(&asker.worker)
        .bind(now + LEASE_MS)
        .bind(now)
        .fetch_optional(tx.connection())
        .await
        .map_err(&failed)?;
    row.as_ref().map(task).transpose().map_err(&failed)
}

/// Whether there is such a task. Its lease ends: it is either being done or free for anyone.
pub(super) async fn set_status(
    store: &Store,
    scope: Scope,
    agent: String,
    id: Id,
    status: Status,
) -> Result<bool, StoreError> {
    store
        .write(move |tx| {
            Box::pin(async move {
                let sql = "update task
                           set status = $3, updated_at = $4, version = version + 1,
                               leased_agent = null, leased_worker = null, leased_until = null
                           where workspace = $1 and id = $2";
                let done = sqlx::query(sql)
                    .bind(scope.row())
                    .bind(id.row())
                    .bind(status.word())
                    .bind(tx.now())
                    .execute(tx.connection())
                    .await
                    .map_err(while_doing("set a task's status"))?;
                if done.rows_affected() == 0 {
                    return Ok(false);
                }
                note_status(tx, scope, id, status, agent).await?;
                Ok(true)
            })
        })
        .await
}

async fn note_status(
    tx: &mut WriteTx<'_>,
    scope: Scope,
    task: Id,
    status: Status,
    author: String,
) -> Result<(), StoreError> {
    let (id, now) = (tx.new_id(), tx.now());
    let sql = "insert into task_status (workspace, task, id, status, author, set_at)
               values ($1, $2, $3, $4, $5, $6)";
    sqlx::query(sql)
        .bind(scope.row())
        .bind(task.row())
        .bind(id.row())
        .bind(status.word())
        .bind(author)
        .bind(now)
        .execute(tx.connection())
        .await
        .map(|_| ())
        .map_err(while_doing("note a task's status"))
}

/// Posts an agent's message; its id, or `None` when there is no such task.
pub(super) async fn post(
    store: &Store,
    scope: Scope,
    agent: String,
    task: Id,
    text: String,
) -> Result<Option<Id>, StoreError> {
    store
        .write(move |tx| {
            Box::pin(async move {
                let (id, now) = (tx.new_id(), tx.now());
                let sql = "insert into task_message (workspace, task, id, sender, author, text, sent_at)
                           select workspace, id, $3, $4, $5, $6, $7 from task where workspace = $1 and id = $2";
                let done = sqlx::query(sql)
                    .bind(scope.row())
                    .bind(task.row())
                    .bind(id.row())
                    .bind(Party::Agent.word())
                    .bind(agent)
                    .bind(text)
                    .bind(now)
                    .execute(tx.connection())
                    .await
                    .map_err(while_doing("post a message"))?;
                Ok((done.rows_affected() > 0).then_some(id))
            })
        })
        .await
}

pub(super) async fn conversation(
    store: &Store,
    scope: Scope,
    task: Id,
    page: Page,
) -> Result<Conversation, StoreError> {
    let failed = while_doing("read a conversation");
    let mut reader = store.read().await?;
    let sql = "select count(*) from task_message where workspace = $1 and task = $2";
    let total: i64 = sqlx::query(sql)
        .bind(scope.row())
        .bind(task.row())
        .fetch_one(reader.connection())
        .await
        .and_then(|row| row.try_get(0))
        .map_err(&failed)?;
    let sql = "select id, sender, text, sent_at from task_message
               where workspace = $1 and task = $2 order by id limit $3 offset $4";
    let rows = sqlx::query(sql)
        .bind(scope.row())
        .bind(task.row())
        .bind(i64::from(page.limit))
        .bind(i64::from(page.cursor))
        .fetch_all(reader.connection())
        .await
        .map_err(&failed)?;
    let mut messages = Vec::with_capacity(rows.len());
    let mut size = 0;
    for row in &rows {
        let message = message(row).map_err(&failed)?;
        size += message.text.len();
        if size > PAGE_BYTES && !messages.is_empty() {
            break;
        }
        messages.push(message);
    }
    let read = i64::try_from(messages.len()).unwrap_or(i64::MAX);
    Ok(Conversation {
        messages,
        total,
        cursor: i64::from(page.cursor).saturating_add(read),
    })
}

fn task(row: &AnyRow) -> sqlx::Result<Task> {
    Ok(Task {
        id: Id::from_row(row.try_get("id")?),
        title: row.try_get("title")?,
        body: row.try_get("body")?,
        status: word(row, "status", Status::from_word)?,
        assignee: word(row, "assignee", Party::from_word)?,
    })
}

fn message(row: &AnyRow) -> sqlx::Result<Message> {
    let sent_at = Timestamp::from_millisecond(row.try_get("sent_at")?);
    Ok(Message {
        id: Id::from_row(row.try_get("id")?),
        sender: word(row, "sender", Party::from_word)?,
        text: row.try_get("text")?,
        created_at: sent_at
            .map_err(|error| sqlx::Error::Decode(error.into()))?
            .to_string(),
    })
}

fn word<T>(row: &AnyRow, column: &str, read: fn(&str) -> Option<T>) -> sqlx::Result<T> {
    let word: &str = row.try_get(column)?;
    read(word).ok_or_else(|| sqlx::Error::Decode(format!("unknown {column} {word:?}").into()))
}
