//! An OpenAPI document end to end: listed, granted, called, limited and taken down (R-C-190…205, R-C-227…230).

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Gateway, Said, agent, config_map, grant, secret, source, workspace};
use crate::server::{Answer, Seen, reply};
use crate::upstreams::{Service, asked, document, json_of, operation};

fn customers() -> Value {
    let text = json!({"type": "string"});
    let id = json!({"name": "id", "in": "path", "required": true, "schema": text});
    let of = |tag: &str, mut operation: Value, more: Value| {
        operation["tags"] = json!([tag]);
        for (name, value) in more.as_object().unwrap() {
            operation[name] = value.clone();
        }
        operation
    };
    document(json!({
        "/customers": {
            "get": of("customers", operation("list_customers"), json!({"parameters": [
                {"name": "limit", "in": "query", "schema": {"type": "integer", "maximum": 100}},
                {"name": "x-tenant", "in": "header", "schema": text},
            ]})),
            "post": of("customers", operation("add_customer"), json!({"requestBody": {
                "content": {"application/json": {"schema": {
                    "type": "object", "required": ["name"],
                    "properties": {"name": text, "address": {"type": "object", "properties": {"city": text}}},
                }}},
            }})),
        },
        "/customers/{id}": {
            "parameters": [id],
            "get": of("customers", operation("get_customer"), json!({})),
            "delete": of("customers", operation("delete_customer"), json!({})),
        },
        "/lookup": {"post": of("people", operation("look_up"), json!({
            "x-chandlery-cost": {
                "centsPerRecord": 1, "records": "/people",
                "maxCents": {"min": 1, "max": 500, "default": 50, "in": "query", "name": "budget"},
            },
        }))},
        "/trouble/{what}": {"get": {
            "summary": "Fails.", "parameters": [{"name": "what", "in": "path", "required": true, "schema": text}],
            "responses": {"200": {"description": "OK"}},
        }},
    }))
}

fn answer(seen: &Seen) -> Option<Answer> {
    let rows = json!([
        {"id": 1, "name": "Ada", "address": {"city": "London"}},
        {"id": 2, "name": "Bob", "address": {"city": "Paris"}},
        {"id": 3, "name": "Cy", "address": {"city": "Rome"}},
    ]);
    let asked = asked(seen);
    Some(match asked {
        "GET /trouble/missing" => json_of("404 Not Found", &json!({"error": "no such customer"})),
        "GET /trouble/oops" => Answer::Raw(reply("500 Oops", "", "stack trace")),
        "GET /trouble/slow" => Answer::Hang,
        "GET /trouble/redirect" => {
            Answer::Raw(reply("302 Found", "location: http://127.0.0.3/\r\n", ""))
        }
        _ if asked.starts_with("GET /customers?") || asked == "GET /customers" => {
            json_of("200 OK", &rows)
        }
        _ if asked.starts_with("POST /lookup") => json_of(
            "200 OK",
            &json!({"people": [{"name": "Ada"}, {"name": "Bob"}]}),
        ),
        _ => return None,
    })
}

async fn service() -> Service {
    Service::start_with(customers(), answer).await
}

/// R-C-202, R-C-203, R-C-205.
#[tokio::test]
async fn operations_are_listed_in_groups_of_their_tag_and_risk_or_each_by_itself() {
    let service = service().await;
    let gateway = Gateway::open(&[
        workspace(),
        source("crm", json!({"openapi": service.spec()})),
        agent("groups", json!({"tools": ["crm/*"]})),
        agent(
            "each",
            json!({"tools": ["crm/*"], "listing": "PerOperation"}),
        ),
        grant("all", &["crm/*"], json!({})),
    ])
    .await;
    let groups = [
        "crm_customers_delete",
        "crm_customers_read",
        "crm_customers_write",
    ];
    let groups = [&groups[..], &["crm_people_write", "crm_read"]].concat();
    gateway.until("crm", |known| known["served"] == 6).await;
    let mut listed = gateway.list("groups").await;
    listed.sort();
    assert_eq!(listed, groups);
    let mut listed = gateway.list("each").await;
    listed.sort();
    let each = [
        "crm_add_customer",
        "crm_delete_customer",
        "crm_get_customer",
    ];
    let more = [
        "crm_get_trouble_by_what",
        "crm_list_customers",
        "crm_look_up",
    ];
    assert_eq!(listed, [&each[..], &more].concat());
    let grouped = gateway.tool("groups", "crm_customers_read").await;
    let properties = &grouped["inputSchema"]["properties"];
    assert_eq!(
        properties["action"]["enum"],
        json!(["list_customers", "get_customer"]),
        "{grouped:#}"
    );
    let by_itself = gateway.tool("each", "crm_list_customers").await;
    for name in ["response_format", "response_fields", "response_limit"] {
        assert!(properties[name].is_object(), "{name}");
        assert!(by_itself["inputSchema"]["properties"][name].is_null());
    }
    let cap = gateway.tool("each", "crm_look_up").await;
    let cap = &cap["inputSchema"]["properties"]["max_cost_cents"];
    // R-C-199.
    assert_eq!((&cap["minimum"], &cap["maximum"]), (&json!(1), &json!(500)));
}

