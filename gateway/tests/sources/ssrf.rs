//! P12 at every place where a URL can stand: what a person wrote, what a document says, and where an upstream points.

use chandlery_crds::crd::Kind;
use chandlery_crds::schema;
use serde_json::{Value, json};

use crate::dns::Dns;
use crate::harness::{Gateway, Said, agent, grant, secret, source, workspace};
use crate::server::{Answer, Seen, Server, reply};
use crate::upstreams::{Service, asked, document, json_of, operation, serve};
use crate::urls::URLS;

/// Addresses of the plan that a machine may have. Those that it has get a canary on each port.
const ADDRESSES: [&str; 14] = [
    "127.0.0.1",
    "127.0.0.2",
    "[::1]",
    "169.254.169.254",
    "169.254.170.2",
    "100.100.100.200",
    "192.0.0.192",
    "168.63.129.16",
    "10.96.0.1",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.0.1",
    "[fd00::1]",
    "[fd00:ec2::254]",
];

/// The port of all canaries, besides 80 where that is free.
async fn canaries() -> (u16, Vec<Server>) {
    let first = Server::canary("127.0.0.1:0").await.unwrap();
    let port = first.address.port();
    let mut all = vec![first];
    for address in ADDRESSES {
        for port in [port, 80] {
            all.extend(Server::canary(&format!("{address}:{port}")).await);
        }
    }
    (port, all)
}

#[track_caller]
fn assert_silent(canaries: &[Server], place: &str) {
    for canary in canaries {
        assert_eq!(canary.connections(), 0, "{place}: {}", canary.address);
    }
}

/// The URLs of the plan, on the usual port and on that of the canaries.
fn urls(port: u16) -> Vec<String> {
    let parts = [String::new(), format!(":{port}")];
    let all = URLS
        .iter()
        .flat_map(|url| parts.iter().map(|part| url.replace("{p}", part)));
    let mut all: Vec<String> = all.collect();
    all.dedup();
    all
}

fn things(server: Value) -> String {
    let mut document = document(json!({"/thing": {"get": operation("get")}}));
    document["servers"] = json!([server]);
    document.to_string()
}

/// Points to the URL whose number is in the path, or serves a document that does.
fn lead_on(seen: &Seen, urls: &[String]) -> Option<Answer> {
    let path = asked(seen).split(' ').nth(1)?.split('?').next()?;
    let mut parts = path.trim_start_matches('/').split('/');
    let (what, url) = (
        parts.next()?,
        urls.get(parts.next()?.parse::<usize>().ok()?)?,
    );
    Some(match what {
        "redirect" => {
            let location = format!("location: {url}\r\n");
            let status = [
                "301 Moved",
                "302 Found",
                "303 See Other",
                "307 Temporary",
                "308 Permanent",
            ];
            Answer::Raw(reply(status[url.len() % status.len()], &location, ""))
        }
        "challenge" => {
            let challenge = format!(
                "www-authenticate: Bearer resource_metadata=\"{url}\"\r\nlink: <{url}>; rel=\"preconnect\"\r\n"
            );
            Answer::Raw(reply("401 Unauthorized", &challenge, ""))
        }
        _ => {
            let mut of_its_own = operation("own");
            of_its_own["servers"] = json!([{"url": url}]);
            let mut referring = operation("refer");
            referring["parameters"] = json!([
                {"$ref": url}, {"name": "q", "in": "query", "schema": {"$ref": format!("{url}#/x")}},
            ]);
            referring["requestBody"] = json!({"$ref": url});
            let mut fine = operation("get");
            fine["externalDocs"] = json!({"url": url});
            let mut document = document(json!({
                "/thing": {"get": fine, "post": referring}, "/own": {"get": of_its_own}, "/path": {"$ref": url},
            }));
            document["jsonSchemaDialect"] = json!(url);
            document["$schema"] = json!(url);
            document["components"] = json!({"securitySchemes": {"o": {"type": "oauth2", "flows": {
                "clientCredentials": {"tokenUrl": url, "scopes": {}}}}}});
            json_of("200 OK", &document)
        }
    })
}

