//! Credentials of sources: they arrive, they change, they go nowhere else, and nobody ever reads them (P15).

use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::harness::{Gateway, Said, agent, grant, secret, source, workspace};
use crate::server::{Answer, Seen, reply};
use crate::upstreams::{Service, asked, document, json_of, mcp_tool, operation, serve};

fn reference(name: &str) -> Value {
    json!({"secretKeyRef": {"name": name, "key": "value"}})
}

/// `spec.auth` of each kind, out of a Secret of the same name.
fn kinds(token_url: &str) -> [(&'static str, Value); 5] {
    let with = |name: &str, mut fields: Value| {
        fields["secretKeyRef"] = reference(name)["secretKeyRef"].clone();
        fields
    };
    [
        ("bearer", json!({"bearer": reference("bearer")})),
        (
            "header",
            json!({"header": with("header", json!({"name": "X-Api-Key"}))}),
        ),
        (
            "query",
            json!({"query": with("query", json!({"name": "api_key"}))}),
        ),
        (
            "basic",
            json!({"basic": with("basic", json!({"username": "me"}))}),
        ),
        (
            "oauth",
            json!({"oauthClientCredentials": with(
                "oauth",
                json!({"tokenUrl": token_url, "clientId": "client", "scopes": ["read"]}),
            )}),
        ),
    ]
}

fn things() -> Value {
    document(json!({"/thing": {"get": operation("get")}}))
}

#[tokio::test]
async fn each_kind_arrives() {
    let service = Service::start_with(things(), |seen| {
        let token =
            json!({"access_token": "token-of-oauth", "token_type": "Bearer", "expires_in": 3600});
        asked(seen)
            .starts_with("POST /token")
            .then(|| json_of("200 OK", &token))
    })
    .await;
    let mut manifests = vec![
        workspace(),
        agent("a", json!({"tools": ["*/*"], "listing": "PerOperation"})),
    ];
    let kinds = kinds(&service.server.url("/token"));
    for (name, auth) in &kinds {
        manifests.push(source(
            name,
            json!({"openapi": service.spec_with_base(), "auth": auth}),
        ));
        manifests.push(secret(name, &format!("value-of-{name}\n"), None));
        manifests.push(grant(name, &[&format!("{name}/*")], json!({})));
        manifests.push(agent(
            &format!("a-{name}"),
            json!({"tools": [format!("{name}/*")], "listing": "PerOperation"}),
        ));
    }
    manifests.remove(1);
    let gateway = Gateway::open(&manifests).await;
    for (name, expected) in [
        (
            "bearer",
            ("authorization", "Bearer value-of-bearer".to_owned()),
        ),
        ("header", ("x-api-key", "value-of-header".to_owned())),
        (
            "query",
            ("", "GET /thing?api_key=value-of-query".to_owned()),
        ),
        (
            "basic",
            (
                "authorization",
                format!("Basic {}", STANDARD.encode("me:value-of-basic")),
            ),
        ),
        (
            "oauth",
            ("authorization", "Bearer token-of-oauth".to_owned()),
        ),
    ] {
        gateway.until(name, |known| known["served"] == 1).await;
        let (agent, tool) = (format!("a-{name}"), format!("{name}_get"));
        gateway.call(&agent, &tool, json!({})).await.text();
        let calls = service.calls();
        let last = calls.last().unwrap();
        let found = match expected.0 {
            "" => asked(last),
            header => last.header(header).unwrap_or_default(),
        };
        assert_eq!(found, expected.1, "{name}");
    }
    // The document lies where a person said that the service is, so it is asked for with the credential as well.
    let documents = service.server.seen();
    let with = documents
        .iter()
        .filter(|seen| seen.line().contains("openapi.json") && seen.header("x-api-key").is_some());
    assert!(with.count() >= 1);
    let tokens = service.calls();
    let tokens = tokens.iter().filter(|seen| asked(seen) == "POST /token");
    for token in tokens {
        let basic = STANDARD.encode("client:value-of-oauth");
        assert_eq!(
            token.header("authorization"),
            Some(&*format!("Basic {basic}"))
        );
    }
}

#[tokio::test]
async fn a_rotated_secret_is_used_at_once_after_a_refusal() {
    let wanted = Arc::new(Mutex::new("first-value".to_owned()));
    let known = wanted.clone();
    let service = Service::start_with(things(), move |seen| {
        let is_known = seen.header("authorization") == Some(&*format!("Bearer {}", known.lock()));
        (!is_known).then(|| Answer::Raw(reply("401 Unauthorized", "", "who are you")))
    })
    .await;
    let auth = json!({"bearer": reference("token")});
    let gateway = Gateway::open(&[
        workspace(),
        source(
            "s",
            json!({"openapi": service.spec_with_base(), "auth": auth}),
        ),
        agent("a", json!({"tools": ["s/*"], "listing": "PerOperation"})),
        grant("g", &["s/*"], json!({})),
    ])
    .await;
    let known = gateway
        .until("s", |known| known["failure"].is_object())
        .await;
    assert_eq!(known["failure"]["reason"], "CredentialRefused");
    gateway.write("secret.yaml", &[secret("token", "first-value", None)]);
    gateway.until("s", |known| known["served"] == 1).await;
    gateway.call("a", "s_get", json!({})).await.text();
    gateway.write("secret.yaml", &[secret("token", "second-value", None)]);
    tokio::time::sleep(std::time::Duration::from_millis(1200)).await;
    *wanted.lock() = "second-value".to_owned();
    let before = service.calls().len();
    gateway.call("a", "s_get", json!({})).await.text();
    assert_eq!(service.calls().len(), before + 2);
    gateway.call("a", "s_get", json!({})).await.text();
    assert_eq!(service.calls().len(), before + 3);
    *wanted.lock() = "third-value".to_owned();
    let said = gateway.call("a", "s_get", json!({})).await;
    assert!(said.refusal().contains("401"), "{said:?}");
}

#[tokio::test]
async fn a_secret_for_other_hosts_goes_nowhere() {
    let service = Service::start(things()).await;
    let gateway = Gateway::open(&[
        workspace(),
        source(
            "s",
            json!({"openapi": service.spec_with_base(), "auth": {"bearer": reference("token")}}),
        ),
        secret(
            "token",
            "value-for-others",
            Some("crm.example.com, 127.0.0.4"),
        ),
        source(
            "fine",
            json!({"openapi": service.spec_with_base(), "auth": {"bearer": reference("own")}}),
        ),
        secret("own", "value-for-this", Some("127.0.0.3")),
        agent("a", json!({"tools": ["s/*", "fine/*"]})),
        grant("g", &["s/*", "fine/*"], json!({})),
    ])
    .await;
    let known = gateway
        .until("s", |known| known["failure"].is_object())
        .await;
    assert_eq!(known["failure"]["reason"], "CredentialRefused");
    let message = known["failure"]["message"].as_str().unwrap();
    assert!(message.contains("allowed-hosts"), "{message}");
    gateway.until("fine", |known| known["served"] == 1).await;
    let heads: String = service
        .server
        .seen()
        .into_iter()
        .map(|seen| seen.head)
        .collect();
    assert!(heads.contains("value-for-this") && !heads.contains("value-for-others"));
}

/// P12: no credential goes to another origin than the declared one.
#[tokio::test]
async fn a_document_does_not_choose_where_the_credential_goes() {
    let thief = Service::start(things()).await;
    let mut lie = things();
    lie["servers"] = json!([{"url": thief.server.url("/")}]);
    let liar = Service::start(lie.clone()).await;
    let mut half =
        document(json!({"/thing": {"get": operation("get")}, "/own": {"get": operation("own")}}));
    half["paths"]["/thing"]["servers"] = json!([{"url": thief.server.url("/")}]);
    let half = Service::start(half).await;
    let auth = json!({"bearer": reference("token")});
    let named = json!({"url": liar.server.url("/openapi.json"), "baseUrl": liar.server.url("/")});
    let gateway = Gateway::open(&[
        workspace(),
        secret("token", "value-to-steal", None),
        source("liar", json!({"openapi": liar.spec(), "auth": auth})),
        source("half", json!({"openapi": half.spec(), "auth": auth})),
        source("named", json!({"openapi": named, "auth": auth})),
        source("without", json!({"openapi": liar.spec()})),
        agent("a", json!({"tools": ["liar/*", "half/*", "named/*", "without/*"], "listing": "PerOperation"})),
        grant("g", &["liar/*", "half/*", "named/*", "without/*"], json!({})),
    ])
    .await;
    let known = gateway
        .until("liar", |known| known["failure"].is_object())
        .await;
    assert_eq!(
        (&known["failure"]["reason"], &known["served"]),
        (&json!("Blocked"), &json!(0))
    );
    let message = known["failure"]["message"].as_str().unwrap();
    assert!(message.contains("spec.openapi.baseUrl"), "{message}");
    gateway.until("half", |known| known["served"] == 2).await;
    gateway.until("named", |known| known["served"] == 1).await;
    gateway.until("without", |known| known["served"] == 1).await;
    gateway.call("a", "half_get", json!({})).await;
    gateway.call("a", "half_own", json!({})).await.text();
    gateway.call("a", "named_get", json!({})).await.text();
    gateway.call("a", "without_get", json!({})).await.text();
    assert!(!thief.calls().is_empty());
    for seen in thief.server.seen() {
        assert!(!seen.head.contains("value-to-steal"), "{}", seen.head);
    }
    // What nobody said to be the service has given its document to a stranger.
    let with_it = |service: &Service| {
        let seen = service.server.seen().into_iter();
        seen.filter(|seen| seen.head.contains("value-to-steal"))
            .filter(|seen| asked(seen) == "GET /openapi.json")
            .count()
    };
    assert_eq!((with_it(&half), with_it(&liar)), (0, 1));
    let own = [half.calls(), liar.calls()].concat();
    assert_eq!(own.len(), 2);
    assert!(own.iter().all(|seen| seen.head.contains("value-to-steal")));
}

/// A document that wants the credential gets it by the word of a person, and the source says which word.
#[tokio::test]
async fn a_document_is_asked_for_without_the_credential_until_a_person_names_the_service() {
    let service = Service::start_with(things(), |seen| {
        let has_it = seen.header("authorization").is_some();
        (!has_it).then(|| Answer::Raw(reply("401 Unauthorized", "", "who are you")))
    })
    .await;
    let elsewhere =
        json!({"url": service.server.url("/openapi.json"), "baseUrl": "http://127.0.0.9:1/"});
    let auth = json!({"bearer": reference("token")});
    let manifest =
        |name: &str, openapi: Value| source(name, json!({"openapi": openapi, "auth": auth}));
    let gateway = Gateway::open(&[
        workspace(),
        secret("token", "value-of-token", None),
        manifest("bare", service.spec()),
        manifest("elsewhere", elsewhere),
        agent("a", json!({"tools": ["bare/*", "elsewhere/*", "said/*"]})),
        grant("g", &["bare/*", "elsewhere/*", "said/*"], json!({})),
    ])
    .await;
    for (name, advice) in [
        ("bare", "write spec.openapi.baseUrl"),
        ("elsewhere", "put the document into a ConfigMap"),
    ] {
        let known = gateway
            .until(name, |known| known["failure"].is_object())
            .await;
        let failure = &known["failure"];
        assert_eq!(failure["reason"], "CredentialRefused");
        let message = failure["message"].as_str().unwrap();
        assert!(
            message.contains("without the credential") && message.contains(advice),
            "{message}"
        );
    }
    let seen = service.server.seen();
    assert!(
        !seen.is_empty()
            && seen
                .iter()
                .all(|seen| !seen.head.contains("value-of-token"))
    );
    gateway.write("said.yaml", &[manifest("said", service.spec_with_base())]);
    gateway.until("said", |known| known["served"] == 1).await;
}

/// Says all that it heard, in every way that there is.
fn echo(seen: &Seen) -> Answer {
    let head = seen.head.replace("\r\n", " | ");
    let with = |status: &str, body: &str| {
        let kind = "content-type: text/plain\r\nx-echo: ";
        Answer::Raw(reply(status, &format!("{kind}{head}\r\n"), body))
    };
    match asked(seen).split(['?', ' ']).nth(1).unwrap_or_default() {
        "/json" => json_of(
            "200 OK",
            &json!({"heard": seen.head, "body": seen.body, "encoded": STANDARD.encode(&seen.head)}),
        ),
        "/text" => with("200 OK", &seen.head),
        "/400" => with("400 Bad Request", &seen.head),
        "/401" => with("401 Unauthorized", &seen.head),
        "/500" => with("500 Oops", &seen.head),
        "/redirect" => {
            let location = format!("location: /?{head}\r\n");
            Answer::Raw(reply("302 Found", &location, &seen.head))
        }
        _ => with("404 Not Found", &seen.head),
    }
}

/// Everything below a folder but what people wrote into it.
fn bytes_below(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with("manifests") {
            continue;
        }
        if path.is_dir() {
            all.extend(bytes_below(&path));
        } else {
            all.push((path.display().to_string(), std::fs::read(&path).unwrap()));
        }
    }
    all
}

