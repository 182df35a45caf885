//! What is sent along to prove who asks: always out of a Secret, and never anywhere but in one request.

mod fixed;
mod kept;
mod oauth;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use http::HeaderName;
use http::request::Parts;
use url::Url;

use self::fixed::{Fixed, Form};
use self::kept::{Kept, Place};
use self::oauth::Oauth;
use super::error::OutboundError;
use super::redact::Redactor;
use super::upstream::{Upstream, UpstreamSettings};
use crate::directory::{ReferenceError, References};

/// Something that can be attached to requests.
pub trait Credential: Send + Sync {
    /// Writes the credential into the request. May read a Secret or ask for a token first.
    fn attach<'a>(
        &'a self,
        parts: &'a mut Parts,
    ) -> BoxFuture<'a, Result<Attached, CredentialError>>;

    /// The upstream answered 401 to what was attached. True when there is another credential now, so that the request
    /// is worth making once more.
    fn refused<'a>(&'a self, attached: &'a Attached) -> BoxFuture<'a, bool>;
}

/// What went along with a request.
#[derive(Clone, Debug)]
pub struct Attached {
    /// Changes with the credential.
    pub revision: u64,
    /// Takes the credential out of the answer.
    pub redactor: Arc<Redactor>,
}

/// A key of a Secret in the upstream's own namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretKey {
    pub name: String,
    pub key: String,
}

/// What is sent and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialSpec {
    /// `Authorization: Bearer <value>`.
    Bearer {
        secret: SecretKey,
    },
    Header {
        name: String,
        secret: SecretKey,
    },
    /// A parameter of the URL's query; any other of that name is left out.
    Query {
        name: String,
        secret: SecretKey,
    },
    /// `Authorization: Basic …`; the Secret holds the password.
    Basic {
        username: String,
        secret: SecretKey,
    },
    /// OAuth 2 client credentials; the Secret holds the client's secret.
    OauthClientCredentials {
        token_url: Url,
        client_id: String,
        secret: SecretKey,
        scopes: Vec<String>,
        audience: Option<String>,
    },
}

/// How often Secrets are read, and which may be used.
#[derive(Clone, Copy, Debug)]
pub struct SecretSettings {
    /// A value that is in use is never older, as long as the Secret can be read.
    pub every: Duration,
    /// How long the last value goes on being used while the Secret cannot be read. One that is gone is never used.
    pub keep: Duration,
    /// Refuses Secrets that do not say by annotation which hosts they are for.
    pub require_hosts: bool,
}

impl Default for SecretSettings {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(30),
            keep: Duration::from_secs(300),
            require_hosts: false,
        }
    }
}

/// Why there is no credential. Names of Secrets and keys, never values.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CredentialError {
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    #[error("the Secret {secret} has no key {key}")]
    NoKey { secret: String, key: String },
    #[error("{key} of the Secret {secret} cannot be sent: {why}")]
    Unusable {
        secret: String,
        key: String,
        why: &'static str,
    },
    #[error(
        "the Secret {secret} may not be used for {host}: its annotation chandlery.dev/allowed-hosts does not name it"
    )]
    OtherHost { secret: String, host: String },
    #[error(
        "the Secret {secret} must say which hosts it is for: annotate it with chandlery.dev/allowed-hosts"
    )]
    NoHosts { secret: String },
    #[error("the request's URL is too long to take the credential, too: send less in it")]
    NoRoom,
    #[error("`{0}` cannot be the name of a header that holds a credential")]
    HeaderName(String),
    #[error("the user name of a basic credential must not hold a colon")]
    UserName,
    /// `code`: what OAuth calls the mistake.
    #[error("the token server refused: {status} {code}")]
    TokenRefused { status: u16, code: String },
    #[error("the token server's answer holds no bearer token")]
    NoToken,
    #[error("the token server gave no answer: {0}")]
    TokenServer(String, #[source] Arc<OutboundError>),
}

/// Makes the credential of the upstream that `settings` describe. Reads nothing yet.
///
/// `tokens` is asked for OAuth's tokens; it is made by the same rules as the upstream.
pub(super) fn credential(
    spec: CredentialSpec,
    namespace: &str,
    references: Arc<dyn References>,
    settings: &UpstreamSettings,
    secrets: SecretSettings,
    upstream: impl FnOnce(UpstreamSettings) -> Result<Arc<Upstream>, OutboundError>,
) -> Result<Arc<dyn Credential>, OutboundError> {
    let place = |secret: SecretKey| Place {
        references,
        namespace: namespace.to_owned(),
        secret,
        targets: vec![settings.base.clone()],
        settings: secrets,
    };
    Ok(match spec {
        CredentialSpec::Bearer { secret } => Arc::new(Fixed::new(place(secret), Form::Bearer)),
        CredentialSpec::Header { name, secret } => {
            let header = header_name(&name)?;
            Arc::new(Fixed::new(place(secret), Form::Header(header)))
        }
        CredentialSpec::Query { name, secret } => {
            Arc::new(Fixed::new(place(secret), Form::Query(name)))
        }
        CredentialSpec::Basic { username, secret } => {
            if username.contains(':') {
                return Err(CredentialError::UserName.into());
            }
            Arc::new(Fixed::new(place(secret), Form::Basic(username)))
        }
        CredentialSpec::OauthClientCredentials {
            token_url,
            client_id,
            secret,
            scopes,
            audience,
        } => {
            let tokens = upstream(UpstreamSettings {
                base: token_url.clone(),
                max_response_bytes: oauth::MAX_ANSWER,
                timeout: settings.timeout.min(oauth::TIMEOUT),
                concurrency: 2,
                credential: None,
                ..settings.clone()
            })?;
            let mut place = place(secret);
            // Whoever may name the token's destination must not name another than the Secret's owner meant.
            place.targets.push(token_url.clone());
            Arc::new(Oauth::new(
                tokens,
                Kept::new(place, oauth::client_secret),
                oauth::Client {
                    id: client_id,
                    scope: scopes.join(" "),
                    audience,
                },
            ))
        }
    })
}

fn header_name(name: &str) -> Result<HeaderName, CredentialError> {
    const NEVER: [&str; 6] = [
        "host",
        "connection",
        "content-length",
        "content-type",
        "transfer-encoding",
        "accept-encoding",
    ];
    let header = name.parse::<HeaderName>();
    let header = header
        .ok()
        .filter(|header| !NEVER.contains(&header.as_str()));
    header.ok_or_else(|| CredentialError::HeaderName(name.to_owned()))
}

fn base64(user: &[u8], password: &[u8]) -> String {
    STANDARD.encode([user, b":", password].concat())
}
