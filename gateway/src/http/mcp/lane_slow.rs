//! The slow lane: whatever streams, asks, or is rare, through rmcp's service.
//!
//! The newer era goes through rmcp's own HTTP service, made anew for each request. The older era has its HTTP here:
//! each call is one rmcp service loop over a transport of its own, so an idle session costs nothing.

use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::request::Parts;
use http::{HeaderValue, Request, StatusCode};
use http_body_util::Full;
use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, GetMeta, InitializeRequestParams,
    JsonRpcMessage, JsonRpcRequest, NumberOrString, ProtocolVersion, RequestId,
    ServerJsonRpcMessage, ServerNotification, ServerResult,
};
use rmcp::service::{RunningService, serve_directly_with_ct};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService, Transport};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Mcp;
use super::handler::Handler;
use super::sessions::{InFlight, QUEUE, Session};
use super::wire::{self, INVALID_REQUEST, NEWER, OLDER, PROTOCOL_VERSION};
use crate::http::access::Caller;

/// One POST, as this lane gets it.
pub(super) struct Posted {
    pub(super) parts: Parts,
    pub(super) body: Bytes,
    /// The body, typed.
    pub(super) message: ClientJsonRpcMessage,
}

/// Answers a message of the newer era.
pub(super) async fn newer(mcp: &Arc<Mcp>, caller: &Caller, posted: Posted) -> Response {
    let Posted {
        parts,
        body,
        message,
    } = posted;
    // A client that wants progress gets a stream however soon the result is there.
    let wants_progress = matches!(&message, JsonRpcMessage::Request(request)
        if request.request.get_meta().get_progress_token().is_some());
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(!wants_progress)
        .with_sse_keep_alive(None)
        .with_sse_retry(None)
        .disable_allowed_hosts()
        .with_max_request_body_bytes(body.len().max(1));
    let mut handler = Handler::newer(mcp, caller, &body);
    if matches!(&message, JsonRpcMessage::Request(request)
        if matches!(request.request, ClientRequest::DiscoverRequest(_)))
    {
        handler = handler.with_instructions().await;
    }
    let service = StreamableHttpService::new(
        move || Ok(handler.clone()),
        Arc::new(NeverSessionManager::default()),
        config,
    );
    let request = Request::from_parts(parts, Full::new(body));
    let mut answer = Box::pin(async move { service.handle(request).await.map(Body::new) });
    tokio::select! {
        answer = answer.as_mut() => kept(mcp, answer),
        () = tokio::time::sleep(mcp.settings.stream_after) => {
            mcp.streams.finite(stream::once(answer).flat_map(events))
        }
    }
}

/// The answer as it is, with comments in its silences if it is a stream.
fn kept(mcp: &Mcp, answer: Response) -> Response {
    if is_stream(&answer) {
        mcp.streams.finite(events(answer))
    } else {
        answer
    }
}

fn is_stream(answer: &Response) -> bool {
    answer
        .headers()
        .get(http::header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

/// An answer as events: those of a stream as they come, a single message as one.
fn events(answer: Response) -> impl futures::Stream<Item = Bytes> + Send + 'static {
    let as_it_is = is_stream(&answer);
    answer
        .into_body()
        .into_data_stream()
        .filter_map(|data| std::future::ready(data.ok()))
        .map(move |data| if as_it_is { data } else { wire::event(&data) })
}

/// Answers a message of the older era.
pub(super) async fn older(mcp: &Arc<Mcp>, caller: &Caller, posted: Posted) -> Response {
    let Posted {
        parts,
        body,
        message,
    } = posted;
    let version = wire::text(&parts.headers, &PROTOCOL_VERSION);
    if version.is_some_and(|version| version != NEWER && !OLDER.contains(&version)) {
        let spoken = OLDER.join(", ");
        return wire::refuse(
            StatusCode::BAD_REQUEST,
            INVALID_REQUEST,
            &format!("Unsupported MCP-Protocol-Version: this endpoint speaks {NEWER}, {spoken}"),
        );
    }
    let message = match message {
        JsonRpcMessage::Request(request) => {
            if let ClientRequest::InitializeRequest(initialize) = &request.request {
                let client = initialize.params.clone();
                return open(mcp, caller, client, request, &body).await;
            }
            JsonRpcMessage::Request(request)
        }
        message => message,
    };
    let session = match mcp.sessions.find(&parts.headers, caller) {
        Ok(session) => session,
        Err(status) => return super::no_session(status),
    };
    match message {
        JsonRpcMessage::Request(request) => {
            return call(mcp, caller, session, request, &body).await;
        }
        JsonRpcMessage::Notification(notification) => {
            if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                && let Some(id) = &cancelled.params.request_id
            {
                session.cancel(id);
            }
        }
        answer @ (JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)) => session.answer(answer),
    }
    wire::empty(StatusCode::ACCEPTED)
}

