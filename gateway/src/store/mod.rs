//! The store: one SQL text for SQLite and PostgreSQL. Only this module and each family's `store.rs` know SQL.
//!
//! An acknowledged write survives kill -9: [`Store::write`] answers after the commit has reached the disk.
//! Nothing here reads the machine's clock or makes random numbers; time comes from [`Clock`], ids from [`Ids`].

mod clock;
mod dialect;
mod error;
mod id;
mod journal;
mod pooled;
mod single;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use futures::future::BoxFuture;
use jiff::Timestamp;
use secrecy::SecretString;
use sqlx::any::{AnyArguments, AnyPoolOptions, AnyRow};
use sqlx::pool::PoolConnection;
use sqlx::{Any, AnyConnection, AnyPool, Connection as _, Row};
use tokio::time::timeout;

pub use clock::Clock;
pub use dialect::Dialect;
pub(crate) use error::Causes;
pub use error::{StoreError, while_doing};
pub use id::Id;
use id::Ids;
pub use journal::Journal;

static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("./migrations");

/// How long a read waits for a connection before it fails.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a write may take, waiting included, before its caller is told that its fate is unknown.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the migrations of a start may take, waiting for another replica's included.
const MIGRATION_TIMEOUT: Duration = Duration::from_secs(300);

/// Where the store is.
pub enum StoreUrl {
    /// A folder of this process alone, made if it is missing.
    Sqlite(PathBuf),
    /// `postgres://…`, for any number of replicas.
    Postgres(SecretString),
}

/// A connection that only reads.
pub type Connection = AnyConnection;

/// A connection to a store that another process may have open, for reading alone.
///
/// Fails when there is no such store, or none of this program's making.
pub async fn open_to_read(url: &StoreUrl) -> Result<Connection, StoreError> {
    sqlx::any::install_default_drivers();
    dialect::connect_to_read(url).await
}

/// The lines of the journal `name`: see [`Journal::lines`].
///
/// None on PostgreSQL, and where there is no such journal.
pub fn read_journal(url: &StoreUrl, name: &str) -> Result<Vec<Vec<u8>>, StoreError> {
    match url {
        StoreUrl::Sqlite(folder) => journal::read(folder, name).map_err(StoreError::Journal),
        StoreUrl::Postgres(_) => Ok(Vec::new()),
    }
}

/// An open store. Clones share it.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
    writer: Writer,
}

struct Shared {
    clock: Clock,
    ids: Ids,
    dialect: Dialect,
    /// SQLite's.
    folder: Option<PathBuf>,
    readers: AnyPool,
    scopes: DashMap<String, Scope>,
}

#[derive(Clone)]
enum Writer {
    Single(Arc<single::Writer>),
    Pooled,
}

/// The workspace that a statement is about: its number in the store.
///
/// Bound to the name `<namespace>.<name>`, so a Workspace that is made again finds its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scope(i64);

impl Scope {
    /// The value of a `workspace` column.
    pub fn row(self) -> i64 {
        self.0
    }
}

/// A connection for reading. Each statement sees all that was acknowledged before it.
pub struct Reader(PoolConnection<Any>);

impl Reader {
    pub fn connection(&mut self) -> &mut AnyConnection {
        &mut self.0
    }

    /// Every row of `query`, read; `doing` says in errors what that was for.
    pub async fn all<T>(
        &mut self,
        doing: &'static str,
        query: Query<'_>,
        read: impl Fn(&AnyRow) -> sqlx::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        all(&mut self.0, doing, query, read).await
    }

    /// The row of `query`, read, if there is one; `doing` says in errors what that was for.
    pub async fn one<T>(
        &mut self,
        doing: &'static str,
        query: Query<'_>,
        read: impl Fn(&AnyRow) -> sqlx::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        one(&mut self.0, doing, query, read).await
    }
}

/// A statement with its values.
pub type Query<'q> = sqlx::query::Query<'q, Any, AnyArguments>;

