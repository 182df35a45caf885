//! Reads manifests: a file's text becomes typed objects, and whatever is wrong has a line.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde::de::{DeserializeOwned, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Number, Value};
use serde_saphyr::Spanned;

use crate::crd::Kind;
use crate::schema::{self, Violation, join};
use crate::{Agent, ToolGrant, ToolSource, Workspace, names};

/// What a file holds.
#[derive(Debug, Default)]
pub struct Manifests {
    /// In the file's order. Each has a name and a namespace, no status, and passes its CRD's schema and rules.
    pub objects: Vec<Object>,
    /// Why other objects, or the whole file, could not be taken.
    pub problems: Vec<Problem>,
    /// Objects of kinds that Chandlery does not read.
    pub ignored: Vec<Problem>,
}

/// An object and where it was written.
#[derive(Clone, Debug)]
pub struct Object {
    pub resource: Resource,
    pub file: Arc<str>,
    lines: Arc<Lines>,
}

/// One of the kinds that Chandlery reads.
#[derive(Clone, Debug)]
pub enum Resource {
    Workspace(Box<Workspace>),
    Agent(Box<Agent>),
    ToolSource(Box<ToolSource>),
    ToolGrant(Box<ToolGrant>),
    /// `stringData` is folded into `data`.
    Secret(Box<Secret>),
    ConfigMap(Box<ConfigMap>),
}

/// Something that a person has to put right: `file:line: Kind/name: field: message`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    pub file: Arc<str>,
    /// Starts at 1.
    pub line: u64,
    /// `Kind/name`; `None` where that could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Where in the object, such as `spec.tools[3]`; empty for the whole object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.file, self.line)?;
        if let Some(object) = &self.object {
            write!(f, "{object}: ")?;
        }
        // Some messages of the API server name the field themselves.
        if !self.field.is_empty() && !self.message.contains(&format!("{:?}", self.field)) {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)
    }
}

/// Reads every document of `text`. `file` is only a name for messages.
///
/// An object without a namespace gets `default`. A broken object harms only itself; text that is no YAML harms
/// its whole file, since nobody knows where it was meant to go on.
pub fn read(file: &str, text: &str) -> Manifests {
    let file: Arc<str> = file.into();
    let mut manifests = Manifests::default();
    let options = serde_saphyr::options! { with_snippet: false };
    match serde_saphyr::from_multiple_with_options::<Node>(text, options) {
        Ok(documents) => {
            for document in documents {
                read_object(&file, document, &mut manifests);
            }
        }
        Err(error) => manifests.problems.push(Problem {
            file,
            line: error.location().map_or(1, |location| location.line()),
            object: None,
            field: String::new(),
            message: format!("cannot be read as YAML: {}", reason(&error)),
        }),
    }
    manifests
}

/// What the reader says, without the position that it repeats and without advice on its own options.
fn reason(error: &serde_saphyr::Error) -> String {
    let text = match error {
        serde_saphyr::Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("the key {key} is written twice")
        }
        _ => error.to_string(),
    };
    text.split(" at line ").next().unwrap_or(&text).to_owned()
}

