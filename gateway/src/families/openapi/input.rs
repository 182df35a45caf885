//! The arguments of an operation: parameters and body fields side by side, each with a name of its own.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::body::{self, Body, Content, Field, Shape};
use super::cost::{Cost, Goes};
use super::parameter::{Described, Parameter, Place};
use super::schema::{DETAILS, MAX_SIZE, MAX_WIDTH, Stop, Writer};
use super::{Broken, body::Format};

/// How large the schemas of one document may be together, in bytes of JSON; those that come after say little. In memory
/// they take twenty times as much.
pub(super) const ROOM: usize = 8 * 1024 * 1024;

/// Arguments of every grouped tool, and of every tool of a data source: no operation has them as its own.
const TAKEN: &[&str] = &[
    "action",
    "response_fields",
    "response_format",
    "response_limit",
];

/// The argument that is the whole body.
const BODY: &str = "body";

pub(super) struct Input {
    pub(super) schema: Map<String, Value>,
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Option<Body>,
    pub(super) cost: Option<Cost>,
}

/// Whether a name can be an argument's (R-C-197, R-C-198).
pub(super) fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    (1..=64).contains(&name.len()) && name.bytes().all(allowed)
}

/// Names the arguments and writes their schema, for which there is still `room`.
pub(super) fn assemble<'a>(
    root: &'a Value,
    mut parameters: Vec<Described<'a, Parameter>>,
    mut body: Option<body::Read<'a>>,
    cost: Option<Cost>,
    room: &mut usize,
) -> Result<Input, Broken> {
    let mut names = Names::default();
    if let Some(cost) = &cost {
        take_caps(cost, &mut names, &mut parameters, &mut body)?;
    }
    for parameter in &mut parameters {
        let what = &mut parameter.what;
        what.argument = names.take(&what.name, what.place.word());
    }
    let mut whole = None;
    match body.as_mut().map(|body| &mut body.content) {
        Some(Content::Fields { fields, .. }) if fields.len() > MAX_WIDTH / 2 => {
            return Err(Broken::new("its body has too many fields"));
        }
        Some(Content::Fields { fields, .. }) => {
            for field in fields {
                field.what.argument = names.take(&field.what.name, BODY);
            }
        }
        Some(Content::Whole(_)) => whole = Some(names.take(BODY, "request")),
        None => {}
    }
    let arguments = Arguments {
        root,
        parameters: &parameters,
        body: body.as_ref(),
        whole: whole.as_deref(),
        cost: cost.as_ref(),
    };
    let schema = arguments.schema(room)?;
    let parameters = parameters.into_iter().map(|parameter| parameter.what);
    Ok(Input {
        schema,
        parameters: parameters.collect(),
        body: body.map(|body| finish(body, whole)),
        cost,
    })
}

/// The names given so far.
#[derive(Default)]
struct Names(HashSet<String>);

impl Names {
    /// `name`, or `<place>_<name>` where that is taken, or that with a number.
    fn take(&mut self, name: &str, place: &str) -> String {
        let is_free = |name: &String| !TAKEN.contains(&name.as_str()) && !self.0.contains(name);
        let plain = name.to_owned();
        let placed = cut(format!("{place}_{name}"), "");
        let numbered = (2..).map(|number| cut(format!("{place}_{name}"), &format!("_{number}")));
        let mut candidates = [plain, placed].into_iter().chain(numbered);
        let name = candidates.find(is_free).unwrap_or_default();
        self.0.insert(name.clone());
        name
    }
}

/// At most 64 characters, `end` among them; names are ASCII.
fn cut(mut name: String, end: &str) -> String {
    name.truncate(64 - end.len());
    name + end
}

/// Caps have their names first, and take the place of a parameter or field that the document has for the same.
fn take_caps(
    cost: &Cost,
    names: &mut Names,
    parameters: &mut Vec<Described<'_, Parameter>>,
    body: &mut Option<body::Read<'_>>,
) -> Result<(), Broken> {
    for cap in cost.caps() {
        names.0.insert(cap.argument.to_owned());
        let place = match cap.goes {
            Goes::Nowhere => continue,
            Goes::Query => Place::Query,
            Goes::Header => Place::Header,
            Goes::Body => {
                let content = body.as_mut().map(|body| &mut body.content);
                let Some(Content::Fields { fields, .. }) = content else {
                    // Without a place for it the service would never be told.
                    return Err(Broken::new(format!(
                        "x-chandlery-cost: {} cannot be told in a body that has no fields; write query or header",
                        cap.argument
                    )));
                };
                fields.retain(|field| field.what.name != cap.name);
                continue;
            }
        };
        parameters.retain(|one| {
            let Parameter {
                place: of, name, ..
            } = &one.what;
            let is_same = match place {
                Place::Header => name.eq_ignore_ascii_case(&cap.name),
                _ => *name == cap.name,
            };
            *of != place || !is_same
        });
    }
    Ok(())
}

fn finish(body: body::Read<'_>, whole: Option<String>) -> Body {
    let shape = match body.content {
        Content::Fields { fields, open } => Shape::Fields {
            fields: fields.into_iter().map(|field| field.what).collect(),
            open: open.is_some(),
        },
        Content::Whole(_) => Shape::Whole {
            argument: whole.unwrap_or_default(),
        },
    };
    Body {
        media_type: body.media_type,
        format: body.format,
        shape,
        required: body.required,
    }
}

