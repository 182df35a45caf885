//! `chandlery import` as people call it: the built program, real sockets, and what it writes served by a gateway.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

#[expect(dead_code, reason = "other tests use all of it")]
#[path = "outbound/dns.rs"]
mod dns;
#[expect(dead_code, reason = "other tests use all of it")]
#[path = "sources/harness.rs"]
mod harness;
#[expect(dead_code, reason = "other tests use all of it")]
#[path = "gate/said.rs"]
mod said;
#[expect(dead_code, reason = "other tests use all of it")]
#[path = "outbound/server.rs"]
mod server;
#[expect(dead_code, reason = "other tests use all of it")]
#[path = "sources/upstreams.rs"]
mod upstreams;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use harness::{Gateway, SOON, agent, secret, workspace};
use said::Said;
use server::{Answer, Seen, reply};
use upstreams::{Service, document, json_of, mcp, mcp_tool, operation, serve};

const CANARY: &str = "canary-Zq7-of-the-upstream";
/// What every import here is for.
const FOR: [&str; 6] = [
    "--namespace",
    "team",
    "--workspace",
    "lab",
    "--agent",
    "bot",
];
/// Where the tests' upstreams listen.
const ALLOWED: [&str; 2] = ["--allow-host", "127.0.0.3"];

/// Exit code, output and errors of the program.
type Ended = (i32, String, String);

/// Runs the program with a credential in its environment.
async fn run(arguments: &[&str], input: &str) -> Ended {
    let arguments: Vec<String> = arguments.iter().map(|&one| one.to_owned()).collect();
    let input = input.to_owned();
    let ran = tokio::task::spawn_blocking(move || {
        let mut child = Command::new(env!("CARGO_BIN_EXE_chandlery"))
            .args(arguments)
            .env("UPSTREAM_TOKEN", CANARY)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Whoever does not read closes it.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    });
    let output = ran.await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let ended = (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    );
    assert!(
        !ended.1.contains(CANARY) && !ended.2.contains(CANARY),
        "{ended:?}"
    );
    ended
}

/// Runs an import for the agent `bot`.
async fn import(arguments: &[&str], input: &str) -> Ended {
    let arguments = [&["import"], arguments, &FOR].concat();
    run(&arguments, input).await
}

/// What an import that works writes, which has to pass `chandlery lint` beside its Workspace and its Agent.
async fn imported(arguments: &[&str], input: &str) -> String {
    let (code, text, errors) = import(arguments, input).await;
    assert_eq!((code, errors.as_str()), (0, ""), "{text}");
    let mut all = text.clone();
    for own in home() {
        all.push_str(&format!("---\n{own}\n"));
    }
    let (code, said, _) = run(&["lint", "-f", "-"], &all).await;
    assert_eq!(code, 0, "{said}{all}");
    text
}

/// What has to be there beside what is imported.
fn home() -> [Value; 2] {
    let tools = json!({"tools": ["customers/*"], "listing": "PerOperation"});
    [workspace(), agent("bot", tools)]
}

fn objects(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap()
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let found = objects.iter().find(|object| object["kind"] == kind);
    found.unwrap_or_else(|| panic!("no {kind}"))
}

/// A gateway on what was written, beside the Workspace, the Agent and the Secret.
async fn served(text: &str) -> Gateway {
    let mut manifests = objects(text);
    manifests.extend(home());
    let mut credential = secret("customers", "", Some("127.0.0.3"));
    credential["stringData"] = json!({"token": CANARY, "key": CANARY});
    manifests.push(credential);
    Gateway::start(&manifests, &[]).await
}

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
    assert_eq!(source["spec"]["openapi"], json!({"url": url}));

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

/// The stand-in of an example on a port of its own; it ends with this.
struct Stand {
    child: Child,
    port: String,
}

impl Drop for Stand {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../examples")
        .join(name)
}

