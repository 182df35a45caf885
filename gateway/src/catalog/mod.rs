//! Which tools an agent has: the registry of all families, narrowed by the gate's rule, in the shape of its list.

mod group;
mod registry;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use chandlery_crds::conditions::reason;
use chandlery_crds::report::Unresolved;
use chandlery_crds::{Listing, check};
use dashmap::DashMap;
use jiff::Timestamp;
use serde_json::value::RawValue;
use tokio::sync::watch;

pub use self::registry::{Offer, Registry, Taken};
use crate::directory::{Agent, ToolGrant};
use crate::family::{Family, Features};
use crate::gate::{Absence, Rights, is_never_served};
use crate::tool::{Operation, Served, Switch, Tool, ToolError};

/// What one agent has, for one revision of its config and until the next moment that a grant names.
pub struct Catalog {
    agent: Arc<Agent>,
    registry: Arc<Registry>,
    /// What is listed, in order.
    pub tools: Vec<Arc<Tool>>,
    /// The families of the agent's tools, in the same order.
    pub families: Vec<Arc<dyn Family>>,
    /// The families that have something for the agent besides tools, and what.
    pub relays: Vec<(Arc<dyn Family>, Features)>,
    /// The entries that serve nothing.
    pub unresolved: Vec<Unresolved>,
    /// Until when all of this is so.
    pub valid_until: Option<Timestamp>,
    entries: HashMap<Cow<'static, str>, Arc<Entry>>,
    /// The operations behind each grouped tool of the list.
    groups: HashMap<Cow<'static, str>, Vec<Arc<Entry>>>,
}

/// A tool that the agent has, under its per-operation name.
pub struct Entry {
    pub tool: Arc<Tool>,
    pub family: Arc<dyn Family>,
    pub rights: Rights,
    /// A call is interactive, or may have to wait for a person.
    pub is_conversation: bool,
}

impl Entry {
    fn new(tool: Arc<Tool>, family: Arc<dyn Family>, rights: Rights) -> Self {
        Self {
            is_conversation: tool.interactive || rights.may_ask(),
            tool,
            family,
            rights,
        }
    }
}

/// The catalogs that are in use, one per agent.
pub struct Catalogs {
    built_in: Arc<Registry>,
    /// What there is in namespaces that have sources, the built-in tools included.
    with_sources: DashMap<String, Arc<Registry>>,
    /// Counts changes of `with_sources`.
    revision: watch::Sender<u64>,
    by_uid: DashMap<String, Arc<Catalog>>,
}

/// What a name of a call leads to.
pub enum Found {
    Entry {
        entry: Arc<Entry>,
        /// The tool's arguments, where they are not those of the call: it came under an older or a grouped name.
        arguments: Option<Box<RawValue>>,
    },
    /// A grouped tool of the agent's, with arguments that pick none of its operations.
    NoOperation(ToolError),
    /// The agent has no such tool; what a call would do if it had, where there is one.
    Nothing(Option<Operation>),
}

impl Catalogs {
    pub fn new(registry: Arc<Registry>) -> Self {
        Self {
            built_in: registry,
            with_sources: DashMap::new(),
            revision: watch::Sender::new(0),
            by_uid: DashMap::new(),
        }
    }

    /// Replaces what the sources of a namespace offer, in the order in which they came: nothing shadows what was there
    /// before. Gives back the names that were taken already, each with its source.
    pub fn set_sources(&self, namespace: &str, sources: Vec<Offer>) -> Vec<Taken> {
        let (registry, taken) = self.built_in.with(sources);
        self.with_sources
            .insert(namespace.to_owned(), Arc::new(registry));
        self.revision.send_modify(|revision| *revision += 1);
        taken
    }

    /// Counts changes of what sources offer.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// Every tool that there is where `agent` works.
    pub fn registry_of(&self, agent: &Agent) -> Arc<Registry> {
        let registry = self.with_sources.get(agent.namespace());
        registry.map_or_else(|| self.built_in.clone(), |registry| registry.clone())
    }

