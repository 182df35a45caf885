//! The bytes of `tools/list`: made once per set of tools and era, in pages, and shared by every agent that has the set.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use dashmap::DashMap;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::json;

use crate::catalog::Catalog;
use crate::tool::{Effect, Tool};

/// How long a client of the newer era may keep a list.
///
/// A right that is removed bites at once in calls, so a list that is a little old does no harm.
const TTL_MS: i64 = 60_000;

/// The lists in use.
pub(super) struct Lists {
    page_bytes: usize,
    /// By the addresses of the tools, which the list itself keeps alive.
    in_use: Mutex<HashMap<Vec<usize>, Weak<List>>>,
    /// The newest list of each agent, by UID: a client without a session keeps none alive.
    newest: DashMap<String, (Arc<Catalog>, Arc<List>)>,
}

/// The list of one set of tools.
pub(super) struct List {
    tools: Vec<Arc<Tool>>,
    pages: Pages,
}

/// Results of `tools/list` without what closes them: `}`, and in the newer era how long they hold.
struct Pages {
    /// Tells cursors of different lists apart.
    digest: u64,
    pages: Vec<Bytes>,
}

impl Lists {
    /// Pages hold at most `page_bytes`, or a single tool that is larger.
    pub(super) fn new(page_bytes: usize) -> Self {
        Self {
            page_bytes,
            in_use: Mutex::default(),
            newest: DashMap::new(),
        }
    }

    pub(super) fn of(&self, catalog: &Arc<Catalog>) -> Arc<List> {
        let uid = &catalog.agent().uid;
        if let Some(newest) = self.newest.get(uid)
            && Arc::ptr_eq(&newest.0, catalog)
        {
            return newest.1.clone();
        }
        let list = self.shared(catalog);
        self.newest
            .insert(uid.clone(), (catalog.clone(), list.clone()));
        list
    }

    /// Forgets agents that are gone.
    pub(super) fn retain(&self, is_live: impl Fn(&str) -> bool) {
        self.newest.retain(|uid, _| is_live(uid));
    }

    fn shared(&self, catalog: &Catalog) -> Arc<List> {
        let key: Vec<usize> = catalog
            .tools
            .iter()
            .map(|tool| Arc::as_ptr(tool).addr())
            .collect();
        let mut in_use = self.in_use.lock();
        if let Some(list) = in_use.get(&key).and_then(Weak::upgrade) {
            return list;
        }
        in_use.retain(|_, list| list.strong_count() > 0);
        let list = Arc::new(List::new(catalog.tools.clone(), self.page_bytes));
        in_use.insert(key, Arc::downgrade(&list));
        list
    }
}

impl List {
    fn new(tools: Vec<Arc<Tool>>, page_bytes: usize) -> Self {
        let entries: Vec<String> = tools.iter().map(|tool| entry(tool)).collect();
        Self {
            pages: Pages::new(&entries, page_bytes),
            tools,
        }
    }

    /// The page at `cursor`, or the first, without its [`tail`]; `None` when the cursor is not one of this list's.
    pub(super) fn page(&self, cursor: Option<&str>) -> Option<&Bytes> {
        let pages = &self.pages;
        let Some(cursor) = cursor else {
            return pages.pages.first();
        };
        (1..pages.pages.len())
            .find(|&page| pages.cursor(page) == cursor)
            .map(|page| &pages.pages[page])
    }

    /// Whether both lists hold the same tools.
    pub(super) fn is_same(&self, other: &List) -> bool {
        std::ptr::eq(self, other)
            || (self.tools.len() == other.tools.len()
                && self
                    .tools
                    .iter()
                    .zip(&other.tools)
                    .all(|(one, another)| Arc::ptr_eq(one, another)))
    }
}

/// What closes a page. `valid_until` is when a grant begins or ends: no client keeps a list for longer.
pub(super) fn tail(is_newer: bool, now: Timestamp, valid_until: Option<Timestamp>) -> String {
    if !is_newer {
        return "}".to_owned();
    }
    let left = valid_until.map_or(TTL_MS, |end| {
        (end.as_millisecond() - now.as_millisecond()).clamp(0, TTL_MS)
    });
    format!(",\"resultType\":\"complete\",\"ttlMs\":{left},\"cacheScope\":\"private\"}}")
}