/// R-C-190…196, R-C-204.
#[tokio::test]
async fn calls_arrive_as_the_document_says_and_answers_in_the_view_that_was_asked_for() {
    let service = service().await;
    let gateway = Gateway::open(&[
        workspace(),
        source("crm", json!({"openapi": service.spec()})),
        agent("groups", json!({"tools": ["crm/*"]})),
        agent(
            "each",
            json!({"tools": ["crm/*"], "listing": "PerOperation"}),
        ),
        grant("all", &["crm/*"], json!({})),
    ])
    .await;
    gateway.until("crm", |known| known["served"] == 6).await;
    let rows = async |more: Value| {
        let mut arguments = json!({"action": "list_customers", "limit": 3});
        for (name, value) in more.as_object().unwrap() {
            arguments[name] = value.clone();
        }
        let said = gateway.call("groups", "crm_customers_read", arguments);
        said.await
    };
    let markdown = rows(json!({"x-tenant": "blue"})).await;
    assert!(
        markdown.text().contains("|Ada|") && !markdown.text().contains('{'),
        "{markdown:?}"
    );
    let fields = json!({"response_format": "json", "response_fields": ["name", "address.city"], "response_limit": 2});
    let shown = rows(fields).await;
    assert!(
        shown.text().contains("Paris") && !shown.text().contains("Rome"),
        "{shown:?}"
    );
    assert!(!shown.text().contains("\"id\""), "{shown:?}");
    let wrong = rows(json!({"response_fields": ["nmae"]})).await;
    assert!(
        wrong.refusal().contains("nmae") && wrong.refusal().contains("name"),
        "{wrong:?}"
    );
    let raw = rows(json!({"response_format": "raw"})).await;
    let arguments = json!({"limit": 3});
    let by_itself = gateway.call("each", "crm_list_customers", arguments).await;
    assert_eq!(raw, by_itself);
    let added = json!({"action": "add_customer", "name": "Dee", "address": {"city": "Oslo"}});
    gateway
        .call("groups", "crm_customers_write", added)
        .await
        .text();
    let gone = json!({"action": "delete_customer", "id": "a/b?c"});
    gateway
        .call("groups", "crm_customers_delete", gone)
        .await
        .text();
    let too_many = gateway
        .call("each", "crm_list_customers", json!({"limit": "many"}))
        .await;
    assert!(too_many.refusal().contains("limit"), "{too_many:?}");
    let calls = service.calls();
    let lines: Vec<&str> = calls.iter().map(asked).collect();
    let read = "GET /customers?limit=3";
    let written = ["POST /customers", "DELETE /customers/a%2Fb%3Fc"];
    assert_eq!(lines, [&[read; 5][..], &written].concat());
    assert_eq!(calls[0].header("x-tenant"), Some("blue"));
    let body: Value = serde_json::from_str(&calls[5].body).unwrap();
    assert_eq!(body, json!({"name": "Dee", "address": {"city": "Oslo"}}));
    assert_eq!(calls[5].header("content-type"), Some("application/json"));
}

#[tokio::test]
async fn what_goes_wrong_upstream_is_a_sentence() {
    let service = service().await;
    let gateway = Gateway::open(&[
        workspace(),
        source("crm", json!({"openapi": service.spec(), "timeout": "2s"})),
        agent(
            "each",
            json!({"tools": ["crm/*"], "listing": "PerOperation"}),
        ),
        grant("all", &["crm/*"], json!({})),
    ])
    .await;
    gateway.until("crm", |known| known["served"] == 6).await;
    for (what, says) in [
        ("missing", "404 Not Found: {\"error\":\"no such customer\"}"),
        ("oops", "500 Internal Server Error: stack trace"),
        ("slow", "did not answer within 2 s"),
        ("redirect", "302 Found, a redirect"),
    ] {
        let arguments = json!({"what": what});
        let said = gateway
            .call("each", "crm_get_trouble_by_what", arguments)
            .await;
        let said = said.refusal();
        assert!(said.contains(says), "{what}: {said}");
        assert!(
            !said.contains("127.0.0.3") && !said.contains('\n'),
            "{said}"
        );
    }
}

