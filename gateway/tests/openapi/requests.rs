//! Calls as requests, in the words of HTTP.

use std::fs;
use std::path::Path;

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::harness::{call, document, lines, operation};

#[track_caller]
fn check(file: &str, name: &str, arguments: Value, expected: Expect) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/openapi/documents");
    let document = document(&fs::read_to_string(folder.join(file)).unwrap());
    let operation = document.operations.iter().find(|one| one.name == name);
    let request = call(operation.unwrap_or_else(|| panic!("{name}")), &arguments);
    expected.assert_eq(&request.map_or_else(|error| error.to_string(), |request| lines(&request)));
}

#[test]
fn parameters_go_where_they_belong() {
    check(
        "styles.yaml",
        "query",
        json!({"text": "a b&c=d", "flag": true, "list": ["a", "b"], "commas": ["a,b", "c"], "spaces": ["a", "b"],
            "bars": ["a", "b"], "object": {"R": 1, "G": 2}, "exploded": {"B": 3},
            "deep": {"name": "x", "tags": ["a", "b"], "range": {"from": 1}}, "reserved": "a/b:c?d=e&f", "json": {"name": "x"}}),
        expect![
            "GET /query?text=a%20b%26c%3Dd&flag=true&list=a&list=b&commas=a%2Cb,c&spaces=a%20b&bars=a%7Cb&object=G,2,R,1&B=3&deep%5Bname%5D=x&deep%5Brange%5D%5Bfrom%5D=1&deep%5Btags%5D%5B%5D=a&deep%5Btags%5D%5B%5D=b&reserved=a/b:c?d%3De%26f&json=%7B%22name%22%3A%22x%22%7D"
        ],
    );
    check(
        "styles.yaml",
        "header",
        json!({"X-Text": "a, b", "X-List": [1, 2], "X-Object": {"R": 1}, "X-Exploded": {"R": 1, "G": 2}, "X-Json": {"R": 1}}),
        expect![[r#"
            GET /header
            x-text: a, b
            x-list: 1,2
            x-object: R,1
            x-exploded: G=2,R=1
            x-json: {"R":1}"#]],
    );
    check(
        "clashes.yaml",
        "clash",
        json!({"id": "p", "query_id": 1, "header_id": "h", "body_id": "b", "query_action": "q", "body_action": "a"}),
        expect![[r#"
            POST /orders/p?id=1&action=q
            id: h
            content-type: application/json

            {"action":"a","id":"b"}"#]],
    );
}

#[test]
fn bodies_have_the_media_type_of_the_document() {
    check(
        "bodies.yaml",
        "merged",
        json!({"name": "Rope", "price": 2.5}),
        expect![[r#"
            POST /merged
            content-type: application/json

            {"name":"Rope","price":2.5}"#]],
    );
    check(
        "bodies.yaml",
        "scalar",
        json!({"body": 7}),
        expect![[r#"
        PUT /scalar
        content-type: text/json

        7"#]],
    );
    check(
        "bodies.yaml",
        "optional",
        json!({}),
        expect!["name is required (string or null)"],
    );
    check(
        "bodies.yaml",
        "free",
        json!({"body": {"a": "b"}}),
        expect![[r#"
            PATCH /free
            content-type: application/merge-patch+json

            {"a":"b"}"#]],
    );
    check(
        "forms.yaml",
        "feed",
        json!({"body": "<a>1</a>"}),
        expect![[r#"
            PUT /feed
            content-type: application/xml

            <a>1</a>"#]],
    );
    check(
        "forms.yaml",
        "bytes",
        json!({"body": "aGVs\nbG8"}),
        expect![[r#"
            PUT /bytes
            content-type: application/octet-stream

            hello"#]],
    );
    check(
        "forms.yaml",
        "free",
        json!({"body": {"a b": "c&d", "list": [1, 2]}}),
        expect![[r#"
            POST /free
            content-type: application/x-www-form-urlencoded

            a%20b=c%26d&list=%5B1%2C2%5D"#]],
    );
    check(
        "forms.yaml",
        "token",
        json!({"grant_type": "code", "scope": ["a", "b"], "claims": {"sub": "x"}, "filter": {"a": "1", "b": ["2"]}, "ids": [1, 2]}),
        expect![[r#"
            POST /token
            content-type: application/x-www-form-urlencoded

            claims=%7B%22sub%22%3A%22x%22%7D&filter%5Ba%5D=1&filter%5Bb%5D%5B%5D=2&grant_type=code&ids=1,2&scope=a&scope=b"#]],
    );
}

#[test]
fn files_are_parts_with_a_name() {
    check(
        "forms.yaml",
        "upload",
        json!({"file": "aGVsbG8=", "picture": "UE5H", "more": ["YQ==", "Yg=="], "note": "a\r\nb", "labels": ["x", "y"], "meta": {"size": 5}}),
        expect![[r#"
            POST /files
            content-type: multipart/form-data; boundary=chandlery-0ad41b5831fb6d4ea7973789a2193720

            --chandlery-0ad41b5831fb6d4ea7973789a2193720
            content-disposition: form-data; name="file"; filename="file"
            content-type: application/octet-stream

            hello
            --chandlery-0ad41b5831fb6d4ea7973789a2193720
            content-disposition: form-data; name="labels"

            x
            --chandlery-0ad41b5831fb6d4ea7973789a2193720
            content-disposition: form-data; name="labels"

            y
            --chandlery-0ad41b5831fb6d4ea7973789a2193720
            content-disposition: form-data; name="meta"
            content-type: application/json

            {"size":5}
            --chandlery-0ad41b5831fb6d4ea7973789a2193720
            content-disposition: form-data; name="more"; filename="more"
            content-type: application/octet-stream

            a
            --chandlery-0ad41b5831fb6d4ea7973789a2193720
            content-disposition: form-data; name="more"; filename="more"
            content-type: application/octet-stream

            b
            --chandlery-0ad41b5831fb6d4ea7973789a2193720
            content-disposition: form-data; name="note"

            a
            b
            --chandlery-0ad41b5831fb6d4ea7973789a2193720
            content-disposition: form-data; name="picture"; filename="picture"
            content-type: image/png

            PNG
            --chandlery-0ad41b5831fb6d4ea7973789a2193720--
        "#]],
    );
}

#[test]
fn numbers_keep_their_digits() {
    let one = operation(
        "  /a/{n}: {post: {parameters: [{name: n, in: path, schema: {type: integer}}, {name: q, in: query, schema: {type: number}}], requestBody: {content: {application/json: {schema: {type: object, properties: {x: {type: number}}}}}}}}",
    );
    let arguments =
        r#"{"n": 123456789012345678901234567890, "q": 1.10, "x": 0.1000000000000000000001}"#;
    let request = one
        .request(serde_json::from_str(arguments).unwrap())
        .unwrap();
    assert_eq!(
        request.path_and_query,
        "/a/123456789012345678901234567890?q=1.10"
    );
    assert_eq!(request.body, r#"{"x":0.1000000000000000000001}"#);
}

#[test]
fn an_integer_is_digits_however_it_is_spelled() {
    let one = operation(
        "  /a/{id}:
    post:
      parameters:
        - {name: id, in: path, required: true, schema: {type: integer}}
        - {name: n, in: query, schema: {type: integer, nullable: true}}
        - {name: ids, in: query, schema: {type: array, items: {type: integer}}}
        - {name: price, in: query, schema: {type: number}}
        - {name: version, in: query}
        - {name: x-n, in: header, schema: {type: integer}}
      requestBody: {content: {application/json: {schema: {type: object, properties: {
        count: {type: integer}, inner: {type: object, properties: {of: {type: integer}, rest: {}}}}}}}}",
    );
    let text = r#"{"id": 7.0, "n": -5.0, "ids": [1, 2e0, -0.0, 9007199254740993], "price": 5.0, "version": "1.0",
        "x-n": 3e2, "count": 1e3, "inner": {"rest": 1.0, "of": 1.0}}"#;
    let arguments = serde_json::from_str::<&serde_json::value::RawValue>(text).unwrap();
    let request = one.request(arguments).unwrap();
    expect![[r#"
        POST /a/7?n=-5&ids=1&ids=2&ids=0&ids=9007199254740993&price=5.0&version=1.0
        x-n: 300
        content-type: application/json

        {"count":1000,"inner":{"of":1,"rest":1.0}}"#]]
    .assert_eq(&lines(&request));
    // Too many digits to be told apart by.
    let text = r#"{"id": 1e20}"#;
    let arguments = serde_json::from_str::<&serde_json::value::RawValue>(text).unwrap();
    let request = one.request(arguments).unwrap();
    expect!["POST /a/1e20"].assert_eq(&lines(&request));
}

#[test]
fn null_is_no_text() {
    let form = |media_type: &str| {
        operation(&format!(
            "  /a:
    post:
      parameters:
        - {{name: ids, in: query, schema: {{type: array, items: {{type: integer, nullable: true}}}}}}
        - {{name: few, in: query, explode: false, schema: {{type: array, items: {{type: integer, nullable: true}}}}}}
        - {{name: deep, in: query, style: deepObject, schema: {{type: object, additionalProperties: true}}}}
        - {{name: x-ids, in: header, schema: {{type: array, items: {{type: integer, nullable: true}}}}}}
      requestBody: {{content: {{{media_type}: {{schema: {{type: object, properties: {{
        a: {{type: string, nullable: true}}, b: {{type: array, items: {{type: string, nullable: true}}}}}}}}}}}}}}"
        ))
    };
    let arguments = json!({
        "ids": [1, null, 2], "few": [null, 3], "deep": {"a": [null, 1], "b": null}, "x-ids": [null, 4],
        "a": null, "b": ["x", null],
    });
    let sent = |media_type| lines(&call(&form(media_type), &arguments).unwrap());
    expect![[r#"
        POST /a?ids=1&ids=2&few=3&deep%5Ba%5D%5B%5D=1
        x-ids: 4
        content-type: application/x-www-form-urlencoded

        b=x"#]]
    .assert_eq(&sent("application/x-www-form-urlencoded"));
    let parts = sent("multipart/form-data");
    assert_eq!(parts.matches("name=\"b\"").count(), 1, "{parts}");
    assert!(
        !parts.contains("null") && !parts.contains("name=\"a\""),
        "{parts}"
    );
    expect![[r#"
        POST /a?ids=1&ids=2&few=3&deep%5Ba%5D%5B%5D=1
        x-ids: 4
        content-type: application/json

        {"a":null,"b":["x",null]}"#]]
    .assert_eq(&sent("application/json"));
}

#[test]
fn null_is_a_value_where_the_document_allows_it_and_nothing_elsewhere() {
    check(
        "bodies.yaml",
        "merged",
        json!({"name": null, "price": 1, "tags": null}),
        expect![[r#"
            POST /merged
            content-type: application/json

            {"name":null,"price":1}"#]],
    );
}

#[test]
fn other_fields_pass_where_the_body_is_open_only() {
    check(
        "words.json",
        "post_search_kind_thing_second",
        json!({"q": "x", "page": {"at": 2}}),
        expect![[r#"
            POST /search?kind=thing
            content-type: application/json; charset=utf-8

            {"page":{"at":2},"q":"x"}"#]],
    );
    check(
        "bodies.yaml",
        "merged",
        json!({"name": "Rope", "price": 1, "color": "red"}),
        expect![[r#"there is no argument "color"; the arguments are name, parts, price, tags"#]],
    );
}

#[test]
fn wrong_arguments_are_told_with_what_is_right() {
    for (file, name, arguments, expected) in [
        (
            "words.json",
            "get_things_by_id",
            json!({}),
            expect!["id is required (integer)"],
        ),
        (
            "words.json",
            "get_things_by_id",
            json!({"id": "7"}),
            expect!["id must be an integer, not a string"],
        ),
        (
            "words.json",
            "get_things_by_id",
            json!({"id": 7, "state": "off"}),
            expect![[r#"state must be one of 1, true, on, null, not "off""#]],
        ),
        (
            "words.json",
            "get_things_by_id",
            json!({"id": 7, "size": 10}),
            expect!["size must be less than 10, not 10"],
        ),
        (
            "words.json",
            "get_things_by_id",
            json!({"id": 7, "sizes": 10}),
            expect![[
                r#"there is no argument "sizes"; the arguments are id, odd, pattern, since, size, state, undeclared"#
            ]],
        ),
        (
            "words.json",
            "post_search_kind_thing_second",
            json!({"rank": {"by": 3}}),
            expect!["rank.by must be a string, not 3"],
        ),
        (
            "bodies.yaml",
            "merged",
            json!({"name": "Rope", "price": 0}),
            expect!["price must be more than 0, not 0"],
        ),
        (
            "bodies.yaml",
            "list",
            json!({"body": [{"kind": "cat"}, {"lives": 9}]}),
            expect!["body[1].kind is required (string)"],
        ),
        (
            "bodies.yaml",
            "one_of",
            json!({"body": {"kind": "cow"}}),
            expect!["body has none of the forms that the schema allows"],
        ),
        (
            "bodies.yaml",
            "one_of",
            json!([]),
            expect!["the arguments must be a JSON object"],
        ),
        (
            "forms.yaml",
            "bytes",
            json!({"body": "not base64!"}),
            expect!["body must be the content as base64"],
        ),
        (
            "styles.yaml",
            "query",
            json!({"spaces": ["a b"]}),
            expect!["spaces must not contain a space, which stands between its parts"],
        ),
    ] {
        check(file, name, arguments, expected);
    }
}
