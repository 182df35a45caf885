//! The gateway: MCP to agents, from the resources of `chandlery-crds` and a store.
//!
//! An arrow may only point left:
//! `{ tool, metrics, times } ← { directory, store, gate, auth, outbound } ← family ← connector ← { families, catalog, audit, approvals, budgets, usage } ← { explain, sources } ← pipeline ← http ← app ← main`.

pub mod metrics;
mod times;
pub mod tool;

pub mod auth;
pub mod directory;
pub mod gate;
pub mod outbound;
pub mod store;

pub mod family;

pub mod connector;

pub mod approvals;
pub mod audit;
pub mod budgets;
pub mod catalog;
pub mod explain;
pub mod families;
pub mod usage;

pub mod sources;

pub mod pipeline;

pub mod http;

pub mod app;