/// `spec` of a source that has the URL, or its number, at `place`.
fn spec(place: &str, url: &str, number: usize, upstream: &Server) -> Value {
    let fine = things(json!({"url": upstream.url("/")}));
    let at = |what: &str| upstream.url(&format!("/{what}/{number}"));
    let tokens = |token_url: &str| {
        json!({"oauthClientCredentials": {
            "tokenUrl": token_url, "clientId": "c", "secretKeyRef": {"name": "s", "key": "value"},
        }})
    };
    let based = json!({"inline": fine, "baseUrl": upstream.url("/")});
    match place {
        "spec.openapi.url" => json!({"openapi": {"url": url}}),
        "spec.openapi.baseUrl" => json!({"openapi": {"inline": fine, "baseUrl": url}}),
        "servers" => json!({"openapi": {"inline": things(json!({"url": url}))}}),
        "servers with variables" => {
            let variables = json!({"url": "{all}", "variables": {"all": {"default": url}}});
            json!({"openapi": {"inline": things(variables)}})
        }
        "spec.mcp.url" => json!({"mcp": {"url": url}}),
        "tokenUrl" => json!({"openapi": based, "auth": tokens(url)}),
        "document" => json!({"openapi": {"url": at("document")}}),
        "redirect of a document" => json!({"openapi": {"url": at("redirect")}}),
        "redirect of a call" => {
            let calls = upstream.url(&format!("/redirect/{number}"));
            json!({"openapi": {"inline": fine, "baseUrl": calls}})
        }
        "redirect of an MCP server" => json!({"mcp": {"url": at("redirect")}}),
        "redirect of a token server" => json!({"openapi": based, "auth": tokens(&at("redirect"))}),
        "challenge of an MCP server" => json!({"mcp": {"url": at("challenge")}}),
        other => panic!("no such place: {other}"),
    }
}

