//! The tool families. Adding one is a folder here and a line in [`all`].

pub mod datetime;

use std::sync::Arc;

use crate::family::Family;
use crate::store::Store;

/// Every family of the product, in the order of the tool list.
pub fn all(store: &Store) -> Vec<Arc<dyn Family>> {
    vec![Arc::new(datetime::Datetime::new(store.clock()))]
}
