//! Documents and arguments that mean harm.

use std::time::{Duration, Instant};

use chandlery_gateway::families::openapi::{MAX_BYTES, Unreadable, join};
use serde_json::{Value, json};
use url::Url;

use super::harness::{call, document, operation, unreadable, with_paths};

#[test]
fn path_values_stay_within_their_segment() {
    let one = operation("  /users/{id}/orders: {get: {}}");
    let base = Url::parse("https://shop.example/v1").unwrap();
    for (value, expected) in [
        ("../admin", "..%2Fadmin"),
        ("..%2fadmin", "..%252fadmin"),
        ("%2e%2e/", "%252e%252e%2F"),
        ("a/b", "a%2Fb"),
        ("a?x=1", "a%3Fx%3D1"),
        ("a#x", "a%23x"),
        (";x", "%3Bx"),
        ("\\", "%5C"),
        ("..\\..\\", "..%5C..%5C"),
        ("a\r\nHost: b", "a%0D%0AHost%3A%20b"),
        ("\u{0}", "%00"),
        ("...", "..."),
        ("．．", "%EF%BC%8E%EF%BC%8E"),
        ("@evil.example", "%40evil.example"),
        ("//evil.example", "%2F%2Fevil.example"),
    ] {
        let request = call(&one, &json!({"id": value})).unwrap();
        assert_eq!(
            request.path_and_query,
            format!("/users/{expected}/orders"),
            "{value:?}"
        );
        let url = join(&base, &request.path_and_query);
        assert_eq!(
            url.as_str(),
            format!("https://shop.example/v1/users/{expected}/orders"),
            "{value:?}"
        );
        assert_eq!(url.path_segments().unwrap().count(), 4, "{value:?}");
    }
    for value in ["", ".", ".."] {
        let error = call(&one, &json!({"id": value})).unwrap_err();
        assert!(error.message.contains("path"), "{value:?}: {error}");
    }
    let two = operation("  /{a}{b}/c: {get: {}}");
    assert!(call(&two, &json!({"a": ".", "b": "."})).is_err());
    let label = operation(
        "  /{a}/c: {get: {parameters: [{name: a, in: path, required: true, style: label}]}}",
    );
    assert!(call(&label, &json!({"a": "."})).is_err());
}

#[test]
fn no_request_leaves_its_base() {
    let base = Url::parse("https://shop.example/v1/").unwrap();
    for path in [
        "//evil.example/x",
        "/\\evil.example",
        "/@evil.example",
        "/https://evil.example",
    ] {
        let document = document(&with_paths(&format!("  '{path}': {{get: {{}}}}")));
        for one in &document.operations {
            let request = call(one, &json!({})).unwrap();
            let url = join(&base, &request.path_and_query);
            assert_eq!(url.origin(), base.origin(), "{path}");
            assert!(url.path().starts_with("/v1/"), "{path}: {url}");
        }
    }
}

// R-C-196
#[test]
fn nothing_sets_a_credential_or_a_header_of_the_connection() {
    let text = include_str!("documents/credentials.yaml");
    let one = super::harness::only(document(text));
    for (argument, value) in [
        ("api_key", json!("mine")),
        ("X-Api-Key", json!("mine")),
        ("Authorization", json!("Bearer mine")),
        ("Cookie", json!("a=b")),
        ("Host", json!("evil.example")),
        ("X-Forwarded-For", json!("127.0.0.1")),
        ("Transfer-Encoding", json!("chunked")),
        ("filter", json!({"api_key": "mine"})),
    ] {
        assert!(call(&one, &json!({argument: value})).is_err(), "{argument}");
    }
    for value in ["a\r\nAuthorization: mine", "a\nb", "\u{0}", "ü", "a\u{7f}"] {
        let error = call(&one, &json!({"X-Request-Id": value})).unwrap_err();
        assert!(
            error.message.contains("one line of ASCII"),
            "{value:?}: {error}"
        );
    }
}

#[test]
fn references_that_leave_the_document_are_refused() {
    for reference in [
        "https://evil.example/a.json",
        "file:///etc/passwd",
        "other.yaml#/a",
        "//evil.example",
    ] {
        let paths = format!(
            "  /a: {{get: {{parameters: [{{name: a, in: query, schema: {{$ref: '{reference}'}}}}]}}}}\n  /b: {{get: {{}}}}"
        );
        let document = document(&with_paths(&paths));
        assert_eq!(document.operations.len(), 1);
        assert_eq!(document.skipped[0].operation, "GET /a");
        assert!(
            document.skipped[0].message.contains("leaves the document"),
            "{reference}"
        );
    }
}