async fn all<T>(
    connection: &mut AnyConnection,
    doing: &'static str,
    query: Query<'_>,
    read: impl Fn(&AnyRow) -> sqlx::Result<T>,
) -> Result<Vec<T>, StoreError> {
    let rows = query.fetch_all(connection).await;
    rows.and_then(|rows| rows.iter().map(read).collect())
        .map_err(while_doing(doing))
}

async fn one<T>(
    connection: &mut AnyConnection,
    doing: &'static str,
    query: Query<'_>,
    read: impl Fn(&AnyRow) -> sqlx::Result<T>,
) -> Result<Option<T>, StoreError> {
    let row = query.fetch_optional(connection).await;
    row.and_then(|row| row.as_ref().map(read).transpose())
        .map_err(while_doing(doing))
}

/// A write in progress. Nobody else sees any of it before the commit.
pub struct WriteTx<'c> {
    connection: &'c mut AnyConnection,
    shared: &'c Shared,
}

impl WriteTx<'_> {
    pub fn connection(&mut self) -> &mut AnyConnection {
        self.connection
    }

    /// The row of `query`, if there is one; see [`Reader::one`].
    pub async fn one<T>(
        &mut self,
        doing: &'static str,
        query: Query<'_>,
        read: impl Fn(&AnyRow) -> sqlx::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        one(self.connection, doing, query, read).await
    }

    /// The number that `query` counts.
    pub async fn count(
        &mut self,
        doing: &'static str,
        query: Query<'_>,
    ) -> Result<i64, StoreError> {
        let count = self.one(doing, query, |row| row.try_get(0)).await?;
        Ok(count.unwrap_or_default())
    }

    pub fn dialect(&self) -> Dialect {
        self.shared.dialect
    }

    /// A new id, greater than every earlier one of this process.
    pub fn new_id(&self) -> Id {
        self.shared.ids.next(self.now())
    }

    /// The time for `*_at` columns: Unix milliseconds by the store's clock.
    pub fn now(&self) -> i64 {
        self.shared.clock.now().as_millisecond()
    }
}

impl Store {
    /// Opens the store and brings it up to this program's migrations.
    ///
    /// Fails with [`StoreError::InUse`] while another process has the folder, and with [`StoreError::Newer`] when a
    /// newer program has written the database: an older one never writes there.
    pub async fn open(url: &StoreUrl, clock: Clock) -> Result<Self, StoreError> {
        sqlx::any::install_default_drivers();
        let place = dialect::Place::prepare(url)?;
        let mut connection = place.connect().await?;
        migrate(&mut connection).await?;
        let ids = Ids::new(next_opening(&mut connection).await?);
        let dialect = place.dialect();
        let setup = dialect.reader_setup();
        let readers = AnyPoolOptions::new()
            .min_connections(dialect.min_readers())
            .max_connections(dialect.max_readers())
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .after_connect(move |connection, _| {
                Box::pin(async move {
                    sqlx::raw_sql(setup).execute(connection).await?;
                    Ok(())
                })
            })
            .connect_with(place.options())
            .await
            .map_err(while_doing("open the database"))?;
        let shared = Arc::new(Shared {
            clock,
            ids,
            dialect,
            folder: place.folder(),
            readers,
            scopes: DashMap::new(),
        });
        let writer = match dialect {
            Dialect::Sqlite => Writer::Single(Arc::new(single::Writer::start(
                connection,
                place,
                shared.clone(),
            ))),
            Dialect::Postgres => {
                let _ = connection.close().await;
                Writer::Pooled
            }
        };
        Ok(Self { shared, writer })
    }

    pub fn clock(&self) -> Clock {
        self.shared.clock.clone()
    }

    pub fn dialect(&self) -> Dialect {
        self.shared.dialect
    }

    /// A new id for what happened at `at`, greater than every earlier one of this process.
    pub fn new_id(&self, at: Timestamp) -> Id {
        self.shared.ids.next(at.as_millisecond())
    }

    /// Opens the journal `name` of a SQLite store. Open each once.
    ///
    /// `None` on PostgreSQL, where a replica has no disk that outlives it.
    pub fn journal(&self, name: &str) -> Result<Option<Journal>, StoreError> {
        let folder = self.shared.folder.as_ref();
        let journal = folder.map(|folder| Journal::open(folder, name));
        journal.transpose().map_err(StoreError::Journal)
    }