fn read_object(file: &Arc<str>, document: Node, manifests: &mut Manifests) {
    let mut lines = Lines {
        first: document.line,
        fields: HashMap::new(),
    };
    if let Content::Map(fields) = &document.content
        && fields.iter().any(|(key, value)| {
            key.value == "kind" && value.content == Content::Text("List".to_owned())
        })
    {
        return read_list(file, document, manifests);
    }
    let value = document.into_value("", &mut lines);
    let text = |pointer| {
        value
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let (api_version, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
    let subject = Subject {
        file,
        lines: &lines,
        object: (!name.is_empty()).then(|| format!("{kind}/{name}")),
    };
    match parse(&api_version, &kind, value) {
        Ok(Some(resource)) => manifests.objects.push(Object {
            resource,
            file: file.clone(),
            lines: Arc::new(lines),
        }),
        Ok(None) => manifests
            .ignored
            .push(subject.problem("kind", "Chandlery does not read this kind")),
        Err(violations) => {
            let mut problems: Vec<Problem> = violations
                .into_iter()
                .map(|violation| subject.problem(&violation.field, violation.message))
                .collect();
            problems.sort_by_key(|problem| problem.line);
            manifests.problems.extend(problems);
        }
    }
}

/// A `kind: List`, as `kubectl get -o yaml` prints it.
fn read_list(file: &Arc<str>, list: Node, manifests: &mut Manifests) {
    let Content::Map(fields) = list.content else {
        return;
    };
    for (key, value) in fields {
        if let (true, Content::List(items)) = (key.value == "items", value.content) {
            for item in items {
                read_object(file, item, manifests);
            }
        }
    }
}

/// `Ok(None)` for a kind of somebody else.
fn parse(
    api_version: &str,
    kind: &str,
    mut value: Value,
) -> Result<Option<Resource>, Vec<Violation>> {
    let ours = format!("{}/{}", names::GROUP, names::VERSION);
    if api_version.is_empty() || kind.is_empty() {
        return refuse(
            "",
            "not a Kubernetes object: apiVersion and kind are missing",
        );
    }
    let kind = match (api_version, kind) {
        ("v1", "Secret" | "ConfigMap") => None,
        _ if api_version == ours => match Kind::named(kind) {
            Some(kind) => Some(kind),
            None => {
                return refuse(
                    "kind",
                    "write one of: Workspace, Agent, ToolSource, ToolGrant",
                );
            }
        },
        _ if api_version.split('/').next() == Some(names::GROUP) => {
            return refuse("apiVersion", &format!("write {ours}"));
        }
        _ => return Ok(None),
    };
    complete(&mut value)?;
    let resource = match kind {
        Some(Kind::Workspace) => Resource::Workspace(typed(Kind::Workspace, value)?),
        Some(Kind::Agent) => Resource::Agent(typed(Kind::Agent, value)?),
        Some(Kind::ToolSource) => Resource::ToolSource(typed(Kind::ToolSource, value)?),
        Some(Kind::ToolGrant) => Resource::ToolGrant(typed(Kind::ToolGrant, value)?),
        None if value["kind"] == "Secret" => Resource::Secret(secret(value)?),
        None => {
            passes(schema::validate_config_map(&value))?;
            Resource::ConfigMap(from_value(value, "binaryData")?)
        }
    };
    Ok(Some(resource))
}

/// Names the namespace, drops the status, and checks that both names are DNS labels as ids need them.
fn complete(value: &mut Value) -> Result<(), Vec<Violation>> {
    let Some(object) = value.as_object_mut() else {
        return Ok(());
    };
    object.remove("status");
    let Some(metadata) = object
        .entry("metadata")
        .or_insert_with(|| Value::Object(Map::new()))
        .as_object_mut()
    else {
        return Ok(());
    };
    metadata
        .entry("namespace")
        .or_insert_with(|| "default".into());
    if metadata
        .get("name")
        .and_then(Value::as_str)
        .is_none_or(str::is_empty)
    {
        return refuse("metadata.name", "Required value");
    }
    if !metadata["namespace"]
        .as_str()
        .is_some_and(names::is_dns_label)
    {
        return refuse(
            "metadata.namespace",
            "write at most 63 lower-case letters, digits and hyphens",
        );
    }
    Ok(())
}

fn typed<T: DeserializeOwned>(kind: Kind, value: Value) -> Result<Box<T>, Vec<Violation>> {
    passes(schema::validate(kind, &value, None))?;
    from_value(value, "")
}

fn secret(value: Value) -> Result<Box<Secret>, Vec<Violation>> {
    passes(schema::validate_secret(&value))?;
    let mut secret: Box<Secret> = from_value(value, "data")?;
    for (key, text) in secret.string_data.take().unwrap_or_default() {
        secret
            .data
            .get_or_insert_default()
            .insert(key, ByteString(text.into_bytes()));
    }
    Ok(secret)
}

/// What a schema cannot say is that binary `field` is base64: the error's own text could show the value.
fn from_value<T: DeserializeOwned>(value: Value, field: &str) -> Result<Box<T>, Vec<Violation>> {
    serde_json::from_value(value)
        .map(Box::new)
        .or_else(|error| match field {
            "" => refuse("", &error.to_string()),
            field => refuse(field, "every value must be base64"),
        })
}

fn passes(violations: Vec<Violation>) -> Result<(), Vec<Violation>> {
    if violations.is_empty() {
        Ok(())
    } else {
        Err(violations)
    }
}

fn refuse<T>(field: &str, message: &str) -> Result<T, Vec<Violation>> {
    Err(vec![Violation {
        field: field.to_owned(),
        message: message.to_owned(),
    }])
}

impl Object {
    /// A problem of this object, at the line where `field` is written, or the nearest field around it.
    pub fn problem(&self, field: &str, message: impl Into<String>) -> Problem {
        let object = Some(format!("{}/{}", self.kind(), self.name()));
        Subject {
            file: &self.file,
            lines: &self.lines,
            object,
        }
        .problem(field, message)
    }

    /// The line where `field` is written, or the nearest field around it; "" is the object itself.
    pub fn line(&self, field: &str) -> u64 {
        self.lines.of(field)
    }

    /// The name in `kind:`.
    pub fn kind(&self) -> &'static str {
        match &self.resource {
            Resource::Workspace(_) => "Workspace",
            Resource::Agent(_) => "Agent",
            Resource::ToolSource(_) => "ToolSource",
            Resource::ToolGrant(_) => "ToolGrant",
            Resource::Secret(_) => "Secret",
            Resource::ConfigMap(_) => "ConfigMap",
        }
    }

    pub fn name(&self) -> &str {
        self.metadata().name.as_deref().unwrap_or_default()
    }

    pub fn namespace(&self) -> &str {
        self.metadata().namespace.as_deref().unwrap_or_default()
    }

    fn metadata(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
        match &self.resource {
            Resource::Workspace(object) => &object.metadata,
            Resource::Agent(object) => &object.metadata,
            Resource::ToolSource(object) => &object.metadata,
            Resource::ToolGrant(object) => &object.metadata,
            Resource::Secret(object) => &object.metadata,
            Resource::ConfigMap(object) => &object.metadata,
        }
    }
}

/// What a problem is about.
struct Subject<'a> {
    file: &'a Arc<str>,
    lines: &'a Lines,
    object: Option<String>,
}

