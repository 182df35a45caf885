//! The SQL of the audit: sets of rows in one statement.

use std::sync::Arc;

use sqlx::any::AnyArguments;
use sqlx::{Any, AssertSqlSafe};

use super::{Entry, Row};
use crate::store::{Dialect, Store, StoreError, while_doing};

/// Rows of the largest statement; a power of two.
pub(super) const BATCH: usize = 512;
const COLUMNS: usize = 13;

/// The statements that insert 1, 2, 4, … [`BATCH`] rows, so that a database prepares ten and no more.
pub(super) struct Inserts(Vec<Arc<str>>);

impl Inserts {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self(
            (0..=BATCH.ilog2())
                .map(|power| insert(dialect, 1 << power).into())
                .collect(),
        )
    }

    /// Writes all of `batch` in one transaction.
    pub(super) async fn write(&self, store: &Store, batch: &[Entry]) -> Result<(), StoreError> {
        let mut statements = Vec::new();
        let mut rest = batch;
        while !rest.is_empty() {
            let power = rest.len().min(BATCH).ilog2();
            let (now, later) = rest.split_at(1 << power);
            rest = later;
            let mut query = sqlx::query::<Any>(AssertSqlSafe(self.0[power as usize].clone()));
            for entry in now {
                let workspace = store.scope(&entry.row.agent.workspace.id).await?;
                query = bind(query, workspace.row(), &entry.row);
            }
            statements.push(query);
        }
        store
            .write(move |tx| {
                Box::pin(async move {
                    for statement in statements {
                        statement
                            .execute(tx.connection())
                            .await
                            .map_err(while_doing("insert audit rows"))?;
                    }
                    Ok(())
                })
            })
            .await
    }
}

/// A row that is already there is passed over: the answer of an earlier attempt may have been lost.
fn insert(dialect: Dialect, rows: usize) -> String {
    format!(
        "insert into audit (workspace, id, at, agent, agent_uid, key_id, tool, decision, outcome,
             duration_us, request_bytes, response_bytes, arguments_digest)
         values {} on conflict do nothing",
        dialect.places(rows, COLUMNS)
    )
}

type Query = sqlx::query::Query<'static, Any, AnyArguments>;

/// Binds the [`COLUMNS`] of one row.
fn bind(query: Query, workspace: i64, row: &Row) -> Query {
    let Row {
        id,
        at,
        agent,
        key_id,
        tool,
        decision,
        outcome,
        duration_us,
        request_bytes,
        response_bytes,
        arguments_digest,
    } = row;
    query
        .bind(workspace)
        .bind(id.row())
        .bind(*at)
        .bind(agent.id.clone())
        .bind(agent.uid.clone())
        .bind(key_id.to_string())
        .bind(tool.to_string())
        .bind(*decision)
        .bind(*outcome)
        .bind(*duration_us)
        .bind(*request_bytes)
        .bind(*response_bytes)
        .bind(hex(arguments_digest))
}

fn hex(bytes: &[u8; 32]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits
        .map(|digit| char::from(DIGITS[usize::from(digit)]))
        .collect()
}