struct Arguments<'a, 'b> {
    root: &'a Value,
    parameters: &'b [Described<'a, Parameter>],
    body: Option<&'b body::Read<'a>>,
    whole: Option<&'b str>,
    cost: Option<&'b Cost>,
}

impl<'a> Arguments<'a, '_> {
    fn schema(&self, room: &mut usize) -> Result<Map<String, Value>, Broken> {
        let (details, size) = match *room {
            0 => (&DETAILS[DETAILS.len() - 2..], MAX_SIZE / 4),
            _ => (DETAILS, MAX_SIZE),
        };
        for detail in details {
            let mut writer = Writer::new(self.root, *detail, size);
            match self.write(&mut writer) {
                Ok(schema) => {
                    *room = room.saturating_sub(size - writer.left());
                    return Ok(schema);
                }
                Err(Stop::TooLarge) => {}
                Err(Stop::Broken(broken)) => return Err(broken),
            }
        }
        Err(Broken::new("its arguments are too many to be described"))
    }

    fn write(&self, writer: &mut Writer<'a>) -> Result<Map<String, Value>, Stop> {
        let mut properties = Map::new();
        let mut required = Vec::new();
        for parameter in self.parameters {
            let mut schema = writer.write(&parameter.schemas, parameter.description)?;
            say_string(&mut schema);
            if parameter.deprecated {
                schema.insert("deprecated".to_owned(), true.into());
            }
            let argument = &parameter.what.argument;
            required.extend(parameter.required.then(|| argument.clone()));
            properties.insert(argument.clone(), schema.into());
        }
        let mut others = Value::Bool(false);
        match self.body.map(|body| (&body.content, body)) {
            Some((Content::Fields { fields, open }, body)) => {
                for field in fields {
                    let (argument, schema) = field_schema(writer, field)?;
                    let is_required = field.required && !body.optional;
                    required.extend(is_required.then(|| argument.clone()));
                    properties.insert(argument, schema.into());
                }
                if let Some(open) = open {
                    others = match open {
                        Value::Bool(_) => true.into(),
                        open => writer.write(&[*open], None)?.into(),
                    };
                }
            }
            Some((Content::Whole(schema), body)) => {
                let argument = self.whole.unwrap_or(BODY);
                let mut schema = writer.write(&[*schema], None)?;
                as_sent(&mut schema, body);
                required.extend(body.required.then(|| argument.to_owned()));
                properties.insert(argument.to_owned(), schema.into());
            }
            None => {}
        }
        for cap in self.cost.into_iter().flat_map(Cost::caps) {
            properties.insert(cap.argument.to_owned(), cap.schema());
        }
        required.sort_unstable();
        let mut schema = Map::new();
        schema.insert("type".to_owned(), "object".into());
        schema.insert("properties".to_owned(), properties.into());
        if !required.is_empty() {
            schema.insert("required".to_owned(), json!(required));
        }
        schema.insert("additionalProperties".to_owned(), others);
        Ok(schema)
    }
}

fn field_schema<'a>(
    writer: &mut Writer<'a>,
    field: &Described<'a, Field>,
) -> Result<(String, Map<String, Value>), Stop> {
    let Field { argument, form, .. } = &field.what;
    let mut schema = writer.write(&field.schemas, field.description)?;
    if form.binary {
        match schema.get_mut("items").and_then(Value::as_object_mut) {
            Some(items) => say_base64(items),
            None => say_base64(&mut schema),
        }
    }
    Ok((argument.clone(), schema))
}

/// R-C-192: what the document says nothing about is a string.
fn say_string(schema: &mut Map<String, Value>) {
    let says = ["type", "enum", "const", "anyOf", "allOf"];
    if !says.iter().any(|keyword| schema.contains_key(*keyword)) {
        schema.insert("type".to_owned(), "string".into());
    }
}

fn say_base64(schema: &mut Map<String, Value>) {
    schema.retain(|keyword, _| keyword == "description");
    schema.insert("type".to_owned(), "string".into());
    schema.insert("contentEncoding".to_owned(), "base64".into());
}

/// A whole body as its media type has it.
fn as_sent(schema: &mut Map<String, Value>, body: &body::Read<'_>) {
    match body.format {
        Format::Json => {}
        Format::Text => {
            schema.retain(|keyword, _| keyword == "description");
            schema.insert("type".to_owned(), "string".into());
            schema.insert(
                "contentMediaType".to_owned(),
                body.media_type.as_str().into(),
            );
        }
        Format::Binary => {
            say_base64(schema);
            schema.insert(
                "contentMediaType".to_owned(),
                body.media_type.as_str().into(),
            );
        }
        Format::UrlEncoded | Format::Multipart => {
            if !schema.contains_key("anyOf") {
                schema.insert("type".to_owned(), "object".into());
            }
        }
    }
    if let (Some(text), false) = (body.description, schema.contains_key("description")) {
        let text = super::text::cut(text.trim(), 500);
        schema.insert("description".to_owned(), text.into());
    }
}
