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
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::direct::Direct;
use super::sessions::{InFlight, Session};
use super::wire::{
    self, INVALID_PARAMS, METHOD, Message, NAME, NEWER, OLDER, PROTOCOL_VERSION, Params,
};
use super::{Mcp, asking, handler, results, tasks};
use crate::family::{self, Client as _, RpcError};
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

    /// Who calls, and what is said to it while the call runs, if it listens.
    fn client(
        &self,
        session: Option<&Arc<Session>>,
    ) -> Option<(Direct, Option<mpsc::Receiver<Bytes>>)> {
        if let Some(session) = session {
            return Some(Direct::in_session(session));
        }
        let meta = self.params?.meta.as_ref()?;
        let level = meta.log_level.map(|raw| serde_json::from_str(raw.get()));
        let capabilities = serde_json::from_str(meta.client_capabilities?.get()).ok()?;
        Some(Direct::newer(capabilities, level.transpose().ok()?))
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
    let (client, said) = request.client(session.as_ref())?;
    let takes_tasks = request.is_newer && family::has_tasks(&client.capabilities());
    let cancelled = CancellationToken::new();
    let pipeline = mcp.pipeline.clone();
    let call = pipeline::Request {
        agent: caller.agent.clone(),
        key_id: caller.key_id.clone(),
        tool: name.to_owned(),
        arguments,
        worker,
        client: Arc::new(client),
        patience: Patience::Wait,
        cancelled: cancelled.clone(),
    };
    let call = pipeline.prepare(call);
    if call.is_conversation() {
        return None;
    }
    // A client that goes has cancelled its call.
    let gone = cancelled.clone().drop_guard();
    let mut running = Running {
        call: Box::pin(async move { pipeline.go(call).await }),
        said,
        in_flight: None,
        _gone: gone,
    };
    let asked = Asked {
        mcp,
        caller,
        id: request.id,
        name,
        arguments: params.arguments,
        is_newer: request.is_newer,
        takes_tasks,
    };
    // Most calls are done at once, and need no place in the session and no timer.
    if let Poll::Ready(answer) = futures::poll!(running.call.as_mut()) {
        return Some(asked.respond(answer, running.rest()));
    }
    if let Some(session) = &session {
        let id: RequestId = serde_json::from_str(request.id).ok()?;
        running.in_flight = session.register(id, &cancelled);
        if running.in_flight.is_none() {
            return Some(super::id_in_use(request.id));
        }
    }
    let first = tokio::select! {
        biased;
        answer = running.call.as_mut() => {
            return Some(asked.respond(answer, running.rest()));
        }
        first = hear(&mut running.said) => Some(first),
        () = tokio::time::sleep(mcp.settings.stream_after) => None,
    };
    let asked = Kept {
        mcp: mcp.clone(),
        caller: caller.clone(),
        id: request.id.to_owned(),
        name: name.to_owned(),
        arguments: params.arguments.map(RawValue::to_owned),
        is_newer: request.is_newer,
        takes_tasks,
    };
    let later = stream::unfold(Some((running, asked)), |state| async move {
        let (mut running, asked) = state?;
        tokio::select! {
            biased;
            event = hear(&mut running.said) => Some((event, Some((running, asked)))),
            answer = running.call.as_mut() => {
                Some((asked.asked().events(answer, running.rest()), None))
            }
        }
    });
    Some(mcp.streams.finite(stream::iter(first).chain(later)))
}

/// A call that runs. Dropping it cancels it.
struct Running {
    call: BoxFuture<'static, Answer>,
    /// What is said to the client meanwhile.
    said: Option<mpsc::Receiver<Bytes>>,
    /// Its place in the session.
    in_flight: Option<InFlight>,
    _gone: DropGuard,
}

impl Running {
    /// What has been said and not heard before the call ended.
    fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        while let Some(Ok(event)) = self.said.as_mut().map(mpsc::Receiver::try_recv) {
            rest.extend_from_slice(&event);
        }
        rest
    }
}

/// The next event; never, once there is nobody to say any more.
async fn hear(said: &mut Option<mpsc::Receiver<Bytes>>) -> Bytes {
    if let Some(said) = said
        && let Some(event) = said.recv().await
    {
        return event;
    }
    std::future::pending().await
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
    takes_tasks: bool,
}

/// The same, of a call whose answer is a stream by now.
struct Kept {
    mcp: Arc<Mcp>,
    caller: Caller,
    id: String,
    name: String,
    arguments: Option<Box<RawValue>>,
    is_newer: bool,
    takes_tasks: bool,
}

impl Kept {
    fn asked(&self) -> Asked<'_> {
        Asked {
            mcp: &self.mcp,
            caller: &self.caller,
            id: &self.id,
            name: &self.name,
            arguments: self.arguments.as_deref(),
            is_newer: self.is_newer,
            takes_tasks: self.takes_tasks,
        }
    }
}

impl Asked<'_> {
    /// The answer; a stream if events come before it.
    fn respond(&self, answer: Answer, before: Vec<u8>) -> Response {
        if !before.is_empty() {
            return wire::stream(self.events(answer, before).into());
        }
        match self.message(answer) {
            Some((status, message)) => {
                let mut response = wire::json(message);
                *response.status_mut() = status;
                response
            }
            None => wire::stream(Body::empty()),
        }
    }

    /// The answer as an event, after others.
    fn events(&self, answer: Answer, mut before: Vec<u8>) -> Bytes {
        if let Some((_, message)) = self.message(answer) {
            before.extend_from_slice(&wire::event(&message));
        }
        before.into()
    }

    /// The answer as a message, and the status that says it too; a cancelled call has none.
    fn message(&self, answer: Answer) -> Option<(StatusCode, Vec<u8>)> {
        let Self {
            id, name, is_newer, ..
        } = *self;
        let result = match answer {
            Answer::Done(Output::NeedsInput(questions)) => match self.sealed(questions) {
                Ok(questions) => questions,
                Err(error) => return Some(unsealed(id, &error)),
            },
            Answer::Done(Output::Task { source, task }) if self.takes_tasks => {
                match tasks::begun(self.mcp, self.caller, name, source, task) {
                    Ok(task) => json!(task).to_string().into(),
                    Err(error) => return Some(unsealed(id, &error)),
                }
            }
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

/// The answer to a call whose result cannot go out.
fn unsealed(id: &str, error: &ErrorData) -> (StatusCode, Vec<u8>) {
    let message = wire::error(id, error.code.0, &error.message);
    (StatusCode::OK, message)
}