#[test]
fn documents_that_are_none_say_why() {
    for (text, expected) in [
        ("", "it has no field `openapi`"),
        ("[]", "it has no field `openapi`"),
        (
            "swagger: '2.0'",
            "this is a Swagger 2.0 document; convert it to OpenAPI 3 first",
        ),
        ("openapi: 4.0.0", "its version is 4.0.0"),
        ("openapi: 3.0.0\npaths: []", "`paths` is not an object"),
        (
            "{\"openapi\": \"3.0.0\", ",
            "neither JSON nor YAML: EOF while parsing",
        ),
        ("a: [", "neither JSON nor YAML"),
        ("<!doctype html><html>", "it has no field `openapi`"),
    ] {
        let error = unreadable(text.as_bytes()).to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    let large = vec![b' '; MAX_BYTES + 1];
    assert_eq!(
        unreadable(&large),
        Unreadable::TooLarge {
            size: MAX_BYTES + 1
        }
    );
    assert!(matches!(unreadable(b"\xff\xfe"), Unreadable::Syntax { .. }));
    // A few bytes each, and hundreds in memory.
    let many = |value: &str| {
        let values = value.repeat(20_000_000 / value.len());
        format!("{{\"openapi\": \"3.1.0\", \"paths\": {{}}, \"x\": [{values}0]}}")
    };
    for value in ["[],", "{\"\":0},"] {
        assert_eq!(unreadable(many(value).as_bytes()), Unreadable::TooMany);
    }
    // Within a text they are none.
    document(&many("\"\\\"[[[[,,,,{{{{\","));
    assert_eq!(document("openapi: 3.1.0\nwebhooks: {}").operations.len(), 0);
}

/// Aliases that blow up, nesting without end, and references that fan out.
#[test]
fn bombs_do_not_go_off() {
    let start = Instant::now();
    let mut laughs = "openapi: 3.0.0\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for at in 1..12 {
        let list = vec![format!("*a{}", at - 1); 10].join(", ");
        laughs.push_str(&format!("a{at}: &a{at} [{list}]\n"));
    }
    assert!(matches!(
        unreadable(laughs.as_bytes()),
        Unreadable::Syntax { .. }
    ));
    for deep in [
        "[".repeat(100_000),
        "{\"a\":".repeat(100_000),
        "- ".repeat(100_000),
    ] {
        let _ = unreadable(deep.as_bytes());
    }
    let mut fan = with_paths(
        "  /a: {post: {requestBody: {content: {application/json: {schema: {$ref: '#/components/schemas/S0'}}}}}}",
    );
    fan.push_str("\ncomponents:\n  schemas:\n");
    for at in 0..60 {
        let next: Vec<String> = (0..20)
            .map(|way| format!("{{$ref: '#/components/schemas/S{}'}}", (at + way) % 60))
            .collect();
        fan.push_str(&format!("    S{at}: {{type: object, properties: {{x: {{oneOf: [{0}]}}, y: {{anyOf: [{0}]}}}}, allOf: [{0}]}}\n", next.join(", ")));
    }
    let fanned = document(&fan);
    assert!(
        fanned
            .operations
            .iter()
            .all(|one| Value::from(one.input_schema.clone()).to_string().len() < 80_000)
    );
    let crowd: Vec<String> = (0..990)
        .map(|part| {
            let properties: Vec<String> =
                (0..1_000).map(|at| format!("p{part}x{at}: {{}}")).collect();
            format!("{{properties: {{{}}}}}", properties.join(", "))
        })
        .collect();
    let mut paths = String::new();
    for at in 0..100 {
        paths.push_str(&format!("  /a/{at}: {{post: {{requestBody: {{content: {{application/json: {{schema: {{$ref: '#/components/schemas/Crowd'}}}}}}}}}}}}\n"));
    }
    let crowded = format!(
        "{}\ncomponents: {{schemas: {{Crowd: {{allOf: [{}]}}}}}}",
        with_paths(&paths),
        crowd.join(", ")
    );
    document(&crowded);
    let wide: Vec<String> = (0..50_000)
        .map(|at| format!("f{at}: {{readOnly: true}}"))
        .collect();
    let mut paths = String::new();
    for at in 0..200 {
        paths.push_str(&format!("  /a/{at}: {{post: {{requestBody: {{content: {{application/json: {{schema: {{$ref: '#/components/schemas/Wide'}}}}}}}}}}}}\n"));
    }
    let wide = format!(
        "{}components: {{schemas: {{Wide: {{properties: {{{}}}}}}}}}\n",
        with_paths(&paths),
        wide.join(", ")
    );
    document(&wide);
    assert!(
        start.elapsed() < Duration::from_secs(60),
        "{:?}",
        start.elapsed()
    );
}

/// Values of the wrong kind anywhere harm their operation at most.
#[test]
fn odd_values_harm_only_their_operation() {
    for odd in [
        "null",
        "7",
        "[]",
        "'text'",
        "true",
        "{}",
        "[null]",
        "{$ref: 7}",
        "{$ref: '#/x'}",
    ] {
        for shape in [
            "{get: {parameters: ODD}}",
            "{get: {parameters: [ODD]}}",
            "{get: {parameters: [{name: ODD, in: query}]}}",
            "{get: {parameters: [{name: a, in: ODD}]}}",
            "{get: {parameters: [{name: a, in: query, schema: ODD, style: ODD, explode: ODD}]}}",
            "{get: {parameters: [{name: a, in: query, schema: {type: ODD, enum: ODD, items: ODD, properties: ODD, required: ODD, allOf: ODD, oneOf: ODD, minimum: ODD, pattern: ODD, default: ODD, example: ODD, description: ODD}}]}}",
            "{post: {requestBody: ODD}}",
            "{post: {requestBody: {content: ODD}}}",
            "{post: {requestBody: {content: {application/json: ODD}}}}",
            "{post: {requestBody: {content: {multipart/form-data: {schema: {properties: {a: ODD}, required: [a, ODD]}, encoding: ODD}}}}}",
            "{get: {operationId: ODD, tags: ODD, summary: ODD, description: ODD, responses: ODD, servers: ODD, deprecated: ODD}}",
            "{get: ODD}",
            "ODD",
        ] {
            let text = with_paths(&format!(
                "  /odd: {}\n  /sound: {{get: {{}}}}",
                shape.replace("ODD", odd)
            ));
            let document = document(&text);
            assert!(
                document.operations.iter().any(|one| one.path == "/sound"),
                "{text}"
            );
            for one in &document.operations {
                let schema = Value::Object(one.input_schema.clone());
                jsonschema::draft202012::new(&schema)
                    .unwrap_or_else(|error| panic!("{text}: {error}"));
            }
        }
    }
}
