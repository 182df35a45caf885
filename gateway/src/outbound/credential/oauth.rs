//! OAuth 2 client credentials: a token that is asked for with a Secret's value, and kept in memory alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{Method, Request};
use parking_lot::Mutex;
use secrecy::{ExposeSecret as _, SecretSlice};
use serde::Deserialize;
use tokio::time::Instant;
use url::form_urlencoded;

use super::fixed::Material;
use super::kept::{Kept, Value};
use super::{Attached, Credential, CredentialError, base64};
use crate::outbound::error::OutboundError;
use crate::outbound::upstream::{Repeat, Reply, Upstream};
use crate::times::jittered;

pub(super) const MAX_ANSWER: usize = 64 << 10;
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);
/// Of a token whose server does not say.
const LIFETIME: Duration = Duration::from_secs(300);
/// A token is replaced so long before its end, or in its last tenth.
const MARGIN: Duration = Duration::from_secs(60);
/// Pause after a failure, and between tokens that were refused.
const RETRY: Duration = Duration::from_secs(1);

pub(super) struct Client {
    pub(super) id: String,
    pub(super) scope: String,
    pub(super) audience: Option<String>,
}

pub(super) struct Oauth {
    tokens: Arc<Upstream>,
    secret: Kept<SecretSlice<u8>>,
    client: Client,
    state: Mutex<State>,
    asking: tokio::sync::Mutex<()>,
    /// The server wants id and secret in the form instead of a header.
    by_form: AtomicBool,
}

#[derive(Default)]
struct State {
    token: Option<Token>,
    refused_at: Option<Instant>,
    /// The last failure, the revision of the secret that it is about, and until when nobody is asked again.
    failure: Option<(CredentialError, u64, Instant)>,
    revisions: u64,
}

#[derive(Clone)]
struct Token {
    material: Arc<Material>,
    revision: u64,
    /// Of the secret that it was got with.
    secret: u64,
    renew_at: Instant,
    ends_at: Instant,
}

#[derive(Deserialize)]
struct Answer {
    access_token: String,
    #[serde(default)]
    token_type: Option<String>,
    /// Some servers write it as a text.
    #[serde(default)]
    expires_in: Option<serde_json::Value>,
}

#[derive(Default, Deserialize)]
struct Refusal {
    #[serde(default)]
    error: String,
}

pub(super) fn client_secret(bytes: &[u8]) -> Result<SecretSlice<u8>, &'static str> {
    let bytes = bytes.trim_ascii_end();
    if bytes.is_empty() {
        return Err("it is empty");
    }
    std::str::from_utf8(bytes).map_err(|_| "it is no text")?;
    Ok(SecretSlice::from(bytes.to_vec()))
}

impl Oauth {
    pub(super) fn new(
        tokens: Arc<Upstream>,
        secret: Kept<SecretSlice<u8>>,
        client: Client,
    ) -> Self {
        Self {
            tokens,
            secret,
            client,
            state: Mutex::default(),
            asking: tokio::sync::Mutex::new(()),
            by_form: AtomicBool::new(false),
        }
    }

    async fn token(&self) -> Result<Token, CredentialError> {
        // Its Secret may be gone, or hold another value.
        let secret = self.secret.value().await?;
        let now = Instant::now();
        let known = self.known(&secret);
        if let Some(token) = known.clone().filter(|token| now < token.renew_at) {
            return Ok(token);
        }
        let _asking = match (self.asking.try_lock(), known) {
            (Ok(asking), _) => asking,
            (Err(_), Some(token)) => return Ok(token),
            (Err(_), None) => {
                let asking = self.asking.lock().await;
                if let Some(token) = self.known(&secret) {
                    return Ok(token);
                }
                asking
            }
        };
        if let Some(failure) = self.failed(&secret) {
            return self.known(&secret).ok_or(failure);
        }
        // What is still good is not given up for a server that is away.
        let asked = self.ask(&secret).await;
        asked.or_else(|failure| self.known(&secret).ok_or(failure))
    }

    fn failed(&self, secret: &Value<SecretSlice<u8>>) -> Option<CredentialError> {
        let state = self.state.lock();
        let (failure, revision, until) = state.failure.as_ref()?;
        (*revision == secret.revision && Instant::now() < *until).then(|| failure.clone())
    }

    /// The token of this secret that has not ended.
    fn known(&self, secret: &Value<SecretSlice<u8>>) -> Option<Token> {
        let state = self.state.lock();
        let token = state.token.clone()?;
        (token.secret == secret.revision && Instant::now() < token.ends_at).then_some(token)
    }

    /// Asks for a token, with the newest secret if this one is refused.
    async fn ask(&self, secret: &Value<SecretSlice<u8>>) -> Result<Token, CredentialError> {
        let mut asked = self.ask_with(secret).await;
        let mut revision = secret.revision;
        let is_refused = matches!(asked, Err(CredentialError::TokenRefused { .. }));
        if is_refused && self.secret.refused(revision).await {
            let newest = self.secret.value().await?;
            revision = newest.revision;
            asked = self.ask_with(&newest).await;
        }
        let failure = asked.as_ref().err().cloned();
        self.state.lock().failure =
            failure.map(|failure| (failure, revision, Instant::now() + jittered(RETRY)));
        asked
    }

