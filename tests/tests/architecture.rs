//! Holds the arrows of ARCHITECTURE.md, by reading the sources: which crate is known where, and which module may name
//! which. And the links between documents.

use std::fs;
use std::path::{Path, PathBuf};

/// The gateway's modules in the order of its arrow: a module may name those of its own row and of the rows above.
const ROWS: &[&[&str]] = &[
    &["tool", "metrics", "times"],
    &["directory", "store", "gate", "auth", "outbound"],
    &["family"],
    &["connector"],
    &[
        "families",
        "catalog",
        "audit",
        "approvals",
        "budgets",
        "usage",
    ],
    &["explain", "sources"],
    &["pipeline"],
    &["http"],
    &["app"],
];

/// Crates that the gateway knows in these places alone.
const HOMES: &[(&str, &[&str])] = &[
    ("rmcp", &["http/mcp", "families/remote"]),
    ("kube", &["directory/kube"]),
    ("axum", &["http"]),
    ("hickory_resolver", &["outbound"]),
    ("tokio_rustls", &["outbound"]),
    ("webpki_roots", &["outbound"]),
    (
        "sqlx",
        &[
            "store",
            "audit/store",
            "approvals/store",
            "budgets/store",
            "sources/store",
            "usage/store",
            "families/*/store",
            "families/support/docs/store",
        ],
    ),
];

#[test]
fn modules_of_the_gateway_name_only_what_lies_before_them() {
    let mut wrong = Vec::new();
    for (file, module, code) in sources("gateway/src") {
        let Some(own) = row(&module[0]) else {
            assert!(
                ["lib", "main"].contains(&module[0].as_str()),
                "{}: give the module {} a row in ROWS and in ARCHITECTURE.md",
                file.display(),
                module[0]
            );
            continue;
        };
        for name in paths_after(&code, "crate") {
            if row(&name).is_some_and(|row| row > own) {
                wrong.push(format!("{} names crate::{name}", file.display()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "arrows that point right:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn each_big_dependency_of_the_gateway_has_one_home() {
    let mut wrong = Vec::new();
    for (file, module, code) in sources("gateway/src") {
        for (name, homes) in HOMES {
            let at_home = homes.iter().any(|home| lies_in(&module, home));
            if !at_home && !paths_after(&code, name).is_empty() {
                wrong.push(format!("{} names {name}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "away from home:\n{}", wrong.join("\n"));
}

#[test]
fn operator_and_gateway_meet_only_in_the_resources() {
    let apart = [
        (
            "operator/src",
            ["chandlery_gateway", "sqlx", "rmcp"].as_slice(),
        ),
        ("gateway/src", ["chandlery_operator"].as_slice()),
        (
            "crds/src",
            ["chandlery_gateway", "chandlery_operator", "tokio"].as_slice(),
        ),
    ];
    for (folder, strangers) in apart {
        for (file, _, code) in sources(folder) {
            for stranger in strangers {
                assert!(
                    paths_after(&code, stranger).is_empty(),
                    "{} names {stranger}",
                    file.display()
                );
            }
        }
    }
}

#[test]
fn links_between_documents_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let in_folder = |folder: &str| {
        let entries = fs::read_dir(root.join(folder)).expect("read a folder of documents");
        entries
            .map(|entry| entry.expect("read a folder of documents").path())
            .collect::<Vec<_>>()
    };
    let mut broken = Vec::new();
    for document in [".", "docs", "docs/tools", "docs/reference", "examples"]
        .iter()
        .flat_map(|folder| in_folder(folder))
    {
        if document
            .extension()
            .is_none_or(|extension| extension != "md")
        {
            continue;
        }
        let text = fs::read_to_string(&document).expect("read a document");
        for link in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            let target = link.split('#').next().unwrap_or_default();
            let is_local = !target.is_empty() && !target.contains("://");
            if is_local && !document.with_file_name(target).exists() {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(
        broken.is_empty(),
        "links that lead nowhere:\n{}",
        broken.join("\n")
    );
}

#[test]
fn the_reader_of_paths_sees_groups_and_inline_paths_and_no_lookalikes() {
    let code = "use crate::{a::{b, c}, d};\nx(crate::e::F, mycrate::g, other::crate::h);";
    assert_eq!(paths_after(code, "crate"), ["a", "d", "e"]);
}

fn row(module: &str) -> Option<usize> {
    ROWS.iter().position(|row| row.contains(&module))
}

/// Whether `module` is `home` or lies in it; `*` stands for any one module.
fn lies_in(module: &[String], home: &str) -> bool {
    let home: Vec<&str> = home.split('/').collect();
    module.len() >= home.len()
        && home
            .iter()
            .zip(module)
            .all(|(home, part)| *home == "*" || home == part)
}

/// Every source file below `folder` with its module path and its code without comments.
fn sources(folder: &str) -> Vec<(PathBuf, Vec<String>, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(folder);
    let mut folders = vec![root.clone()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("read a source folder") {
            let path = entry.expect("read a source folder").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let code = fs::read_to_string(&path).expect("read a source file");
                let code: Vec<&str> = code
                    .lines()
                    .map(|line| line.split("//").next().unwrap_or(""))
                    .collect();
                let mut module: Vec<String> = path
                    .strip_prefix(&root)
                    .expect("a file below the root")
                    .with_extension("")
                    .iter()
                    .map(|part| part.to_string_lossy().into_owned())
                    .collect();
                module.pop_if(|last| last == "mod");
                found.push((path, module, code.join("\n")));
            }
        }
    }
    assert!(!found.is_empty(), "no sources below {folder}");
    found
}

/// What follows `name::` wherever `name` begins a path: the next segments, all of them where it is `name::{…}`.
fn paths_after(code: &str, name: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (start, _) in code.match_indices(name) {
        let begins =
            !code[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
        let (Some(rest), true) = (code[start + name.len()..].strip_prefix("::"), begins) else {
            continue;
        };
        match rest.strip_prefix('{') {
            Some(group) => found.extend(heads(group)),
            None => found.push(word(rest)),
        }
    }
    found
}

/// The first words of the members of `{a::{b, c}, d}`, after its opening brace.
fn heads(group: &str) -> Vec<String> {
    let mut depth = 0;
    let mut starts = true;
    let mut found = Vec::new();
    for (at, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => starts = true,
            c if starts && !c.is_whitespace() => {
                found.push(word(&group[at..]));
                starts = false;
            }
            _ => {}
        }
    }
    found
}

fn word(text: &str) -> String {
    text.chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect()
}
