//! The reference page of the resources, made from their schemas.

use std::fmt::Write as _;

use chandlery_crds::crd::Kind;
use serde_json::Value;

const WRITES: &str = "a String takes all text";

/// `docs/reference/resources.md`.
pub(crate) fn page() -> String {
    let mut page = String::from(HEAD);
    for kind in Kind::ALL {
        section(kind, &mut page);
    }
    page
}

/// A manifest of each kind; together they make a whole.
pub(crate) fn example(kind: Kind) -> &'static str {
    match kind {
        Kind::Workspace => WORKSPACE,
        Kind::Agent => AGENT,
        Kind::ToolSource => TOOL_SOURCE,
        Kind::ToolGrant => TOOL_GRANT,
    }
}

fn section(kind: Kind, page: &mut String) {
    let crd = kind.crd();
    let schema = kind.schema();
    let names = &crd.spec.names;
    writeln!(
        page,
        "## {}\n\n{}\n",
        kind.name(),
        text(&schema["description"])
    )
    .expect(WRITES);
    let short = names
        .short_names
        .iter()
        .flatten()
        .next()
        .map_or("", String::as_str);
    writeln!(
        page,
        "`kubectl get {}.{}`, short `{short}`.\n",
        names.plural, crd.spec.group
    )
    .expect(WRITES);
    writeln!(page, "```yaml\n{}```\n", example(kind)).expect(WRITES);
    writeln!(
        page,
        "| Field | Type | Default | Meaning |\n|---|---|---|---|"
    )
    .expect(WRITES);
    rows(&schema["properties"]["spec"], "spec", true, page);
    writeln!(
        page,
        "\n| What the operator writes | Type | Meaning |\n|---|---|---|"
    )
    .expect(WRITES);
    rows(&schema["properties"]["status"], "status", false, page);
    writeln!(
        page,
        "\nThe API server refuses what breaks one of these rules:\n"
    )
    .expect(WRITES);
    rules(&schema, "", page);
    page.push('\n');
}

/// One row for each field below `schema`; with what comes of leaving it out if `defaults`.
fn rows(schema: &Value, path: &str, defaults: bool, page: &mut String) {
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        let (description, told) = split_default(text(&field["description"]));
        let default = match field.get("default") {
            Some(value) => format!(
                "`{}`",
                value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned)
            ),
            None if required.contains(&name.as_str()) => "required".to_owned(),
            None => told.to_owned(),
        };
        let description = description.replace('|', "\\|");
        let default = if defaults {
            format!(" {default} |")
        } else {
            String::new()
        };
        writeln!(
            page,
            "| `{path}` | {} |{default} {description} |",
            type_of(field)
        )
        .expect(WRITES);
        rows(field, &path, defaults, page);
        rows(&field["items"], &format!("{path}[]"), defaults, page);
    }
}

/// The description without its last sentence `Default: ….`, and what that says.
fn split_default(description: &str) -> (String, &str) {
    match description.split_once("Default: ") {
        Some((before, after)) => {
            let (default, rest) = after
                .split_once(". ")
                .unwrap_or((after.trim_end_matches('.'), ""));
            (format!("{before}{rest}").trim().to_owned(), default)
        }
        None => (description.to_owned(), ""),
    }
}

fn type_of(field: &Value) -> String {
    if field["x-kubernetes-int-or-string"] == true {
        return "quantity".to_owned();
    }
    if let Some(words) = field["enum"].as_array() {
        let words: Vec<String> = words
            .iter()
            .map(|word| format!("`{}`", text(word)))
            .collect();
        return words.join(", ");
    }
    match (
        text(&field["type"]),
        field["x-kubernetes-list-type"].as_str(),
    ) {
        ("array", Some("set")) => format!("set of {}s", type_of(&field["items"])),
        ("array", _) => format!("list of {}s", type_of(&field["items"])),
        ("object", _) if field["additionalProperties"].is_object() => {
            let value = type_of(&field["additionalProperties"]);
            format!(
                "map of {}",
                if value == "quantity" {
                    "quantities".to_owned()
                } else {
                    format!("{value}s")
                }
            )
        }
        (other, _) => other.to_owned(),
    }
}

/// The message of each rule below `schema`, under the field that it is about.
fn rules(schema: &Value, path: &str, page: &mut String) {
    for rule in schema["x-kubernetes-validations"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let field = format!("{path}{}", text(&rule["fieldPath"]));
        let field = if field.is_empty() {
            "metadata.name"
        } else {
            &field
        };
        writeln!(
            page,
            "- `{field}`: {}",
            text(&rule["message"]).replace('<', "\\<")
        )
        .expect(WRITES);
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        rules(field, &path, page);
        rules(&field["items"], &format!("{path}[]"), page);
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

const HEAD: &str = "\
<!-- Written by crdgen; do not edit. -->
# Resources

Everything that can be written, and everything that the operator writes back: the four kinds of `chandlery.dev/v1alpha1`.
`kubectl explain agents.chandlery.dev.spec` says the same in a terminal, and `chandlery lint -f FILE` checks manifests without a cluster.
References stay inside a namespace.

";

const WORKSPACE: &str = "\
apiVersion: chandlery.dev/v1alpha1
kind: Workspace
metadata:
  name: sales
spec:
  title: Sales
  mission: Answer every customer within a day.
  gateway:
    allowedFrom:
    - podSelector:
        matchLabels: {app: assistant}
  store:
    sqlite:
      size: 5Gi
";

const AGENT: &str = "\
apiVersion: chandlery.dev/v1alpha1
kind: Agent
metadata:
  name: assistant
spec:
  workspaceRef:
    name: sales
  displayName: Sales assistant
  key:
    rotateEvery: 720h
    overlap: 1h
";

const TOOL_SOURCE: &str = "\
apiVersion: chandlery.dev/v1alpha1
kind: ToolSource
metadata:
  name: crm
spec:
  mcp:
    url: https://crm.example.com/mcp
  auth:
    bearer:
      secretKeyRef: {name: crm, key: token}
";

const TOOL_GRANT: &str = "\
apiVersion: chandlery.dev/v1alpha1
kind: ToolGrant
metadata:
  name: sales-crm
spec:
  workspaceRef:
    name: sales
  agents:
    names: [assistant]
  tools:
  - crm/*
";
