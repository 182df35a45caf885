//! The public clients that `tests/setup` put into the cache.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// Python with the package `mcp`.
pub fn python() -> Result<PathBuf> {
    installed("python/bin/python")
}

/// Node, at least 22.
pub fn node() -> Result<PathBuf> {
    installed("node/node_modules/.bin/node")
}

/// A program of a Node package, such as `conformance` or `mcp-inspector`: the script to give to [`node`].
pub fn node_program(name: &str) -> Result<PathBuf> {
    installed(&format!("node/node_modules/.bin/{name}"))
}

fn installed(path: &str) -> Result<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache")))
        .context("neither XDG_CACHE_HOME nor HOME is set")?;
    let path = cache.join("chandlery/clients").join(path);
    ensure!(
        path.exists(),
        "{} is missing: run tests/setup",
        path.display()
    );
    Ok(path)
}
