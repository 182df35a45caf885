//! The SQL of sources: what each said last, and the revisions that people compare.

use std::sync::Arc;

use bytes::Bytes;
use sqlx::Row;

use super::pins::{self, Tools};
use crate::store::{Store, StoreError, WriteTx, while_doing};

/// Revisions of one source that are kept besides the approved one.
const KEPT: i64 = 4;

/// What is known of a source from before.
pub(super) struct Known {
    /// What it said last.
    pub(super) answer: Bytes,
    /// When, Unix milliseconds.
    pub(super) answered_at: i64,
}

/// What a source offers, as it is kept.
pub(super) struct Revision {
    pub(super) name: String,
    pub(super) tools: Arc<Tools>,
    text: String,
}

impl Revision {
    /// Many tools take a while.
    pub(super) fn of(tools: Arc<Tools>) -> Self {
        Self {
            name: pins::revision(&tools),
            text: serde_json::to_string(&tools).unwrap_or_else(|_| "{}".to_owned()),
            tools,
        }
    }
}

/// What the source said last, if it ever did.
pub(super) async fn last(store: &Store, uid: &str) -> Result<Option<Known>, StoreError> {
    let query = sqlx::query("select answer, answered_at from source where uid = $1").bind(uid);
    let mut reader = store.read().await?;
    reader
        .one("read what a source said", query, |row| {
            let answer: Vec<u8> = row.try_get("answer")?;
            Ok(Known {
                answer: answer.into(),
                answered_at: row.try_get("answered_at")?,
            })
        })
        .await
}

/// Keeps an answer and its revision, and gives the tools that are approved: those of `approve`, where that revision was
/// ever seen, else those that were approved before. A first answer is approved where nobody says what is.
pub(super) async fn keep(
    store: &Store,
    uid: &str,
    answer: Bytes,
    revision: &Revision,
    approve: Option<String>,
) -> Result<Approved, StoreError> {
    let Revision { name, tools, text } = revision;
    let (uid, revision) = (uid.to_owned(), name.clone());
    let (tools, text) = (tools.clone(), text.clone());
    let is_trusted = approve.as_ref().is_none_or(|approve| *approve == revision);
    store
        .write(move |tx| {
            Box::pin(async move {
                let failed = while_doing("keep what a source offers");
                let now = tx.now();
                let sql = "insert into source_revision (uid, revision, tools, seen_at) values ($1, $2, $3, $4)
                           on conflict (uid, revision) do update set seen_at = excluded.seen_at";
                sqlx::query(sql)
                    .bind(uid.clone())
                    .bind(revision.clone())
                    .bind(text)
                    .bind(now)
                    .execute(tx.connection())
                    .await
                    .map_err(&failed)?;
                let sql = "insert into source (uid, answer, answered_at, approved) values ($1, $2, $3, $4)
                           on conflict (uid) do update set answer = excluded.answer, answered_at = excluded.answered_at";
                sqlx::query(sql)
                    .bind(uid.clone())
                    .bind(answer.to_vec())
                    .bind(now)
                    // No revision has an empty name.
                    .bind(if is_trusted { revision.clone() } else { String::new() })
                    .execute(tx.connection())
                    .await
                    .map_err(&failed)?;
                if let Some(approve) = approve {
                    write_approved(tx, &uid, &approve).await?;
                }
                let sql = "delete from source_revision where uid = $1
                           and revision not in (select approved from source where uid = $1)
                           and revision not in (select revision from source_revision where uid = $1 order by seen_at desc limit $2)";
                sqlx::query(sql)
                    .bind(uid.clone())
                    .bind(KEPT)
                    .execute(tx.connection())
                    .await
                    .map_err(&failed)?;
                let sql = "select 1 from source where uid = $1 and approved = $2";
                let query = sqlx::query(sql).bind(uid.clone()).bind(revision.clone());
                let same = tx.one("read what is approved", query, |_| Ok(())).await?;
                if same.is_some() {
                    return Ok(Approved { revision, tools });
                }
                read_approved(tx, uid).await
            })
        })
        .await
}

/// Approves the revision that a person names, once it has been seen.
async fn write_approved(tx: &mut WriteTx<'_>, uid: &str, approve: &str) -> Result<(), StoreError> {
    let sql = "update source set approved = $2 where uid = $1
               and exists (select 1 from source_revision where uid = $1 and revision = $2)";
    sqlx::query(sql)
        .bind(uid.to_owned())
        .bind(approve.to_owned())
        .execute(tx.connection())
        .await
        .map(|_| ())
        .map_err(while_doing("approve a revision"))
}

async fn read_approved(tx: &mut WriteTx<'_>, uid: String) -> Result<Approved, StoreError> {
    let sql = "select revision, tools from source_revision
               where uid = $1 and revision = (select approved from source where uid = $1)";
    let approved = tx
        .one("read what is approved", sqlx::query(sql).bind(uid), |row| {
            let tools: String = row.try_get("tools")?;
            Ok(Approved {
                revision: row.try_get("revision")?,
                // What cannot be read approves nothing.
                tools: serde_json::from_str(&tools).unwrap_or_default(),
            })
        })
        .await?;
    Ok(approved.unwrap_or_default())
}

/// Notes that the source has said the same again.
pub(super) async fn touch(store: &Store, uid: &str) -> Result<(), StoreError> {
    let uid = uid.to_owned();
    store
        .write(move |tx| {
            Box::pin(async move {
                sqlx::query("update source set answered_at = $2 where uid = $1")
                    .bind(uid)
                    .bind(tx.now())
                    .execute(tx.connection())
                    .await
                    .map(|_| ())
                    .map_err(while_doing("note when a source answered"))
            })
        })
        .await
}

/// What somebody has approved. By default nothing is.
#[derive(Default)]
pub(super) struct Approved {
    pub(super) revision: String,
    pub(super) tools: Arc<Tools>,
}

/// What is approved of a source that has been asked before: `approve`, where that revision was ever seen.
pub(super) async fn approved(
    store: &Store,
    uid: &str,
    approve: Option<String>,
) -> Result<Approved, StoreError> {
    let uid = uid.to_owned();
    store
        .write(move |tx| {
            Box::pin(async move {
                if let Some(approve) = approve {
                    write_approved(tx, &uid, &approve).await?;
                }
                read_approved(tx, uid).await
            })
        })
        .await
}

/// Forgets a source that is gone for good.
pub(super) async fn forget(store: &Store, uid: &str) -> Result<(), StoreError> {
    let uid = uid.to_owned();
    store
        .write(move |tx| {
            Box::pin(async move {
                for sql in [
                    "delete from source_revision where uid = $1",
                    "delete from source where uid = $1",
                ] {
                    sqlx::query(sql)
                        .bind(uid.clone())
                        .execute(tx.connection())
                        .await
                        .map_err(while_doing("forget a source"))?;
                }
                Ok(())
            })
        })
        .await
}
