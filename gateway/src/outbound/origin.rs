//! Requests made ready: where they go, and whether that is the origin that the credential is for.

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::uri::{Authority, Scheme};
use http::{Method, Request, Uri, request};
use url::Url;

use super::error::OutboundError;
use super::guard::{self, Blocked, Guard};

/// Headers about one connection, and those that we write ourselves.
const NOT_FORWARDED: [HeaderName; 11] = [
    header::HOST,
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::CONTENT_LENGTH,
    header::EXPECT,
];
const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("chandlery/", env!("CARGO_PKG_VERSION")));
const IDENTITY: HeaderValue = HeaderValue::from_static("identity");

/// The scheme, host and port of an upstream, and what else it may be asked for.
pub(super) struct Origin {
    base: Url,
    scheme: Scheme,
    authority: Authority,
    guard: Guard,
}

/// A request that may be sent as often as need be.
pub(super) struct Call {
    pub(super) parts: request::Parts,
    pub(super) body: Bytes,
    pub(super) is_own_origin: bool,
}

impl Origin {
    pub(super) fn new(base: Url, guard: Guard) -> Result<Self, Blocked> {
        guard.check_url(&base)?;
        let uri: Uri = base.as_str().parse().map_err(|_| Blocked::Url)?;
        let uri = uri.into_parts();
        Ok(Self {
            base,
            scheme: uri.scheme.ok_or(Blocked::Url)?,
            authority: uri.authority.ok_or(Blocked::Url)?,
            guard,
        })
    }

    pub(super) fn base(&self) -> &Url {
        &self.base
    }

    /// Makes the URL absolute, and leaves out headers about the connection.
    pub(super) fn prepare(&self, request: Request<Bytes>) -> Result<Call, OutboundError> {
        let (mut parts, body) = request.into_parts();
        if parts.method == Method::CONNECT {
            return Err(OutboundError::Request("CONNECT makes a tunnel"));
        }
        let (uri, is_own_origin) = self.target(std::mem::take(&mut parts.uri))?;
        parts.uri = uri;
        parts.version = http::Version::HTTP_11;
        for name in &NOT_FORWARDED {
            parts.headers.remove(name);
        }
        parts.headers.insert(header::ACCEPT_ENCODING, IDENTITY);
        parts.headers.entry(header::USER_AGENT).or_insert(AGENT);
        Ok(Call {
            parts,
            body,
            is_own_origin,
        })
    }

    /// The absolute URL that is meant, and whether it is of our own origin.
    fn target(&self, uri: Uri) -> Result<(Uri, bool), OutboundError> {
        match (uri.scheme(), uri.authority()) {
            (Some(scheme), Some(authority))
                if *scheme == self.scheme && *authority == self.authority =>
            {
                Ok((uri, true))
            }
            (None, None) => {
                let mut parts = uri.into_parts();
                parts.scheme = Some(self.scheme.clone());
                parts.authority = Some(self.authority.clone());
                let uri = Uri::from_parts(parts).map_err(|_| Blocked::Url)?;
                Ok((uri, true))
            }
            _ => {
                let url = guard::parse(&uri.to_string())?;
                self.guard.check_url(&url)?;
                let is_own = url.origin() == self.base.origin();
                Ok((url.as_str().parse().map_err(|_| Blocked::Url)?, is_own))
            }
        }
    }
}
