//! Every tool of every family, whoever may have it.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use serde_json::value::RawValue;

use super::group;
use crate::family::{Alias, Family};
use crate::gate::is_never_served;
use crate::tool::{Operation, Tool};

/// What one ToolSource has to offer.
#[derive(Clone)]
pub struct Offer {
    pub tools: Vec<Arc<Tool>>,
    /// Names of tools that it has, and that are not served for now.
    pub reserved: Vec<String>,
    /// Runs the calls of all of them.
    pub family: Arc<dyn Family>,
}

/// A tool that is left out since its name, or its group's, is something else's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    pub source: String,
    pub operation: String,
    /// The name that is taken.
    pub name: String,
}

/// Every tool of every family, in the order of lists.
pub struct Registry {
    tools: Vec<(Arc<Tool>, Arc<dyn Family>)>,
    by_name: HashMap<Cow<'static, str>, usize>,
    aliases: HashMap<&'static str, Alias>,
    /// The families of sources, whether they have tools or not.
    sources: Vec<Arc<dyn Family>>,
    /// Grouped tools in use, by the operations that they hold, so that agents with the same ones share a list.
    grouped: Mutex<HashMap<Vec<usize>, Weak<Tool>>>,
}

impl Registry {
    /// # Panics
    /// When two families have a tool of the same name: a mistake in the program.
    pub fn new(families: Vec<Arc<dyn Family>>) -> Self {
        let mut tools = Vec::new();
        let mut by_name: HashMap<Cow<'static, str>, usize> = HashMap::new();
        let mut aliases = HashMap::new();
        for family in families {
            for tool in family.tools() {
                let before = by_name.insert(tool.name.clone(), tools.len());
                assert!(before.is_none(), "two tools are named {}", tool.name);
                tools.push((Arc::new(tool), family.clone()));
            }
            let own = family.aliases().into_iter();
            aliases.extend(own.map(|alias| (alias.name, alias)));
        }
        Self {
            tools,
            by_name,
            aliases,
            sources: Vec::new(),
            grouped: Mutex::default(),
        }
    }

    /// These tools, and then those of `sources`. What has a name that is taken is left out.
    pub(super) fn with(&self, sources: Vec<Offer>) -> (Self, Vec<Taken>) {
        let mut tools = self.tools.clone();
        let mut by_name = self.by_name.clone();
        let own_groups = tools.iter().filter_map(|(tool, _)| tool.group.as_ref());
        // Which group of which source has a name; those of ours are nobody's.
        let mut groups: HashMap<Cow<'static, str>, Option<String>> =
            own_groups.map(|group| (group.name.clone(), None)).collect();
        let mut taken = Vec::new();
        let mut ways = Vec::new();
        // Of the sources before.
        let mut reserved: HashSet<String> = HashSet::new();
        for Offer {
            tools: own,
            reserved: withheld,
            family,
        } in sources
        {
            ways.push(family.clone());
            for tool in own {
                let Some(origin) = &tool.origin else { continue };
                let group = tool.group.as_ref().map(|group| &group.name);
                let source = Some(origin.source.clone());
                let is_free = |name: &Cow<'static, str>| {
                    !by_name.contains_key(name)
                        && !self.aliases.contains_key(&**name)
                        && !is_reserved(name)
                        && !reserved.contains(&**name)
                };
                let clash = [&tool.name]
                    .into_iter()
                    .find(|name| {
                        let is_group = groups.get(*name).is_some_and(|owner| *owner != source);
                        !is_free(name) || is_group
                    })
                    .or_else(|| {
                        group.filter(|name| match groups.get(*name) {
                            Some(owner) => *owner != source,
                            None => !is_free(name),
                        })
                    });
                if let Some(name) = clash {
                    taken.push(Taken {
                        source: origin.source.clone(),
                        operation: origin.operation().to_owned(),
                        name: name.to_string(),
                    });
                    continue;
                }
                if let Some(name) = group {
                    groups.entry(name.clone()).or_insert(source);
                }
                by_name.insert(tool.name.clone(), tools.len());
                tools.push((tool, family.clone()));
            }
            reserved.extend(withheld);
        }
        let registry = Self {
            tools,
            by_name,
            aliases: self.aliases.clone(),
            sources: ways,
            grouped: Mutex::default(),
        };
        (registry, taken)
    }

    /// What a call of this name would do, whoever calls; `None` when there is no such tool, under an older name either.
    pub(super) fn operation(&self, name: &str, arguments: &RawValue) -> Option<Operation> {
        let alias = self.alias(name);
        let name = alias.map_or(name, |alias| alias.tool);
        let (tool, family) = &self.tools[*self.by_name.get(name)?];
        Some(match alias {
            Some(alias) => family.operation(tool, &(alias.rewrite)(arguments)),
            None => family.operation(tool, arguments),
        })
    }

    /// What the older name `name` stands for.
    pub(super) fn alias(&self, name: &str) -> Option<&Alias> {
        self.aliases.get(name)
    }

    /// The families of the namespace's sources, the older ones first.
    pub(super) fn sources(&self) -> &[Arc<dyn Family>] {
        &self.sources
    }

    /// Every tool that an agent could be served, in the order of lists.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<Tool>> + Clone {
        let tools = self.tools.iter().map(|(tool, _)| tool);
        tools.filter(|tool| !is_never_served(&tool.name))
    }

    pub(super) fn numbered(&self) -> impl Iterator<Item = (usize, &Arc<Tool>, &Arc<dyn Family>)> {
        let tools = self.tools.iter().enumerate();
        tools.map(|(at, (tool, family))| (at, tool, family))
    }

    /// The grouped tool of these operations, which all name the same group.
    pub(super) fn grouped(&self, operations: &[usize]) -> Arc<Tool> {
        let mut grouped = self.grouped.lock();
        if let Some(tool) = grouped.get(operations).and_then(Weak::upgrade) {
            return tool;
        }
        grouped.retain(|_, tool| tool.strong_count() > 0);
        let tools: Vec<&Tool> = operations.iter().map(|&at| &*self.tools[at].0).collect();
        let tool = Arc::new(group::merge(&tools));
        grouped.insert(operations.to_vec(), Arc::downgrade(&tool));
        tool
    }
}

/// Beginnings of the names of tools that are ours, or will be.
const RESERVED: [&str; 2] = ["agnt_", "arc_"];
/// Names of tools that are ours, or will be, and older names of theirs (R-A-283…300).
const RESERVED_NAMES: [&str; 25] = [
    "task",
    "memory",
    "skills",
    "workspace",
    "siteTools",
    "pano",
    "help",
    "createTask",
    "getTask",
    "updateTaskStatus",
    "reply",
    "elicit",
    "getAttachment",
    "loadMemory",
    "saveMemory",
    "deleteMemory",
    "searchSkills",
    "loadSkill",
    "saveSkill",
    "deleteSkill",
    "getWorkspace",
    "publishEvent",
    "listSiteTools",
    "getSiteToolDefinition",
    "callSiteTool",
];

/// Names that differ in capitals alone are one to whoever reads them.
fn is_reserved(name: &str) -> bool {
    let begins = |prefix: &&str| {
        let beginning = name.get(..prefix.len());
        beginning.is_some_and(|beginning| beginning.eq_ignore_ascii_case(prefix))
    };
    RESERVED.iter().any(begins)
        || RESERVED_NAMES
            .iter()
            .any(|own| name.eq_ignore_ascii_case(own))
        || is_never_served(name)
}