    async fn ask_with(&self, secret: &Value<SecretSlice<u8>>) -> Result<Token, CredentialError> {
        let by_form = self.by_form.load(Ordering::Relaxed);
        let mut reply = self.send(secret, by_form).await?;
        if matches!(reply.status.as_u16(), 400 | 401) {
            let other = self.send(secret, !by_form).await?;
            if other.status.is_success() {
                self.by_form.store(!by_form, Ordering::Relaxed);
                reply = other;
            }
        }
        if !reply.status.is_success() {
            let refusal: Refusal = serde_json::from_slice(&reply.body).unwrap_or_default();
            let code = refusal.error.chars().take(64);
            return Err(CredentialError::TokenRefused {
                status: reply.status.as_u16(),
                code: code
                    .filter(|c| c.is_ascii_lowercase() || *c == '_')
                    .collect(),
            });
        }
        let answer: Answer =
            serde_json::from_slice(&reply.body).map_err(|_| CredentialError::NoToken)?;
        self.keep(answer, secret.revision)
    }

    fn keep(&self, answer: Answer, secret: u64) -> Result<Token, CredentialError> {
        let Answer {
            access_token,
            token_type,
            expires_in,
        } = answer;
        if token_type.is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
            return Err(CredentialError::NoToken);
        }
        let material = Material::bearer(access_token.as_bytes());
        let material = Arc::new(material.map_err(|_| CredentialError::NoToken)?);
        let seconds = expires_in.and_then(|value| match value {
            serde_json::Value::Number(seconds) => seconds.as_u64(),
            serde_json::Value::String(seconds) => seconds.parse().ok(),
            _ => None,
        });
        let lifetime = seconds.map_or(LIFETIME, |seconds| {
            Duration::from_secs(seconds.min(7 * 24 * 3600))
        });
        let now = Instant::now();
        let mut state = self.state.lock();
        state.revisions += 1;
        let token = Token {
            material,
            revision: state.revisions,
            secret,
            renew_at: now + (lifetime - MARGIN.min(lifetime / 10)),
            ends_at: now + lifetime,
        };
        state.token = Some(token.clone());
        Ok(token)
    }

    async fn send(
        &self,
        secret: &Value<SecretSlice<u8>>,
        by_form: bool,
    ) -> Result<Reply, CredentialError> {
        let request = self.request(secret, by_form)?;
        let sent = self.tokens.fetch(request, Repeat::Idempotent).await;
        sent.map_err(|error: OutboundError| {
            CredentialError::TokenServer(error.to_string(), Arc::new(error))
        })
    }

    fn request(
        &self,
        secret: &Value<SecretSlice<u8>>,
        by_form: bool,
    ) -> Result<Request<Bytes>, CredentialError> {
        let Client {
            id,
            scope,
            audience,
        } = &self.client;
        let secret = std::str::from_utf8(secret.made.expose_secret()).unwrap_or_default();
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "client_credentials");
        if !scope.is_empty() {
            form.append_pair("scope", scope);
        }
        if let Some(audience) = audience {
            form.append_pair("audience", audience);
        }
        if by_form {
            form.append_pair("client_id", id);
            form.append_pair("client_secret", secret);
        }
        let mut request = Request::new(Bytes::from(form.finish()));
        *request.method_mut() = Method::POST;
        let url = self.tokens.base().as_str().parse();
        *request.uri_mut() = url.map_err(|_| CredentialError::NoToken)?;
        let headers = request.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-www-form-urlencoded"),
        );
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if !by_form {
            let encode = |text: &str| -> String {
                form_urlencoded::byte_serialize(text.as_bytes()).collect()
            };
            let pair = base64(encode(id).as_bytes(), encode(secret).as_bytes());
            let value = HeaderValue::try_from(format!("Basic {pair}"));
            let mut value = value.map_err(|_| CredentialError::NoToken)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        Ok(request)
    }
}

impl Credential for Oauth {
    fn attach<'a>(
        &'a self,
        parts: &'a mut Parts,
    ) -> BoxFuture<'a, Result<Attached, CredentialError>> {
        Box::pin(async move {
            let token = self.token().await?;
            token.material.put(parts)?;
            Ok(Attached {
                revision: token.revision,
                redactor: token.material.redactor.clone(),
            })
        })
    }

    fn refused<'a>(&'a self, attached: &'a Attached) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            let _asking = self.asking.lock().await;
            {
                let mut state = self.state.lock();
                let now = Instant::now();
                match &state.token {
                    Some(token) if token.revision != attached.revision => return true,
                    _ if state.refused_at.is_some_and(|last| now < last + RETRY) => {
                        return false;
                    }
                    _ => state.refused_at = Some(now),
                }
                state.token = None;
            }
            match self.secret.value().await {
                Ok(secret) => self.ask(&secret).await.is_ok(),
                Err(_) => false,
            }
        })
    }
}
