//! A call's arguments as an HTTP request.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method};
use percent_encoding::percent_decode_str;
use serde_json::value::RawValue;
use url::Url;

use crate::tool::ToolError;

use super::body::{Body, FormField, Format, Shape};
use super::cost::{Cost, Goes};
use super::form::{self, Filled};
use super::parameter::{Parameter, Part, Place, is_step};
use super::{Operation, check, style};

/// A request that has everything but its origin and its credential.
#[derive(Clone, Debug)]
pub struct HttpRequest {
    pub method: Method,
    /// Relative to the base, percent-encoded, begins with a slash; see [`join`].
    pub path_and_query: String,
    /// Among them `accept`, and never one that names the caller, the host or the connection.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// `None` where there is no body.
    pub content_type: Option<HeaderValue>,
    pub body: Bytes,
}

/// Where a request goes: below `base`, whatever the path is made of.
pub fn join(base: &Url, path_and_query: &str) -> Url {
    let (path, query) = match path_and_query.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (path_and_query, None),
    };
    let mut url = base.clone();
    url.set_path(&format!("{}{path}", base.path().trim_end_matches('/')));
    url.set_query(query);
    url.set_fragment(None);
    url
}

type Arguments<'a> = BTreeMap<String, &'a RawValue>;

impl Operation {
    /// The request of a call with these arguments.
    ///
    /// Fails with a sentence that begins with the argument that is wrong; nothing is sent then.
    pub fn request(&self, arguments: &RawValue) -> Result<HttpRequest, ToolError> {
        let mut arguments = check::read(&self.input_schema, arguments)?;
        let respelled = check::whole_numbers(&self.input_schema, &arguments);
        for (name, value) in &respelled {
            arguments.insert(name.clone(), value);
        }
        self.build(&arguments).map_err(ToolError::arguments)
    }

    fn build(&self, arguments: &Arguments<'_>) -> Result<HttpRequest, String> {
        let (content_type, body) = match &self.body {
            Some(body) => self.body(body, arguments)?,
            None => (None, Bytes::new()),
        };
        let mut path_and_query = self.path(arguments)?;
        let query = self.query(arguments)?;
        if !query.is_empty() {
            path_and_query.push('?');
            path_and_query.push_str(&query);
        }
        Ok(HttpRequest {
            method: self.method.clone(),
            path_and_query,
            headers: self.headers(arguments)?,
            content_type,
            body,
        })
    }

