//! Which part of an answer is its rows, and which parts `response_fields` keeps.

use super::node::Node;

/// How many paths a refusal names.
const MAX_NAMED: usize = 20;

/// How much of a path a refusal shows.
const MAX_SHOWN: usize = 100;

/// A dotted path such as `owner.login`: names of members, through arrays as if they were not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path(String);

impl Path {
    /// `None` when a name between the dots is missing.
    pub fn parse(text: &str) -> Option<Self> {
        let path = text.trim();
        let is_whole = path.split('.').all(|name| !name.is_empty());
        is_whole.then(|| Self(path.to_owned()))
    }
}

/// Where the rows of an answer are: names of members from the top.
///
/// The answer itself when it is an array; of an object the only array of objects, or else the only array; of an object
/// without an array those of the only object in it. `None` when there is no such array, or more than one.
pub(super) fn find_rows(answer: &Node<'_>) -> Option<Vec<String>> {
    let members = match answer {
        Node::Array(_) => return Some(Vec::new()),
        Node::Object(members) => members,
        Node::Literal(_) | Node::Text(_) => return None,
    };
    let only = |is: fn(&Node<'_>) -> bool| {
        let mut found = members.iter().filter(|(_, value)| is(value));
        let first = found.next();
        (first.filter(|_| found.next().is_none()), first.is_some())
    };
    let (tables, any_table) = only(is_table);
    let (arrays, any_array) = only(|value| matches!(value, Node::Array(_)));
    let (objects, _) = only(|value| matches!(value, Node::Object(_)));
    let (key, value) = match (any_table, any_array) {
        (true, _) => tables?,
        (false, true) => arrays?,
        (false, false) => objects?,
    };
    let mut path = vec![key.decoded().into_owned()];
    path.extend(find_rows(value)?);
    Some(path)
}

fn is_table(value: &Node<'_>) -> bool {
    match value {
        Node::Array(rows) => {
            !rows.is_empty() && rows.iter().all(|row| matches!(row, Node::Object(_)))
        }
        _ => false,
    }
}

/// Takes the rows at `path` out of the answer, and the objects that held nothing else.
pub(super) fn take_rows<'a>(answer: &mut Node<'a>, path: &[String]) -> Option<Vec<Node<'a>>> {
    match (answer, path) {
        (Node::Array(rows), []) => Some(std::mem::take(rows)),
        (Node::Object(members), [name, rest @ ..]) => {
            let at = members
                .iter()
                .rposition(|(key, _)| key.decoded() == *name)?;
            let rows = take_rows(&mut members[at].1, rest)?;
            if members[at].1.is_empty() {
                members.remove(at);
            }
            Some(rows)
        }
        _ => None,
    }
}

/// Of an answer with several tables: leaves `limit` rows of each, and says by name how many more there were.
///
/// Arrays of values are limited only where there is no table; what lies in rows is not.
pub(super) fn limit_each(answer: &mut Node<'_>, limit: usize) -> Vec<(String, usize)> {
    let mut left = Vec::new();
    cut_arrays(answer, "", limit, is_table, &mut left);
    if left.is_empty() && !has_table(answer) {
        cut_arrays(answer, "", limit, |_| true, &mut left);
    }
    left
}

fn cut_arrays(
    node: &mut Node<'_>,
    path: &str,
    limit: usize,
    is_cut: fn(&Node<'_>) -> bool,
    left: &mut Vec<(String, usize)>,
) {
    let is_cut_here = is_cut(node);
    match node {
        Node::Array(rows) if is_cut_here && rows.len() > limit => {
            left.push((shown(path), rows.len() - limit));
            rows.truncate(limit);
        }
        Node::Object(members) => {
            for (key, value) in members {
                let name = key.decoded();
                let path = match path {
                    "" => name.into_owned(),
                    path => format!("{path}.{name}"),
                };
                cut_arrays(value, &path, limit, is_cut, left);
            }
        }
        Node::Array(_) | Node::Literal(_) | Node::Text(_) => {}
    }
}

fn has_table(node: &Node<'_>) -> bool {
    match node {
        Node::Object(members) => members.iter().any(|(_, value)| has_table(value)),
        other => is_table(other),
    }
}

/// What the fields name of the answer, counted from the top or from its rows.
///
/// Fails with words for the agent when a field names nothing; never when there are no rows, since it may be theirs.
pub(super) fn keep<'a>(
    answer: Node<'a>,
    rows: Option<&[String]>,
    fields: &[Path],
) -> Result<Node<'a>, String> {
    let prefix = rows.filter(|path| !path.is_empty());
    let prefix = prefix.map(|path| format!("{}.", path.join(".")));
    let mut paths: Vec<String> = Vec::new();
    for Path(field) in fields {
        let of_rows = prefix.as_ref().map(|prefix| format!("{prefix}{field}"));
        let both = [Some(field.clone()), of_rows];
        let found = both.into_iter().flatten();
        let found: Vec<String> = found.filter(|path| names(&answer, path)).collect();
        if found.is_empty() && !has_no_rows(&answer, rows) {
            return Err(unknown(field, answer, rows));
        }
        paths.extend(found);
    }
    // Rows that are not there stay to be told of.
    if has_no_rows(&answer, rows) {
        paths.extend(rows.map(|path| path.join(".")));
    }
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    Ok(only(answer, &paths).unwrap_or_else(|| Node::Object(Vec::new())))
}

