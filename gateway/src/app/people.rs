//! What people do at the command line: see which calls wait for them, allow or deny them.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use chandlery_crds::names;
use http::{Method, Request, StatusCode, header};
use http_body_util::Full;
use serde_json::{Value, json};

use super::cli::{fail, note, print};
use super::client::{SendError, read_secret, send};
use crate::directory::files::{ADMIN, person_file};

const TIMEOUT: Duration = Duration::from_secs(30);
/// Characters of arguments that a line shows.
const SHOWN: usize = 120;

/// Which gateway, and as whom.
#[derive(clap::Args)]
pub(super) struct Gateway {
    /// Where the gateway listens.
    #[arg(
        long,
        value_name = "URL",
        default_value = "http://127.0.0.1:8080",
        env = "CHANDLERY_URL"
    )]
    url: String,
    /// File with your token. Default: that of the data folder of a gateway without Kubernetes.
    #[arg(long, value_name = "FILE", env = "CHANDLERY_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// The data folder of a gateway without Kubernetes.
    #[arg(long, value_name = "DIR", default_value = super::settings::DATA)]
    data: PathBuf,
}

#[derive(clap::Args)]
pub(super) struct InboxArgs {
    #[command(flatten)]
    gateway: Gateway,
    /// Show what has been decided, too.
    #[arg(long)]
    all: bool,
    /// Show only this agent's calls: `<namespace>.<name>`, or `<name>` in `default`.
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    /// How to print.
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "text")]
    output: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    Text,
    Json,
}

#[derive(clap::Args)]
pub(super) struct ApproveArgs {
    /// Id of the approval, as `chandlery inbox` shows it.
    id: String,
    /// Allow the tool for the rest of the agent's session.
    #[arg(long, conflicts_with = "always")]
    session: bool,
    /// Allow the tool for good. `GET /api/v1/standing-approvals` lists what was allowed so.
    #[arg(long)]
    always: bool,
    #[command(flatten)]
    gateway: Gateway,
}

#[derive(clap::Args)]
pub(super) struct DenyArgs {
    /// Id of the approval, as `chandlery inbox` shows it.
    id: String,
    /// What the agent reads: why not, and what to do instead.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    gateway: Gateway,
}

#[derive(clap::Subcommand)]
pub(super) enum RequestsCommand {
    /// Show what agents ask to have changed in their config.
    List(ListArgs),
    /// Say yes. The manifest is changed by whoever owns it.
    Approve(AnswerArgs),
    /// Say no.
    Reject(AnswerArgs),
}

#[derive(clap::Subcommand)]
pub(super) enum TicketsCommand {
    /// Show the tickets of agents.
    List(ListArgs),
    /// Show a ticket and what was said in it.
    Show(IdArgs),
    /// Answer.
    Reply(ReplyArgs),
    /// Close a ticket.
    Close(IdArgs),
    /// Open a ticket again.
    Reopen(IdArgs),
}

#[derive(clap::Args)]
pub(super) struct ListArgs {
    /// Show what is no longer open, too.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    gateway: Gateway,
}

#[derive(clap::Args)]
pub(super) struct IdArgs {
    /// Id, as the list shows it.
    id: String,
    #[command(flatten)]
    gateway: Gateway,
}

#[derive(clap::Args)]
pub(super) struct AnswerArgs {
    /// Id, as the list shows it.
    id: String,
    /// What the agent reads.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    gateway: Gateway,
}

#[derive(clap::Args)]
pub(super) struct ReplyArgs {
    /// Id, as the list shows it.
    id: String,
    /// The answer.
    text: String,
    #[command(flatten)]
    gateway: Gateway,
}

impl Gateway {
    /// Asks the REST API. The error is a sentence for people.
    pub(super) fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, String> {
        if !self.url.starts_with("http://") {
            return Err("--url must start with http://".to_owned());
        }
        let file = match &self.token_file {
            Some(file) => file.clone(),
            None => person_file(&self.data, ADMIN),
        };
        let token = read_secret(&file).map_err(|error| {
            format!("{error}; write --token-file with your token, or --data with the gateway's data folder")
        })?;
        let url = format!("{}/api/v1{path}", self.url.trim_end_matches('/'));
        let request = Request::builder()
            .method(method)
            .uri(&url)
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::from(
                body.map_or_else(Bytes::new, |body| body.to_string().into()),
            ))
            .map_err(|error| format!("{url}: {error}"))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| format!("start: {error}"))?;
        let answer = runtime.block_on(async { tokio::time::timeout(TIMEOUT, send(request)).await });
        let (status, text) = match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(SendError::Connect(why) | SendError::Broken(why))) => return Err(why),
            Err(_) => return Err(format!("no answer within {TIMEOUT:?}")),
        };
        let value: Option<Value> = serde_json::from_str(&text).ok();
        match (status, value) {
            (status, Some(value)) if status.is_success() => Ok(value),
            (StatusCode::UNAUTHORIZED, _) => Err(format!(
                "the token in {} is not a person's of this gateway",
                file.display()
            )),
            (_, Some(value)) if value["error"]["message"].is_string() => {
                Err(value["error"]["message"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned())
            }
            (status, _) => Err(format!("{status}: {}", text.trim())),
        }
    }
}

/// `<namespace>.<name>`; what has no namespace is in `default`.
pub(super) fn with_namespace(name: &str) -> String {
    match name.contains('.') {
        true => name.to_owned(),
        false => names::agent_id("default", name),
    }
}

