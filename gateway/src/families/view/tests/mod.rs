mod less;
mod shapes;

use expect_test::{Expect, expect};
use proptest::prelude::{Strategy, any, prop, prop_oneof};
use proptest::{prop_assert, prop_assert_eq, proptest};
use serde_json::json;

use super::*;

const JSON: &str = "application/json; charset=utf-8";

fn view(arguments: Value) -> View {
    View::take(&mut arguments.as_object().cloned().unwrap()).unwrap()
}

fn rendered(view: &View, content_type: &str, body: &[u8], max_bytes: usize) -> String {
    match render(view, content_type, body, max_bytes) {
        Ok(Output::Text(text)) => text,
        Ok(other) => panic!("{other:?}"),
        Err(error) => format!("{:?}: {error}", error.kind),
    }
}

#[track_caller]
fn check(arguments: Value, body: &str, expected: Expect) {
    expected.assert_eq(&rendered(&view(arguments), JSON, body.as_bytes(), 10_000));
}

#[test]
fn what_is_not_json_is_text_as_it_is() {
    let page = "<p>\r\n\u{202e}hi</p>\n";
    let text =
        |arguments, content_type| rendered(&view(arguments), content_type, page.as_bytes(), 10_000);
    assert_eq!(text(json!({}), "text/html"), page);
    assert_eq!(text(json!({}), JSON), page);
    assert_eq!(text(json!({"response_format": "raw"}), "text/html"), page);
    let json = text(json!({"response_format": "json"}), "text/html");
    assert_eq!(json, Value::from(page).to_string());
    expect!["Arguments: response_fields cannot be had, since the answer is not JSON; the call was made: leave it out when asking again"].assert_eq(&text(json!({"response_fields": "id"}), "text/html"));
    let problem = rendered(
        &View::default(),
        "application/problem+json",
        br#"{"status":404}"#,
        512,
    );
    expect!["status: 404"].assert_eq(&problem);
    let untyped = rendered(&View::default(), "", "\u{feff}[{\"a\":1}]".as_bytes(), 512);
    expect![[r#"
        |a|
        |---|
        |1|"#]]
    .assert_eq(&untyped);
}

#[test]
fn what_is_not_text_is_refused() {
    let image = |content_type| rendered(&View::default(), content_type, b"\x89PNG\0", 512);
    expect!["Unavailable: the call was made, but its answer is not text in UTF-8 (image/png, 5 bytes) and cannot be shown"].assert_eq(&image("image/png"));
    expect!["Unavailable: the call was made, but its answer is not text in UTF-8 (of no content type, 5 bytes) and cannot be shown"].assert_eq(&image(""));
}

#[test]
fn western_text_is_read_where_it_is_declared() {
    let table = b"name;sum\nJos\xe9;5\x80\n";
    let text = |content_type| rendered(&View::default(), content_type, table, 512);
    for declared in [
        "text/csv; charset=ISO-8859-1",
        "text/csv;header=present; Charset=\"windows-1252\"",
        "text/csv; charset=latin1",
    ] {
        assert_eq!(text(declared), "name;sum\nJosé;5€\n", "{declared}");
    }
    expect!["Unavailable: the call was made, but its answer is not text in UTF-8 (text/csv; charset=shift_jis, 17 bytes) and cannot be shown"].assert_eq(&text("text/csv; charset=shift_jis"));
    // A declaration that is wrong.
    let utf8 = rendered(
        &View::default(),
        "text/plain; charset=latin1",
        "José".as_bytes(),
        512,
    );
    assert_eq!(utf8, "José");
    let json = rendered(
        &View::default(),
        "application/json; charset=iso-8859-1",
        b"{\"name\": \"Jos\xe9\"}",
        512,
    );
    assert_eq!(json, "name: José");
}

#[test]
fn nesting_without_end_is_text() {
    let body = "[".repeat(100_000) + &"]".repeat(100_000);
    let text = rendered(&View::default(), JSON, body.as_bytes(), 300_000);
    assert_eq!(text, body);
}

#[test]
fn values_without_end_are_text_that_says_so() {
    let body = |values: usize| format!("[{}[]]", "[],".repeat(values - 2));
    let shown = |arguments, values| {
        let body = body(values);
        rendered(&view(arguments), JSON, body.as_bytes(), 4_000_000)
    };
    let most = node::MAX_NODES;
    assert!(MANY.contains("400,000") && most == 400_000);
    let fits = shown(json!({}), most);
    assert!(fits.starts_with("- []\n- []\n") && fits.ends_with("- []"));
    let many = shown(json!({}), most + 1);
    let (text, note) = many.split_once('\n').unwrap();
    assert_eq!(text, body(most + 1));
    expect!["… the answer has more than 400,000 values, so it is shown as it came"].assert_eq(note);
    let many = shown(
        json!({"response_limit": 1, "response_format": "json"}),
        most + 1,
    );
    let many: Value = serde_json::from_str(&many).unwrap();
    assert_eq!(many["beginning"], body(most + 1));
    expect!["the answer has more than 400,000 values, so it is shown as it came; the whole answer is 1200001 bytes; ask for less at a time with the service's own arguments, or for fewer fields with response_fields where the tool takes it"].assert_eq(many["note"].as_str().unwrap());
    let many = rendered(&View::default(), JSON, body(most + 1).as_bytes(), 512);
    expect![[r#"
        [[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],
        … the answer has more than 400,000 values, so it is shown as it came
        … cut here: the whole answer is 1200001 bytes; ask for less at a time with the service's own arguments, or for fewer fields with response_fields where the tool takes it"#]].assert_eq(&many);
    expect!["Arguments: response_fields cannot be had, since the answer has more than 400,000 values; the call was made: ask for less at a time with the service's own arguments"].assert_eq(&shown(json!({"response_fields": "id"}), most + 1));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<Option<bool>>().prop_map(|value| json!(value)),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-c|\\\\\n\r\"\u{1}é😀 ]{0,40}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 200, 12, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..12).prop_map(Value::from),
            prop::collection::vec(("[a-c.|\n]{0,3}", inner), 0..8)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn json_that_fits_comes_back_as_it_was(value in any_json()) {
        let view = View { format: Format::Json, ..View::default() };
        let body = serde_json::to_vec_pretty(&value).unwrap();
        prop_assert_eq!(rendered(&view, JSON, &body, usize::MAX), value.to_string());
    }

    #[test]
    fn no_answer_is_longer_than_it_may_be(value in any_json(), max_bytes in 512_usize..4096, limit in 0_usize..5) {
        let body = serde_json::to_vec_pretty(&value).unwrap();
        for format in [Format::Markdown, Format::Json, Format::Raw] {
            let view = View { format, fields: Vec::new(), limit: (limit > 0).then_some(limit) };
            let text = rendered(&view, JSON, &body, max_bytes);
            prop_assert!(Value::from(text.as_str()).to_string().len() - 2 <= max_bytes);
            if format == Format::Json {
                prop_assert!(serde_json::from_str::<Value>(&text).is_ok());
            }
        }
    }

    #[test]
    fn fields_of_any_answer_are_kept_or_refused(value in any_json(), fields in prop::collection::vec("[a-c]{1,2}(\\.[a-c]{1,2})?", 1..4)) {
        let fields = fields.iter().filter_map(|field| Path::parse(field)).collect();
        let view = View { fields, ..View::default() };
        let text = rendered(&view, "", value.to_string().as_bytes(), 512);
        prop_assert!(text.starts_with("Arguments: ") || text.len() <= 512);
    }
}
