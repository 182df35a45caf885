//! Issue 5: an upstream that hangs, drips, floods, resets, lies, fails or changes harms nobody but its own callers.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::runtime::{Builder, Handle};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::harness::{Clients, Gateway, SOON, Said, agent, grant, source, workspace};
use crate::server::{Answer, Seen, Server, ok, reply};
use crate::upstreams::{Service, asked, document, json_of, mcp, mcp_tool, operation, serve};

const MODES: [&str; 8] = [
    "hang", "drip", "flood", "reset", "lie", "fail", "change", "die",
];
/// Calls of the healthy source in a second.
const RATE: u64 = 200;
/// Between calls of one that may be ill.
const PAUSE: Duration = Duration::from_millis(250);
/// On a machine that has much else to do, those who come last would not come at all.
const NICE: &str = "10";
/// How much longer the healthy source's calls may take, at the 99th percentile.
const BOUND: f64 = 1.2;

/// A thread that stands for other machines: the gateway and those who measure go first.
struct Elsewhere {
    runtime: Handle,
    stop: CancellationToken,
}

impl Elsewhere {
    fn start() -> Self {
        let (send, receive) = std::sync::mpsc::channel();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        std::thread::spawn(move || {
            // Where there is no such thing, the figures are less true.
            if let Ok(thread) = std::fs::read_link("/proc/thread-self") {
                let id = thread.file_name().unwrap();
                let mut lower = Command::new("renice");
                let lowered = lower.args(["-n", NICE, "-p"]).arg(id).output();
                println!("the ill come second: {lowered:?}");
            }
            let runtime = Builder::new_current_thread().enable_all().build();
            let runtime = runtime.unwrap();
            send.send(runtime.handle().clone()).unwrap();
            runtime.block_on(stopped.cancelled());
        });
        Self {
            runtime: receive.recv().unwrap(),
            stop,
        }
    }

    async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        self.runtime.spawn(work).await.unwrap()
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// What goes wrong, now that it does.
fn trouble(mode: &str, seen: &Seen, before: usize) -> Answer {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
    match mode {
        "hang" => Answer::Hang,
        "drip" => {
            let head = format!("{head}content-length: 100000\r\n\r\n");
            Answer::Endless(head.into_bytes(), b"x".to_vec(), Duration::from_secs(1))
        }
        "flood" => {
            // 10 GB, in pieces and without a word of how much it will be.
            let head = format!("{head}transfer-encoding: chunked\r\n\r\n");
            let mut piece = b"10000\r\n".to_vec();
            piece.extend([b' '; 0x10000]);
            piece.extend(b"\r\n");
            Answer::Endless(head.into_bytes(), piece, Duration::ZERO)
        }
        "reset" => Answer::Last(Vec::new()),
        "lie" => Answer::Raw(reply(
            "200 OK",
            "content-type: application/json\r\n",
            "{\"a\": [}",
        )),
        "fail" => Answer::Raw(reply("500 Oops", "", "oops")),
        "die" => {
            let head = format!("{head}content-length: 1000\r\n\r\n{{\"a\": ");
            Answer::Last(head.into_bytes())
        }
        _ => {
            let name = format!("new_{before}");
            if seen.body.is_empty() {
                json_of(
                    "200 OK",
                    &document(json!({"/new": {"get": operation(&name)}})),
                )
            } else {
                mcp(seen, &json!([mcp_tool(&name, "New each time.")]))
            }
        }
    }
}

/// A service and an MCP server that are well until they are told to be ill in this way.
struct Ill {
    mode: &'static str,
    service: Service,
    server: Server,
}

impl Ill {
    async fn start(mode: &'static str, is_ill: &Arc<AtomicBool>) -> Self {
        let (of_service, of_server) = (is_ill.clone(), is_ill.clone());
        let count = AtomicUsize::new(0);
        let described = document(json!({"/thing": {"get": operation("get")}}));
        let service = Service::start_with(described, move |seen| {
            let before = count.fetch_add(1, Ordering::Relaxed);
            let is_ill = of_service.load(Ordering::Relaxed);
            is_ill.then(|| trouble(mode, seen, before))
        });
        let server = serve(move |seen, before| {
            if of_server.load(Ordering::Relaxed) {
                return trouble(mode, seen, before);
            }
            mcp(seen, &json!([mcp_tool("get", "Gets.")]))
        });
        Self {
            mode,
            service: service.await,
            server: server.await,
        }
    }

