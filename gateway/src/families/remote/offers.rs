//! What a server has published becomes tools of ours; what cannot be one is left out, with a reason.
//!
//! Its annotations decide nothing by themselves: a server that lies about a tool that deletes would lie there first. Until
//! a person has approved them, a tool counts as what the protocol takes for granted of one that says nothing of itself.

use std::collections::{HashMap, HashSet};

use chandlery_crds::{Level, NotedTool};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::discovery::Answer;
use super::mirror::{self, Mirror};
use crate::connector::{OfferedTool, served_name, visible};
use crate::tool::{Effect, Origin, Served, Tool};

/// Characters that the name of a tool may have, by the protocol.
const NAME: usize = 128;
const SCHEMA_BYTES: usize = 64 << 10;

/// What the tools of a source have in common.
pub(super) struct Common<'a> {
    pub(super) source: &'a str,
    pub(super) prefix: &'a str,
    pub(super) permission: Level,
}

/// The tools of an answer.
#[derive(Default)]
pub(super) struct Tools {
    pub(super) tools: Vec<OfferedTool>,
    pub(super) left_out: Vec<NotedTool>,
    /// By the server's own name, of the tools that have any.
    pub(super) mirrors: HashMap<String, Vec<Mirror>>,
}

/// A tool as the server publishes it, what we do not use left out.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Published {
    name: String,
    title: Option<String>,
    description: Option<String>,
    input_schema: Option<Value>,
    output_schema: Option<Value>,
    annotations: Option<Value>,
}

pub(super) fn read(answer: &Answer, common: &Common<'_>) -> Tools {
    let mut all = Tools::default();
    let mut names = HashSet::new();
    for (at, raw) in answer.tools.iter().enumerate() {
        let Ok(published) = serde_json::from_str::<Published>(raw.get()) else {
            let message = "it has no name, or is not written as the protocol writes tools";
            all.leave_out(&format!("#{}", at + 1), "InvalidTool", message);
            continue;
        };
        let name = published.name.clone();
        if let Err(problem) = check_name(&name) {
            let shown: String = visible(&name).chars().take(NAME).collect();
            all.leave_out(&format!("{shown} (#{})", at + 1), "InvalidName", problem);
        } else if !names.insert(name.clone()) {
            let problem = "the server has another tool of that name before";
            all.leave_out(&name, "DuplicateName", problem);
        } else {
            match tool(published, common) {
                Ok((tool, mirrors)) => {
                    all.tools.push(tool);
                    if !mirrors.is_empty() {
                        all.mirrors.insert(name, mirrors);
                    }
                }
                Err((reason, problem)) => all.leave_out(&name, reason, &problem),
            }
        }
    }
    if answer.is_cut {
        let message = "the server has more tools than are taken: 2,000, or 20 MiB, or 100 pages";
        all.leave_out("…", "TooMany", message);
    }
    all
}

impl Tools {
    fn leave_out(&mut self, name: &str, reason: &str, message: &str) {
        self.left_out.push(NotedTool {
            name: name.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
        });
    }
}

fn check_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() || name.chars().count() > NAME {
        return Err("a name has 1 to 128 characters");
    }
    if visible(name) != name || name.contains(|c: char| c.is_whitespace() || c == '*') {
        return Err("its name holds spaces, asterisks or characters that nobody sees");
    }
    Ok(())
}

fn tool(
    published: Published,
    common: &Common<'_>,
) -> Result<(OfferedTool, Vec<Mirror>), (&'static str, String)> {
    let Published {
        name,
        title,
        description,
        input_schema,
        output_schema,
        annotations,
    } = published;
    let input_schema = object("inputSchema", input_schema.unwrap_or_default())?;
    let output_schema = match output_schema {
        None => None,
        Some(schema) => Some(object("outputSchema", schema)?),
    };
    let mirrors = mirror::mirrors(&input_schema).map_err(|problem| ("InvalidHeader", problem))?;
    let annotations = annotations.unwrap_or_default();
    let title = title
        .or_else(|| Some(annotations["title"].as_str()?.to_owned()))
        .unwrap_or_else(|| name.clone());
    let tool = Tool {
        name: served_name(common.prefix, &name).into(),
        title: title.into(),
        description: description.unwrap_or_default().into(),
        input_schema,
        effect: claimed(&Value::Null),
        served: Served::Entry,
        group: None,
        interactive: !mirrors.is_empty(),
        origin: Some(Box::new(Origin {
            source: common.source.to_owned(),
            operations: vec![name],
            permission: common.permission,
            is_data: false,
            output_schema,
        })),
    };
    let offered = OfferedTool {
        tool,
        identity: format!("MCP {annotations}"),
        claimed: Some(claimed(&annotations)),
    };
    Ok((offered, mirrors))
}

/// What a tool does by its annotations; where they say nothing, the worst.
fn claimed(annotations: &Value) -> Effect {
    let says = |hint: &str| annotations[hint].as_bool();
    let idempotent = says("idempotentHint") == Some(true);
    match (says("readOnlyHint"), says("destructiveHint")) {
        (Some(true), _) => Effect::Reads,
        (_, Some(false)) => Effect::Writes { idempotent },
        _ => Effect::Destroys { idempotent },
    }
}

/// A schema that clients can be shown.
fn object(which: &str, schema: Value) -> Result<Map<String, Value>, (&'static str, String)> {
    let refuse = |problem: &str| Err(("InvalidSchema", format!("its {which} {problem}")));
    if schema.to_string().len() > SCHEMA_BYTES {
        return refuse("is larger than 64 KiB");
    }
    match schema {
        Value::Object(schema) if schema.get("type").is_some_and(|own| own == "object") => {
            Ok(schema)
        }
        _ => refuse("is not one of type object"),
    }
}
