//! The SQL of approvals. Every change of state is a compare-and-set on the state before it.

use sqlx::Row;
use sqlx::any::AnyRow;

use super::{Approval, Decided, Decision, Listed, NewApproval, Remember, Standing, State};
use crate::store::{Id, Scope, Store, StoreError, WriteTx, while_doing};

const COLUMNS: &str = "id, agent, agent_uid, tool, arguments, worker, level, state, created_at, expires_at, \
                       decided_at, decided_by, reason, started_at, ended_at, result";

/// The row that answers calls of this digest, if there is one.
pub(super) async fn active(
    store: &Store,
    scope: Scope,
    agent_uid: &str,
    tool: &str,
    digest: &str,
) -> Result<Option<Approval>, StoreError> {
    let sql = format!(
        "select {COLUMNS} from approval
         where workspace = $1 and agent_uid = $2 and tool = $3 and digest = $4 and active = 1"
    );
    let query = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(scope.row())
        .bind(agent_uid)
        .bind(tool)
        .bind(digest);
    let mut reader = store.read().await?;
    reader.one("find an approval", query, read).await
}

pub(super) async fn by_id(
    store: &Store,
    scope: Scope,
    id: Id,
) -> Result<Option<Approval>, StoreError> {
    let sql = format!("select {COLUMNS} from approval where workspace = $1 and id = $2");
    let query = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(scope.row())
        .bind(id.row());
    let mut reader = store.read().await?;
    reader.one("read an approval", query, read).await
}

/// Approvals of a Workspace, newest first, at most `limit`, older than `before`.
pub(super) async fn list(
    store: &Store,
    scope: Scope,
    listed: Listed<'_>,
    before: Option<Id>,
    limit: i64,
) -> Result<Vec<Approval>, StoreError> {
    let sql = format!(
        "select {COLUMNS} from approval
         where workspace = $1 and id < $2 and ($3 = '' or agent = $3)
             and ($4 = '' or $4 = case when state in ('pending', 'approved') and expires_at <= $5 then 'expired' else state end)
         order by id desc limit $6"
    );
    let query = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(scope.row())
        .bind(before.map_or(i64::MAX, Id::row))
        .bind(listed.agent.unwrap_or_default())
        .bind(listed.state.unwrap_or_default())
        .bind(store.clock().now().as_millisecond())
        .bind(limit);
    let mut reader = store.read().await?;
    reader.all("list approvals", query, read).await
}

/// Which of `ids` nobody has to wait for any more.
pub(super) async fn no_longer_pending(store: &Store, ids: &[Id]) -> Result<Vec<Id>, StoreError> {
    let places: Vec<String> = (1..=ids.len()).map(|at| format!("${at}")).collect();
    let sql = format!(
        "select id from approval where state <> 'pending' and id in ({})",
        places.join(", ")
    );
    let mut query = sqlx::query(sqlx::AssertSqlSafe(sql));
    for id in ids {
        query = query.bind(id.row());
    }
    let mut reader = store.read().await?;
    reader
        .all("look for decisions", query, |row| {
            row.try_get(0).map(Id::from_row)
        })
        .await
}

/// Asks for a call, in place of the row `before` that no longer answers. `None` when the agent has `most` open already;
/// the row that another caller has made meanwhile is given back as it is.
pub(super) async fn ask(
    store: &Store,
    scope: Scope,
    new: NewApproval,
    before: Option<Id>,
    most: i64,
) -> Result<Option<Approval>, StoreError> {
    store
        .write(move |tx| {
            Box::pin(async move {
                if let Some(before) = before {
                    let sql = "update approval set active = 0 where workspace = $1 and id = $2 and active = 1";
                    sqlx::query(sql)
                        .bind(scope.row())
                        .bind(before.row())
                        .execute(tx.connection())
                        .await
                        .map_err(while_doing("put an approval aside"))?;
                }
                let query = sqlx::query(
                    "select count(*) from approval
                     where workspace = $1 and agent_uid = $2 and active = 1 and state = 'pending' and expires_at > $3",
                )
                .bind(scope.row())
                .bind(new.agent_uid.clone())
                .bind(tx.now());
                let open = tx.count("count approvals", query).await?;
                if open >= most {
                    return Ok(None);
                }
                let id = tx.new_id();
                insert(tx, scope, id, &new).await?;
                // Whoever was first: the index allows one for each digest.
                let sql = format!(
                    "select {COLUMNS} from approval
                     where workspace = $1 and agent_uid = $2 and tool = $3 and digest = $4 and active = 1"
                );
                let query = sqlx::query(sqlx::AssertSqlSafe(sql))
                    .bind(scope.row())
                    .bind(new.agent_uid)
                    .bind(new.tool)
                    .bind(new.digest);
                tx.one("read an approval", query, read).await
            })
        })
        .await
}

