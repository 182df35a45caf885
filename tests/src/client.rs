//! A small MCP client for both protocol eras, over plain HTTP.
//!
//! It does what a client must do and no more, one connection per request, so that a test sees every answer as it is.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::net::TcpStream;

use crate::eventually;

/// How long an answer may take. Longer than the server ever lets a client wait.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// 2025-11-25: `initialize`, then a session.
    Sessions,
    /// 2026-07-28: every request stands alone.
    Stateless,
}

/// Both, for tests that must hold in each.
pub const ERAS: [Era; 2] = [Era::Sessions, Era::Stateless];

impl Era {
    pub fn version(self) -> &'static str {
        match self {
            Era::Sessions => "2025-11-25",
            Era::Stateless => "2026-07-28",
        }
    }
}

/// Where an MCP endpoint is. The address is given apart, since names of Services mean something to pods only.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub uri: Uri,
    pub address: SocketAddr,
}

/// An answer as it came. `body` is the JSON body, or the last message of the stream; null when there is none.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Value,
}

/// A client that has opened an endpoint with a key.
#[derive(Clone, Debug)]
pub struct Client {
    endpoint: Endpoint,
    era: Era,
    /// Sent with each request. May be changed, as by a client that reads its Secret again.
    pub key: String,
    session: Option<String>,
}

impl Endpoint {
    /// The endpoint at `url`, whose host is `<service>.<namespace>.svc…`, once connections to it open: kube-proxy
    /// follows a pod that has become ready with a delay of its own.
    pub async fn of_service(kube: &kube::Client, url: &str) -> Result<Self> {
        let uri: Uri = url.parse().with_context(|| url.to_owned())?;
        let mut labels = uri.host().context("an endpoint has a host")?.split('.');
        let (name, namespace) = (labels.next(), labels.next());
        let services: Api<Service> = Api::namespaced(
            kube.clone(),
            namespace.context("a Service's host names its namespace")?,
        );
        let service = services.get(name.unwrap_or_default()).await?;
        let address = service
            .spec
            .and_then(|spec| spec.cluster_ip)
            .context("the Service has an address")?;
        let address = SocketAddr::new(address.parse()?, uri.port_u16().unwrap_or(80));
        eventually(&format!("{url} accepts connections"), TIMEOUT, async || {
            Ok(Some(TcpStream::connect(address).await?))
        })
        .await?;
        Ok(Self { address, uri })
    }

    /// The same server, another path.
    pub fn at(&self, path: &str) -> Result<Self> {
        let mut parts = self.uri.clone().into_parts();
        parts.path_and_query = Some(path.parse()?);
        Ok(Self {
            uri: Uri::from_parts(parts)?,
            address: self.address,
        })
    }

    /// The status that this key gets for a `tools/list`. Empty: no key is sent.
    pub async fn status_for(&self, key: &str) -> Result<StatusCode> {
        let client = Client {
            endpoint: self.clone(),
            era: Era::Stateless,
            key: key.to_owned(),
            session: None,
        };
        Ok(client.request("tools/list", json!({})).await?.status)
    }

    /// Sends one request with these headers and this body.
    pub async fn send(
        &self,
        method: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> Result<Answer> {
        tokio::time::timeout(TIMEOUT, self.exchange(method, headers, body))
            .await
            .with_context(|| format!("{method} {}: no answer within {TIMEOUT:?}", self.uri))?
            .with_context(|| format!("{method} {}", self.uri))
    }

    async fn exchange(
        &self,
        method: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> Result<Answer> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let mut request = Request::builder()
            .method(method)
            .uri(self.uri.path_and_query().map_or("/", |path| path.as_str()))
            .header(
                header::HOST,
                self.uri
                    .authority()
                    .map_or("", |authority| authority.as_str()),
            );
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = sender
            .send_request(request.body(Full::new(Bytes::from(body)))?)
            .await?;
        let (head, body) = answer.into_parts();
        let text = String::from_utf8(body.collect().await?.to_bytes().to_vec())?;
        connection.abort();
        let streamed = head
            .headers
            .get(header::CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        let message = match streamed {
            true => text
                .lines()
                .filter_map(|line| line.strip_prefix("data:"))
                .next_back()
                .unwrap_or_default()
                .trim(),
            false => text.trim(),
        };
        let body = match message {
            "" => Value::Null,
            message => serde_json::from_str(message).unwrap_or_else(|_| Value::from(message)),
        };
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            body,
        })
    }
}

