//! `chandlery import` as people call it: the built program, real sockets, and what it writes served by a gateway.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

#[expect(dead_code, reason = "other tests use all of it")]
#[path = "../outbound/dns.rs"]
mod dns;
#[expect(dead_code, reason = "other tests use all of it")]
#[path = "../sources/harness.rs"]
mod harness;
#[expect(dead_code, reason = "other tests use all of it")]
#[path = "../gate/said.rs"]
mod said;
#[expect(dead_code, reason = "other tests use all of it")]
#[path = "../outbound/server.rs"]
mod server;
#[expect(dead_code, reason = "other tests use all of it")]
#[path = "../sources/upstreams.rs"]
mod upstreams;

mod examples;
mod manifests;
mod program;