impl Stand {
    fn start(name: &str) -> Self {
        let port = free_port();
        let child = Command::new("python3")
            .args([&example(name).join("fake.py").to_string_lossy(), &*port])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let stand = Self { child, port };
        let deadline = Instant::now() + SOON;
        while std::net::TcpStream::connect(format!("127.0.0.1:{}", stand.port)).is_err() {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(50));
        }
        stand
    }

    /// The manifests of the example in the namespace `team`, about this port instead of `port`.
    fn manifests(&self, name: &str, port: &str) -> Vec<Value> {
        let mut files: Vec<PathBuf> = std::fs::read_dir(example(name))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|end| end == "yaml"))
            .collect();
        files.sort();
        let texts = files
            .iter()
            .map(|path| std::fs::read_to_string(path).unwrap());
        let mut manifests: Vec<Value> = texts
            .flat_map(|text| objects(&text.replace(port, &self.port)))
            .collect();
        for manifest in &mut manifests {
            manifest["metadata"]["namespace"] = json!("team");
        }
        manifests
    }
}

fn free_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_of_a_document_can_be_tried() {
    let stand = Stand::start("openapi");
    let gateway = Gateway::start(&stand.manifests("openapi", "9911"), &[]).await;
    let lists = [
        "petshop_orders_read",
        "petshop_orders_write",
        "petshop_orders_delete",
        "petshop_pets_read",
        "petshop_pets_write",
    ];
    let deadline = Instant::now() + SOON;
    while gateway.list("seller").await.len() < lists.len() {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let listed = gateway.list("seller").await;
    assert!(
        lists
            .iter()
            .all(|name| listed.iter().any(|own| own == name)),
        "{listed:?}"
    );
    let asked = json!({"action": "listPets", "status": ["available"], "limit": 1, "response_format": "raw"});
    let said = gateway.call("seller", "petshop_pets_read", asked).await;
    assert!(
        said.text().contains("Minka") && !said.text().contains("Bello"),
        "{said:?}"
    );
    let photo = json!({"action": "uploadPhoto", "petId": 1, "photo": "iVBORw0KGgo="});
    let said = gateway
        .call("seller", "petshop_pets_write", photo.clone())
        .await;
    let Said::Awaiting(id) = said else {
        panic!("{said:?}");
    };
    gateway
        .api("POST", &format!("/approvals/{id}/approve"))
        .await;
    let said = gateway.call("seller", "petshop_pets_write", photo).await;
    assert!(said.text().contains("/pets/1/photos/1"), "{said:?}");

    // Its document says that the service is elsewhere than where it was read, so that is written down.
    let url = format!("http://127.0.0.1:{}/openapi.yaml", stand.port);
    let hosts = ["--allow-host", "127.0.0.1", "--name", "customers"];
    let text = imported(&[&["openapi", &url][..], &hosts].concat(), "").await;
    let objects = objects(&text);
    let spec = &of_kind(&objects, "ToolSource")["spec"];
    assert_eq!(
        spec["openapi"],
        json!({"url": url, "baseUrl": "http://127.0.0.1:9911/v1"})
    );
    assert_eq!(spec["auth"]["bearer"]["secretKeyRef"]["key"], "token");
    assert_eq!(
        of_kind(&objects, "ToolGrant")["spec"]["tools"]
            .as_array()
            .unwrap()
            .len(),
        6
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_of_a_remote_server_can_be_tried() {
    let stand = Stand::start("remote-mcp");
    let manifests = stand.manifests("remote-mcp", "9912");
    let gateway = Gateway::start(&manifests, &[]).await;
    gateway
        .until_listed(
            "reader",
            &["library_find_books", "library_get_book", "library_add_book"],
        )
        .await;
    let said = gateway
        .call("reader", "library_find_books", json!({"words": "moby"}))
        .await;
    assert_eq!(said.text(), r#"{"2": "Moby-Dick"}"#);

    let url = format!("http://127.0.0.1:{}/mcp", stand.port);
    let text = imported(
        &[
            "mcp",
            &url,
            "--allow-host",
            "127.0.0.1",
            "--name",
            "customers",
        ],
        "",
    )
    .await;
    let found = objects(&text);
    // The revision that the example approves is the one that there is.
    let approved = |objects: &[Value]| {
        of_kind(objects, "ToolSource")["spec"]["pinning"]["approvedRevision"].clone()
    };
    assert_eq!(approved(&manifests), approved(&found));
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
