//! Both lanes, the same odd requests, the same answers.

use chandlery_gateway::http::Settings;
use serde_json::Value;

use crate::harness::{Gateway, NEWER, OLDER};

/// Bodies that a client may send; `META` stands for what the newer era wants in `_meta`.
const BODIES: &[&str] = &[
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{META}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":null}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[]}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":"x"}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{META,"cursor":null}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{META,"cursor":"wrong"}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{META,"cursor":5}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{META,"name":"fixture_echo"}}"#,
    r#"{"jsonrpc":"2.0","id":"a","method":"tools/list","params":{META}}"#,
    r#"{"jsonrpc":"2.0","id":"\u00e9\"\\","method":"tools/list","params":{META}}"#,
    r#"{"jsonrpc":"2.0","id":"\ud83d\ude00","method":"tools/list","params":{META}}"#,
    r#"{"jsonrpc":"2.0","id":"\ud800","method":"tools/list","params":{META}}"#,
    r#"{"jsonrpc":"2.0","id":1.5,"method":"tools/list","params":{META}}"#,
    r#"{"jsonrpc":"2.0","id":1e2,"method":"tools/list","params":{META}}"#,
    r#"{"jsonrpc":"2.0","id":-7,"method":"tools/list","params":{META}}"#,
    r#"{"jsonrpc":"2.0","id":-0,"method":"tools/list","params":{META}}"#,
    r#"{"jsonrpc":"2.0","id":9223372036854775807,"method":"tools/list","params":{META}}"#,
    r#"{"jsonrpc":"2.0","id":9223372036854775808,"method":"tools/list","params":{META}}"#,
    r#"{"jsonrpc":"2.0","id":99999999999999999999999,"method":"tools/list","params":{META}}"#,
    r#"{"jsonrpc":"2.0","id":null,"method":"tools/list","params":{META}}"#,
    r#"{"jsonrpc":"2.0","id":true,"method":"tools/list","params":{META}}"#,
    r#"{"jsonrpc":"2.0","id":{},"method":"tools/list","params":{META}}"#,
    r#"{"jsonrpc":"2.0","id":[1],"method":"tools/list","params":{META}}"#,
    r#"{"jsonrpc":"2.0","method":"tools/list","params":{META}}"#,
    r#"{"jsonrpc":"1.0","id":1,"method":"tools/list","params":{META}}"#,
    r#"{"jsonrpc":2.0,"id":1,"method":"tools/list","params":{META}}"#,
    r#"{"jsonrpc":null,"id":1,"method":"tools/list","params":{META}}"#,
    r#"{"id":1,"method":"tools/list","params":{META}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{META},"result":{}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{META},"extra":[1,{"a":null}]}"#,
    r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/list","params":{META}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"Tools/List","params":{META}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/nothing","params":{META}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":5,"params":{META}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"","params":{META}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"t\u006fols/list","params":{META}}"#,
    r#"{"jsonrpc":"2.0","id":1,"params":{META}}"#,
    r#" { "jsonrpc" : "2.0" , "id" : 1 , "method" : "tools/list" , "params" : { META } } "#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{META,"name":"fixture_echo"}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{META,"name":"fixture_echo","arguments":{}}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{META,"name":"fixture_echo","arguments":null}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{META,"name":"fixture_echo","arguments":[]}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{META,"name":"fixture_echo","arguments":"x"}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{META,"name":"fixture_echo","arguments":{"a":"\ud800"}}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{META,"name":"fixture_echo","arguments":{"\ud800":1}}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{META,"name":"fixture_echo","arguments":{"a":1e999}}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{META,"name":"fixture_echo","arguments":{"a":123456789012345678901234567890}}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{META,"name":"fixture_echo","arguments":{"a":1,"a":2}}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{META,"name":"fixture_echo","arguments":{"deep":DEEP}}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{META,"name":"fixture_echo","arguments":{"fail":true}}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{META,"name":"fixture_echo","arguments":{"u":"\u0000\u2028\ud83d\ude00"}}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{META,"name":"fixture_echo","arguments":{},"extra":true}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{META,"name":"fixture_echo","inputResponses":{}}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{META,"name":"fixture_echo","inputResponses":5}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{META,"name":"fixture_echo","requestState":"x"}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{META,"name":"other_tool"}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{META,"name":"no_such_tool"}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{META,"name":"f\u0069xture_echo"}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{META,"name":""}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{META,"name":5}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{META,"name":null}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{META}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{META,"name":"fixture_much"}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{META}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"resources/list","params":{META}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{META,"name":"x"}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{META}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{META}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
    r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}"#,
    r#"[{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{META}}]"#,
    r#"null"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{META}}x"#,
    "\u{feff}{}",
];