/// How a value could be spelled: as it is, its beginning, backwards, in hex, in base64 at each offset.
fn spellings(value: &str) -> Vec<String> {
    let mut all = vec![
        value.to_owned(),
        value[..12].to_owned(),
        value.chars().rev().collect(),
        value.bytes().map(|byte| format!("{byte:02x}")).collect(),
        value.bytes().map(|byte| format!("%{byte:02X}")).collect(),
    ];
    for offset in 0..3 {
        let text = format!("{}{value}", &"~~~"[..offset]);
        let encoded = STANDARD.encode(text);
        // What depends on the neighbors is left out.
        all.push(encoded[if offset == 0 { 0 } else { 4 }..encoded.len() - 4].to_owned());
    }
    all
}

/// P15, at trace level: answers, lists, the log, the store with its audit and usage rows, and the REST API.
#[tokio::test]
async fn no_value_is_ever_read_by_anybody() {
    let mut paths = json!({});
    for name in ["json", "text", "400", "401", "500", "redirect", "404"] {
        paths[format!("/{name}")] = json!({"get": operation(&format!("get_{name}"))});
    }
    let described = document(paths);
    let token = "canary-token-Zq8vLw3Rt6";
    let service = Service::start_with(described, move |seen| {
        let asked = asked(seen);
        if asked == "POST /token" {
            let answer = json!({"access_token": token, "token_type": "Bearer", "expires_in": 3600});
            return Some(json_of("200 OK", &answer));
        }
        (!asked.starts_with("GET /openapi.json")).then(|| echo(seen))
    })
    .await;
    let server = serve(|seen, _| {
        let message: Value = serde_json::from_str(&seen.body).unwrap_or_default();
        match message["method"].as_str() {
            Some("server/discover") => json_of("200 OK", &json!({"jsonrpc": "2.0", "id": message["id"], "result": {
                "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "resultType": "complete",
            }})),
            Some("tools/list") => json_of("200 OK", &json!({"jsonrpc": "2.0", "id": message["id"], "result": {
                "resultType": "complete",
                "tools": [mcp_tool("fail", &format!("It says {}", seen.head)), mcp_tool("tell", "Tells.")],
            }})),
            Some("tools/call") if message["params"]["name"] == "tell" => {
                let content = json!([{"type": "text", "text": seen.head}]);
                let result = json!({"resultType": "complete", "content": content, "structuredContent": {"heard": seen.head}});
                json_of("200 OK", &json!({"jsonrpc": "2.0", "id": message["id"], "result": result}))
            }
            _ => {
                let error = json!({"code": -32000, "message": seen.head, "data": seen.head});
                json_of("400 Bad Request", &json!({"jsonrpc": "2.0", "id": message["id"], "error": error}))
            }
        }
    })
    .await;
    let canary = |name: &str| format!("canary-{name}-Xk29fPq7Lm");
    let mut manifests = vec![workspace()];
    let (mut entries, mut values) = (Vec::new(), vec![token.to_owned()]);
    for (name, auth) in kinds(&service.server.url("/token")) {
        manifests.push(source(
            name,
            json!({"openapi": service.spec(), "auth": auth}),
        ));
        manifests.push(secret(name, &canary(name), None));
        entries.push(format!("{name}/*"));
        values.push(canary(name));
    }
    values.push(STANDARD.encode(format!("me:{}", canary("basic"))));
    let mcp = json!({"mcp": {"url": server.url("/mcp")}, "auth": {"bearer": reference("mcp")}});
    manifests.extend([source("mcp", mcp), secret("mcp", &canary("mcp"), None)]);
    entries.push("mcp/*".to_owned());
    values.push(canary("mcp"));
    // Its failures are echoes.
    let lost = json!({"url": service.server.url("/500"), "baseUrl": service.server.url("/")});
    manifests.push(source(
        "lost",
        json!({"openapi": lost, "auth": {"bearer": reference("bearer")}}),
    ));
    let lost = json!({"oauthClientCredentials": {
        "tokenUrl": service.server.url("/401"), "clientId": "c",
        "secretKeyRef": {"name": "oauth", "key": "value"},
    }});
    manifests.push(source(
        "no-token",
        json!({"openapi": service.spec_with_base(), "auth": lost}),
    ));
    entries.extend(["lost/*".to_owned(), "no-token/*".to_owned()]);
    let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
    manifests.push(agent(
        "a",
        json!({"tools": entries, "listing": "PerOperation"}),
    ));
    manifests.push(grant("g", &entries, json!({})));
    let gateway = Gateway::start(&manifests, &["--log=trace"]).await;
    for name in ["bearer", "header", "query", "basic", "oauth"] {
        gateway.until(name, |known| known["served"] == 7).await;
    }
    gateway.until("mcp", |known| known["served"] == 2).await;
    gateway
        .until("lost", |known| known["failure"].is_object())
        .await;
    gateway
        .until("no-token", |known| known["failure"].is_object())
        .await;

    let mut heard = Vec::new();
    let listed = gateway.tools("a").await;
    for tool in &listed {
        let name = tool["name"].as_str().unwrap();
        if !["bearer", "header", "query", "basic", "oauth", "mcp"]
            .iter()
            .any(|own| name.starts_with(own))
        {
            continue;
        }
        // The breaker opens on failures; what is told then is read as well.
        let answer = gateway.result("a", name, json!({})).await;
        if name.ends_with("_get_json") {
            assert!(matches!(Said::of(&answer), Said::Text(_)), "{answer}");
        }
        heard.push((name.to_owned(), answer.to_string().into_bytes()));
    }
    assert!(heard.len() >= 5 * 7 + 2, "{}", heard.len());
    heard.push((
        "list".to_owned(),
        Value::from(listed).to_string().into_bytes(),
    ));
    for path in [
        "/sources",
        "/usage",
        "/agents",
        "/sources/team.mcp/diff",
        "/sources/team.lost/diff",
    ] {
        heard.push((
            path.to_owned(),
            gateway.api("GET", path).await.to_string().into_bytes(),
        ));
    }
    heard.push(("metrics".to_owned(), gateway.metrics().await.into_bytes()));
    gateway.usage("bearer", 7).await;
    let seen: String = service
        .server
        .seen()
        .into_iter()
        .map(|seen| seen.head)
        .collect();
    let sent = values
        .iter()
        .filter(|value| seen.contains(value.as_str()))
        .count();
    assert!(sent >= 5, "the credentials were sent: {sent}");
    let root = gateway.close().await;
    let log = std::fs::read_to_string(root.path().join("log")).unwrap();
    assert!(log.contains("TRACE"), "the log is as long as it gets");
    heard.extend(bytes_below(root.path()));
    for value in &values {
        for spelling in spellings(value) {
            for (place, text) in &heard {
                let found = memchr::memmem::find(text, spelling.as_bytes());
                if let Some(at) = found {
                    let around = &text[at.saturating_sub(200)..(at + 100).min(text.len())];
                    panic!(
                        "{value} as {spelling} in {place}: {}",
                        String::from_utf8_lossy(around)
                    );
                }
            }
        }
    }
}