    /// The catalog of exactly this revision of the agent, as it is at `now`; made on first use.
    pub fn of(&self, agent: &Arc<Agent>, now: Timestamp) -> Arc<Catalog> {
        let registry = self.registry_of(agent);
        let is_current = |catalog: &Catalog| {
            Arc::ptr_eq(&catalog.agent, agent)
                && Arc::ptr_eq(&catalog.registry, &registry)
                && catalog.valid_until.is_none_or(|end| now < end)
        };
        if let Some(catalog) = self.by_uid.get(&agent.uid)
            && is_current(&catalog)
        {
            return catalog.clone();
        }
        let catalog = Arc::new(Catalog::new(registry, agent.clone(), now));
        self.by_uid.insert(agent.uid.clone(), catalog.clone());
        catalog
    }

    /// Forgets agents that are gone.
    pub fn retain(&self, is_live: impl Fn(&str) -> bool) {
        self.by_uid.retain(|uid, _| is_live(uid));
    }
}

impl Catalog {
    fn new(registry: Arc<Registry>, agent: Arc<Agent>, now: Timestamp) -> Self {
        let mut entries: HashMap<Cow<'static, str>, Arc<Entry>> = HashMap::new();
        let mut listed: Vec<Listed> = Vec::new();
        let mut families: Vec<Arc<dyn Family>> = Vec::new();
        let mut valid_until: Option<Timestamp> = None;
        for (at, tool, family) in registry.numbered() {
            let Ok(rights) = Rights::of(&agent, tool) else {
                continue;
            };
            let change = rights.next_change(now);
            valid_until = [valid_until, change].into_iter().flatten().min();
            if !rights.is_visible(now) {
                continue;
            }
            let entry = Arc::new(Entry::new(tool.clone(), family.clone(), rights));
            entries.insert(tool.name.clone(), entry.clone());
            list(&mut listed, agent.spec.listing, at, entry);
            if families
                .last()
                .is_none_or(|last| !Arc::ptr_eq(last, family))
            {
                families.push(family.clone());
            }
        }
        let relays = relays(&registry, &families, &agent, now);
        let flagged = agent.grants.iter().filter(|grant| relays_anything(grant));
        let moments = flagged.flat_map(|grant| grant.moments());
        valid_until = moments
            .filter(|moment| now < *moment)
            .chain(valid_until)
            .min();
        let mut groups = HashMap::new();
        let tools = listed
            .into_iter()
            .map(|listed| match listed {
                Listed::Alone(entry) => entry.tool.clone(),
                Listed::Group(numbers, operations) => {
                    let tool = registry.grouped(&numbers);
                    groups.insert(tool.name.clone(), operations);
                    tool
                }
            })
            .collect();
        let serves = |entry: &str| entries.values().any(|own| own.tool.is_named_by(entry));
        let unresolved = unresolved(registry.tools().map(|tool| &**tool), &agent, serves);
        Self {
            agent,
            registry,
            tools,
            families,
            relays,
            unresolved,
            valid_until,
            entries,
            groups,
        }
    }

    /// Whose catalog it is.
    pub fn agent(&self) -> &Arc<Agent> {
        &self.agent
    }

    /// What a call of `name` leads to: a per-operation name whatever the list looks like (R-C-171), a grouped name, or
    /// an older name.
    pub fn find(&self, name: &str, arguments: &RawValue) -> Found {
        let group = self.groups.get(name);
        // Some operations are named like their group: `action` says which of the two is meant.
        let is_operation = group.is_none() || !group::picks(arguments);
        if let Some(entry) = self.entries.get(name).filter(|_| is_operation) {
            return Found::Entry {
                entry: entry.clone(),
                arguments: None,
            };
        }
        if let Some(operations) = group {
            let tools: Vec<&Tool> = operations.iter().map(|entry| &*entry.tool).collect();
            return match group::pick(name, &tools, arguments) {
                Ok((at, own)) => Found::Entry {
                    entry: operations[at].clone(),
                    arguments: Some(own),
                },
                Err(error) => Found::NoOperation(error),
            };
        }
        let older = self.registry.alias(name);
        match older.and_then(|alias| Some((alias, self.entries.get(alias.tool)?))) {
            Some((alias, entry)) => Found::Entry {
                entry: entry.clone(),
                arguments: Some((alias.rewrite)(arguments)),
            },
            None => Found::Nothing(self.registry.operation(name, arguments)),
        }
    }

