//! Credentials that are a Secret's value as it is.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::PathAndQuery;
use url::form_urlencoded;

use super::kept::{Kept, Place};
use super::{Attached, Credential, CredentialError, base64};
use crate::outbound::redact::Redactor;

/// Where in a request the value goes.
pub(super) enum Form {
    Bearer,
    Header(HeaderName),
    Query(String),
    Basic(String),
}

pub(super) struct Fixed(Kept<Material>);

/// A value as it is sent.
pub(super) struct Material {
    put: Put,
    pub(super) redactor: Arc<Redactor>,
}

enum Put {
    Header(HeaderName, HeaderValue),
    /// The parameter's name, and the encoded pair.
    Query(String, String),
}

impl Fixed {
    pub(super) fn new(place: Place, form: Form) -> Self {
        Self(Kept::new(place, move |bytes| Material::new(&form, bytes)))
    }
}

impl Credential for Fixed {
    fn attach<'a>(
        &'a self,
        parts: &'a mut Parts,
    ) -> BoxFuture<'a, Result<Attached, CredentialError>> {
        Box::pin(async move {
            let value = self.0.value().await?;
            value.made.put(parts)?;
            Ok(Attached {
                revision: value.revision,
                redactor: value.made.redactor.clone(),
            })
        })
    }

    fn refused<'a>(&'a self, attached: &'a Attached) -> BoxFuture<'a, bool> {
        Box::pin(self.0.refused(attached.revision))
    }
}

impl Material {
    fn new(form: &Form, bytes: &[u8]) -> Result<Self, &'static str> {
        // Files end with a line break more often than passwords do.
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        if bytes.is_empty() {
            return Err("it is empty");
        }
        match form {
            Form::Bearer => Self::bearer(bytes),
            Form::Header(name) => Self::header(name.clone(), bytes, &[bytes]),
            Form::Basic(user) => {
                let pair = base64(user.as_bytes(), bytes);
                let value = format!("Basic {pair}");
                Self::header(AUTHORIZATION, value.as_bytes(), &[bytes, pair.as_bytes()])
            }
            Form::Query(name) => {
                let text = std::str::from_utf8(bytes).map_err(|_| "it is no text")?;
                let encoded: String = form_urlencoded::byte_serialize(bytes).collect();
                let pair = form_urlencoded::Serializer::new(String::new())
                    .append_pair(name, text)
                    .finish();
                Ok(Self {
                    put: Put::Query(name.clone(), pair),
                    redactor: Arc::new(Redactor::new([bytes, encoded.as_bytes()])),
                })
            }
        }
    }

    pub(super) fn bearer(token: &[u8]) -> Result<Self, &'static str> {
        let value = [b"Bearer ", token].concat();
        Self::header(AUTHORIZATION, &value, &[token])
    }

    fn header(name: HeaderName, value: &[u8], secrets: &[&[u8]]) -> Result<Self, &'static str> {
        let mut value = HeaderValue::from_bytes(value)
            .map_err(|_| "it holds characters that a header cannot hold")?;
        value.set_sensitive(true);
        Ok(Self {
            put: Put::Header(name, value),
            redactor: Arc::new(Redactor::new(secrets.iter().copied())),
        })
    }

    /// Fails where the URL has no room for it.
    pub(super) fn put(&self, parts: &mut Parts) -> Result<(), CredentialError> {
        match &self.put {
            Put::Header(name, value) => drop(parts.headers.insert(name, value.clone())),
            Put::Query(name, pair) => {
                let path = parts.uri.path();
                let kept = parts
                    .uri
                    .query()
                    .into_iter()
                    .flat_map(|query| query.split('&'));
                let kept = kept.filter(|other| !other.is_empty() && !is_named(other, name));
                let query: Vec<&str> = kept.chain([pair.as_str()]).collect();
                let changed = format!("{path}?{}", query.join("&"));
                let mut uri = std::mem::take(&mut parts.uri).into_parts();
                let changed = PathAndQuery::try_from(changed);
                uri.path_and_query = Some(changed.map_err(|_| CredentialError::NoRoom)?);
                parts.uri = uri.try_into().map_err(|_| CredentialError::NoRoom)?;
            }
        }
        Ok(())
    }
}

fn is_named(pair: &str, name: &str) -> bool {
    let mut parsed = form_urlencoded::parse(pair.as_bytes());
    parsed.next().is_some_and(|(other, _)| other == name)
}
