//! The older era: sessions are opened with `initialize`, used for what needs no answer of its own, and closed.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::{HeaderValue, Method};
use serde_json::{Map, Value, json};

use super::conversation;
use super::server::{Asking, Nobody, Server, Tally, relayed};
use super::sessions::{Key, Session};
use super::trouble::Trouble;
use super::wire::{self, Message, SESSION_ID};
use crate::family::{NEWER, OLDER, RpcError};

impl Server {
    /// The session for a client, opened if there is none.
    pub(super) async fn session(&self, key: &Key) -> Result<Arc<Session>, Trouble> {
        let opened = self.sessions.get(key, self.open(key)).await;
        let (session, crowded) = opened?;
        if let Some(crowded) = crowded {
            self.close(&crowded).await;
        }
        Ok(session)
    }

    /// What of a client decides which session it has.
    pub(super) fn key(&self, asking: &Asking<'_>) -> Key {
        let can = match asking.client.protocol_version() {
            // It cannot be asked anything in the middle of a call.
            NEWER => Value::Object(Map::new()),
            _ => relayed(asking.client),
        };
        Key {
            agent: asking.agent.to_owned(),
            capabilities: can.to_string(),
        }
    }

    fn open<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Session, Trouble>> {
        Box::pin(async move {
            let id = self.id();
            let initialize = json!({
                "jsonrpc": "2.0",
                "id": id,
                "method": "initialize",
                "params": {
                    "protocolVersion": OLDER[0],
                    "capabilities": parsed(&key.capabilities),
                    "clientInfo": parsed(wire::CLIENT),
                },
            });
            let post = self.post(initialize.to_string().into_bytes());
            let (parts, body) = self.upstream.open(post).await?.into_parts();
            let whole = if body.is_events() && parts.status.is_success() {
                let mut tally = Tally::default();
                conversation::follow(self, None, body, id, &Nobody, &mut tally).await?
            } else {
                let whole = body.whole_bytes().await?;
                let Some(message) = Message::parse(&whole) else {
                    return Err(Trouble::Status(parts.status));
                };
                if let Some(error) = message.error() {
                    return Err(match parts.status.as_u16() {
                        401 | 403 | 429 | 500.. => Trouble::Status(parts.status),
                        _ => Trouble::Rpc(error),
                    });
                }
                let result = message.result;
                let result = result.ok_or(Trouble::Broken("it does not answer initialize"))?;
                whole.slice_ref(result.get().as_bytes())
            };
            let result: Value = serde_json::from_slice(&whole)
                .map_err(|_| Trouble::Broken("its answer to initialize cannot be read"))?;
            let version = result["protocolVersion"].as_str();
            let version = version
                .filter(|version| OLDER.contains(version))
                .and_then(|version| HeaderValue::from_str(version).ok())
                .ok_or(Trouble::Broken("it speaks no revision that we know"))?;
            let session = Session {
                key: key.clone(),
                id: parts.headers.get(SESSION_ID).cloned(),
                version,
                capabilities: result["capabilities"].clone(),
            };
            self.notify(&session, "notifications/initialized", json!({}))
                .await;
            self.set_level(&session).await;
            Ok(session)
        })
    }

    /// Tells the server which log messages the session's agent wants, if it has said so.
    pub(super) async fn set_level(&self, session: &Session) {
        let level = self.levels.get(&session.key.agent);
        let level = level.map(|level| level.clone());
        if let Some(level) = level.filter(|_| session.capabilities.get("logging").is_some()) {
            let params = json!({"level": level});
            let request = json!({"jsonrpc": "2.0", "id": self.id(), "method": "logging/setLevel", "params": params});
            self.send(session, &request).await;
        }
    }

    /// Tells the server that a session is over.
    pub(super) async fn close(&self, session: &Session) {
        if session.id.is_some() {
            let mut request = self.in_session(session, Vec::new());
            *request.method_mut() = Method::DELETE;
            // One that is not closed ends by itself.
            let _ = self.upstream.open(request).await;
        }
    }

    pub(super) async fn notify(&self, session: &Session, method: &str, params: Value) {
        let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        self.send(session, &message).await;
    }

    /// Answers a question of the server.
    pub(super) async fn answer(
        &self,
        session: &Session,
        id: Value,
        answer: Result<Value, RpcError>,
    ) {
        let message = match answer {
            Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Err(error) => {
                let error = json!({"code": error.code, "message": error.message});
                json!({"jsonrpc": "2.0", "id": id, "error": error})
            }
        };
        self.send(session, &message).await;
    }

    /// Sends what needs no answer. A server that does not take it is noticed by the call itself.
    async fn send(&self, session: &Session, message: &Value) {
        let post = self.in_session(session, message.to_string().into_bytes());
        if let Ok(answer) = self.upstream.open(post).await
            && !answer.body().is_events()
        {
            let _ = answer.into_body().whole_bytes().await;
        }
    }
}

fn parsed(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_default()
}
