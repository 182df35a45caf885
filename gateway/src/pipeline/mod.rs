//! The straight line of a call: which, may it, do it, record it.

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use crate::catalog::Catalogs;
use crate::directory::Agent;
use crate::family::{Call, Client};
use crate::gate::{self, Decision};
use crate::store::Clock;
use crate::tool::{Output, ToolError};

/// How a call ended.
#[derive(Debug)]
pub enum Answer {
    Done(Output),
    Failed(ToolError),
    /// The agent has no tool of that name, or none exists; the two must look alike.
    UnknownTool,
}

/// One call as it came in.
pub struct Request<'a> {
    pub agent: &'a Arc<Agent>,
    pub key_id: &'a str,
    pub tool: &'a str,
    pub arguments: &'a RawValue,
    pub worker: Option<&'a str>,
    pub client: &'a dyn Client,
    pub cancelled: CancellationToken,
}

pub struct Pipeline {
    pub catalogs: Catalogs,
    pub clock: Clock,
}

impl Pipeline {
    /// Runs one call, whoever carries it: MCP, REST or a program in process.
    pub async fn call(&self, request: Request<'_>) -> Answer {
        let Some(entry) = self.catalogs.registry().find(request.tool) else {
            return Answer::UnknownTool;
        };
        let Decision::Permit(permit) = gate::decide(request.agent, entry.tool, self.clock.now())
        else {
            return Answer::UnknownTool;
        };
        let rewritten = match entry
            .alias
            .map(|alias| (alias.rewrite)(request.arguments))
            .transpose()
        {
            Ok(rewritten) => rewritten,
            Err(error) => return Answer::Failed(error),
        };
        let call = Call {
            arguments: rewritten.as_deref().unwrap_or(request.arguments),
            worker: request.worker,
            client: request.client,
            cancelled: request.cancelled,
        };
        match entry.family.call(&permit, call).await {
            Ok(output) => Answer::Done(output),
            Err(error) => Answer::Failed(error),
        }
    }
}
