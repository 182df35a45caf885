//! Reads a request as the document's own definitions say it must be read, and compares it with the arguments of the
//! call. Knows nothing of how requests are built.

use std::collections::{BTreeMap, BTreeSet};

use chandlery_gateway::families::openapi::{HttpRequest, Operation, join};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};
use url::Url;

type Problem = String;

/// What arguments of the product are called that no operation may have.
const TAKEN: &[&str] = &[
    "action",
    "response_fields",
    "response_format",
    "response_limit",
];

/// Whether `request` says what `arguments` say, no less and no more, the way `document` wants it said.
pub(crate) fn compare(
    document: &Value,
    operation: &Operation,
    arguments: &Map<String, Value>,
    request: &HttpRequest,
) -> Result<(), Problem> {
    let method = request.method.as_str();
    let item = follow(document, &document["paths"][&operation.path]);
    let definition = &item[method.to_ascii_lowercase()];
    if !definition.is_object() {
        return Err(format!("the document has no {method} {}", operation.path));
    }
    let mut left = arguments.clone();
    let mut names = BTreeSet::new();
    let (path, query) = match request.path_and_query.split_once('?') {
        Some((path, query)) => (path, query),
        None => (request.path_and_query.as_str(), ""),
    };
    reads_as_written(path, query)?;

    let parameters = parameters(document, item, definition);
    let of = |place: &'static str| parameters.iter().filter(move |one| one["in"] == place);
    let template = operation.path.split('#').next().unwrap_or_default();
    let (template, fixed) = template.split_once('?').unwrap_or((template, ""));
    let mut steps = Vec::new();
    for (literal, name) in split_template(template) {
        steps.push(Step::Literal(literal));
        if let Some(name) = name {
            let declared = of("path").find(|one| one["name"] == name);
            let argument = match TAKEN.contains(&name.as_str()) {
                true => format!("path_{name}"),
                false => name.clone(),
            };
            let value = arguments.get(&argument).cloned();
            let value = value.ok_or(format!("no argument for {{{name}}}"))?;
            left.remove(&argument);
            names.insert(argument);
            steps.push(Step::Value(
                name,
                declared.cloned().unwrap_or_default(),
                value,
            ));
        }
    }
    if !path_matches(&steps, path) {
        return Err(format!("{path} is not {template} with {arguments:?}"));
    }

    let mut pairs: Vec<(String, String)> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), value.to_owned())
        })
        .collect();
    for pair in fixed.split('&').filter(|pair| !pair.is_empty()) {
        let name = pair.split('=').next().unwrap_or_default();
        take(&mut pairs, &decode(name)).ok_or(format!("{pair} of the path is missing"))?;
    }
    for parameter in of("query") {
        let argument = argument(parameter, "query", &mut names);
        if let Some(value) = left.remove(&argument) {
            query_says(parameter, &value, &mut pairs).map_err(|problem| {
                format!("query parameter of {argument}: {problem} in {query}")
            })?;
        }
    }
    if !pairs.is_empty() {
        return Err(format!("nobody asked for {pairs:?} in the query"));
    }

    let mut headers: BTreeMap<String, String> = request
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_str().expect("ASCII").to_owned()))
        .collect();
    headers.remove("accept").ok_or("no header accept")?;
    for parameter in of("header") {
        let argument = argument(parameter, "header", &mut names);
        if let Some(value) = left.remove(&argument) {
            let name = text_of(&parameter["name"]).to_ascii_lowercase();
            let header = headers.remove(&name).ok_or(format!("no header {name}"))?;
            header_says(parameter, &value, &header)?;
        }
    }
    if !headers.is_empty() {
        return Err(format!("nobody asked for the headers {headers:?}"));
    }
    body_says(document, definition, left, &names, request)
}

/// No reader of URLs makes anything else of it.
fn reads_as_written(path: &str, query: &str) -> Result<(), Problem> {
    let base = Url::parse("https://upstream.example/base/").expect("a URL");
    let whole = match query {
        "" => path.to_owned(),
        query => format!("{path}?{query}"),
    };
    let expected = format!("https://upstream.example/base{whole}");
    let parsed = Url::parse(&expected).map_err(|error| error.to_string())?;
    if join(&base, &whole).as_str() != expected || parsed.as_str() != expected {
        return Err(format!(
            "{expected} is read as {parsed}, joined as {}",
            join(&base, &whole)
        ));
    }
    Ok(())
}

