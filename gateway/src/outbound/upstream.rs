//! One upstream: how many calls at once, how long, how much, how often; with its credential, to its own origin alone.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::time::{Instant, sleep, timeout_at};
use url::Url;

use super::admission::{Admission, Admissions, OperationName, Refused};
use super::body::{Body, Rules};
use super::breaker::Health;
use super::client::Client;
use super::credential::{Attached, Credential};
use super::error::OutboundError;
use super::guard::{Blocked, Guard};
use super::origin::{Call, Origin};
use super::redact::Redactor;
use super::slots::{Slot, Slots};
use crate::times::jittered;

/// How often a call that may be repeated is repeated at most.
const REPEATS: u32 = 2;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// An upstream that asks for a longer pause is not asked again by us.
const LONGEST_PAUSE: Duration = Duration::from_secs(3);
/// What is dialed, and within which bounds.
#[derive(Clone)]
pub struct UpstreamSettings {
    /// For logs and errors: `<namespace>.<source>`.
    pub name: String,
    /// Its scheme, host and port are the origin that gets the credential.
    pub base: Url,
    /// Host names, `*.name`, addresses and ranges that may be private, each with a port or without.
    pub allowed_hosts: Vec<String>,
    /// Certificates in PEM that are trusted beside the public ones.
    pub ca_bundle: Option<String>,
    /// Of a whole call, its repeats included; of an event stream only until it begins.
    pub timeout: Duration,
    /// Of a body, and of one event of a stream, where nothing else is said.
    pub max_response_bytes: usize,
    /// How many calls run at once; as many may wait, and as many event streams may be open.
    pub concurrency: usize,
    pub credential: Option<Arc<dyn Credential>>,
}

/// Whether a call may be made twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    Never,
    /// Once or twice is the same to the upstream.
    Idempotent,
}

/// A whole answer, of whatever status but a redirect.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Waiting for a place and repeats included.
    pub took: Duration,
}

/// How it stands with an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    pub running: usize,
    pub waiting: usize,
    pub streams: usize,
    pub health: Health,
}

/// One upstream. Dropping it closes its idle connections.
pub struct Upstream {
    name: Arc<str>,
    origin: Origin,
    client: Client,
    calls: Slots,
    streams: Slots,
    admissions: Admissions,
    credential: Option<Arc<dyn Credential>>,
    timeout: Duration,
    idle: Duration,
    limit: usize,
}

/// An answer's head that has passed all checks.
struct Head {
    response: Response<Incoming>,
    admission: Admission,
    redactor: Option<Arc<Redactor>>,
    /// How long its body may be.
    limit: usize,
}

impl Upstream {
    pub(super) fn new(
        settings: UpstreamSettings,
        guard: Guard,
        client: Client,
        idle: Duration,
        first_pause: Duration,
    ) -> Result<Self, Blocked> {
        let UpstreamSettings {
            name,
            base,
            allowed_hosts: _,
            ca_bundle: _,
            timeout,
            max_response_bytes,
            concurrency,
            credential,
        } = settings;
        Ok(Self {
            name: name.into(),
            origin: Origin::new(base, guard)?,
            client,
            calls: Slots::new(concurrency, concurrency),
            streams: Slots::new(concurrency, 0),
            admissions: Admissions::new(first_pause, Instant::now()),
            credential,
            timeout,
            idle,
            limit: max_response_bytes,
        })
    }

    /// What its relative URLs are relative to.
    pub fn base(&self) -> &Url {
        self.origin.base()
    }

    /// The whole answer, whatever its status.
    ///
    /// The URL is absolute, or a path of the base's origin; only that origin ever gets the credential. Headers about the
    /// connection are left out. Safe to drop at any time.
    pub async fn fetch(
        &self,
        request: Request<Bytes>,
        repeat: Repeat,
    ) -> Result<Reply, OutboundError> {
        let started = Instant::now();
        let deadline = started + self.timeout;
        let call = self.origin.prepare(request)?;
        let mut repeats = match repeat {
            Repeat::Never => 0,
            Repeat::Idempotent => REPEATS,
        };
        let mut pause = FIRST_PAUSE;
        // Of the last attempt that was answered, or that may have done what it was to do, whatever becomes of the next.
        let mut earlier: Option<Result<Response<Bytes>, OutboundError>> = None;
        loop {
            let answer = match self.enter(deadline).await {
                Ok(slot) => self.once(&call, deadline, slot).await,
                Err(busy) => Err(busy),
            };
            let asked = match &answer {
                Ok(response) => asked_pause(response, pause),
                Err(error) => error.may_pass().then_some(pause),
            };
            match asked.map(jittered) {
                Some(wait) if repeats > 0 && Instant::now() + wait < deadline => sleep(wait).await,
                _ => {
                    let answer = match (answer, earlier) {
                        (Err(error), Some(earlier)) if !error.may_be_done() => earlier,
                        (answer, _) => answer,
                    };
                    let (parts, body) = answer?.into_parts();
                    return Ok(Reply {
                        status: parts.status,
                        headers: parts.headers,
                        body,
                        took: started.elapsed(),
                    });
                }
            }
            let tells = match &answer {
                Ok(_) => true,
                Err(error) => error.may_be_done(),
            };
            earlier = if tells { Some(answer) } else { earlier };
            repeats -= 1;
            pause *= 3;
        }
    }

