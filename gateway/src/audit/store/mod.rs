//! The SQL of the audit: sets of rows in one statement, chained within the transaction that writes them.

mod read;
mod write;

pub(super) use self::read::{Chain, chains, rows_after, strays};
pub(super) use self::write::{BATCH, Inserts, Run, runs};
