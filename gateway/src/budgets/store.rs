//! The SQL of budgets.

use sqlx::Row;

use crate::store::{Scope, Store, StoreError, while_doing};

/// A limit of one grant, in one window.
#[derive(Clone)]
pub(super) struct Wanted {
    pub(super) grant_uid: String,
    pub(super) per: &'static str,
    /// Start of the window, Unix milliseconds.
    pub(super) starts_at: i64,
    pub(super) most: i64,
}

/// Draws a slice from what is left in the window, or else just the `least` that will do; 0 when that is not left either.
pub(super) async fn draw(
    store: &Store,
    scope: Scope,
    limit: Wanted,
    slice: i64,
    least: i64,
) -> Result<i64, StoreError> {
    store
        .write(move |tx| {
            Box::pin(async move {
                let some = [slice.max(least), least].into_iter();
                for wanted in some.filter(|wanted| *wanted <= limit.most) {
                    let sql = "insert into budget as kept (workspace, grant_uid, per, starts_at, used)
                               values ($1, $2, $3, $4, $5)
                               on conflict (workspace, grant_uid, per) do update set
                                   used = case when kept.starts_at < excluded.starts_at then excluded.used else kept.used + excluded.used end,
                                   starts_at = excluded.starts_at
                               where kept.starts_at < excluded.starts_at
                                   or (kept.starts_at = excluded.starts_at and kept.used + excluded.used <= $6)
                               returning used";
                    let drawn = sqlx::query(sql)
                        .bind(scope.row())
                        .bind(limit.grant_uid.clone())
                        .bind(limit.per)
                        .bind(limit.starts_at)
                        .bind(wanted)
                        .bind(limit.most)
                        .fetch_optional(tx.connection())
                        .await
                        .map_err(while_doing("draw from a budget"))?;
                    if let Some(row) = drawn {
                        let _: i64 = row.try_get(0).map_err(while_doing("draw from a budget"))?;
                        return Ok(wanted);
                    }
                }
                Ok(0)
            })
        })
        .await
}
