//! What is measured, in which order, and against which bars.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::gateway::Server;
use crate::load::{Connection, Point, Shot, saturate};
use crate::{LOAD_CORE, ROUNDS};

/// What a client of the newer era says of itself with each request.
const META: &str = "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\"io.modelcontextprotocol/clientCapabilities\":{},\"io.modelcontextprotocol/clientInfo\":{\"name\":\"bench\",\"version\":\"1\"}}";
const ENDPOINT: &str = "/runtime/agents/default.bench/mcp";
const CONNECTIONS: [usize; 3] = [16, 64, 256];
/// Sessions and streams that are opened to see what one costs.
const SESSIONS: usize = 4000;

/// Runs the measurement on the load's core.
pub(crate) fn start(parts: &[String]) -> Result<bool> {
    let status = Command::new("taskset")
        .args(["-c", LOAD_CORE])
        .arg(std::env::current_exe()?)
        .arg("load")
        .args(parts.iter().filter(|part| !part.starts_with('-')))
        .status()
        .context("taskset of util-linux pins the processes to cores")?;
    Ok(status.success())
}

/// Measures the named parts, or all, and prints; `false` when a bar is missed.
pub(crate) fn measure(parts: &[String]) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let is_wanted = |part: &str| parts.is_empty() || parts.iter().any(|wanted| wanted == part);
    runtime.block_on(async {
        let mut good = true;
        if is_wanted("rates") {
            good &= rates().await?;
        }
        if is_wanted("proxy") {
            good &= proxied().await?;
        }
        if is_wanted("memory") {
            good &= memory().await?;
        }
        Ok(good)
    })
}

/// The same call in each era, and what the echo server gets.
struct Shots {
    echo: Shot,
    newer: Shot,
    /// One for each connection: a session of its own.
    older: Vec<Shot>,
}

async fn rates() -> Result<bool> {
    let echo = Server::echo()?;
    let (gateway, key) = Server::gateway()?;
    let shots = shots(&echo, &gateway, &key).await?;
    let mut good = true;
    for connections in CONNECTIONS {
        let (mut newer, mut older) = (Ratios::default(), Ratios::default());
        for _ in 0..ROUNDS {
            let bare = saturate(&vec![shots.echo.clone(); connections]).await?;
            newer.note(
                &bare,
                &saturate(&vec![shots.newer.clone(); connections]).await?,
            );
            older.note(&bare, &saturate(&shots.older[..connections]).await?);
        }
        // The bar on the tail is about many clients; few see the audit's commits in it.
        let has_tail = Some(&connections) == CONNECTIONS.last();
        good &= newer.print(&format!("newer era, @{connections}"), has_tail);
        good &= older.print(&format!("older era with session, @{connections}"), has_tail);
    }
    Ok(good)
}

/// A call that goes on to an MCP server, against a bare proxy in the same round.
async fn proxied() -> Result<bool> {
    let upstream = Server::upstream()?;
    let bare = Server::raw_proxy(upstream.address)?;
    let (gateway, key) = Server::gateway_to(upstream.address)?;
    let tool = "bare_echo";
    let argument = format!("{{\"message\":\"{}\"}}", "x".repeat(200));
    let shots = shots_of(&bare, &gateway, &key, tool, &argument).await?;
    until_holds(&shots.newer).await?;
    let mut good = against_proxy("that may write", &gateway, &shots).await?;
    gateway.approve(upstream.address)?;
    let (before, _) = &shots.newer.body;
    let listing = format!(",\"method\":\"tools/list\",\"params\":{{{META}}}}}");
    let list = Shot {
        headers: shots.newer.headers.replace("tools/call", "tools/list"),
        body: (before.clone(), listing),
        // Of the MCP server's tools alone.
        expected: "\"openWorldHint\":true,\"readOnlyHint\":true",
        ..shots.newer.clone()
    };
    until_holds(&list).await?;
    good &= against_proxy("approved as reading", &gateway, &shots).await?;
    Ok(good)
}

/// A tool of the MCP server that counts as `kind` tells.
async fn against_proxy(kind: &str, gateway: &Server, shots: &Shots) -> Result<bool> {
    let mut good = true;
    for connections in CONNECTIONS {
        let (mut newer, mut older) = (Ratios::default(), Ratios::default());
        let mut cpu = Vec::new();
        for _ in 0..ROUNDS {
            let limit = saturate(&vec![shots.echo.clone(); connections]).await?;
            let before = gateway.cpu()?;
            let point = saturate(&vec![shots.newer.clone(); connections]).await?;
            let spent = gateway.cpu()? - before;
            cpu.push(spent.as_secs_f64() * 1e6 / point.calls as f64);
            newer.note(&limit, &point);
            older.note(&limit, &saturate(&shots.older[..connections]).await?);
        }
        let bars = (0.55, "  of a bare proxy", "at least 0.55, goal 0.75");
        good &= newer.print_bar(&format!("a tool {kind}, newer era, @{connections}"), bars);
        let cpu = median(&mut cpu);
        good &= bar(
            "  CPU per call, µs",
            cpu,
            cpu <= 80.0,
            "at most 80, goal 40",
        );
        good &= older.print_bar(
            &format!("a tool {kind}, older era with session, @{connections}"),
            bars,
        );
    }
    Ok(good)
}

