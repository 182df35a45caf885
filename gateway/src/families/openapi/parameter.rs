//! Parameters of operations: in the path, in the query and in headers.

use std::collections::HashSet;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::Value;

use super::{Broken, Settings, input, pointer, text};

/// Headers that are the gateway's or the connection's own, beside those that begin with `x-forwarded-` or `proxy-`.
const RESERVED_HEADERS: &[&str] = &[
    "accept",
    "accept-encoding",
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "cookie2",
    "expect",
    "forwarded",
    "host",
    "keep-alive",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-real-ip",
];

/// What a literal part of a path cannot have as it is; `%` stays, since the document's own escapes do.
const LITERAL: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Path,
    Query,
    Header,
}

impl Place {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Query => "query",
            Self::Header => "header",
        }
    }
}

/// How a value becomes text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Simple,
    Label,
    Matrix,
    Form,
    Space,
    Pipe,
    Deep,
    /// The value's JSON.
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) style: Style,
    pub(super) explode: bool,
    /// Characters that delimit parts of a URL stay as they are.
    pub(super) reserved: bool,
}

impl Layout {
    /// As documents name it.
    pub(super) fn words(self) -> &'static str {
        match (self.style, self.explode) {
            (Style::Simple, false) => "simple",
            (Style::Simple, true) => "simple, exploded",
            (Style::Label, false) => "label",
            (Style::Label, true) => "label, exploded",
            (Style::Matrix, false) => "matrix",
            (Style::Matrix, true) => "matrix, exploded",
            (Style::Form, false) => "form",
            (Style::Form, true) => "form, exploded",
            (Style::Space, _) => "spaceDelimited",
            (Style::Pipe, _) => "pipeDelimited",
            (Style::Deep, _) => "deepObject",
            (Style::Json, _) => "JSON",
        }
    }
}

/// The value's JSON.
pub(super) const JSON: Layout = Layout {
    style: Style::Json,
    explode: false,
    reserved: false,
};

/// What queries and forms have when the document says nothing.
pub(super) const FORM: Layout = Layout {
    style: Style::Form,
    explode: true,
    reserved: false,
};

#[derive(Clone, Debug)]
pub(super) struct Parameter {
    /// What it is called among the arguments.
    pub(super) argument: String,
    pub(super) name: String,
    pub(super) place: Place,
    pub(super) layout: Layout,
}

/// A parameter or a body field with what the document says about its values.
pub(super) struct Described<'a, T> {
    pub(super) what: T,
    /// All of them hold.
    pub(super) schemas: Vec<&'a Value>,
    /// Stronger than those of the schemas.
    pub(super) description: Option<&'a str>,
    pub(super) deprecated: bool,
    pub(super) required: bool,
}

/// A path in its literal parts, percent-encoded, and its parameters' names.
#[derive(Clone, Debug)]
pub(super) struct Template {
    pub(super) parts: Vec<Part>,
    /// What follows the `?` that some documents write in a path.
    pub(super) query: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Literal(String),
    Parameter(String),
}

impl Template {
    pub(super) fn read(path: &str) -> Result<Self, Broken> {
        // Some documents tell operations of one path apart by a fragment, which no server ever sees.
        let path = path.split('#').next().unwrap_or_default();
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        if query.contains('{') {
            return Err(Broken::new(
                "its path has a parameter after the `?`; make it a query parameter",
            ));
        }
        let mut parts = Vec::new();
        let mut rest = path;
        while let Some((literal, from)) = rest.split_once('{') {
            let (name, after) = from
                .split_once('}')
                .ok_or_else(|| Broken::new("its path has a `{` without a `}`"))?;
            push_literal(&mut parts, literal);
            parts.push(Part::Parameter(name.to_owned()));
            rest = after;
        }
        push_literal(&mut parts, rest);
        let template = Self {
            parts,
            query: utf8_percent_encode(query, LITERAL).to_string(),
        };
        let steps = template.literal();
        if steps.split('/').any(is_step) {
            return Err(Broken::new("its path has a segment `.` or `..`"));
        }
        Ok(template)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Parameter(name) => Some(name.as_str()),
            Part::Literal(_) => None,
        })
    }

    /// The path with something in place of each parameter.
    fn literal(&self) -> String {
        let parts = self.parts.iter().map(|part| match part {
            Part::Literal(text) => text.as_str(),
            Part::Parameter(_) => "x",
        });
        parts.collect()
    }
}

fn push_literal(parts: &mut Vec<Part>, text: &str) {
    if !text.is_empty() {
        let text = utf8_percent_encode(text, LITERAL).to_string();
        parts.push(Part::Literal(text));
    }
}

/// Whether readers of URLs take a segment for a step instead of a name.
pub(super) fn is_step(segment: &str) -> bool {
    let segment = segment.to_ascii_lowercase().replace("%2e", ".");
    segment == "." || segment == ".."
}

/// Where credentials go: names that are never arguments (R-C-196).
#[derive(Debug)]
pub(super) struct Secrets {
    /// In lower case.
    headers: HashSet<String>,
    queries: HashSet<String>,
}

impl Secrets {
    pub(super) fn new(root: &Value, settings: &Settings) -> Self {
        let lower = |name: &String| name.to_ascii_lowercase();
        let mut secrets = Self {
            headers: settings.credential_headers.iter().map(lower).collect(),
            queries: settings.credential_queries.iter().cloned().collect(),
        };
        let schemes = root["components"]["securitySchemes"].as_object();
        for (_, scheme) in schemes.into_iter().flatten() {
            let Ok(scheme) = pointer::resolve(root, scheme) else {
                continue;
            };
            let Some(name) = scheme["name"].as_str() else {
                continue;
            };
            match scheme["in"].as_str() {
                Some("header") => secrets.headers.insert(name.to_ascii_lowercase()),
                Some("query") => secrets.queries.insert(name.to_owned()),
                _ => false,
            };
        }
        secrets
    }