/// Opens a session.
async fn open(
    mcp: &Arc<Mcp>,
    caller: &Caller,
    mut client: InitializeRequestParams,
    request: JsonRpcRequest<ClientRequest>,
    body: &Bytes,
) -> Response {
    client.meta = None;
    if !OLDER.contains(&client.protocol_version.as_str()) {
        client.protocol_version = ProtocolVersion::V_2025_11_25;
    }
    let handler = Handler::older(mcp, caller, None, body)
        .with_instructions()
        .await;
    let mut running = Running::start(handler, None, request, client.clone());
    let Some(mut answer) = running.messages.recv().await else {
        return wire::empty(StatusCode::INTERNAL_SERVER_ERROR);
    };
    let JsonRpcMessage::Response(response) = &mut answer else {
        return wire::json(encode(&answer));
    };
    if let ServerResult::InitializeResult(result) = &mut response.result {
        result.protocol_version = client.protocol_version.clone();
    }
    let list = mcp.list(&caller.agent);
    let Some(session) = mcp.sessions.open(caller, client, list) else {
        return super::overloaded("too many sessions are open; try again later");
    };
    let mut response = wire::json(encode(&answer));
    if let Ok(id) = HeaderValue::from_str(&session.to_string()) {
        response.headers_mut().insert(wire::SESSION_ID, id);
    }
    response
}

/// Runs one request inside a session.
async fn call(
    mcp: &Arc<Mcp>,
    caller: &Caller,
    session: Arc<Session>,
    request: JsonRpcRequest<ClientRequest>,
    body: &Bytes,
) -> Response {
    let wants_progress = request.request.get_meta().get_progress_token().is_some();
    let cancelled = CancellationToken::new();
    let Some(in_flight) = session.register(request.id.clone(), &cancelled) else {
        return super::id_in_use(&encode_id(&request.id));
    };
    let client = (*session.client).clone();
    let handler = Handler::older(mcp, caller, Some(session.clone()), body);
    let mut running = Running::start(
        handler,
        Some((session, in_flight, cancelled.clone())),
        request,
        client,
    );
    let first = if wants_progress {
        None
    } else {
        tokio::select! {
            // Before the message that says so.
            biased;
            () = cancelled.cancelled() => return wire::stream(Body::empty()),
            message = running.messages.recv() => message,
            () = tokio::time::sleep(mcp.settings.stream_after) => None,
        }
    };
    if let Some(answer) = first.as_ref().filter(|message| is_last(message)) {
        return wire::json(encode(answer));
    }
    let events = stream::unfold(Some((first, running, cancelled)), |state| async move {
        let (mut first, mut running, cancelled) = state?;
        let message = match first.take() {
            Some(message) => message,
            // rmcp keeps the answer of a cancelled call to itself: the stream ends here.
            None => tokio::select! {
                biased;
                () = cancelled.cancelled() => return None,
                message = running.messages.recv() => message?,
            },
        };
        let event = wire::event(&encode(&message));
        let more = !is_last(&message);
        Some((event, more.then_some((None, running, cancelled))))
    });
    mcp.streams.finite(events)
}