#[tokio::test]
async fn entries_name_operations_paths_and_globs_and_grants_decide() {
    let service = service().await;
    let per_operation = |tools: Value| json!({"tools": tools, "listing": "PerOperation"});
    let gateway = Gateway::open(&[
        workspace(),
        source("crm", json!({"openapi": service.spec()})),
        agent("one", per_operation(json!(["crm/get_customer"]))),
        agent("path", per_operation(json!(["crm/GET /customers"]))),
        agent("glob", per_operation(json!(["crm/*_customer"]))),
        agent(
            "glob-of-paths",
            per_operation(json!(["crm/GET /customers*"])),
        ),
        agent("none", per_operation(json!([]))),
        agent("ungranted", per_operation(json!(["crm/*"]))),
        grant(
            "some",
            &["crm/*_customer", "crm/GET /customers*"],
            json!({
                "agents": {"names": ["one", "path", "glob", "glob-of-paths", "none"]},
                "constraints": [{
                    "name": "own", "cel": "!has(args.id) || args.id.startsWith('own-')",
                    "message": "Take a customer of ours.",
                }],
            }),
        ),
    ])
    .await;
    gateway.until("crm", |known| known["served"] == 6).await;
    for (agent, expected) in [
        ("one", &["crm_get_customer"][..]),
        ("path", &["crm_list_customers"]),
        (
            "glob",
            &[
                "crm_add_customer",
                "crm_delete_customer",
                "crm_get_customer",
            ],
        ),
        ("glob-of-paths", &["crm_get_customer", "crm_list_customers"]),
        ("none", &[]),
        ("ungranted", &[]),
    ] {
        let mut listed = gateway.list(agent).await;
        listed.sort();
        assert_eq!(listed, expected, "{agent}");
    }
    let said = gateway
        .call("one", "crm_get_customer", json!({"id": "other"}))
        .await;
    assert!(
        said.refusal().contains("Take a customer of ours."),
        "{said:?}"
    );
    assert_eq!(service.calls().len(), 0);
    gateway
        .call("one", "crm_get_customer", json!({"id": "own-1"}))
        .await
        .text();
    assert_eq!(asked(&service.calls()[0]), "GET /customers/own-1");
    let said = gateway.call("one", "crm_list_customers", json!({})).await;
    assert_eq!(said, Said::unknown("crm_list_customers"));
    let said = gateway
        .call("ungranted", "crm_get_customer", json!({"id": "own-1"}))
        .await;
    assert_eq!(said, Said::unknown("crm_get_customer"));
}

#[tokio::test]
async fn a_source_that_asks_for_people_is_not_called_before_one_has_agreed() {
    let service = service().await;
    let gateway = Gateway::open(&[
        workspace(),
        source("crm", json!({"openapi": service.spec(), "permission": "ask"})),
        agent("each", json!({"tools": ["crm/*"], "listing": "PerOperation", "permissions": {"default": "act"}})),
        grant("all", &["crm/*"], json!({"permission": "act"})),
    ])
    .await;
    gateway.until("crm", |known| known["served"] == 6).await;
    let call = async || {
        gateway
            .call("each", "crm_get_customer", json!({"id": "7"}))
            .await
    };
    let Said::Awaiting(id) = call().await else {
        panic!("nobody was asked");
    };
    assert_eq!(service.calls().len(), 0);
    gateway
        .api("POST", &format!("/approvals/{id}/approve"))
        .await;
    call().await.text();
    assert_eq!(service.calls().len(), 1);
}

