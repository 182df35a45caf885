//! The store's promises.

use chandlery_gateway::store::{Clock, Dialect, Store, StoreError, WriteTx, while_doing};
use sqlx::Row;

use crate::harness::Database;

async fn insert(tx: &mut WriteTx<'_>, id: i64, name: &str) -> Result<(), StoreError> {
    sqlx::query("insert into workspace (id, name) values ($1, $2)")
        .bind(id)
        .bind(name)
        .execute(tx.connection())
        .await
        .map(|_| ())
        .map_err(while_doing("insert"))
}

async fn names(store: &Store) -> Vec<String> {
    let mut reader = store.read().await.unwrap();
    sqlx::query("select name from workspace order by name")
        .fetch_all(reader.connection())
        .await
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect()
}

// P1: one write's failure harms only itself, though many share a commit.
#[tokio::test]
async fn a_failing_write_is_undone_alone() {
    for database in &Database::each().await {
        let store = &database.open().await;
        let writes = (0..40).map(|n| {
            store.write(move |tx| {
                Box::pin(async move {
                    insert(tx, n, &format!("{n:02}")).await?;
                    match n % 4 {
                        1 => insert(tx, n, "the same id").await,
                        2 => Err(StoreError::Slow),
                        3 if tx.dialect() == Dialect::Sqlite => panic!("a mistake in a family"),
                        3 => Err(StoreError::Slow),
                        _ => Ok(()),
                    }
                })
            })
        });
        let ended = futures::future::join_all(writes).await;
        for (n, result) in ended.iter().enumerate() {
            assert_eq!(result.is_ok(), n % 4 == 0, "write {n}: {result:?}");
        }
        let kept: Vec<String> = (0..40).step_by(4).map(|n| format!("{n:02}")).collect();
        assert_eq!(names(store).await, kept);
    }
}

#[tokio::test]
async fn waiting_writes_share_a_commit() {
    let database = Database::sqlite();
    let store = &database.open().await;
    // `data_version` of another connection counts the commits it has seen, not the writes.
    let mut observer = store.read().await.unwrap();
    let mut version = async || -> i64 {
        sqlx::query("pragma data_version")
            .fetch_one(observer.connection())
            .await
            .unwrap()
            .get(0)
    };
    let before = version().await;
    let writes = (0..200).map(|n| {
        store.write(move |tx| Box::pin(async move { insert(tx, n, &n.to_string()).await }))
    });
    let ended = futures::future::try_join_all(writes).await;
    ended.unwrap();
    let commits = version().await - before;
    assert!(commits <= 20, "200 writes took {commits} commits");
    assert_eq!(names(store).await.len(), 200);
}

// P1
#[tokio::test]
async fn a_write_that_was_handed_in_is_finished_by_close() {
    let database = Database::sqlite();
    let store = &database.open().await;
    let writing = tokio::spawn({
        let store = store.clone();
        async move {
            store
                .write(|tx| Box::pin(async move { insert(tx, 1, "kept").await }))
                .await
        }
    });
    tokio::task::yield_now().await;
    store.close().await;
    let acknowledged = writing.await.unwrap();
    let refused = store
        .write(|tx| Box::pin(async move { insert(tx, 2, "late").await }))
        .await;
    assert!(matches!(refused, Err(StoreError::Closed)), "{refused:?}");
    let again = database.open().await;
    assert_eq!(names(&again).await.len(), usize::from(acknowledged.is_ok()));
}

#[tokio::test]
async fn a_second_process_is_kept_out_of_the_folder() {
    let database = Database::sqlite();
    let store = &database.open().await;
    let error = Store::open(&database.url, Clock::system())
        .await
        .err()
        .unwrap();
    assert!(matches!(error, StoreError::InUse { .. }), "{error:?}");
    assert!(error.to_string().contains("in use by another process"));
    store.close().await;
    database.open().await;
}

// P18: an older program leaves a newer database alone.
#[tokio::test]
async fn a_newer_database_is_refused() {
    for database in &Database::each().await {
        let store = &database.open().await;
        let newer = store.write(|tx| {
            Box::pin(async move {
                let sql = "insert into _sqlx_migrations (version, description, success, checksum, execution_time)
                           select 99990101000000, 'later', success, checksum, 0 from _sqlx_migrations limit 1";
                sqlx::query(sql)
                    .execute(tx.connection())
                    .await
                    .map_err(while_doing("insert"))
            })
        });
        newer.await.unwrap();
        store.close().await;
        let error = Store::open(&database.url, Clock::system())
            .await
            .err()
            .unwrap();
        assert!(matches!(error, StoreError::Newer { .. }), "{error:?}");
        assert!(error.to_string().contains("written by a newer program"));
    }
}

#[tokio::test]
async fn a_workspace_made_again_finds_its_number() {
    for database in &Database::each().await {
        let store = &database.open().await;
        let (one, two) = futures::join!(store.scope("default.lab"), store.scope("default.lab"));
        assert_eq!(one.as_ref().unwrap(), two.as_ref().unwrap());
        assert_ne!(
            &store.scope("other.lab").await.unwrap(),
            one.as_ref().unwrap()
        );
        store.close().await;
        let again = database.open().await;
        assert_eq!(again.scope("default.lab").await.unwrap(), one.unwrap());
    }
}

#[tokio::test]
async fn an_agent_never_reads_sql() {
    for database in &Database::each().await {
        let store = &database.open().await;
        let failed: Result<(), StoreError> = store
            .write(|tx| {
                Box::pin(async move {
                    let query = sqlx::query("insert into no_such_table values (1)");
                    query
                        .execute(tx.connection())
                        .await
                        .map(|_| ())
                        .map_err(while_doing("write a note"))
                })
            })
            .await;
        let told = failed.unwrap_err().for_agent().message;
        assert!(
            !told.contains("no_such_table") && told.contains("nothing was changed"),
            "{told}"
        );
    }
}
