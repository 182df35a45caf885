//! `chandlery lint`: what the API server and the operator would say of manifests, without either.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use chandlery_crds::check;
use chandlery_crds::manifest::{self, Manifests, Object, Problem, Resource};
use chandlery_crds::names::agent_id;
use chandlery_crds::report::Unresolved;
use jiff::Timestamp;
use serde::Serialize;

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
/// of what they give to agents at `now`. `tools` are all that there are.
pub(super) fn problems(objects: &[Object], tools: &[Tool], now: Timestamp) -> Vec<Problem> {
    let snapshot = Snapshot::default().with(objects);
    let mut problems = check::all(objects);
    for object in objects {
        let Resource::Agent(agent) = &object.resource else {
            continue;
        };
        let unresolved = match snapshot
            .agents
            .get(&agent_id(object.namespace(), object.name()))
        {
            Some(agent) => catalog::lint(tools, agent, now),
            // Without its Workspace nobody knows what it needs a grant for.
            None => {
                let names = tools.iter().map(|tool| &*tool.name);
                let entries = agent.spec.tools.iter();
                let wrong = entries.filter_map(|entry| check::tool_entry(entry, names.clone()));
                wrong.collect()
            }
        };
        let unresolved = of_sources(unresolved, objects, object.namespace());
        problems.extend(check::entries(object, agent, unresolved));
    }
    problems
}

/// What is left to say when entries of sources are looked at: one whose source is there may well be served once somebody
/// has asked the source what it offers.
fn of_sources(unresolved: Vec<Unresolved>, objects: &[Object], namespace: &str) -> Vec<Unresolved> {
    let is_there = |source: &str| {
        objects.iter().any(|object| {
            matches!(object.resource, Resource::ToolSource(_))
                && object.namespace() == namespace
                && object.name() == source
        })
    };
    let told = unresolved.into_iter().filter_map(|mut unresolved| {
        if let Some((source, _)) = unresolved.entry.split_once('/') {
            if is_there(source) {
                return None;
            }
            unresolved.message = format!(
                "there is no ToolSource {source} in this namespace: make it, or correct the entry"
            );
        }
        Some(unresolved)
    });
    told.collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    #[track_caller]
    fn check(files: &[(&str, &str)], expected: Expect) {
        let files: Vec<_> = files
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect();
        let now = "2026-12-01T00:00:00Z".parse().unwrap();
        expected.assert_eq(&lint(&files, now).to_string());
    }

    const HOME: &str =
        "apiVersion: chandlery.dev/v1alpha1\nkind: Workspace\nmetadata: {name: home}\nspec: {}\n";
    const CODER: &str = "apiVersion: chandlery.dev/v1alpha1\nkind: Agent\nmetadata: {name: coder}\nspec:\n  workspaceRef: {name: home}\n";

    #[test]
    fn files_are_checked_together() {
        check(
            &[("a.yaml", HOME), ("b.yaml", CODER)],
            expect!["2 objects, nothing wrong"],
        );
        check(
            &[("b.yaml", CODER)],
            expect![[r#"
                b.yaml:5: Agent/coder: spec.workspaceRef.name: there is no Workspace home in this namespace: make it, or correct workspaceRef
                1 problem"#]],
        );
        check(
            &[("a.yaml", HOME), ("b.yaml", HOME)],
            expect![[r#"
                b.yaml:1: Workspace/home: is written twice: it is also in a.yaml:1
                1 problem"#]],
        );
    }

    #[test]
    fn entries_of_tools_are_known_names() {
        check(
            &[
                ("a.yaml", HOME),
                (
                    "b.yaml",
                    &format!("{CODER}  tools: [agnt_datetime_now, 'agnt_*']\n"),
                ),
            ],
            expect!["2 objects, nothing wrong"],
        );
        check(
            &[
                ("a.yaml", HOME),
                ("b.yaml", &format!("{CODER}  tools:\n  - agnt_datetime\n")),
            ],
            expect![[r#"
                b.yaml:7: Agent/coder: spec.tools[0]: there is no built-in tool agnt_datetime
                1 problem"#]],
        );
    }

    // R-C-023: what a gateway would leave out is said before anything runs, in the same words.
    #[test]
    fn entries_that_would_serve_nothing_are_said() {
        let home = HOME.replace("{}", "{grantRequired: ['agnt_*']}");
        let grant = |more: &str| {
            format!(
                "apiVersion: chandlery.dev/v1alpha1\nkind: ToolGrant\nmetadata: {{name: g}}\nspec: {{workspaceRef: {{name: home}}, agents: {{all: true}}, tools: ['agnt_datetime_*']{more}}}\n"
            )
        };
        let coder = format!("{CODER}  tools: [agnt_datetime_now]\n");
        check(
            &[("a.yaml", &home), ("b.yaml", &coder)],
            expect![[r#"
            b.yaml:6: Agent/coder: spec.tools[0]: no live ToolGrant gives this agent agnt_datetime_now: make one, or wait for its time
            1 problem"#]],
        );
        check(
            &[
                ("a.yaml", &home),
                ("b.yaml", &coder),
                ("c.yaml", &grant("")),
            ],
            expect!["3 objects, nothing wrong"],
        );
        check(
            &[
                ("a.yaml", &home),
                ("b.yaml", &coder),
                ("c.yaml", &grant(", expiresAt: '2026-11-01T00:00:00Z'")),
            ],
            expect![[r#"
                b.yaml:6: Agent/coder: spec.tools[0]: no live ToolGrant gives this agent agnt_datetime_now: make one, or wait for its time
                1 problem"#]],
        );
        check(
            &[
                ("a.yaml", HOME),
                (
                    "b.yaml",
                    &format!(
                        "{CODER}  tools:\n  - task\n  - memory\n  workspaceToolsEnabled: false\n  observabilityEnabled: true\n"
                    ),
                ),
            ],
            expect![[r#"
                b.yaml:10: Agent/coder: spec.observabilityEnabled: this version has no tools for observabilityEnabled; nothing is served for it
                1 problem"#]],
        );
    }

    #[test]
    fn a_broken_object_is_one_problem_and_not_two() {
        check(
            &[
                ("a.yaml", &HOME.replace("{}", "{gateway: {replicas: 0}}")),
                ("b.yaml", CODER),
                ("c.yaml", "kind: ["),
            ],
            expect![[r#"
                a.yaml:4: Workspace/home: spec.gateway.replicas: should be greater than or equal to 1
                c.yaml:1: cannot be read as YAML: unclosed bracket '['
                2 problems"#]],
        );
    }

    #[test]
    fn what_is_not_ours_is_named_and_no_problem() {
        check(
            &[(
                "a.yaml",
                "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n",
            )],
            expect![[r#"
                a.yaml:2: Deployment/d: kind: Chandlery does not read this kind (no problem)
                0 objects, nothing wrong"#]],
        );
    }

    #[test]
    fn a_folder_is_read_by_name_and_deeper_only_when_asked() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("more")).unwrap();
        for name in [
            "b.yaml",
            "a.yml",
            "c.json",
            "notes.txt",
            ".hidden.yaml",
            "more/d.yaml",
        ] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let names = |recursive| {
            let files = read_all(&[folder.path().to_owned()], recursive).unwrap();
            files
                .iter()
                .map(|(name, _)| name.rsplit('/').next().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(false), ["a.yml", "b.yaml", "c.json"]);
        assert_eq!(names(true), ["a.yml", "b.yaml", "c.json", "d.yaml"]);
        let missing = read_all(&[folder.path().join("gone.yaml")], false).unwrap_err();
        assert!(missing.contains("gone.yaml"), "{missing}");
    }
}
