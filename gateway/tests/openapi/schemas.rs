//! What of a document becomes names, descriptions and arguments.

use std::fs;
use std::path::Path;

use chandlery_gateway::connector::served_name;
use chandlery_gateway::families::openapi::{
    Document, MAX_OPERATIONS, Risk, Settings, group_name, read,
};
use chandlery_gateway::tool::Effect;
use expect_test::{Expect, expect};
use serde_json::Value;
use url::Url;

use super::harness::{call, document, operation, with_paths};

/// The argument schemas of one of our documents, one line per argument.
#[track_caller]
fn check(file: &str, name: &str, expected: Expect) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/openapi/documents");
    let document = document(&fs::read_to_string(folder.join(file)).unwrap());
    let operation = document.operations.iter().find(|one| one.name == name);
    let schema = &operation.unwrap_or_else(|| panic!("{name}")).input_schema;
    let mut text = String::new();
    for (argument, schema) in schema["properties"].as_object().unwrap() {
        text.push_str(&format!("{argument}: {schema}\n"));
    }
    for keyword in ["required", "additionalProperties"] {
        if let Some(value) = schema.get(keyword) {
            text.push_str(&format!("{keyword} {value}\n"));
        }
    }
    expected.assert_eq(&text);
}

// R-C-191, R-C-192, R-C-193
#[test]
fn parameters_are_arguments_of_their_types() {
    check(
        "words.json",
        "get_things_by_id",
        expect![[r#"
        id: {"type":"integer"}
        odd: {"examples":["x"],"type":"string"}
        pattern: {"description":"Pattern: ^(?!x)[a-z]+$","type":"string"}
        since: {"format":"date","type":"string"}
        size: {"default":5,"exclusiveMaximum":10,"minimum":1,"type":"integer"}
        state: {"enum":["1","true","on",null],"type":["string","null"]}
        undeclared: {"type":"string"}
        required ["id"]
        additionalProperties false
    "#]],
    );
}

// R-C-194
#[test]
fn body_fields_stand_beside_parameters() {
    check(
        "bodies.yaml",
        "merged",
        expect![[r#"
        name: {"description":"The name on the shelf.","maxLength":20,"type":["string","null"]}
        parts: {"items":{},"type":"array"}
        price: {"exclusiveMinimum":0,"type":"number"}
        tags: {"items":{},"type":"array"}
        required ["name","price"]
        additionalProperties false
    "#]],
    );
    check(
        "bodies.yaml",
        "optional",
        expect![[r#"
        name: {"maxLength":20,"type":["string","null"]}
        parts: {"items":{},"type":"array"}
        tags: {"items":{},"type":"array"}
        required ["name"]
        additionalProperties false
    "#]],
    );
    check(
        "bodies.yaml",
        "either",
        expect![[r#"
        id: {"type":"string"}
        name: {"type":"string"}
        additionalProperties false
    "#]],
    );
    check(
        "words.json",
        "post_search_kind_thing_second",
        expect![[r#"
        q: {"type":["string","null"]}
        rank: {"description":"How it ranks","properties":{"by":{"type":"string"}},"type":["object","null"]}
        additionalProperties true
    "#]],
    );
}

// R-C-195
#[test]
fn a_body_without_fields_is_one_argument() {
    for (name, expected) in [
        (
            "one_of",
            expect![[r#"
            body: {"anyOf":[{"properties":{"kind":{"const":"cat","type":"string"},"lives":{"type":"integer"}},"required":["kind"],"title":"Cat","type":"object"},{"properties":{"barks":{"type":"boolean"},"kind":{"const":"dog","type":"string"}},"required":["kind"],"title":"Dog","type":"object"}]}
            required ["body"]
            additionalProperties false
        "#]],
        ),
        (
            "list",
            expect![[r#"
            body: {"items":{"properties":{"kind":{"const":"cat","type":"string"},"lives":{"type":"integer"}},"required":["kind"],"type":"object"},"type":"array"}
            required ["body"]
            additionalProperties false
        "#]],
        ),
        (
            "scalar",
            expect![[r#"
            body: {"type":"integer"}
            additionalProperties false
        "#]],
        ),
        (
            "nothing_said",
            expect![[r#"
            body: {}
            required ["body"]
            additionalProperties false
        "#]],
        ),
        (
            "free",
            expect![[r#"
            body: {"additionalProperties":{"type":"string"},"type":"object"}
            additionalProperties false
        "#]],
        ),
    ] {
        check("bodies.yaml", name, expected);
    }
}

#[test]
fn forms_have_their_fields_and_bytes_are_base64() {
    check(
        "forms.yaml",
        "upload",
        expect![[r#"
        file: {"contentEncoding":"base64","type":"string"}
        labels: {"items":{"type":"string"},"type":"array"}
        meta: {"properties":{"size":{"type":"integer"}},"type":"object"}
        more: {"items":{"contentEncoding":"base64","type":"string"},"type":"array"}
        note: {"type":"string"}
        picture: {"contentEncoding":"base64","type":"string"}
        required ["file"]
        additionalProperties false
    "#]],
    );
    check(
        "forms.yaml",
        "bytes",
        expect![[r#"
        body: {"contentEncoding":"base64","contentMediaType":"application/octet-stream","type":"string"}
        required ["body"]
        additionalProperties false
    "#]],
    );
    check(
        "forms.yaml",
        "feed",
        expect![[r#"
        body: {"contentMediaType":"application/xml","type":"string"}
        additionalProperties false
    "#]],
    );
}

// R-C-196
#[test]
fn credentials_are_never_arguments() {
    check(
        "credentials.yaml",
        "secret",
        expect![[r#"
        X-Request-Id: {"type":"string"}
        filter: {"additionalProperties":{"type":"string"},"type":"object"}
        additionalProperties false
    "#]],
    );
    let paths = "  /a: {get: {parameters: [{name: token, in: query}, {name: X-Own, in: header}, {name: q, in: query}]}}";
    let settings = Settings {
        credential_headers: vec!["x-own".to_owned()],
        credential_queries: vec!["token".to_owned()],
        ..Settings::default()
    };
    let document = read(with_paths(paths).as_bytes(), &settings).unwrap();
    let properties = document.operations[0].input_schema["properties"]
        .as_object()
        .unwrap();
    assert_eq!(properties.keys().collect::<Vec<_>>(), ["q"]);
}

// R-C-197, R-C-198
#[test]
fn names_that_no_argument_can_have_are_left_out_and_clashes_are_told_apart() {
    check(
        "clashes.yaml",
        "clash",
        expect![[r#"
        body_action: {"type":"string"}
        body_id: {"type":"string"}
        body_response_format: {"type":"string"}
        dotted.name-is_fine: {"type":"string"}
        header_id: {"type":"string"}
        id: {"type":"string"}
        query_action: {"type":"string"}
        query_id: {"type":"integer"}
        required ["body_id","id"]
        additionalProperties false
    "#]],
    );
    check(
        "clashes.yaml",
        "whole",
        expect![[r#"
        body: {"type":"string"}
        request_body: {"items":{"type":"integer"},"type":"array"}
        required ["body","request_body"]
        additionalProperties false
    "#]],
    );
}

// R-C-197, R-C-198
#[test]
fn what_is_required_and_cannot_be_given_is_said() {
    let paths =
        "  /a: {get: {summary: List a, parameters: [{name: 'x[]', in: query, required: true}]}}";
    let one = operation(paths);
    assert_eq!(
        one.description,
        "List a\n\nThe service also wants x[], which cannot be given here."
    );
    assert_eq!(one.input_schema["properties"], serde_json::json!({}));
    let document = document(&with_paths("  /a/{x+}: {get: {}}"));
    assert_eq!(document.skipped.len(), 1);
    assert!(
        document.skipped[0]
            .message
            .contains("its path needs the parameter `x+`")
    );
}

#[test]
fn recursion_ends() {
    check(
        "recursive.yaml",
        "tree",
        expect![[r#"
        children: {"items":{"properties":{"children":{"items":{"properties":{"children":{"items":{"description":"What lies within is not shown here.","type":"object"},"type":"array"},"name":{"type":"string"}},"type":"object"},"type":"array"},"name":{"type":"string"}},"type":"object"},"type":"array"}
        name: {"type":"string"}
        additionalProperties false
    "#]],
    );
    check(
        "recursive.yaml",
        "itself",
        expect![[r#"
        x: {"type":"string"}
        additionalProperties false
    "#]],
    );
}

fn names(document: &Document) -> Vec<&str> {
    document
        .operations
        .iter()
        .map(|one| one.name.as_str())
        .collect()
}

#[test]
fn names_come_from_ids_or_paths_and_stay_when_operations_are_added() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/openapi/documents");
    let text = fs::read_to_string(folder.join("names.yaml")).unwrap();
    let before = document(&text);
    expect![[r#"
        repos_list-for_user
        post_a
        get_b
        delete_b
        get_b_by_id_313f376e
        get_b_by_id_e4712036
        put_b_by_id
        get_d
        e"#]]
    .assert_eq(&names(&before).join("\n"));
    let more = text.replace(
        "paths:\n",
        "paths:\n  /0: {get: {}, put: {operationId: zero}}\n  /zz: {get: {operationId: same}}\n",
    );
    let after = document(&more);
    for name in names(&before) {
        assert!(names(&after).contains(&name), "{name}");
    }
}

#[test]
fn served_names_are_short_and_grouped_ones_tell_tag_and_risk() {
    let long = served_name("shop", &"list-all-of-the-orders-".repeat(4));
    assert_eq!(long.len(), 64);
    assert_eq!(served_name("shop", "list"), "shop_list");
    assert_eq!(
        group_name("shop", Some("Odd Ones"), Risk::Read),
        "shop_odd_ones_read"
    );
}

#[test]
fn methods_say_what_calls_do() {
    let operation = |method: &str| operation(&format!("  /a: {{{method}: {{}}}}"));
    for method in ["get", "head", "options", "trace"] {
        assert_eq!(operation(method).effect, Effect::Reads, "{method}");
        assert_eq!(operation(method).risk(), Risk::Read, "{method}");
    }
    assert_eq!(operation("put").effect, Effect::Writes { idempotent: true });
    assert_eq!(
        operation("post").effect,
        Effect::Writes { idempotent: false }
    );
    assert_eq!(operation("patch").risk(), Risk::Write);
    assert_eq!(
        operation("delete").effect,
        Effect::Destroys { idempotent: true }
    );
    assert_eq!(operation("delete").risk(), Risk::Delete);
}

#[test]
fn deprecated_operations_say_so_in_their_first_line() {
    let one = operation(
        "  /a: {get: {deprecated: true, summary: List a, description: 'All of a, by age.'}}",
    );
    assert!(one.deprecated);
    assert_eq!(one.title, "List a");
    assert_eq!(one.description, "Deprecated. List a\n\nAll of a, by age.");
}

#[test]
fn the_owner_picks_operations_by_name_or_path() {
    let paths = "  /a: {get: {operationId: list}, delete: {}}\n  /b/{id}: {get: {}}";
    let pick = |include: &[&str], exclude: &[&str]| {
        let globs = |globs: &[&str]| globs.iter().map(|glob| (*glob).to_owned()).collect();
        let settings = Settings {
            include: globs(include),
            exclude: globs(exclude),
            ..Settings::default()
        };
        let document = read(with_paths(paths).as_bytes(), &settings).unwrap();
        names(&document).join(" ")
    };
    assert_eq!(pick(&[], &[]), "list delete_a get_b_by_id");
    assert_eq!(pick(&["GET *"], &[]), "list get_b_by_id");
    assert_eq!(pick(&["list", "* /b/*"], &["get_*"]), "list");
}

#[test]
fn operations_with_servers_of_their_own_go_there() {
    let paths = "  /a: {get: {servers: [{url: 'https://uploads.example/x'}]}}\n  /b: {servers: [{url: /v3}], get: {}}\n  /c: {get: {}}";
    let document = read(
        with_paths(paths).as_bytes(),
        &Settings {
            document_url: Some(Url::parse("https://docs.example/openapi.yaml").unwrap()),
            ..Settings::default()
        },
    )
    .unwrap();
    let bases: Vec<Option<&str>> = document
        .operations
        .iter()
        .map(|one| one.base.as_ref().map(Url::as_str))
        .collect();
    assert_eq!(
        bases,
        [
            Some("https://uploads.example/x"),
            Some("https://docs.example/v3"),
            None
        ]
    );
    assert_eq!(document.base.unwrap().as_str(), "https://shop.example/v1");
}

#[test]
fn what_is_too_many_is_cut_and_counted() {
    let paths: String = (0..MAX_OPERATIONS + 7)
        .map(|at| format!("  /a/{at}: {{get: {{}}}}\n"))
        .collect();
    let document = document(&with_paths(&paths));
    assert_eq!(
        (document.operations.len(), document.cut),
        (MAX_OPERATIONS, 7)
    );
}

// R-C-199
#[test]
fn cost_caps_are_arguments_with_their_range() {
    let one = operation(PEOPLE);
    let properties = &one.input_schema["properties"];
    let expected = serde_json::json!({
        "type": "integer", "minimum": 1, "maximum": 500, "default": 50,
        "description": "The most that this call may cost, in cents: 1 to 500; 50 when left out.",
    });
    assert_eq!(properties["max_cost_cents"], expected);
    let expected = serde_json::json!({
        "type": "integer", "minimum": 0, "maximum": 5,
        "description": "The most that each record may cost, in cents: 0 to 5.",
    });
    assert_eq!(properties["max_cost_cents_per_record"], expected);
    // The document's own parameter for the same is not there twice.
    assert_eq!(
        properties.as_object().unwrap().keys().collect::<Vec<_>>(),
        ["max_cost_cents", "max_cost_cents_per_record", "name"]
    );

    let cost = |arguments: &str, records| {
        let arguments = serde_json::from_str::<&serde_json::value::RawValue>(arguments).unwrap();
        (one.cost(arguments, records), one.cost_cap(arguments))
    };
    assert_eq!(cost("{}", Some(3)), (7, Some(50)));
    assert_eq!(cost("{}", Some(0)), (2, Some(50)));
    assert_eq!(cost("{}", Some(1_000)), (50, Some(50)));
    assert_eq!(cost(r#"{"max_cost_cents": 5}"#, Some(1_000)), (5, Some(5)));
    assert_eq!(
        cost(r#"{"max_cost_cents_per_record": 1}"#, Some(3)),
        (5, Some(50))
    );
    assert_eq!(cost("{}", None), (50, Some(50)));

    let request = call(
        &one,
        &serde_json::json!({"name": "x", "max_cost_cents_per_record": 2}),
    )
    .unwrap();
    assert_eq!(request.path_and_query, "/people?name=x&budget=50");
    assert_eq!(request.headers[1].0, "x-per-record");
    assert_eq!(request.headers[1].1, "2");
    let refused = call(&one, &serde_json::json!({"max_cost_cents": 501})).unwrap_err();
    assert_eq!(
        refused.message,
        "max_cost_cents must be at most 500, not 501"
    );
}

const PEOPLE: &str = "  /people:
    get:
      parameters: [{name: name, in: query}, {name: budget, in: query, schema: {type: integer}}]
      x-chandlery-cost:
        cents: 2
        centsPerRecord: 1.5
        records: /people
        maxCents: {min: 1, max: 500, default: 50, in: query, name: budget}
        maxCentsPerRecord: {max: 5, in: header, name: X-Per-Record}
";

/// JSON Schema has 5.0 for an integer too.
#[test]
fn a_cap_holds_however_it_is_spelled() {
    let one = operation(PEOPLE);
    for cap in ["5", "5.0", "5e0", "0.5e1"] {
        let arguments = format!(r#"{{"max_cost_cents": {cap}}}"#);
        let arguments = serde_json::from_str::<&serde_json::value::RawValue>(&arguments).unwrap();
        let request = one.request(arguments).unwrap();
        assert_eq!(request.path_and_query, "/people?budget=5", "{cap}");
        let costs = (one.cost(arguments, Some(1_000)), one.cost_cap(arguments));
        assert_eq!(costs, (5, Some(5)), "{cap}");
    }
    for cap in ["0", "501", "-1", "5.5", "1e300", "\"5\""] {
        let arguments = format!(r#"{{"max_cost_cents": {cap}}}"#);
        let arguments = serde_json::from_str::<&serde_json::value::RawValue>(&arguments).unwrap();
        assert_eq!(one.cost_cap(arguments), Some(0), "{cap}");
        let refused = one.request(arguments).unwrap_err();
        assert!(
            refused.message.starts_with("max_cost_cents must be "),
            "{refused}"
        );
    }
}

#[test]
fn no_other_argument_writes_a_cap() {
    let form = |more: &str| {
        format!(
            "  /a:
    post:
      x-chandlery-cost: {{cents: 1, maxCents: {{max: 9, in: body, name: budget}}}}
      requestBody: {{content: {{{more}: {{schema: {{
        type: object, properties: {{a: {{}}, budget: {{type: integer}}}}, additionalProperties: true}}}}}}}}"
        )
    };
    for kind in [
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "application/json",
    ] {
        let one = operation(&form(kind));
        let arguments = serde_json::json!({"a": 1, "max_cost_cents": 7});
        let body = call(&one, &arguments).unwrap().body;
        let body = String::from_utf8_lossy(&body);
        assert_eq!(body.matches("budget").count(), 1, "{body}");
        for arguments in [
            serde_json::json!({"budget": 999_999}),
            serde_json::json!({"budget": 999_999, "max_cost_cents": 7}),
        ] {
            let refused = call(&one, &arguments).unwrap_err();
            assert_eq!(
                refused.message,
                "budget must not have the field budget, which is where max_cost_cents goes"
            );
        }
    }
    let apart = operation(
        "  /a:
    post:
      x-chandlery-cost: {maxCents: {max: 9, in: body, name: budget}}
      requestBody: {content: {application/x-www-form-urlencoded: {
        schema: {type: object, properties: {a: {type: object}}},
        encoding: {a: {style: form, explode: true}}}}}",
    );
    let refused = call(&apart, &serde_json::json!({"a": {"budget": 999}})).unwrap_err();
    assert!(
        refused.message.contains("where max_cost_cents goes"),
        "{refused}"
    );
    let query = operation(
        "  /a:
    get:
      x-chandlery-cost: {maxCents: {max: 9, in: query, name: budget}, maxCentsPerRecord: {max: 9, in: header, name: X-Most}}
      parameters:
        - {name: filter, in: query, schema: {type: object}}
        - {name: x-most, in: header}",
    );
    let refused = call(&query, &serde_json::json!({"filter": {"budget": 999}})).unwrap_err();
    assert!(
        refused.message.contains("where max_cost_cents goes"),
        "{refused}"
    );
    let properties = query.input_schema["properties"].as_object().unwrap();
    assert!(!properties.contains_key("x-most"), "{properties:?}");
}

/// A call never goes out without the cap that was asked for.
#[test]
fn a_cap_in_a_body_without_fields_skips_the_operation() {
    for body in [
        "",
        "requestBody: {content: {application/json: {schema: {anyOf: [{type: object, properties: {a: {}}}, {type: string}]}}}}",
        "requestBody: {content: {text/plain: {schema: {type: string}}}}",
    ] {
        let document = document(&with_paths(&format!(
            "  /a:
    post:
      x-chandlery-cost: {{maxCents: {{max: 9, in: body}}}}
      {body}"
        )));
        assert_eq!(document.operations.len(), 0, "{body}");
        let message = &document.skipped[0].message;
        assert!(message.contains("a body that has no fields"), "{message}");
    }
}

#[test]
fn a_mistake_in_the_cost_skips_the_operation() {
    for (cost, message) in [
        ("{cent: 2}", "unknown field `cent`"),
        ("{cents: -1}", "-1 is no price in cents"),
        (
            "{maxCents: {min: 9, max: 3}}",
            "min ≤ default ≤ max does not hold",
        ),
        (
            "{maxCents: {max: 3, in: cookie}}",
            "write query, header or body",
        ),
        (
            "{maxCents: {max: 3, in: body}}",
            "max_cost_cents cannot be told in a body that has no fields",
        ),
        (
            "{maxCents: {max: 1000000001}}",
            "max is more than 1000000000",
        ),
    ] {
        let document = document(&with_paths(&format!(
            "  /a: {{get: {{x-chandlery-cost: {cost}}}}}"
        )));
        let skipped = &document.skipped[0].message;
        assert!(
            skipped.starts_with("x-chandlery-cost: ") && skipped.contains(message),
            "{skipped}"
        );
    }
}

#[test]
fn schemas_that_are_too_large_say_less() {
    let fields: Vec<String> = (0..40)
        .map(|at| format!("f{at}: {{$ref: '#/components/schemas/L{{}}'}}"))
        .collect();
    let mut text = with_paths(
        "  /a: {post: {requestBody: {content: {application/json: {schema: {$ref: '#/components/schemas/L0'}}}}}}",
    );
    text.push_str("\ncomponents:\n  schemas:\n");
    for level in 0..8 {
        let fields = fields.join(", ").replace("{}", &(level + 1).to_string());
        text.push_str(&format!(
            "    L{level}: {{type: object, properties: {{{fields}}}}}\n"
        ));
    }
    text.push_str("    L8: {type: string}\n");
    let one = super::harness::only(document(&text));
    let schema = Value::Object(one.input_schema);
    assert!(
        schema.to_string().len() <= 20 * 1024,
        "{}",
        schema.to_string().len()
    );
    let field = &schema["properties"]["f3"];
    assert_eq!(field["type"], "object");
    assert!(
        field
            .to_string()
            .contains("What lies within is not shown here."),
        "{field}"
    );
}
