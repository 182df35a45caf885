//! The SQL of config requests and self-directives.

use sqlx::Row;
use sqlx::any::AnyRow;

use super::requests::{ConfigRequest, Decided, Decision, Status};
use crate::store::{Id, Scope, Store, StoreError, WriteTx, while_doing};

const COLUMNS: &str = "id, agent, agent_uid, summary, patch, blocking, status, created_at, decided_at, decided_by, reason";
/// How long requests that are no longer open are kept: 90 days.
const KEPT_MS: i64 = 90 * 24 * 3600 * 1000;
/// Requests of the same patch that come at the same moment, each taking the place of the one before.
const ROUNDS: usize = 5;

pub(super) struct NewRequest {
    pub(super) agent: String,
    pub(super) agent_uid: String,
    pub(super) summary: String,
    pub(super) patch: String,
    pub(super) digest: String,
    pub(super) is_blocking: bool,
}

/// Files a request in place of an open one with the same patch. `None` when the agent has `most` others open.
pub(super) async fn file(
    store: &Store,
    scope: Scope,
    new: NewRequest,
    most: i64,
) -> Result<Option<Id>, StoreError> {
    store
        .write(move |tx| {
            Box::pin(async move {
                forget_old(tx, scope, &new.agent_uid).await?;
                let query = sqlx::query(
                    "select count(*) from config_request
                     where workspace = $1 and agent_uid = $2 and status = 'open' and digest <> $3",
                )
                .bind(scope.row())
                .bind(new.agent_uid.clone())
                .bind(new.digest.clone());
                let open = tx.count("count config requests", query).await?;
                if open >= most {
                    return Ok(None);
                }
                for _ in 0..ROUNDS {
                    supersede(tx, scope, &new).await?;
                    if let Some(id) = insert(tx, scope, &new).await? {
                        return Ok(Some(id));
                    }
                }
                Err(StoreError::Slow)
            })
        })
        .await
}

async fn forget_old(tx: &mut WriteTx<'_>, scope: Scope, agent_uid: &str) -> Result<(), StoreError> {
    sqlx::query(
        "delete from config_request
         where workspace = $1 and agent_uid = $2 and status <> 'open' and created_at < $3",
    )
    .bind(scope.row())
    .bind(agent_uid.to_owned())
    .bind(tx.now() - KEPT_MS)
    .execute(tx.connection())
    .await
    .map(|_| ())
    .map_err(while_doing("forget old config requests"))
}

async fn supersede(tx: &mut WriteTx<'_>, scope: Scope, new: &NewRequest) -> Result<(), StoreError> {
    sqlx::query(
        "update config_request set status = 'superseded'
         where workspace = $1 and agent_uid = $2 and digest = $3 and status = 'open'",
    )
    .bind(scope.row())
    .bind(new.agent_uid.clone())
    .bind(new.digest.clone())
    .execute(tx.connection())
    .await
    .map(|_| ())
    .map_err(while_doing("supersede a config request"))
}

/// `None` when another call has filed the same patch since it was superseded.
async fn insert(
    tx: &mut WriteTx<'_>,
    scope: Scope,
    new: &NewRequest,
) -> Result<Option<Id>, StoreError> {
    let (id, now) = (tx.new_id(), tx.now());
    sqlx::query(
        "insert into config_request (workspace, id, agent, agent_uid, summary, patch, digest, blocking, status, created_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, 'open', $9)
         on conflict do nothing",
    )
    .bind(scope.row())
    .bind(id.row())
    .bind(new.agent.clone())
    .bind(new.agent_uid.clone())
    .bind(new.summary.clone())
    .bind(new.patch.clone())
    .bind(new.digest.clone())
    .bind(i64::from(new.is_blocking))
    .bind(now)
    .execute(tx.connection())
    .await
    .map(|done| (done.rows_affected() == 1).then_some(id))
    .map_err(while_doing("file a config request"))
}

/// Requests of a Workspace, or of one agent alone, newest first.
pub(super) async fn list(
    store: &Store,
    scope: Scope,
    agent_uid: Option<&str>,
    status: Option<Status>,
    before: Option<Id>,
    limit: i64,
) -> Result<Vec<ConfigRequest>, StoreError> {
    let sql = format!(
        "select {COLUMNS} from config_request
         where workspace = $1 and ($2 = '' or agent_uid = $2) and ($3 = '' or status = $3) and id < $4
         order by id desc limit $5"
    );
    let query = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(scope.row())
        .bind(agent_uid.unwrap_or_default())
        .bind(status.map_or("", Status::word))
        .bind(before.map_or(i64::MAX, Id::row))
        .bind(limit);
    let mut reader = store.read().await?;
    reader.all("list config requests", query, read).await
}

