//! `chandlery lint` as people and their CI call it.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

const GOOD: &str =
    "apiVersion: chandlery.dev/v1alpha1\nkind: Workspace\nmetadata: {name: home}\nspec: {}\n";
const BAD: &str = "apiVersion: chandlery.dev/v1alpha1\nkind: Workspace\nmetadata: {name: home}\nspec:\n  titel: Home\n";

fn lint(arguments: &[&str], input: &str) -> (i32, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_chandlery"))
        .arg("lint")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start chandlery");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    stdin
        .write_all(input.as_bytes())
        .expect("write to chandlery");
    drop(stdin);
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().expect("chandlery ends");
    let text = String::from_utf8(stdout).expect("UTF-8") + &String::from_utf8_lossy(&stderr);
    (status.code().expect("an exit code"), text)
}

#[test]
fn exit_code_and_lines_tell_what_is_wrong() {
    assert_eq!(
        lint(&["-f", "-"], GOOD),
        (0, "1 object, nothing wrong\n".to_owned())
    );
    assert_eq!(
        lint(&["-f", "-"], BAD),
        (
            1,
            "stdin:5: Workspace/home: unknown field \"spec.titel\"\n1 problem\n".to_owned()
        )
    );
    let (code, text) = lint(&["-f", "no-such-file.yaml"], "");
    assert_eq!(code, 2);
    assert!(
        text.contains("read no-such-file.yaml: No such file"),
        "{text}"
    );
}

#[test]
fn json_is_for_programs() {
    let (code, text) = lint(&["-f", "-", "-o", "json"], BAD);
    assert_eq!(code, 1);
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        report,
        serde_json::json!({
            "objects": 0,
            "problems": [{
                "file": "stdin", "line": 5, "object": "Workspace/home", "field": "spec.titel",
                "message": "unknown field \"spec.titel\"",
            }],
            "ignored": [],
        })
    );
}

#[test]
fn the_examples_are_whole() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples");
    let (code, text) = lint(&["-R", "-f", examples], "");
    assert_eq!(code, 0, "{text}");
}

#[test]
fn the_examples_have_nothing_wrong() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples");
    let folders = std::fs::read_dir(examples).expect("examples");
    let mut count = 0;
    for entry in folders {
        let folder = entry.expect("an entry").path();
        if folder.is_dir() {
            let (code, text) = lint(&["-f", &folder.to_string_lossy()], "");
            assert_eq!(code, 0, "{}: {text}", folder.display());
            count += 1;
        }
    }
    assert!(count > 1);
}
