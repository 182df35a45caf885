//! The wire format: a JSON-RPC message borrowed from a request's body, and the few answers that are made by hand.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use http_body::{Frame, SizeHint};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

pub(super) use crate::family::{MISSING_CAPABILITY, NEWER, OLDER};
pub(super) use crate::http::access::sole;

pub(super) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub(super) const METHOD: HeaderName = HeaderName::from_static("mcp-method");
pub(super) const NAME: HeaderName = HeaderName::from_static("mcp-name");

pub(super) const PARSE_ERROR: i32 = -32700;
pub(super) const INVALID_REQUEST: i32 = -32600;
pub(super) const METHOD_NOT_FOUND: i32 = -32601;
pub(super) const INVALID_PARAMS: i32 = -32602;

/// Longest request id that is echoed without a thought.
const ID_BYTES: usize = 256;

/// A JSON-RPC message. Nothing in it has been checked but that it is a JSON object.
#[derive(serde::Deserialize)]
#[serde(bound(deserialize = "P: Deserialize<'de>"))]
pub(super) struct Message<'a, P = Readable<Params<'a>>> {
    #[serde(borrow)]
    pub(super) jsonrpc: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) method: Option<Text<'a>>,
    params: Option<P>,
    #[serde(default, deserialize_with = "present")]
    pub(super) result: bool,
    #[serde(default, deserialize_with = "present")]
    pub(super) error: bool,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|_| true)
}

/// A string, borrowed where it has no escapes.
#[derive(serde::Deserialize)]
#[serde(transparent)]
pub(super) struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// What is an object and reads as `T`. A derived struct by itself would take an array for its fields.
pub(super) enum Readable<T> {
    Yes(T),
    No,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Readable<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(entries))
            }
        }

        deserializer
            .deserialize_map(Object(PhantomData))
            .map(Self::Yes)
    }
}

/// The parameters that both lanes look at.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Params<'a> {
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    pub(super) meta: Option<Meta<'a>>,
    #[serde(borrow)]
    pub(super) cursor: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) notifications: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) input_responses: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) request_state: Option<&'a RawValue>,
}

/// What a request says of itself.
#[derive(serde::Deserialize)]
pub(super) struct Meta<'a> {
    #[serde(borrow, rename = "io.modelcontextprotocol/protocolVersion")]
    pub(super) protocol_version: Option<Text<'a>>,
    #[serde(borrow, rename = "io.modelcontextprotocol/clientCapabilities")]
    pub(super) client_capabilities: Option<&'a RawValue>,
    #[serde(borrow, rename = "io.modelcontextprotocol/clientInfo")]
    pub(super) client_info: Option<&'a RawValue>,
    #[serde(borrow, rename = "io.modelcontextprotocol/logLevel")]
    pub(super) log_level: Option<&'a RawValue>,
    #[serde(borrow, rename = "progressToken")]
    pub(super) progress_token: Option<&'a RawValue>,
    #[serde(borrow, rename = "chandlery.dev/worker")]
    pub(super) worker: Option<Text<'a>>,
}

impl<'a> Message<'a> {
    /// `Err` is the answer: the body is no JSON object.
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Box<Response>> {
        // A derived struct would take an array for its fields, so what a batch is must be seen first.
        if body.trim_ascii_start().first() == Some(&b'[') {
            return Err(Box::new(refuse(
                StatusCode::BAD_REQUEST,
                INVALID_REQUEST,
                "Invalid Request: send one message per POST; batches are not part of the protocol any more",
            )));
        }
        // Read in one go. Parameters that are odd make no message unreadable, so then they are passed over.
        serde_json::from_slice(body)
            .or_else(|_| serde_json::from_slice(body).map(Message::with_odd_params))
            .map_err(|_| {
                Box::new(refuse(
                    StatusCode::BAD_REQUEST,
                    PARSE_ERROR,
                    "Parse error: the body is not a JSON-RPC message",
                ))
            })
    }

    /// The id, if it is one that can be echoed without a thought: a string or an integer, and not too long.
    pub(super) fn plain_id(&self) -> Option<&'a str> {
        let id = self.id?;
        let is_plain = match id.get() {
            long if long.len() > ID_BYTES => false,
            "-0" => false,
            text if text.starts_with('"') => is_sound(id),
            number => number.parse::<i64>().is_ok(),
        };
        is_plain.then(|| id.get())
    }

    /// `None` when there are none, and when they are odd.
    pub(super) fn params(&self) -> Option<&Params<'a>> {
        match self.params.as_ref()? {
            Readable::Yes(params) => Some(params),
            Readable::No => None,
        }
    }

    /// Whether there are parameters of another shape than those of any request.
    pub(super) fn has_odd_params(&self) -> bool {
        matches!(self.params, Some(Readable::No))
    }

    /// Whether the message belongs to the stateless revision. `initialize` never does.
    pub(super) fn is_newer(&self, headers: &HeaderMap, meta: Option<&Meta<'_>>) -> bool {
        let method = self.method.as_deref();
        method != Some("initialize")
            && (is_newer(headers)
                || meta.is_some_and(|meta| meta.protocol_version.is_some())
                || method == Some("server/discover"))
    }
}