const OLDER_VERSIONS: &[&str] = &[OLDER, "2025-06-18", "2024-11-05", NEWER, "1999-01-01"];

/// What may stand in `_meta`, besides what is right.
const METAS: &[&str] = &[
    r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#,
    r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"sampling":5}}"#,
    r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":[]}"#,
    r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#,
    r#""_meta":{"io.modelcontextprotocol/clientCapabilities":{}}"#,
    r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2025-11-25","io.modelcontextprotocol/clientCapabilities":{}}"#,
    r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2030-01-01","io.modelcontextprotocol/clientCapabilities":{}}"#,
    r#""_meta":{"io.modelcontextprotocol/protocolVersion":5,"io.modelcontextprotocol/clientCapabilities":{}}"#,
    r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"x"}}"#,
    r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"}}"#,
    r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"traceparent":"00-x"}"#,
    r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"chandlery.dev/worker":5}"#,
    r#""_meta":null"#,
    r#""_meta":[]"#,
    r#""_meta":{}"#,
    r#""_meta":{"progressToken":null}"#,
    r#""x":1"#,
];

/// Headers that the newer era sends, each right or wrong.
const HEADERS: &[&[(&str, &str)]] = &[
    &[
        ("mcp-protocol-version", NEWER),
        ("mcp-method", "METHOD"),
        ("mcp-name", "NAME"),
    ],
    &[("mcp-protocol-version", NEWER), ("mcp-method", "METHOD")],
    &[("mcp-protocol-version", NEWER), ("mcp-name", "NAME")],
    &[
        ("mcp-protocol-version", NEWER),
        ("mcp-method", "tools/other"),
        ("mcp-name", "NAME"),
    ],
    &[
        ("mcp-protocol-version", NEWER),
        ("mcp-method", "METHOD"),
        ("mcp-name", "other"),
    ],
    &[
        ("mcp-protocol-version", NEWER),
        ("mcp-method", "METHOD"),
        ("mcp-name", "=?base64?Zml4dHVyZV9lY2hv?="),
    ],
    &[
        ("mcp-protocol-version", NEWER),
        ("mcp-method", "METHOD"),
        ("mcp-method", "METHOD"),
        ("mcp-name", "NAME"),
    ],
    &[
        ("mcp-protocol-version", NEWER),
        ("mcp-method", "METHOD"),
        ("mcp-name", "NAME"),
        ("mcp-name", "other"),
    ],
    &[
        ("mcp-protocol-version", NEWER),
        ("mcp-protocol-version", OLDER),
        ("mcp-method", "METHOD"),
        ("mcp-name", "NAME"),
    ],
    &[
        ("mcp-protocol-version", NEWER),
        ("mcp-method", "METHOD"),
        ("mcp-name", "NAME"),
        ("mcp-param-x", "1"),
    ],
    &[
        ("mcp-protocol-version", "2030-01-01"),
        ("mcp-method", "METHOD"),
        ("mcp-name", "NAME"),
    ],
    &[
        ("mcp-protocol-version", OLDER),
        ("mcp-method", "METHOD"),
        ("mcp-name", "NAME"),
    ],
    &[("mcp-method", "METHOD"), ("mcp-name", "NAME")],
    &[],
];

/// Two gateways that differ in their lanes only, and a session on each.
struct Lanes {
    gateways: [Gateway; 2],
    sessions: [String; 2],
    compared: usize,
    different: Vec<String>,
}

