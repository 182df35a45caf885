//! Tools from outside as agents and people see them: manifests in, MCP and REST out, and upstreams that a test makes.

#![expect(clippy::unwrap_used, reason = "a test may fail")]
#![expect(clippy::print_stdout, reason = "figures are for people")]

#[path = "../openapi/corpus.rs"]
mod corpus;
#[expect(dead_code, reason = "other tests use all of it")]
#[path = "../outbound/dns.rs"]
mod dns;
mod harness;
#[path = "../openapi/large.rs"]
mod large;
#[path = "../openapi/reader.rs"]
mod reader;
#[expect(dead_code, reason = "other tests use all of it")]
#[path = "../gate/said.rs"]
mod said;
#[path = "../openapi/samples.rs"]
mod samples;
#[expect(dead_code, reason = "other tests use all of it")]
#[path = "../outbound/server.rs"]
mod server;
mod upstreams;
#[path = "../outbound/urls.rs"]
mod urls;

mod big;
mod chaos;
mod credentials;
mod openapi;
mod pinning;
mod recorded;
mod relays;
mod ssrf;
mod standing;
