//! What a call costs the thread that makes it, in CPU time. Linux tells; elsewhere there is nothing to see.

use std::time::Instant;

use crate::server::{Server, ok};
use crate::world::{get, upstream};

const CALLS: u32 = 20_000;

/// Nanoseconds that this thread has run.
fn ran() -> Option<u64> {
    let all = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    all.split_whitespace().next()?.parse().ok()
}

/// ≤ 80 µs for all of a gateway, so a small part of it here: `cargo test --release -- --ignored --nocapture cost`.
#[test]
#[ignore = "prints figures; they mean something in a release build"]
fn a_call_over_a_connection_that_is_open_costs_little() {
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let server = Server::start(|_, _| ok(&"x".repeat(1000))).await;
            send.send(server.url("/")).unwrap();
            std::future::pending::<()>().await;
        });
    });
    let url = receive.recv().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let upstream = upstream(&url);
        for _ in 0..1000 {
            get(&upstream, "/warm").await.unwrap();
        }
        let (before, started) = (ran(), Instant::now());
        for _ in 0..CALLS {
            get(&upstream, "/a/b?c=d").await.unwrap();
        }
        let took = started.elapsed() / CALLS;
        if let (Some(before), Some(after)) = (before, ran()) {
            println!(
                "{} ns of CPU per call, {took:?} each",
                (after - before) / u64::from(CALLS)
            );
        }
    });
}