    /// The answer's head within the timeout, and its body as it comes. An event stream may last, as long as something
    /// comes now and then; any other body has to come within the timeout as well. Never repeated.
    pub async fn open(&self, request: Request<Bytes>) -> Result<Response<Body>, OutboundError> {
        self.open_up_to(self.limit, request).await
    }

    /// The same for an event stream that is there to last: it takes none of the places that calls have.
    pub async fn listen(&self, request: Request<Bytes>) -> Result<Response<Body>, OutboundError> {
        let place = self.streams.try_enter().ok_or_else(|| self.busy())?;
        let deadline = Instant::now() + self.timeout;
        let (head, slot) = self.ask(self.limit, request, deadline).await?;
        if !is_events(head.response.headers()) {
            return Ok(self.whole(head, deadline, slot));
        }
        Ok(self.events(head, place))
    }

    /// The same with a bound of its own, in bytes, of the body or of one event.
    pub async fn open_up_to(
        &self,
        limit: usize,
        request: Request<Bytes>,
    ) -> Result<Response<Body>, OutboundError> {
        let deadline = Instant::now() + self.timeout;
        let (head, slot) = self.ask(limit, request, deadline).await?;
        if !is_events(head.response.headers()) {
            return Ok(self.whole(head, deadline, slot));
        }
        // It was let in, and is answered: where streams have no place left, it keeps the one that it has.
        Ok(self.events(head, self.streams.try_enter().unwrap_or(slot)))
    }

    async fn ask(
        &self,
        limit: usize,
        request: Request<Bytes>,
        deadline: Instant,
    ) -> Result<(Head, Slot), OutboundError> {
        let call = self.origin.prepare(request)?;
        let slot = self.enter(deadline).await?;
        Ok((self.head(&call, deadline, limit).await?, slot))
    }

    fn events(&self, mut head: Head, slot: Slot) -> Response<Body> {
        let status = head.response.status();
        head.admission.answered(status, Instant::now());
        let (response, rules) = self.rules(head, slot);
        response.map(|incoming| Body::events(incoming, rules, self.idle))
    }

    /// Bytes of a body, or of one event, that are read at most.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// How it stands, for metrics.
    pub fn state(&self) -> State {
        State {
            running: self.calls.taken(),
            waiting: self.calls.waiting(),
            streams: self.streams.taken(),
            health: self.admissions.health(Instant::now()),
        }
    }

    async fn enter(&self, deadline: Instant) -> Result<Slot, OutboundError> {
        match timeout_at(deadline, self.calls.enter()).await {
            Ok(Ok(slot)) => Ok(slot),
            Ok(Err(_)) | Err(_) => Err(self.busy()),
        }
    }

    async fn once(
        &self,
        call: &Call,
        deadline: Instant,
        slot: Slot,
    ) -> Result<Response<Bytes>, OutboundError> {
        let head = self.head(call, deadline, self.limit).await?;
        let (parts, body) = self.whole(head, deadline, slot).into_parts();
        Ok(Response::from_parts(parts, body.whole_bytes().await?))
    }

    fn whole(&self, mut head: Head, deadline: Instant, slot: Slot) -> Response<Body> {
        let status = head.response.status();
        if status.is_server_error() {
            head.admission.answered(status, Instant::now());
        }
        let (response, rules) = self.rules(head, slot);
        response.map(|incoming| Body::whole(incoming, rules, deadline, self.timeout))
    }

    fn rules(&self, head: Head, slot: Slot) -> (Response<Incoming>, Rules) {
        let Head {
            response,
            admission,
            redactor,
            limit,
        } = head;
        let rules = Rules {
            name: self.name.clone(),
            limit,
            redactor,
            admission,
            slot,
        };
        (response, rules)
    }

