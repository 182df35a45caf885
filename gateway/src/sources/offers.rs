//! What the sources of each namespace offer at the moment, handed to the catalogs whenever it changes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::catalog::{Catalogs, Offer, Taken};
use crate::tool::Tool;

/// Where a source stands among those of its namespace: an older one's names come first, so that no newcomer shadows them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) namespace: String,
    /// Files do not say; then names decide.
    pub(super) made_at: Option<Timestamp>,
    pub(super) name: String,
}

pub(super) struct Offers {
    catalogs: Arc<Catalogs>,
    by_namespace: Mutex<HashMap<String, Namespace>>,
}

#[derive(Default)]
struct Namespace {
    offers: BTreeMap<Place, Offer>,
    /// The names that some of them could not have.
    taken: Vec<Taken>,
}

impl Namespace {
    /// Hands everything to the catalogs.
    fn tell(&mut self, catalogs: &Catalogs, namespace: &str) {
        let offers = self.offers.values().cloned().collect();
        self.taken = catalogs.set_sources(namespace, offers);
    }

    fn taken(&self, place: &Place) -> Vec<Taken> {
        let of_it = self.taken.iter().filter(|taken| taken.source == place.name);
        of_it.cloned().collect()
    }
}

impl Offers {
    pub(super) fn new(catalogs: Arc<Catalogs>) -> Self {
        Self {
            catalogs,
            by_namespace: Mutex::default(),
        }
    }

    /// Replaces what one source offers. Gives back which of its names are taken.
    ///
    /// A tool that is as it was before stays the very same, since lists are kept by that.
    pub(super) fn set(&self, place: &Place, mut offer: Offer) -> Vec<Taken> {
        let mut namespaces = self.by_namespace.lock();
        let namespace = namespaces.entry(place.namespace.clone()).or_default();
        if let Some(before) = namespace.offers.get(place) {
            let before: HashMap<&str, &Arc<Tool>> = before
                .tools
                .iter()
                .map(|tool| (&*tool.name, tool))
                .collect();
            for tool in &mut offer.tools {
                if let Some(same) = before.get(&*tool.name).filter(|before| ***before == *tool) {
                    *tool = (*same).clone();
                }
            }
        }
        namespace.offers.insert(place.clone(), offer);
        namespace.tell(&self.catalogs, &place.namespace);
        namespace.taken(place)
    }

    /// Which of a source's names are taken now: other sources come and go.
    pub(super) fn taken(&self, place: &Place) -> Vec<Taken> {
        let namespaces = self.by_namespace.lock();
        let namespace = namespaces.get(&place.namespace);
        namespace.map_or_else(Vec::new, |namespace| namespace.taken(place))
    }

    /// Takes back what one source offered.
    pub(super) fn remove(&self, place: &Place) {
        let mut namespaces = self.by_namespace.lock();
        if let Some(namespace) = namespaces.get_mut(&place.namespace)
            && namespace.offers.remove(place).is_some()
        {
            namespace.tell(&self.catalogs, &place.namespace);
        }
    }
}
