//! What a ToolSource's document comes to: its tools, and what is left out. Dials nothing.

use chandlery_crds::conditions::reason;
use chandlery_crds::{NotedTool, ToolSourceSpec};
use url::Url;

use super::body::Shape;
use super::parameter::Layout;
use super::{Document, Operation, Settings, group_name, join, read};
use crate::connector::{Failure, OfferedTool, served_name, visible};
use crate::families::connect::url;
use crate::tool::{Effect, Group, Origin, Served, Tool};

/// A document as its source serves it.
pub struct Offer {
    pub document: Document,
    /// Where its requests go.
    pub base: Url,
    pub tools: Vec<OfferedTool>,
    pub left_out: Vec<NotedTool>,
}

/// What the source `name` serves of `text`, its document.
pub fn offer(name: &str, spec: &ToolSourceSpec, text: &[u8]) -> Result<Offer, Failure> {
    let invalid = |message: String| Failure::new(reason::DOCUMENT_INVALID, message);
    let settings = settings(spec)?;
    let document = read(text, &settings).map_err(|error| invalid(error.to_string()))?;
    let base = document.base.clone().ok_or_else(|| {
        invalid("the document names no server: write spec.openapi.baseUrl".to_owned())
    })?;
    check_origin(spec, &settings, &base)?;
    let skipped = document.skipped.iter().map(|skipped| {
        let known_as = skipped.name.as_ref().unwrap_or(&skipped.operation);
        let message = format!("{}: {}", skipped.operation, skipped.message);
        noted(known_as, "Unreadable", &message)
    });
    let mut left_out: Vec<NotedTool> = skipped.collect();
    if document.cut > 0 {
        let message = format!(
            "{} more operations were left out: name those you need under spec.openapi.include",
            document.cut
        );
        left_out.push(noted("*", "TooMany", &message));
    }
    let tools = document.operations.iter().map(|operation| OfferedTool {
        tool: tool(name, spec, operation, &document.title),
        identity: identity(operation, &base),
        claimed: None,
    });
    Ok(Offer {
        tools: tools.collect(),
        left_out,
        base,
        document,
    })
}

/// What of an operation an agent does not see: where it goes, where its arguments go, and what it costs. In few words,
/// since people compare them.
fn identity(operation: &Operation, base: &Url) -> String {
    let url = join(operation.base.as_ref().unwrap_or(base), &operation.path);
    let mut said = vec![format!("{} {url}", operation.method)];
    let spelled = |argument: &str, name: &str| match argument == name {
        true => name.to_owned(),
        false => format!("{argument} as {name}"),
    };
    for parameter in &operation.parameters {
        let (place, layout) = (parameter.place.word(), parameter.layout);
        let name = spelled(&parameter.argument, &parameter.name);
        said.push(format!("{place} {name} ({})", layout.words()));
    }
    if let Some(body) = &operation.body {
        let shape = match &body.shape {
            Shape::Whole { argument } => format!("all of {argument}"),
            Shape::Fields { fields, open } => {
                let names = fields.iter().map(|field| {
                    let layout = field.form.layout.map(Layout::words);
                    let layout = layout.map(|words| format!(" ({words})"));
                    let name = spelled(&field.argument, &field.name);
                    name + layout.as_deref().unwrap_or_default()
                });
                let rest = open.then(|| "any other".to_owned());
                names.chain(rest).collect::<Vec<_>>().join(", ")
            }
        };
        said.push(format!("body {}: {shape}", body.media_type));
    }
    said.extend(operation.cost.as_ref().map(ToString::to_string));
    said.join("; ")
}

/// What the spec says about reading the document.
pub(super) fn settings(spec: &ToolSourceSpec) -> Result<Settings, Failure> {
    let openapi = spec.openapi.clone().unwrap_or_default();
    let parsed = |text: Option<&str>, field| text.map(|text| url(text, field)).transpose();
    let auth = spec.auth.as_ref();
    let header = auth.and_then(|auth| Some(auth.header.as_ref()?.name.clone()));
    let query = auth.and_then(|auth| Some(auth.query.as_ref()?.name.clone()));
    Ok(Settings {
        base_url: parsed(openapi.base_url.as_deref(), "spec.openapi.baseUrl")?,
        document_url: parsed(openapi.url.as_deref(), "spec.openapi.url")?,
        include: openapi.include,
        exclude: openapi.exclude,
        credential_headers: header.into_iter().collect(),
        credential_queries: query.into_iter().collect(),
    })
}

/// A credential goes where a person said, never where a document from somewhere says.
fn check_origin(spec: &ToolSourceSpec, settings: &Settings, base: &Url) -> Result<(), Failure> {
    let from = settings.document_url.as_ref();
    let is_chosen =
        settings.base_url.is_some() || from.is_none_or(|from| from.origin() == base.origin());
    if is_chosen || spec.auth.is_none() {
        return Ok(());
    }
    let message = format!(
        "the document says that the service is at {}, elsewhere than the document itself: write spec.openapi.baseUrl, so that the credential goes nowhere unseen",
        base.origin().ascii_serialization()
    );
    Err(Failure::new(reason::BLOCKED, message))
}

fn tool(name: &str, spec: &ToolSourceSpec, operation: &Operation, title: &str) -> Tool {
    let prefix = spec.prefix(name);
    let tag = operation.tags.first().map(String::as_str);
    let group = group_name(&prefix, tag, operation.risk());
    let of = match (title, tag) {
        ("", None) => name.to_owned(),
        ("", Some(tag)) => tag.to_owned(),
        (title, None) => title.to_owned(),
        (title, Some(tag)) => format!("{title}, {tag}"),
    };
    let does = match operation.effect {
        Effect::Reads => "what can be read",
        Effect::Writes { .. } => "what can be added and changed",
        Effect::Destroys { .. } => "what can be deleted",
    };
    Tool {
        name: served_name(&prefix, &operation.name).into(),
        title: operation.title.clone().into(),
        description: operation.description.clone().into(),
        input_schema: operation.input_schema.clone(),
        effect: operation.effect,
        served: Served::Entry,
        group: Some(Group {
            title: group.clone().into(),
            name: group.into(),
            description: format!("{of}: {does}.").into(),
            action: operation.name.clone().into(),
        }),
        interactive: false,
        origin: Some(Box::new(Origin {
            source: name.to_owned(),
            operations: vec![
                operation.name.clone(),
                format!("{} {}", operation.method, operation.path),
            ],
            permission: spec.permission,
            is_data: true,
            output_schema: None,
        })),
    }
}

fn noted(name: &str, reason: &str, message: &str) -> NotedTool {
    let cut = |text: &str, longest| visible(text).chars().take(longest).collect();
    NotedTool {
        name: cut(name, 256),
        reason: reason.to_owned(),
        message: cut(message, 1024),
    }
}
