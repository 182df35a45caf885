//! OpenAPI documents through the public interface: what becomes of documents of many makers, and of hostile ones.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "helpers of tests, too"
)]

mod corpus;
mod harness;
mod large;
mod reader;
mod samples;

mod big;
mod documents;
mod hostile;
mod requests;
mod schemas;
