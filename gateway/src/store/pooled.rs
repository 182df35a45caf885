//! Writing to PostgreSQL: each write is a transaction of its own, on a connection of the pool.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::{Shared, StoreError, WriteTx, while_doing};

pub(super) async fn write<T, E, F>(shared: &Shared, work: F) -> Result<T, E>
where
    E: From<StoreError>,
    F: for<'t> FnOnce(&'t mut WriteTx<'_>) -> BoxFuture<'t, Result<T, E>>,
{
    let begun = shared.readers.begin().await;
    let mut transaction = begun.map_err(while_doing("begin a transaction"))?;
    let mut tx = WriteTx {
        connection: &mut transaction,
        shared,
    };
    let value = work(&mut tx).await?;
    let committed = transaction.commit().await;
    committed.map_err(|source| StoreError::Commit(Arc::new(source)))?;
    Ok(value)
}
