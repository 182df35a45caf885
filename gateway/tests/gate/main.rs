//! What an agent sees and may do, from manifests as people write them, over HTTP as clients call.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod harness;
mod said;
mod seeds;

mod approvals;
mod explain;
mod grants;
mod lists;
mod property;
mod races;
mod requests;
