//! The SQL of memory.

use sqlx::Row;

use super::name::Name;
use crate::store::{Scope, Store, StoreError, while_doing};

/// The content, if there is such a memory.
pub(super) async fn load(
    store: &Store,
    scope: Scope,
    name: &Name,
) -> Result<Option<String>, StoreError> {
    let failed = while_doing("load a memory");
    let mut reader = store.read().await?;
    let row = sqlx::query("select content from memory where workspace = $1 and name = $2")
        .bind(scope.row())
        .bind(name.as_str())
        .fetch_optional(reader.connection())
        .await
        .map_err(&failed)?;
    row.map(|row| row.try_get("content"))
        .transpose()
        .map_err(&failed)
}

/// Writes all of a memory.
pub(super) async fn save(
    store: &Store,
    scope: Scope,
    name: Name,
    content: String,
    agent: String,
) -> Result<(), StoreError> {
    store
        .write(move |tx| {
            Box::pin(async move {
                let sql = "insert into memory (workspace, name, content, saved_by, saved_at)
                           values ($1, $2, $3, $4, $5)
                           on conflict (workspace, name) do update set
                               content = excluded.content, saved_by = excluded.saved_by, saved_at = excluded.saved_at";
                sqlx::query(sql)
                    .bind(scope.row())
                    .bind(name.as_str())
                    .bind(content)
                    .bind(agent)
                    .bind(tx.now())
                    .execute(tx.connection())
                    .await
                    .map(|_| ())
                    .map_err(while_doing("save a memory"))
            })
        })
        .await
}

/// Whether there was such a memory.
pub(super) async fn delete(store: &Store, scope: Scope, name: Name) -> Result<bool, StoreError> {
    store
        .write(move |tx| {
            Box::pin(async move {
                sqlx::query("delete from memory where workspace = $1 and name = $2")
                    .bind(scope.row())
                    .bind(name.as_str())
                    .execute(tx.connection())
                    .await
                    .map(|done| done.rows_affected() > 0)
                    .map_err(while_doing("delete a memory"))
            })
        })
        .await
}
