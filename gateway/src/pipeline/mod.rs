//! The straight line of a call: record it, which, may it, do it, answer.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::error;

use crate::audit::{Audit, Opening, Record};
use crate::catalog::Catalogs;
use crate::directory::Agent;
use crate::family::{Call, Client};
use crate::gate::{self, Decision};
use crate::metrics::Metrics;
use crate::store::Clock;
use crate::tool::{Effect, Operation, Output, ToolError};

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
    pub audit: Audit,
    pub metrics: Arc<Metrics>,
    /// The calls that write, each in a task of its own. Whoever stops the gateway closes it and waits.
    pub writes: TaskTracker,
}

impl Pipeline {
    /// Runs one call, whoever carries it: MCP, REST or a program in process.
    ///
    /// Dropping the future or cancelling the request ends a call that reads; a call that writes runs to its end
    /// in a task of its own. Either is recorded, and a call that writes is answered after its record is durable.
    pub async fn call(self: &Arc<Self>, mut request: Request) -> Answer {
        let operation = self.resolve(&mut request);
        let cancelled = request.cancelled.clone();
        if operation.effect == Effect::Reads {
            return cancelled
                .run_until_cancelled(self.run(request, operation))
                .await
                .unwrap_or(Answer::Cancelled);
        }
        let pipeline = self.clone();
        let write = self
            .writes
            .spawn(async move { pipeline.run(request, operation).await });
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

    /// What the request asks for, whether or not the agent may. An older name's arguments become the tool's.
    fn resolve(&self, request: &mut Request) -> Operation {
        let Some(entry) = self.catalogs.registry().find(&request.tool) else {
            return Operation {
                name: request.tool.clone().into(),
                effect: Effect::Reads,
            };
        };
        if let Some(alias) = entry.alias {
            request.arguments = (alias.rewrite)(&request.arguments);
        }
        entry.family.operation(entry.tool, &request.arguments)
    }

    async fn run(&self, request: Request, operation: Operation) -> Answer {
        let now = self.clock.now();
        let effect = operation.effect;
        let opening = Opening {
            agent: &request.agent,
            key_id: &request.key_id,
            tool: operation.name,
            arguments: &request.arguments,
            at: now,
        };
        let Ok(mut record) = self.audit.open(opening).await else {
            return Answer::Failed(ToolError::unavailable(
                "The call could not be recorded, so nothing was done. Try it again in a few seconds.",
            ));
        };
        let answer = self.permitted(&request, now, &mut record).await;
        let (outcome, size) = answer.summary();
        if effect == Effect::Reads {
            record.close(outcome, size);
        } else if record.close_durably(outcome, size).await.is_err() {
            return Answer::Failed(ToolError::unavailable(
                "The call ran, but its record was not confirmed, so its result is held back. Read back what it changed before you repeat it.",
            ));
        }
        answer
    }

    async fn permitted(&self, request: &Request, now: Timestamp, record: &mut Record) -> Answer {
        let Some(entry) = self.catalogs.registry().find(&request.tool) else {
            record.decided("unknown_tool");
            return Answer::UnknownTool;
        };
        let Decision::Permit(permit) = gate::decide(&request.agent, entry.tool, now) else {
            record.decided("not_listed");
            return Answer::UnknownTool;
        };
        record.decided("permit");
        let call = Call {
            arguments: &request.arguments,
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

impl Answer {
    /// The outcome that audit rows, logs and metrics name, and how many bytes the agent reads.
    fn summary(&self) -> (&'static str, usize) {
        match self {
            Self::Done(output) => ("done", output.size()),
            Self::Failed(error) => (error.kind.outcome(), error.message.len()),
            Self::UnknownTool => ("unknown_tool", 0),
            Self::Cancelled => ("cancelled", 0),
        }
    }
}
