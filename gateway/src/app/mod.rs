//! The program around the gateway: command line, settings, wiring, and what is not for agents.

mod cli;
pub mod settings;

mod serve;
mod sources;
mod standalone;

mod health;
mod internal;
mod logs;
mod side;

mod audit;
mod call;
mod client;
mod connect;
mod explain;
mod import;
mod lint;
mod people;
mod probe;

pub use cli::main;
