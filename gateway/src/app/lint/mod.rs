//! `chandlery lint`: what the API server and the operator would say of manifests, without either.

mod sources;
#[cfg(test)]
mod tests;

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use chandlery_crds::check;
use chandlery_crds::manifest::{self, Manifests, Object, Problem, Resource};
use chandlery_crds::names::agent_id;
use jiff::Timestamp;
use serde::Serialize;

use self::sources::Sources;
use super::cli::{print, usage};
use crate::catalog;
use crate::directory::Snapshot;
use crate::directory::files::is_manifest;
use crate::families;
use crate::store::Clock;
use crate::tool::Tool;

#[derive(clap::Args)]
pub(super) struct Args {
    /// A manifest, a folder of them, or `-` for standard input. May be repeated.
    #[arg(short = 'f', long = "filename", value_name = "FILE", required = true, num_args = 1..)]
    files: Vec<PathBuf>,
    /// Look into the folders of a folder too.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// How to print: text, one problem per line as `file:line: kind/name: message`, or json.
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "text")]
    output: Output,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Output {
    Text,
    Json,
}

/// What there is to say.
#[derive(Debug, Default, Serialize)]
struct Report {
    /// How many objects were taken.
    objects: usize,
    /// What has to be put right.
    problems: Vec<Problem>,
    /// Objects that Chandlery does not read.
    ignored: Vec<Problem>,
}

/// Exit code 0 when nothing is wrong, 1 when something is, 2 when a file cannot be read.
pub(super) fn run(args: Args) -> ExitCode {
    let files = match read_all(&args.files, args.recursive) {
        Ok(files) => files,
        Err(error) => return usage(error),
    };
    let report = lint(&files, Clock::system().now());
    let text = match args.output {
        Output::Json => serde_json::to_string_pretty(&report).expect("a report serializes"),
        Output::Text => report.to_string(),
    };
    match print(text) {
        ExitCode::SUCCESS if !report.problems.is_empty() => ExitCode::FAILURE,
        printed => printed,
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for problem in &self.problems {
            writeln!(f, "{problem}")?;
        }
        for ignored in &self.ignored {
            writeln!(f, "{ignored} (no problem)")?;
        }
        match (self.problems.len(), self.objects) {
            (0, 1) => write!(f, "1 object, nothing wrong"),
            (0, objects) => write!(f, "{objects} objects, nothing wrong"),
            (1, _) => write!(f, "1 problem"),
            (problems, _) => write!(f, "{problems} problems"),
        }
    }
}

/// Checks the text of all files together.
///
/// References are checked once every object can be taken: a reference to a broken object is no problem of its own.
fn lint(files: &[(String, String)], now: Timestamp) -> Report {
    let mut report = Report::default();
    let mut objects = Vec::new();
    for (name, text) in files {
        let Manifests {
            objects: read,
            problems,
            ignored,
        } = manifest::read(name, text);
        objects.extend(read);
        report.problems.extend(problems);
        report.ignored.extend(ignored);
    }
    report.objects = objects.len();
    if report.problems.is_empty() {
        report.problems = problems(&objects, &families::tools(), now);
    }
    report
}

/// Everything that can be said of objects as a whole: what the operator would say of their references, and the gateway
/// of what they give to agents at `now`. `tools` are all that are built in.
pub(super) fn problems(objects: &[Object], tools: &[Tool], now: Timestamp) -> Vec<Problem> {
    let snapshot = Snapshot::default().with(objects);
    let mut problems = check::all(objects);
    let (sources, unreadable) = Sources::read(objects);
    problems.extend(unreadable);
    for object in objects {
        let namespace = object.namespace();
        let agent = match &object.resource {
            Resource::Agent(agent) => agent,
            Resource::ToolGrant(grant) => {
                problems.extend(sources.of_grant(object, &grant.spec.tools));
                continue;
            }
            _ => continue,
        };
        let unresolved = match snapshot.agents.get(&agent_id(namespace, object.name())) {
            Some(agent) => {
                let tools = tools.iter().chain(sources.tools(namespace));
                catalog::lint(tools, agent, now)
            }
            // Without its Workspace nobody knows what it needs a grant for.
            None => {
                let names = tools.iter().map(|tool| &*tool.name);
                let entries = agent.spec.tools.iter();
                let entries = entries.filter(|entry| {
                    let mut tools = sources.tools(namespace);
                    !tools.any(|tool| tool.is_named_by(entry))
                });
                let wrong = entries.filter_map(|entry| check::tool_entry(entry, names.clone()));
                wrong.collect()
            }
        };
        let unresolved = unresolved.into_iter();
        let unresolved = unresolved.filter_map(|entry| sources.explained(entry, namespace));
        problems.extend(check::entries(object, agent, unresolved.collect()));
    }
    problems
}

/// Name and text of every file, in the order of the arguments, a folder's files by name.
pub(super) fn read_all(
    paths: &[PathBuf],
    recursive: bool,
) -> Result<Vec<(String, String)>, String> {
    let mut files = Vec::new();
    for path in paths {
        let failed = |error: io::Error| format!("read {}: {error}", path.display());
        if path == Path::new("-") {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).map_err(failed)?;
            files.push(("stdin".to_owned(), text));
        } else if path.is_dir() {
            let before = files.len();
            read_folder(path, recursive, &mut files).map_err(failed)?;
            if files.len() == before {
                return Err(format!(
                    "{} holds no file that ends in .yaml, .yml or .json",
                    path.display()
                ));
            }
        } else {
            files.push((
                path.display().to_string(),
                fs::read_to_string(path).map_err(failed)?,
            ));
        }
    }
    Ok(files)
}

fn read_folder(
    folder: &Path,
    recursive: bool,
    files: &mut Vec<(String, String)>,
) -> io::Result<()> {
    let mut paths = fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        if path.is_dir() {
            let is_hidden = path
                .file_name()
                .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
            if recursive && !is_hidden {
                read_folder(&path, recursive, files)?;
            }
        } else if is_manifest(&path) {
            files.push((path.display().to_string(), fs::read_to_string(&path)?));
        }
    }
    Ok(())
}
