//! What the sources of each namespace offer at the moment, handed to the catalogs whenever it changes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::catalog::{Catalogs, Offer, Taken};
use crate::tool::Tool;

/// When a source was made, and its name: an older one's names come first, so that no newcomer shadows them.
pub(super) type Place = (Option<Timestamp>, String);

pub(super) struct Offers {
    catalogs: Arc<Catalogs>,
    by_namespace: Mutex<HashMap<String, BTreeMap<Place, Offer>>>,
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
    pub(super) fn set(&self, namespace: &str, place: &Place, mut offer: Offer) -> Vec<Taken> {
        let mut namespaces = self.by_namespace.lock();
        let sources = namespaces.entry(namespace.to_owned()).or_default();
        if let Some(before) = sources.get(place) {
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
        sources.insert(place.clone(), offer);
        let mut taken = self.tell(namespace, sources);
        taken.retain(|taken| taken.source == place.1);
        taken
    }

    /// Takes back what one source offered.
    pub(super) fn remove(&self, namespace: &str, place: &Place) {
        let mut namespaces = self.by_namespace.lock();
        if let Some(sources) = namespaces.get_mut(namespace)
            && sources.remove(place).is_some()
        {
            self.tell(namespace, sources);
        }
    }

    fn tell(&self, namespace: &str, sources: &BTreeMap<Place, Offer>) -> Vec<Taken> {
        self.catalogs
            .set_sources(namespace, sources.values().cloned().collect())
    }
}
