//! `chandlery explain`: what an agent may use and why, and what a change of manifests would do to that.

use std::path::PathBuf;
use std::process::ExitCode;

use chandlery_crds::manifest::{self, Object};
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::cli::{fail, print, usage};
use super::lint::read_all;
use super::people::{Format, Gateway, with_namespace};
use crate::directory::Snapshot;
use crate::explain::{changes, explain_all};
use crate::families;
use crate::gate::is_never_served;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The agent: its name, or `<namespace>.<name>`.
    agent: String,
    /// Only this tool, by its per-operation name.
    tool: Option<String>,
    /// Look at the manifests of this folder instead of asking a gateway.
    #[arg(long, value_name = "DIR")]
    manifests: Option<PathBuf>,
    /// Show what would change if the manifests of `-f` were applied.
    #[arg(long = "if", requires = "files")]
    what_if: bool,
    /// Manifests for `--if`: a file, a folder, or `-` for standard input. May be repeated.
    #[arg(
        short = 'f',
        long = "filename",
        value_name = "FILE",
        requires = "what_if"
    )]
    files: Vec<PathBuf>,
    /// How to print.
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "text")]
    output: Format,
    #[command(flatten)]
    gateway: Gateway,
}

pub(super) fn run(args: Args) -> ExitCode {
    let agent = with_namespace(&args.agent);
    let text = match read_all(&args.files, false) {
        Ok(files) => files.into_iter().map(|(_, text)| text).collect::<Vec<_>>(),
        Err(error) => return usage(error),
    };
    let asked = match &args.manifests {
        Some(folder) => of_files(&args, &agent, folder, &text),
        None => of_gateway(&args, &agent, &text),
    };
    let Found {
        mut rows,
        unresolved,
    } = match asked {
        Ok(found) => found,
        Err(why) => return fail(why),
    };
    if let Some(tool) = &args.tool {
        rows.retain(|row| row["tool"] == tool.as_str());
        if rows.is_empty() && !args.what_if {
            let lines = [missing(tool)]
                .into_iter()
                .chain(told_unresolved(&unresolved));
            return fail(lines.collect::<Vec<_>>().join("\n"));
        }
    }
    match args.output {
        Format::Json => print(format_args!("{:#}", Value::Array(rows))),
        Format::Text if args.what_if => print(told_changes(&agent, &rows)),
        Format::Text if args.tool.is_some() => print(told(&rows, true)),
        Format::Text => {
            let lines = [told(&rows, false)].into_iter();
            let lines = lines.chain(told_unresolved(&unresolved));
            print(lines.collect::<Vec<_>>().join("\n"))
        }
    }
}

/// What an agent may use.
struct Found {
    /// A tool each, or a change.
    rows: Vec<Value>,
    /// The entries of the agent that serve nothing.
    unresolved: Value,
}

/// Asks a gateway.
fn of_gateway(args: &Args, agent: &str, manifests: &[String]) -> Result<Found, String> {
    let path = format!("/agents/{agent}/tools");
    let (mut answer, field) = if args.what_if {
        let body = json!({"manifests": manifests.join("\n---\n")});
        let path = format!("{path}/preview");
        let answer = args.gateway.ask(Method::POST, &path, Some(&body))?;
        (answer, "changes")
    } else {
        (args.gateway.ask(Method::GET, &path, None)?, "tools")
    };
    match answer[field].take() {
        Value::Array(rows) => Ok(Found {
            rows,
            unresolved: answer["unresolved"].take(),
        }),
        _ => Err("the gateway's answer cannot be read; is it of the same version?".to_owned()),
    }
}