    fn has(&self, place: Place, name: &str) -> bool {
        match place {
            Place::Path => false,
            Place::Query => self.has_query(name),
            Place::Header => {
                let name = name.to_ascii_lowercase();
                self.headers.contains(&name)
                    || RESERVED_HEADERS.contains(&name.as_str())
                    || name.starts_with("x-forwarded-")
                    || name.starts_with("proxy-")
            }
        }
    }

    /// Whether a query parameter is one that no value may bring in either.
    pub(super) fn has_query(&self, name: &str) -> bool {
        self.queries.contains(name)
    }
}

/// The parameters that become arguments. Required ones that cannot (R-C-197, R-C-198) are named in `unsendable`.
pub(super) fn read<'a>(
    root: &'a Value,
    secrets: &Secrets,
    template: &Template,
    item: &'a Value,
    operation: &'a Value,
    unsendable: &mut Vec<String>,
) -> Result<Vec<Described<'a, Parameter>>, Broken> {
    let mut all: Vec<(Place, &str, &Value)> = Vec::new();
    // An operation's own parameter takes the place of its path's.
    for parameter in [operation, item].into_iter().flat_map(list) {
        let parameter = pointer::resolve(root, parameter)?;
        let (Some(name), Some(place)) = (parameter["name"].as_str(), place(parameter)) else {
            continue;
        };
        if !all.iter().any(|(p, n, _)| (*p, *n) == (place, name)) {
            all.push((place, name, parameter));
        }
    }
    let mut parameters = Vec::new();
    for name in template.names() {
        if !input::is_name(name) {
            let name = text::cut(name, 80);
            return Err(Broken::new(format!(
                "its path needs the parameter `{name}`, whose name is not of letters, digits, `_`, `.` and `-` or is longer than 64 characters"
            )));
        }
        if parameters
            .iter()
            .any(|known: &Described<'_, Parameter>| known.what.name == name)
        {
            continue;
        }
        let declared = all.iter().find(|(p, n, _)| (*p, *n) == (Place::Path, name));
        let declared = declared.map_or(&Value::Null, |(_, _, parameter)| parameter);
        parameters.push(described(Place::Path, name, declared));
    }
    for (place, name, parameter) in all {
        if place == Place::Path || secrets.has(place, name) {
            continue;
        }
        if input::is_name(name) {
            parameters.push(described(place, name, parameter));
        } else if parameter["required"] == true {
            unsendable.push(text::cut(name, 80));
        }
    }
    parameters.sort_by_key(|parameter| parameter.what.place);
    Ok(parameters)
}

fn list(place: &Value) -> impl Iterator<Item = &Value> {
    place["parameters"].as_array().into_iter().flatten()
}

/// `None` for cookies, which are where a browser keeps its session, and for places that OpenAPI 3 does not have.
fn place(parameter: &Value) -> Option<Place> {
    match parameter["in"].as_str()? {
        "path" => Some(Place::Path),
        "query" => Some(Place::Query),
        "header" => Some(Place::Header),
        _ => None,
    }
}

fn described<'a>(place: Place, name: &str, parameter: &'a Value) -> Described<'a, Parameter> {
    let content = parameter["content"].as_object();
    let content = content.and_then(|content| content.iter().next());
    let (schema, layout) = match content {
        Some((_, content)) if parameter["schema"].is_null() => (&content["schema"], JSON),
        _ => (&parameter["schema"], layout(place, parameter)),
    };
    Described {
        what: Parameter {
            argument: name.to_owned(),
            name: name.to_owned(),
            place,
            layout,
        },
        schemas: vec![schema],
        description: parameter["description"].as_str(),
        deprecated: parameter["deprecated"] == true,
        required: place == Place::Path || parameter["required"] == true,
    }
}

fn layout(place: Place, parameter: &Value) -> Layout {
    let style = match (place, parameter["style"].as_str()) {
        (Place::Path, Some("label")) => Style::Label,
        (Place::Path, Some("matrix")) => Style::Matrix,
        (Place::Path | Place::Header, _) => Style::Simple,
        (Place::Query, style) => query_style(style),
    };
    Layout {
        style,
        explode: explode(style, parameter),
        reserved: place == Place::Query && parameter["allowReserved"] == true,
    }
}

pub(super) fn query_style(style: Option<&str>) -> Style {
    match style {
        Some("spaceDelimited") => Style::Space,
        Some("pipeDelimited") => Style::Pipe,
        Some("deepObject") => Style::Deep,
        _ => Style::Form,
    }
}

pub(super) fn explode(style: Style, place: &Value) -> bool {
    place["explode"].as_bool().unwrap_or(style == Style::Form)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_in_parts() {
        let literal = |text: &str| Part::Literal(text.to_owned());
        let template = Template::read("/a b/{x}.{y}:run?kind=a&b#one").unwrap();
        let expected = [
            literal("/a%20b/"),
            Part::Parameter("x".to_owned()),
            literal("."),
            Part::Parameter("y".to_owned()),
            literal(":run"),
        ];
        assert_eq!(template.parts, expected);
        assert_eq!(template.query, "kind=a&b");
        for path in ["/a/../b", "/%2e%2E/b", "/a/{x", "/a?x={x}"] {
            assert!(Template::read(path).is_err(), "{path}");
        }
    }
}
