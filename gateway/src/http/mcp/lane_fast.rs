//! The fast lane: plain `tools/list` and `tools/call`, answered from borrowed bytes, without a task of their own.
//!
//! It accepts or declines, it never rejects: what is not plain and sound is the slow lane's to judge.

use std::sync::Arc;
use std::task::Poll;

use axum::body::Body;
use axum::response::Response;
use futures::future::BoxFuture;
use futures::{StreamExt, stream};
use http::HeaderMap;
use rmcp::model::{ClientCapabilities, Implementation, RequestId};
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::sessions::Session;
use super::wire::{
    self, INVALID_PARAMS, METHOD, Message, NAME, NEWER, OLDER, PROTOCOL_VERSION, Params,
};
use super::{Mcp, handler, results};
use crate::family::{Client, RpcError};
use crate::http::access::Caller;
use crate::pipeline::{self, Answer, Patience};

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
        if message.result || message.error || params.is_none() && message.params.is_some() {
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
    if call.is_conversation() {
        return None;
    }
    let mut call = Box::pin(async move { pipeline.go(call).await });
    // Most calls are done at once, and need no place in the session and no timer.
    if let Poll::Ready(answer) = futures::poll!(call.as_mut()) {
        return Some(respond(request.id, name, answer, request.is_newer));
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
        answer = call.as_mut() => Some(respond(request.id, name, answer, request.is_newer)),
        () = tokio::time::sleep(mcp.settings.stream_after) => {
            let (id, name, is_newer) = (request.id.to_owned(), name.to_owned(), request.is_newer);
            let event = async move {
                let _in_flight = in_flight;
                let message = message(&id, &name, call.await, is_newer)?;
                Some(wire::event(&message))
            };
            Some(mcp.streams.finite(stream::once(event).filter_map(std::future::ready)))
        }
    }
}

fn respond(id: &str, name: &str, answer: Answer, is_newer: bool) -> Response {
    match message(id, name, answer, is_newer) {
        Some(message) => wire::json(message),
        None => wire::stream(Body::empty()),
    }
}

/// The answer as a message; a cancelled call has none.
fn message(id: &str, name: &str, answer: Answer, is_newer: bool) -> Option<Vec<u8>> {
    let result = match answer {
        Answer::Done(output) => results::done(output, is_newer),
        Answer::Failed(failure) => results::failed(&failure.message, is_newer),
        Answer::Awaiting(awaiting) => results::awaiting(name, &awaiting, is_newer),
        Answer::UnknownTool => {
            return Some(wire::error(
                id,
                INVALID_PARAMS,
                &results::unknown_tool(name),
            ));
        }
        Answer::Cancelled => return None,
    };
    Some(wire::result(id, &result))
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
