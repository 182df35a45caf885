use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;
use tracing::error;

use crate::tool::ToolError;

/// What went wrong with the store.
#[derive(Debug, Error)]
pub enum StoreError {
    #[error("make the store's folder {}", path.display())]
    Folder {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the store {} is in use by another process: stop that one first, or give this one a folder of its own", path.display())]
    InUse { path: PathBuf },
    #[error("read the store's URL")]
    Url(#[source] Arc<sqlx::Error>),
    #[error(
        "the database was written by a newer program (migration {found} is unknown to this one), so this one leaves it alone: run that version, or restore a backup from before the upgrade"
    )]
    Newer { found: i64 },
    #[error("migrate the database")]
    Migrate {
        #[source]
        source: sqlx::migrate::MigrateError,
    },
    /// A statement failed, so nothing of its transaction was done.
    #[error("{doing}")]
    Statement {
        doing: &'static str,
        #[source]
        source: Arc<sqlx::Error>,
    },
    #[error("open the journal")]
    Journal(#[source] std::io::Error),
    /// The commit failed or its answer was lost: the write may have been done or not.
    #[error("commit")]
    Commit(#[source] Arc<sqlx::Error>),
    /// No answer in time: the write may have been done or not.
    #[error("the database did not answer in time")]
    Slow,
    /// The store is closing, or a write was given up before it began.
    #[error("the store takes no more writes")]
    Closed,
}

/// Turns a failed statement into an error that says what was being done.
pub fn while_doing(doing: &'static str) -> impl Fn(sqlx::Error) -> StoreError {
    move |source| StoreError::Statement {
        doing,
        source: Arc::new(source),
    }
}

impl StoreError {
    /// The text that an agent reads. The cause goes to the log, here and nowhere else.
    pub fn for_agent(&self) -> ToolError {
        error!(error = %Causes(self), "the store failed a call");
        ToolError::unavailable(match self {
            Self::Commit(_) | Self::Slow => {
                "The workspace's store did not confirm the write: it may have been saved or not. Read it back before you repeat the call."
            }
            _ => {
                "The workspace's store can't be reached right now; nothing was changed. Try the call again in a few seconds."
            }
        })
    }
}

impl From<StoreError> for ToolError {
    fn from(error: StoreError) -> Self {
        error.for_agent()
    }
}

/// An error with all its causes on one line.
pub(crate) struct Causes<'a>(pub(crate) &'a dyn std::error::Error);

impl std::fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
