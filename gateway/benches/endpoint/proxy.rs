//! What a proxied call is measured with: an MCP server that does next to nothing, and a bare proxy in front of it.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::echo::run;

const SESSION: &str = "mcp-session-id";

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: &'a str,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Call<'a> {
    name: &'a str,
    #[serde(borrow)]
    arguments: &'a RawValue,
}

/// Prints its address and serves a tool `echo` with sessions, until it is killed.
pub(crate) fn upstream() -> Result<bool> {
    run(async { Ok(Router::new().route("/mcp", any(answer))) })
}

async fn answer(method: Method, body: Bytes) -> Response {
    if method != Method::POST {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let Ok(message) = serde_json::from_slice::<Message<'_>>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let Some(id) = message.id else {
        return StatusCode::ACCEPTED.into_response();
    };
    match message.method {
        "tools/call" => {
            let params = message.params.map_or("null", RawValue::get);
            let Ok(Call { arguments, .. }) = serde_json::from_str(params) else {
                return StatusCode::BAD_REQUEST.into_response();
            };
            let mut result = Vec::with_capacity(arguments.get().len() * 2 + 96);
            result.extend_from_slice(b"{\"content\":[{\"type\":\"text\",\"text\":");
            let _ = serde_json::to_writer(&mut result, arguments.get());
            result.extend_from_slice(b"}],\"isError\":false}");
            reply(id, &result)
        }
        "initialize" => {
            let result = json!({
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "bare", "version": "1"},
            });
            let mut response = reply(id, result.to_string().as_bytes());
            let session = header::HeaderValue::from_static("one");
            response.headers_mut().insert(SESSION, session);
            response
        }
        "tools/list" => {
            let schema = json!({"type": "object", "properties": {"message": {"type": "string"}}});
            let tool = json!({
                "name": "echo",
                "description": "Echoes.",
                "inputSchema": schema,
                "annotations": {"readOnlyHint": true},
            });
            reply(id, json!({"tools": [tool]}).to_string().as_bytes())
        }
        _ => {
            let error = json!({"code": -32601, "message": "Method not found"});
            let id: serde_json::Value = serde_json::from_str(id.get()).unwrap_or_default();
            json_body(json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string())
        }
    }
}

fn reply(id: &RawValue, result: &[u8]) -> Response {
    let parts: [&[u8]; 5] = [
        b"{\"jsonrpc\":\"2.0\",\"id\":",
        id.get().as_bytes(),
        b",\"result\":",
        result,
        b"}",
    ];
    json_body(parts.concat())
}

fn json_body(body: impl Into<Bytes>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body.into()).into_response()
}

#[derive(Clone)]
struct Way {
    client: Client<HttpConnector, Full<Bytes>>,
    url: String,
}

/// Prints its address and passes calls on to `upstream` with the name of the tool changed, as little as hyper can do.
pub(crate) fn raw_proxy(upstream: &str) -> Result<bool> {
    let address: SocketAddr = upstream.parse().context("the upstream's address")?;
    run(async move {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new()).build(connector);
        let url = format!("http://{address}/mcp");
        Ok(Router::new()
            .route("/", any(pass))
            .with_state(Way { client, url }))
    })
}

async fn pass(State(way): State<Way>, body: Bytes) -> Response {
    passed(&way, &body)
        .await
        .unwrap_or_else(|_| StatusCode::BAD_GATEWAY.into_response())
}

async fn passed(way: &Way, body: &[u8]) -> Result<Response> {
    let message: Message<'_> = serde_json::from_slice(body)?;
    let id = message.id.context("an id")?;
    let call: Call<'_> = serde_json::from_str(message.params.context("params")?.get())?;
    let name = call.name.strip_prefix("bare_").unwrap_or(call.name);
    let sent = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"tools/call\",\"params\":{{\"name\":\"{name}\",\"arguments\":{}}}}}",
        id.get(),
        call.arguments.get()
    );
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, "application/json".parse()?);
    headers.insert(
        header::ACCEPT,
        "application/json, text/event-stream".parse()?,
    );
    headers.insert(SESSION, "one".parse()?);
    let mut request = Request::post(&way.url).body(Full::from(sent))?;
    *request.headers_mut() = headers;
    let answer = way.client.request(request).await?;
    let body = answer.into_body().collect().await?.to_bytes();
    Ok(json_body(body))
}