async fn insert(
    tx: &mut WriteTx<'_>,
    scope: Scope,
    id: Id,
    new: &NewApproval,
) -> Result<(), StoreError> {
    let sql = "insert into approval (workspace, id, agent, agent_uid, tool, digest, arguments, worker, level, state,
                   active, created_at, expires_at)
               values ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'pending', 1, $10, $11)
               on conflict do nothing";
    let now = tx.now();
    sqlx::query(sql)
        .bind(scope.row())
        .bind(id.row())
        .bind(new.agent.clone())
        .bind(new.agent_uid.clone())
        .bind(new.tool.clone())
        .bind(new.digest.clone())
        .bind(new.arguments.clone())
        .bind(new.worker.clone())
        .bind(new.level)
        .bind(now)
        .bind(now + new.lifetime_ms)
        .execute(tx.connection())
        .await
        .map(|_| ())
        .map_err(while_doing("ask for an approval"))
}

/// Records a person's decision; `None` when there is no such row. What was decided before stays.
pub(super) async fn decide(
    store: &Store,
    scope: Scope,
    id: Id,
    decision: Decision,
) -> Result<Option<Decided>, StoreError> {
    store
        .write(move |tx| {
            Box::pin(async move {
                let state = if decision.approves {
                    State::Approved
                } else {
                    State::Denied
                };
                let sql = format!(
                    "update approval set state = $3, decided_at = $4, decided_by = $5, reason = $6
                     where workspace = $1 and id = $2 and state = 'pending' and expires_at > $4 returning {COLUMNS}"
                );
                let query = sqlx::query(sqlx::AssertSqlSafe(sql))
                    .bind(scope.row())
                    .bind(id.row())
                    .bind(state.word())
                    .bind(tx.now())
                    .bind(decision.by.clone())
                    .bind(decision.reason.clone());
                if let Some(approval) = tx.one("decide about a call", query, read).await? {
                    if let Some(remember) = decision.remember.filter(|_| decision.approves) {
                        remember_tool(tx, scope, &approval, remember, &decision.by).await?;
                    }
                    return Ok(Some(Decided::Now(approval)));
                }
                let sql = format!("select {COLUMNS} from approval where workspace = $1 and id = $2");
                let query = sqlx::query(sqlx::AssertSqlSafe(sql))
                    .bind(scope.row())
                    .bind(id.row());
                let before = tx.one("read an approval", query, read).await?;
                Ok(before.map(Decided::Before))
            })
        })
        .await
}

async fn remember_tool(
    tx: &mut WriteTx<'_>,
    scope: Scope,
    approval: &Approval,
    remember: Remember,
    by: &str,
) -> Result<(), StoreError> {
    let (worker, expires_at) = match remember {
        Remember::Session { lifetime_ms } => (
            approval.worker.clone().unwrap_or_default(),
            Some(tx.now() + lifetime_ms),
        ),
        Remember::Always => (EVERY_WORKER.to_owned(), None),
    };
    let sql = "insert into standing_approval (workspace, id, agent, agent_uid, tool, worker, expires_at, granted_by, granted_at)
               values ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    let id = tx.new_id();
    sqlx::query(sql)
        .bind(scope.row())
        .bind(id.row())
        .bind(approval.agent.clone())
        .bind(approval.agent_uid.clone())
        .bind(approval.tool.clone())
        .bind(worker)
        .bind(expires_at)
        .bind(by.to_owned())
        .bind(tx.now())
        .execute(tx.connection())
        .await
        .map(|_| ())
        .map_err(while_doing("remember an approval"))
}

const EVERY_WORKER: &str = "*";

/// Whether a person has allowed the tool for this session or for good.
pub(super) async fn is_remembered(
    store: &Store,
    scope: Scope,
    agent_uid: &str,
    tool: &str,
    worker: &str,
) -> Result<bool, StoreError> {
    let sql = "select 1 from standing_approval
               where workspace = $1 and agent_uid = $2 and tool = $3 and (worker = $4 or worker = $5)
                   and (expires_at is null or expires_at > $6) limit 1";
    let query = sqlx::query(sql)
        .bind(scope.row())
        .bind(agent_uid)
        .bind(tool)
        .bind(worker)
        .bind(EVERY_WORKER)
        .bind(store.clock().now().as_millisecond());
    let mut reader = store.read().await?;
    let found = reader.one("look for a standing approval", query, |_| Ok(()));
    Ok(found.await?.is_some())
}

