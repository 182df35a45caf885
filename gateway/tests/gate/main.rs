//! What an agent sees and may do, from manifests as people write them, over HTTP as clients call.

mod harness;
mod seeds;

mod approvals;
mod explain;
mod grants;
mod lists;
mod property;
mod races;
mod requests;
