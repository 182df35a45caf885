//! Who may knock at all: the host and origin of a request, and the key that it carries.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use jiff::Timestamp;

use crate::auth;
use crate::directory::{Agent, Directory, Person, Principal, Snapshot};
use crate::metrics::Metrics;
use crate::store::Clock;

/// An agent on its own endpoint.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) agent: Arc<Agent>,
    pub(super) key_id: Arc<str>,
}

pub(super) struct Access {
    pub(super) directory: Directory,
    pub(super) clock: Clock,
    pub(super) metrics: Arc<Metrics>,
    /// Accepted besides loopback, without port; `*.` stands for any one or more labels.
    pub(super) hostnames: Vec<String>,
    /// How old the directory may get while its source cannot be reached.
    pub(super) max_config_staleness: Option<Duration>,
}

impl Access {
    /// Whose request this is, on the endpoint of the agent `endpoint`. `Err` is the answer to give instead.
    pub(super) fn admit(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        endpoint: &str,
    ) -> Result<Caller, Box<Response>> {
        self.check(uri, headers, endpoint).map_err(|refusal| {
            self.metrics.refused(refusal.reason());
            refusal.response()
        })
    }

    /// Which person a request is from, and what is known now. `Err` is the answer to give instead.
    pub(super) fn person(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<(Person, Arc<Snapshot>), Box<Response>> {
        let check = || {
            let (snapshot, now) = self.known(uri, headers)?;
            let token = bearer(headers).ok_or(Refusal::Token)?;
            match auth::person(&snapshot, token) {
                Some(person) => Ok((person.clone(), snapshot)),
                None if auth::identify(&snapshot, token, now).is_some() => Err(Refusal::NoPerson),
                None => Err(Refusal::Token),
            }
        };
        check().map_err(|refusal: Refusal| {
            self.metrics.refused(refusal.reason());
            refusal.response()
        })
    }

    /// What is known now, for a request that is meant for us.
    fn known(&self, uri: &Uri, headers: &HeaderMap) -> Result<(Arc<Snapshot>, Timestamp), Refusal> {
        if !self.is_for_us(uri, headers) {
            return Err(Refusal::Host);
        }
        let now = self.clock.now();
        let is_fresh =
            |snapshot: &Arc<Snapshot>| match (snapshot.stale_since, self.max_config_staleness) {
                (Some(since), Some(limit)) => now.duration_since(since).unsigned_abs() <= limit,
                _ => true,
            };
        let snapshot = self.directory.snapshot();
        let snapshot = snapshot.filter(is_fresh).ok_or(Refusal::NotReady)?;
        Ok((snapshot, now))
    }

    fn check(&self, uri: &Uri, headers: &HeaderMap, endpoint: &str) -> Result<Caller, Refusal> {
        let (snapshot, now) = self.known(uri, headers)?;
        let holder = bearer(headers)
            .and_then(|key| auth::identify(&snapshot, key, now))
            .ok_or(Refusal::Key)?;
        match &holder.principal {
            Principal::Agent(agent) if agent.id == endpoint => Ok(Caller {
                agent: agent.clone(),
                key_id: holder.key_id.clone(),
            }),
            Principal::Agent(_) | Principal::Workspace(_) => Err(Refusal::OtherEndpoint),
        }
    }

    fn is_for_us(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        // HTTP/2 has the host in the URI.
        let host = match uri.authority() {
            Some(authority) => Some(authority.as_str()),
            None => sole(headers, &header::HOST),
        };
        if !host.is_some_and(|host| self.serves(host)) {
            return false;
        }
        !headers.contains_key(header::ORIGIN)
            || sole(headers, &header::ORIGIN)
                .and_then(|origin| {
                    origin
                        .strip_prefix("https://")
                        .or_else(|| origin.strip_prefix("http://"))
                })
                .is_some_and(|origin| self.serves(origin))
    }

    /// Whether `authority`, a host with or without port, is one of ours.
    fn serves(&self, authority: &str) -> bool {
        let Some(host) = host_of(authority) else {
            return false;
        };
        host.eq_ignore_ascii_case("localhost")
            || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
            || self
                .hostnames
                .iter()
                .any(|allowed| match allowed.strip_prefix('*') {
                    Some(suffix) => {
                        host.len() > suffix.len()
                            && host.is_char_boundary(host.len() - suffix.len())
                            && host[host.len() - suffix.len()..].eq_ignore_ascii_case(suffix)
                    }
                    None => host.eq_ignore_ascii_case(allowed),
                })
    }
}

/// Why a request is not let in.
#[derive(Clone, Copy)]
enum Refusal {
    Host,
    NotReady,
    Key,
    /// Whether or not that endpoint exists.
    OtherEndpoint,
    /// No token of a person, on the API of people.
    Token,
    /// The key of an agent or Workspace, on the API of people.
    NoPerson,
}

impl Refusal {
    /// The name that metrics give it.
    fn reason(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::NotReady => "not_ready",
            Self::Key => "key",
            Self::OtherEndpoint => "other_endpoint",
            Self::Token => "token",
            Self::NoPerson => "no_person",
        }
    }

    fn response(self) -> Box<Response> {
        match self {
            Self::Host => plain(
                StatusCode::FORBIDDEN,
                "this host name or origin is not served here\n",
            ),
            Self::NotReady => with(
                plain(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "the configuration is not there yet\n",
                ),
                header::RETRY_AFTER,
                "2",
            ),
            Self::Key => with(
                plain(
                    StatusCode::UNAUTHORIZED,
                    "send the agent's key: Authorization: Bearer <key>\n",
                ),
                header::WWW_AUTHENTICATE,
                "Bearer",
            ),
            Self::Token => with(
                plain(
                    StatusCode::UNAUTHORIZED,
                    "send a person's token: Authorization: Bearer <token>\n",
                ),
                header::WWW_AUTHENTICATE,
                "Bearer",
            ),
            Self::NoPerson => plain(
                StatusCode::FORBIDDEN,
                "this key is not a person's: agents decide nothing here\n",
            ),
            Self::OtherEndpoint => plain(
                StatusCode::FORBIDDEN,
                "this key does not open this endpoint\n",
            ),
        }
    }
}

/// The host of `host`, `host:port`, `[v6]` or `[v6]:port`.
fn host_of(authority: &str) -> Option<&str> {
    let (host, rest) = match authority.strip_prefix('[') {
        Some(v6) => v6.split_once(']')?,
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let is_port = rest.is_empty()
        || rest
            .strip_prefix(':')
            .is_some_and(|port| port.parse::<u16>().is_ok());
    (is_port && !host.is_empty()).then_some(host)
}

/// The key of exactly one `Authorization: Bearer <key>`.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, key) = sole(headers, &header::AUTHORIZATION)?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}

/// The header's value, unless it is absent, repeated or no text.
pub(super) fn sole<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    values.next().is_none().then(|| value.to_str().ok())?
}

fn plain(status: StatusCode, text: &'static str) -> Box<Response> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    with(
        Box::new(response),
        header::CONTENT_TYPE,
        "text/plain; charset=utf-8",
    )
}

fn with(mut response: Box<Response>, name: HeaderName, value: &'static str) -> Box<Response> {
    response
        .headers_mut()
        .insert(name, HeaderValue::from_static(value));
    response
}