impl Client {
    /// Opens the endpoint: initializes a session where the era has them. An error names the status that was answered.
    pub async fn connect(endpoint: &Endpoint, key: &str, era: Era) -> Result<Self> {
        let mut client = Self {
            endpoint: endpoint.clone(),
            era,
            key: key.to_owned(),
            session: None,
        };
        if era == Era::Sessions {
            let parameters = json!({"protocolVersion": era.version(), "capabilities": {}, "clientInfo": client_info()});
            let answer = client.request("initialize", parameters).await?;
            client.session = answer
                .headers
                .get("mcp-session-id")
                .map(|id| id.to_str().map(str::to_owned))
                .transpose()?;
            result(answer)?;
            let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
            let answer = client
                .post("notifications/initialized", "", &initialized)
                .await?;
            if !answer.status.is_success() {
                bail!("notifications/initialized: {}", answer.status);
            }
        }
        Ok(client)
    }

    /// Names of the tools, in the server's order, all pages.
    pub async fn tools(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        let mut parameters = json!({});
        loop {
            let page = result(self.request("tools/list", parameters).await?)?;
            let tools = page["tools"]
                .as_array()
                .context("tools/list answers with tools")?;
            names.extend(
                tools
                    .iter()
                    .filter_map(|tool| tool["name"].as_str())
                    .map(str::to_owned),
            );
            match page["nextCursor"].as_str() {
                Some(cursor) => parameters = json!({"cursor": cursor}),
                None => return Ok(names),
            }
        }
    }

    /// Calls a tool and gives back its result. An error: the call did not reach the tool, or the tool says `isError`.
    pub async fn call(&self, tool: &str, arguments: Value) -> Result<Value> {
        let result = result(
            self.request("tools/call", json!({"name": tool, "arguments": arguments}))
                .await?,
        )?;
        if result["isError"] == true {
            bail!("{tool}: {}", result["content"]);
        }
        Ok(result)
    }

    /// One JSON-RPC request.
    pub async fn request(&self, method: &str, mut parameters: Value) -> Result<Answer> {
        if self.era == Era::Stateless {
            parameters["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": self.era.version(),
                "io.modelcontextprotocol/clientInfo": client_info(),
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        let name = parameters["name"].as_str().unwrap_or_default().to_owned();
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters});
        self.post(method, &name, &body).await
    }

    async fn post(&self, method: &str, name: &str, body: &Value) -> Result<Answer> {
        let authorization = format!("Bearer {}", self.key);
        let mut headers = vec![
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ];
        if !self.key.is_empty() {
            headers.push(("authorization", &authorization));
        }
        if method != "initialize" {
            headers.push(("mcp-protocol-version", self.era.version()));
        }
        if let Some(session) = &self.session {
            headers.push(("mcp-session-id", session));
        }
        if self.era == Era::Stateless {
            headers.push(("mcp-method", method));
            if !name.is_empty() {
                headers.push(("mcp-name", name));
            }
        }
        self.endpoint.send("POST", &headers, body.to_string()).await
    }
}

fn client_info() -> Value {
    json!({"name": "chandlery-tests", "version": env!("CARGO_PKG_VERSION")})
}

fn result(mut answer: Answer) -> Result<Value> {
    match answer.body.get_mut("result") {
        Some(result) if answer.status.is_success() => Ok(result.take()),
        _ => bail!("{}: {}", answer.status, answer.body),
    }
}