fn has_no_rows(answer: &Node<'_>, rows: Option<&[String]>) -> bool {
    let mut node = Some(answer);
    for name in rows.into_iter().flatten() {
        node = node.and_then(|node| node.get(name));
    }
    rows.is_some() && node.is_some_and(Node::is_empty)
}

/// What is left of `path` below a member called `name`; empty when it names the member itself.
fn below<'p>(path: &'p str, name: &str) -> Option<&'p str> {
    let rest = path.strip_prefix(name)?;
    match rest {
        "" => Some(rest),
        // Names may have dots, too: `app.kubernetes.io/name` is found as it stands.
        _ => rest.strip_prefix('.').filter(|rest| !rest.is_empty()),
    }
}

fn names(node: &Node<'_>, path: &str) -> bool {
    match node {
        Node::Literal(_) | Node::Text(_) => false,
        Node::Array(elements) => elements.iter().any(|element| names(element, path)),
        Node::Object(members) => members.iter().any(|(key, value)| {
            below(path, &key.decoded()).is_some_and(|rest| rest.is_empty() || names(value, rest))
        }),
    }
}

/// `None` of what is neither an array nor an object. Rows keep their places, if need be as empty objects.
fn only<'a>(node: Node<'a>, paths: &[&str]) -> Option<Node<'a>> {
    match node {
        Node::Literal(_) | Node::Text(_) => None,
        Node::Array(elements) => {
            let kept = elements
                .into_iter()
                .filter_map(|element| only(element, paths));
            Some(Node::Array(kept.collect()))
        }
        Node::Object(members) => {
            let mut kept = Vec::new();
            for (key, value) in members {
                let name = key.decoded();
                let paths = paths.iter().filter_map(|path| below(path, &name));
                let paths: Vec<&str> = paths.collect();
                if paths.iter().any(|path| path.is_empty()) {
                    kept.push((key, value));
                } else if !paths.is_empty()
                    && let Some(value) = only(value, &paths)
                    && !value.is_empty()
                {
                    kept.push((key, value));
                }
            }
            Some(Node::Object(kept))
        }
    }
}

fn unknown(field: &str, mut answer: Node<'_>, rows: Option<&[String]>) -> String {
    let mut paths = Paths::default();
    for row in rows
        .and_then(|path| take_rows(&mut answer, path))
        .unwrap_or_default()
    {
        paths.collect(&row, "");
    }
    paths.collect(&answer, "");
    let Paths { named, is_full } = paths;
    let field = shown(field);
    if named.is_empty() {
        return format!("the answer has no \"{field}\", and no fields at all");
    }
    let more = if is_full { ", and more" } else { "" };
    format!(
        "the answer has no \"{field}\"; it has {}{more}",
        named.join(", ")
    )
}

/// The paths of an answer, each once, in its order.
#[derive(Default)]
struct Paths {
    named: Vec<String>,
    /// There are more of them.
    is_full: bool,
}

impl Paths {
    fn collect(&mut self, node: &Node<'_>, path: &str) {
        match node {
            Node::Array(elements) if elements.iter().any(Node::is_container) => {
                for element in elements {
                    if self.is_full {
                        return;
                    }
                    if element.is_container() {
                        self.collect(element, path);
                    }
                }
            }
            Node::Object(members) if !members.is_empty() => {
                for (key, value) in members {
                    if self.is_full {
                        return;
                    }
                    let name = key.decoded();
                    match path {
                        "" => self.collect(value, &name),
                        _ => self.collect(value, &format!("{path}.{name}")),
                    }
                }
            }
            _ => {
                let path = shown(path);
                if path.is_empty() || self.named.contains(&path) {
                    return;
                }
                match self.named.len() {
                    MAX_NAMED => self.is_full = true,
                    _ => self.named.push(path),
                }
            }
        }
    }
}

/// On one line, and no longer than a path needs to be.
fn shown(path: &str) -> String {
    let path = path.chars().take(MAX_SHOWN);
    path.map(|c| if c.is_control() { ' ' } else { c }).collect()
}