    /// A connection for reading; give it back soon, there are few.
    pub async fn read(&self) -> Result<Reader, StoreError> {
        let connection = self.shared.readers.acquire().await;
        Ok(Reader(
            connection.map_err(while_doing("reach the database"))?,
        ))
    }

    /// Runs `work` in a transaction and answers once it is durable; an error undoes all of `work` and nothing else.
    ///
    /// On SQLite writes run one after the other, so what `work` reads stays true until its end. On PostgreSQL
    /// they run side by side (read committed): let the statement that writes check what the one before has read.
    /// There, dropping the future undoes the write; on SQLite a write that has been handed in runs to its end.
    pub async fn write<T, E, F>(&self, work: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: for<'t> FnOnce(&'t mut WriteTx<'_>) -> BoxFuture<'t, Result<T, E>> + Send + 'static,
    {
        let written = async {
            match &self.writer {
                Writer::Single(writer) => writer.write(work).await,
                Writer::Pooled => pooled::write(&self.shared, work).await,
            }
        };
        timeout(WRITE_TIMEOUT, written)
            .await
            .unwrap_or_else(|_| Err(StoreError::Slow.into()))
    }

    /// The scope of the Workspace `<namespace>.<name>`, made when it is first asked for.
    pub async fn scope(&self, workspace: &str) -> Result<Scope, StoreError> {
        if let Some(scope) = self.shared.scopes.get(workspace) {
            return Ok(*scope);
        }
        let name = workspace.to_owned();
        let scope = self
            .write(move |tx| Box::pin(async move { find_or_make_scope(tx, &name).await }))
            .await?;
        self.shared.scopes.insert(workspace.to_owned(), scope);
        Ok(scope)
    }

    /// Whether the database answers.
    pub async fn ping(&self) -> Result<(), StoreError> {
        let ping = async {
            let mut reader = self.read().await?;
            sqlx::query("select 1")
                .execute(reader.connection())
                .await
                .map_err(while_doing("ping the database"))
        };
        timeout(ACQUIRE_TIMEOUT, ping)
            .await
            .unwrap_or(Err(StoreError::Slow))
            .map(|_| ())
    }

    /// Finishes the writes that were handed in, then gives the database free. Later calls fail.
    pub async fn close(&self) {
        if let Writer::Single(writer) = &self.writer {
            writer.close().await;
        }
        self.shared.readers.close().await;
    }
}

async fn migrate(connection: &mut AnyConnection) -> Result<(), StoreError> {
    use sqlx::migrate::MigrateError;
    let run = timeout(MIGRATION_TIMEOUT, MIGRATIONS.run(connection)).await;
    match run {
        Ok(Ok(())) => Ok(()),
        Ok(Err(MigrateError::VersionMissing(found))) => Err(StoreError::Newer { found }),
        Ok(Err(source)) => Err(StoreError::Migrate { source }),
        Err(_) => Err(StoreError::Slow),
    }
}

async fn next_opening(connection: &mut AnyConnection) -> Result<i64, StoreError> {
    let row = sqlx::query("update opening set count = count + 1 where one = 1 returning count")
        .fetch_one(connection)
        .await
        .map_err(while_doing("count the opening"))?;
    row.try_get(0).map_err(while_doing("count the opening"))
}

async fn find_or_make_scope(tx: &mut WriteTx<'_>, name: &str) -> Result<Scope, StoreError> {
    let id = tx.new_id();
    sqlx::query("insert into workspace (id, name) values ($1, $2) on conflict (name) do nothing")
        .bind(id.row())
        .bind(name)
        .execute(tx.connection())
        .await
        .map_err(while_doing("make a workspace"))?;
    let row = sqlx::query("select id from workspace where name = $1")
        .bind(name)
        .fetch_one(tx.connection())
        .await
        .map_err(while_doing("find a workspace"))?;
    row.try_get(0)
        .map(Scope)
        .map_err(while_doing("find a workspace"))
}
