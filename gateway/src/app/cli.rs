//! The command line. Each subcommand is one function; bad input ends with one sentence and exit code 2.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use chandlery_crds::key::Key;
use clap::{Parser, Subcommand};

use super::settings::{ServeArgs, Settings};
use super::{audit, call, connect, explain, import, lint, people, probe, serve, sources};

/// Outfits agents: their own endpoint, their own key, exactly the tools their manifest allows.
#[derive(Parser)]
#[command(name = "chandlery", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve MCP to agents, from a folder of manifests or from Kubernetes.
    Serve(Box<ServeArgs>),
    /// Say what is wrong with manifests, without a cluster.
    Lint(lint::Args),
    /// Write a ToolSource and a ToolGrant for an OpenAPI document or an MCP server, to be looked at.
    #[command(subcommand)]
    Import(import::Command),
    /// Make keys.
    #[command(subcommand)]
    Key(KeyCommand),
    /// Print how to tell a client of an agent's endpoint.
    Connect(connect::Args),
    /// Call a tool, as the agent that holds the key would.
    Call(call::Args),
    /// Say what an agent may use and why, and what a change would do to that.
    Explain(explain::Args),
    /// Show the calls that wait for a person.
    Inbox(people::InboxArgs),
    /// Allow a call.
    Approve(people::ApproveArgs),
    /// Refuse a call.
    Deny(people::DenyArgs),
    /// Answer what agents ask to have changed in their config.
    #[command(subcommand)]
    Requests(people::RequestsCommand),
    /// Answer the tickets of agents.
    #[command(subcommand)]
    Tickets(people::TicketsCommand),
    /// Show what ToolSources offer, and what changed in them.
    #[command(subcommand)]
    Sources(sources::Command),
    /// Show the calls that went to ToolSources, and what they cost.
    Usage(sources::UsageArgs),
    /// Check the record of calls.
    #[command(subcommand)]
    Audit(audit::Command),
    /// Ask a URL once; exit code 0 when it answers.
    Probe(probe::Args),
}

#[derive(Subcommand)]
enum KeyCommand {
    /// Print a new key, for a Secret that an Agent names in key.existingSecretRef.
    New,
}

/// The program.
pub fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Serve(args) => match Settings::try_from(*args) {
            Ok(settings) => serve::run(settings),
            Err(error) => usage(error),
        },
        Command::Lint(args) => lint::run(args),
        Command::Import(command) => import::run(command),
        Command::Key(KeyCommand::New) => new_key(),
        Command::Connect(args) => connect::run(args),
        Command::Call(args) => call::run(args),
        Command::Explain(args) => explain::run(args),
        Command::Inbox(args) => people::inbox(args),
        Command::Approve(args) => people::approve(args),
        Command::Deny(args) => people::deny(args),
        Command::Requests(command) => people::requests(command),
        Command::Tickets(command) => people::tickets(command),
        Command::Sources(command) => sources::run(command),
        Command::Usage(args) => sources::usage(&args),
        Command::Audit(command) => audit::run(command),
        Command::Probe(args) => probe::run(args),
    }
}

fn new_key() -> ExitCode {
    let mut random = [0; 32];
    if let Err(error) = getrandom::fill(&mut random) {
        return fail(format_args!("no randomness from the system: {error}"));
    }
    print(Key::from_random(random).expose())
}

/// Prints a line; a reader that has gone away is no failure.
pub(super) fn print(line: impl Display) -> ExitCode {
    match writeln!(io::stdout().lock(), "{line}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Says something beside the output.
pub(super) fn note(line: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Ends a command that was understood and did not work.
pub(super) fn fail(error: impl Display) -> ExitCode {
    note(format_args!("chandlery: {error}"));
    ExitCode::FAILURE
}

/// Ends a command that was not written right.
pub(super) fn usage(error: impl Display) -> ExitCode {
    note(format_args!("chandlery: {error}"));
    ExitCode::from(2)
}