impl Lanes {
    async fn start() -> Self {
        let fast = Gateway::start(Settings::default()).await;
        let slow = Gateway::start(Settings {
            fast_lane: false,
            ..Settings::default()
        })
        .await;
        Self {
            sessions: [fast.session().await, slow.session().await],
            gateways: [fast, slow],
            compared: 0,
            different: Vec::new(),
        }
    }

    /// Sends the same to both; status, kind and body must be alike.
    async fn compare(&mut self, headers: &[(&str, &str)], body: &str) {
        let mut answers = Vec::new();
        for (gateway, session) in self.gateways.iter().zip(&self.sessions) {
            let mut call = gateway.one();
            for (name, value) in headers {
                let value = if *value == "SESSION" { session } else { *value };
                call = call.header(name, value);
            }
            let answer = call.body(body.to_owned()).send().await;
            let said: Result<Value, _> =
                serde_json::from_str(&answer.text.replace(session, "SESSION"));
            let said = said.unwrap_or(Value::String(answer.text.clone()));
            answers.push((answer.status, answer.kind().to_owned(), said));
        }
        self.compared += 1;
        if answers[0] != answers[1] {
            let [fast, slow] = [&answers[0], &answers[1]].map(|answer| format!("{answer:?}"));
            self.different.push(format!(
                "{headers:?}\n{body}\nfast: {fast:.400}\nslow: {slow:.400}"
            ));
        }
    }

    async fn stop(self) -> usize {
        for gateway in self.gateways {
            gateway.stop().await;
        }
        assert!(self.different.is_empty(), "{}", self.different.join("\n\n"));
        self.compared
    }
}

fn body(template: &str, meta: &str) -> String {
    template
        .replace("META", meta)
        .replace("DEEP", &format!("{}{}", "[".repeat(200), "]".repeat(200)))
}

/// The headers that fit a body, with METHOD and NAME filled in.
fn fitting<'h>(headers: &[(&'h str, &'h str)], template: &str) -> Vec<(&'h str, &'h str)> {
    let method = if template.contains("tools/call") {
        "tools/call"
    } else {
        "tools/list"
    };
    let fill = |value| match value {
        "METHOD" => Some(method),
        "NAME" => template.contains("\"name\":").then_some("fixture_echo"),
        other => Some(other),
    };
    let headers = headers.iter();
    headers
        .filter_map(|(name, value)| Some((*name, fill(value)?)))
        .collect()
}

#[tokio::test]
async fn both_lanes_answer_odd_bodies_alike() {
    let mut lanes = Lanes::start().await;
    for template in BODIES {
        // The newer era, with headers that fit.
        let body = body(template, METAS[0]);
        lanes.compare(&fitting(HEADERS[0], template), &body).await;
        // The older era, in a session and without one.
        let older = body.replace(METAS[0], "\"_meta\":{}");
        for version in OLDER_VERSIONS {
            let headers = [
                ("mcp-session-id", "SESSION"),
                ("mcp-protocol-version", *version),
            ];
            lanes.compare(&headers, &older).await;
        }
        lanes
            .compare(&[("mcp-session-id", "SESSION")], &older)
            .await;
        lanes.compare(&[("mcp-session-id", "0123")], &older).await;
        lanes.compare(&[], &older).await;
    }
    assert!(lanes.stop().await >= 60 * 6);
}

#[tokio::test]
async fn both_lanes_answer_odd_headers_and_metadata_alike() {
    let mut lanes = Lanes::start().await;
    let templates = [BODIES[0], BODIES[39]];
    for template in templates {
        for meta in METAS {
            for headers in HEADERS {
                let headers = fitting(headers, template);
                let body = body(template, meta);
                lanes.compare(&headers, &body).await;
                let mut in_session = headers;
                in_session.push(("mcp-session-id", "SESSION"));
                lanes.compare(&in_session, &body).await;
            }
        }
    }
    assert!(lanes.stop().await >= 120);
}
