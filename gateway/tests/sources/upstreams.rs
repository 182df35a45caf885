//! Services and MCP servers that answer as a test wants, all on 127.0.0.3: what else listens on loopback is out of
//! bounds for the sources.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::server::{Answer, Seen, Server, reply};

/// Listens on 127.0.0.3.
pub(crate) async fn serve(
    handler: impl Fn(&Seen, usize) -> Answer + Send + Sync + 'static,
) -> Server {
    Server::at("127.0.0.3:0", handler).await.unwrap()
}

pub(crate) fn json_of(status: &str, value: &Value) -> Answer {
    let headers = "content-type: application/json\r\n";
    Answer::Raw(reply(status, headers, &value.to_string()))
}

/// Method, path and query of a request.
pub(crate) fn asked(seen: &Seen) -> &str {
    seen.line().trim_end_matches(" HTTP/1.1")
}

fn is_document(seen: &Seen) -> bool {
    asked(seen).split('?').next() == Some("GET /openapi.json")
}

/// An operation without arguments.
pub(crate) fn operation(id: &str) -> Value {
    json!({"operationId": id, "summary": format!("Does {id}."), "responses": {"200": {"description": "OK"}}})
}

/// A document with these paths, and no server.
pub(crate) fn document(paths: Value) -> Value {
    json!({"openapi": "3.1.0", "info": {"title": "Customers", "version": "1"}, "paths": paths})
}

/// An HTTP service that serves a document at `/openapi.json` and answers everything else with what it was asked.
pub(crate) struct Service {
    pub(crate) server: Server,
    document: Arc<Mutex<Value>>,
}

impl Service {
    pub(crate) async fn start(document: Value) -> Self {
        Self::start_with(document, |_| None).await
    }

    /// `special` answers what it wants to.
    pub(crate) async fn start_with(
        document: Value,
        special: impl Fn(&Seen) -> Option<Answer> + Send + Sync + 'static,
    ) -> Self {
        let document = Arc::new(Mutex::new(document));
        let served = document.clone();
        let server = serve(move |seen, _| {
            if let Some(answer) = special(seen) {
                return answer;
            }
            if is_document(seen) {
                return json_of("200 OK", &served.lock());
            }
            json_of("200 OK", &json!({"asked": asked(seen)}))
        });
        Self {
            server: server.await,
            document,
        }
    }

    pub(crate) fn change(&self, document: Value) {
        *self.document.lock() = document;
    }

    /// `spec.openapi` of it.
    pub(crate) fn spec(&self) -> Value {
        json!({"url": self.server.url("/openapi.json")})
    }

    /// The same, with the word of a person that the service is where its document lies.
    pub(crate) fn spec_with_base(&self) -> Value {
        json!({"url": self.server.url("/openapi.json"), "baseUrl": self.server.url("/")})
    }

    /// What was asked for besides the document.
    pub(crate) fn calls(&self) -> Vec<Seen> {
        let mut seen = self.server.seen();
        seen.retain(|seen| !is_document(seen));
        seen
    }
}

/// What an MCP server of the newer era answers that has these tools.
pub(crate) fn mcp(seen: &Seen, tools: &Value) -> Answer {
    let Ok(message) = serde_json::from_str::<Value>(&seen.body) else {
        return Answer::Raw(reply("405 Method Not Allowed", "", ""));
    };
    let result = match message["method"].as_str().unwrap_or_default() {
        "server/discover" => json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"], "ttlMs": 0, "cacheScope": "public",
            "capabilities": {"tools": {"listChanged": true}}, "serverInfo": {"name": "fake", "version": "1"},
        }),
        "tools/list" => {
            json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "public", "tools": tools})
        }
        "tools/call" => json!({
            "resultType": "complete",
            "content": [{"type": "text", "text": format!("called {}", message["params"]["name"])}],
        }),
        _ => {
            let error = json!({"code": -32601, "message": "no such method"});
            let answer = json!({"jsonrpc": "2.0", "id": message["id"], "error": error});
            return json_of("404 Not Found", &answer);
        }
    };
    json_of(
        "200 OK",
        &json!({"jsonrpc": "2.0", "id": message["id"], "result": result}),
    )
}

/// A tool of an MCP server.
pub(crate) fn mcp_tool(name: &str, description: &str) -> Value {
    json!({"name": name, "description": description, "inputSchema": {"type": "object", "properties": {}}})
}