fn follow<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    match value["$ref"].as_str() {
        Some(reference) => {
            let pointer = decode(reference.trim_start_matches('#'));
            follow(document, document.pointer(&pointer).expect("a reference"))
        }
        None => value,
    }
}

fn parameters(document: &Value, item: &Value, definition: &Value) -> Vec<Value> {
    let mut found: Vec<Value> = Vec::new();
    for place in [definition, item] {
        for parameter in place["parameters"].as_array().into_iter().flatten() {
            let parameter = follow(document, parameter);
            let same =
                |one: &Value| one["name"] == parameter["name"] && one["in"] == parameter["in"];
            if !found.iter().any(same) {
                found.push(parameter.clone());
            }
        }
    }
    found
}

/// The name of the argument, as `docs/openapi.md` says.
fn argument(parameter: &Value, place: &str, names: &mut BTreeSet<String>) -> String {
    let name = text_of(&parameter["name"]);
    let name = match TAKEN.contains(&name.as_str()) || names.contains(&name) {
        true => format!("{place}_{name}"),
        false => name,
    };
    names.insert(name.clone());
    name
}

enum Step {
    Literal(String),
    Value(String, Value, Value),
}

fn split_template(template: &str) -> Vec<(String, Option<String>)> {
    let mut parts = Vec::new();
    for piece in template.split('}') {
        match piece.split_once('{') {
            Some((literal, name)) => parts.push((literal.to_owned(), Some(name.to_owned()))),
            None => parts.push((piece.to_owned(), None)),
        }
    }
    parts
}

/// Tries every way in which the path can be the template.
fn path_matches(steps: &[Step], path: &str) -> bool {
    match steps {
        [] => path.is_empty(),
        [Step::Literal(literal), rest @ ..] => (0..=path.len())
            .any(|end| decode(&path[..end]) == decode(literal) && path_matches(rest, &path[end..])),
        [Step::Value(name, parameter, value), rest @ ..] => (1..=path.len()).any(|end| {
            let text = &path[..end];
            !text.contains('/')
                && path_says(name, parameter, value, text)
                && path_matches(rest, &path[end..])
        }),
    }
}

fn path_says(name: &str, parameter: &Value, value: &Value, text: &str) -> bool {
    let explode = parameter["explode"] == true;
    let style = parameter["style"].as_str().unwrap_or("simple");
    let (lead, between) = match (style, explode) {
        ("label", true) => (".", '.'),
        ("label", false) => (".", ','),
        ("matrix", true) => (";", ';'),
        ("matrix", false) => (";", ','),
        _ => ("", ','),
    };
    let Some(mut text) = text.strip_prefix(lead) else {
        return false;
    };
    let named = format!("{name}=");
    let is_matrix = style == "matrix";
    if is_matrix && (!explode || is_scalar(value)) {
        let Some(rest) = text.strip_prefix(&named) else {
            return false;
        };
        text = rest;
    }
    match value {
        Value::Array(items) => {
            let parts: Vec<String> = text.split(between).map(str::to_owned).collect();
            let parts = parts.iter().map(|part| match is_matrix && explode {
                true => decode(part.strip_prefix(&named).unwrap_or("?")),
                false => decode(part),
            });
            parts.eq(items.iter().map(text_of))
        }
        Value::Object(fields) => pairs_of(text, between, explode) == texts(fields),
        scalar => decode(text) == text_of(scalar),
    }
}

/// `k,v,k,v` or `k=v,k=v`.
fn pairs_of(text: &str, between: char, explode: bool) -> BTreeMap<String, String> {
    let parts: Vec<&str> = text
        .split(between)
        .filter(|part| !part.is_empty())
        .collect();
    if explode {
        let pairs = parts.iter().filter_map(|part| part.split_once('='));
        return pairs
            .map(|(key, value)| (decode(key), decode(value)))
            .collect();
    }
    let pairs = parts.chunks(2).filter(|pair| pair.len() == 2);
    pairs
        .map(|pair| (decode(pair[0]), decode(pair[1])))
        .collect()
}

fn texts(fields: &Map<String, Value>) -> BTreeMap<String, String> {
    fields
        .iter()
        .map(|(key, value)| (key.clone(), text_of(value)))
        .collect()
}

