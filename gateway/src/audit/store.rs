//! The SQL of the audit: sets of rows in one statement, chained within the transaction that writes them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sqlx::any::{AnyArguments, AnyRow};
use sqlx::{Any, AnyConnection, AssertSqlSafe, Row as _};

use super::chain::{Content, Key, MAC};
use super::{Entry, Row};
use crate::store::{Dialect, Scope, Store, StoreError, WriteTx, while_doing};

/// Rows of the largest statement.
pub(super) const BATCH: usize = 512;
/// How many rows a statement may have: whatever a few calls at once come to, and no more kinds than a database keeps
/// prepared.
const SIZES: [usize; 21] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 32, 64, 128, 256, BATCH,
];
const COLUMNS: usize = 14;
/// How far back a batch is looked for that may have been written already.
const LOOK_BACK: i64 = 64 * 1024;

/// Who made a call: agent, its UID, and the key.
type Caller = (String, String, Arc<str>);

/// What writes rows, and what it knows by heart.
pub(super) struct Inserts {
    sql: Arc<Sql>,
    key: Key,
    callers: HashMap<(i64, Arc<Caller>), i64>,
    /// Where nobody else writes: the head of each Workspace's chain.
    heads: HashMap<i64, Head>,
}

struct Sql {
    /// The statements that insert [`SIZES`] rows.
    inserts: [Arc<str>; SIZES.len()],
    head: &'static str,
    /// No other process writes to the chains.
    is_alone: bool,
}

/// The last row's number and hash.
type Head = (i64, [u8; MAC]);

/// The rows of one Workspace, in order.
struct Run {
    /// `<namespace>.<name>` of the Workspace.
    name: String,
    scope: Scope,
    rows: Vec<Ready>,
}

/// A row with everything but its place in the chain.
struct Ready {
    row: Row,
    caller: Arc<Caller>,
    /// Known from an earlier batch.
    caller_id: Option<i64>,
}

impl Inserts {
    pub(super) fn new(dialect: Dialect, key: Key) -> Self {
        let sql = Sql {
            inserts: SIZES.map(|rows| insert(dialect, rows).into()),
            head: match dialect {
                Dialect::Sqlite => "select seq, mac from audit_head where workspace = $1",
                // Other replicas wait here for their turn, so that the chain never forks.
                Dialect::Postgres => {
                    "select seq, mac from audit_head where workspace = $1 for update"
                }
            },
            is_alone: dialect == Dialect::Sqlite,
        };
        Self {
            sql: Arc::new(sql),
            key,
            callers: HashMap::new(),
            heads: HashMap::new(),
        }
    }

    /// Writes all of `batch` in one transaction. `again`: an earlier attempt may have been committed.
    pub(super) async fn write(
        &mut self,
        store: &Store,
        batch: &[Entry],
        again: bool,
    ) -> Result<(), StoreError> {
        let mut runs: BTreeMap<&str, Run> = BTreeMap::new();
        // Rows of one caller come in rows.
        let mut last: Option<(&Row, Arc<Caller>, Option<i64>)> = None;
        for entry in batch {
            let row = &entry.row;
            let workspace = row.agent.workspace.id.as_str();
            if !runs.contains_key(workspace) {
                let scope = store.scope(workspace).await?;
                let (name, rows) = (workspace.to_owned(), Vec::new());
                runs.insert(workspace, Run { name, scope, rows });
            }
            let Some(run) = runs.get_mut(workspace) else {
                continue;
            };
            let is_same = |other: &Row| {
                Arc::ptr_eq(&other.agent, &row.agent) && Arc::ptr_eq(&other.key_id, &row.key_id)
            };
            let (caller, caller_id) = match &last {
                Some((other, caller, id)) if is_same(other) => (caller.clone(), *id),
                _ => {
                    let agent = &row.agent;
                    let caller =
                        Arc::new((agent.id.clone(), agent.uid.clone(), row.key_id.clone()));
                    let known = self.callers.get(&(run.scope.row(), caller.clone()));
                    (caller, known.copied())
                }
            };
            last = Some((row, caller.clone(), caller_id));
            run.rows.push(Ready {
                row: row.clone(),
                caller,
                caller_id,
            });
        }
        // In the order of their numbers: two replicas that write the same Workspaces must not wait for each other.
        let mut runs: Vec<Run> = runs.into_values().collect();
        runs.sort_by_key(|run| run.scope.row());
        let (sql, key) = (self.sql.clone(), self.key.clone());
        // Until this is committed, none is known.
        let mut heads = std::mem::take(&mut self.heads);
        let (new, heads) = store
            .write(move |tx| {
                Box::pin(async move {
                    let mut new = Vec::new();
                    for run in runs {
                        let workspace = run.scope.row();
                        let known = heads.get(&workspace).copied();
                        let head = write_run(tx, run, known, &sql, &key, again, &mut new).await?;
                        if sql.is_alone {
                            heads.insert(workspace, head);
                        }
                    }
                    Ok::<_, StoreError>((new, heads))
                })
            })
            .await?;
        // Only now are they there for good.
        if self.callers.len() > MOST_CALLERS {
            self.callers.clear();
        }
        self.callers.extend(new);
        self.heads = heads;
        Ok(())
    }
}