    /// The names of its sources.
    fn names(&self) -> [String; 2] {
        [self.mode.to_owned(), format!("mcp-{}", self.mode)]
    }

    fn sources(&self, timeout: &str) -> [Value; 2] {
        let [one, other] = self.names();
        let spec = |mut spec: Value| {
            spec["timeout"] = json!(timeout);
            spec["refreshEvery"] = json!("10s");
            spec
        };
        [
            source(&one, spec(json!({"openapi": self.service.spec()}))),
            source(
                &other,
                spec(json!({"mcp": {"url": self.server.url("/mcp")}})),
            ),
        ]
    }
}

/// Calls the healthy source at the rate for a while; how long each call took, the longest last.
async fn measure(gateway: &Arc<Gateway>, length: Duration) -> Vec<Duration> {
    let mut ticks = interval(Duration::from_secs(1) / u32::try_from(RATE).unwrap());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (mut calls, mut times) = (JoinSet::new(), Vec::new());
    let end = Instant::now() + length;
    while Instant::now() < end {
        ticks.tick().await;
        // After a stall of the machine not more come at once than a source takes.
        if calls.len() >= 100
            && let Some(took) = calls.join_next().await
        {
            times.push(took.unwrap());
        }
        let gateway = gateway.clone();
        calls.spawn(async move {
            let began = Instant::now();
            let said = gateway.call("well", "well_get", json!({})).await;
            let took = began.elapsed();
            assert!(matches!(said, Said::Text(_)), "{said:?}");
            took
        });
    }
    while let Some(took) = calls.join_next().await {
        times.push(took.unwrap());
    }
    times.sort();
    times
}

fn percentile(times: &[Duration], of_a_hundred: usize) -> Duration {
    times[(times.len() - 1) * of_a_hundred / 100]
}

/// The median of the windows.
fn middle(mut windows: Vec<Duration>) -> Duration {
    windows.sort();
    windows[windows.len() / 2]
}

/// Calls every source that may be ill, again and again until `stop`; how many calls failed.
async fn call_all(clients: Arc<Clients>, names: Vec<String>, stop: CancellationToken) -> u32 {
    let mut callers = JoinSet::new();
    for name in names {
        let (clients, stop) = (clients.clone(), stop.clone());
        let tool = tool(&name);
        callers.spawn(async move {
            let mut failed = 0_u32;
            while !stop.is_cancelled() {
                let answer = clients.result("ill", &tool, json!({}));
                let answer = timeout(SOON, answer).await;
                let answer = answer.unwrap_or_else(|_| panic!("{tool} never ends"));
                failed += u32::from(!matches!(Said::of(&answer), Said::Text(_)));
                sleep(PAUSE).await;
            }
            failed
        });
    }
    callers.join_all().await.iter().sum()
}

fn tool(source: &str) -> String {
    format!("{}_get", source.replace('-', "_"))
}

/// The load of the machine, for whoever reads the figures.
fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or_default().to_owned()
}