async fn check(place: &str) {
    let (port, canaries) = canaries().await;
    let dns = Dns::start(|_, _| vec!["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()]).await;
    let urls = urls(port);
    let known = urls.clone();
    let upstream = serve(move |seen, _| {
        lead_on(seen, &known).unwrap_or_else(|| json_of("200 OK", &json!({})))
    })
    .await;
    let mut manifests = vec![workspace(), secret("s", "secret-value", None)];
    let (mut names, mut refused) = (Vec::new(), 0);
    for (number, url) in urls.iter().enumerate() {
        let name = format!("s{number}");
        let source = source(&name, spec(place, url, number, &upstream));
        if !schema::validate(Kind::ToolSource, &source, None).is_empty() {
            refused += 1;
            continue;
        }
        manifests.push(source);
        names.push(name);
    }
    let entries: Vec<String> = names.iter().map(|name| format!("{name}/*")).collect();
    let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
    // Agents, too, may name so many only.
    for (at, entries) in entries.chunks(60).enumerate() {
        let name = format!("a{at}");
        manifests.push(agent(
            &name,
            json!({"tools": entries, "listing": "PerOperation"}),
        ));
        manifests.push(grant(&name, entries, json!({"agents": {"names": [name]}})));
    }
    let gateway = Gateway::open_with(&manifests, &dns).await;
    for name in &names {
        gateway
            .until(name, |known| {
                known["failure"].is_object() || known["served"] != 0
            })
            .await;
    }
    let mut called = 0;
    for at in 0..entries.chunks(60).len() {
        let agent = format!("a{at}");
        for tool in gateway.list(&agent).await {
            let said = gateway.call(&agent, &tool, json!({})).await;
            called += 1;
            // What the document's own, allowed server answers is no matter.
            let is_fine = place == "document" && tool.ends_with("_get");
            assert!(
                is_fine || matches!(said, Said::Refused(_)),
                "{place}, {tool}: {said:?}"
            );
        }
    }
    assert_silent(&canaries, place);
    println!(
        "{place}: {} URLs, {refused} refused by the schema, {called} calls, {} canaries",
        urls.len(),
        canaries.len()
    );
    gateway.close().await;
}

macro_rules! places {
    ($($name:ident: $place:literal,)*) => {$(
        #[tokio::test]
        async fn $name() {
            check($place).await;
        }
    )*};
}

places! {
    no_canary_is_reached_by_the_url_of_a_document: "spec.openapi.url",
    no_canary_is_reached_by_a_base_url: "spec.openapi.baseUrl",
    no_canary_is_reached_by_servers_of_a_document: "servers",
    no_canary_is_reached_by_variables_of_servers: "servers with variables",
    no_canary_is_reached_by_the_url_of_an_mcp_server: "spec.mcp.url",
    no_canary_is_reached_by_the_url_of_a_token_server: "tokenUrl",
    no_canary_is_reached_by_references_and_servers_within_a_document: "document",
    no_canary_is_reached_by_a_redirect_of_a_document: "redirect of a document",
    no_canary_is_reached_by_a_redirect_of_a_call: "redirect of a call",
    no_canary_is_reached_by_a_redirect_of_an_mcp_server: "redirect of an MCP server",
    no_canary_is_reached_by_a_redirect_of_a_token_server: "redirect of a token server",
    no_canary_is_reached_by_a_challenge_of_an_mcp_server: "challenge of an MCP server",
}

/// Reliability 6.9: values of path parameters stay where they are.
#[tokio::test]
async fn no_argument_leaves_the_path_or_sets_what_is_not_its_own() {
    let text = json!({"type": "string"});
    let parameter = |name: &str, place: &str| json!({"name": name, "in": place, "required": place == "path", "schema": text});
    let mut get = operation("get");
    get["parameters"] = json!([
        parameter("name", "path"),
        parameter("q", "query"),
        parameter("api_key", "query"),
        parameter("Authorization", "header"),
        parameter("Host", "header"),
        parameter("Cookie", "header"),
        parameter("X-Forwarded-For", "header"),
        parameter("x-fine", "header"),
    ]);
    let mut described = document(json!({"/files/{name}/info": {"get": get}}));
    described["servers"] = json!([{"url": "/v1/base"}]);
    let service = Service::start(described).await;
    let auth = json!({"query": {"name": "api_key", "secretKeyRef": {"name": "s", "key": "value"}}});
    let gateway = Gateway::open(&[
        workspace(),
        secret("s", "secret-value", None),
        source("s", json!({"openapi": service.spec(), "auth": auth})),
        agent("a", json!({"tools": ["s/*"], "listing": "PerOperation"})),
        grant("g", &["s/*"], json!({})),
    ])
    .await;
    let known = gateway
        .until("s", |known| {
            known["failure"].is_object() || known["served"] == 1
        })
        .await;
    assert!(known["failure"].is_null(), "{known:#}");
    let tool = gateway.tool("a", "s_get").await;
    let properties = tool["inputSchema"]["properties"].as_object().unwrap();
    let names: Vec<&str> = properties.keys().map(String::as_str).collect();
    assert_eq!(names, ["name", "q", "x-fine"]);
    let values = [
        "../admin",
        "..%2fadmin",
        "..%2Fadmin",
        "%2e%2e/",
        "%2e%2e%2fadmin",
        "a/b",
        "a?x=1",
        "a#x",
        ";x",
        "\\",
        "..\\admin",
        "//evil",
        "//evil.example/x",
        "http://evil.example/",
        "a\r\nX-Evil: 1",
        "a\nb",
        "a\0b",
        "@evil.example",
        ".",
        "..",
        "",
        " ",
        "%00",
        "a%0d%0aX-Evil:%201",
        "．．",
        "‥",
        "..;/admin",
        "\u{202e}x",
    ];
    let mut arrived = 0;
    for value in values {
        let before = service.calls().len();
        let said = gateway.call("a", "s_get", json!({"name": value})).await;
        let calls = service.calls();
        let Some(seen) = calls.get(before) else {
            assert!(said.refusal().contains("name"), "{value:?}: {said:?}");
            continue;
        };
        arrived += 1;
        let path = asked(seen)
            .strip_prefix("GET ")
            .unwrap()
            .split('?')
            .next()
            .unwrap();
        let steps: Vec<&str> = path.split('/').collect();
        assert_eq!(steps.len(), 6, "{value:?}: {path}");
        assert_eq!(
            (&steps[..4], steps[5]),
            (&["", "v1", "base", "files"][..], "info"),
            "{value:?}"
        );
        assert!(seen.header("x-evil").is_none(), "{value:?}");
        let decoded = percent_encoding::percent_decode_str(steps[4])
            .decode_utf8()
            .unwrap();
        assert_eq!(decoded, value, "{path}");
        assert_ne!(steps[4], "..");
    }
    assert!(arrived >= 15, "{arrived}");
    for (name, value) in [
        ("q", "x&api_key=mine"),
        ("q", "x#y"),
        ("x-fine", "a\r\nAuthorization: mine"),
        ("x-fine", "fine"),
        ("api_key", "mine"),
        ("Authorization", "mine"),
        ("authorization", "mine"),
        ("Host", "evil"),
        ("Cookie", "mine"),
    ] {
        let before = service.calls().len();
        let arguments = json!({"name": "a", name: value});
        let said = gateway.call("a", "s_get", arguments).await;
        match service.calls().get(before) {
            None => {
                said.refusal();
            }
            Some(seen) => {
                let line = asked(seen);
                assert_eq!(line.matches("api_key=").count(), 1, "{line}");
                assert!(line.contains("api_key=secret-value"), "{line}");
                for header in ["authorization", "cookie", "x-forwarded-for"] {
                    assert!(
                        seen.header(header).is_none(),
                        "{name}={value}: {}",
                        seen.head
                    );
                }
                assert!(seen.header("host").unwrap().starts_with("127.0.0.3:"));
            }
        }
    }
}