fn query_says(
    parameter: &Value,
    value: &Value,
    pairs: &mut Vec<(String, String)>,
) -> Result<(), Problem> {
    let name = text_of(&parameter["name"]);
    if parameter["content"].is_object() && parameter["schema"].is_null() {
        let text = take(pairs, &name).ok_or("missing")?;
        let read: Value =
            serde_json::from_str(&decode(&text)).map_err(|error| error.to_string())?;
        return equal(&read, value);
    }
    let style = parameter["style"].as_str().unwrap_or("form");
    let explode = parameter["explode"].as_bool().unwrap_or(style == "form");
    styled(&name, style, explode, value, pairs)
}

fn styled(
    name: &str,
    style: &str,
    explode: bool,
    value: &Value,
    pairs: &mut Vec<(String, String)>,
) -> Result<(), Problem> {
    if style == "deepObject" {
        return deep(name, value, pairs);
    }
    match value {
        Value::Array(items) if explode => items.iter().try_for_each(|item| {
            let text = take(pairs, name).ok_or("an item is missing")?;
            equal_text(&decode(&text), item)
        }),
        Value::Object(fields) if explode => fields.iter().try_for_each(|(key, field)| {
            let text = take(pairs, key).ok_or(format!("the field {key} is missing"))?;
            equal_text(&decode(&text), field)
        }),
        Value::Array(items) if items.is_empty() => Ok(()),
        Value::Object(fields) if fields.is_empty() => Ok(()),
        Value::Array(_) | Value::Object(_) => {
            let text = take(pairs, name).ok_or("missing")?;
            let text = match style {
                "spaceDelimited" => text.replace("%20", ","),
                "pipeDelimited" => text.replace("%7C", ","),
                _ => text,
            };
            match value {
                Value::Object(fields) if pairs_of(&text, ',', false) == texts(fields) => Ok(()),
                Value::Array(items)
                    if text.split(',').map(decode).eq(items.iter().map(text_of)) =>
                {
                    Ok(())
                }
                _ => Err(format!("{text} is not {value}")),
            }
        }
        scalar => equal_text(&decode(&take(pairs, name).ok_or("missing")?), scalar),
    }
}

fn deep(name: &str, value: &Value, pairs: &mut Vec<(String, String)>) -> Result<(), Problem> {
    match value {
        Value::Object(fields) => fields
            .iter()
            .try_for_each(|(key, field)| deep(&format!("{name}[{key}]"), field, pairs)),
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .try_for_each(|(at, item)| match items.iter().all(is_scalar) {
                    true => deep(&format!("{name}[]"), item, pairs),
                    false => deep(&format!("{name}[{at}]"), item, pairs),
                })
        }
        scalar => {
            let text = take(pairs, name).ok_or(format!("{name} is missing"))?;
            equal_text(&decode(&text), scalar)
        }
    }
}

fn header_says(parameter: &Value, value: &Value, header: &str) -> Result<(), Problem> {
    if parameter["content"].is_object() && parameter["schema"].is_null() {
        let read: Value = serde_json::from_str(header).map_err(|error| error.to_string())?;
        return equal(&read, value);
    }
    let sign = if parameter["explode"] == true {
        '='
    } else {
        ','
    };
    let expected: Vec<String> = match value {
        Value::Array(items) => items.iter().map(text_of).collect(),
        Value::Object(fields) => texts(fields)
            .into_iter()
            .map(|(key, value)| format!("{key}{sign}{value}"))
            .collect(),
        scalar => vec![text_of(scalar)],
    };
    match header == expected.join(",") {
        true => Ok(()),
        false => Err(format!("the header is {header}, not {expected:?}")),
    }
}

