//! The MCP endpoint as clients see it: a server in process, on a loopback port.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod fixture;
mod harness;

mod access;
mod calls;
mod directives;
mod lanes;
mod lists;
mod sessions;
