//! The SQL of the audit: sets of rows in one statement.

use std::collections::HashMap;
use std::fmt::Write as _;

use serde::Serialize;
use sqlx::AssertSqlSafe;

use super::{Entry, Row};
use crate::store::{Column, Dialect, Store, StoreError, while_doing};

const COLUMNS: &[Column] = &[
    Column::BigInt("workspace"),
    Column::BigInt("id"),
    Column::BigInt("at"),
    Column::Text("agent"),
    Column::Text("agent_uid"),
    Column::Text("key_id"),
    Column::Text("tool"),
    Column::Text("decision"),
    Column::Text("outcome"),
    Column::BigInt("duration_us"),
    Column::BigInt("request_bytes"),
    Column::BigInt("response_bytes"),
    Column::Text("arguments_digest"),
];

/// A row as an object whose members are [`COLUMNS`].
#[derive(Serialize)]
struct Stored<'a> {
    workspace: i64,
    id: i64,
    at: i64,
    agent: &'a str,
    agent_uid: &'a str,
    key_id: &'a str,
    tool: &'a str,
    decision: &'a str,
    outcome: &'a str,
    duration_us: i64,
    request_bytes: i64,
    response_bytes: i64,
    arguments_digest: String,
}

/// The statement that inserts a JSON array of rows.
///
/// A row that is already there is passed over: the answer of an earlier attempt may have been lost.
pub(super) fn insert(dialect: Dialect) -> String {
    let names: Vec<&str> = COLUMNS.iter().map(Column::name).collect();
    let names = names.join(", ");
    let rows = dialect.rows_of_json(COLUMNS);
    // SQLite needs the "where" to tell "on conflict" from a join's "on".
    format!(
        "insert into audit ({names}) select {names} from {rows} where true on conflict do nothing"
    )
}

/// Writes all of `batch` in one transaction.
pub(super) async fn write(store: &Store, insert: &str, batch: &[Entry]) -> Result<(), StoreError> {
    let mut workspaces = HashMap::new();
    for entry in batch {
        let name = entry.row.agent.workspace.id.as_str();
        if !workspaces.contains_key(name) {
            workspaces.insert(name, store.scope(name).await?.row());
        }
    }
    let rows: Vec<Stored<'_>> = batch
        .iter()
        .map(|entry| {
            stored(
                &entry.row,
                workspaces[entry.row.agent.workspace.id.as_str()],
            )
        })
        .collect();
    #[expect(clippy::expect_used, reason = "strings and numbers always serialize")]
    let rows = serde_json::to_string(&rows).expect("rows as JSON");
    let insert = insert.to_owned();
    store
        .write(move |tx| {
            Box::pin(async move {
                sqlx::query(AssertSqlSafe(insert))
                    .bind(rows)
                    .execute(tx.connection())
                    .await
                    .map(|_| ())
                    .map_err(while_doing("insert audit rows"))
            })
        })
        .await
}

fn stored(row: &Row, workspace: i64) -> Stored<'_> {
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
    Stored {
        workspace,
        id: id.row(),
        at: *at,
        agent: &agent.id,
        agent_uid: &agent.uid,
        key_id,
        tool,
        decision,
        outcome,
        duration_us: *duration_us,
        request_bytes: *request_bytes,
        response_bytes: *response_bytes,
        arguments_digest: hex(arguments_digest),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(64), |mut text, byte| {
            // Writing to a String can't fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}
