//! The full-text index: SQLite's FTS5 in memory, whatever the store is. Nothing of the store is in it.

use std::collections::HashSet;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteRow};
use sqlx::{ConnectOptions, Row, SqliteConnection, SqlitePool};

use super::{Hit, Section, sections, words};
use crate::store::{StoreError, while_doing};

/// How long a search waits for the one before.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// Characters of a section that is shown whole; of a longer one, the part around the words.
const WHOLE: usize = 1_200;

/// An index of the documentation. Made when it is first searched.
pub(in crate::families::support) struct Index {
    pool: SqlitePool,
}

impl Index {
    pub(in crate::families::support) fn new() -> Self {
        // Each connection has a database of its own, so it is filled as it opens, and kept.
        let pool = SqlitePoolOptions::new()
            .max_connections(1)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .idle_timeout(None)
            .max_lifetime(None)
            .after_connect(|connection, _| Box::pin(fill(connection, sections())))
            .connect_lazy_with(
                SqliteConnectOptions::new()
                    .in_memory(true)
                    .disable_statement_logging(),
            );
        Self { pool }
    }

    /// The sections that answer a query, best first: those with all of its words, then those with some.
    pub(in crate::families::support) async fn search(
        &self,
        query: &str,
        limit: usize,
    ) -> Result<Vec<Hit>, StoreError> {
        // In quotes a word is nothing but a word; it holds none itself.
        let terms: Vec<String> = words(query)
            .into_iter()
            .map(|word| format!("\"{word}\""))
            .collect();
        let mut hits = Vec::new();
        let mut seen = HashSet::new();
        if terms.is_empty() {
            return Ok(hits);
        }
        for joint in [" AND ", " OR "] {
            for (row, hit) in self.run(&terms.join(joint), limit).await? {
                if hits.len() < limit && seen.insert(row) {
                    hits.push(hit);
                }
            }
        }
        Ok(hits)
    }

    async fn run(&self, expression: &str, limit: usize) -> Result<Vec<(i64, Hit)>, StoreError> {
        let failed = while_doing("search the documentation");
        let sql = "select rowid, title, section, path, body, snippet(docs, 3, '', '', ' … ', 64) as snippet
                   from docs where docs match $1 order by bm25(docs, 4.0, 8.0, 0.0, 1.0) limit $2";
        let rows = sqlx::query(sql)
            .bind(expression)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(&self.pool)
            .await
            .map_err(&failed)?;
        rows.iter()
            .map(read)
            .collect::<Result<_, _>>()
            .map_err(&failed)
    }
}

async fn fill(connection: &mut SqliteConnection, sections: Vec<Section>) -> sqlx::Result<()> {
    sqlx::raw_sql(
        "create virtual table docs using fts5(title, section, path unindexed, body, tokenize = 'porter unicode61'); begin",
    )
    .execute(&mut *connection)
    .await?;
    for section in sections {
        sqlx::query("insert into docs (title, section, path, body) values ($1, $2, $3, $4)")
            .bind(section.title)
            .bind(section.section)
            .bind(section.path)
            .bind(section.text)
            .execute(&mut *connection)
            .await?;
    }
    sqlx::raw_sql("commit; pragma query_only = on")
        .execute(&mut *connection)
        .await
        .map(|_| ())
}

fn read(row: &SqliteRow) -> sqlx::Result<(i64, Hit)> {
    let body: String = row.try_get("body")?;
    let is_short = body.chars().take(WHOLE + 1).count() <= WHOLE;
    let hit = Hit {
        title: row.try_get("title")?,
        section: row.try_get("section")?,
        path: row.try_get("path")?,
        excerpt: if is_short {
            body
        } else {
            row.try_get("snippet")?
        },
    };
    Ok((row.try_get("rowid")?, hit))
}
