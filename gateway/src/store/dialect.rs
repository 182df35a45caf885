//! All that differs between the two databases.

use std::fs::{DirBuilder, File, TryLockError};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use secrecy::ExposeSecret;
use sqlx::any::AnyConnectOptions;
use sqlx::{AnyConnection, ConnectOptions};

use super::{StoreError, StoreUrl, while_doing};

/// Which database a statement is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Sqlite,
    Postgres,
}

const SQLITE_WRITER: &str = "pragma busy_timeout = 5000; pragma journal_mode = wal; pragma synchronous = full; pragma foreign_keys = on;";
const SQLITE_READER: &str = "pragma busy_timeout = 5000; pragma query_only = on;";
/// A server or role may have switched `synchronous_commit` off; what we acknowledge must be durable.
const POSTGRES: &str = "set synchronous_commit = on; set statement_timeout = '10s'; set lock_timeout = '5s'; set idle_in_transaction_session_timeout = '30s'; set application_name = 'chandlery';";
/// Waiting for another replica's migrations may take longer than any statement of a call.
const POSTGRES_MIGRATION: &str = "set synchronous_commit = on; set application_name = 'chandlery';";

impl Dialect {
    /// The end of a `select` in a PostgreSQL transaction that passes over rows other writers hold.
    ///
    /// Empty on SQLite, whose writes never run side by side.
    pub fn skip_locked(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Postgres => " for update skip locked",
        }
    }

    /// The places of a `values` clause: `rows` times `columns` values, bound row by row.
    ///
    /// Bare `?` on SQLite: it looks numbered places up by name, each by a search through all of them.
    pub fn places(self, rows: usize, columns: usize) -> String {
        let place = |number: usize| match self {
            Self::Sqlite => "?".to_owned(),
            Self::Postgres => format!("${number}"),
        };
        let row = |row: usize| {
            let numbers = row * columns + 1..=(row + 1) * columns;
            let places: Vec<String> = numbers.map(place).collect();
            format!("({})", places.join(", "))
        };
        let rows: Vec<String> = (0..rows).map(row).collect();
        rows.join(", ")
    }

    pub(super) fn reader_setup(self) -> &'static str {
        match self {
            Self::Sqlite => SQLITE_READER,
            Self::Postgres => POSTGRES,
        }
    }

    pub(super) fn min_readers(self) -> u32 {
        match self {
            Self::Sqlite => 0,
            Self::Postgres => 4,
        }
    }

    /// PostgreSQL's readers write too.
    pub(super) fn max_readers(self) -> u32 {
        match self {
            Self::Sqlite => 4,
            Self::Postgres => 16,
        }
    }
}

/// A database that can be connected to. Holds the lock on a SQLite folder.
pub(super) struct Place {
    dialect: Dialect,
    options: AnyConnectOptions,
    /// SQLite's, locked until the end.
    folder: Option<(PathBuf, File)>,
}

impl Place {
    pub(super) fn prepare(url: &StoreUrl) -> Result<Self, StoreError> {
        let (dialect, url, folder) = match url {
            StoreUrl::Sqlite(folder) => {
                let locked = lock_folder(folder)?;
                (Dialect::Sqlite, sqlite_url(&locked.0, "rwc"), Some(locked))
            }
            StoreUrl::Postgres(url) => (Dialect::Postgres, url.expose_secret().to_owned(), None),
        };
        // Statements are logged by nobody: a span or an error says what was being done, without values.
        let options = AnyConnectOptions::from_str(&url)
            .map_err(|error| StoreError::Url(Arc::new(error)))?
            .disable_statement_logging();
        Ok(Self {
            dialect,
            options,
            folder,
        })
    }

    pub(super) fn folder(&self) -> Option<PathBuf> {
        self.folder.as_ref().map(|(folder, _)| folder.clone())
    }

    pub(super) fn dialect(&self) -> Dialect {
        self.dialect
    }

    pub(super) fn options(&self) -> AnyConnectOptions {
        self.options.clone()
    }

    /// A connection for migrations and, on SQLite, for writing.
    pub(super) async fn connect(&self) -> Result<AnyConnection, StoreError> {
        let failed = while_doing("connect to the database");
        let mut connection = self.options.connect().await.map_err(&failed)?;
        let setup = match self.dialect {
            Dialect::Sqlite => SQLITE_WRITER,
            Dialect::Postgres => POSTGRES_MIGRATION,
        };
        sqlx::raw_sql(setup)
            .execute(&mut connection)
            .await
            .map_err(&failed)?;
        Ok(connection)
    }
}

/// A connection that cannot write, and that needs no lock on the folder.
pub(super) async fn connect_to_read(url: &StoreUrl) -> Result<AnyConnection, StoreError> {
    let (url, setup) = match url {
        StoreUrl::Sqlite(folder) => (sqlite_url(folder, "ro"), SQLITE_READER),
        StoreUrl::Postgres(url) => (
            url.expose_secret().to_owned(),
            "set default_transaction_read_only = on; set application_name = 'chandlery';",
        ),
    };
    let failed = while_doing("connect to the database");
    let options = AnyConnectOptions::from_str(&url)
        .map_err(|error| StoreError::Url(Arc::new(error)))?
        .disable_statement_logging();
    let mut connection = options.connect().await.map_err(&failed)?;
    sqlx::raw_sql(setup)
        .execute(&mut connection)
        .await
        .map_err(&failed)?;
    Ok(connection)
}

fn lock_folder(folder: &Path) -> Result<(PathBuf, File), StoreError> {
    let failed = |source| StoreError::Folder {
        path: folder.to_owned(),
        source,
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(failed)?;
    let folder = folder.canonicalize().map_err(failed)?;
    let lock = File::create(folder.join("store.lock")).map_err(failed)?;
    match lock.try_lock() {
        Ok(()) => Ok((folder, lock)),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse { path: folder }),
        Err(TryLockError::Error(source)) => Err(StoreError::Folder {
            path: folder,
            source,
        }),
    }
}

fn sqlite_url(folder: &Path, mode: &str) -> String {
    let path = folder.join("store.db").to_string_lossy().into_owned();
    let path = path
        .replace('%', "%25")
        .replace('?', "%3F")
        .replace('#', "%23");
    format!("sqlite://{path}?mode={mode}")
}