/// The standing approvals of a Workspace that still count, newest first, at most 500.
pub(super) async fn standing(store: &Store, scope: Scope) -> Result<Vec<Standing>, StoreError> {
    let sql = "select id, agent, tool, worker, expires_at, granted_by, granted_at from standing_approval
               where workspace = $1 and (expires_at is null or expires_at > $2) order by id desc limit 500";
    let query = sqlx::query(sql)
        .bind(scope.row())
        .bind(store.clock().now().as_millisecond());
    let read = |row: &AnyRow| -> sqlx::Result<Standing> {
        let worker: String = row.try_get("worker")?;
        Ok(Standing {
            id: Id::from_row(row.try_get("id")?),
            agent: row.try_get("agent")?,
            tool: row.try_get("tool")?,
            session: (worker != EVERY_WORKER).then_some(worker),
            expires_at: row.try_get("expires_at")?,
            granted_by: row.try_get("granted_by")?,
            granted_at: row.try_get("granted_at")?,
        })
    };
    let mut reader = store.read().await?;
    reader.all("list standing approvals", query, read).await
}

/// Takes a standing approval back; whether there was one.
pub(super) async fn forget(store: &Store, scope: Scope, id: Id) -> Result<bool, StoreError> {
    store
        .write(move |tx| {
            Box::pin(async move {
                sqlx::query("delete from standing_approval where workspace = $1 and id = $2")
                    .bind(scope.row())
                    .bind(id.row())
                    .execute(tx.connection())
                    .await
                    .map(|done| done.rows_affected() > 0)
                    .map_err(while_doing("take back a standing approval"))
            })
        })
        .await
}

/// From approved to running, for exactly one caller.
pub(super) async fn claim(store: &Store, scope: Scope, id: Id) -> Result<bool, StoreError> {
    let sql = "update approval set state = 'running', started_at = $3
               where workspace = $1 and id = $2 and state = 'approved' and active = 1 and expires_at > $3";
    step(store, scope, id, sql, "begin an approved call").await
}

/// The agent no longer wants the call.
pub(super) async fn withdraw(store: &Store, scope: Scope, id: Id) -> Result<bool, StoreError> {
    let sql = "update approval set state = 'withdrawn', active = 0, decided_at = $3
               where workspace = $1 and id = $2 and state in ('pending', 'approved')";
    step(store, scope, id, sql, "withdraw a call").await
}

async fn step(
    store: &Store,
    scope: Scope,
    id: Id,
    sql: &'static str,
    doing: &'static str,
) -> Result<bool, StoreError> {
    store
        .write(move |tx| {
            Box::pin(async move {
                sqlx::query(sql)
                    .bind(scope.row())
                    .bind(id.row())
                    .bind(tx.now())
                    .execute(tx.connection())
                    .await
                    .map(|done| done.rows_affected() == 1)
                    .map_err(while_doing(doing))
            })
        })
        .await
}

/// Keeps what an approved call gave back.
pub(super) async fn finish(
    store: &Store,
    scope: Scope,
    id: Id,
    result: String,
) -> Result<(), StoreError> {
    store
        .write(move |tx| {
            Box::pin(async move {
                let sql = "update approval set state = 'done', ended_at = $3, result = $4
                           where workspace = $1 and id = $2 and state = 'running'";
                sqlx::query(sql)
                    .bind(scope.row())
                    .bind(id.row())
                    .bind(tx.now())
                    .bind(result)
                    .execute(tx.connection())
                    .await
                    .map(|_| ())
                    .map_err(while_doing("keep an approved call's result"))
            })
        })
        .await
}

/// Forgets results older than `results_ms` and rows older than `rows_ms`.
pub(super) async fn purge(store: &Store, results_ms: i64, rows_ms: i64) -> Result<(), StoreError> {
    store
        .write(move |tx| {
            Box::pin(async move {
                let now = tx.now();
                for (sql, before) in [
                    ("update approval set result = null where result is not null and ended_at < $1", now - results_ms),
                    ("delete from approval where expires_at < $1", now - rows_ms),
                    ("delete from standing_approval where expires_at < $1", now),
                ] {
                    sqlx::query(sql)
                        .bind(before)
                        .execute(tx.connection())
                        .await
                        .map_err(while_doing("forget old approvals"))?;
                }
                Ok(())
            })
        })
        .await
}

fn read(row: &AnyRow) -> sqlx::Result<Approval> {
    let state: String = row.try_get("state")?;
    Ok(Approval {
        id: Id::from_row(row.try_get("id")?),
        agent: row.try_get("agent")?,
        agent_uid: row.try_get("agent_uid")?,
        tool: row.try_get("tool")?,
        arguments: row.try_get("arguments")?,
        worker: row.try_get("worker")?,
        level: row.try_get("level")?,
        state: State::from_word(&state)
            .ok_or_else(|| sqlx::Error::Decode("an unknown state".into()))?,
        created_at: row.try_get("created_at")?,
        expires_at: row.try_get("expires_at")?,
        decided_at: row.try_get("decided_at")?,
        decided_by: row.try_get("decided_by")?,
        reason: row.try_get("reason")?,
        started_at: row.try_get("started_at")?,
        ended_at: row.try_get("ended_at")?,
        result: row.try_get("result")?,
    })
}
