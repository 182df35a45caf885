//! What operator, gateway and people agree on: the four resources, their names, conditions and keys.
//!
//! Nothing here talks to a cluster, reads a clock, takes randomness or is async.

#![allow(
    unreachable_pub,
    reason = "the derive macros repeat the structs in modules of their own"
)]

pub mod agent;
pub mod check;
pub mod conditions;
pub mod constraint;
pub mod crd;
mod embedded;
pub mod fields;
pub mod key;
pub mod manifest;
pub mod names;
pub mod report;
pub mod schema;
pub mod tool_grant;
pub mod tool_source;
pub mod workspace;

pub use agent::{Agent, AgentSpec, AgentState, AgentStatus, Level, Listing};
pub use tool_grant::{ToolGrant, ToolGrantSpec, ToolGrantStatus};
pub use tool_source::{
    AuthSpec, NotedTool, PinningPolicy, PinningSpec, SourceTools, ToolSource, ToolSourceSpec,
    ToolSourceStatus,
};
pub use workspace::{Workspace, WorkspaceSpec, WorkspaceStatus};
