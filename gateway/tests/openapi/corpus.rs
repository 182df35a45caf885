//! The documents that tests look at: ours of difficult shapes, and those of many makers.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Where ours lie.
pub(crate) fn ours() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/openapi/documents")
}

/// Where `tests/setup` puts those of many makers.
pub(crate) fn of_makers() -> PathBuf {
    match std::env::var_os("OPENAPI_DOCUMENTS") {
        Some(folder) => folder.into(),
        None => {
            let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
            let home = || PathBuf::from(std::env::var_os("HOME").expect("HOME")).join(".cache");
            cache.unwrap_or_else(home).join("chandlery/documents")
        }
    }
}

/// Every document below a folder, in the order of their paths.
pub(crate) fn below(folder: &Path) -> Vec<PathBuf> {
    let mut folders = vec![folder.to_owned()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("read {}: {error}", folder.display()))
        {
            let path = entry.expect("an entry").path();
            let is_document = path
                .extension()
                .is_some_and(|e| e == "json" || e == "yaml" || e == "yml");
            if path.is_dir() {
                folders.push(path);
            } else if is_document && fs::read(&path).is_ok_and(|text| is_openapi_3(&text)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Packages have much else that is JSON.
fn is_openapi_3(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    let has = |start: &str| {
        text.match_indices(start).any(|(at, _)| {
            let rest = text[at + start.len()..].trim_start_matches([' ', '"', '\'', ':']);
            rest.starts_with("3.")
        })
    };
    has("openapi:") || has("\"openapi\"")
}

/// What a document says, in its own words.
pub(crate) fn value(text: &[u8]) -> Value {
    let in_yaml = || {
        let text = String::from_utf8_lossy(text);
        let budget = serde_saphyr::budget! { max_events: 8_000_000, max_nodes: 4_000_000 };
        let options = serde_saphyr::options! { budget: budget, strict_booleans: true };
        serde_saphyr::from_str_with_options(&text, options).expect("a document")
    };
    serde_json::from_slice(text).unwrap_or_else(|_| in_yaml())
}
