//! The manifests as text, with what a person should look at in comments.

use std::fmt::Write as _;

use chandlery_crds::{NotedTool, ToolSourceSpec};
use serde::Serialize;
use serde_json::{Map, Value, json};
use serde_saphyr::LitStr;

use crate::connector::{OfferedTool, visible};
use crate::families::openapi::PLACEHOLDER;
use crate::sources::Look;
use crate::tool::Effect;

/// Notes that are written out.
const NOTES: usize = 20;
/// Entries that a grant has room for.
const ENTRIES: usize = 512;
/// Characters of an entry.
const LONGEST_ENTRY: usize = 200;
/// Characters of a comment on a tool.
const COMMENT: usize = 100;

/// What is to be written.
pub(super) struct Draft {
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    pub(super) workspace: String,
    pub(super) agents: Vec<String>,
    pub(super) spec: ToolSourceSpec,
    /// Key and text of the document, if it came from a file.
    pub(super) document: Option<(String, String)>,
    pub(super) look: Look,
}

/// The manifests of a draft.
pub(super) fn write(draft: &Draft) -> Result<String, Box<dyn std::error::Error>> {
    let mut text = String::new();
    notes(&mut text, draft);
    let source = json!({
        "apiVersion": "chandlery.dev/v1alpha1",
        "kind": "ToolSource",
        "metadata": metadata(draft, &draft.name),
        "spec": draft.spec,
    });
    text.push_str(&serde_saphyr::to_string(&source)?);
    text.push_str("---\n");
    grant(&mut text, draft)?;
    if let Some((key, document)) = &draft.document {
        text.push_str("---\n");
        text.push_str(&config_map(draft, key, document)?);
    }
    Ok(text)
}

/// What was found, and what is to be done before this is applied.
fn notes(text: &mut String, draft: &Draft) {
    let Look {
        tools,
        left_out,
        hidden,
        ..
    } = &draft.look;
    comment(
        text,
        &format!(
            "Tools: {}. Look at them, at the grant below, and at approvedRevision: whoever commits it has approved the tools as they are now.",
            tools.len()
        ),
    );
    if let Some((reference, _)) = draft.spec.credential_ref() {
        comment(
            text,
            &format!(
                "The credential comes from a Secret: kubectl create secret generic {} --from-file={}=FILE",
                reference.name, reference.key
            ),
        );
    }
    if json!(draft.spec.auth).to_string().contains(PLACEHOLDER) {
        comment(
            text,
            &format!("Write what only you know for {PLACEHOLDER}."),
        );
    }
    noted(text, "Left out", left_out);
    noted(
        text,
        "Held characters that nobody sees, which are taken out",
        hidden,
    );
}

fn noted(text: &mut String, what: &str, noted: &[NotedTool]) {
    if noted.is_empty() {
        return;
    }
    comment(text, &format!("{what}: {}", noted.len()));
    for noted in noted.iter().take(NOTES) {
        comment(text, &format!("  {}: {}", noted.name, noted.message));
    }
    if noted.len() > NOTES {
        comment(text, "  …");
    }
}

fn metadata(draft: &Draft, name: &str) -> Value {
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), json!(name));
    if let Some(namespace) = &draft.namespace {
        metadata.insert("namespace".to_owned(), json!(namespace));
    }
    Value::Object(metadata)
}

/// The grant: what reads is granted, what writes waits for somebody to take its `#` away. Where nothing reads, all is
/// granted and a person asked.
fn grant(text: &mut String, draft: &Draft) -> Result<(), Box<dyn std::error::Error>> {
    let mut tools: Vec<&OfferedTool> = draft.look.tools.iter().collect();
    tools.sort_by_key(|offered| !reads(offered));
    let (tools, unnamed): (Vec<_>, Vec<_>) = tools.into_iter().partition(can_be_named);
    if tools.is_empty() {
        return Err("nothing that is offered can be named in a grant".into());
    }
    let asks = !tools.iter().copied().any(reads);
    let mut spec = json!({
        "workspaceRef": {"name": draft.workspace},
        "agents": {"names": draft.agents},
    });
    if asks {
        spec["permission"] = json!("always_ask");
    }
    let grant = json!({
        "apiVersion": "chandlery.dev/v1alpha1",
        "kind": "ToolGrant",
        "metadata": metadata(draft, &draft.name),
        "spec": spec,
    });
    text.push_str(&serde_saphyr::to_string(&grant)?);
    let name = &draft.name;
    let line = format!("Agents get of it what their spec.tools names too, such as {name}/*.");
    comment_in(text, &line);
    comment_in(
        text,
        match asks {
            true => "Nothing says that it only reads, so a person is asked before each call.",
            false => "What may write is left out until somebody takes its # away.",
        },
    );
    text.push_str("  tools:\n");
    for (at, offered) in tools.into_iter().enumerate() {
        let is_granted = (asks || reads(offered)) && at < ENTRIES;
        let hash = if is_granted { "" } else { "# " };
        let entry = json!(offered.tool.entry());
        writeln!(text, "  {hash}- {entry} # {}", one_line(&about(offered)))?;
    }
    for offered in unnamed {
        let name = one_line(&offered.tool.entry());
        let line = format!(
            "{name} cannot be named here: write a glob, such as {}/*",
            draft.name
        );
        comment_in(text, &line);
    }
    Ok(())
}

/// Whether an entry of a grant can be written for the tool.
fn can_be_named(offered: &&OfferedTool) -> bool {
    let entry = offered.tool.entry();
    entry.len() <= LONGEST_ENTRY && entry.chars().all(|c| matches!(c, ' '..='~'))
}

/// Whether a tool only reads, as far as the source says so.
fn reads(offered: &OfferedTool) -> bool {
    offered.claimed.unwrap_or(offered.tool.effect) == Effect::Reads
}

/// What the tool is, in a few words.
fn about(offered: &OfferedTool) -> String {
    let tool = &offered.tool;
    let request = tool
        .origin
        .iter()
        .flat_map(|origin| origin.operations.get(1));
    let title = Some(&*tool.title).filter(|title| !title.is_empty());
    let words: Vec<&str> = request.map(String::as_str).chain(title).collect();
    words.join(": ")
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Value,
    data: std::collections::BTreeMap<&'a str, LitStr<'a>>,
}

/// The ConfigMap that holds the document, as a block where YAML can say it so.
fn config_map(
    draft: &Draft,
    key: &str,
    document: &str,
) -> Result<String, Box<dyn std::error::Error>> {
    let metadata = metadata(draft, &format!("{}-openapi", draft.name));
    let block = serde_saphyr::to_string(&Document {
        api_version: "v1",
        kind: "ConfigMap",
        metadata: metadata.clone(),
        data: [(key, LitStr(document))].into(),
    })?;
    let as_read: Option<Value> = serde_saphyr::from_str(&block).ok();
    if as_read.is_some_and(|read| read["data"][key] == *document) {
        return Ok(block);
    }
    let quoted = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {key: document},
    });
    // JSON is YAML.
    Ok(format!("{quoted}\n"))
}

fn comment(text: &mut String, line: &str) {
    let _ = writeln!(text, "# {}", one_line(line));
}

fn comment_in(text: &mut String, line: &str) {
    text.push_str("  ");
    comment(text, line);
}

/// Nothing of what a source says can end a comment.
fn one_line(text: &str) -> String {
    let seen = visible(text);
    let mut line: Vec<&str> = seen.split_whitespace().collect();
    if text.starts_with("  ") {
        line.insert(0, " ");
    }
    let line = line.join(" ");
    let cut: String = line.chars().take(COMMENT * 3).collect();
    cut
}
