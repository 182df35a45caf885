//! Reading the audit: heads and rows, as they are stored.

use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row as _};

use crate::audit::chain::Content;
use crate::store::{StoreError, while_doing};

/// A Workspace's chain as it is at one moment, however many rows follow meanwhile.
pub(in crate::audit) struct Chain {
    pub(in crate::audit) workspace: i64,
    pub(in crate::audit) name: String,
    /// Number and hash of the last row, as they were noted; `None` when that is gone.
    pub(in crate::audit) head: Option<(i64, Vec<u8>)>,
    /// The smallest and the greatest number of a row; 1 and 0 when there is none.
    pub(in crate::audit) first: i64,
    pub(in crate::audit) last: i64,
}

/// The chains of all Workspaces that have one, by name.
pub(in crate::audit) async fn chains(
    connection: &mut AnyConnection,
) -> Result<Vec<Chain>, StoreError> {
    let failed = while_doing("read the heads of the audit");
    // One statement, which sees one moment: a head that is read before its rows would lag behind them.
    let sql = "select w.id, w.name, h.seq, h.mac, (select max(a.seq) from audit a where a.workspace = w.id),
                   (select min(a.seq) from audit a where a.workspace = w.id)
               from workspace w left join audit_head h on h.workspace = w.id order by w.name";
    let rows = sqlx::query(sql)
        .fetch_all(connection)
        .await
        .map_err(&failed)?;
    let read = |row: &AnyRow| {
        let (seq, mac): (Option<i64>, Option<Vec<u8>>) = (row.try_get(2)?, row.try_get(3)?);
        let (last, first): (Option<i64>, Option<i64>) = (row.try_get(4)?, row.try_get(5)?);
        let head = seq.zip(mac);
        let is_there = head.is_some() || last.is_some();
        Ok(is_there.then_some(Chain {
            workspace: row.try_get(0)?,
            name: row.try_get(1)?,
            head,
            first: first.unwrap_or(1),
            last: last.unwrap_or_default(),
        }))
    };
    rows.iter()
        .filter_map(|row| read(row).transpose())
        .collect::<sqlx::Result<_>>()
        .map_err(&failed)
}

/// The numbers of Workspaces that rows or heads name, and that are not there.
pub(in crate::audit) async fn strays(
    connection: &mut AnyConnection,
) -> Result<Vec<i64>, StoreError> {
    let sql = "select workspace from audit where workspace not in (select id from workspace)
               union select workspace from audit_head where workspace not in (select id from workspace)";
    let rows = sqlx::query(sql).fetch_all(connection).await;
    rows.and_then(|rows| rows.iter().map(|row| row.try_get(0)).collect())
        .map_err(while_doing("look for audit rows of no Workspace"))
}

/// A row as it is stored.
pub(in crate::audit) struct Stored {
    pub(in crate::audit) seq: i64,
    /// `None` when a value is of no kind that was ever written there.
    pub(in crate::audit) fields: Option<Fields>,
}

pub(in crate::audit) struct Fields {
    pub(in crate::audit) mac: Vec<u8>,
    id: i64,
    at: i64,
    agent: Option<String>,
    agent_uid: Option<String>,
    key_id: Option<String>,
    tool: String,
    decision: String,
    outcome: String,
    duration_us: i64,
    request_bytes: i64,
    response_bytes: i64,
    arguments_digest: Vec<u8>,
    arguments: Option<String>,
}

impl Fields {
    fn read(row: &AnyRow) -> sqlx::Result<Self> {
        Ok(Self {
            mac: row.try_get(1)?,
            id: row.try_get(2)?,
            at: row.try_get(3)?,
            agent: row.try_get(4)?,
            agent_uid: row.try_get(5)?,
            key_id: row.try_get(6)?,
            tool: row.try_get(7)?,
            decision: row.try_get(8)?,
            outcome: row.try_get(9)?,
            duration_us: row.try_get(10)?,
            request_bytes: row.try_get(11)?,
            response_bytes: row.try_get(12)?,
            arguments_digest: row.try_get(13)?,
            arguments: row.try_get(14)?,
        })
    }

    pub(in crate::audit) fn content(&self, workspace: i64, seq: i64) -> Content<'_> {
        Content {
            workspace,
            seq,
            id: self.id,
            at: self.at,
            agent: self.agent.as_deref().unwrap_or_default(),
            agent_uid: self.agent_uid.as_deref().unwrap_or_default(),
            key_id: self.key_id.as_deref().unwrap_or_default(),
            tool: &self.tool,
            decision: &self.decision,
            outcome: &self.outcome,
            duration_us: self.duration_us,
            request_bytes: self.request_bytes,
            response_bytes: self.response_bytes,
            arguments_digest: &self.arguments_digest,
            arguments: self.arguments.as_deref(),
        }
    }
}

/// The rows of a chain after `seq`, in order, at most `limit`.
pub(in crate::audit) async fn rows_after(
    connection: &mut AnyConnection,
    workspace: i64,
    seq: i64,
    limit: i64,
) -> Result<Vec<Stored>, StoreError> {
    let failed = while_doing("read audit rows");
    let sql = "select a.seq, a.mac, a.id, a.at, c.agent, c.agent_uid, c.key_id, a.tool, a.decision, a.outcome,
                   a.duration_us, a.request_bytes, a.response_bytes, a.arguments_digest, a.arguments
               from audit a left join audit_caller c on c.workspace = a.workspace and c.id = a.caller
               where a.workspace = $1 and a.seq > $2 order by a.seq limit $3";
    let rows = sqlx::query(sql)
        .bind(workspace)
        .bind(seq)
        .bind(limit)
        .fetch_all(connection)
        .await
        .map_err(&failed)?;
    let read = |row: &AnyRow| {
        Ok(Stored {
            seq: row.try_get(0)?,
            fields: Fields::read(row).ok(),
        })
    };
    rows.iter()
        .map(read)
        .collect::<sqlx::Result<_>>()
        .map_err(&failed)
}
