//! What Markdown makes of JSON.

use expect_test::{Expect, expect};
use serde_json::json;

use super::check;

#[track_caller]
fn markdown(body: &str, expected: Expect) {
    check(json!({}), body, expected);
}

// R-C-204
#[test]
fn objects_in_an_array_become_a_table() {
    markdown(
        r#"[{"id": 1, "name": "Ada"}, {"id": 2, "email": null, "name": "Bo|b\nby"}]"#,
        expect![[r#"
            |id|name|email|
            |---|---|---|
            |1|Ada||
            |2|Bo\|b<br>by|null|"#]],
    );
    markdown(
        r#"{"total": 12, "data": [{"z": 1, "a": true}, {"z": 2, "a": false}], "next": "c2", "meta": {"page": 1}}"#,
        expect![[r#"
            total: 12
            next: c2
            meta:
              page: 1
            data:

            |z|a|
            |---|---|
            |1|true|
            |2|false|"#]],
    );
    markdown(
        r#"{"data": {"orders": {"nodes": [{"id": "7"}, {"id": "8"}]}}}"#,
        expect![[r#"
            data.orders.nodes:

            |id|
            |---|
            |"7"|
            |"8"|"#]],
    );
}

#[test]
fn nested_objects_become_columns_where_rows_share_them() {
    markdown(
        r#"[{"id": 1, "owner": {"login": "ada", "plan": {"name": "pro"}}, "tags": ["a|b", "c"]},
            {"id": 2, "owner": {"login": "bob", "plan": {"name": "free"}}, "tags": []}]"#,
        expect![[r#"
            |id|owner.login|owner.plan.name|tags|
            |---|---|---|---|
            |1|ada|pro|["a\|b","c"]|
            |2|bob|free|[]|"#]],
    );
    markdown(
        r#"[{"id": 1, "labels": {"a": 1}}, {"id": 2, "labels": {"b": 2}}, {"id": 3, "labels": {"c": 3}}, {"id": 4, "labels": {}}]"#,
        expect![[r#"
            |id|labels|
            |---|---|
            |1|{"a":1}|
            |2|{"b":2}|
            |3|{"c":3}|
            |4|{}|"#]],
    );
}

#[test]
fn rows_with_little_in_common_become_a_list() {
    markdown(
        r#"[{"a": 1, "x": {"y": [{"z": 1}]}}, {"b": 2, "c": 3}, {"d": "two\nlines", "e": 4}, {}, 7, [1, [2]]]"#,
        expect![[r#"
            - a: 1
              x:
                y:
                  - z: 1
            - b: 2
              c: 3
            - d: |
                two
                lines
              e: 4
            - {}
            - 7
            - [1,[2]]"#]],
    );
    markdown(
        r#"{"events": [{"a": 1, "b": 2}, {"c": "", "d": 4}, {"e": 5, "f": [6, 7]}]}"#,
        expect![[r#"
            events:
            - a: 1
              b: 2
            - c: ""
              d: 4
            - e: 5
              f: [6,7]"#]],
    );
}

#[test]
fn an_object_becomes_lines() {
    markdown(
        r#"{"id": 7, "name": "Ada", "bio": "one\n\ntotal: 9", "address": {"city": "Paris", "geo": {"lat": 1.50}},
            "tags": ["a", "b"], "emails": [{"kind": "home", "at": "a@b"}, {"kind": "work", "at": "c@d"}]}"#,
        expect![[r#"
            id: 7
            name: Ada
            bio: |
              one
  
              total: 9
            address:
              city: Paris
              geo:
                lat: 1.50
            tags: ["a","b"]
            emails:

            |kind|at|
            |---|---|
            |home|a@b|
            |work|c@d|"#]],
    );
    markdown(
        r#"{"nodes": [{"id": 1, "to": [{"id": 2}]}], "edges": [{"from": 1}, {"from": 2}], "none": [], "empty": {}}"#,
        expect![[r#"
            nodes:
              - id: 1
                to:
                  - id: 2
            edges:
              - from: 1
              - from: 2
            none: []
            empty: {}"#]],
    );
    markdown(
        r#"{"a":{"b":{"c":{"d":{"e":{"f":{"g":1}}}}}}}"#,
        expect![[r#"
            a:
              b:
                c:
                  d:
                    e: {"f":{"g":1}}"#]],
    );
}

#[test]
fn values_by_themselves_stay_themselves() {
    markdown("12.50", expect!["12.50"]);
    markdown("null", expect!["null"]);
    markdown(
        r#""two\nlines\n""#,
        expect![[r#"
        two
        lines
    "#]],
    );
    markdown("{}", expect!["{}"]);
    markdown("", expect!["no content"]);
}

#[test]
fn no_rows_are_said_to_be_none() {
    markdown("[]", expect!["no rows"]);
    markdown(
        r#"{"data": [], "total": 0}"#,
        expect![[r#"
        total: 0
        data: no rows"#]],
    );
    check(
        json!({"response_fields": ["name"]}),
        r#"{"data": [], "total": 0}"#,
        expect!["data: no rows"],
    );
}

#[test]
fn numbers_keep_their_digits_and_texts_their_type() {
    let body = r#"{"n": 123456789012345678901234567890, "price": 1.10, "e": 1E400, "id": "0042", "zip": "42", "no": "", "nil": "null", "key": "a|b \u202e \ud800"}"#;
    markdown(
        body,
        expect![[r#"
        n: 123456789012345678901234567890
        price: 1.10
        e: 1E400
        id: 0042
        zip: "42"
        no: ""
        nil: "null"
        key: a|b \u202e \ud800"#]],
    );
    check(
        json!({"response_format": "json"}),
        body,
        expect![[
            r#"{"n":123456789012345678901234567890,"price":1.10,"e":1E400,"id":"0042","zip":"42","no":"","nil":"null","key":"a|b \u202e \ud800"}"#
        ]],
    );
}