    /// Whether any call may have to wait for a person.
    pub fn may_ask(&self) -> bool {
        self.entries.values().any(|entry| entry.rights.may_ask())
    }

    /// What an agent should know before its first call, a paragraph for each family that says something.
    pub fn instructions(&self) -> String {
        self.families
            .iter()
            .filter_map(|family| family.instructions())
            .collect::<Vec<_>>()
            .join("\n\n")
    }

    /// What there is for the agent besides tools.
    pub fn features(&self) -> Features {
        let own = self.relays.iter().map(|(_, features)| *features);
        own.fold(Features::default(), Features::or)
    }

    /// The families that have a feature for the agent; of sources, the older ones first.
    pub fn families_with(
        &self,
        has: impl Fn(Features) -> bool,
    ) -> impl Iterator<Item = &Arc<dyn Family>> {
        let own = self.relays.iter().filter(move |(_, own)| has(*own));
        own.map(|(family, _)| family)
    }
}

/// What each family has for `agent` besides tools: all of it where the family is built in. What a source has is for
/// agents that name the source, under live grants that name it and say so.
fn relays(
    registry: &Registry,
    families: &[Arc<dyn Family>],
    agent: &Agent,
    now: Timestamp,
) -> Vec<(Arc<dyn Family>, Features)> {
    let built_in = families.iter().filter(|family| family.source().is_none());
    let built_in = built_in.map(|family| (family.clone(), family.features()));
    let sources = registry.sources().iter().filter_map(|family| {
        let source = family.source()?;
        let names = |entries: &[String]| {
            let mut entries = entries.iter().filter_map(|entry| entry.split_once('/'));
            entries.any(|(named, _)| named == source)
        };
        if !names(&agent.spec.tools) {
            return None;
        }
        let live = agent
            .grants
            .iter()
            .filter(|grant| grant.is_live(now) && names(&grant.spec.tools));
        let (mut resources, mut prompts, mut any) = (false, false, false);
        for grant in live {
            any = true;
            resources |= grant.spec.resources;
            prompts |= grant.spec.prompts;
        }
        let has = family.features();
        let granted = Features {
            resources: has.resources && resources,
            subscriptions: has.subscriptions && resources,
            resource_changes: has.resource_changes && resources,
            prompts: has.prompts && prompts,
            prompt_changes: has.prompt_changes && prompts,
            completions: has.completions && (resources || prompts),
            logging: has.logging && any,
            tasks: has.tasks && any,
        };
        Some((family.clone(), granted))
    });
    built_in
        .chain(sources)
        .filter(|(_, features)| *features != Features::default())
        .collect()
}

fn relays_anything(grant: &ToolGrant) -> bool {
    grant.spec.resources || grant.spec.prompts
}

/// A tool of a list that is being made.
enum Listed {
    Alone(Arc<Entry>),
    /// Operations by their numbers in the registry.
    Group(Vec<usize>, Vec<Arc<Entry>>),
}

