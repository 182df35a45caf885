//! Less than the whole answer: fields, limits, and what is too long.

use expect_test::{Expect, expect};
use serde_json::{Map, Value, json};

use super::{JSON, check, rendered, view};

// R-C-203
#[test]
fn fields_are_kept_through_arrays_and_counted_from_rows() {
    let body = r#"{"total": 2, "data": [{"id": 1, "owner": {"login": "ada", "x": 1}, "labels": [{"name": "a", "c": 1}], "a.b/c": 1},
                                        {"id": 2, "labels": []}]}"#;
    let fields = |fields: &[&str]| json!({"response_fields": fields});
    check(
        fields(&["id", "owner.login"]),
        body,
        expect![[r#"
        data:

        |id|owner.login|
        |---|---|
        |1|ada|
        |2||"#]],
    );
    check(
        fields(&["data.id", "labels.name", "total", "a.b/c"]),
        body,
        expect![[r#"
            total: 2
            data:

            |id|labels|a.b/c|
            |---|---|---|
            |1|[{"name":"a"}]|1|
            |2|||"#]],
    );
    check(fields(&["total"]), body, expect!["total: 2"]);
    check(
        fields(&["data.owner", "owner.x"]),
        body,
        expect![[r#"
        data:

        |owner.login|owner.x|
        |---|---|
        |ada|1|
        |||"#]],
    );
    check(
        json!({"response_fields": ["owner.login"], "response_format": "json"}),
        body,
        expect![[r#"{"data":[{"owner":{"login":"ada"}},{}]}"#]],
    );
}

// R-C-203
#[test]
fn a_field_that_is_not_there_is_refused_with_those_that_are() {
    check(
        json!({"response_fields": ["id", "nme"]}),
        r#"{"total": 2, "data": [{"id": 1, "tags": [], "owner": {"login": "ada"}}, {"id": 2, "labels": [{"name": "a"}]}]}"#,
        expect![[
            r#"Arguments: response_fields asks for what is not there: the answer has no "nme"; it has id, tags, owner.login, labels.name, total (the call was made)"#
        ]],
    );
    let wide: Map<String, Value> = (0..30).map(|at| (format!("f{at:02}"), json!(at))).collect();
    check(
        json!({"response_fields": "id"}),
        &Value::from(wide).to_string(),
        expect![[
            r#"Arguments: response_fields asks for what is not there: the answer has no "id"; it has f00, f01, f02, f03, f04, f05, f06, f07, f08, f09, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, and more (the call was made)"#
        ]],
    );
    check(
        json!({"response_fields": "id"}),
        "[1, 2]",
        expect![[
            r#"Arguments: response_fields asks for what is not there: the answer has no "id", and no fields at all (the call was made)"#
        ]],
    );
}

fn numbered(count: usize) -> String {
    let rows: Vec<Value> = (1..=count)
        .map(|id| json!({"id": id, "name": format!("row {id}")}))
        .collect();
    json!({"data": rows, "next": "c2"}).to_string()
}

// R-C-203
#[test]
fn a_limit_shows_so_many_rows_and_tells_of_the_others() {
    check(
        json!({"response_limit": 2}),
        &numbered(39),
        expect![[r#"
            next: c2
            data:

            |id|name|
            |---|---|
            |1|row 1|
            |2|row 2|
            … 37 more rows; ask for them with the service's own paging or a larger response_limit"#]],
    );
    check(
        json!({"response_limit": 2}),
        &numbered(3),
        expect![[r#"
        next: c2
        data:

        |id|name|
        |---|---|
        |1|row 1|
        |2|row 2|
        … 1 more row; ask for it with the service's own paging or a larger response_limit"#]],
    );
    check(
        json!({"response_limit": 2}),
        &numbered(2),
        expect![[r#"
        next: c2
        data:

        |id|name|
        |---|---|
        |1|row 1|
        |2|row 2|"#]],
    );
    check(
        json!({"response_limit": 2, "response_format": "json"}),
        &numbered(39),
        expect![[
            r#"{"rest":{"next":"c2"},"rows":[{"id":1,"name":"row 1"},{"id":2,"name":"row 2"}],"rows_left":37,"note":"37 more rows; ask for them with the service's own paging or a larger response_limit"}"#
        ]],
    );
    check(
        json!({"response_limit": 2, "response_format": "json"}),
        "[1,2]",
        expect!["[1,2]"],
    );
}

#[test]
fn a_limit_holds_for_each_of_several_tables() {
    let body = r#"{"results": [{"id": 1, "tags": ["a", "b"]}, {"id": 2}, {"id": 3}],
                   "facets": [{"city": "Rome", "n": 2}, {"city": "Oslo", "n": 1}], "words": ["x", "y"]}"#;
    let limit = |limit: usize| json!({"response_limit": limit});
    check(
        limit(1),
        body,
        expect![[r#"
        results:
          - id: 1
            tags: ["a","b"]
        facets:
          - city: Rome
            n: 2
        words: ["x","y"]
        … 3 more rows (2 of results, 1 of facets); ask for them with the service's own paging or a larger response_limit"#]],
    );
    check(
        limit(2),
        body,
        expect![[r#"
        results:
          - id: 1
            tags: ["a","b"]
          - id: 2
        facets:
          - city: Rome
            n: 2
          - city: Oslo
            n: 1
        words: ["x","y"]
        … 1 more row (1 of results); ask for it with the service's own paging or a larger response_limit"#]],
    );
    check(
        limit(3),
        body,
        expect![[r#"
        results:
          - id: 1
            tags: ["a","b"]
          - id: 2
          - id: 3
        facets:
          - city: Rome
            n: 2
          - city: Oslo
            n: 1
        words: ["x","y"]"#]],
    );
    check(
        json!({"response_limit": 1, "response_format": "json"}),
        body,
        expect![[
            r#"{"rest":{"results":[{"id":1,"tags":["a","b"]}],"facets":[{"city":"Rome","n":2}],"words":["x","y"]},"rows_left":3,"note":"3 more rows (2 of results, 1 of facets); ask for them with the service's own paging or a larger response_limit"}"#
        ]],
    );
    check(
        limit(1),
        r#"{"ids": [1, 2], "names": ["a", "b", "c"]}"#,
        expect![[r#"
            ids: [1]
            names: ["a"]
            … 3 more rows (1 of ids, 2 of names); ask for them with the service's own paging or a larger response_limit"#]],
    );
    let long: Vec<Value> = (0..99).map(|id| json!({"id": id})).collect();
    let body = json!({"a": long, "b": long}).to_string();
    let text = rendered(&view(limit(50)), JSON, body.as_bytes(), 512);
    assert!(text.contains("… cut here: the whole answer is 1973 bytes"));
    cut(
        json!({"response_limit": 50, "response_format": "json"}),
        &body,
        expect![[
            r#"{"beginning":"{\"a\":[{\"id\":0},{\"id\":1},{\"id\":2},{\"id\":3},{\"id\":4},{\"id\":5},{\"id\":6},{\"id\":7},{\"id\":8},{\"id\":9},{\"id\":10},{\"id\":11},{\"id\":12},{\"id\":13},{\"id\":14},{\"id\":15},{\"id\":16},{\"id\":17},{\"id\":18},{\"id\":19},{","note":"the whole answer is 1973 bytes; ask for less at a time with the service's own arguments, or for fewer fields with response_fields where the tool takes it"}"#
        ]],
    );
}

#[track_caller]
fn cut(arguments: Value, body: &str, expected: Expect) {
    let text = rendered(&view(arguments), JSON, body.as_bytes(), 512);
    // In the JSON of a result.
    let size = Value::from(text.as_str()).to_string().len() - 2;
    assert!(size <= 512, "{size}");
    expected.assert_eq(&text);
}

#[test]
fn a_long_answer_is_cut_between_rows() {
    let rows: Vec<Value> = (1..=99)
        .map(|id| json!({"id": id, "name": "long ".repeat(16)}))
        .collect();
    let body = json!({"data": rows, "next": "c2"}).to_string();
    cut(
        json!({}),
        &body,
        expect![[r#"
        next: c2
        data:

        |id|name|
        |---|---|
        |1|long long long long long long long long long long long long long long long long |
        |2|long long long long long long long long long long long long long long long long |
        |3|long long long long long long long long long long long long long long long long |
        … 96 more rows, too long to show; ask for less at a time with the service's own arguments, or for fewer fields with response_fields where the tool takes it"#]],
    );
    cut(
        json!({"response_limit": 50}),
        &body,
        expect![[r#"
        next: c2
        data:

        |id|name|
        |---|---|
        |1|long long long long long long long long long long long long long long long long |
        |2|long long long long long long long long long long long long long long long long |
        |3|long long long long long long long long long long long long long long long long |
        … 96 more rows, too long to show; ask for less at a time with the service's own arguments, or for fewer fields with response_fields where the tool takes it"#]],
    );
    cut(
        json!({"response_format": "json"}),
        &body,
        expect![[
            r#"{"rest":{"next":"c2"},"rows":[{"id":1,"name":"long long long long long long long long long long long long long long long long "},{"id":2,"name":"long long long long long long long long long long long long long long long long "}],"rows_left":97,"note":"97 more rows, too long to show; ask for less at a time with the service's own arguments, or for fewer fields with response_fields where the tool takes it"}"#
        ]],
    );
    cut(
        json!({"response_limit": 3, "response_format": "json"}),
        &body,
        expect![[
            r#"{"rest":{"next":"c2"},"rows":[{"id":1,"name":"long long long long long long long long long long long long long long long long "},{"id":2,"name":"long long long long long long long long long long long long long long long long "},{"id":3,"name":"long long long long long long long long long long long long long long long long "}],"rows_left":96,"note":"96 more rows; ask for them with the service's own paging or a larger response_limit"}"#
        ]],
    );
}

#[test]
fn a_long_value_is_cut_between_characters() {
    let long = json!([{"text": "é\"".repeat(200)}]).to_string();
    cut(
        json!({}),
        &long,
        expect![[r#"
            |text|
            |---|
            |é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"é"
            … cut here: the whole answer is 813 bytes; ask for less at a time with the service's own arguments, or for fewer fields with response_fields where the tool takes it"#]],
    );
    cut(
        json!({"response_format": "raw"}),
        &long,
        expect![[r#"
            [{"text":"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"é\"
            … cut here: the whole answer is 813 bytes; ask for less at a time with the service's own arguments, or for fewer fields with response_fields where the tool takes it"#]],
    );
    cut(
        json!({"response_format": "json"}),
        &long,
        expect![[
            r#"{"beginning":"[{\"text\":\"é\\\"é\\\"é\\\"é\\\"é\\\"é\\\"é\\\"é\\\"é\\\"é\\\"é\\\"é\\\"é\\\"é\\\"é\\\"é\\\"é\\\"é\\\"é\\\"é\\\"é\\\"é\\\"é\\\"é\\\"é\\\"é\\\"é\\\"é\\\"é\\\"é\\\"é\\","note":"the whole answer is 813 bytes; ask for less at a time with the service's own arguments, or for fewer fields with response_fields where the tool takes it"}"#
        ]],
    );
}