    /// The parameters of a place that the call has a value for.
    fn given<'a>(
        &'a self,
        place: Place,
        arguments: &'a Arguments<'_>,
    ) -> impl Iterator<Item = (&'a Parameter, &'a RawValue)> {
        let parameters = self.parameters.iter();
        parameters
            .filter(move |parameter| parameter.place == place)
            .filter_map(|parameter| Some((parameter, *arguments.get(&parameter.argument)?)))
            .filter(|(_, value)| value.get() != "null")
    }

    fn path(&self, arguments: &Arguments<'_>) -> Result<String, String> {
        let mut path = String::new();
        for part in &self.template.parts {
            let name = match part {
                Part::Literal(text) => {
                    path.push_str(text);
                    continue;
                }
                Part::Parameter(name) => name,
            };
            let mut given = self.given(Place::Path, arguments);
            let Some((parameter, value)) = given.find(|(parameter, _)| parameter.name == *name)
            else {
                return Err(format!("{name} is required"));
            };
            let text = style::path(name, value, parameter.layout)
                .map_err(|problem| format!("{} {problem}", parameter.argument))?;
            path.push_str(&text);
        }
        // Whoever reads the URL would leave its folder.
        if path.split('/').any(is_step) {
            return Err(format!(
                "a part of the path {} would be `.` or `..`, which names no resource; write the name of one",
                self.path
            ));
        }
        Ok(path)
    }

    fn query(&self, arguments: &Arguments<'_>) -> Result<String, String> {
        let mut pairs = Vec::new();
        if !self.template.query.is_empty() {
            pairs.push(self.template.query.clone());
        }
        for (parameter, value) in self.given(Place::Query, arguments) {
            let argument = &parameter.argument;
            let written = style::query(&parameter.name, value, parameter.layout)
                .map_err(|problem| format!("{argument} {problem}"))?;
            for (name, value) in written {
                let plain = percent_decode_str(&name).decode_utf8_lossy();
                if self.secrets.has_query(&plain) {
                    return Err(format!(
                        "{argument} must not have the field {plain}, which is where the credential goes"
                    ));
                }
                self.leave_to_caps(Goes::Query, argument, &plain)?;
                pairs.push(format!("{name}={value}"));
            }
        }
        for (name, cents) in self.caps(Goes::Query, arguments) {
            pairs.push(format!("{name}={cents}"));
        }
        Ok(pairs.join("&"))
    }

    fn headers(&self, arguments: &Arguments<'_>) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
        let mut headers = vec![(
            http::header::ACCEPT,
            HeaderValue::from_str(&self.accept).unwrap_or_else(|_| HeaderValue::from_static("*/*")),
        )];
        let caps = self.caps(Goes::Header, arguments);
        let caps = caps.map(|(name, cents)| (name, name, cents.to_string()));
        let given = self
            .given(Place::Header, arguments)
            .map(|(parameter, value)| {
                let text = style::header(value, parameter.layout);
                (parameter.argument.as_str(), parameter.name.as_str(), text)
            });
        for (argument, name, text) in given.chain(caps) {
            let is_plain = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
            let value = HeaderValue::from_str(&text).ok().filter(|_| is_plain);
            let (Ok(name), Some(value)) = (HeaderName::from_bytes(name.as_bytes()), value) else {
                return Err(format!(
                    "{argument} goes into a header, so it must be one line of ASCII characters"
                ));
            };
            headers.push((name, value));
        }
        Ok(headers)
    }

    /// The caps that are told in a place, by the names they have there.
    fn caps(&self, goes: Goes, arguments: &Arguments<'_>) -> impl Iterator<Item = (&str, u64)> {
        let caps = self.cost.iter().flat_map(Cost::caps);
        caps.filter(move |cap| cap.goes == goes)
            .filter_map(|cap| Some((cap.name.as_str(), cap.of(arguments)?)))
    }

    /// Fails where `argument` would write the field that a cap is told in: what an object or an open form holds has any
    /// name.
    fn leave_to_caps(&self, goes: Goes, argument: &str, name: &str) -> Result<(), String> {
        let mut caps = self.cost.iter().flat_map(Cost::caps);
        match caps.find(|cap| cap.goes == goes && cap.name == name) {
            None => Ok(()),
            Some(cap) => Err(format!(
                "{argument} must not have the field {name}, which is where {} goes",
                cap.argument
            )),
        }
    }

    fn body(
        &self,
        body: &Body,
        arguments: &Arguments<'_>,
    ) -> Result<(Option<HeaderValue>, Bytes), String> {
        let caps: Vec<(&str, Box<RawValue>)> = self
            .caps(Goes::Body, arguments)
            .filter_map(|(name, cents)| {
                Some((name, RawValue::from_string(cents.to_string()).ok()?))
            })
            .collect();
        let whole;
        let mut is_sent = body.required;
        let mut fields = Vec::new();
        match &body.shape {
            Shape::Whole { argument } => {
                let Some(value) = arguments.get(argument) else {
                    return match body.required {
                        true => Err(format!("{argument} is required")),
                        false => Ok((None, Bytes::new())),
                    };
                };
                if let Some(bytes) = whole_body(body.format, argument, value)? {
                    return Ok((content_type(&body.media_type), bytes.into()));
                }
                whole = serde_json::from_str::<Arguments<'_>>(value.get())
                    .map_err(|_| format!("{argument} must be an object with the form's fields"))?;
                is_sent = true;
                fields.extend(whole.iter().map(|(name, value)| Filled {
                    argument: name,
                    name,
                    form: &FormField::PLAIN,
                    value,
                }));
            }
            Shape::Fields {
                fields: known,
                open,
            } => {
                for field in known {
                    if let Some(value) = arguments.get(&field.argument) {
                        fields.push(Filled {
                            argument: &field.argument,
                            name: &field.name,
                            form: &field.form,
                            value,
                        });
                    }
                }
                let others = arguments
                    .iter()
                    .filter(|(name, _)| *open && !self.knows(name));
                fields.extend(others.map(|(name, value)| Filled {
                    argument: name,
                    name,
                    form: &FormField::PLAIN,
                    value,
                }));
            }
        }
        if matches!(body.format, Format::UrlEncoded | Format::Multipart) {
            // A form has no null: its readers would take the word for one.
            fields.retain(|field| field.value.get() != "null");
        }
        for field in &fields {
            self.leave_to_caps(Goes::Body, field.argument, field.name)?;
            if body.format == Format::UrlEncoded && self.cost.is_some() {
                for (name, _) in form::pairs(field)? {
                    let name = percent_decode_str(&name).decode_utf8_lossy();
                    self.leave_to_caps(Goes::Body, field.argument, &name)?;
                }
            }
        }
        fields.extend(caps.iter().map(|(name, value)| Filled {
            argument: name,
            name,
            form: &FormField::PLAIN,
            value,
        }));
        if fields.is_empty() && !is_sent {
            return Ok((None, Bytes::new()));
        }
        Ok(match body.format {
            Format::UrlEncoded => {
                let bytes = form::url_encoded(&fields)?;
                (content_type(&body.media_type), bytes.into())
            }
            Format::Multipart => {
                let (boundary, bytes) = form::multipart(&fields)?;
                let essence = body.media_type.split(';').next().unwrap_or_default();
                let media_type = format!("{}; boundary={boundary}", essence.trim());
                (content_type(&media_type), bytes.into())
            }
            Format::Json | Format::Text | Format::Binary => {
                let fields: BTreeMap<&str, &RawValue> = fields
                    .iter()
                    .map(|field| (field.name, field.value))
                    .collect();
                let bytes = serde_json::to_vec(&fields).map_err(|error| error.to_string())?;
                (content_type(&body.media_type), bytes.into())
            }
        })
    }

    fn knows(&self, argument: &str) -> bool {
        let properties = self.input_schema.get("properties");
        properties.is_some_and(|properties| properties.get(argument).is_some())
    }
}

/// The body that one argument is; `None` where its fields are a form's.
fn whole_body(format: Format, argument: &str, value: &RawValue) -> Result<Option<Vec<u8>>, String> {
    Ok(match format {
        Format::Json => Some(value.get().as_bytes().to_vec()),
        Format::Text => Some(style::part(value).into_bytes()),
        Format::Binary => {
            Some(form::decode(value).map_err(|problem| format!("{argument} {problem}"))?)
        }
        Format::UrlEncoded | Format::Multipart => None,
    })
}

fn content_type(media_type: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(media_type).ok()
}
