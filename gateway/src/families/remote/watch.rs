//! Finds out that a server offers something else now: it says so on a stream, if it can.

use std::time::Duration;

use http::{Method, StatusCode, header};
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

use super::events::Events;
use super::server::{Asking, Nobody, Server, Spoken};
use super::trouble::Trouble;
use super::wire::{self, METHOD, Message, Meta, NEWER_VALUE, PROTOCOL_VERSION, Params, Request};

/// Between two attempts to listen.
const PAUSE: Duration = Duration::from_secs(15);
/// How often sessions are looked through for idle ones.
const SWEEP: Duration = Duration::from_secs(60);
const CHANGED: &str = "notifications/tools/list_changed";

/// Ends when the tools have changed. Meanwhile it closes sessions that nobody uses.
pub(super) async fn changed(server: &Server, spoken: Spoken, tells: bool) {
    let told = async {
        if !tells {
            std::future::pending::<()>().await;
        }
        loop {
            match listen(server, spoken).await {
                Ok(true) => return,
                Ok(false) => {}
                // It cannot say so.
                Err(Trouble::Status(StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_FOUND)) => {
                    std::future::pending::<()>().await
                }
                Err(_) => {}
            }
            sleep(PAUSE).await;
        }
    };
    let sweep = async {
        let mut ticks = interval(SWEEP);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            for session in server.sessions.idle() {
                server.close(&session).await;
            }
        }
    };
    tokio::select! {
        () = told => {}
        () = server.has_changed.notified() => {}
        () = sweep => {}
    }
}

/// Listens until the stream ends; whether the tools have changed.
async fn listen(server: &Server, spoken: Spoken) -> Result<bool, Trouble> {
    let (request, session) = if spoken.newer {
        let wanted = json!({"toolsListChanged": true});
        let request = Request {
            method: "subscriptions/listen",
            params: Params::default().with("notifications", &wanted),
            ..Request::default()
        };
        let meta = Meta {
            capabilities: Some("{}"),
            ..Meta::default()
        };
        let mut post = server.post(wire::encode(server.id(), &request, &meta));
        let headers = post.headers_mut();
        headers.insert(PROTOCOL_VERSION, NEWER_VALUE);
        headers.insert(METHOD, wire::header_value(request.method));
        (post, None)
    } else {
        let never = CancellationToken::new();
        let asking = Asking {
            agent: "",
            client: &Nobody,
            takes_tasks: false,
            cancelled: &never,
        };
        let session = server.session(&server.key(&asking)).await?;
        let mut get = server.in_session(&session, Vec::new());
        *get.method_mut() = Method::GET;
        let headers = get.headers_mut();
        headers.remove(header::CONTENT_TYPE);
        headers.insert(
            header::ACCEPT,
            http::HeaderValue::from_static("text/event-stream"),
        );
        (get, Some(session))
    };
    let answer = server.upstream.open(request).await?;
    let status = answer.status();
    if !status.is_success() || !answer.body().is_events() {
        if let (StatusCode::NOT_FOUND, Some(session)) = (status, session) {
            server.sessions.forget(&session);
            return Err(Trouble::NoSession);
        }
        return Err(Trouble::Status(status));
    }
    let mut events = Events::new(answer.into_body());
    while let Some(event) = events.next().await {
        let event = event?;
        let message = Message::parse(&event);
        if message.is_some_and(|message| message.method.as_deref() == Some(CHANGED)) {
            return Ok(true);
        }
    }
    Ok(false)
}
