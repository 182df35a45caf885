//! Writing rows, chained one way or the other: within the transaction, or by the journal before.

use std::collections::{BTreeMap, HashMap};
use std::mem::take;
use std::sync::Arc;

use sqlx::{Any, AssertSqlSafe, Row as _};

use crate::audit::chain::{Caller, Head, Key, Link, MAC};
use crate::audit::{Entry, Row};
use crate::store::{Dialect, Query, Store, StoreError, WriteTx, while_doing};

/// Rows of the largest statement.
pub(in crate::audit) const BATCH: usize = 512;
/// How many rows a statement may have: whatever a few calls at once come to, and no more kinds than a database keeps
/// prepared.
const SIZES: [usize; 21] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 32, 64, 128, 256, BATCH,
];
const COLUMNS: usize = 14;
/// How far back a batch is looked for that may have been written already.
const LOOK_BACK: i64 = 64 * 1024;
/// Callers that are known by heart.
const MOST_CALLERS: usize = 16 * 1024;

/// What writes rows, and the callers that it knows by heart.
pub(in crate::audit) struct Inserts {
    sql: Arc<Sql>,
    callers: Callers,
}

/// The numbers of callers, by Workspace and caller.
type Callers = HashMap<(i64, Arc<Caller>), i64>;

struct Sql {
    /// The statements that insert [`SIZES`] rows.
    inserts: [Arc<str>; SIZES.len()],
    head: &'static str,
}

/// The rows of one Workspace, in order.
pub(in crate::audit) struct Run {
    pub(in crate::audit) workspace: i64,
    /// `<namespace>.<name>` of the Workspace.
    pub(in crate::audit) name: String,
    pub(in crate::audit) rows: Vec<(Arc<Caller>, Row)>,
}

/// The rows of `batch`, which loses them, by Workspace. After an error `batch` is as it was.
pub(in crate::audit) async fn runs(
    store: &Store,
    batch: &mut Vec<Entry>,
) -> Result<Vec<Run>, StoreError> {
    let mut runs: BTreeMap<String, Run> = BTreeMap::new();
    for entry in &*batch {
        let name = &entry.agent.workspace.id;
        if !runs.contains_key(name) {
            let run = Run {
                workspace: store.scope(name).await?.row(),
                name: name.clone(),
                rows: Vec::new(),
            };
            runs.insert(name.clone(), run);
        }
    }
    // Rows of one caller come in rows.
    let mut last: Option<Arc<Caller>> = None;
    for Entry {
        agent,
        key_id,
        row,
        durable: _,
    } in batch.drain(..)
    {
        let caller = last
            .filter(|last| last.is(&agent, &key_id))
            .unwrap_or_else(|| Arc::new(Caller::new(&agent, &key_id)));
        last = Some(caller.clone());
        if let Some(run) = runs.get_mut(&agent.workspace.id) {
            run.rows.push((caller, row));
        }
    }
    // In the order of their numbers: two replicas that write the same Workspaces must not wait for each other.
    let mut runs: Vec<Run> = runs.into_values().collect();
    runs.sort_by_key(|run| run.workspace);
    Ok(runs)
}

impl Inserts {
    pub(in crate::audit) fn new(dialect: Dialect) -> Self {
        let sql = Sql {
            inserts: SIZES.map(|rows| insert(dialect, rows).into()),
            head: match dialect {
                Dialect::Sqlite => "select seq, mac from audit_head where workspace = $1",
                // Other replicas wait here for their turn, so that the chain never forks.
                Dialect::Postgres => {
                    "select seq, mac from audit_head where workspace = $1 for update"
                }
            },
        };
        Self {
            sql: Arc::new(sql),
            callers: Callers::new(),
        }
    }

    /// Chains the rows behind whatever the heads are, and writes them, in one transaction. `again`: an earlier attempt
    /// may have been committed.
    pub(in crate::audit) async fn chain(
        &mut self,
        store: &Store,
        key: &Key,
        runs: &Arc<Vec<Run>>,
        again: bool,
    ) -> Result<(), StoreError> {
        let (sql, key, runs) = (self.sql.clone(), key.clone(), runs.clone());
        let mut callers = self.known();
        self.callers = store
            .write(move |tx| {
                Box::pin(async move {
                    for Run {
                        workspace,
                        name,
                        rows,
                    } in &*runs
                    {
                        let mut head = lock(tx, *workspace, sql.head, &key.start(name)).await?;
                        if again && is_written(tx, *workspace, head.0, &rows[0].1).await? {
                            continue;
                        }
                        let link = |(caller, row): &(Arc<Caller>, Row)| {
                            key.link(*workspace, &mut head, caller.clone(), row.clone())
                        };
                        let links: Vec<Link> = rows.iter().map(link).collect();
                        write(tx, links.iter().collect(), &sql, &mut callers).await?;
                    }
                    Ok::<_, StoreError>(callers)
                })
            })
            .await?;
        Ok(())
    }

    /// Writes the batches, which nobody else may do, in one transaction. `again`: an earlier attempt may have been
    /// committed.
    pub(in crate::audit) async fn write<B>(
        &mut self,
        store: &Store,
        batches: &[Arc<B>],
        again: bool,
    ) -> Result<(), StoreError>
    where
        B: AsRef<[Link]> + Send + Sync + 'static,
    {
        let (sql, batches) = (self.sql.clone(), batches.to_vec());
        let mut callers = self.known();
        self.callers = store
            .write(move |tx| {
                Box::pin(async move {
                    let mut runs: BTreeMap<i64, Vec<&Link>> = BTreeMap::new();
                    for link in batches.iter().flat_map(|batch| (**batch).as_ref()) {
                        runs.entry(link.workspace).or_default().push(link);
                    }
                    for (workspace, links) in runs {
                        let first = links[0];
                        let before = first.seq - 1;
                        if again && is_written(tx, workspace, before, &first.row).await? {
                            continue;
                        }
                        write(tx, links, &sql, &mut callers).await?;
                    }
                    Ok::<_, StoreError>(callers)
                })
            })
            .await?;
        Ok(())
    }

