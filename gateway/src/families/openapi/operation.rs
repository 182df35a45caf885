//! The operations of a document: which there are, and what each is to those who list and call it.

use std::sync::Arc;

use http::Method;
use serde_json::{Map, Value};
use url::Url;

use crate::tool::Effect;

use super::body::Body;
use super::cost::{self, Cost};
use super::names::{self, Risk};
use super::parameter::{self, Parameter, Secrets, Template};
use super::{Broken, Settings, Skipped, body, input, pointer, servers, text};

/// The longest description that is kept, in characters.
const DESCRIPTION: usize = 4_000;

/// The fields of a path item that are operations, in the order of the list.
const METHODS: &[&str] = &[
    "get", "head", "options", "trace", "put", "post", "patch", "delete", "query",
];

/// One operation: what a tool is made of, and how its requests are built.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Unique in its document, of `[A-Za-z0-9_-]`, at most 128 characters; [`crate::connector::served_name`] makes a tool's name.
    pub name: String,
    pub method: Method,
    /// As the document writes it, such as `/customers/{id}`.
    pub path: String,
    pub tags: Vec<String>,
    /// One line.
    pub title: String,
    /// The first line stands for the whole where there is room for one only.
    pub description: String,
    /// The document marks it as one to be given up.
    pub deprecated: bool,
    pub effect: Effect,
    /// JSON Schema 2020-12 of the arguments, of type object, without references. Closed by `additionalProperties:
    /// false` unless the document opens the body.
    pub input_schema: Map<String, Value>,
    /// Where its requests go, if not where the document's go. A credential of the document's base is not for it when
    /// the origin differs.
    pub base: Option<Url>,
    /// What calls cost; `None` when the document says nothing about it.
    pub cost: Option<Cost>,
    pub(super) template: Template,
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Option<Body>,
    pub(super) secrets: Arc<Secrets>,
    /// Value of the header `accept`.
    pub(super) accept: String,
}

impl Operation {
    /// What it may do, as grouped lists tell operations apart.
    pub fn risk(&self) -> Risk {
        match self.effect {
            Effect::Reads => Risk::Read,
            Effect::Writes { .. } => Risk::Write,
            Effect::Destroys { .. } => Risk::Delete,
        }
    }
}

/// An operation as the document has it.
pub(super) struct Found<'a> {
    pub(super) name: String,
    /// In capitals.
    pub(super) method: &'static str,
    pub(super) path: &'a str,
    pub(super) item: &'a Value,
    pub(super) value: &'a Value,
}

impl Found<'_> {
    /// `METHOD /path`.
    pub(super) fn label(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// The operations that the source's owner wants, named; paths that cannot be read are skipped.
pub(super) fn find<'a>(
    root: &'a Value,
    settings: &Settings,
    skipped: &mut Vec<Skipped>,
) -> Vec<Found<'a>> {
    let mut found = Vec::new();
    for (path, item) in root["paths"].as_object().into_iter().flatten() {
        if !path.starts_with('/') {
            // `x-…` of all sorts.
            continue;
        }
        match pointer::resolve(root, item) {
            Ok(item) => found.extend(METHODS.iter().filter_map(|method| {
                let value = item.get(method).filter(|value| value.is_object())?;
                Some(Found {
                    name: String::new(),
                    method: upper(method),
                    path,
                    item,
                    value,
                })
            })),
            Err(Broken(message)) => skipped.push(Skipped {
                name: None,
                operation: path.clone(),
                message,
            }),
        }
    }
    names::assign(&mut found);
    found.retain(|operation| {
        (settings.include.is_empty() || names::any_matches(&settings.include, operation))
            && !names::any_matches(&settings.exclude, operation)
    });
    found
}

pub(super) fn read(
    root: &Value,
    settings: &Settings,
    secrets: &Arc<Secrets>,
    found: &Found<'_>,
    room: &mut usize,
) -> Result<Operation, Broken> {
    let Found {
        name,
        method,
        path,
        item,
        value,
    } = found;
    let template = Template::read(path)?;
    let mut unsendable = Vec::new();
    let parameters = parameter::read(root, secrets, &template, item, value, &mut unsendable)?;
    let body = body::read(root, value, &mut unsendable)?;
    let cost = cost::read(value)?;
    let input = input::assemble(root, parameters, body, cost, room)?;
    let deprecated = value["deprecated"] == true;
    Ok(Operation {
        name: name.clone(),
        method: Method::from_bytes(method.as_bytes())
            .map_err(|error| Broken::new(error.to_string()))?,
        path: (*path).to_owned(),
        tags: tags(value),
        title: title(value, name),
        description: description(found, deprecated, &unsendable),
        deprecated,
        effect: effect(method),
        input_schema: input.schema,
        base: servers::own([value, item], settings)?,
        cost: input.cost,
        template,
        parameters: input.parameters,
        body: input.body,
        secrets: Arc::clone(secrets),
        accept: accept(root, value),
    })
}

fn upper(method: &str) -> &'static str {
    match method {
        "get" => "GET",
        "head" => "HEAD",
        "options" => "OPTIONS",
        "trace" => "TRACE",
        "put" => "PUT",
        "post" => "POST",
        "patch" => "PATCH",
        "delete" => "DELETE",
        _ => "QUERY",
    }
}

fn effect(method: &str) -> Effect {
    match method {
        "GET" | "HEAD" | "OPTIONS" | "TRACE" | "QUERY" => Effect::Reads,
        "PUT" => Effect::Writes { idempotent: true },
        "DELETE" => Effect::Destroys { idempotent: true },
        _ => Effect::Writes { idempotent: false },
    }
}

fn tags(value: &Value) -> Vec<String> {
    let tags = value["tags"].as_array().into_iter().flatten();
    tags.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn title(value: &Value, name: &str) -> String {
    match text::line(&value["summary"]) {
        title if title.is_empty() => name.to_owned(),
        title => title,
    }
}

fn description(found: &Found<'_>, deprecated: bool, unsendable: &[String]) -> String {
    let summary = text::line(&found.value["summary"]);
    let long = found.value["description"].as_str().unwrap_or_default();
    let long = text::cut(long.trim(), DESCRIPTION);
    let mut description = match (summary.as_str(), long.as_str()) {
        ("", "") => found.label(),
        ("", text) | (text, "") => text.to_owned(),
        (summary, long) if long.starts_with(summary) => long.to_owned(),
        (summary, long) => format!("{summary}\n\n{long}"),
    };
    if deprecated {
        description.insert_str(0, "Deprecated. ");
    }
    if !unsendable.is_empty() {
        let names = text::cut(&unsendable.join(", "), 200);
        description.push_str(&format!(
            "\n\nThe service also wants {names}, which cannot be given here."
        ));
    }
    description
}

/// What the successful answers are declared to be, JSON first, and anything else after that.
fn accept(root: &Value, value: &Value) -> String {
    let responses = value["responses"].as_object().into_iter().flatten();
    let mut types: Vec<&str> = responses
        .filter(|(status, _)| status.starts_with('2') || *status == "default")
        .filter_map(|(_, response)| pointer::resolve(root, response).ok())
        .filter_map(|response| response["content"].as_object())
        .flatten()
        .map(|(media_type, _)| media_type.as_str())
        .filter(|media_type| media_type.bytes().all(|byte| (b' '..=b'~').contains(&byte)))
        .collect();
    types.sort_by_key(|media_type| body::preference(media_type));
    match types.first() {
        Some(first) if *first != "*/*" => format!("{first}, */*;q=0.1"),
        _ => "application/json, */*;q=0.1".to_owned(),
    }
}
