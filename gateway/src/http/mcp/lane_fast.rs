//! The fast lane: plain `tools/list` and `tools/call`, answered from borrowed bytes, without a task of their own.
//!
//! It accepts or declines, it never rejects: what is not plain and sound is the slow lane's to judge.

use std::sync::Arc;
use std::task::Poll;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{StreamExt, stream};
use http::{HeaderMap, StatusCode};
use rmcp::model::{ClientCapabilities, ErrorData, Implementation, RequestId};
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::sessions::{self, Session};
use super::wire::{
    self, INVALID_PARAMS, METHOD, Message, NAME, NEWER, OLDER, PROTOCOL_VERSION, Params,
};
use super::{Mcp, asking, handler, results};
use crate::family::{Client, RpcError};
use crate::http::access::Caller;
use crate::pipeline::{self, Answer, Patience};
use crate::tool::Output;

/// A request in which everything that this lane does not use is known to be sound.
pub(super) struct Request<'a> {
    /// JSON: a string or an integer.
    pub(super) id: &'a str,
    pub(super) method: &'a str,
    pub(super) params: Option<&'a Params<'a>>,
    pub(super) is_newer: bool,
}

impl<'a> Request<'a> {
    /// `None` for anything out of the ordinary.
    pub(super) fn read(
        headers: &HeaderMap,
        message: &'a Message<'_>,
        params: Option<&'a Params<'_>>,
        is_newer: bool,
    ) -> Option<Self> {
        let id = message.plain_id()?;
        if message.jsonrpc.as_deref() != Some("2.0") {
            return None;
        }
        if message.result || message.error || message.has_odd_params() {
            return None;
        }
        let method = message.method.as_deref()?;
        let meta = params.and_then(|params| params.meta.as_ref());
        if is_newer {
            let meta = meta?;
            let is_sound = meta.protocol_version.as_deref() == Some(NEWER)
                && reads_as::<ClientCapabilities>(meta.client_capabilities?)
                && meta.client_info.is_none_or(reads_as::<Implementation>)
                && wire::sole(headers, &PROTOCOL_VERSION) == Some(NEWER)
                && wire::sole(headers, &METHOD) == Some(method);
            if !is_sound {
                return None;
            }
        } else {
            let version = headers.get(PROTOCOL_VERSION);
            if version.is_some_and(|version| {
                !OLDER
                    .iter()
                    .any(|known| version.as_bytes() == known.as_bytes())
            }) {
                return None;
            }
        }
        Some(Self {
            id,
            method,
            params,
            is_newer,
        })
    }

    /// Whether a call has somebody to talk to; progress aside, which is the slow lane's anyway.
    fn client_listens(&self, session: Option<&Session>) -> bool {
        if let Some(session) = session {
            return session.listens();
        }
        let meta = self.params.and_then(|params| params.meta.as_ref());
        meta.is_some_and(|meta| {
            let capabilities = meta.client_capabilities.map(RawValue::get);
            let capabilities = capabilities.filter(|raw| *raw != "{}");
            let capabilities = capabilities.and_then(|raw| serde_json::from_str(raw).ok());
            meta.log_level.is_some() || capabilities.as_ref().is_some_and(sessions::answers)
        })
    }

    fn asks_for_progress(&self) -> bool {
        self.params
            .and_then(|params| params.meta.as_ref())
            .is_some_and(|meta| meta.progress_token.is_some())
    }
}

fn reads_as<T: DeserializeOwned>(raw: &RawValue) -> bool {
    raw.get() == "{}" || serde_json::from_str::<T>(raw.get()).is_ok()
}

/// Answers a plain request; `None` when it is not this lane's, and then nothing has happened.
pub(super) async fn answer(
    mcp: &Arc<Mcp>,
    caller: &Caller,
    headers: &HeaderMap,
    request: &Request<'_>,
) -> Option<Response> {
    if request.asks_for_progress() {
        return None;
    }
    let is_call = match request.method {
        "tools/call" => true,
        "tools/list" => false,
        _ => return None,
    };
    let session = if request.is_newer {
        None
    } else {
        Some(mcp.sessions.find(headers, caller).ok()?)
    };
    if is_call {
        call(mcp, caller, headers, request, session).await
    } else {
        list(mcp, caller, request, session.as_deref())
    }
}

fn list(
    mcp: &Mcp,
    caller: &Caller,
    request: &Request<'_>,
    session: Option<&Session>,
) -> Option<Response> {
    let cursor = request.params.and_then(|params| params.cursor.as_deref());
    let list = mcp.list_for(&caller.agent, session);
    let page = list.page(cursor)?;
    let tail = mcp.tail(&caller.agent, request.is_newer);
    Some(wire::json(wire::result_in_parts(request.id, page, tail)))
}

