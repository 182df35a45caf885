//! `chandlery sources` and `chandlery usage`: what ToolSources offer, what changed in them, and what went to them.

use std::process::ExitCode;

use http::Method;
use serde_json::Value;

use super::cli::{fail, note, print};
use super::people::{Format, Gateway, with_namespace};

#[derive(clap::Subcommand)]
pub(super) enum Command {
    /// Show the ToolSources that grants name, and how they fare.
    List(ListArgs),
    /// Show how what a ToolSource offers differs from what was approved.
    Diff(DiffArgs),
}

#[derive(clap::Args)]
pub(super) struct ListArgs {
    /// How to print.
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "text")]
    output: Format,
    #[command(flatten)]
    gateway: Gateway,
}

#[derive(clap::Args)]
pub(super) struct DiffArgs {
    /// The ToolSource: its name, or `<namespace>.<name>`.
    source: String,
    /// How to print.
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "text")]
    output: Format,
    #[command(flatten)]
    gateway: Gateway,
}

#[derive(clap::Args)]
pub(super) struct UsageArgs {
    /// Only this agent's calls: `<namespace>.<name>`, or `<name>` in `default`.
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    /// Only calls to this ToolSource, by name.
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// How many, the newest first, 1 to 200.
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    limit: u8,
    /// How to print.
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "text")]
    output: Format,
    #[command(flatten)]
    gateway: Gateway,
}

pub(super) fn run(command: Command) -> ExitCode {
    match command {
        Command::List(args) => list(&args),
        Command::Diff(args) => diff(&args),
    }
}

fn list(args: &ListArgs) -> ExitCode {
    rows(
        &args.gateway,
        "/sources",
        args.output,
        "no grant names a ToolSource",
        |row| {
            let mut line = format!(
                "{}  revision {}  {} tools",
                text(&row["id"]),
                row["revision"].as_str().unwrap_or("none"),
                row["served"]
            );
            for (field, word) in [
                ("changed", "not as approved"),
                ("withheld", "withheld"),
                ("left_out", "left out"),
            ] {
                if row[field].as_i64().is_some_and(|count| count > 0) {
                    line.push_str(&format!(", {} {word}", row[field]));
                }
            }
            match row["age_seconds"].as_i64() {
                Some(age) => line.push_str(&format!("  answered {} ago", span(age))),
                None => line.push_str("  never answered"),
            }
            if row["failure"].is_object() {
                let failure = &row["failure"];
                let (reason, message) = (text(&failure["reason"]), text(&failure["message"]));
                line.push_str(&format!("  {reason}: {message}"));
            }
            line.extend(of_approval(row).map(|note| format!("  {note}")));
            line
        },
    )
}

/// What there is to say where the manifest approves what was never seen.
fn of_approval(source: &Value) -> Option<&str> {
    let mut noted = source["noted"].as_array().into_iter().flatten();
    let note = noted.find(|noted| noted["reason"] == "UnknownRevision")?;
    note["message"].as_str()
}

fn diff(args: &DiffArgs) -> ExitCode {
    let id = with_namespace(&args.source);
    let answer = match args
        .gateway
        .ask(Method::GET, &format!("/sources/{id}/diff"), None)
    {
        Ok(answer) => answer,
        Err(why) => return fail(why),
    };
    match args.output {
        Format::Json => print(format_args!("{answer:#}")),
        Format::Text => print(told(&answer)),
    }
}

/// The changes of a source, as a person reads them.
fn told(answer: &Value) -> String {
    let changes = answer["changes"].as_array().map_or(&[][..], Vec::as_slice);
    let revision = answer["revision"].as_str().unwrap_or("none");
    if changes.is_empty() {
        let note = of_approval(answer).map(|note| format!("\n{note}"));
        let note = note.unwrap_or_default();
        return format!("revision {revision}: every tool is as it was approved{note}");
    }
    let mut lines = vec![match answer["approved_revision"].as_str() {
        Some(approved) => format!("revision {revision} differs from the approved {approved}:"),
        None => format!("nothing of revision {revision} is approved:"),
    }];
    for change in changes {
        lines.push(format!(
            "\n{} {}",
            text(&change["kind"]),
            text(&change["name"])
        ));
        let (before, after) = (&change["before"], &change["after"]);
        for field in ["identity", "description", "input_schema", "output_schema"] {
            if before[field] == after[field] {
                continue;
            }
            for (sign, side) in [("-", before), ("+", after)] {
                let value = &side[field];
                if value.is_null() || *value == "" {
                    continue;
                }
                let value = value
                    .as_str()
                    .map_or_else(|| format!("{value:#}"), str::to_owned);
                let value = value.lines().map(|line| format!("  {sign} {line}"));
                lines.push(format!("  {field}:"));
                lines.extend(value);
            }
        }
    }
    lines.push(format!(
        "\nTo serve all of it, write spec.pinning.approvedRevision: {revision} into the ToolSource."
    ));
    lines.join("\n")
}

pub(super) fn usage(args: &UsageArgs) -> ExitCode {
    let mut path = format!("/usage?limit={}", args.limit.clamp(1, 200));
    if let Some(agent) = &args.agent {
        path.push_str(&format!("&agent={}", with_namespace(agent)));
    }
    if let Some(source) = &args.source {
        // Rows name it without its namespace.
        let name = source.split_once('.').map_or(&**source, |(_, name)| name);
        path.push_str(&format!("&provider={name}"));
    }
    rows(
        &args.gateway,
        &path,
        args.output,
        "nothing went to a ToolSource",
        |row| {
            let status = match row["status"].as_i64() {
                Some(status) => status.to_string(),
                None => text(&row["outcome"]).to_owned(),
            };
            format!(
                "{}  {}  {}  {} {}  {status}  {} ms  {} cents",
                text(&row["at"]),
                text(&row["agent"]),
                text(&row["tool"]),
                text(&row["method"]),
                text(&row["path"]),
                row["latency_us"].as_i64().unwrap_or_default() / 1000,
                row["cost_cents"]
            )
        },
    )
}

/// Prints the rows of a list, a line each; `none` says that there are none.
fn rows(
    gateway: &Gateway,
    path: &str,
    output: Format,
    none: &str,
    line: impl Fn(&Value) -> String,
) -> ExitCode {
    let answer = match gateway.ask(Method::GET, path, None) {
        Ok(answer) => answer,
        Err(why) => return fail(why),
    };
    let rows = answer["items"].as_array().map_or(&[][..], Vec::as_slice);
    match output {
        Format::Json => print(format_args!("{:#}", answer["items"])),
        Format::Text if rows.is_empty() => {
            note(none);
            ExitCode::SUCCESS
        }
        Format::Text => print(rows.iter().map(line).collect::<Vec<_>>().join("\n")),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Seconds as people say them.
fn span(seconds: i64) -> String {
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}