/// `left` holds the arguments that no parameter had, `names` the parameters' arguments.
fn body_says(
    document: &Value,
    definition: &Value,
    left: Map<String, Value>,
    names: &BTreeSet<String>,
    request: &HttpRequest,
) -> Result<(), Problem> {
    let content_type = match &request.content_type {
        Some(content_type) => content_type.to_str().expect("ASCII"),
        None if left.is_empty() && request.body.is_empty() => return Ok(()),
        None => return Err(format!("{left:?} went nowhere")),
    };
    let body = follow(document, &definition["requestBody"]);
    let declared = body["content"]
        .as_object()
        .ok_or("the document has no body")?;
    let essence = |text: &str| {
        text.split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .to_ascii_lowercase()
    };
    let sent = essence(content_type);
    let media = declared
        .iter()
        .find(|(declared, _)| essence(declared) == sent);
    let media = media.or_else(|| declared.iter().find(|(declared, _)| declared.contains('*')));
    let (_, media) = media.ok_or(format!("{sent} is not declared"))?;
    let has_json = declared
        .keys()
        .any(|declared| essence(declared) == "application/json");
    if has_json && sent != "application/json" {
        return Err(format!("{sent} was sent, though JSON is declared"));
    }
    // A body argument's name tells whether it is the whole body.
    let known = fields(document, &media["schema"], 0);
    let whole = ["body", "request_body"]
        .iter()
        .find(|name| left.len() == 1 && left.contains_key(**name) && !known.contains(**name));
    if let Some(whole) = whole {
        return whole_says(&left[*whole], content_type, &request.body);
    }
    let mut expected = Map::new();
    for (argument, value) in left {
        let plain = argument
            .strip_prefix("body_")
            .filter(|plain| TAKEN.contains(plain) || names.contains(*plain));
        let name = plain.unwrap_or(&argument).to_owned();
        if !known.contains(&name) {
            return Err(format!("{name} is no field of the body"));
        }
        expected.insert(name, value);
    }
    let encoding = &media["encoding"];
    if sent.ends_with("json") {
        let read: Value =
            serde_json::from_slice(&request.body).map_err(|error| error.to_string())?;
        return equal(&read, &expected.into());
    }
    if sent == "application/x-www-form-urlencoded" {
        return form_says(expected, encoding, &request.body);
    }
    multipart_says(expected, encoding, content_type, &request.body)
}

/// The names of a body's fields, wherever its schema has them.
fn fields(document: &Value, schema: &Value, depth: usize) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    if depth > 12 {
        return found;
    }
    if schema["$ref"].is_string() {
        found.extend(fields(document, follow(document, schema), depth + 1));
    }
    let properties = schema["properties"].as_object().into_iter().flatten();
    found.extend(properties.map(|(name, _)| name.clone()));
    for keyword in ["allOf", "oneOf", "anyOf"] {
        for part in schema[keyword].as_array().into_iter().flatten() {
            found.extend(fields(document, part, depth + 1));
        }
    }
    found
}

fn whole_says(value: &Value, content_type: &str, body: &[u8]) -> Result<(), Problem> {
    if content_type.contains("json")
        && serde_json::from_slice::<Value>(body).ok().as_ref() == Some(value)
    {
        return Ok(());
    }
    let text = value.as_str().ok_or_else(|| format!("{value} is no text"));
    if text
        .as_ref()
        .is_ok_and(|text| text.as_bytes() == body || *text == base64(body))
    {
        return Ok(());
    }
    match value {
        Value::Object(fields) if content_type.starts_with("application/x-www") => {
            form_says(fields.clone(), &Value::Null, body)
        }
        Value::Object(fields) if content_type.starts_with("multipart/") => {
            multipart_says(fields.clone(), &Value::Null, content_type, body)
        }
        _ => Err(format!("the body is not {value}")),
    }
}

fn form_says(expected: Map<String, Value>, encoding: &Value, body: &[u8]) -> Result<(), Problem> {
    let text = std::str::from_utf8(body).map_err(|error| error.to_string())?;
    // Read by the browsers' own rule first: it must not fail or give other names.
    let browser: Vec<(String, String)> = url::form_urlencoded::parse(body).into_owned().collect();
    let mut pairs: Vec<(String, String)> = text
        .split('&')
        .filter(|pair| !pair.is_empty())
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (decode(name), value.to_owned()))
        .collect();
    if !browser
        .iter()
        .map(|(name, _)| name)
        .eq(pairs.iter().map(|(name, _)| name))
    {
        return Err(format!("browsers read {browser:?}"));
    }
    for (name, value) in &expected {
        let encoding = &encoding[name];
        let has_style = !encoding["style"].is_null() || !encoding["explode"].is_null();
        let problem = |problem: String| format!("form field {name}: {problem} in {text}");
        let is_list = value.is_array() && encoding["contentType"].is_null();
        if has_style || is_list || is_scalar(value) {
            let style = encoding["style"].as_str().unwrap_or("form");
            let explode = encoding["explode"].as_bool().unwrap_or(style == "form");
            styled(name, style, explode, value, &mut pairs).map_err(problem)?;
        } else {
            let text = take(&mut pairs, name).ok_or_else(|| problem("missing".to_owned()))?;
            let read: Value =
                serde_json::from_str(&decode(&text)).map_err(|error| problem(error.to_string()))?;
            equal(&read, value).map_err(problem)?;
        }
    }
    match pairs.as_slice() {
        [] => Ok(()),
        more => Err(format!("nobody asked for {more:?} in the form")),
    }
}

