//! An answer that is an event stream: what comes before the result goes on to the client, questions included.

use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::events::Events;
use super::server::{QUESTIONS, Server, Tally, relayed};
use super::sessions::Session;
use super::trouble::Trouble;
use super::wire::Message;
use crate::family::{Change, Client, NEWER, RpcError};
use crate::outbound::Body;

/// Reads until the answer to `id`. Between two messages the server may take as long as a call may.
pub(super) async fn follow(
    server: &Server,
    session: Option<&Session>,
    body: Body,
    id: u64,
    client: &dyn Client,
    tally: &mut Tally,
) -> Result<Bytes, Trouble> {
    let mut events = Events::new(body);
    loop {
        let next = timeout(server.patience, events.next()).await;
        tally.received += std::mem::take(&mut events.received);
        let event = next
            .map_err(|_| Trouble::Silent)?
            .ok_or(Trouble::Broken("its answer ends before the result"))??;
        let Some(message) = Message::parse(&event) else {
            return Err(Trouble::Broken("an event is no message of JSON-RPC"));
        };
        match (&message.method, message.id, session) {
            (None, _, _) if message.is_answer_to(id) => {
                return match (message.error(), message.result) {
                    (Some(error), _) => Err(Trouble::Rpc(error)),
                    (None, Some(result)) => Ok(event.slice_ref(result.get().as_bytes())),
                    (None, None) => Err(Trouble::Broken("its answer holds nothing")),
                };
            }
            (Some(method), Some(asked), Some(session)) => {
                let is_question = QUESTIONS.iter().any(|(_, known)| known == method);
                tally.asked_in_vain |= is_question && !can_be_asked(method, client);
                let answer = question(method, value(message.params), client).await;
                server.answer(session, value(Some(asked)), answer).await;
            }
            (Some(method), None, _) => {
                pass_on(server, method, value(message.params), id, client).await;
            }
            // A stray answer, or a question that this era does not have.
            _ => {}
        }
    }
}

fn value(raw: Option<&RawValue>) -> Value {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok())
        .unwrap_or_default()
}

/// Asks the client what the server asks, if it has said that it can be asked that.
async fn question(method: &str, params: Value, client: &dyn Client) -> Result<Value, RpcError> {
    if method == "ping" {
        return Ok(Value::Object(Default::default()));
    }
    if can_be_asked(method, client) {
        client.request(method, params).await
    } else {
        Err(RpcError::no_method(method))
    }
}

/// Whether a client can be asked this in the middle of a call. One of the newer era has no way to answer: it would have
/// to reach the very gateway that holds the server's stream.
fn can_be_asked(method: &str, client: &dyn Client) -> bool {
    let mut known = QUESTIONS.iter().filter(|(_, question)| *question == method);
    let can = |capability| relayed(client).get(capability).is_some();
    client.protocol_version() != NEWER && known.any(|(capability, _)| can(*capability))
}

/// Passes on what is for the client. One that has gone, or does not listen, misses nothing else.
async fn pass_on(server: &Server, method: &str, mut params: Value, id: u64, client: &dyn Client) {
    match method {
        "notifications/progress" if params["progressToken"] == id => {
            let Some(token) = client.progress_token() else {
                return;
            };
            params["progressToken"] = token;
        }
        "notifications/message" | "notifications/elicitation/complete" => {}
        "notifications/tools/list_changed" => {
            server.has_changed.notify_one();
            return;
        }
        "notifications/resources/list_changed" => {
            return server.changes.list(Change::ResourceList);
        }
        "notifications/prompts/list_changed" => return server.changes.list(Change::PromptList),
        _ => return,
    }
    let _ = client.notify(method, params).await;
}
