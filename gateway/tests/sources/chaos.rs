//! Issue 5: an upstream that hangs, drips, floods, resets, lies, fails or changes harms nobody but its own callers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::harness::{Gateway, Said, agent, grant, source, workspace};
use crate::server::{Answer, Seen, Server, ok, reply};
use crate::upstreams::{Service, asked, document, json_of, mcp, mcp_tool, operation, serve};

const MODES: [&str; 8] = [
    "hang", "drip", "flood", "reset", "lie", "fail", "change", "die",
];
/// Calls of the healthy source in a second.
const RATE: u64 = 200;
const WINDOWS: usize = 3;
/// Between calls of one that is ill. With less, what floods would take the machine from whoever measures.
const PAUSE: Duration = Duration::from_millis(250);
/// Differences below it are those of a busy machine and a slow build.
const FLOOR: Duration = Duration::from_millis(2);

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

/// The figures of a run: the healthy source's p99 alone and beside chaos.
struct Figures {
    alone: Duration,
    beside: Duration,
}

async fn run(window: Duration) -> Figures {
    let is_ill = Arc::new(AtomicBool::new(false));
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
        let ill = Ill::start(mode, &is_ill).await;
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

    measure(&gateway, Duration::from_secs(3)).await;
    let mut alone = Vec::new();
    for _ in 0..WINDOWS {
        alone.push(percentile(&measure(&gateway, window).await, 99));
    }

    is_ill.store(true, Ordering::Relaxed);
    let memory = gateway.memory();
    let stop = Arc::new(AtomicBool::new(false));
    let mut callers = JoinSet::new();
    for name in &names {
        let (gateway, stop) = (gateway.clone(), stop.clone());
        let tool = format!("{}_get", name.replace('-', "_"));
        callers.spawn(async move {
            let mut failed = 0_u32;
            while !stop.load(Ordering::Relaxed) {
                let answer = timeout(
                    Duration::from_secs(10),
                    gateway.result("ill", &tool, json!({})),
                );
                let answer = answer.await.unwrap_or_else(|_| panic!("{tool} never ends"));
                failed += u32::from(!matches!(Said::of(&answer), Said::Text(_)));
                sleep(PAUSE).await;
            }
            failed
        });
    }
    let (mut beside, mut most) = (Vec::new(), 0);
    for _ in 0..WINDOWS {
        beside.push(percentile(&measure(&gateway, window).await, 99));
        most = most.max(gateway.memory());
        // What is ill keeps its tools on the lists.
        let list = gateway.list("ill").await;
        for name in before.iter().filter(|name| !name.contains("change")) {
            assert!(list.contains(name), "{name} is gone: {list:?}");
        }
    }
    stop.store(true, Ordering::Relaxed);
    let mut failed = 0;
    while let Some(ended) = callers.join_next().await {
        failed += ended.unwrap();
    }
    assert!(failed > 50, "there was no chaos: {failed}");
    let grown = most.saturating_sub(memory) >> 20;
    let flooded: usize = all
        .iter()
        .map(|ill| ill.service.server.written() + ill.server.written())
        .sum();
    println!(
        "{failed} calls failed; {} MB flooded; memory {} MB and {grown} MB more",
        flooded >> 20,
        memory >> 20
    );
    assert!(grown <= 64, "the gateway has grown by {grown} MB");

    // Its state is told, by REST and in the metrics.
    let metrics = gateway.metrics().await;
    for name in ["hang", "drip", "flood", "reset", "lie", "fail", "die"] {
        for name in [name.to_owned(), format!("mcp-{name}")] {
            let known = gateway
                .until(&name, |known| known["failure"].is_object())
                .await;
            assert_eq!(known["served"], 1, "{known:#}");
            assert!(known["age_seconds"].as_u64().unwrap() >= 10, "{known:#}");
            let failures = format!("chandlery_source_failures_total{{source=\"team.{name}\"}}");
            assert!(metrics.contains(&failures), "{failures} in {metrics}");
            let answered =
                format!("chandlery_source_last_answer_timestamp_seconds{{source=\"team.{name}\"}}");
            assert!(metrics.contains(&answered), "{answered} in {metrics}");
        }
    }
    for name in ["change", "mcp-change"] {
        let known = gateway.until(name, |known| known["withheld"] == 1).await;
        assert_eq!(known["changed"], 2, "{known:#}");
    }

    // What is well again is called again.
    is_ill.store(false, Ordering::Relaxed);
    for name in &names {
        gateway.until(name, |known| known["changed"] == 0).await;
        let tool = format!("{}_get", name.replace('-', "_"));
        let deadline = Instant::now() + Duration::from_secs(90);
        loop {
            match gateway.call("ill", &tool, json!({})).await {
                Said::Text(_) => break,
                other => assert!(Instant::now() < deadline, "{tool}: {other:?}"),
            }
            sleep(Duration::from_millis(500)).await;
        }
    }
    let figures = Figures {
        alone: middle(alone.clone()),
        beside: middle(beside.clone()),
    };
    println!(
        "p99 alone {alone:?}, beside chaos {beside:?}: {:.2}",
        figures.beside.as_secs_f64() / figures.alone.as_secs_f64()
    );
    figures
}

/// To the letter with a program that was built to be fast; on a busy machine a slow one measures the machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_healthy_source_does_not_notice_those_that_are_ill() {
    let Figures { alone, beside } = run(Duration::from_secs(5)).await;
    let bound = match std::env::var_os("CHANDLERY_PROGRAM") {
        Some(_) => alone.mul_f64(1.2).max(alone + FLOOR),
        // The other tests run beside it; no call waits for an ill source, at any rate.
        None => Duration::from_secs(1),
    };
    assert!(beside <= bound, "{beside:?} beside chaos, {alone:?} alone");
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
