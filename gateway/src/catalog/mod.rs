//! Which tools an agent has: the registry of all families, narrowed by the gate's rule.

use std::collections::HashMap;
use std::sync::Arc;

use chandlery_crds::check;
use chandlery_crds::report::Unresolved;
use dashmap::DashMap;

use crate::directory::Agent;
use crate::family::{Alias, Family, Features};
use crate::gate;
use crate::tool::Tool;

/// Every tool of every family, in the order of lists.
pub struct Registry {
    tools: Vec<(Arc<Tool>, usize)>,
    families: Vec<Arc<dyn Family>>,
    by_name: HashMap<String, usize>,
    aliases: HashMap<&'static str, Alias>,
}

/// What one agent has, for one revision of its config.
pub struct Catalog {
    agent: Arc<Agent>,
    /// In list order.
    pub tools: Vec<Arc<Tool>>,
    /// The families of these tools, in the same order.
    pub families: Vec<Arc<dyn Family>>,
    pub unresolved: Vec<Unresolved>,
}

/// The catalogs that are in use, one per agent.
pub struct Catalogs {
    registry: Arc<Registry>,
    by_uid: DashMap<String, Arc<Catalog>>,
}

/// A name of a call, resolved.
pub struct Entry<'a> {
    pub tool: &'a Tool,
    pub family: &'a dyn Family,
    /// The call came under an older name.
    pub alias: Option<&'a Alias>,
}

impl Registry {
    /// # Panics
    /// When two families have a tool of the same name: a mistake in the program.
    pub fn new(families: Vec<Arc<dyn Family>>) -> Self {
        let mut tools = Vec::new();
        let mut by_name = HashMap::new();
        let mut aliases = HashMap::new();
        for (at, family) in families.iter().enumerate() {
            for tool in family.tools() {
                let before = by_name.insert(tool.name.to_string(), tools.len());
                assert!(before.is_none(), "two tools are named {}", tool.name);
                tools.push((Arc::new(tool), at));
            }
            aliases.extend(
                family
                    .aliases()
                    .into_iter()
                    .map(|alias| (alias.name, alias)),
            );
        }
        Self {
            tools,
            families,
            by_name,
            aliases,
        }
    }

    /// The tool that answers to `name`, whoever asks.
    pub fn find(&self, name: &str) -> Option<Entry<'_>> {
        let alias = self.aliases.get(name);
        let at = *self.by_name.get(alias.map_or(name, |alias| alias.tool))?;
        let (tool, family) = &self.tools[at];
        Some(Entry {
            tool,
            family: self.families[*family].as_ref(),
            alias,
        })
    }

    pub fn tools(&self) -> impl Iterator<Item = &Arc<Tool>> {
        self.tools.iter().map(|(tool, _)| tool)
    }

    pub fn families(&self) -> &[Arc<dyn Family>] {
        &self.families
    }
}

impl Catalogs {
    pub fn new(registry: Arc<Registry>) -> Self {
        Self {
            registry,
            by_uid: DashMap::new(),
        }
    }

    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// The catalog of exactly this revision of the agent; made on first use.
    pub fn of(&self, agent: &Arc<Agent>) -> Arc<Catalog> {
        if let Some(catalog) = self
            .by_uid
            .get(&agent.uid)
            .filter(|catalog| Arc::ptr_eq(&catalog.agent, agent))
        {
            return catalog.clone();
        }
        let catalog = Arc::new(Catalog::new(&self.registry, agent.clone()));
        self.by_uid.insert(agent.uid.clone(), catalog.clone());
        catalog
    }

    /// Forgets agents that are gone.
    pub fn retain(&self, is_live: impl Fn(&str) -> bool) {
        self.by_uid.retain(|uid, _| is_live(uid));
    }
}

impl Catalog {
    fn new(registry: &Registry, agent: Arc<Agent>) -> Self {
        let (tools, mut families): (Vec<_>, Vec<_>) = registry
            .tools
            .iter()
            .filter(|(tool, _)| gate::visible(&agent, tool))
            .cloned()
            .unzip();
        families.dedup();
        let families = families
            .into_iter()
            .map(|family| registry.families[family].clone())
            .collect();
        let unresolved = agent
            .spec
            .tools
            .iter()
            .filter_map(|entry| check::tool_entry(entry, registry.tools().map(|tool| &*tool.name)))
            .collect();
        Self {
            agent,
            tools,
            families,
            unresolved,
        }
    }

    /// What an agent should know before its first call, a paragraph for each family that says something.
    pub fn instructions(&self) -> String {
        self.families
            .iter()
            .filter_map(|family| family.instructions())
            .collect::<Vec<_>>()
            .join("\n\n")
    }

    /// The protocol's other features that any of the families has.
    pub fn features(&self) -> Features {
        self.families.iter().map(|family| family.features()).fold(
            Features::default(),
            |all, one| Features {
                resources: all.resources | one.resources,
                subscriptions: all.subscriptions | one.subscriptions,
                prompts: all.prompts | one.prompts,
                completions: all.completions | one.completions,
                logging: all.logging | one.logging,
            },
        )
    }

    /// The first of the families that has a feature.
    pub fn family_with(&self, has: impl Fn(Features) -> bool) -> Option<&Arc<dyn Family>> {
        self.families.iter().find(|family| has(family.features()))
    }
}
