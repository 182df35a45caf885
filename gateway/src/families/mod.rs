//! The tool families. Adding one is a folder here and a line in [`ALL`].

pub mod datetime;

use std::sync::Arc;

use crate::family::Family;
use crate::store::Store;
use crate::tool::Tool;

/// What a family has, known without its store, and how it is made.
type Entry = (fn() -> Vec<Tool>, fn(&Store) -> Arc<dyn Family>);

/// Every family of the product, in the order of the tool list.
const ALL: &[Entry] = &[(datetime::tools, |store| {
    Arc::new(datetime::Datetime::new(store.clock()))
})];

/// Every family, working on `store`.
pub fn all(store: &Store) -> Vec<Arc<dyn Family>> {
    ALL.iter().map(|(_, make)| make(store)).collect()
}

/// Every tool of every family, for those who only ask what there is.
pub fn tools() -> Vec<Tool> {
    ALL.iter().flat_map(|(tools, _)| tools()).collect()
}