fn multipart_says(
    expected: Map<String, Value>,
    encoding: &Value,
    content_type: &str,
    body: &[u8],
) -> Result<(), Problem> {
    let (_, boundary) = content_type.split_once("boundary=").ok_or("no boundary")?;
    let delimiter = format!("\r\n--{boundary}");
    let mut whole = b"\r\n".to_vec();
    whole.extend_from_slice(body);
    let mut parts = split(&whole, delimiter.as_bytes());
    if parts.pop().as_deref() != Some(b"--\r\n")
        || parts.first().is_none_or(|first| !first.is_empty())
    {
        return Err("the parts are not delimited".to_owned());
    }
    let mut pairs: Vec<(String, String, Vec<u8>)> = Vec::new();
    for part in &parts[1..] {
        let at = find(part, b"\r\n\r\n").ok_or("a part without a head")?;
        let head = String::from_utf8_lossy(&part[..at]).into_owned();
        let (_, name) = head
            .split_once("; name=\"")
            .ok_or("a part without a name")?;
        let name = name.split('"').next().unwrap_or_default().to_owned();
        pairs.push((name, head, part[at + 4..].to_vec()));
    }
    for (name, value) in &expected {
        let declared = encoding[name]["contentType"].as_str();
        let items: Vec<Value> = match value {
            Value::Array(items)
                if pairs.iter().filter(|pair| pair.0 == *name).count() == items.len() =>
            {
                items.clone()
            }
            one => vec![one.clone()],
        };
        for item in items {
            let at = pairs.iter().position(|pair| pair.0 == *name);
            let (_, head, bytes) = pairs.remove(at.ok_or(format!("no part {name}"))?);
            let fits = if head.contains("filename=") {
                item.as_str() == Some(&base64(&bytes))
            } else {
                match &item {
                    Value::Object(_) | Value::Array(_) => {
                        serde_json::from_slice::<Value>(&bytes).ok().as_ref() == Some(&item)
                    }
                    scalar => text_of(scalar).as_bytes() == bytes,
                }
            };
            if !fits {
                return Err(format!("the part {name} is not {item}"));
            }
            let first = declared
                .and_then(|types| types.split(',').next())
                .map(str::trim);
            if let Some(first) = first.filter(|first| !first.contains('*') && !first.is_empty())
                && !head.contains(&format!("content-type: {first}"))
            {
                return Err(format!("the part {name} is not of type {first}"));
            }
        }
    }
    match pairs.as_slice() {
        [] => Ok(()),
        more => Err(format!("nobody asked for {} parts more", more.len())),
    }
}

fn split(bytes: &[u8], delimiter: &[u8]) -> Vec<Vec<u8>> {
    let mut parts = Vec::new();
    let mut rest = bytes;
    while let Some(at) = find(rest, delimiter) {
        parts.push(rest[..at].to_vec());
        rest = &rest[at + delimiter.len()..];
    }
    parts.push(rest.to_vec());
    parts
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

fn take(pairs: &mut Vec<(String, String)>, name: &str) -> Option<String> {
    let at = pairs.iter().position(|pair| pair.0 == name)?;
    Some(pairs.remove(at).1)
}

fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

fn is_scalar(value: &Value) -> bool {
    !value.is_object() && !value.is_array()
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn equal(read: &Value, value: &Value) -> Result<(), Problem> {
    match read == value {
        true => Ok(()),
        false => Err(format!("{read} is not {value}")),
    }
}

fn equal_text(text: &str, value: &Value) -> Result<(), Problem> {
    let same = match is_scalar(value) {
        true => text == text_of(value),
        false => serde_json::from_str::<Value>(text).ok().as_ref() == Some(value),
    };
    match same {
        true => Ok(()),
        false => Err(format!("{text} is not {value}")),
    }
}