/// A grouped call carries what the operation's own tool would.
#[tokio::test]
async fn an_open_body_has_its_fields_though_another_operation_names_them() {
    let text = json!({"type": "string"});
    let mut create = operation("create_person");
    create["requestBody"] = json!({"content": {"application/json": {"schema": {
        "type": "object", "properties": {"first": text}, "additionalProperties": true,
    }}}});
    let mut invite = operation("invite");
    invite["parameters"] = json!([{"name": "email", "in": "query", "schema": text}]);
    let described = document(json!({"/people": {"post": create}, "/invites": {"post": invite}}));
    let service = Service::start(described).await;
    let gateway = Gateway::open(&[
        workspace(),
        source("crm", json!({"openapi": service.spec()})),
        agent("groups", json!({"tools": ["crm/*"]})),
        grant("all", &["crm/*"], json!({})),
    ])
    .await;
    gateway.until("crm", |known| known["served"] == 2).await;
    let arguments =
        json!({"action": "create_person", "first": "Ada", "email": "a@example.com", "age": 36});
    gateway.call("groups", "crm_write", arguments).await.text();
    let body = &service.calls()[0].body;
    let body: Value = serde_json::from_str(body).unwrap();
    assert_eq!(
        body,
        json!({"first": "Ada", "email": "a@example.com", "age": 36})
    );
}

/// Issue 5: cost caps, and what a grant allows in a day.
#[tokio::test]
async fn what_calls_cost_is_bounded_and_what_was_not_spent_is_there_again() {
    let service = service().await;
    let gateway = Gateway::open(&[
        workspace(),
        source("crm", json!({"openapi": service.spec()})),
        agent(
            "each",
            json!({"tools": ["crm/*"], "listing": "PerOperation"}),
        ),
        grant(
            "all",
            &["crm/*"],
            json!({"limits": {"costCentsPerDay": 60}}),
        ),
    ])
    .await;
    gateway.until("crm", |known| known["served"] == 6).await;
    let look_up = async |cents: u64| {
        let arguments = json!({"max_cost_cents": cents});
        gateway.call("each", "crm_look_up", arguments).await
    };
    // No limit allows what the service does not.
    let refused = look_up(501).await;
    assert!(
        refused
            .refusal()
            .contains("max_cost_cents must be at most 500, not 501"),
        "{refused:?}"
    );
    let refused = look_up(61).await;
    assert!(
        refused.refusal().contains("limit of ToolGrant all"),
        "{refused:?}"
    );
    assert!(refused.refusal().contains("try again in"), "{refused:?}");
    // Each may cost 50 and costs 2: without what was left over, the second would not go through.
    for _ in 0..6 {
        look_up(50).await.text();
    }
    let refused = look_up(50).await;
    assert!(refused.refusal().contains("try again in"), "{refused:?}");
    look_up(48).await.text();
    // What costs nothing goes on.
    gateway
        .call("each", "crm_list_customers", json!({}))
        .await
        .text();
    let rows = gateway.usage("crm", 8).await;
    let cents = rows.iter().map(|row| row["cost_cents"].as_i64().unwrap());
    assert_eq!(cents.sum::<i64>(), 14);
    assert_eq!(asked(&service.calls()[0]), "POST /lookup?budget=50");
}

/// R-C-203, R-C-204: of an answer that is long too.
#[tokio::test]
async fn a_long_answer_is_shown_as_it_was_asked_for() {
    let rows: Vec<Value> = (0..8_000)
        .map(|id| json!({"id": id, "name": format!("customer {id}"), "note": "x".repeat(40)}))
        .collect();
    let rows = json!(rows);
    let described = document(json!({"/customers": {"get": operation("list")}}));
    let service = Service::start_with(described, move |seen| {
        (asked(seen) == "GET /customers").then(|| json_of("200 OK", &rows))
    });
    let service = service.await;
    let gateway = Gateway::open(&[
        workspace(),
        source("crm", json!({"openapi": service.spec()})),
        agent("groups", json!({"tools": ["crm/*"]})),
        grant("all", &["crm/*"], json!({})),
    ])
    .await;
    gateway.until("crm", |known| known["served"] == 1).await;
    let list = async |more: Value| {
        let mut arguments = json!({"action": "list", "response_fields": ["id"]});
        arguments["response_limit"] = more;
        gateway.call("groups", "crm_read", arguments).await
    };
    let said = list(json!(2)).await;
    assert!(said.text().contains("7998 more rows"), "{said:?}");
    let said = list(json!(8_000)).await;
    let last = said.text().lines().last().unwrap();
    assert!(last.contains("7999"), "{last}");
}

