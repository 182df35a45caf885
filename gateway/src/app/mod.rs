//! The program around the gateway: command line, settings, wiring, and what is not for agents.

mod call;
mod cli;
mod lint;
mod probe;
pub mod settings;

pub use cli::main;
