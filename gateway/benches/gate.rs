//! Measures what the gate adds to a call under many grants, and how fast a long list is answered: `make bench`.

#![expect(clippy::print_stdout, reason = "a bench prints")]

use std::fmt::Write as _;
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::routing::post;
use bytes::Bytes;
use chandlery_crds::key::Key;
use chandlery_crds::manifest;
use chandlery_gateway::audit::Audit;
use chandlery_gateway::catalog::{Catalogs, Found, Registry};
use chandlery_gateway::directory::{Directory, Holder, Principal, Snapshot};
use chandlery_gateway::family::{Call, Family};
use chandlery_gateway::gate::{Decision, Permit, Question, decide};
use chandlery_gateway::http::{self as gateway, Settings};
use chandlery_gateway::pipeline::Pipeline;
use chandlery_gateway::store::{Clock, Store, StoreUrl};
use chandlery_gateway::tool::{Effect, Output, Served, Tool, ToolError};
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::json;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

const GRANTS: usize = 200;
const TOOLS: usize = 2_000;
const CALLS: u32 = 200_000;
const CLIENTS: usize = 8;
const MEASURED: Duration = Duration::from_secs(2);
const ROUNDS: usize = 3;

struct Bulk;

impl Family for Bulk {
    fn tools(&self) -> Vec<Tool> {
        let schema = json!({"type": "object", "properties": {
            "id": {"type": "string", "description": "Which one."},
            "limit": {"type": "integer", "minimum": 1, "maximum": 100},
        }});
        let tool = |at| Tool {
            name: format!("bulk_{at}").into(),
            title: "Bulk".into(),
            description: "One of very many tools, described in a sentence of usual length.".into(),
            input_schema: schema.as_object().cloned().unwrap_or_default(),
            effect: Effect::Reads,
            served: Served::Entry,
            group: None,
            interactive: false,
            origin: None,
        };
        (0..TOOLS).map(tool).collect()
    }

    fn call<'a>(
        &'a self,
        _: &'a Permit<'a>,
        _: Call<'a>,
    ) -> BoxFuture<'a, Result<Output, ToolError>> {
        Box::pin(async { Ok(Output::Text(String::new())) })
    }
}

fn snapshot(grants: usize) -> Result<Snapshot> {
    let mut yaml = "
apiVersion: chandlery.dev/v1alpha1
kind: Workspace
metadata: {name: team, namespace: demo}
spec: {grantRequired: [bulk_7]}
---
apiVersion: chandlery.dev/v1alpha1
kind: Agent
metadata: {name: agent, namespace: demo}
spec: {workspaceRef: {name: team}, tools: ['*']}
"
    .to_owned();
    for at in 0..grants {
        writeln!(
            yaml,
            "---\napiVersion: chandlery.dev/v1alpha1\nkind: ToolGrant\nmetadata: {{name: g{at}, namespace: demo}}\n\
             spec: {{workspaceRef: {{name: team}}, agents: {{all: true}}, tools: ['bulk_*'], expiresAt: \"2999-01-01T00:00:00Z\"}}"
        )?;
    }
    let read = manifest::read("bench", &yaml);
    ensure!(read.problems.is_empty(), "{:?}", read.problems);
    Ok(Snapshot::default().with(&read.objects))
}

/// Time of one decision, the name's resolution included.
fn decision(tool: &str, grants: usize) -> Result<Duration> {
    let registry = Arc::new(Registry::new(vec![Arc::new(Bulk)]));
    let catalogs = Catalogs::new(registry.clone());
    let snapshot = snapshot(grants)?;
    let agent = &snapshot.agents["demo.agent"];
    let arguments = RawValue::from_string("{\"id\":\"x\"}".to_owned())?;
    let began = Instant::now();
    for _ in 0..CALLS {
        let now = Timestamp::now();
        let catalog = catalogs.of(agent, now);
        let Found::Entry { entry, .. } = catalog.find(black_box(tool), &arguments) else {
            anyhow::bail!("{tool} is not there");
        };
        let decision = decide(&Question {
            agent,
            tool: &entry.tool,
            rights: &entry.rights,
            arguments: arguments.get(),
            now,
            used_up: &|_| None,
        });
        ensure!(matches!(black_box(decision), Decision::Permit(..)));
    }
    Ok(began.elapsed() / CALLS)
}