/// Callers that are known by heart.
const MOST_CALLERS: usize = 16 * 1024;

/// Writes the rows behind `known`, or behind whatever the head is, and gives back the new one.
async fn write_run(
    tx: &mut WriteTx<'_>,
    mut run: Run,
    known: Option<Head>,
    sql: &Sql,
    key: &Key,
    again: bool,
    new: &mut Vec<((i64, Arc<Caller>), i64)>,
) -> Result<Head, StoreError> {
    let workspace = run.scope.row();
    let (mut seq, mut mac) = match known {
        Some(head) => head,
        None => head_of(tx, workspace, sql.head, &key.start(&run.name)).await?,
    };
    if again && let Some(first) = run.rows.first() {
        let written = "select count(*) from audit where workspace = $1 and seq > $2 and id = $3";
        let count: i64 = sqlx::query(written)
            .bind(workspace)
            .bind(seq - LOOK_BACK)
            .bind(first.row.id.row())
            .fetch_one(tx.connection())
            .await
            .and_then(|row| row.try_get(0))
            .map_err(while_doing("look for audit rows"))?;
        if count > 0 {
            return Ok((seq, mac));
        }
    }
    let mut known: HashMap<Arc<Caller>, i64> = HashMap::new();
    for ready in run
        .rows
        .iter_mut()
        .filter(|ready| ready.caller_id.is_none())
    {
        let id = match known.get(&ready.caller) {
            Some(id) => *id,
            None => {
                let id = caller_id(tx, workspace, &ready.caller).await?;
                known.insert(ready.caller.clone(), id);
                new.push(((workspace, ready.caller.clone()), id));
                id
            }
        };
        ready.caller_id = Some(id);
    }
    let mut rest = run.rows.as_slice();
    while !rest.is_empty() {
        let size = SIZES.partition_point(|rows| *rows <= rest.len()) - 1;
        let (now, later) = rest.split_at(SIZES[size]);
        rest = later;
        let mut query = sqlx::query::<Any>(AssertSqlSafe(sql.inserts[size].clone()));
        for ready in now {
            seq += 1;
            mac = key.mac(&mac, &content(workspace, seq, ready));
            query = bind(query, workspace, seq, ready, &mac);
        }
        query
            .execute(tx.connection())
            .await
            .map_err(while_doing("insert audit rows"))?;
    }
    sqlx::query("update audit_head set seq = $2, mac = $3 where workspace = $1")
        .bind(workspace)
        .bind(seq)
        .bind(mac.to_vec())
        .execute(tx.connection())
        .await
        .map(|_| (seq, mac))
        .map_err(while_doing("move the head of the audit"))
}

/// The head as it is stored; locked until the end of the transaction.
async fn head_of(
    tx: &mut WriteTx<'_>,
    workspace: i64,
    sql: &'static str,
    start: &[u8; MAC],
) -> Result<Head, StoreError> {
    let failed = while_doing("find the head of the audit");
    loop {
        let row = sqlx::query(sql)
            .bind(workspace)
            .fetch_optional(tx.connection())
            .await
            .map_err(&failed)?;
        if let Some(row) = row {
            let mac: Vec<u8> = row.try_get(1).map_err(&failed)?;
            let mac = mac
                .try_into()
                .map_err(|_| failed(sqlx::Error::Decode("a hash of another length".into())))?;
            return Ok((row.try_get(0).map_err(&failed)?, mac));
        }
        let sql = "insert into audit_head (workspace, seq, mac) values ($1, 0, $2) on conflict do nothing";
        sqlx::query(sql)
            .bind(workspace)
            .bind(start.to_vec())
            .execute(tx.connection())
            .await
            .map_err(&failed)?;
    }
}

