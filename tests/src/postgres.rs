//! Databases on the server that `tests/postgres` started.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

use crate::cluster::run_anywhere;

/// URL of a fresh, empty database; pods reach it too.
pub async fn database() -> Result<String> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let server = std::env::var("TEST_DATABASE_URL")
        .context("this test needs PostgreSQL: run it through tests/postgres")?;
    let name = format!(
        "test_{}_{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    );
    run_anywhere(
        "psql",
        &[
            "--quiet",
            "--no-psqlrc",
            &server,
            "--command",
            &format!("create database {name}"),
        ],
        "",
    )
    .await?;
    let (base, _) = server
        .rsplit_once('/')
        .context("TEST_DATABASE_URL names a database")?;
    Ok(format!("{base}/{name}"))
}
