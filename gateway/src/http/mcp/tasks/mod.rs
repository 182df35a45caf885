//! Tasks: calls that outlast their request, looked after with `tasks/get`, `tasks/update` and `tasks/cancel`.
//!
//! A call that waits for a person is one, and has the id of its approval. A call that goes on at a source is one as well,
//! and has a sealed id. Neither is anybody's but its agent's.

mod approval;
mod source;

use rmcp::RoleServer;
use rmcp::model::{ErrorData, GetTaskResult};
use rmcp::service::RequestContext;
use serde_json::{Map, Value};

pub(super) use self::approval::of_ticket;
pub(super) use self::source::begun;

use self::source::AtSource;
use super::handler::Handler;
use super::peer::Peer;
use super::seal::About;
use crate::approvals::Approval;
use crate::store::Id;

/// What an id leads to.
enum Subject {
    Approval(Box<Approval>),
    Source(AtSource),
}

/// How it stands with a task.
pub(super) async fn get(
    handler: &Handler,
    id: &str,
    context: RequestContext<RoleServer>,
) -> Result<GetTaskResult, ErrorData> {
    match find(handler, id).await? {
        Subject::Approval(row) => Ok(approval::state(&handler.mcp, &handler.caller, &row)),
        Subject::Source(task) => source::state(handler, &task, id, context).await,
    }
}

/// Hands over what the client answers to the questions of a task.
pub(super) async fn update(
    handler: &Handler,
    id: &str,
    context: RequestContext<RoleServer>,
) -> Result<(), ErrorData> {
    match find(handler, id).await? {
        Subject::Approval(_) => Err(ErrorData::invalid_params(
            "This task asks nothing: it waits for a person elsewhere",
            None,
        )),
        Subject::Source(task) => {
            let sent = Peer::new(context.clone(), &handler.body).sent_back();
            let answers = sent.as_ref().and_then(|sent| sent.get("inputResponses"));
            let answers = answers.cloned().unwrap_or_default();
            let params = Map::from_iter([("inputResponses".to_owned(), answers)]);
            source::ask(handler, &task, "tasks/update", params, context)
                .await
                .map(drop)
        }
    }
}

/// The agent no longer wants the call.
pub(super) async fn cancel(
    handler: &Handler,
    id: &str,
    context: RequestContext<RoleServer>,
) -> Result<(), ErrorData> {
    match find(handler, id).await? {
        Subject::Approval(row) => approval::withdraw(&handler.mcp, &handler.caller, &row).await,
        Subject::Source(task) => source::ask(handler, &task, "tasks/cancel", Map::new(), context)
            .await
            .map(drop),
    }
}

async fn find(handler: &Handler, id: &str) -> Result<Subject, ErrorData> {
    let (mcp, caller) = (&handler.mcp, &handler.caller);
    if About::Task.is_of(id) {
        let bound_to = [&*caller.agent.uid];
        let task = mcp.seal.open(About::Task, &bound_to, id, mcp.now());
        return task.map(Subject::Source).ok_or_else(unknown);
    }
    let id: Id = id.parse().map_err(|_| unknown())?;
    let row = approval::find(mcp, caller, id).await?;
    // An approved call may go on at its source, under the id that its agent knows.
    let goes_on = AtSource::of_result(&row);
    Ok(goes_on.map_or_else(|| Subject::Approval(Box::new(row)), Subject::Source))
}

/// There is no such task, it is another agent's, or the agent has lost its tool: they must look alike.
fn unknown() -> ErrorData {
    ErrorData::invalid_params("Unknown task", None)
}

fn value(text: &str) -> Value {
    Value::String(text.to_owned())
}