async fn call(
    mcp: &Arc<Mcp>,
    caller: &Caller,
    headers: &HeaderMap,
    request: &Request<'_>,
    session: Option<Arc<Session>>,
) -> Option<Response> {
    let params = request.params?;
    let name = params.name.as_deref()?;
    if params.input_responses.is_some() || params.request_state.is_some() {
        return None;
    }
    if request.is_newer && wire::sole(headers, &NAME) != Some(name) {
        return None;
    }
    let arguments = match params.arguments {
        None => handler::no_arguments(),
        Some(arguments) if arguments.get().starts_with('{') && wire::is_sound(arguments) => {
            arguments.to_owned()
        }
        Some(_) => return None,
    };
    let worker = match &session {
        Some(session) => Some(session.to_string()),
        None => params
            .meta
            .as_ref()
            .and_then(|meta| meta.worker.as_deref())
            .map(str::to_owned),
    };
    let version = match &session {
        Some(session) => session.client.protocol_version.to_string(),
        None => NEWER.to_owned(),
    };
    let cancelled = CancellationToken::new();
    let pipeline = mcp.pipeline.clone();
    let call = pipeline::Request {
        agent: caller.agent.clone(),
        key_id: caller.key_id.clone(),
        tool: name.to_owned(),
        arguments,
        worker,
        client: Arc::new(Unreachable { version }),
        patience: Patience::Wait,
        cancelled: cancelled.clone(),
    };
    let call = pipeline.prepare(call);
    if call.is_conversation(|| request.client_listens(session.as_deref())) {
        return None;
    }
    let mut call = Box::pin(async move { pipeline.go(call).await });
    let asked = Asked {
        mcp,
        caller,
        id: request.id,
        name,
        arguments: params.arguments,
        is_newer: request.is_newer,
    };
    // Most calls are done at once, and need no place in the session and no timer.
    if let Poll::Ready(answer) = futures::poll!(call.as_mut()) {
        return Some(asked.respond(answer));
    }
    let in_flight = match &session {
        Some(session) => {
            let id: RequestId = serde_json::from_str(request.id).ok()?;
            match session.register(id, &cancelled) {
                Some(in_flight) => Some(in_flight),
                None => return Some(super::id_in_use(request.id)),
            }
        }
        None => None,
    };
    tokio::select! {
        biased;
        answer = call.as_mut() => Some(asked.respond(answer)),
        () = tokio::time::sleep(mcp.settings.stream_after) => {
            let (id, name, is_newer) = (request.id.to_owned(), name.to_owned(), request.is_newer);
            let (shared, caller) = (mcp.clone(), caller.clone());
            let arguments = params.arguments.map(RawValue::to_owned);
            let event = async move {
                let _in_flight = in_flight;
                let asked = Asked {
                    mcp: &shared,
                    caller: &caller,
                    id: &id,
                    name: &name,
                    arguments: arguments.as_deref(),
                    is_newer,
                };
                let (_, message) = asked.message(call.await)?;
                Some(wire::event(&message))
            };
            Some(mcp.streams.finite(stream::once(event).filter_map(std::future::ready)))
        }
    }
}

/// A call that is to be answered.
struct Asked<'a> {
    mcp: &'a Mcp,
    caller: &'a Caller,
    id: &'a str,
    name: &'a str,
    /// As they were sent.
    arguments: Option<&'a RawValue>,
    is_newer: bool,
}

impl Asked<'_> {
    fn respond(&self, answer: Answer) -> Response {
        match self.message(answer) {
            Some((status, message)) => {
                let mut response = wire::json(message);
                *response.status_mut() = status;
                response
            }
            None => wire::stream(Body::empty()),
        }
    }

    /// The answer as a message, and the status that says it too; a cancelled call has none.
    fn message(&self, answer: Answer) -> Option<(StatusCode, Vec<u8>)> {
        let Self {
            id, name, is_newer, ..
        } = *self;
        let result = match answer {
            Answer::Done(Output::NeedsInput(questions)) => match self.sealed(questions) {
                Ok(questions) => questions,
                Err(error) => {
                    let message = wire::error(id, error.code.0, &error.message);
                    return Some((StatusCode::OK, message));
                }
            },
            Answer::Done(output) => results::done(output, is_newer),
            Answer::Failed(failure) => match results::protocol_error(&failure) {
                Some(RpcError {
                    code,
                    message,
                    data,
                }) => {
                    let status = match code {
                        wire::MISSING_CAPABILITY if is_newer => StatusCode::BAD_REQUEST,
                        _ => StatusCode::OK,
                    };
                    let message = wire::error_with(id, code, &message, data.as_ref());
                    return Some((status, message));
                }
                None => results::failed(&failure.message, is_newer).into(),
            },
            Answer::Awaiting(awaiting) => results::awaiting(name, &awaiting, is_newer).into(),
            Answer::UnknownTool => {
                let message = results::unknown_tool(name);
                let message = wire::error(id, INVALID_PARAMS, &message);
                return Some((StatusCode::OK, message));
            }
            Answer::Cancelled => return None,
        };
        Some((StatusCode::OK, wire::result(id, &result)))
    }

    /// A tool's questions, with its state sealed.
    fn sealed(&self, mut questions: Value) -> Result<Bytes, ErrorData> {
        let none = handler::no_arguments();
        let arguments = self.arguments.unwrap_or(&none);
        asking::seal_state(self.mcp, self.caller, self.name, arguments, &mut questions)?;
        Ok(questions.to_string().into())
    }
}

/// The client of a call on this lane, which cannot be talked to: tools that talk are the slow lane's.
pub(super) struct Unreachable {
    version: String,
}

impl Unreachable {
    /// One that speaks the newer revision.
    pub(super) fn newer() -> Self {
        Self {
            version: NEWER.to_owned(),
        }
    }
}

impl Client for Unreachable {
    fn protocol_version(&self) -> &str {
        &self.version
    }

    fn capabilities(&self) -> Value {
        Value::Object(Default::default())
    }

    fn progress_token(&self) -> Option<Value> {
        None
    }

    fn retry(&self) -> Option<Value> {
        None
    }

    fn notify<'a>(&'a self, _: &'a str, _: Value) -> BoxFuture<'a, Result<(), RpcError>> {
        Box::pin(std::future::ready(Err(unreachable())))
    }

    fn request<'a>(&'a self, _: &'a str, _: Value) -> BoxFuture<'a, Result<Value, RpcError>> {
        Box::pin(std::future::ready(Err(unreachable())))
    }
}

fn unreachable() -> RpcError {
    RpcError {
        code: -32603,
        message: "a tool that talks to its client must say so: Tool::interactive".to_owned(),
        data: None,
    }
}