/// What is laid out fits once the result's JSON has escaped it: rows are whole, and those that are left are counted.
#[tokio::test]
async fn a_long_answer_ends_with_a_row_however_much_of_it_is_quotes() {
    let rows: Vec<Value> = (0..5_500)
        .map(|id| json!({"id": id, "quote": "|\"".repeat(40)}))
        .collect();
    let (rows, total) = (json!(rows), rows.len());
    assert!(rows.to_string().len() < 1 << 20);
    let described = document(json!({"/quotes": {"get": operation("list")}}));
    let service = Service::start_with(described, move |seen| {
        (asked(seen) == "GET /quotes").then(|| json_of("200 OK", &rows))
    });
    let service = service.await;
    let gateway = Gateway::open(&[
        workspace(),
        source("crm", json!({"openapi": service.spec()})),
        agent("groups", json!({"tools": ["crm/*"]})),
        grant("all", &["crm/*"], json!({})),
    ])
    .await;
    gateway.until("crm", |known| known["served"] == 1).await;
    let list = async |format: &str| {
        let arguments = json!({"action": "list", "response_format": format});
        gateway.call("groups", "crm_read", arguments).await
    };
    let said = list("json").await;
    let shown: Value = serde_json::from_str(said.text()).unwrap();
    let count = shown["rows"].as_array().unwrap().len();
    assert_eq!(shown["rows_left"], total - count);

    let said = list("markdown").await;
    let (table, note) = said.text().rsplit_once('\n').unwrap();
    let count = table.lines().count() - 2;
    assert!(table.ends_with('|') && count > 1_000);
    assert!(
        note.starts_with(&format!("… {} more rows", total - count)),
        "{note}"
    );

    let said = list("raw").await;
    let note = said.text().lines().last().unwrap();
    assert!(
        note.starts_with("… cut here: the whole answer is"),
        "{note}"
    );
}

/// R-C-199: what may have been done counts, what surely was not does not.
#[tokio::test]
async fn a_call_whose_outcome_nobody_knows_is_paid_for() {
    let text = json!({"type": "string"});
    let paid = document(json!({"/pay/{how}": {"post": {
        "operationId": "pay", "x-chandlery-cost": {"cents": 10},
        "parameters": [{"name": "how", "in": "path", "required": true, "schema": text}],
        "responses": {"200": {"description": "OK"}},
    }}}));
    let service = Service::start_with(paid, |seen| {
        let how = asked(seen).strip_prefix("POST /pay/")?;
        let half = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi".to_vec();
        Some(match how {
            "hang" => Answer::Hang,
            "reset" => Answer::Last(Vec::new()),
            "half" => Answer::Last(half),
            "large" => Answer::Raw(reply("200 OK", "", &"x".repeat(2 << 20))),
            "between" => Answer::Raw(reply("504 Gateway Timeout", "", "")),
            "wrong" => Answer::Raw(reply("422 No", "", "no")),
            "moved" => Answer::Raw(reply("302 Found", "location: /\r\n", "")),
            _ => Answer::Raw(reply("500 Oops", "", "")),
        })
    });
    let service = service.await;
    let gateway = Gateway::open(&[
        workspace(),
        source("bank", json!({"openapi": service.spec(), "timeout": "1s"})),
        agent("a", json!({"tools": ["bank/*"], "listing": "PerOperation"})),
        grant(
            "all",
            &["bank/*"],
            json!({"limits": {"costCentsPerDay": 50}}),
        ),
    ])
    .await;
    gateway.until("bank", |known| known["served"] == 1).await;
    let pay = async |how: &str| {
        let said = gateway.call("a", "bank_pay", json!({"how": how})).await;
        said.refusal().to_owned()
    };
    let counts = [
        ("hang", 10),
        ("wrong", 0),
        ("reset", 10),
        ("moved", 0),
        ("half", 10),
        ("wrong", 0),
        ("large", 10),
        ("oops", 0),
        ("between", 10),
    ];
    for (how, _) in counts {
        let said = pay(how).await;
        assert!(!said.contains("limit of"), "{how}: {said}");
    }
    let said = pay("wrong").await;
    assert!(said.contains("limit of ToolGrant all"), "{said}");
    let rows = gateway.usage("bank", counts.len()).await;
    let cents = rows.iter().rev().map(|row| row["cost_cents"].as_i64());
    let expected = counts.map(|(_, cents)| Some(cents));
    assert_eq!(cents.collect::<Vec<_>>(), expected, "{rows:#?}");
}