/// Windows of a healthy world and of chaos in turns, so that what else the machine does counts in both alike; how many
/// times as long calls take beside chaos, by the medians of the windows.
async fn run(pairs: usize, window: Duration) -> f64 {
    let is_ill = Arc::new(AtomicBool::new(false));
    let elsewhere = Elsewhere::start();
    let well = serve(|_, _| ok("{\"well\":true}")).await;
    let mut described = document(json!({"/thing": {"get": operation("get")}}));
    described["servers"] = json!([{"url": well.url("/")}]);
    let mut manifests = vec![
        workspace(),
        source(
            "well",
            json!({"openapi": {"inline": described.to_string()}}),
        ),
        agent(
            "well",
            json!({"tools": ["well/*"], "listing": "PerOperation"}),
        ),
    ];
    let (mut all, mut entries) = (Vec::new(), vec!["well/*".to_owned()]);
    for mode in MODES {
        let is_ill = is_ill.clone();
        let ill = elsewhere.run(async move { Ill::start(mode, &is_ill).await });
        let ill = ill.await;
        manifests.extend(ill.sources("2s"));
        entries.extend(ill.names().map(|name| format!("{name}/*")));
        all.push(ill);
    }
    let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
    manifests.push(agent(
        "ill",
        json!({"tools": entries, "listing": "PerOperation"}),
    ));
    manifests.push(grant("all", &entries, json!({})));
    let gateway = Arc::new(Gateway::start(&manifests, &["--log=warn"]).await);
    let names: Vec<String> = all.iter().flat_map(Ill::names).collect();
    for name in names.iter().map(String::as_str).chain(["well"]) {
        gateway.until(name, |known| known["served"] == 1).await;
    }
    let before = gateway.list("ill").await;
    assert_eq!(before.len(), 17);

    let stop = CancellationToken::new();
    let clients = Arc::new(gateway.others());
    let calling = call_all(clients, names.clone(), stop.clone());
    let callers = elsewhere.runtime.spawn(calling);
    measure(&gateway, window).await;
    let memory = gateway.memory();
    let (mut calm, mut chaos, mut most) = (Vec::new(), Vec::new(), 0);
    for _ in 0..pairs {
        is_ill.store(false, Ordering::Relaxed);
        // What hangs has ended by then.
        sleep(Duration::from_secs(2)).await;
        let alone = percentile(&measure(&gateway, window).await, 99);
        is_ill.store(true, Ordering::Relaxed);
        let beside = percentile(&measure(&gateway, window).await, 99);
        println!(
            "p99 alone {alone:?}, beside chaos {beside:?}, at a load of {}",
            load()
        );
        calm.push(alone);
        chaos.push(beside);
        most = most.max(gateway.memory());
        // What is ill keeps its tools on the lists.
        let list = gateway.list("ill").await;
        for name in before.iter().filter(|name| !name.contains("change")) {
            assert!(list.contains(name), "{name} is gone: {list:?}");
        }
    }
    let ratio = middle(chaos).as_secs_f64() / middle(calm).as_secs_f64();
    let grown = most.saturating_sub(memory) >> 20;

    // Its state is told, by REST and in the metrics.
    for name in ["hang", "drip", "flood", "reset", "lie", "fail", "die"] {
        for name in [name.to_owned(), format!("mcp-{name}")] {
            let is_stale = |known: &Value| known["age_seconds"].as_u64() >= Some(10);
            let known = gateway
                .until(&name, |known| {
                    known["failure"].is_object() && is_stale(known)
                })
                .await;
            assert_eq!(known["served"], 1, "{known:#}");
        }
    }
    let metrics = gateway.metrics().await;
    for name in names.iter().filter(|name| !name.contains("change")) {
        let failures = format!("chandlery_source_failures_total{{source=\"team.{name}\"}}");
        assert!(metrics.contains(&failures), "{failures} in {metrics}");
        let answered =
            format!("chandlery_source_last_answer_timestamp_seconds{{source=\"team.{name}\"}}");
        assert!(metrics.contains(&answered), "{answered} in {metrics}");
    }
    for name in ["change", "mcp-change"] {
        let known = gateway.until(name, |known| known["withheld"] == 1).await;
        assert_eq!(known["changed"], 2, "{known:#}");
    }
    stop.cancel();
    let failed = callers.await.unwrap();
    let flooded: usize = all
        .iter()
        .map(|ill| ill.service.server.written() + ill.server.written())
        .sum();
    println!(
        "{failed} calls failed; {} MB flooded; memory {} MB and {grown} MB more",
        flooded >> 20,
        memory >> 20
    );
    assert!(failed > 50, "there was no chaos: {failed}");
    assert!(grown <= 64, "the gateway has grown by {grown} MB");

    // What is well again is called again.
    is_ill.store(false, Ordering::Relaxed);
    for name in &names {
        gateway.until(name, |known| known["changed"] == 0).await;
        let tool = tool(name);
        let deadline = Instant::now() + Duration::from_secs(90);
        loop {
            match gateway.call("ill", &tool, json!({})).await {
                Said::Text(_) => break,
                other => assert!(Instant::now() < deadline, "{tool}: {other:?}"),
            }
            sleep(Duration::from_millis(500)).await;
        }
    }
    ratio
}

