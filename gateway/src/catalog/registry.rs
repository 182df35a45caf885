//! Every tool of every family, whoever may have it.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use serde_json::value::RawValue;

use super::group;
use crate::family::{Alias, Family};
use crate::gate::is_never_served;
use crate::tool::{Operation, Tool};

/// Every tool of every family, in the order of lists.
pub struct Registry {
    tools: Vec<(Arc<Tool>, Arc<dyn Family>)>,
    by_name: HashMap<String, usize>,
    aliases: HashMap<&'static str, Alias>,
    /// Grouped tools in use, by the operations that they hold, so that agents with the same ones share a list.
    grouped: Mutex<HashMap<Vec<usize>, Weak<Tool>>>,
}

impl Registry {
    /// # Panics
    /// When two families have a tool of the same name: a mistake in the program.
    pub fn new(families: Vec<Arc<dyn Family>>) -> Self {
        let mut tools = Vec::new();
        let mut by_name = HashMap::new();
        let mut aliases = HashMap::new();
        for family in families {
            for tool in family.tools() {
                let before = by_name.insert(tool.name.to_string(), tools.len());
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
            grouped: Mutex::default(),
        }
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