/// Looks at manifests, without a gateway.
fn of_files(
    args: &Args,
    agent: &str,
    folder: &std::path::Path,
    changed: &[String],
) -> Result<Found, String> {
    let texts = read_all(&[folder.to_owned()], false)?;
    let snapshot = Snapshot::default().with(&objects(texts.iter().map(|(_, text)| text))?);
    let tools = families::tools();
    let now = Timestamp::now();
    let explained = |snapshot: &Snapshot| {
        let found = snapshot.agents.get(agent)?;
        Some(explain_all(tools.iter(), snapshot, found, now))
    };
    let before = explained(&snapshot);
    let rows = if args.what_if {
        let next = snapshot.with(&objects(changed.iter())?);
        let after = explained(&next);
        if before.is_none() && after.is_none() {
            return Err(no_agent(agent));
        }
        let changes = changes(before.unwrap_or_default(), after.unwrap_or_default());
        serde_json::to_value(changes)
    } else {
        serde_json::to_value(before.ok_or_else(|| no_agent(agent))?)
    };
    let rows = match rows {
        Ok(Value::Array(rows)) => rows,
        _ => Vec::new(),
    };
    // What a source offers only a gateway knows.
    let entries = snapshot.agents.get(agent).map(|agent| &agent.spec.tools);
    let of_sources = entries
        .into_iter()
        .flatten()
        .filter(|entry| entry.contains('/'));
    let unresolved = of_sources.map(|entry| {
        let message =
            "tools of ToolSources are known to a gateway alone: ask one, without --manifests";
        json!({"entry": entry, "message": message})
    });
    Ok(Found {
        rows,
        unresolved: unresolved.collect(),
    })
}

fn no_agent(agent: &str) -> String {
    format!("there is no Agent {agent} with a Workspace among the manifests")
}

fn objects<'a>(texts: impl Iterator<Item = &'a String>) -> Result<Vec<Object>, String> {
    let mut objects = Vec::new();
    for text in texts {
        let read = manifest::read("manifests", text);
        if let Some(problem) = read.problems.first() {
            return Err(problem.to_string());
        }
        objects.extend(read.objects);
    }
    Ok(objects)
}

fn missing(tool: &str) -> String {
    if is_never_served(tool) {
        format!("{tool} is never served to an agent: tools that manage the platform are people's")
    } else {
        format!(
            "there is no tool {tool}; write a per-operation name, such as agnt_datetime_now, and leave it out to see them all"
        )
    }
}

/// A line for each entry that serves nothing.
fn told_unresolved(unresolved: &Value) -> impl Iterator<Item = String> {
    let entries = unresolved.as_array().into_iter().flatten();
    entries.map(|unresolved| {
        let text = |field: &str| unresolved[field].as_str().unwrap_or_default();
        format!("{:<40} nothing: {}", text("entry"), text("message"))
    })
}

/// A line for each tool; with its chain when `in_full`, and for tools that are not seen.
fn told(rows: &[Value], in_full: bool) -> String {
    let mut lines = Vec::new();
    for row in rows {
        lines.push(format!(
            "{:<40} {}",
            row["tool"].as_str().unwrap_or_default(),
            standing(row)
        ));
        for step in row["steps"].as_array().into_iter().flatten() {
            if in_full || step["passes"] == false {
                lines.push(format!("    {}", told_step(step)));
            }
        }
    }
    lines.join("\n")
}

fn told_step(step: &Value) -> String {
    let sign = if step["passes"] == true { '+' } else { '-' };
    format!("{sign} {}", step["says"].as_str().unwrap_or_default())
}

fn standing(row: &Value) -> String {
    match (row["seen"] == true, row["level"].as_str()) {
        (true, Some(level)) => format!("seen, {level}"),
        (true, None) => "seen".to_owned(),
        (false, _) => "not seen".to_owned(),
    }
}

fn told_changes(agent: &str, rows: &[Value]) -> String {
    if rows.is_empty() {
        return format!("nothing would change for {agent}");
    }
    let mut lines = Vec::new();
    for row in rows {
        let side = |side: &Value| match side {
            Value::Null => "not there".to_owned(),
            row => standing(row),
        };
        lines.push(format!(
            "{:<40} {} -> {}",
            row["tool"].as_str().unwrap_or_default(),
            side(&row["before"]),
            side(&row["after"])
        ));
        for step in row["after"]["steps"].as_array().into_iter().flatten() {
            let was_there = row["before"]["steps"]
                .as_array()
                .is_some_and(|steps| steps.contains(step));
            if !was_there {
                lines.push(format!("    {}", told_step(step)));
            }
        }
    }
    lines.join("\n")
}
