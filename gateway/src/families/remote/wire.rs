//! JSON-RPC towards an MCP server: requests in the words of either era, and what may come back.

use std::borrow::Cow;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::family::{NEWER, RpcError};

pub(super) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub(super) const METHOD: HeaderName = HeaderName::from_static("mcp-method");
pub(super) const NAME: HeaderName = HeaderName::from_static("mcp-name");
pub(super) const NEWER_VALUE: HeaderValue = HeaderValue::from_static(NEWER);

/// How a value is written that no header can hold as it is.
const ENCODED: &str = "=?base64?";

/// A request, whichever the era in which it goes out.
#[derive(Clone, Default)]
pub(super) struct Request<'a> {
    pub(super) method: &'a str,
    /// The tool, prompt or resource that it is about.
    pub(super) name: Option<Cow<'a, str>>,
    pub(super) params: Params,
    /// Headers that mirror arguments.
    pub(super) mirrored: Vec<(HeaderName, HeaderValue)>,
}

/// The members of `params` but for `_meta`, as JSON.
#[derive(Clone, Default)]
pub(super) struct Params(String);

impl Params {
    pub(super) fn with(mut self, name: &str, value: &(impl serde::Serialize + ?Sized)) -> Self {
        let value = serde_json::to_string(value).expect("text and JSON values always serialize");
        self.push(name, &value);
        self
    }

    pub(super) fn with_raw(mut self, name: &str, value: &RawValue) -> Self {
        self.push(name, value.get());
        self
    }

    /// The members of an object.
    pub(super) fn of(members: &Map<String, Value>) -> Self {
        let known = members.iter().filter(|(name, _)| *name != "_meta");
        known.fold(Self::default(), |all, (name, value)| all.with(name, value))
    }

    fn push(&mut self, name: &str, value: &str) {
        let comma = if self.0.is_empty() { "" } else { "," };
        // Writing into a string cannot fail; names are ours or have been JSON before.
        let _ = write!(self.0, "{comma}{}:{value}", json!(name));
    }
}

/// What `_meta` of a request says.
#[derive(Default)]
pub(super) struct Meta<'a> {
    /// `clientCapabilities`; the newer era says them in each request.
    pub(super) capabilities: Option<&'a str>,
    pub(super) log_level: Option<Value>,
    pub(super) wants_progress: bool,
}

/// A request as it is sent. Its id is its progress token as well.
pub(super) fn encode(id: u64, request: &Request<'_>, meta: &Meta<'_>) -> Vec<u8> {
    let mut text = String::with_capacity(request.params.0.len() + 384);
    let _ = write!(
        text,
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{}\",\"params\":{{{}",
        request.method, request.params.0
    );
    let mut members = Vec::new();
    if let Some(capabilities) = meta.capabilities {
        members.push(format!(
            "\"io.modelcontextprotocol/protocolVersion\":\"{NEWER}\",\"io.modelcontextprotocol/clientInfo\":{CLIENT},\"io.modelcontextprotocol/clientCapabilities\":{capabilities}"
        ));
    }
    if let Some(level) = &meta.log_level {
        members.push(format!("\"io.modelcontextprotocol/logLevel\":{level}"));
    }
    if meta.wants_progress {
        members.push(format!("\"progressToken\":{id}"));
    }
    if !members.is_empty() {
        let comma = if request.params.0.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}\"_meta\":{{{}}}", members.join(","));
    }
    text.push_str("}}");
    text.into_bytes()
}

/// What we say of ourselves.
pub(super) const CLIENT: &str = concat!(
    "{\"name\":\"chandlery\",\"version\":\"",
    env!("CARGO_PKG_VERSION"),
    "\"}"
);

/// A message of the server, borrowed from what came.
#[derive(Deserialize)]
pub(super) struct Message<'a> {
    #[serde(borrow)]
    pub(super) id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) params: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) result: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

impl<'a> Message<'a> {
    /// `None` for what is no single JSON object.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let begins = bytes.trim_ascii_start().first() == Some(&b'{');
        begins.then(|| serde_json::from_slice(bytes).ok())?
    }

    pub(super) fn is_answer_to(&self, id: u64) -> bool {
        self.method.is_none() && self.id.is_some_and(|own| own.get().parse() == Ok(id))
    }

    /// The error, if the message is one.
    pub(super) fn error(&self) -> Option<RpcError> {
        rpc_error(self.error?)
    }
}

/// An error as it is written; `None` for what is none.
pub(super) fn rpc_error(raw: &RawValue) -> Option<RpcError> {
    #[derive(Deserialize)]
    struct Error {
        code: i32,
        #[serde(default)]
        message: String,
        data: Option<Value>,
    }
    let Error {
        code,
        message,
        data,
    } = serde_json::from_str(raw.get()).ok()?;
    Some(RpcError {
        code,
        message,
        data,
    })
}

/// What kind of result it is.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Kind<'a> {
    #[serde(borrow)]
    result_type: Option<Cow<'a, str>>,
    #[serde(borrow)]
    is_error: Option<&'a RawValue>,
}

impl<'a> Kind<'a> {
    /// `None` for what is no object.
    pub(super) fn of(result: &'a [u8]) -> Option<Self> {
        let begins = result.first() == Some(&b'{');
        begins.then(|| serde_json::from_slice(result).ok())?
    }

    /// `None` where the era has none.
    pub(super) fn result_type(&self) -> Option<&str> {
        self.result_type.as_deref()
    }

    pub(super) fn is_error(&self) -> bool {
        self.is_error.is_some_and(|raw| raw.get() == "true")
    }
}

/// A value as a header holds it: as it is where that is safe, else encoded.
pub(super) fn header_value(value: &str) -> HeaderValue {
    let is_plain = value.bytes().all(|byte| (b' '..=b'~').contains(&byte))
        && value.trim() == value
        && !value.starts_with(ENCODED);
    let written = if is_plain {
        Cow::Borrowed(value)
    } else {
        Cow::Owned(format!("{ENCODED}{}?=", BASE64_STANDARD.encode(value)))
    };
    HeaderValue::from_str(&written).expect("visible ASCII makes a header")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_what_its_era_needs() {
        let request = Request {
            method: "tools/call",
            params: Params::default()
                .with("name", "a")
                .with("arguments", &json!({"b": 1})),
            ..Request::default()
        };
        let read = |meta| -> Value { serde_json::from_slice(&encode(7, &request, &meta)).unwrap() };
        assert_eq!(
            read(Meta::default()),
            json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "a", "arguments": {"b": 1}}})
        );
        let newer = read(Meta {
            capabilities: Some("{\"roots\":{}}"),
            log_level: Some(json!("info")),
            wants_progress: true,
        });
        let meta = &newer["params"]["_meta"];
        assert_eq!(meta["progressToken"], 7);
        assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], NEWER);
        assert_eq!(meta["io.modelcontextprotocol/logLevel"], "info");
        assert_eq!(
            meta["io.modelcontextprotocol/clientInfo"]["name"],
            "chandlery"
        );
    }

    #[test]
    fn no_value_breaks_out_of_its_header() {
        for (value, written) in [
            ("eu-west 1", "eu-west 1"),
            (" padded", "=?base64?IHBhZGRlZA==?="),
            ("a\r\nX: b", "=?base64?YQ0KWDogYg==?="),
            ("Zürich", "=?base64?WsO8cmljaA==?="),
            ("=?base64?YQ==?=", "=?base64?PT9iYXNlNjQ/WVE9PT89?="),
        ] {
            assert_eq!(header_value(value), written);
        }
    }
}
