//! What is written for a document and for a server, and what a gateway makes of it.

use serde_json::{Value, json};

use crate::program::*;
use crate::said::Said;
use crate::server::{Answer, Seen, reply};
use crate::upstreams::{Service, document, json_of, mcp, mcp_tool, operation, serve};

fn customers() -> Value {
    let mut list = operation("list_customers");
    list["description"] = json!("Lists \u{200b}customers.");
    let paths = json!({
        "/customers": {"get": list, "post": operation("add_customer")},
        "/customers/all": {"delete": operation("delete_customers")},
        "/elsewhere": {"get": {"operationId": "broken", "parameters": [{"$ref": "other.yaml#/p"}], "responses": {}}},
    });
    document(paths)
}

/// A service that answers whoever has the credential.
async fn guarded() -> Service {
    let refuse = |seen: &Seen| {
        let is_known = seen.header("authorization") == Some(&format!("Bearer {CANARY}"));
        (!is_known).then(|| json_of("401 Unauthorized", &json!({})))
    };
    Service::start_with(customers(), refuse).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_at_a_url_becomes_a_source_that_serves_what_only_reads() {
    let service = guarded().await;
    let url = service.server.url("/openapi.json");
    let asked = ["openapi", &url, "--bearer-from-env", "UPSTREAM_TOKEN"];
    let text = imported(&[&asked[..], &ALLOWED].concat(), "").await;
    for line in [
        "# Tools: 3. ",
        "# Left out: 1\n#   broken: GET /elsewhere: `$ref: other.yaml#/p` leaves the document",
        "# Held characters that nobody sees, which are taken out: 1\n#   list_customers: ",
        "kubectl create secret generic customers --from-file=token=FILE\n",
        "  - \"customers/list_customers\" # GET /customers: Does list_customers.\n",
        "  # - \"customers/add_customer\" # POST /customers: Does add_customer.\n",
        "  # - \"customers/delete_customers\" # DELETE /customers/all: Does delete_customers.\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let objects = objects(&text);
    let source = of_kind(&objects, "ToolSource");
    assert_eq!(
        source["metadata"],
        json!({"name": "customers", "namespace": "team"})
    );
    assert_eq!(source["spec"]["allowedHosts"], json!(["127.0.0.3"]));
    let base = service.server.url("/");
    assert_eq!(
        source["spec"]["openapi"],
        json!({"url": url, "baseUrl": base})
    );

    let gateway = served(&text).await;
    gateway
        .until_listed("bot", &["customers_list_customers"])
        .await;
    let said = gateway
        .call("bot", "customers_list_customers", json!({}))
        .await;
    assert_eq!(said.text(), r#"{"asked":"GET /customers"}"#);
    let known = gateway
        .until("customers", |known| known["served"].is_number())
        .await;
    // The revision that was written is the one that the gateway finds.
    assert_eq!(
        known["revision"],
        source["spec"]["pinning"]["approvedRevision"]
    );
    assert_eq!(known["withheld"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_private_address_is_asked_only_if_it_is_named() {
    let service = guarded().await;
    for kind in ["openapi", "mcp"] {
        let (code, text, errors) = import(&[kind, &service.server.url("/openapi.json")], "").await;
        assert_eq!((code, text.as_str()), (1, ""));
        assert!(
            errors.contains("127.0.0.3") && errors.contains("--allow-host"),
            "{errors}"
        );
    }
    assert_eq!(service.server.connections(), 0);
    let url = service.server.url("/openapi.json");
    for kind in ["openapi", "mcp"] {
        let (code, _, errors) = import(&[&[kind, &url][..], &ALLOWED].concat(), "").await;
        assert_eq!(code, 1);
        assert!(errors.contains("401"), "{errors}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_of_a_file_lies_in_a_config_map() {
    let service = Service::start(customers()).await;
    let text = customers().to_string();
    // Nobody knows where its service is.
    let (code, _, errors) = import(&["openapi", "-"], &text).await;
    assert_eq!(code, 1);
    assert!(
        errors.contains("names no server") && errors.contains("--base-url"),
        "{errors}"
    );

    let base = service.server.url("/v1");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("customers.json");
    std::fs::write(&file, &text).unwrap();
    let asked = ["openapi", file.to_str().unwrap(), "--base-url", &base];
    let written = imported(&[&asked[..], &ALLOWED].concat(), "").await;
    let all = objects(&written);
    assert_eq!(
        of_kind(&all, "ConfigMap")["data"],
        json!({"openapi.json": text})
    );
    let gateway = served(&written).await;
    gateway
        .until_listed("bot", &["customers_list_customers"])
        .await;
    let said = gateway
        .call("bot", "customers_list_customers", json!({}))
        .await;
    assert_eq!(said.text(), r#"{"asked":"GET /v1/customers"}"#);

    // The same from standard input.
    let asked = ["openapi", "-", "--base-url", &base];
    let piped = imported(&[&asked[..], &ALLOWED].concat(), &text).await;
    assert_eq!(objects(&piped), all);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_credential_is_sent_as_the_document_says() {
    let token = json!({"name": "customers", "key": "token"});
    let key = json!({"name": "customers", "key": "key"});
    let tokens = "https://login.example/token";
    for (scheme, auth) in [
        (
            json!({"type": "http", "scheme": "bearer"}),
            json!({"bearer": {"secretKeyRef": token}}),
        ),
        (
            json!({"type": "apiKey", "in": "header", "name": "X-Key"}),
            json!({"header": {"name": "X-Key", "secretKeyRef": key}}),
        ),
        (
            json!({"type": "apiKey", "in": "query", "name": "key"}),
            json!({"query": {"name": "key", "secretKeyRef": key}}),
        ),
        (
            json!({"type": "apiKey", "in": "cookie", "name": "key"}),
            Value::Null,
        ),
        (
            json!({"type": "http", "scheme": "basic"}),
            json!({"basic": {"username": "CHANGE-ME", "secretKeyRef": {"name": "customers", "key": "password"}}}),
        ),
        (
            json!({"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": tokens, "scopes": {"read": ""}}}}),
            json!({"oauthClientCredentials": {
                "tokenUrl": tokens, "clientId": "CHANGE-ME",
                "secretKeyRef": {"name": "customers", "key": "clientSecret"},
            }}),
        ),
    ] {
        let mut document = customers();
        document["servers"] = json!([{"url": "https://api.example/v1"}]);
        document["components"] = json!({"securitySchemes": {"own": scheme}});
        let text = imported(&["openapi", "-"], &document.to_string()).await;
        let objects = objects(&text);
        assert_eq!(of_kind(&objects, "ToolSource")["spec"]["auth"], auth);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_holds_no_more_than_it_may() {
    let paths = (0..600).map(|at| {
        (
            format!("/p{at}"),
            json!({"get": operation(&format!("get_{at}"))}),
        )
    });
    let paths: serde_json::Map<String, Value> = paths.collect();
    let text = document(paths.into()).to_string();
    let asked = ["openapi", "-", "--base-url", "https://api.example"];
    let text = imported(&asked, &text).await;
    let objects = objects(&text);
    assert_eq!(
        of_kind(&objects, "ToolGrant")["spec"]["tools"]
            .as_array()
            .unwrap()
            .len(),
        512
    );
    assert_eq!(text.matches("\n  # - \"customers/get_").count(), 88);
}

/// An MCP server of the older era, with these tools.
fn older(seen: &Seen, tools: &Value) -> Answer {
    let message: Value = serde_json::from_str(&seen.body).unwrap_or_default();
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => {
            let result = json!({
                "protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "old", "version": "1"},
            });
            let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
            let headers = "content-type: application/json\r\nmcp-session-id: one\r\n";
            return Answer::Raw(reply("200 OK", headers, &answer.to_string()));
        }
        _ if seen.header("mcp-session-id") != Some("one") => {
            return json_of("400 Bad Request", &json!({"error": "no such era"}));
        }
        "tools/list" => json!({"tools": tools}),
        "tools/call" => {
            json!({"content": [{"type": "text", "text": format!("called {}", message["params"]["name"])}]})
        }
        _ => return Answer::Raw(reply("202 Accepted", "", "")),
    };
    let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
    json_of("200 OK", &answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_server_of_either_era_becomes_a_source() {
    for speak in [mcp, older] {
        let mut find = mcp_tool("find", "Finds customers.");
        find["annotations"] = json!({"readOnlyHint": true, "title": "Find"});
        let tools = json!([find, mcp_tool("add", "Adds one.")]);
        let upstream = serve(move |seen, _| {
            if seen.header("x-key") == Some(CANARY) {
                speak(seen, &tools)
            } else {
                json_of("401 Unauthorized", &json!({}))
            }
        });
        let url = upstream.await;
        let asked = url.url("/mcp");
        let asked = [
            "mcp",
            &asked,
            "--name",
            "customers",
            "--header-from-env",
            "X-Key=UPSTREAM_TOKEN",
        ];
        let text = imported(&[&asked[..], &ALLOWED].concat(), "").await;
        for line in [
            "# Tools: 2. ",
            "  - \"customers/find\" # Find\n",
            "  # - \"customers/add\" # add\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        let gateway = served(&text).await;
        gateway.until_listed("bot", &["customers_find"]).await;
        let tool = gateway.tool("bot", "customers_find").await;
        assert_eq!(tool["annotations"]["readOnlyHint"], true);
        let said = gateway.call("bot", "customers_find", json!({})).await;
        assert_eq!(said.text(), "called \"find\"");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nothing_is_known_to_only_read_a_person_allows_each_call() {
    let tools = json!([
        mcp_tool("find", "Finds customers."),
        mcp_tool("add", "Adds one.")
    ]);
    let upstream = serve(move |seen, _| mcp(seen, &tools)).await;
    let url = upstream.url("/mcp");
    let text = imported(
        &[&["mcp", &url, "--name", "customers"][..], &ALLOWED].concat(),
        "",
    )
    .await;
    let gateway = served(&text).await;
    gateway
        .until_listed("bot", &["customers_find", "customers_add"])
        .await;
    let said = gateway.call("bot", "customers_find", json!({})).await;
    assert!(matches!(said, Said::Awaiting(_)), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_imported_is_told_in_a_sentence() {
    let swagger = r#"{"swagger": "2.0", "paths": {}}"#;
    let named = customers().to_string();
    let badly = [
        "openapi",
        "-",
        "--base-url",
        "https://a.example",
        "--name",
        "Customers",
    ];
    for (arguments, input, code, said) in [
        (
            badly.to_vec(),
            &*named,
            1,
            "ToolSource/Customers: metadata.name: a lowercase",
        ),
        (
            vec!["openapi", "-"],
            swagger,
            1,
            "Swagger 2.0 document; convert it to OpenAPI 3 first",
        ),
        (vec!["openapi", "-"], "a: [", 1, "neither JSON nor YAML"),
        (vec!["openapi", "-"], "a: b", 1, "no OpenAPI 3 document"),
        (
            vec!["openapi", "no-such-file.yaml"],
            "",
            2,
            "read no-such-file.yaml: No such file",
        ),
        (
            vec!["openapi", "ftp://a.example/x"],
            "",
            2,
            "only https:// and http:// are dialed",
        ),
        (
            vec!["mcp", "a.example"],
            "",
            2,
            "this is no URL that can be dialed",
        ),
        (
            vec!["mcp", "https://a.example", "--bearer-from-env", "NO_SUCH"],
            "",
            1,
            "NO_SUCH holds nothing",
        ),
    ] {
        let (ended, text, errors) = import(&arguments, input).await;
        assert_eq!(
            (ended, text.as_str()),
            (code, ""),
            "{arguments:?}: {errors}"
        );
        assert!(
            errors.contains(said) && errors.lines().count() == 1,
            "{arguments:?}: {errors}"
        );
    }
}
