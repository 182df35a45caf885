//! The tool families. Adding one is a folder here and its line in [`ALL`].

pub(crate) mod actions;
mod arguments;
pub mod connect;
pub mod view;

pub mod config;
pub mod datetime;
pub mod memory;
pub mod openapi;
pub mod remote;
pub mod support;
pub mod task;

use std::sync::Arc;

use crate::family::Family;
use crate::store::Store;
use crate::tool::Tool;

/// Every family of the product, in the order of the tool list.
const ALL: &[Entry] = &[
    task::FAMILY, //
    memory::FAMILY,
    datetime::FAMILY,
    config::FAMILY,
    support::FAMILY,
];

/// What a family has, known without its store, and how it is made.
pub struct Entry {
    tools: fn() -> Vec<Tool>,
    make: fn(&Store) -> Arc<dyn Family>,
}

/// Every family, working on `store`.
pub fn all(store: &Store) -> Vec<Arc<dyn Family>> {
    ALL.iter().map(|family| (family.make)(store)).collect()
}

/// Every tool of every family, for those who only ask what there is.
pub fn tools() -> Vec<Tool> {
    ALL.iter().flat_map(|family| (family.tools)()).collect()
}
