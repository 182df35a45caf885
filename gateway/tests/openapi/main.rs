//! OpenAPI documents through the public interface: what becomes of documents of many makers, and of hostile ones.

mod harness;
mod reader;
mod samples;

mod big;
mod documents;
mod hostile;
mod requests;
mod schemas;