    fn admit(&self, call: &Call) -> Result<Admission, OutboundError> {
        let name = || self.name.to_string();
        let operation = call.parts.extensions.get::<OperationName>().cloned();
        let admitted = self.admissions.admit(operation, Instant::now());
        admitted.map_err(|refused| match refused {
            Refused::Upstream(retry_after) => OutboundError::Open {
                name: name(),
                retry_after,
            },
            Refused::Operation(retry_after) => OutboundError::Excessive {
                name: name(),
                retry_after,
            },
        })
    }

    /// Sends the request, once more if the credential was refused and there is another one now.
    async fn head(
        &self,
        call: &Call,
        deadline: Instant,
        limit: usize,
    ) -> Result<Head, OutboundError> {
        let mut may_renew = true;
        loop {
            let (request, attached) = self.with_credential(call, deadline).await?;
            let mut admission = self.admit(call)?;
            let sent = timeout_at(deadline, self.client.send(&self.name, request)).await;
            let mut response = match sent.unwrap_or_else(|_| Err(self.timed_out())) {
                Ok(response) => response,
                Err(error) => {
                    admission.fail(&error, Instant::now());
                    return Err(error);
                }
            };
            if let (StatusCode::UNAUTHORIZED, true, Some(attached), Some(credential)) =
                (response.status(), may_renew, &attached, &self.credential)
            {
                may_renew = false;
                let renewed = timeout_at(deadline, credential.refused(attached)).await;
                if renewed.unwrap_or(false) {
                    admission.succeed(Instant::now());
                    continue;
                }
            }
            if let Err(error) = self.check(&response, limit) {
                if response.status().is_server_error() {
                    admission.answered(response.status(), Instant::now());
                }
                admission.fail(&error, Instant::now());
                return Err(error);
            }
            let redactor = attached.map(|attached| attached.redactor);
            if let Some(redactor) = &redactor {
                redactor.scrub_headers(response.headers_mut());
            }
            return Ok(Head {
                response,
                admission,
                redactor,
                limit,
            });
        }
    }

    async fn with_credential(
        &self,
        call: &Call,
        deadline: Instant,
    ) -> Result<(Request<Full<Bytes>>, Option<Attached>), OutboundError> {
        let mut parts = call.parts.clone();
        let attached = match &self.credential {
            Some(credential) if call.is_own_origin => {
                let attached = timeout_at(deadline, credential.attach(&mut parts)).await;
                Some(attached.map_err(|_| self.timed_out())??)
            }
            _ => None,
        };
        let body = Full::new(call.body.clone());
        Ok((Request::from_parts(parts, body), attached))
    }

    /// What can be said of an answer by its head.
    fn check(&self, response: &Response<Incoming>, limit: usize) -> Result<(), OutboundError> {
        let name = || self.name.to_string();
        let status = response.status();
        if status.is_redirection() && status != StatusCode::NOT_MODIFIED {
            return Err(OutboundError::Redirected {
                name: name(),
                status,
            });
        }
        let mut encodings = response.headers().get_all(header::CONTENT_ENCODING).iter();
        if encodings.any(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
            return Err(OutboundError::Encoded { name: name() });
        }
        if response.body().size_hint().lower() > limit as u64 {
            return Err(OutboundError::TooLarge {
                name: name(),
                limit,
            });
        }
        Ok(())
    }

    fn busy(&self) -> OutboundError {
        OutboundError::Busy {
            name: self.name.to_string(),
        }
    }

    fn timed_out(&self) -> OutboundError {
        OutboundError::TimedOut {
            name: self.name.to_string(),
            after: self.timeout,
        }
    }
}

fn is_events(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    const EVENTS: &[u8] = b"text/event-stream";
    kind.and_then(|kind| kind.get(..EVENTS.len()))
        .is_some_and(|kind| kind.eq_ignore_ascii_case(EVENTS))
}

/// How long to wait before the same call is worth making again; `None` when it is not.
fn asked_pause(response: &Response<Bytes>, pause: Duration) -> Option<Duration> {
    if !matches!(response.status().as_u16(), 429 | 502 | 503 | 504) {
        return None;
    }
    match response.headers().get(header::RETRY_AFTER) {
        None => (response.status() != StatusCode::TOO_MANY_REQUESTS).then_some(pause),
        Some(asked) => {
            let seconds = asked.to_str().ok()?.trim().parse().ok()?;
            let asked = Duration::from_secs(seconds);
            // Never earlier than asked, whatever the jitter says.
            (asked <= LONGEST_PAUSE).then_some(asked.mul_f64(1.34).max(pause))
        }
    }
}
