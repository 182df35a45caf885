//! OpenAPI documents (3.0, 3.1 and 3.2) as operations that agents can call.
//!
//! [`read`] turns a document into [`Operation`]s with a JSON Schema of their arguments; [`Operation::request`] turns a
//! call's arguments into an HTTP request. `docs/openapi.md` says which document becomes which tool.
//!
//! Nothing here dials out, reads a file or asks a clock: a `$ref` that leaves the document is an error of its operation,
//! and the request is the caller's to send.
//!
//! The document is read leniently, from JSON values, and not by the typed crates (`openapiv3`, `oas3`): those give up
//! on a whole document for one field of the wrong type and keep only the schema keywords they know, while here one
//! broken operation harms only itself, and 3.0 and 3.1 share one reader.

mod text;

mod pointer;

mod names;

mod servers;

mod operation;

mod parameter;

mod body;

mod schema;

mod input;

mod cost;

mod check;

mod request;

mod style;

mod form;

mod answer;

mod offer;
mod security;
mod source;

use std::sync::Arc;

use serde_json::Value;
use url::Url;

pub use cost::{Cost, CostCap};
pub use names::{Risk, group_name};
pub use offer::{Offer, offer};
pub use operation::Operation;
pub use request::{HttpRequest, join};
pub use security::{PLACEHOLDER, suggested_auth};
pub(super) use source::connect;

/// The largest document that is read, in bytes.
pub const MAX_BYTES: usize = 20 * 1024 * 1024;

/// The most operations that one document gives; what is left over is counted.
pub const MAX_OPERATIONS: usize = 2_000;

/// What the owner of a source says about its document.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Takes the place of all servers of the document.
    pub base_url: Option<Url>,
    /// Where the document came from: what relative servers are relative to.
    pub document_url: Option<Url>,
    /// Globs of the operations to take, over names and over `METHOD /path`; none takes all.
    pub include: Vec<String>,
    /// Globs of the operations to leave out, likewise; stronger than `include`.
    pub exclude: Vec<String>,
    /// Headers that the source's own credential goes into, beside those that the document's security schemes name.
    pub credential_headers: Vec<String>,
    /// Query parameters that the source's own credential goes into, likewise.
    pub credential_queries: Vec<String>,
}

/// What a document says, as far as calls need it.
#[derive(Clone, Debug)]
pub struct Document {
    /// The API's name; empty where the document gives none.
    pub title: String,
    /// Where requests go: `Settings::base_url`, or else the first of the document's servers that is an HTTP URL; `None`
    /// when there is neither. No query, no fragment, no user.
    pub base: Option<Url>,
    /// By path, then by method.
    pub operations: Vec<Operation>,
    pub skipped: Vec<Skipped>,
    /// How many operations were left out because there are more than [`MAX_OPERATIONS`].
    pub cut: usize,
}

/// An operation that is not served, since the document describes it wrongly or in a way that cannot be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// What entries call it; `None` where nothing of the whole path can be read.
    pub name: Option<String>,
    /// `METHOD /path`.
    pub operation: String,
    /// For the owner of the source.
    pub message: String,
}

/// Why nothing of a document can be served, in words for the owner of the source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("the document has {size} bytes; at most {MAX_BYTES} are read")]
    TooLarge { size: usize },
    #[error(
        "the document holds more than {} values, which takes too much memory: leave out what is not needed",
        text::MAX_VALUES
    )]
    TooMany,
    #[error("the document is neither JSON nor YAML: {reason}")]
    Syntax { reason: String },
    #[error("this is a Swagger {version} document; convert it to OpenAPI 3 first")]
    Swagger { version: String },
    #[error("this is no OpenAPI 3 document: {reason}")]
    NoDocument { reason: String },
}

/// Why one operation cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
struct Broken(String);

impl Broken {
    fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// Reads a document in JSON or YAML.
pub fn read(document: &[u8], settings: &Settings) -> Result<Document, Unreadable> {
    if document.len() > MAX_BYTES {
        return Err(Unreadable::TooLarge {
            size: document.len(),
        });
    }
    let root = text::read(document)?;
    let reason = |reason: &str| Unreadable::NoDocument {
        reason: reason.to_owned(),
    };
    if let Some(version) = root.get("swagger") {
        return Err(Unreadable::Swagger {
            version: text::short(version.as_str().unwrap_or("2.0")),
        });
    }
    let version = match root.get("openapi") {
        Some(Value::String(version)) => version.clone(),
        Some(Value::Number(version)) => version.to_string(),
        _ => return Err(reason("it has no field `openapi`")),
    };
    if !version.trim().starts_with('3') {
        let version = text::short(&version);
        return Err(reason(&format!("its version is {version}")));
    }
    let nothing = Value::Object(serde_json::Map::new());
    let paths = match root.get("paths") {
        // 3.1 has documents of webhooks or components alone.
        None | Some(Value::Null) => &nothing,
        Some(paths) => paths,
    };
    if !paths.is_object() {
        return Err(reason("`paths` is not an object"));
    }
    let mut skipped = Vec::new();
    let mut found = operation::find(&root, settings, &mut skipped);
    let cut = found.len().saturating_sub(MAX_OPERATIONS);
    found.truncate(MAX_OPERATIONS);
    let secrets = Arc::new(parameter::Secrets::new(&root, settings));
    let mut room = input::ROOM;
    let mut operations = Vec::with_capacity(found.len());
    for found in found {
        match operation::read(&root, settings, &secrets, &found, &mut room) {
            Ok(operation) => operations.push(operation),
            Err(Broken(message)) => skipped.push(Skipped {
                name: Some(found.name.clone()),
                operation: found.label(),
                message,
            }),
        }
    }
    Ok(Document {
        title: text::line(&root["info"]["title"]),
        base: servers::base(&root, settings),
        operations,
        skipped,
        cut,
    })
}
