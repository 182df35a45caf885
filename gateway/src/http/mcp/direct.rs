//! The client of a call on the fast lane: whatever is said to it before the result turns the answer into a stream.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use rmcp::model::{ClientJsonRpcMessage, ErrorData, JsonRpcMessage, RequestId};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::peer::{self, gone};
use super::sessions::{QUEUE, Session};
use super::wire::{self, NEWER};
use crate::family::{Client, RpcError, TASKS};

pub(super) struct Direct {
    version: String,
    /// Of the newer era; a session knows its own.
    capabilities: Value,
    log_level: Option<Value>,
    line: Option<Line>,
}

/// The way to a client that listens while its call runs.
struct Line {
    /// In which it can be asked; the newer era has none.
    session: Option<Arc<Session>>,
    /// Events of the answer.
    said: mpsc::Sender<Bytes>,
}

impl Direct {
    /// One of the newer era, which wants log messages from a level on, or none; with what is said to it.
    pub(super) fn newer(
        capabilities: Value,
        log_level: Option<Value>,
    ) -> (Self, Option<mpsc::Receiver<Bytes>>) {
        let (line, said) = line(log_level.is_some(), None);
        let client = Self {
            version: NEWER.to_owned(),
            capabilities,
            log_level,
            line,
        };
        (client, said)
    }

    /// One that called in a session, with what is said to it.
    pub(super) fn in_session(session: &Arc<Session>) -> (Self, Option<mpsc::Receiver<Bytes>>) {
        let (line, said) = line(session.listens(), Some(session));
        let client = Self {
            version: session.client.protocol_version.to_string(),
            capabilities: json!({}),
            log_level: None,
            line,
        };
        (client, said)
    }

    /// One that is not there while its call runs, and looks after it later.
    pub(super) fn away() -> Self {
        Self {
            version: NEWER.to_owned(),
            capabilities: json!({"extensions": {TASKS: {}}}),
            log_level: None,
            line: None,
        }
    }
}

fn line(
    listens: bool,
    session: Option<&Arc<Session>>,
) -> (Option<Line>, Option<mpsc::Receiver<Bytes>>) {
    if !listens {
        return (None, None);
    }
    let (said, heard) = mpsc::channel(QUEUE);
    let session = session.cloned();
    (Some(Line { session, said }), Some(heard))
}

impl Line {
    async fn say(&self, message: Value) -> Result<(), RpcError> {
        let event = wire::event(message.to_string().as_bytes());
        self.said.send(event).await.map_err(|_| gone())
    }

    async fn ask(&self, method: &str, params: Value) -> Result<Value, RpcError> {
        let session = self.session.as_ref().ok_or_else(gone)?;
        let (answers, mut answer) = mpsc::channel(1);
        let question = Question { session, answers };
        // The session's number tells it from other questions.
        let id = session.ask(RequestId::Number(0), &question.answers);
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.say(message).await?;
        tokio::select! {
            answer = answer.recv() => match answer {
                Some(JsonRpcMessage::Response(response)) => peer::result(response.result),
                Some(JsonRpcMessage::Error(error)) => Err(refused(error.error)),
                _ => Err(gone()),
            },
            // Nobody reads the stream any more.
            () = self.said.closed() => Err(gone()),
        }
    }
}

/// A question that is open; dropping it takes it back.
struct Question<'a> {
    session: &'a Session,
    answers: mpsc::Sender<ClientJsonRpcMessage>,
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        self.session.take_back_all(&self.answers);
    }
}

fn refused(error: ErrorData) -> RpcError {
    RpcError {
        code: error.code.0,
        message: error.message.into_owned(),
        data: error.data,
    }
}

impl Client for Direct {
    fn protocol_version(&self) -> &str {
        &self.version
    }

    fn capabilities(&self) -> Value {
        let session = self.line.as_ref().and_then(|line| line.session.as_ref());
        match session {
            // Few calls want to know.
            Some(session) => json!(session.client.capabilities),
            None => self.capabilities.clone(),
        }
    }

    /// Calls that report their progress are the slow lane's.
    fn progress_token(&self) -> Option<Value> {
        None
    }

    fn log_level(&self) -> Option<Value> {
        self.log_level.clone()
    }

    /// Calls that go on after questions are the slow lane's.
    fn retry(&self) -> Option<Value> {
        None
    }

    fn notify<'a>(&'a self, method: &'a str, params: Value) -> BoxFuture<'a, Result<(), RpcError>> {
        Box::pin(async move {
            let line = self.line.as_ref().ok_or_else(gone)?;
            let is_log = method == "notifications/message";
            if is_log && !peer::wants_log(&self.version, self.log_level.as_ref(), &params) {
                return Ok(());
            }
            line.say(json!({"jsonrpc": "2.0", "method": method, "params": params}))
                .await
        })
    }

    fn request<'a>(
        &'a self,
        method: &'a str,
        params: Value,
    ) -> BoxFuture<'a, Result<Value, RpcError>> {
        Box::pin(async move {
            let line = self.line.as_ref().ok_or_else(gone)?;
            line.ask(method, params).await
        })
    }
}