/// Serves the agent's list and a body of the same size, each on a thread of its own.
async fn servers(stop: &CancellationToken) -> Result<(SocketAddr, SocketAddr, String, usize)> {
    let folder = tempfile::tempdir()?;
    let store = Store::open(&StoreUrl::Sqlite(folder.keep()), Clock::system()).await?;
    let (publisher, directory) = Directory::new();
    let mut snapshot = snapshot(0)?;
    let key = Key::from_random([7; 32]);
    let holder = Holder {
        principal: Principal::Agent(snapshot.agents["demo.agent"].clone()),
        key_id: key.digest().id().into(),
        expires_at: None,
    };
    snapshot.keys.insert(key.digest(), holder);
    publisher.publish(snapshot);
    let pipeline = Arc::new(Pipeline::new(
        Registry::new(vec![Arc::new(Bulk)]),
        &store,
        Audit::start(store.clone(), &"key".into(), Arc::default()),
        Arc::default(),
        directory,
    ));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let ours = listener.local_addr()?;
    let settings = Settings {
        workers: std::num::NonZeroUsize::MIN,
        ..Settings::default()
    };
    let until = stop.clone();
    tokio::spawn(async move {
        let _publisher = publisher;
        gateway::serve(listener, pipeline, settings, until).await
    });
    let key = key.expose().to_owned();
    let size = fetch(ours, &key)?;
    let file = Bytes::from(vec![b'x'; size]);
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let bare = listener.local_addr()?;
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let path = "/runtime/agents/demo.agent/mcp";
            let answer = move |_: Bytes| {
                let file = file.clone();
                async move { ([("content-type", "application/json")], file) }
            };
            let router = Router::new().route(path, post(answer));
            axum::serve(tokio::net::TcpListener::from_std(listener)?, router).await
        })
    });
    Ok((ours, bare, key, size))
}

fn fetch(address: SocketAddr, key: &str) -> Result<usize> {
    Client::open(address, key)?.fetch()
}

struct Client {
    stream: TcpStream,
    request: String,
    buffer: Vec<u8>,
}

impl Client {
    fn open(address: SocketAddr, key: &str) -> Result<Self> {
        let body = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\"io.modelcontextprotocol/clientCapabilities\":{}}}}";
        let request = format!(
            "POST /runtime/agents/demo.agent/mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\n\
             authorization: Bearer {key}\r\nmcp-protocol-version: 2026-07-28\r\nmcp-method: tools/list\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(Self {
            stream,
            request,
            buffer: vec![0; 1 << 18],
        })
    }

    /// Size of the answer's body.
    fn fetch(&mut self) -> Result<usize> {
        self.stream.write_all(self.request.as_bytes())?;
        let read = self.stream.read(&mut self.buffer)?;
        let text = String::from_utf8_lossy(&self.buffer[..read.min(1024)]);
        ensure!(text.starts_with("HTTP/1.1 200"), "{text}");
        let (head, _) = text.split_once("\r\n\r\n").context("a head")?;
        let length: usize = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .context("a length")?
            .parse()?;
        let mut left = (head.len() + 4 + length)
            .checked_sub(read)
            .context("one answer")?;
        while left > 0 {
            let read = self.stream.read(&mut self.buffer)?;
            ensure!(read > 0, "the connection ended");
            left -= read;
        }
        Ok(length)
    }
}

/// Answers per second.
fn rate(address: SocketAddr, key: &str, size: usize) -> Result<f64> {
    let (count, stop) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = Client::open(address, key)?;
        let (count, stop) = (count.clone(), stop.clone());
        clients.push(thread::spawn(move || -> Result<()> {
            while !stop.load(Ordering::Relaxed) {
                let got = client.fetch()?;
                ensure!(got.abs_diff(size) < 64, "{got} bytes instead of {size}");
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        }));
    }
    thread::sleep(MEASURED / 4);
    let before = count.load(Ordering::Relaxed);
    thread::sleep(MEASURED);
    let after = count.load(Ordering::Relaxed);
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client
            .join()
            .map_err(|_| anyhow::anyhow!("a client panicked"))??;
    }
    Ok((after - before) as f64 / MEASURED.as_secs_f64())
}

fn main() -> Result<()> {
    let (none, many) = (decision("bulk_8", 0)?, decision("bulk_7", GRANTS)?);
    let added = many.saturating_sub(none);
    println!("a decision without grants: {none:?}, with {GRANTS}: {many:?}");
    let is_quick = added < Duration::from_micros(5);
    println!(
        "the gate adds {added:?} (less than 5 µs){}",
        if is_quick { "" } else { "  MISSED" }
    );
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let stop = CancellationToken::new();
    let (ours, bare, key, size) = runtime.block_on(servers(&stop))?;
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let file = rate(bare, &key, size)?;
        let list = rate(ours, &key, size)?;
        println!(
            "a list of {TOOLS} tools ({size} bytes): {list:.0}/s; a body of that size: {file:.0}/s"
        );
        ratios.push(list / file);
    }
    ratios.sort_by(f64::total_cmp);
    let ratio = ratios[ROUNDS / 2];
    let is_fast = ratio >= 0.5;
    println!(
        "  of a static body: {ratio:.2} (at least 0.50){}",
        if is_fast { "" } else { "  MISSED" }
    );
    stop.cancel();
    ensure!(is_quick && is_fast, "a bar is missed");
    Ok(())
}
