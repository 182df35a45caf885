//! The straight line of a call: which, may it, do it, record it.

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::error;

use crate::catalog::Catalogs;
use crate::directory::Agent;
use crate::family::{Call, Client};
use crate::gate::{self, Decision};
use crate::store::Clock;
use crate::tool::{Effect, Output, ToolError};

/// How a call ended.
#[derive(Debug)]
pub enum Answer {
    Done(Output),
    Failed(ToolError),
    /// The agent has no tool of that name, or none exists; the two must look alike.
    UnknownTool,
    /// `Request::cancelled` came first. A call that writes goes on all the same.
    Cancelled,
}

/// One call as it came in.
pub struct Request {
    pub agent: Arc<Agent>,
    pub key_id: Arc<str>,
    pub tool: String,
    /// A JSON object; `{}` when the client sent none.
    pub arguments: Box<RawValue>,
    /// See [`Call::worker`].
    pub worker: Option<String>,
    pub client: Arc<dyn Client>,
    pub cancelled: CancellationToken,
}

pub struct Pipeline {
    pub catalogs: Catalogs,
    pub clock: Clock,
    /// The calls that write, each in a task of its own. Whoever stops the gateway closes it and waits.
    pub writes: TaskTracker,
}

impl Pipeline {
    /// Runs one call, whoever carries it: MCP, REST or a program in process.
    ///
    /// Dropping the future or cancelling the request ends a call that reads; a call that writes runs to its end
    /// in a task of its own, and is recorded.
    pub async fn call(self: &Arc<Self>, request: Request) -> Answer {
        let cancelled = request.cancelled.clone();
        if !self.writes(&request.tool) {
            return cancelled
                .run_until_cancelled(self.run(request))
                .await
                .unwrap_or(Answer::Cancelled);
        }
        let pipeline = self.clone();
        let write = self
            .writes
            .spawn(async move { pipeline.run(request).await });
        match cancelled.run_until_cancelled(write).await {
            Some(Ok(answer)) => answer,
            Some(Err(failure)) => {
                error!(error = %failure, "a tool call panicked");
                Answer::Failed(ToolError::unavailable(
                    "the tool failed for a reason of its own; try again",
                ))
            }
            None => Answer::Cancelled,
        }
    }

    fn writes(&self, tool: &str) -> bool {
        self.catalogs
            .registry()
            .find(tool)
            .is_some_and(|entry| entry.tool.effect != Effect::Reads)
    }

    async fn run(&self, request: Request) -> Answer {
        let Some(entry) = self.catalogs.registry().find(&request.tool) else {
            return Answer::UnknownTool;
        };
        let Decision::Permit(permit) = gate::decide(&request.agent, entry.tool, self.clock.now())
        else {
            return Answer::UnknownTool;
        };
        let rewritten = match entry
            .alias
            .map(|alias| (alias.rewrite)(&request.arguments))
            .transpose()
        {
            Ok(rewritten) => rewritten,
            Err(error) => return Answer::Failed(error),
        };
        let call = Call {
            arguments: rewritten.as_deref().unwrap_or(&request.arguments),
            worker: request.worker.as_deref(),
            client: request.client.as_ref(),
            cancelled: request.cancelled.clone(),
        };
        match entry.family.call(&permit, call).await {
            Ok(output) => Answer::Done(output),
            Err(error) => Answer::Failed(error),
        }
    }
}