/// Waits until the gateway answers as is expected: it has the tool, or has heard that it is approved.
async fn until_holds(shot: &Shot) -> Result<()> {
    for _ in 0..200 {
        let answer = Connection::open(shot.address).await?.fire(shot, 1).await;
        if answer.is_ok_and(|answer| answer.contains(shot.expected)) {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    anyhow::bail!("the gateway never answered with {}", shot.expected)
}

/// Of each round, against the echo server in the same round.
#[derive(Default)]
struct Ratios {
    rates: Vec<f64>,
    ratios: Vec<f64>,
    tails: Vec<f64>,
}

impl Ratios {
    fn note(&mut self, bare: &Point, point: &Point) {
        self.rates.push(point.per_second);
        self.ratios.push(point.per_second / bare.per_second);
        self.tails
            .push(point.p99.as_secs_f64() / point.p50.as_secs_f64());
    }

    /// A rate, and its part of the limit against a bar: the least, what it is, and the bar in words.
    fn print_bar(&mut self, what: &str, (least, of, words): (f64, &str, &str)) -> bool {
        let (rate, ratio) = (median(&mut self.rates), median(&mut self.ratios));
        println!("{what}: {:.1}k calls/s", rate / 1000.0);
        bar(of, ratio, ratio >= least, words)
    }

    fn print(&mut self, what: &str, has_tail: bool) -> bool {
        let rate = median(&mut self.rates);
        let (ratio, tail) = (median(&mut self.ratios), median(&mut self.tails));
        println!("{what}: {:.1}k calls/s", rate / 1000.0);
        let is_fast = bar(
            "  of a bare echo",
            ratio,
            ratio >= 0.50,
            "at least 0.50, goal 0.75",
        );
        if !has_tail {
            println!("  p99/p50: {tail:.2}");
            return is_fast;
        }
        is_fast & bar("  p99/p50", tail, tail <= 5.0, "at most 5, goal 2.5")
    }
}

async fn memory() -> Result<bool> {
    let (gateway, key) = Server::gateway()?;
    let connection = &mut Connection::open(gateway.address).await?;
    // What the first calls allocate for good is not a session's.
    for _ in 0..100 {
        open_session(connection, &gateway, &key).await?;
    }
    let before = gateway.memory()?;
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(open_session(connection, &gateway, &key).await?);
    }
    let idle = gateway.memory()?;
    let mut streams = Vec::new();
    for session in &sessions {
        let mut stream = Connection::open(gateway.address).await?;
        let headers = format!("{}mcp-session-id: {session}\r\n", authorization(&key));
        let head = stream.ask("GET", ENDPOINT, &headers).await?;
        ensure!(head.contains("text/event-stream"), "{head}");
        streams.push(stream);
    }
    let connected = gateway.memory()?;
    let each =
        |more: usize, less: usize| more.saturating_sub(less) as f64 / 1024.0 / SESSIONS as f64;
    let (idle_each, stream_each) = (each(idle, before), each(connected, idle));
    println!("memory, KB each, of {SESSIONS}:");
    Ok(bar(
        "  idle session, disconnected",
        idle_each,
        idle_each <= 2.0,
        "at most 2, goal 0.5",
    ) & bar(
        "  GET stream",
        stream_each,
        stream_each <= 24.0,
        "at most 24, goal 10",
    ))
}

async fn shots(echo: &Server, gateway: &Server, key: &str) -> Result<Shots> {
    shots_of(echo, gateway, key, "agnt_datetime_now", "{}").await
}

async fn shots_of(
    echo: &Server,
    gateway: &Server,
    key: &str,
    tool: &'static str,
    arguments: &str,
) -> Result<Shots> {
    let call = |meta: &str| {
        (
            "{\"jsonrpc\":\"2.0\",\"id\":".to_owned(),
            format!(
                ",\"method\":\"tools/call\",\"params\":{{\"name\":\"{tool}\",\"arguments\":{arguments}{meta}}}}}"
            ),
        )
    };
    let newer = Shot {
        address: gateway.address,
        path: ENDPOINT.to_owned(),
        headers: format!(
            "{}mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: {tool}\r\n",
            authorization(key)
        ),
        body: call(&format!(",{META}")),
        expected: "\"isError\":false",
    };
    let echo = Shot {
        address: echo.address,
        path: "/".to_owned(),
        // The echo server gives the call back; a proxy passes the answer on.
        expected: if arguments == "{}" {
            tool
        } else {
            "\"isError\":false"
        },
        ..newer.clone()
    };
    let connection = &mut Connection::open(gateway.address).await?;
    let mut older = Vec::new();
    for _ in 0..CONNECTIONS.into_iter().max().unwrap_or_default() {
        let session = open_session(connection, gateway, key).await?;
        older.push(Shot {
            headers: format!(
                "{}mcp-session-id: {session}\r\nmcp-protocol-version: 2025-11-25\r\n",
                authorization(key)
            ),
            body: call(""),
            ..newer.clone()
        });
    }
    Ok(Shots { echo, newer, older })
}

fn authorization(key: &str) -> String {
    format!("authorization: Bearer {key}\r\n")
}

async fn open_session(connection: &mut Connection, gateway: &Server, key: &str) -> Result<String> {
    let initialize = Shot {
        address: gateway.address,
        path: ENDPOINT.to_owned(),
        headers: authorization(key),
        body: (
            "{\"jsonrpc\":\"2.0\",\"id\":".to_owned(),
            ",\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{},\"clientInfo\":{\"name\":\"bench\",\"version\":\"1\"}}}".to_owned(),
        ),
        expected: "serverInfo",
    };
    let answer = connection.fire(&initialize, 1).await?;
    let session = answer
        .lines()
        .find_map(|line| line.strip_prefix("mcp-session-id: "))
        .context("a session id")?;
    Ok(session.to_owned())
}

fn bar(what: &str, value: f64, is_met: bool, bar: &str) -> bool {
    let verdict = if is_met { "" } else { "  MISSED" };
    println!("{what}: {value:.2} ({bar}){verdict}");
    is_met
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