/// No call of the healthy one fails, ever. How long they take means something with a program that was built to be fast.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_healthy_source_does_not_notice_those_that_are_ill() {
    let is_fast = std::env::var_os("CHANDLERY_PROGRAM").is_some();
    let (pairs, window) = match is_fast {
        true => (13, Duration::from_secs(4)),
        false => (3, Duration::from_secs(3)),
    };
    let ratio = run(pairs, window).await;
    println!("beside chaos, p99 is {ratio:.2} times what it is alone");
    assert!(!is_fast || ratio <= BOUND, "{ratio:.2}");
}

/// One that says without end that its tools have changed, and changes them each time.
#[tokio::test]
async fn a_source_that_never_stops_changing_is_asked_ever_more_rarely() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let restless = serve(move |seen, before| {
        if seen.body.contains("subscriptions/listen") {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
            let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
            let event = format!("data: {changed}\n\n").into_bytes();
            return Answer::Endless(head.into(), event, Duration::from_millis(50));
        }
        let is_list = seen.body.contains("tools/list");
        count.fetch_add(usize::from(is_list), Ordering::Relaxed);
        mcp(seen, &json!([mcp_tool(&format!("new_{before}"), "New.")]))
    });
    let restless = restless.await;
    let gateway = Gateway::open(&[
        workspace(),
        source("restless", json!({"mcp": {"url": restless.url("/mcp")}})),
        agent("a", json!({"tools": ["restless/*"]})),
        grant("g", &["restless/*"], json!({})),
    ])
    .await;
    gateway
        .until("restless", |known| known["changed"] == 2)
        .await;
    sleep(Duration::from_secs(13)).await;
    // At 4, 8 and 16 s after each other instead of every 2 s.
    let asked = asked.load(Ordering::Relaxed);
    assert!((2..=4).contains(&asked), "asked {asked} times");
}

/// Its breaker opens after a few failures, and lets a call through after a while.
#[tokio::test]
async fn a_source_that_fails_is_left_alone_and_tried_again() {
    let is_ill = Arc::new(AtomicBool::new(false));
    let ill = Ill::start("fail", &is_ill).await;
    let mut manifests = vec![
        workspace(),
        agent("a", json!({"tools": ["fail/*"], "listing": "PerOperation"})),
        grant("g", &["fail/*"], json!({})),
    ];
    manifests.extend(ill.sources("2s"));
    let gateway = Gateway::open(&manifests).await;
    gateway.until("fail", |known| known["served"] == 1).await;
    is_ill.store(true, Ordering::Relaxed);
    let mut said = Vec::new();
    for _ in 0..20 {
        let refused = gateway.call("a", "fail_get", json!({})).await;
        said.push(refused.refusal().to_owned());
    }
    let calls = ill
        .service
        .calls()
        .into_iter()
        .filter(|seen| asked(seen) == "GET /thing");
    let calls = calls.count();
    assert!(calls <= 7, "{calls}");
    assert!(said[19].contains("left alone for"), "{}", said[19]);
    is_ill.store(false, Ordering::Relaxed);
    let deadline = Instant::now() + Duration::from_secs(20);
    while !matches!(
        gateway.call("a", "fail_get", json!({})).await,
        Said::Text(_)
    ) {
        assert!(Instant::now() < deadline);
        sleep(Duration::from_millis(100)).await;
    }
}
