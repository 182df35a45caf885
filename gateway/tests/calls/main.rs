//! Calls through the pipeline, and the store below it, on SQLite always and on PostgreSQL where `TEST_DATABASE_URL`
//! names one. Nothing goes around the gate.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod audit;
mod config;
mod harness;
mod memory;
mod shape;
mod store;
mod support;
mod task;
