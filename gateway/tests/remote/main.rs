//! Remote MCP servers as sources, over real sockets: what reaches the server, and what comes of it.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod calls;
mod changes;
mod conversations;
mod fake;
mod harness;
mod lists;
mod relays;
mod tasks;
