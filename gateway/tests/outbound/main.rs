//! The client that dials out, with real sockets on loopback: what it reaches, what it sends where, and what it bears.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod dns;
mod secrets;
mod server;
mod urls;
mod world;

mod cost;
mod credentials;
mod isolation;
mod limits;
mod oauth;
mod ssrf;
mod tls;
