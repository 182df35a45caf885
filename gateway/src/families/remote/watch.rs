//! Finds out that a server offers something else now: it says so on a stream, if it can.

use std::time::Duration;

use http::{Method, StatusCode, header};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

use super::events::Events;
use super::server::{Asking, Server, Spoken};
use super::trouble::Trouble;
use super::wire::{self, METHOD, Message, Meta, NEWER_VALUE, PROTOCOL_VERSION, Params, Request};
use crate::family::Change;

/// Between two attempts to listen.
pub(super) const PAUSE: Duration = Duration::from_secs(15);
/// How often sessions are looked through for idle ones.
const SWEEP: Duration = Duration::from_secs(60);

/// Of which of its lists a server tells changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tells {
    pub(super) tools: bool,
    pub(super) resources: bool,
    pub(super) prompts: bool,
}

impl Tells {
    pub(super) fn of(capabilities: &Value) -> Self {
        let tells = |list: &str| capabilities[list]["listChanged"] == true;
        Self {
            tools: tells("tools"),
            resources: tells("resources"),
            prompts: tells("prompts"),
        }
    }

    /// What to ask a server of the newer era for.
    fn filter(self) -> Value {
        let wanted = [
            ("toolsListChanged", self.tools),
            ("resourcesListChanged", self.resources),
            ("promptsListChanged", self.prompts),
        ];
        let wanted = wanted.into_iter().filter(|(_, tells)| *tells);
        wanted
            .map(|(name, _)| (name.to_owned(), json!(true)))
            .collect()
    }

    fn nothing(self) -> bool {
        !(self.tools || self.resources || self.prompts)
    }
}

/// Ends when the tools have changed; that other lists have is passed on. Meanwhile it closes sessions that nobody uses.
pub(super) async fn changed(server: &Server, spoken: Spoken, tells: Tells) {
    let told = async {
        if tells.nothing() {
            std::future::pending::<()>().await;
        }
        loop {
            match listen(server, spoken, tells).await {
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
async fn listen(server: &Server, spoken: Spoken, tells: Tells) -> Result<bool, Trouble> {
    let never = CancellationToken::new();
    let asking = Asking::itself(&never);
    let mut events = open(server, spoken, &asking, &tells.filter()).await?;
    while let Some(event) = events.next().await {
        let event = event?;
        let message = Message::parse(&event);
        match message.and_then(|message| message.method).as_deref() {
            Some("notifications/tools/list_changed") => return Ok(true),
            Some("notifications/resources/list_changed") => {
                server.changes.list(Change::ResourceList);
            }
            Some("notifications/prompts/list_changed") => server.changes.list(Change::PromptList),
            _ => {}
        }
    }
    Ok(false)
}

/// Opens a stream on which a server tells what changes: what `filter` names in the newer era, else what concerns the
/// session.
pub(super) async fn open(
    server: &Server,
    spoken: Spoken,
    asking: &Asking<'_>,
    filter: &Value,
) -> Result<Events, Trouble> {
    let (request, session) = if spoken.newer {
        let request = Request {
            method: "subscriptions/listen",
            params: Params::default().with("notifications", filter),
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
        let session = server.session(&server.key(asking)).await?;
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
    let answer = server.upstream.listen(request).await?;
    let status = answer.status();
    if !status.is_success() || !answer.body().is_events() {
        if let (StatusCode::NOT_FOUND, Some(session)) = (status, session) {
            server.sessions.forget(&session);
            return Err(Trouble::NoSession);
        }
        return Err(Trouble::Status(status));
    }
    Ok(Events::new(answer.into_body()))
}