pub(super) fn inbox(args: InboxArgs) -> ExitCode {
    let mut path = format!(
        "/approvals?limit=200{}",
        if args.all { "" } else { "&state=pending" }
    );
    if let Some(agent) = &args.agent {
        path.push_str("&agent=");
        path.push_str(&with_namespace(agent));
    }
    let answer = match args.gateway.ask(Method::GET, &path, None) {
        Ok(answer) => answer,
        Err(why) => return fail(why),
    };
    if args.output == Format::Json {
        return print(format_args!("{:#}", answer["items"]));
    }
    let rows = answer["items"].as_array().map_or(&[][..], Vec::as_slice);
    if rows.is_empty() {
        note("nothing waits for a person");
        return ExitCode::SUCCESS;
    }
    for row in rows {
        let text = |field: &str| row[field].as_str().unwrap_or_default().to_owned();
        let mut arguments = row["arguments"].to_string();
        if arguments.chars().count() > SHOWN {
            arguments = arguments.chars().take(SHOWN).collect();
            arguments.push('…');
        }
        let mut line = format!(
            "{}  {}  {}  {}  {arguments}",
            text("id"),
            text("state"),
            text("agent"),
            text("tool")
        );
        if let Some(by) = row["decided_by"].as_str() {
            line.push_str(&format!("  by {by}"));
        }
        if print(line) != ExitCode::SUCCESS {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

pub(super) fn approve(args: ApproveArgs) -> ExitCode {
    let remember = match (args.session, args.always) {
        (true, _) => json!({"remember": "session"}),
        (_, true) => json!({"remember": "always"}),
        _ => json!({}),
    };
    decided(&args.gateway, &args.id, "approve", &remember)
}

pub(super) fn deny(args: DenyArgs) -> ExitCode {
    let body = args
        .reason
        .map_or(json!({}), |reason| json!({"reason": reason}));
    decided(&args.gateway, &args.id, "deny", &body)
}

fn decided(gateway: &Gateway, id: &str, verb: &str, body: &Value) -> ExitCode {
    if let Err(why) = is_id(id) {
        return fail(why);
    }
    let path = format!("/approvals/{id}/{verb}");
    match gateway.ask(Method::POST, &path, Some(body)) {
        Ok(row) => print(format_args!(
            "{} {}: {} of {}",
            row["state"].as_str().unwrap_or_default(),
            id,
            row["tool"].as_str().unwrap_or_default(),
            row["agent"].as_str().unwrap_or_default()
        )),
        Err(why) => fail(why),
    }
}

pub(super) fn requests(command: RequestsCommand) -> ExitCode {
    let (verb, args) = match command {
        RequestsCommand::List(args) => {
            let fields = ["id", "status", "agent", "summary", "patch"];
            return listed(&args, "/config-requests", &fields);
        }
        RequestsCommand::Approve(args) => ("approve", args),
        RequestsCommand::Reject(args) => ("reject", args),
    };
    let body = args.reason.map(|reason| json!({"reason": reason}));
    asked(
        &args.gateway,
        "config-requests",
        &args.id,
        verb,
        body.as_ref(),
    )
}

pub(super) fn tickets(command: TicketsCommand) -> ExitCode {
    match command {
        TicketsCommand::List(args) => {
            let fields = ["id", "status", "agent", "priority", "subject"];
            listed(&args, "/tickets", &fields)
        }
        TicketsCommand::Show(args) => show(&args),
        TicketsCommand::Reply(args) => {
            let body = json!({"body": args.text});
            asked(&args.gateway, "tickets", &args.id, "reply", Some(&body))
        }
        TicketsCommand::Close(args) => asked(&args.gateway, "tickets", &args.id, "close", None),
        TicketsCommand::Reopen(args) => asked(&args.gateway, "tickets", &args.id, "reopen", None),
    }
}

/// A line for each row.
fn listed(args: &ListArgs, path: &str, fields: &[&str]) -> ExitCode {
    let open = if args.all { "" } else { "&status=open" };
    let path = format!("{path}?limit=200{open}");
    let answer = match args.gateway.ask(Method::GET, &path, None) {
        Ok(answer) => answer,
        Err(why) => return fail(why),
    };
    let rows = answer["items"].as_array().map_or(&[][..], Vec::as_slice);
    if rows.is_empty() {
        note("there is nothing open");
    }
    for row in rows {
        let cells = fields.iter().map(|field| match &row[*field] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        });
        if print(cells.collect::<Vec<_>>().join("  ")) != ExitCode::SUCCESS {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn show(args: &IdArgs) -> ExitCode {
    if let Err(why) = is_id(&args.id) {
        return fail(why);
    }
    let ticket = match args
        .gateway
        .ask(Method::GET, &format!("/tickets/{}", args.id), None)
    {
        Ok(ticket) => ticket,
        Err(why) => return fail(why),
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut lines = vec![format!(
        "{} ({}, {}) of {}",
        text(&ticket["subject"]),
        text(&ticket["status"]),
        text(&ticket["priority"]),
        text(&ticket["agent"])
    )];
    for message in ticket["messages"].as_array().into_iter().flatten() {
        lines.push(format!(
            "\n{}, {}:\n{}",
            text(&message["author"]),
            text(&message["sent_at"]),
            text(&message["body"])
        ));
    }
    print(lines.join("\n"))
}

fn asked(gateway: &Gateway, what: &str, id: &str, verb: &str, body: Option<&Value>) -> ExitCode {
    if let Err(why) = is_id(id) {
        return fail(why);
    }
    match gateway.ask(Method::POST, &format!("/{what}/{id}/{verb}"), body) {
        Ok(row) => print(row["status"].as_str().unwrap_or("done")),
        Err(why) => fail(why),
    }
}

fn is_id(id: &str) -> Result<(), &'static str> {
    if id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        Ok(())
    } else {
        Err("an id has letters and digits only; the list shows them")
    }
}
