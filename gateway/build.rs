//! Embeds the documentation, and rebuilds when a migration is added: the macro that embeds those sees only the ones
//! that it knows.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=migrations");
    println!("cargo:rerun-if-changed=../docs");
    println!("cargo:rerun-if-changed=../README.md");
    let root = Path::new("..").canonicalize()?;
    let mut pages = vec![root.join("README.md")];
    find(&root.join("docs"), &mut pages)?;
    pages.sort();
    let mut code = String::from("&[\n");
    for page in pages {
        let path = page.strip_prefix(&root).unwrap_or(&page);
        // Writing to a string cannot fail.
        let _ = writeln!(
            code,
            "    Page {{ path: {path:?}, text: include_str!({page:?}) }},"
        );
    }
    code.push_str("]\n");
    let out = env::var_os("OUT_DIR").map(PathBuf::from);
    fs::write(out.unwrap_or_default().join("pages.rs"), code)
}

/// Every Markdown file below `folder`.
fn find(folder: &Path, pages: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            find(&path, pages)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    Ok(())
}