    /// The head of a Workspace's chain, begun if there is none.
    pub(in crate::audit) async fn head(
        &self,
        store: &Store,
        key: &Key,
        workspace: i64,
        name: &str,
    ) -> Result<Head, StoreError> {
        let (sql, start) = (self.sql.clone(), key.start(name));
        store
            .write(move |tx| Box::pin(async move { lock(tx, workspace, sql.head, &start).await }))
            .await
    }

    /// Until a write is committed, none is known.
    fn known(&mut self) -> Callers {
        if self.callers.len() > MOST_CALLERS {
            self.callers.clear();
        }
        take(&mut self.callers)
    }
}

/// The head as it is stored; locked until the end of the transaction.
async fn lock(
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

/// Whether a row is there, near the head.
async fn is_written(
    tx: &mut WriteTx<'_>,
    workspace: i64,
    head: i64,
    row: &Row,
) -> Result<bool, StoreError> {
    let sql = "select count(*) from audit where workspace = $1 and seq > $2 and id = $3";
    let query = sqlx::query(sql)
        .bind(workspace)
        .bind(head - LOOK_BACK)
        .bind(row.id);
    Ok(tx.count("look for audit rows", query).await? > 0)
}

/// Writes the rows of one Workspace and moves its head.
async fn write(
    tx: &mut WriteTx<'_>,
    links: Vec<&Link>,
    sql: &Sql,
    callers: &mut Callers,
) -> Result<(), StoreError> {
    let Some(&last) = links.last() else {
        return Ok(());
    };
    let mut rows: Vec<(&Link, i64)> = Vec::with_capacity(links.len());
    for link in links {
        let id = match rows.last() {
            Some((before, id)) if Arc::ptr_eq(&before.caller, &link.caller) => *id,
            _ => caller_id(tx, link, callers).await?,
        };
        rows.push((link, id));
    }
    let mut rest = rows.as_slice();
    while !rest.is_empty() {
        let size = SIZES.partition_point(|rows| *rows <= rest.len()) - 1;
        let (now, later) = rest.split_at(SIZES[size]);
        rest = later;
        let query = sqlx::query::<Any>(AssertSqlSafe(sql.inserts[size].clone()));
        now.iter()
            .fold(query, bind)
            .execute(tx.connection())
            .await
            .map_err(while_doing("insert audit rows"))?;
    }
    sqlx::query("update audit_head set seq = $2, mac = $3 where workspace = $1")
        .bind(last.workspace)
        .bind(last.seq)
        .bind(last.mac.to_vec())
        .execute(tx.connection())
        .await
        .map(|_| ())
        .map_err(while_doing("move the head of the audit"))
}

async fn caller_id(
    tx: &mut WriteTx<'_>,
    link: &Link,
    callers: &mut Callers,
) -> Result<i64, StoreError> {
    let key = (link.workspace, link.caller.clone());
    if let Some(id) = callers.get(&key) {
        return Ok(*id);
    }
    let failed = while_doing("note a caller");
    let Caller {
        agent,
        agent_uid,
        key_id,
    } = &*link.caller;
    let id = tx.new_id();
    let sql = "insert into audit_caller (workspace, id, agent, agent_uid, key_id) values ($1, $2, $3, $4, $5)
               on conflict do nothing";
    sqlx::query(sql)
        .bind(link.workspace)
        .bind(id.row())
        .bind(agent.clone())
        .bind(agent_uid.clone())
        .bind(key_id.clone())
        .execute(tx.connection())
        .await
        .map_err(&failed)?;
    let sql = "select id from audit_caller where workspace = $1 and agent_uid = $2 and key_id = $3 and agent = $4";
    let id = sqlx::query(sql)
        .bind(link.workspace)
        .bind(agent_uid.clone())
        .bind(key_id.clone())
        .bind(agent.clone())
        .fetch_one(tx.connection())
        .await
        .and_then(|row| row.try_get(0))
        .map_err(&failed)?;
    callers.insert(key, id);
    Ok(id)
}

fn insert(dialect: Dialect, rows: usize) -> String {
    format!(
        "insert into audit (workspace, seq, id, at, caller, tool, decision, outcome,
             duration_us, request_bytes, response_bytes, arguments_digest, arguments, mac)
         values {}",
        dialect.places(rows, COLUMNS)
    )
}

/// Binds the [`COLUMNS`] of one row.
fn bind<'q>(query: Query<'q>, (link, caller): &(&'q Link, i64)) -> Query<'q> {
    let Row {
        id,
        at,
        tool,
        decision,
        outcome,
        duration_us,
        request_bytes,
        response_bytes,
        arguments_digest,
        arguments,
    } = &link.row;
    query
        .bind(link.workspace)
        .bind(link.seq)
        .bind(*id)
        .bind(*at)
        .bind(*caller)
        .bind(&**tool)
        .bind(&**decision)
        .bind(&**outcome)
        .bind(*duration_us)
        .bind(*request_bytes)
        .bind(*response_bytes)
        .bind(arguments_digest.as_slice())
        .bind(arguments.as_deref())
        .bind(link.mac.as_slice())
}