/// What went out leaves a row, whoever has gone meanwhile.
#[tokio::test]
async fn usage_has_a_call_whose_client_went_away() {
    let mut slow = operation("slow");
    slow["x-chandlery-cost"] = json!({"cents": 3});
    let described = document(json!({"/slow": {"get": slow}}));
    let service = Service::start_with(described, |seen| {
        (asked(seen) == "GET /slow").then_some(Answer::Hang)
    });
    let service = service.await;
    let gateway = Gateway::open(&[
        workspace(),
        source("crm", json!({"openapi": service.spec()})),
        agent(
            "each",
            json!({"tools": ["crm/*"], "listing": "PerOperation"}),
        ),
        grant("all", &["crm/*"], json!({})),
    ])
    .await;
    gateway.until("crm", |known| known["served"] == 1).await;
    let client = gateway.others();
    tokio::select! {
        said = client.call("each", "crm_slow", json!({})) => panic!("{said:?}"),
        () = async {
            while service.calls().is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        } => {}
    }
    drop(client);
    let row = &gateway.usage("crm", 1).await[0];
    assert_eq!(
        (&row["outcome"], &row["status"], &row["cost_cents"]),
        (&json!("cancelled"), &json!(null), &json!(3))
    );
}

/// R-C-227…230.
#[tokio::test]
async fn usage_keeps_metadata_and_nothing_of_built_in_tools() {
    let service = service().await;
    let gateway = Gateway::open(&[
        workspace(),
        source("crm", json!({"openapi": service.spec(), "timeout": "1s"})),
        agent("groups", json!({"tools": ["crm/*", "agnt_datetime_now"]})),
        grant("all", &["crm/*"], json!({})),
    ])
    .await;
    gateway.until("crm", |known| known["served"] == 6).await;
    let hidden = json!({"action": "get_customer", "id": "hidden-argument"});
    gateway
        .call("groups", "crm_customers_read", hidden)
        .await
        .text();
    let slow = json!({"action": "get_trouble_by_what", "what": "slow"});
    gateway.call("groups", "crm_read", slow).await.refusal();
    gateway.call("groups", "agnt_datetime_now", json!({})).await;
    let rows = gateway.usage("crm", 2).await;
    let all = gateway.api("GET", "/usage").await;
    assert_eq!(all["items"].as_array().unwrap().len(), 2, "{all:#}");
    assert!(!all.to_string().contains("hidden-argument"));
    let (slow, read) = (&rows[0], &rows[1]);
    assert_eq!(read["agent"], "team.groups");
    // R-C-228.
    assert_eq!(read["tool"], "crm_get_customer");
    assert_eq!(
        (&read["method"], &read["path"]),
        (&json!("GET"), &json!("/customers/{id}"))
    );
    assert_eq!(
        (&read["status"], &read["outcome"]),
        (&json!(200), &json!("done"))
    );
    let body = json!({"asked": "GET /customers/hidden-argument"}).to_string();
    assert_eq!(read["response_bytes"], body.len());
    assert!(read["latency_us"].as_i64().unwrap() > 0);
    assert_eq!(
        (&slow["status"], &slow["outcome"]),
        (&Value::Null, &json!("timed_out"))
    );
    assert!(slow["latency_us"].as_i64().unwrap() >= 900_000, "{slow}");
}

#[tokio::test]
async fn a_document_may_lie_in_a_config_map_and_operations_be_left_out() {
    let service = service().await;
    let reference = json!({"name": "docs", "key": "crm.json"});
    let openapi = json!({
        "configMapKeyRef": reference, "baseUrl": service.server.url("/v1/"),
        "include": ["*customer*", "GET /trouble/*"], "exclude": ["delete_*"],
    });
    let gateway = Gateway::open(&[
        workspace(),
        source("crm", json!({"openapi": openapi, "toolPrefix": "shop"})),
        agent(
            "each",
            json!({"tools": ["crm/*"], "listing": "PerOperation"}),
        ),
        grant("all", &["crm/*"], json!({})),
        secret("unused", "x", None),
    ])
    .await;
    let failed = gateway
        .until("crm", |known| known["failure"].is_object())
        .await;
    assert_eq!(failed["failure"]["reason"], "ConfigMapNotFound");
    let text = customers().to_string();
    gateway.write("docs.yaml", &[config_map("docs", "crm.json", &text)]);
    gateway.until("crm", |known| known["served"] == 4).await;
    let mut listed = gateway.list("each").await;
    listed.sort();
    let names = ["shop_add_customer", "shop_get_customer"];
    let more = ["shop_get_trouble_by_what", "shop_list_customers"];
    assert_eq!(listed, [names, more].concat());
    gateway
        .call("each", "shop_get_customer", json!({"id": "7"}))
        .await
        .text();
    assert_eq!(asked(&service.calls()[0]), "GET /v1/customers/7");
}