impl<'a> Message<'a, &'a RawValue> {
    /// The message, whose parameters nobody can read.
    fn with_odd_params(self) -> Message<'a> {
        let Self {
            jsonrpc,
            id,
            method,
            params,
            result,
            error,
        } = self;
        Message {
            jsonrpc,
            id,
            method,
            params: params.map(|_| Readable::No),
            result,
            error,
        }
    }
}

/// Whether the headers name the stateless revision or a later one.
pub(super) fn is_newer(headers: &HeaderMap) -> bool {
    text(headers, &PROTOCOL_VERSION)
        .is_some_and(|version| version.len() == NEWER.len() && version >= NEWER)
}

pub(super) fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Whether the raw value would also be read as a value: strings decode, numbers fit, nesting ends.
///
/// Borrowed text is only scanned, so `"\ud800"` and `1e999` pass as raw values.
pub(super) fn is_sound(raw: &RawValue) -> bool {
    raw.get() == "{}" || serde_json::from_str::<Sound>(raw.get()).is_ok()
}

struct Sound;

impl<'de> Deserialize<'de> for Sound {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Sound)
    }
}

impl<'de> Visitor<'de> for Sound {
    type Value = Sound;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_unit<E: Error>(self) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Sound, A::Error> {
        while items.next_element::<Sound>()?.is_some() {}
        Ok(Sound)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Sound, A::Error> {
        while entries.next_entry::<Sound, Sound>()?.is_some() {}
        Ok(Sound)
    }
}

/// A JSON answer with status 200.
pub(super) fn json(body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

/// `result`, already JSON, as the answer to `id`.
pub(super) fn result(id: &str, result: &[u8]) -> Vec<u8> {
    envelope(id, b",\"result\":", result)
}

/// A result that is the bytes of `head`, which are shared and not copied, and then `tail`.
pub(super) fn result_in_parts(id: &str, head: &Bytes, tail: String) -> Body {
    let before = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":");
    Body::new(Parts {
        parts: [before.into(), head.clone(), format!("{tail}}}").into()],
        sent: 0,
    })
}

/// A body of a few pieces, whose length is known.
struct Parts {
    parts: [Bytes; 3],
    sent: usize,
}

impl http_body::Body for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let at = self.sent;
        self.sent += 1;
        let part = self.parts.get_mut(at).map(std::mem::take);
        Poll::Ready(part.map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.sent >= self.parts.len()
    }

    fn size_hint(&self) -> SizeHint {
        let left: usize = self.parts.iter().map(Bytes::len).sum();
        SizeHint::with_exact(u64::try_from(left).unwrap_or(u64::MAX))
    }
}

/// An error as the answer to `id`, which is JSON; `null` where the request had none.
pub(super) fn error(id: &str, code: i32, message: &str) -> Vec<u8> {
    error_with(id, code, message, None)
}

/// The same, with what belongs to it.
pub(super) fn error_with(id: &str, code: i32, message: &str, data: Option<&Value>) -> Vec<u8> {
    let mut error = serde_json::json!({"code": code, "message": message});
    if let Some(data) = data {
        error["data"] = data.clone();
    }
    envelope(id, b",\"error\":", error.to_string().as_bytes())
}

fn envelope(id: &str, field: &[u8], value: &[u8]) -> Vec<u8> {
    const HEAD: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":";
    let mut body = Vec::with_capacity(HEAD.len() + id.len() + field.len() + value.len() + 1);
    body.extend_from_slice(HEAD);
    body.extend_from_slice(id.as_bytes());
    body.extend_from_slice(field);
    body.extend_from_slice(value);
    body.push(b'}');
    body
}

/// A JSON-RPC error without an id, under an HTTP status that says it too.
pub(super) fn refuse(status: StatusCode, code: i32, message: &str) -> Response {
    let mut response = json(error("null", code, message));
    *response.status_mut() = status;
    response
}

/// An answer without a body.
pub(super) fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// An event stream.
pub(super) fn stream(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    response
}

/// One message as an event of a stream.
pub(super) fn event(message: &[u8]) -> Bytes {
    [b"event: message\ndata: ", message, b"\n\n"]
        .concat()
        .into()
}

/// What keeps a silent stream open.
pub(super) const COMMENT: Bytes = Bytes::from_static(b": \n\n");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_reads_as_a_value_is_sound() {
        for (raw, expected) in [
            (r#"{"a":[1,2.5,"x",null,true]}"#, true),
            (r#""\ud83d\ude00""#, true),
            (r#""\ud800""#, false),
            (r#"{"\ud800":1}"#, false),
            ("1e999", false),
            (&format!("{}{}", "[".repeat(500), "]".repeat(500)), false),
        ] {
            let raw: &RawValue = serde_json::from_str(raw).unwrap();
            assert_eq!(is_sound(raw), expected, "{raw}");
        }
    }
}