/// Adds a tool to a list; a group stands where its first operation would.
fn list(listed: &mut Vec<Listed>, listing: Listing, at: usize, entry: Arc<Entry>) {
    let group = entry
        .tool
        .group
        .as_ref()
        .filter(|_| listing == Listing::Grouped);
    let Some(group) = group else {
        listed.push(Listed::Alone(entry));
        return;
    };
    let before = listed.iter_mut().find_map(|listed| match listed {
        Listed::Group(numbers, operations) => operations
            .first()
            .and_then(|first| first.tool.group.as_ref())
            .is_some_and(|other| other.name == group.name)
            .then_some((numbers, operations)),
        Listed::Alone(_) => None,
    });
    match before {
        Some((numbers, operations)) => {
            numbers.push(at);
            operations.push(entry);
        }
        None => listed.push(Listed::Group(vec![at], vec![entry])),
    }
}

/// What [`Catalog::unresolved`] would be of an agent that nobody serves yet.
pub fn lint<'a>(
    tools: impl Iterator<Item = &'a Tool> + Clone,
    agent: &Agent,
    now: Timestamp,
) -> Vec<Unresolved> {
    let tools = tools.filter(|tool| !is_never_served(&tool.name));
    let served: Vec<&Tool> = tools
        .clone()
        .filter(|tool| Rights::of(agent, tool).is_ok_and(|rights| rights.is_visible(now)))
        .collect();
    let serves = |entry: &str| served.iter().any(|tool| tool.is_named_by(entry));
    unresolved(tools, agent, serves)
}

/// The entries of `spec.tools` that serve nothing, and the switches that are on for nothing (R-C-023). `tools` are all
/// that an agent could be served.
fn unresolved<'a>(
    tools: impl Iterator<Item = &'a Tool> + Clone,
    agent: &Agent,
    serves: impl Fn(&str) -> bool,
) -> Vec<Unresolved> {
    let entries = agent.spec.tools.iter();
    let entries = entries
        .filter(|entry| !serves(entry))
        .filter_map(|entry| reason_of(tools.clone(), agent, entry));
    let switches = OPTIONAL_SWITCHES
        .into_iter()
        .filter(|(switch, _)| switch.is_on(&agent.spec))
        .filter(|(switch, _)| {
            !tools
                .clone()
                .any(|tool| tool.served == Served::Switch(*switch))
        })
        .map(|(_, field)| Unresolved {
            entry: field.to_owned(),
            reason: reason::NO_SUCH_TOOL.to_owned(),
            message: format!("this version has no tools for {field}; nothing is served for it"),
        });
    entries.chain(switches).collect()
}

/// The switches that are off unless somebody writes them.
const OPTIONAL_SWITCHES: [(Switch, &str); 7] = [
    (Switch::PostgresConnection, "connectionsDb.postgresEnabled"),
    (Switch::SupabaseConnection, "connectionsDb.supabaseEnabled"),
    (Switch::Documents, "documentCollectionIds"),
    (Switch::Observability, "observabilityEnabled"),
    (Switch::AgentInvocation, "agentInvocationEnabled"),
    (Switch::Dashboards, "dashboardsEnabled"),
    (Switch::CodeExecution, "codeExecution.enabled"),
];

fn reason_of<'a>(
    mut tools: impl Iterator<Item = &'a Tool>,
    agent: &Agent,
    entry: &str,
) -> Option<Unresolved> {
    let (reason, message) = match tools.find(|tool| tool.is_named_by(entry)) {
        _ if is_never_served(entry) => (
            reason::NEVER_SERVED,
            format!("{entry} is never served to an agent: take it out of spec.tools"),
        ),
        None => return check::tool_entry(entry, std::iter::empty()),
        Some(tool) => match Rights::of(agent, tool) {
            Err(Absence::SwitchedOff(switch)) => (
                reason::SWITCHED_OFF,
                format!(
                    "{entry} is switched off: write {} in spec, or take the entry out",
                    switch.turn_on()
                ),
            ),
            Err(_) => return check::tool_entry(entry, std::iter::empty()),
            Ok(_) => (
                reason::NOT_GRANTED,
                format!(
                    "no live ToolGrant gives this agent {entry}: make one, or wait for its time"
                ),
            ),
        },
    };
    Some(Unresolved {
        entry: entry.to_owned(),
        reason: reason.to_owned(),
        message,
    })
}
