//! The MCP endpoint as clients see it: a server in process, on a loopback port.

mod fixture;
mod harness;

mod access;
mod calls;
mod lanes;
mod lists;
mod sessions;