async fn caller_id(
    tx: &mut WriteTx<'_>,
    workspace: i64,
    (agent, agent_uid, key_id): &Caller,
) -> Result<i64, StoreError> {
    let failed = while_doing("note a caller");
    let id = tx.new_id();
    let sql = "insert into audit_caller (workspace, id, agent, agent_uid, key_id) values ($1, $2, $3, $4, $5)
               on conflict do nothing";
    sqlx::query(sql)
        .bind(workspace)
        .bind(id.row())
        .bind(agent.clone())
        .bind(agent_uid.clone())
        .bind(key_id.to_string())
        .execute(tx.connection())
        .await
        .map_err(&failed)?;
    let sql = "select id from audit_caller where workspace = $1 and agent_uid = $2 and key_id = $3 and agent = $4";
    sqlx::query(sql)
        .bind(workspace)
        .bind(agent_uid.clone())
        .bind(key_id.to_string())
        .bind(agent.clone())
        .fetch_one(tx.connection())
        .await
        .and_then(|row| row.try_get(0))
        .map_err(&failed)
}

fn insert(dialect: Dialect, rows: usize) -> String {
    format!(
        "insert into audit (workspace, seq, id, at, caller, tool, decision, outcome,
             duration_us, request_bytes, response_bytes, arguments_digest, arguments, mac)
         values {}",
        dialect.places(rows, COLUMNS)
    )
}

fn content(workspace: i64, seq: i64, ready: &Ready) -> Content<'_> {
    let (agent, agent_uid, key_id) = &*ready.caller;
    let Row {
        id,
        at,
        agent: _,
        key_id: _,
        tool,
        decision,
        outcome,
        duration_us,
        request_bytes,
        response_bytes,
        arguments_digest,
        arguments,
    } = &ready.row;
    Content {
        workspace,
        seq,
        id: id.row(),
        at: *at,
        agent,
        agent_uid,
        key_id,
        tool,
        decision,
        outcome,
        duration_us: *duration_us,
        request_bytes: *request_bytes,
        response_bytes: *response_bytes,
        arguments_digest,
        arguments: arguments.as_deref(),
    }
}

type Query = sqlx::query::Query<'static, Any, AnyArguments>;

/// Binds the [`COLUMNS`] of one row.
fn bind(query: Query, workspace: i64, seq: i64, ready: &Ready, mac: &[u8; MAC]) -> Query {
    let row = &ready.row;
    let query = query
        .bind(workspace)
        .bind(seq)
        .bind(row.id.row())
        .bind(row.at)
        .bind(ready.caller_id);
    let query = match &row.tool {
        std::borrow::Cow::Borrowed(tool) => query.bind(*tool),
        std::borrow::Cow::Owned(tool) => query.bind(tool.clone()),
    };
    query
        .bind(row.decision)
        .bind(row.outcome)
        .bind(row.duration_us)
        .bind(row.request_bytes)
        .bind(row.response_bytes)
        .bind(row.arguments_digest.to_vec())
        .bind(row.arguments.clone())
        .bind(mac.to_vec())
}

/// A Workspace's chain as it is at one moment, however many rows follow meanwhile.
pub(super) struct Chain {
    pub(super) workspace: i64,
    pub(super) name: String,
    /// Number and hash of the last row, as they were noted; `None` when that is gone.
    pub(super) head: Option<(i64, Vec<u8>)>,
    /// The smallest and the greatest number of a row; 1 and 0 when there is none.
    pub(super) first: i64,
    pub(super) last: i64,
}

/// The chains of all Workspaces that have one, by name.
pub(super) async fn chains(connection: &mut AnyConnection) -> Result<Vec<Chain>, StoreError> {
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
pub(super) async fn strays(connection: &mut AnyConnection) -> Result<Vec<i64>, StoreError> {
    let sql = "select workspace from audit where workspace not in (select id from workspace)
               union select workspace from audit_head where workspace not in (select id from workspace)";
    let rows = sqlx::query(sql).fetch_all(connection).await;
    rows.and_then(|rows| rows.iter().map(|row| row.try_get(0)).collect())
        .map_err(while_doing("look for audit rows of no Workspace"))
}

/// A row as it is stored.
pub(super) struct Stored {
    pub(super) seq: i64,
    /// `None` when a value is of no kind that was ever written there.
    pub(super) fields: Option<Fields>,
}

pub(super) struct Fields {
    pub(super) mac: Vec<u8>,
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

    pub(super) fn content(&self, workspace: i64, seq: i64) -> Content<'_> {
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
pub(super) async fn rows_after(
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
