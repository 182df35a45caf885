//! Names of operations, of the tools they become and of their groups, and the globs that pick among them.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

use super::operation::Found;

/// The longest name that a tool may have.
const MAX_TOOL: usize = 64;
/// The longest name that an operation may have; what a glob of the source's owner is written against.
const MAX_OPERATION: usize = 128;

/// What an operation may do, as grouped lists tell operations apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Risk {
    Read,
    Write,
    Delete,
}

impl Risk {
    fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Delete => "delete",
        }
    }
}

/// The name of the grouped tool of one risk, or of one tag and risk: `<prefix>[_<tag>]_<read|write|delete>`.
pub fn group_name(prefix: &str, tag: Option<&str>, risk: Risk) -> String {
    let tag = tag.map(|tag| clean(tag).to_ascii_lowercase());
    let risk = risk.word();
    match tag {
        Some(tag) if !tag.is_empty() => {
            let room = MAX_TOOL.saturating_sub(risk.len() + 1);
            format!("{}_{risk}", shorten(format!("{prefix}_{tag}"), room))
        }
        _ => format!("{prefix}_{risk}"),
    }
}

/// Gives each operation its name.
///
/// That is its cleaned operationId. Operations that share one, and those that have none, are named by method and path;
/// where that name is not theirs alone either, a hash of `METHOD /path` follows it. So a name depends on the operation
/// itself and on those that it clashes with, and not on their order.
pub(super) fn assign(operations: &mut [Found<'_>]) {
    let mut by_id: HashMap<String, usize> = HashMap::new();
    for operation in operations.iter() {
        *by_id.entry(id(operation)).or_default() += 1;
    }
    let mut by_path: HashMap<String, usize> = HashMap::new();
    let is_named = |operation: &Found<'_>| {
        let id = id(operation);
        !id.is_empty() && by_id[&id] == 1
    };
    for operation in operations.iter().filter(|operation| !is_named(operation)) {
        *by_path
            .entry(path_name(operation.method, operation.path))
            .or_default() += 1;
    }
    for operation in operations {
        operation.name = if is_named(operation) {
            id(operation)
        } else {
            let name = path_name(operation.method, operation.path);
            let is_alone = by_path[&name] == 1 && by_id.get(&name) != Some(&1);
            if is_alone {
                name
            } else {
                format!("{name}_{}", hash(&operation.label()))
            }
        };
    }
}

fn id(operation: &Found<'_>) -> String {
    let id = operation.value["operationId"].as_str().unwrap_or_default();
    shorten(clean(id), MAX_OPERATION)
}

/// `GET /customers/{id}` as `get_customers_by_id`.
fn path_name(method: &str, path: &str) -> String {
    let mut name = method.to_ascii_lowercase();
    for part in path.split(['/', '?', '#', '&', '=']) {
        let part = part.replace('{', " by ").replace('}', " ");
        let part = clean(&part);
        if !part.is_empty() {
            name.push('_');
            name.push_str(&part);
        }
    }
    shorten(name, MAX_OPERATION)
}

/// `text` with an underscore for each run of other characters than `[A-Za-z0-9_-]`, and none at either end.
fn clean(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_ascii_alphanumeric() || character == '-' {
            cleaned.push(character);
        } else if !cleaned.ends_with('_') {
            cleaned.push('_');
        }
    }
    cleaned.trim_matches('_').to_owned()
}

/// `name`, which is ASCII, or its beginning and a hash of all of it.
fn shorten(name: String, most: usize) -> String {
    if name.len() <= most {
        return name;
    }
    let hash = hash(&name);
    let kept = name[..most - hash.len() - 1].trim_end_matches(['_', '-']);
    format!("{kept}_{hash}")
}

/// Eight hexadecimal digits.
fn hash(text: &str) -> String {
    hex::encode(&Sha256::digest(text)[..4])
}

/// Whether one of the globs matches the operation's name or its `METHOD /path`. `*` stands for any text, `?` for one
/// character.
pub(super) fn any_matches(globs: &[String], operation: &Found<'_>) -> bool {
    let label = operation.label();
    globs.iter().any(|glob| {
        matches(glob.as_bytes(), operation.name.as_bytes())
            || matches(glob.as_bytes(), label.as_bytes())
    })
}

/// Goes back to the last `*` only, so that a glob costs at most its length times the text's.
fn matches(glob: &[u8], text: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while read < text.len() {
        match glob.get(at) {
            Some(b'*') => {
                star = Some((at, read));
                at += 1;
            }
            Some(character) if *character == b'?' || *character == text[read] => {
                at += 1;
                read += 1;
            }
            _ => match star {
                Some((starred, taken)) => {
                    star = Some((starred, taken + 1));
                    at = starred + 1;
                    read = taken + 1;
                }
                None => return false,
            },
        }
    }
    glob[at..].iter().all(|character| *character == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_names() {
        for (method, path, expected) in [
            ("GET", "/customers/{id}", "get_customers_by_id"),
            (
                "POST",
                "/v1/orders/{order-id}/lines",
                "post_v1_orders_by_order-id_lines",
            ),
            ("GET", "/", "get"),
            ("PUT", "/a.b/ü/{x}:run", "put_a_b_by_x_run"),
            ("GET", "/?action=list", "get_action_list"),
        ] {
            assert_eq!(path_name(method, path), expected, "{method} {path}");
        }
    }

    #[test]
    fn groups_are_named_by_tag_and_risk() {
        let group = group_name("shop", Some(&"Ünïts of Things ".repeat(9)), Risk::Delete);
        assert!(group.len() <= 64 && group.ends_with("_delete"), "{group}");
        assert_eq!(
            group_name("shop", Some("Öl & Gas"), Risk::Read),
            "shop_l_gas_read"
        );
        assert_eq!(group_name("shop", None, Risk::Write), "shop_write");
    }

    #[test]
    fn globs_match_the_whole_text() {
        for (glob, text, expected) in [
            ("*", "", true),
            ("get_*", "get_customers", true),
            ("get_*", "forget_it", false),
            ("GET /customers/*", "GET /customers/{id}/orders", true),
            ("*orders", "GET /orders/orders", true),
            ("?et", "get", true),
            ("", "get", false),
        ] {
            assert_eq!(
                matches(glob.as_bytes(), text.as_bytes()),
                expected,
                "{glob} {text}"
            );
        }
    }
}