fn is_last(message: &ServerJsonRpcMessage) -> bool {
    matches!(
        message,
        JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)
    )
}

fn encode(message: &ServerJsonRpcMessage) -> Vec<u8> {
    serde_json::to_vec(message).expect("protocol messages serialize")
}

fn encode_id(id: &RequestId) -> String {
    serde_json::to_string(id).expect("ids serialize")
}

/// A request that runs in an rmcp service loop. Dropping it cancels the request and forgets its questions.
struct Running {
    _service: RunningService<RoleServer, Handler>,
    /// What rmcp sends, the answer last.
    messages: mpsc::Receiver<ServerJsonRpcMessage>,
    session: Option<Arc<Session>>,
    _in_flight: Option<InFlight>,
    answers: mpsc::Sender<ClientJsonRpcMessage>,
}

impl Running {
    fn start(
        handler: Handler,
        session: Option<(Arc<Session>, InFlight, CancellationToken)>,
        request: JsonRpcRequest<ClientRequest>,
        client: InitializeRequestParams,
    ) -> Self {
        let (outgoing, messages) = mpsc::channel(QUEUE);
        let (answers, incoming) = mpsc::channel(QUEUE);
        let (session, in_flight, cancelled) = match session {
            Some((session, in_flight, cancelled)) => (Some(session), Some(in_flight), cancelled),
            None => (None, None, CancellationToken::new()),
        };
        let transport = CallTransport {
            request: Some(JsonRpcMessage::Request(request)),
            incoming,
            answers: answers.clone(),
            outgoing,
            session: session.clone(),
            answered: CancellationToken::new(),
        };
        Self {
            _service: serve_directly_with_ct(handler, transport, Some(client), cancelled),
            messages,
            session,
            _in_flight: in_flight,
            answers,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(session) = &self.session {
            session.take_back_all(&self.answers);
        }
    }
}

/// Carries one request into an rmcp service loop, and what comes of it out.
///
/// Each loop numbers its questions from the start, so they get numbers of the session on their way out.
struct CallTransport {
    request: Option<ClientJsonRpcMessage>,
    incoming: mpsc::Receiver<ClientJsonRpcMessage>,
    answers: mpsc::Sender<ClientJsonRpcMessage>,
    outgoing: mpsc::Sender<ServerJsonRpcMessage>,
    session: Option<Arc<Session>>,
    answered: CancellationToken,
}

impl Transport<RoleServer> for CallTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        mut message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let mut can_go = true;
        match (&mut message, &self.session) {
            (JsonRpcMessage::Request(question), Some(session)) => {
                let outgoing = session.ask(question.id.clone(), &self.answers);
                question.id = NumberOrString::Number(outgoing.into());
            }
            (JsonRpcMessage::Request(_), None) => can_go = false,
            (JsonRpcMessage::Notification(notification), Some(session)) => {
                if let ServerNotification::CancelledNotification(cancelled) =
                    &mut notification.notification
                    && let Some(id) = &cancelled.params.request_id
                    && let Some(outgoing) = session.take_back(id, &self.answers)
                {
                    cancelled.params.request_id = Some(NumberOrString::Number(outgoing.into()));
                }
            }
            _ => {}
        }
        let outgoing = self.outgoing.clone();
        let answered = is_last(&message).then(|| self.answered.clone());
        async move {
            if !can_go {
                return Err(io::Error::other("there is no session to ask in"));
            }
            let sent = outgoing.send(message).await;
            if let Some(answered) = answered {
                answered.cancel();
            }
            sent.map_err(|_| io::Error::other("the client has gone"))
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        if let Some(request) = self.request.take() {
            return Some(request);
        }
        tokio::select! {
            message = self.incoming.recv() => message,
            () = self.answered.cancelled() => None,
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        self.incoming.close();
        Ok(())
    }
}
