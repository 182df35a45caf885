//! Bodies of requests: which media type is sent, and which arguments it is made of.

use serde_json::Value;

use super::parameter::{Described, Layout, explode, query_style};
use super::schema::Flat;
use super::{Broken, input, pointer, text};

#[derive(Clone, Debug)]
pub(super) struct Body {
    /// As the document writes it.
    pub(super) media_type: String,
    pub(super) format: Format,
    pub(super) shape: Shape,
    /// A body is sent even if no argument goes into it.
    pub(super) required: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Json,
    UrlEncoded,
    Multipart,
    Text,
    /// The argument is base64 of the bytes.
    Binary,
}

#[derive(Clone, Debug)]
pub(super) enum Shape {
    Fields {
        fields: Vec<Field>,
        /// Arguments that are none of the operation's are fields too.
        open: bool,
    },
    /// One argument is the body.
    Whole { argument: String },
}

#[derive(Clone, Debug)]
pub(super) struct Field {
    /// What it is called among the arguments.
    pub(super) argument: String,
    pub(super) name: String,
    /// How forms write it.
    pub(super) form: FormField,
}

#[derive(Clone, Debug)]
pub(super) struct FormField {
    /// `None` when objects are written as JSON.
    pub(super) layout: Option<Layout>,
    /// Of a part of multipart.
    pub(super) content_type: Option<String>,
    /// The argument is base64 of the part's bytes, or a list of such.
    pub(super) binary: bool,
}

/// A body with what the document says about its arguments.
pub(super) struct Read<'a> {
    pub(super) media_type: String,
    pub(super) format: Format,
    pub(super) required: bool,
    /// The document says in so many words that it may be left out, so none of its fields is required. Most documents
    /// that do not say so mean nothing by it.
    pub(super) optional: bool,
    pub(super) description: Option<&'a str>,
    pub(super) content: Content<'a>,
}

pub(super) enum Content<'a> {
    Fields {
        fields: Vec<Described<'a, Field>>,
        /// What other fields may be; `None` when there may be none.
        open: Option<&'a Value>,
    },
    Whole(&'a Value),
}

/// The body that is sent. Required fields that cannot be arguments (R-C-197, R-C-198) are named in `unsendable`.
pub(super) fn read<'a>(
    root: &'a Value,
    operation: &'a Value,
    unsendable: &mut Vec<String>,
) -> Result<Option<Read<'a>>, Broken> {
    let body = pointer::resolve(root, &operation["requestBody"])?;
    let Some(content) = body["content"].as_object() else {
        return Ok(None);
    };
    let chosen = content
        .iter()
        .filter(|(media_type, _)| is_header_text(media_type))
        .min_by_key(|(media_type, _)| preference(media_type));
    let Some((media_type, media)) = chosen else {
        return Ok(None);
    };
    let schema = &media["schema"];
    let flat = Flat::of(root, &[schema])?;
    let format = format(media_type, &flat);
    let content = match format {
        Format::Text | Format::Binary => Content::Whole(schema),
        _ if flat.is_record() => fields(root, &flat, format, &media["encoding"], unsendable)?,
        _ => Content::Whole(schema),
    };
    // A range is no type that a body can have.
    let media_type = match (media_type.contains('*'), format) {
        (true, Format::Json) => "application/json",
        (true, Format::Text) => "text/plain",
        (true, _) => "application/octet-stream",
        (false, _) => media_type,
    };
    Ok(Some(Read {
        media_type: media_type.to_owned(),
        format,
        required: body["required"] == true,
        optional: body["required"] == false,
        description: body["description"].as_str(),
        content,
    }))
}

/// Which of several media types is taken: the least.
pub(super) fn preference(media_type: &str) -> u8 {
    match essence(media_type).as_str() {
        "application/json" => 0,
        "text/json" => 1,
        other if other.ends_with("+json") => 1,
        "*/*" | "application/*" => 2,
        "application/x-www-form-urlencoded" => 3,
        "multipart/form-data" => 4,
        "text/plain" => 5,
        other if other.starts_with("text/") => 6,
        _ => 7,
    }
}

/// The type without its parameters, in lower case.
fn essence(media_type: &str) -> String {
    let essence = media_type.split(';').next().unwrap_or_default();
    essence.trim().to_ascii_lowercase()
}

fn is_header_text(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

fn format(media_type: &str, flat: &Flat<'_>) -> Format {
    match essence(media_type).as_str() {
        _ if preference(media_type) < 2 => Format::Json,
        "application/x-www-form-urlencoded" => Format::UrlEncoded,
        // multipart/mixed and the like are rare, and named parts are the closest to them.
        other if other.starts_with("multipart/") => Format::Multipart,
        _ if flat.is_binary() => Format::Binary,
        "*/*" | "application/*" => Format::Json,
        other if is_text(other) => Format::Text,
        _ => Format::Binary,
    }
}

fn is_text(essence: &str) -> bool {
    const WORDS: &[&str] = &[
        "xml",
        "yaml",
        "json",
        "javascript",
        "graphql",
        "sql",
        "csv",
        "jose",
        "jwt",
        "sparql",
        "ndjson",
        "toml",
    ];
    essence.starts_with("text/") || WORDS.iter().any(|word| essence.contains(word))
}

fn fields<'a>(
    root: &'a Value,
    flat: &Flat<'a>,
    format: Format,
    encoding: &'a Value,
    unsendable: &mut Vec<String>,
) -> Result<Content<'a>, Broken> {
    let mut fields = Vec::new();
    for (name, schemas) in &flat.properties {
        let required = flat.required.contains(name);
        let field = Flat::of(root, schemas)?;
        if field.is_true("readOnly") {
            continue;
        }
        if !input::is_name(name) {
            unsendable.extend(required.then(|| text::cut(name, 80)));
            continue;
        }
        fields.push(Described {
            what: Field {
                argument: (*name).to_owned(),
                name: (*name).to_owned(),
                form: form_field(root, &field, format, &encoding[*name])?,
            },
            schemas: schemas.clone(),
            description: None,
            deprecated: field.is_true("deprecated"),
            required,
        });
    }
    Ok(Content::Fields {
        fields,
        open: flat.open(),
    })
}

fn form_field(
    root: &Value,
    field: &Flat<'_>,
    format: Format,
    encoding: &Value,
) -> Result<FormField, Broken> {
    let items = Flat::of(root, &field.items())?;
    let content_type = encoding["contentType"].as_str().map(|types| {
        let first = types.split(',').next().unwrap_or_default().trim();
        first.to_owned()
    });
    let has_layout = ["style", "explode", "allowReserved"]
        .iter()
        .any(|keyword| !encoding[keyword].is_null());
    let style = query_style(encoding["style"].as_str());
    let is_object = field.has_type("object");
    let written = has_layout || (!is_object && content_type.is_none());
    Ok(FormField {
        layout: written.then(|| Layout {
            style,
            explode: explode(style, encoding),
            reserved: encoding["allowReserved"] == true,
        }),
        content_type: content_type
            .filter(|content_type| is_header_text(content_type) && !content_type.contains('*')),
        binary: format == Format::Multipart && (field.is_binary() || items.is_binary()),
    })
}

impl FormField {
    /// Of a field that the document does not describe.
    pub(super) const PLAIN: Self = Self {
        layout: None,
        content_type: None,
        binary: false,
    };
}
