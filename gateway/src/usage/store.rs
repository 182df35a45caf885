//! The SQL of usage: sets of rows in one statement.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use sqlx::{Any, AssertSqlSafe, Row as _};

use super::Call;
use crate::store::{Dialect, Id, Query, Scope, Store, StoreError, while_doing};

/// Rows of the largest statement; a power of two.
pub(super) const BATCH: usize = 256;
const COLUMNS: usize = 15;

/// The statements that insert 1, 2, 4, … [`BATCH`] rows.
pub(super) struct Inserts(Arc<[Arc<str>]>);

/// A call that was taken down.
#[derive(Clone, Debug)]
pub struct Row {
    pub id: Id,
    /// Unix milliseconds.
    pub at: i64,
    pub agent: String,
    pub tool: String,
    pub provider: String,
    pub method: String,
    pub path: String,
    pub status: Option<i64>,
    pub outcome: String,
    pub latency_us: i64,
    pub cost_cents: i64,
    pub request_bytes: i64,
    pub response_bytes: i64,
}

/// Which rows are wanted.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Listed<'a> {
    pub agent: Option<&'a str>,
    pub provider: Option<&'a str>,
}

impl Inserts {
    pub(super) fn new(dialect: Dialect) -> Self {
        let insert = |power: u32| {
            let places = dialect.places(1 << power, COLUMNS);
            let sql = format!(
                "insert into usage (workspace, id, at, agent, agent_uid, tool, provider, method, path, status,
                     outcome, latency_us, cost_cents, request_bytes, response_bytes)
                 values {places}"
            );
            sql.into()
        };
        Self((0..=BATCH.ilog2()).map(insert).collect())
    }

    /// Writes all of `calls` in one transaction.
    pub(super) async fn write(
        &self,
        store: &Store,
        calls: &Arc<Vec<Call>>,
    ) -> Result<(), StoreError> {
        let mut scopes: BTreeMap<String, Scope> = BTreeMap::new();
        for call in &**calls {
            let workspace = &call.agent.workspace.id;
            if !scopes.contains_key(workspace) {
                scopes.insert(workspace.clone(), store.scope(workspace).await?);
            }
        }
        let (statements, calls) = (self.0.clone(), calls.clone());
        let ids: Vec<Id> = calls.iter().map(|call| store.new_id(call.at)).collect();
        store
            .write(move |tx| {
                Box::pin(async move {
                    let rows = calls.iter().zip(&ids);
                    let row = |(call, id): (_, &Id)| {
                        let call: &Call = call;
                        (scopes[&call.agent.workspace.id], *id, call)
                    };
                    let rows: Vec<(Scope, Id, &Call)> = rows.map(row).collect();
                    let mut rest = rows.as_slice();
                    while !rest.is_empty() {
                        let power = rest.len().min(BATCH).ilog2();
                        let (now, later) = rest.split_at(1 << power);
                        rest = later;
                        let sql = statements[power as usize].clone();
                        now.iter()
                            .fold(sqlx::query::<Any>(AssertSqlSafe(sql)), bind)
                            .execute(tx.connection())
                            .await
                            .map_err(while_doing("insert usage"))?;
                    }
                    Ok(())
                })
            })
            .await
    }
}

/// Binds the [`COLUMNS`] of one row.
fn bind<'q>(query: Query<'q>, (scope, id, call): &(Scope, Id, &'q Call)) -> Query<'q> {
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    query
        .bind(scope.row())
        .bind(id.row())
        .bind(call.at.as_millisecond())
        .bind(call.agent.id.as_str())
        .bind(call.agent.uid.as_str())
        .bind(call.tool.as_str())
        .bind(call.provider.as_str())
        .bind(call.method.as_str())
        .bind(call.path.as_str())
        .bind(call.status.map(i64::from))
        .bind(call.outcome)
        .bind(i64::try_from(call.latency.as_micros()).unwrap_or(i64::MAX))
        .bind(call.cost_cents)
        .bind(count(call.request_bytes))
        .bind(count(call.response_bytes))
}

/// Newest first.
pub(super) async fn list(
    store: &Store,
    scope: Scope,
    listed: Listed<'_>,
    before: Option<Id>,
    most: i64,
) -> Result<Vec<Row>, StoreError> {
    let sql = "select id, at, agent, tool, provider, method, path, status, outcome, latency_us, cost_cents,
                   request_bytes, response_bytes
               from usage
               where workspace = $1 and id < $2 and ($3 = '' or agent = $3) and ($4 = '' or provider = $4)
               order by id desc limit $5";
    let query = sqlx::query(sql)
        .bind(scope.row())
        .bind(before.map_or(i64::MAX, Id::row))
        .bind(listed.agent.unwrap_or_default().to_owned())
        .bind(listed.provider.unwrap_or_default().to_owned())
        .bind(most);
    let mut reader = store.read().await?;
    reader
        .all("list usage", query, |row| {
            Ok(Row {
                id: Id::from_row(row.try_get("id")?),
                at: row.try_get("at")?,
                agent: row.try_get("agent")?,
                tool: row.try_get("tool")?,
                provider: row.try_get("provider")?,
                method: row.try_get("method")?,
                path: row.try_get("path")?,
                status: row.try_get("status")?,
                outcome: row.try_get("outcome")?,
                latency_us: row.try_get("latency_us")?,
                cost_cents: row.try_get("cost_cents")?,
                request_bytes: row.try_get("request_bytes")?,
                response_bytes: row.try_get("response_bytes")?,
            })
        })
        .await
}
