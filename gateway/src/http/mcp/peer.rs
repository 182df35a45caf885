//! The client at the other end of a request on the slow lane.

use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use rmcp::RoleServer;
use rmcp::model::{
    ClientResult, CustomNotification, CustomRequest, ServerNotification, ServerRequest,
};
use rmcp::service::{RequestContext, ServiceError};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, interval_at};

use super::wire::{Message, NEWER};
use crate::family::{Client, RpcError};

pub(super) struct Peer {
    context: RequestContext<RoleServer>,
    version: String,
    body: Bytes,
    progress: Mutex<Progress>,
    /// What the tool gets to see of an earlier round.
    retry: Option<Value>,
}

/// What the client was told last. Progress may only grow.
#[derive(Clone, Copy, Default)]
struct Progress {
    reached: f64,
    /// The tool reports for itself.
    by_tool: bool,
}

impl Peer {
    pub(super) fn new(context: RequestContext<RoleServer>, body: &Bytes) -> Self {
        Self {
            version: context
                .protocol_version()
                .map_or_else(String::new, |version| version.to_string()),
            context,
            body: body.clone(),
            progress: Mutex::default(),
            retry: None,
        }
    }

    /// With the family's part of what the client sent back of an earlier round.
    pub(super) fn with_retry(mut self, retry: Option<Value>) -> Self {
        self.retry = retry;
        self
    }

    /// What the client sent back of an earlier round, as it came.
    pub(super) fn sent_back(&self) -> Option<Value> {
        let message = Message::parse(&self.body).ok()?;
        let params = message.params()?;
        let fields: Map<String, Value> = [
            ("inputResponses", params.input_responses),
            ("requestState", params.request_state),
        ]
        .into_iter()
        .filter_map(|(name, raw)| Some((name.to_owned(), serde_json::from_str(raw?.get()).ok()?)))
        .collect();
        (!fields.is_empty()).then_some(Value::Object(fields))
    }

    /// `_meta["chandlery.dev/worker"]`.
    pub(super) fn worker(&self) -> Option<String> {
        let message = Message::parse(&self.body).ok()?;
        Some(
            message
                .params()?
                .meta
                .as_ref()?
                .worker
                .as_deref()?
                .to_owned(),
        )
    }

    /// Waits for `call`, and says every `interval` that it goes on, to a client that asked to be told.
    pub(super) async fn progress_while<T>(
        &self,
        interval: Duration,
        call: impl Future<Output = T>,
    ) -> T {
        let Some(token) = self.progress_token() else {
            return call.await;
        };
        let mut ticks = interval_at(Instant::now() + interval, interval);
        let mut call = std::pin::pin!(call);
        loop {
            tokio::select! {
                biased;
                result = call.as_mut() => return result,
                _ = ticks.tick() => {
                    let params = json!({
                        "progressToken": token,
                        "progress": self.a_little_more(),
                        "message": "still running",
                    });
                    // A client that is gone is noticed elsewhere.
                    let _ = self.send("notifications/progress", params).await;
                }
            }
        }
    }

    fn a_little_more(&self) -> f64 {
        let mut progress = self.progress.lock();
        progress.reached = if progress.by_tool {
            progress.reached.next_up()
        } else {
            progress.reached + 1.0
        };
        progress.reached
    }

    async fn send(&self, method: &str, params: Value) -> Result<(), RpcError> {
        let notification = CustomNotification::new(method, Some(params));
        self.context
            .peer
            .send_notification(ServerNotification::CustomNotification(notification))
            .await
            .map_err(rpc_error)
    }
}

impl Client for Peer {
    fn protocol_version(&self) -> &str {
        &self.version
    }

    fn capabilities(&self) -> Value {
        self.context
            .client_capabilities()
            .and_then(|capabilities| serde_json::to_value(capabilities).ok())
            .unwrap_or_else(|| Value::Object(Map::new()))
    }

    fn progress_token(&self) -> Option<Value> {
        serde_json::to_value(self.context.meta.get_progress_token()?).ok()
    }

    fn log_level(&self) -> Option<Value> {
        serde_json::to_value(self.context.meta.log_level()?).ok()
    }

    fn retry(&self) -> Option<Value> {
        self.retry.clone()
    }

    fn notify<'a>(&'a self, method: &'a str, params: Value) -> BoxFuture<'a, Result<(), RpcError>> {
        if method == "notifications/progress"
            && let Some(reached) = params["progress"].as_f64()
        {
            *self.progress.lock() = Progress {
                reached,
                by_tool: true,
            };
        }
        if method == "notifications/message"
            && !wants_log(&self.version, self.log_level().as_ref(), &params)
        {
            return futures::future::ready(Ok(())).boxed();
        }
        self.send(method, params).boxed()
    }

    fn request<'a>(
        &'a self,
        method: &'a str,
        params: Value,
    ) -> BoxFuture<'a, Result<Value, RpcError>> {
        let request = CustomRequest::new(method, Some(params));
        async move {
            let answer = self
                .context
                .peer
                .send_request(ServerRequest::CustomRequest(request))
                .await
                .map_err(rpc_error)?;
            result(answer)
        }
        .boxed()
    }
}

/// A client's answer as JSON.
pub(super) fn result(answer: ClientResult) -> Result<Value, RpcError> {
    let answer = match answer {
        ClientResult::CustomResult(result) => Ok(result.0),
        other => serde_json::to_value(other),
    };
    answer.map_err(|_| gone())
}

/// In the newer era a client gets log messages only for requests that say from which level on.
pub(super) fn wants_log(version: &str, from: Option<&Value>, params: &Value) -> bool {
    version != NEWER || from.is_some_and(|from| weight(&params["level"]) >= weight(from))
}

/// How grave a log level is.
fn weight(level: &Value) -> Option<usize> {
    const LEVELS: [&str; 8] = [
        "debug",
        "info",
        "notice",
        "warning",
        "error",
        "critical",
        "alert",
        "emergency",
    ];
    LEVELS.iter().position(|known| level == known)
}

fn rpc_error(failure: ServiceError) -> RpcError {
    match failure {
        ServiceError::McpError(error) => RpcError {
            code: error.code.0,
            message: error.message.into_owned(),
            data: error.data,
        },
        _ => gone(),
    }
}

pub(super) fn gone() -> RpcError {
    RpcError {
        code: -32603,
        message: "the client could not be reached".to_owned(),
        data: None,
    }
}