/// Bytes that a page leaves for its tail and its cursor.
const ROOM: usize = 192;

impl Pages {
    fn new(entries: &[String], page_bytes: usize) -> Self {
        let mut hasher = DefaultHasher::new();
        entries.hash(&mut hasher);
        let mut pages = Self {
            digest: hasher.finish(),
            pages: Vec::new(),
        };
        let mut rest = entries;
        loop {
            let mut size = ROOM;
            let fitting = rest
                .iter()
                .take_while(|entry| {
                    size += entry.len() + 1;
                    size <= page_bytes
                })
                .count();
            let (page, after) = rest.split_at(fitting.max(1).min(rest.len()));
            let next = match after {
                [] => String::new(),
                _ => format!(
                    ",\"nextCursor\":\"{}\"",
                    pages.cursor(pages.pages.len() + 1)
                ),
            };
            let page = format!("{{\"tools\":[{}]{next}", page.join(","));
            pages.pages.push(page.into());
            rest = after;
            if rest.is_empty() {
                return pages;
            }
        }
    }

    fn cursor(&self, page: usize) -> String {
        format!("{:016x}-{page}", self.digest)
    }
}

/// A tool as clients see it.
fn entry(tool: &Tool) -> String {
    let (reads, destroys, idempotent) = match tool.effect {
        Effect::Reads => (true, false, true),
        Effect::Writes { idempotent } => (false, false, idempotent),
        Effect::Destroys { idempotent } => (false, true, idempotent),
    };
    let mut entry = json!({
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "annotations": {
            "readOnlyHint": reads,
            "destructiveHint": destroys,
            "idempotentHint": idempotent,
            "openWorldHint": tool.origin.is_some(),
        },
    });
    let origin = tool.origin.as_ref();
    if let Some(output) = origin.and_then(|origin| origin.output_schema.as_ref()) {
        entry["outputSchema"] = json!(output);
    }
    entry.to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use crate::tool::Served;

    use super::*;

    fn tools(count: usize) -> Vec<Arc<Tool>> {
        (0..count)
            .map(|at| {
                Arc::new(Tool {
                    name: format!("tool_{at}").into(),
                    title: "".into(),
                    description: "x".repeat(100).into(),
                    input_schema: Default::default(),
                    effect: Effect::Reads,
                    served: Served::Always,
                    group: None,
                    interactive: false,
                    origin: None,
                })
            })
            .collect()
    }

    #[test]
    fn a_list_holds_no_longer_than_its_grants() {
        let now = Timestamp::UNIX_EPOCH;
        let at = |ms| Some(Timestamp::from_millisecond(ms).unwrap());
        for (until, expected) in [
            (None, 60_000),
            (at(7), 7),
            (at(-1), 0),
            (at(90_000), 60_000),
        ] {
            let tail = tail(true, now, until);
            assert!(tail.contains(&format!("\"ttlMs\":{expected},")), "{tail}");
        }
        assert_eq!(tail(false, now, at(7)), "}");
    }

    #[test]
    fn pages_hold_every_tool_once_and_stay_under_the_limit() {
        for count in [0, 1, 7, 100] {
            let list = List::new(tools(count), 1000);
            for is_newer in [false, true] {
                let mut names = Vec::new();
                let mut cursor: Option<String> = None;
                loop {
                    let bytes = list.page(cursor.as_deref()).unwrap();
                    let tail = tail(is_newer, Timestamp::UNIX_EPOCH, None);
                    let bytes = [bytes, tail.as_bytes()].concat();
                    assert!(bytes.len() <= 1000, "{}", bytes.len());
                    let page: Value = serde_json::from_slice(&bytes).unwrap();
                    let tools = page["tools"].as_array().unwrap();
                    names.extend(
                        tools
                            .iter()
                            .map(|tool| tool["name"].as_str().unwrap().to_owned()),
                    );
                    assert_eq!(page.get("ttlMs").is_some(), is_newer);
                    cursor = page["nextCursor"].as_str().map(str::to_owned);
                    if cursor.is_none() {
                        break;
                    }
                }
                let expected: Vec<_> = (0..count).map(|at| format!("tool_{at}")).collect();
                assert_eq!(names, expected);
                assert!(list.page(Some("0000-1")).is_none());
            }
        }
    }
}
