//! The program, what it writes, and a gateway that serves that.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::harness::{Gateway, agent, secret, workspace};

pub(crate) const CANARY: &str = "canary-Zq7-of-the-upstream";
/// What every import here is for.
pub(crate) const FOR: [&str; 6] = [
    "--namespace",
    "team",
    "--workspace",
    "lab",
    "--agent",
    "bot",
];
/// Where the tests' upstreams listen.
pub(crate) const ALLOWED: [&str; 2] = ["--allow-host", "127.0.0.3"];

/// Exit code, output and errors of the program.
pub(crate) type Ended = (i32, String, String);

/// Runs the program with a credential in its environment.
pub(crate) async fn run(arguments: &[&str], input: &str) -> Ended {
    let arguments: Vec<String> = arguments.iter().map(|&one| one.to_owned()).collect();
    let input = input.to_owned();
    let ran = tokio::task::spawn_blocking(move || {
        let mut child = Command::new(env!("CARGO_BIN_EXE_chandlery"))
            .args(arguments)
            .env("UPSTREAM_TOKEN", CANARY)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Whoever does not read closes it.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    });
    let output = ran.await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let ended = (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    );
    assert!(
        !ended.1.contains(CANARY) && !ended.2.contains(CANARY),
        "{ended:?}"
    );
    ended
}

/// Runs an import for the agent `bot`.
pub(crate) async fn import(arguments: &[&str], input: &str) -> Ended {
    let arguments = [&["import"], arguments, &FOR].concat();
    run(&arguments, input).await
}

/// What an import that works writes, which has to pass `chandlery lint` beside its Workspace and its Agent.
pub(crate) async fn imported(arguments: &[&str], input: &str) -> String {
    let (code, text, errors) = import(arguments, input).await;
    assert_eq!((code, errors.as_str()), (0, ""), "{text}");
    let mut all = text.clone();
    for own in home() {
        all.push_str(&format!("---\n{own}\n"));
    }
    let (code, said, _) = run(&["lint", "-f", "-"], &all).await;
    assert_eq!(code, 0, "{said}{all}");
    text
}

/// What has to be there beside what is imported.
pub(crate) fn home() -> [Value; 2] {
    let tools = json!({"tools": ["customers/*"], "listing": "PerOperation"});
    [workspace(), agent("bot", tools)]
}

pub(crate) fn objects(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap()
}

pub(crate) fn of_kind<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let found = objects.iter().find(|object| object["kind"] == kind);
    found.unwrap_or_else(|| panic!("no {kind}"))
}

/// A gateway on what was written, beside the Workspace, the Agent and the Secret.
pub(crate) async fn served(text: &str) -> Gateway {
    let mut manifests = objects(text);
    manifests.extend(home());
    let mut credential = secret("customers", "", Some("127.0.0.3"));
    credential["stringData"] = json!({"token": CANARY, "key": CANARY});
    manifests.push(credential);
    Gateway::start(&manifests, &[]).await
}
