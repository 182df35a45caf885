//! `chandlery call`: one tool call, as the agent that holds the key would make it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use http::{Request, StatusCode, Uri, header};
use http_body_util::Full;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::cli::{fail, print, usage};
use super::client::{SendError, read_secret, send};
use super::settings::duration;

const PROTOCOL: &str = "2026-07-28";
const RETRY_PAUSE: Duration = Duration::from_millis(500);

#[derive(clap::Args)]
pub(super) struct Args {
    /// Name of the tool.
    tool: String,
    /// Arguments of the tool, a JSON object.
    #[arg(long, value_name = "JSON", default_value = "{}", value_parser = object)]
    arguments: Map<String, Value>,
    /// Folder with the files `uri` and `token`, such as the mounted Secret of an agent.
    #[arg(long, value_name = "DIR", required_unless_present = "url", conflicts_with_all = ["url", "key_file"])]
    binding: Option<PathBuf>,
    /// The agent's endpoint.
    #[arg(long, value_name = "URL", requires = "key_file")]
    url: Option<Uri>,
    /// File with the agent's key.
    #[arg(long, value_name = "FILE", requires = "url")]
    key_file: Option<PathBuf>,
    /// How long the call may take.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    timeout: Duration,
    /// How long to try again while nothing answers or the key does not work yet.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    retry_for: Option<Duration>,
}

/// Why there is no result.
#[derive(Debug, PartialEq, Eq)]
enum Failure {
    /// The tool did not run: trying again later cannot run it twice.
    NotServed(String),
    /// The gateway's or the tool's own answer, or nobody knows whether the tool ran.
    Final(String),
}

pub(super) fn run(args: Args) -> ExitCode {
    if args
        .url
        .as_ref()
        .is_some_and(|url| url.scheme_str() != Some("http"))
    {
        return usage("--url must start with http://");
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(call(&args)),
        Err(error) => return fail(format_args!("start: {error}")),
    };
    match outcome {
        Ok(text) => print(text),
        Err(Failure::NotServed(reason) | Failure::Final(reason)) => fail(reason),
    }
}

async fn call(args: &Args) -> Result<String, Failure> {
    let give_up = Instant::now() + args.retry_for.unwrap_or_default();
    loop {
        let outcome = match timeout(args.timeout, attempt(args)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Failure::Final(format!(
                "no answer within {:?}",
                args.timeout
            ))),
        };
        match outcome {
            Err(Failure::NotServed(_)) if Instant::now() + RETRY_PAUSE < give_up => {
                sleep(RETRY_PAUSE).await;
            }
            outcome => return outcome,
        }
    }
}

async fn attempt(args: &Args) -> Result<String, Failure> {
    // Read every time: a rotation changes the key, and a mounted Secret follows.
    let (url, key) = match (&args.binding, &args.url, &args.key_file) {
        (Some(folder), _, _) => (read(&folder.join("uri"))?, read(&folder.join("token"))?),
        (None, Some(url), Some(file)) => (url.to_string(), read(file)?),
        _ => {
            return Err(Failure::Final(
                "write --binding DIR, or --url and --key-file".to_owned(),
            ));
        }
    };
    let request = Request::post(&url)
        .header(header::AUTHORIZATION, format!("Bearer {key}"))
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json, text/event-stream")
        .header("mcp-protocol-version", PROTOCOL)
        .header("mcp-method", "tools/call")
        .header("mcp-name", &args.tool)
        .body(Full::from(body(&args.tool, &args.arguments)))
        .map_err(|error| Failure::Final(format!("{url}: {error}")))?;
    let (status, body) = send(request).await.map_err(|error| match error {
        SendError::Connect(why) => Failure::NotServed(why),
        SendError::Broken(why) => Failure::Final(why),
    })?;
    answer(status, &body)
}

fn read(file: &Path) -> Result<String, Failure> {
    read_secret(file).map_err(Failure::Final)
}

fn body(tool: &str, arguments: &Map<String, Value>) -> String {
    json!({
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {
            "name": tool,
            "arguments": arguments,
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": PROTOCOL,
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": {"name": "chandlery", "version": env!("CARGO_PKG_VERSION")},
            },
        },
    })
    .to_string()
}

/// The text of the tool's result, from a JSON body or from a stream of events.
fn answer(status: StatusCode, body: &str) -> Result<String, Failure> {
    let message = std::iter::once(body)
        .chain(body.lines().filter_map(|line| line.strip_prefix("data:")))
        .filter_map(|text| serde_json::from_str::<Value>(text).ok())
        .find(|message| message["id"] == 1);
    let Some(message) = message else {
        return Err(match status {
            StatusCode::UNAUTHORIZED => Failure::NotServed("the key is not live (401)".to_owned()),
            StatusCode::FORBIDDEN => Failure::Final("the key is another agent's (403)".to_owned()),
            StatusCode::SERVICE_UNAVAILABLE => {
                Failure::NotServed("the gateway is not ready (503)".to_owned())
            }
            status => Failure::Final(format!("the answer was {status}, not a tool's result")),
        });
    };
    if let Some(reason) = message["error"]["message"].as_str() {
        return Err(Failure::Final(reason.to_owned()));
    }
    let result = &message["result"];
    let texts: Vec<&str> = result["content"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|content| content["text"].as_str())
        .collect();
    let text = if texts.is_empty() {
        result.to_string()
    } else {
        texts.join("\n")
    };
    if result["isError"] == true {
        Err(Failure::Final(text))
    } else {
        Ok(text)
    }
}

fn object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text)
        .map_err(|_| r#"write a JSON object, such as {"name": "notes"}"#.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: u16, body: &str, expected: Result<&str, Failure>) {
        let status = StatusCode::from_u16(status).expect("a status");
        assert_eq!(answer(status, body), expected.map(str::to_owned));
    }

    #[test]
    fn a_result_is_read_from_json_and_from_a_stream() {
        let result =
            r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"noon"}]}}"#;
        check(200, result, Ok("noon"));
        let progress = r#"data: {"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#;
        check(
            200,
            &format!(": hello\n\n{progress}\n\nevent: message\ndata: {result}\n\n"),
            Ok("noon"),
        );
        let structured = r#"{"id":1,"result":{"resultType":"input_required"}}"#;
        check(200, structured, Ok(r#"{"resultType":"input_required"}"#));
    }

    #[test]
    fn only_what_cannot_have_run_is_tried_again() {
        let not_served = |text: &str| Err(Failure::NotServed(text.to_owned()));
        let done = |text: &str| Err(Failure::Final(text.to_owned()));
        check(401, "", not_served("the key is not live (401)"));
        check(
            503,
            "starting",
            not_served("the gateway is not ready (503)"),
        );
        check(403, "{}", done("the key is another agent's (403)"));
        check(
            502,
            "oops",
            done("the answer was 502 Bad Gateway, not a tool's result"),
        );
        let unknown = r#"{"id":1,"error":{"code":-32602,"message":"Unknown tool 'x'"}}"#;
        check(400, unknown, done("Unknown tool 'x'"));
        let refused = r#"{"id":1,"result":{"isError":true,"content":[{"type":"text","text":"title is required"}]}}"#;
        check(200, refused, done("title is required"));
    }
}
