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

/// A document with an operation that can be read and one that cannot.
const DOCUMENT: &str = r##"{"openapi": "3.1.0", "info": {"title": "T", "version": "1"}, "servers": [{"url": "https://crm.example.com"}], "paths": {"/a": {"get": {"operationId": "list"}}, "/b": {"get": {"operationId": "odd", "parameters": [{"$ref": "x.yaml#/p"}]}}}}"##;

fn source(document: &str) -> String {
    format!(
        "apiVersion: chandlery.dev/v1alpha1\nkind: ToolSource\nmetadata: {{name: crm}}\nspec: {{openapi: {document}}}\n"
    )
}

fn grant(tools: &str) -> String {
    format!(
        "apiVersion: chandlery.dev/v1alpha1\nkind: ToolGrant\nmetadata: {{name: g}}\nspec:\n  workspaceRef: {{name: home}}\n  agents: {{all: true}}\n  tools: {tools}\n"
    )
}

fn map(text: &str) -> String {
    let text = serde_json::Value::from(text);
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: docs}}\ndata: {{doc: {text}}}\n")
}

#[test]
fn entries_of_a_source_are_held_against_its_document() {
    let inline = source(&format!(
        "{{inline: {}}}",
        serde_json::Value::from(DOCUMENT)
    ));
    let agent = format!("{CODER}  tools: [crm/list, 'crm/GET /a', crm/gone, crm/odd]\n");
    let expected = expect![[r#"
        b.yaml:6: Agent/coder: spec.tools[2]: the ToolSource crm offers nothing that gone names
        b.yaml:6: Agent/coder: spec.tools[3]: odd of the ToolSource crm is left out: GET /b: `$ref: x.yaml#/p` leaves the document; only references within it are followed
        d.yaml:7: ToolGrant/g: spec.tools[1]: the ToolSource crm offers nothing that lst names
        3 problems"#]];
    check(
        &[
            ("a.yaml", HOME),
            ("b.yaml", &agent),
            ("c.yaml", &inline),
            ("d.yaml", &grant("[crm/*, crm/lst]")),
        ],
        expected,
    );
    let in_map = source("{configMapKeyRef: {name: docs, key: doc}}");
    let agent = format!("{CODER}  tools: [crm/list]\n");
    let files = |text: &str| [HOME.to_owned(), agent.clone(), in_map.clone(), map(text)];
    let checked = |files: [String; 4], grant: &str, expected: Expect| {
        let [a, b, c, d] = &files;
        check(
            &[
                ("a.yaml", a),
                ("b.yaml", b),
                ("c.yaml", c),
                ("d.yaml", d),
                ("e.yaml", grant),
            ],
            expected,
        );
    };
    checked(
        files(DOCUMENT),
        &grant("[crm/list]"),
        expect!["5 objects, nothing wrong"],
    );
    checked(
        files(DOCUMENT),
        &grant("[crm/odd]"),
        expect![[r#"
        b.yaml:6: Agent/coder: spec.tools[0]: no live ToolGrant gives this agent crm/list: make one, or wait for its time
        e.yaml:7: ToolGrant/g: spec.tools[0]: odd of the ToolSource crm is left out: GET /b: `$ref: x.yaml#/p` leaves the document; only references within it are followed
        2 problems"#]],
    );
    checked(
        files("{\"swagger\": \"2.0\"}"),
        &grant("[crm/x]"),
        expect![[r#"
            c.yaml:4: ToolSource/crm: spec.openapi.configMapKeyRef: this is a Swagger 2.0 document; convert it to OpenAPI 3 first
            1 problem"#]],
    );
}

#[test]
fn what_only_asking_would_tell_is_no_problem() {
    let agent = format!("{CODER}  tools: [crm/list, crn/list]\n");
    check(
        &[
            ("a.yaml", HOME),
            ("b.yaml", &agent),
            (
                "c.yaml",
                &source("{url: 'https://crm.example.com/openapi.json'}"),
            ),
            ("d.yaml", &grant("[crm/list]")),
        ],
        expect![[r#"
            b.yaml:6: Agent/coder: spec.tools[1]: there is no ToolSource crn in this namespace: make it, or correct the entry
            1 problem"#]],
    );
}