pub(super) async fn by_id(
    store: &Store,
    scope: Scope,
    id: Id,
) -> Result<Option<ConfigRequest>, StoreError> {
    let sql = format!("select {COLUMNS} from config_request where workspace = $1 and id = $2");
    let query = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(scope.row())
        .bind(id.row());
    let mut reader = store.read().await?;
    reader.one("read a config request", query, read).await
}

/// From open to decided. What was decided before stays.
pub(super) async fn decide(
    store: &Store,
    scope: Scope,
    id: Id,
    decision: Decision,
) -> Result<Option<Decided>, StoreError> {
    store
        .write(move |tx| {
            Box::pin(async move {
                let Decision {
                    approves,
                    by,
                    reason,
                } = decision;
                let status = if approves {
                    Status::Approved
                } else {
                    Status::Rejected
                };
                let sql = format!(
                    "update config_request set status = $3, decided_at = $4, decided_by = $5, reason = $6
                     where workspace = $1 and id = $2 and status = 'open' returning {COLUMNS}"
                );
                let query = sqlx::query(sqlx::AssertSqlSafe(sql))
                    .bind(scope.row())
                    .bind(id.row())
                    .bind(status.word())
                    .bind(tx.now())
                    .bind(by)
                    .bind(reason);
                let doing = "decide about a config request";
                if let Some(request) = tx.one(doing, query, read).await? {
                    return Ok(Some(Decided::Now(request)));
                }
                let sql =
                    format!("select {COLUMNS} from config_request where workspace = $1 and id = $2");
                let query = sqlx::query(sqlx::AssertSqlSafe(sql))
                    .bind(scope.row())
                    .bind(id.row());
                Ok(tx.one(doing, query, read).await?.map(Decided::Before))
            })
        })
        .await
}

fn read(row: &AnyRow) -> sqlx::Result<ConfigRequest> {
    let status: String = row.try_get("status")?;
    let blocking: i64 = row.try_get("blocking")?;
    Ok(ConfigRequest {
        id: Id::from_row(row.try_get("id")?),
        agent: row.try_get("agent")?,
        agent_uid: row.try_get("agent_uid")?,
        summary: row.try_get("summary")?,
        patch: row.try_get("patch")?,
        is_blocking: blocking != 0,
        status: Status::from_word(&status)
            .ok_or_else(|| sqlx::Error::Decode("an unknown status".into()))?,
        created_at: row.try_get("created_at")?,
        decided_at: row.try_get("decided_at")?,
        decided_by: row.try_get("decided_by")?,
        reason: row.try_get("reason")?,
    })
}

pub(super) async fn directives(
    store: &Store,
    scope: Scope,
    agent_uid: &str,
) -> Result<Option<String>, StoreError> {
    let query = sqlx::query(
        "select directives from self_directives where workspace = $1 and agent_uid = $2",
    )
    .bind(scope.row())
    .bind(agent_uid);
    let mut reader = store.read().await?;
    reader
        .one("read an agent's directives", query, |row| row.try_get(0))
        .await
}

/// Puts new directives in the place of the old ones; empty ones leave none.
pub(super) async fn rewrite_directives(
    store: &Store,
    scope: Scope,
    agent: String,
    agent_uid: String,
    directives: String,
) -> Result<(), StoreError> {
    store
        .write(move |tx| {
            Box::pin(async move {
                let now = tx.now();
                let failed = while_doing("rewrite an agent's directives");
                let query = if directives.is_empty() {
                    sqlx::query(
                        "delete from self_directives where workspace = $1 and agent_uid = $2",
                    )
                    .bind(scope.row())
                    .bind(agent_uid)
                } else {
                    sqlx::query(
                        "insert into self_directives (workspace, agent_uid, agent, directives, updated_at)
                         values ($1, $2, $3, $4, $5)
                         on conflict (workspace, agent_uid) do update set
                             agent = excluded.agent, directives = excluded.directives, updated_at = excluded.updated_at",
                    )
                    .bind(scope.row())
                    .bind(agent_uid)
                    .bind(agent)
                    .bind(directives)
                    .bind(now)
                };
                query
                    .execute(tx.connection())
                    .await
                    .map(|_| ())
                    .map_err(failed)
            })
        })
        .await
}
