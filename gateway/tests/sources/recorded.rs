//! Calls as they arrive: a service on a real socket keeps what it was sent, byte by byte, and the document says what that
//! must have been.

use std::collections::HashMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use chandlery_gateway::connector::served_name;
use chandlery_gateway::families::openapi::{HttpRequest, Operation, Settings, read};
use futures::stream::{self, StreamExt as _};
use http::{HeaderName, HeaderValue, Method};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::harness::{Gateway, Said, agent, grant, secret, source, workspace};
use crate::{corpus, reader, samples};

const KEY: &str = "canary-0123456789";
/// Documents whose operations are called at once.
const AT_ONCE: usize = 8;

/// Serves document `n` at `/<n>`, and is the service that it describes at `/<n>/at`.
struct Recorder {
    address: SocketAddr,
    kept: Arc<Kept>,
    task: JoinHandle<()>,
}

/// By number of the document, every request from its first byte to its last.
type Kept = Mutex<HashMap<usize, Vec<Vec<u8>>>>;

impl Recorder {
    async fn start(documents: Vec<Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.3:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let kept = Arc::new(Kept::default());
        let (keeping, documents) = (kept.clone(), Arc::new(documents));
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(record(stream, keeping.clone(), documents.clone()));
            }
        });
        Self {
            address,
            kept,
            task,
        }
    }

    fn document(&self, number: usize) -> String {
        format!("http://{}/{number}", self.address)
    }

    fn service(&self, number: usize) -> String {
        format!("{}/at", self.document(number))
    }

    /// What has come for a service since it was asked last.
    fn take(&self, number: usize) -> Vec<Vec<u8>> {
        self.kept.lock().remove(&number).unwrap_or_default()
    }

    /// A request to a service as one that can be read; what every request has is checked and left out.
    fn parse(&self, number: usize, raw: &[u8]) -> Result<HttpRequest, String> {
        let (head, body) = split(raw).ok_or("no end of the head")?;
        let mut lines = head.split("\r\n");
        let line: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
        let [method, target, "HTTP/1.1"] = line[..] else {
            return Err(format!("the line is {line:?}"));
        };
        let base = format!("/{number}/at");
        let path_and_query = target
            .strip_prefix(&base)
            .ok_or_else(|| format!("{target} is not below {base}"))?;
        let mut headers: Vec<(HeaderName, HeaderValue)> = Vec::new();
        for line in lines {
            let (name, value) = line.split_once(": ").ok_or("a header without a value")?;
            let name: HeaderName = name.parse().map_err(|_| format!("{name} is no header"))?;
            headers.push((name, value.parse().map_err(|_| "no value of a header")?));
        }
        let mut one = |name: &str| {
            let at = headers.iter().position(|(own, _)| own == name)?;
            Some(headers.remove(at).1)
        };
        let expected = [
            ("host", self.address.to_string()),
            ("authorization", format!("Bearer {KEY}")),
            ("accept-encoding", "identity".to_owned()),
        ];
        for (name, expected) in expected {
            let value = one(name).ok_or_else(|| format!("no header {name}"))?;
            if value != expected {
                return Err(format!("{name} is {value:?}, not {expected}"));
            }
        }
        one("user-agent").ok_or("no header user-agent")?;
        let length = one("content-length").map_or(0, |length| length_of(length.as_bytes()));
        if length != body.len() {
            return Err(format!("{length} bytes were announced of {}", body.len()));
        }
        Ok(HttpRequest {
            method: Method::from_bytes(method.as_bytes()).map_err(|error| error.to_string())?,
            path_and_query: path_and_query.to_owned(),
            content_type: one("content-type"),
            headers,
            body: Bytes::copy_from_slice(body),
        })
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Head, without the blank line, and body.
fn split(raw: &[u8]) -> Option<(&str, &[u8])> {
    let end = memchr::memmem::find(raw, b"\r\n\r\n")?;
    let head = std::str::from_utf8(&raw[..end]).ok()?;
    Some((head, &raw[end + 4..]))
}

fn length_of(text: &[u8]) -> usize {
    let text = std::str::from_utf8(text).unwrap();
    text.trim().parse().unwrap()
}

/// Answers on one connection until it ends.
async fn record(mut stream: TcpStream, kept: Arc<Kept>, documents: Arc<Vec<Vec<u8>>>) {
    let _ = stream.set_nodelay(true);
    let mut bytes = Vec::new();
    loop {
        let whole = split(&bytes).and_then(|(head, body)| {
            let lengths = head
                .split("\r\n")
                .filter_map(|line| line.split_once(": "))
                .filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
            let length: usize = lengths
                .map(|(_, length)| length_of(length.as_bytes()))
                .sum();
            (body.len() >= length).then(|| head.len() + 4 + length)
        });
        let Some(whole) = whole else {
            match stream.read_buf(&mut bytes).await {
                Ok(0) | Err(_) => return,
                Ok(_) => continue,
            }
        };
        let rest = bytes.split_off(whole);
        let request = std::mem::replace(&mut bytes, rest);
        let (head, _) = split(&request).unwrap();
        let target = head.split(' ').nth(1).unwrap_or_default();
        let (number, path) = target[1..].split_once('/').unwrap_or((&target[1..], ""));
        let number: usize = number.parse().unwrap();
        let body = if path.is_empty() {
            documents[number].as_slice()
        } else if head.starts_with("HEAD ") {
            &b""[..]
        } else {
            b"{}"
        };
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        if !path.is_empty() {
            kept.lock().entry(number).or_default().push(request);
        }
        let answer = [answer.as_bytes(), body].concat();
        if stream.write_all(&answer).await.is_err() {
            return;
        }
    }
}

/// A document, and what it says.
struct Described {
    name: String,
    value: Value,
    operations: Vec<Operation>,
}

impl Described {
    /// Calls every operation; what arrived otherwise than the document says.
    async fn call_all(&self, number: usize, gateway: &Gateway, recorder: &Recorder) -> Vec<String> {
        let mut wrong = Vec::new();
        let prefix = format!("d{number}");
        let agent = format!("a{number}");
        for operation in &self.operations {
            let tool = served_name(&prefix, &operation.name);
            for arguments in samples::arguments(operation) {
                let said = gateway.call(&agent, &tool, json!(arguments)).await;
                let arrived = recorder.take(number);
                let outcome = match (said, arrived.as_slice()) {
                    (Said::Text(_), [one]) => {
                        self.compare(operation, &arguments, recorder.parse(number, one))
                    }
                    (said, arrived) => Err(format!("{} arrived, and {said:?}", arrived.len())),
                };
                if let Err(problem) = outcome {
                    let Operation { method, path, .. } = operation;
                    wrong.push(format!("{}: {method} {path}: {problem}", self.name));
                }
            }
        }
        wrong
    }

    fn compare(
        &self,
        operation: &Operation,
        arguments: &Map<String, Value>,
        arrived: Result<HttpRequest, String>,
    ) -> Result<(), String> {
        reader::compare(&self.value, operation, arguments, &arrived?)
    }
}

/// What each document says, read the way that the gateway reads it.
fn describe(documents: Vec<(String, Vec<u8>)>) -> Vec<Described> {
    let settings = Settings {
        base_url: Some("http://127.0.0.3/".parse().unwrap()),
        ..Settings::default()
    };
    let described = documents.into_iter().map(|(name, text)| Described {
        value: corpus::value(&text),
        operations: read(&text, &settings).unwrap().operations,
        name,
    });
    described.collect()
}

async fn check(folder: &Path, least: usize) {
    let documents = corpus::below(folder).into_iter().map(|path| {
        let name = path.strip_prefix(folder).unwrap().display().to_string();
        (name, fs::read(&path).unwrap())
    });
    let documents: Vec<(String, Vec<u8>)> = documents.collect();
    assert!(documents.len() >= least, "{} documents", documents.len());
    let texts = documents.iter().map(|(_, text)| text.clone()).collect();
    let recorder = Recorder::start(texts).await;
    let mut manifests = vec![workspace(), secret("key", KEY, None)];
    let entries: Vec<String> = (0..documents.len())
        .map(|number| format!("d{number}/*"))
        .collect();
    let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
    manifests.push(grant("all", &entries, json!({})));
    for (number, entry) in entries.iter().enumerate() {
        let spec = json!({
            "openapi": {"url": recorder.document(number), "baseUrl": recorder.service(number)},
            "auth": {"bearer": {"secretKeyRef": {"name": "key", "key": "value"}}},
        });
        manifests.push(source(&format!("d{number}"), spec));
        manifests.push(agent(
            &format!("a{number}"),
            json!({"tools": [entry], "listing": "PerOperation"}),
        ));
    }
    let gateway = Gateway::open(&manifests).await;
    // Both read at once.
    let all = tokio::task::spawn_blocking(move || describe(documents));
    let all = all.await.unwrap();
    for (number, described) in all.iter().enumerate() {
        let served = |known: &Value| known["served"] == described.operations.len();
        gateway.until(&format!("d{number}"), served).await;
    }
    let start = Instant::now();
    let calls = stream::iter(all.iter().enumerate())
        .map(|(number, described)| described.call_all(number, &gateway, &recorder));
    let wrong: Vec<Vec<String>> = calls.buffer_unordered(AT_ONCE).collect().await;
    let wrong = wrong.concat();
    let operations: usize = all.iter().map(|described| described.operations.len()).sum();
    println!(
        "{operations} operations of {} documents, called twice each: {:?}",
        all.len(),
        start.elapsed()
    );
    assert!(
        wrong.is_empty(),
        "{} arrived otherwise:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

// R-C-190, R-C-194, R-C-195, R-C-196
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_difficult_documents_arrive_as_they_say() {
    check(&corpus::ours(), 8).await;
}

// R-C-190, R-C-194, R-C-195, R-C-196
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the documents of tests/setup"]
async fn calls_of_documents_of_many_makers_arrive_as_they_say() {
    check(&corpus::of_makers(), 25).await;
}