impl Subject<'_> {
    fn problem(&self, field: &str, message: impl Into<String>) -> Problem {
        Problem {
            file: self.file.clone(),
            line: self.lines.of(field),
            object: self.object.clone(),
            field: field.to_owned(),
            message: message.into(),
        }
    }
}

/// Where the fields of an object are written. It holds no values, so a Secret's do not linger here.
#[derive(Debug)]
struct Lines {
    first: u64,
    fields: HashMap<String, u64>,
}

impl Lines {
    /// The line of the field, or of the nearest field around it that is written.
    fn of(&self, field: &str) -> u64 {
        let mut path = field.trim_start_matches('.');
        loop {
            if let Some(line) = self.fields.get(path) {
                return *line;
            }
            match path.rfind(['.', '[']) {
                Some(at) => path = &path[..at],
                None => return self.first,
            }
        }
    }
}

/// A YAML value that knows its line.
struct Node {
    line: u64,
    content: Content,
}

#[derive(PartialEq)]
enum Content {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Spanned<String>, Node)>),
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.content == other.content
    }
}

impl Node {
    /// The value without its lines, which go to `lines`. Nulls are dropped from maps, as the API server drops them.
    fn into_value(self, path: &str, lines: &mut Lines) -> Value {
        match self.content {
            Content::Null => Value::Null,
            Content::Bool(value) => Value::Bool(value),
            Content::Number(value) => Value::Number(value),
            Content::Text(value) => Value::String(value),
            Content::List(items) => items
                .into_iter()
                .enumerate()
                .map(|(at, item)| {
                    let path = format!("{path}[{at}]");
                    lines.fields.insert(path.clone(), item.line);
                    item.into_value(&path, lines)
                })
                .collect(),
            Content::Map(fields) => fields
                .into_iter()
                .filter(|(_, value)| value.content != Content::Null)
                .map(|(key, value)| {
                    let path = join(path, &key.value);
                    lines.fields.insert(path.clone(), key.referenced.line());
                    (key.value, value.into_value(&path, lines))
                })
                .collect::<Map<_, _>>()
                .into(),
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned {
            value, referenced, ..
        } = Spanned::<Content>::deserialize(deserializer)?;
        Ok(Node {
            line: referenced.line(),
            content: value,
        })
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Content, E> {
        Ok(Content::Null)
    }

    fn visit_none<E>(self) -> Result<Content, E> {
        Ok(Content::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Content, D::Error> {
        Content::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Content, E> {
        Ok(Content::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Content, E> {
        Ok(Content::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Content, E> {
        Ok(Content::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Content, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("JSON has no such number"))?;
        Ok(Content::Number(number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Content, E> {
        Ok(Content::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Content, E> {
        Ok(Content::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Content, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Content::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Content, A::Error> {
        let mut map: Vec<(Spanned<String>, Node)> = Vec::new();
        while let Some(field) = fields.next_entry()? {
            map.push(field);
        }
        Ok(Content::Map(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: expect_test::Expect) {
        let Manifests {
            objects,
            problems,
            ignored,
        } = read("f.yaml", text);
        let mut lines: Vec<String> = objects
            .iter()
            .map(|object| {
                format!(
                    "{}/{} in {}",
                    object.kind(),
                    object.name(),
                    object.namespace()
                )
            })
            .collect();
        lines.extend(problems.iter().map(|problem| format!("problem {problem}")));
        lines.extend(ignored.iter().map(|problem| format!("ignored {problem}")));
        expected.assert_eq(&lines.join("\n"));
    }

    #[test]
    fn documents_become_objects() {
        check(
            "# a comment\n---\napiVersion: chandlery.dev/v1alpha1\nkind: Workspace\nmetadata: {name: w}\nspec: {}\n\
             ---\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: team}\nstringData: {a: b}\n\
             ---\n{\"apiVersion\": \"apps/v1\", \"kind\": \"Deployment\", \"metadata\": {\"name\": \"d\"}}\n",
            expect_test::expect![[r#"
                Workspace/w in default
                Secret/s in team
                ignored f.yaml:14: Deployment/d: kind: Chandlery does not read this kind"#]],
        );
    }

    #[test]
    fn a_problem_names_the_line_of_the_field() {
        check(
            "apiVersion: chandlery.dev/v1alpha1\nkind: Agent\nmetadata:\n  name: coder\nspec:\n  workspaceRef:\n    name: w\n  toools:\n  - a\n  tools:\n  - a\n  - b\n  - a\n  state: Running\n",
            expect_test::expect![[r#"
                problem f.yaml:8: Agent/coder: unknown field "spec.toools"
                problem f.yaml:13: Agent/coder: spec.tools[2]: Duplicate value
                problem f.yaml:14: Agent/coder: spec.state: Unsupported value: "Running": supported values: "Draft", "Deployed", "Disabled", "Archived""#]],
        );
        check(
            "apiVersion: chandlery.dev/v1alpha1\nkind: Agent\nmetadata:\n  name: co.der\nspec:\n  workspaceRef:\n    name: w\n  key:\n    overlap: soon\n",
            expect_test::expect![[r#"
                problem f.yaml:1: Agent/co.der: name an Agent with at most 63 lower-case letters, digits and hyphens (no dots)
                problem f.yaml:9: Agent/co.der: spec.key.overlap: write a duration of at least 1s with its units, largest first, such as 15m"#]],
        );
    }

    #[test]
    fn text_that_is_no_yaml_is_reported_with_its_line() {
        check(
            "a: b\nc: [\nd: e\n",
            expect_test::expect!["problem f.yaml:2: cannot be read as YAML: unclosed bracket '['"],
        );
        check(
            "a: b\na: c\n",
            expect_test::expect![
                "problem f.yaml:2: cannot be read as YAML: the key a is written twice"
            ],
        );
        check(
            "- just\n- a list\n",
            expect_test::expect![
                "problem f.yaml:1: not a Kubernetes object: apiVersion and kind are missing"
            ],
        );
    }

    #[test]
    fn a_secret_never_shows_in_a_problem() {
        check(
            "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata:\n  token: hunter2!\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData:\n  token: 12345\n",
            expect_test::expect![[r#"
                problem f.yaml:4: Secret/s: data: every value must be base64
                problem f.yaml:11: Secret/s: stringData.token: must be of type string, not number"#]],
        );
    }
}
