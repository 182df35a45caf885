//! Issue 5: a hung, dead or failing upstream is nobody else's trouble, and not for long its own callers'.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use chandlery_gateway::outbound::{
    Health, OperationName, Outbound, OutboundError, Repeat, Settings,
};
use futures::future::join_all;
use http::StatusCode;

use crate::server::{Answer, Server, ok, reply};
use crate::world::{get, request, settings, to, upstream, upstream_with};

#[tokio::test]
async fn a_full_queue_says_so_at_once_and_another_upstream_does_not_notice() {
    let hung = Server::start(|_, _| Answer::Hang).await;
    let well = Server::start(|_, _| ok("hi")).await;
    let outbound = Outbound::new(settings(None)).unwrap();
    let mut slow = to(&hung.url("/"), &["127.0.0.1"]);
    slow.concurrency = 2;
    slow.timeout = Duration::from_secs(3);
    let slow = outbound.upstream(slow).unwrap();
    let well = outbound
        .upstream(to(&well.url("/"), &["127.0.0.1"]))
        .unwrap();
    let calls = join_all((0..4).map(|_| get(&slow, "/")));
    let others = async {
        while slow.state().waiting < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let started = Instant::now();
        let failure = get(&slow, "/").await.unwrap_err();
        assert!(matches!(failure, OutboundError::Busy { .. }), "{failure:?}");
        for _ in 0..50 {
            assert_eq!(get(&well, "/").await.unwrap().body, "hi");
        }
        assert!(started.elapsed() < Duration::from_secs(2));
        assert_eq!((slow.state().running, slow.state().waiting), (2, 2));
    };
    let (ended, ()) = tokio::join!(calls, others);
    assert!(ended.iter().all(Result::is_err));
    assert_eq!((slow.state().running, slow.state().waiting), (0, 0));
}

#[tokio::test]
async fn a_caller_that_leaves_gives_its_place_back() {
    let hung = Server::start(|_, _| Answer::Hang).await;
    let upstream = upstream_with(&hung.url("/"), |to| to.concurrency = 1);
    for _ in 0..3 {
        let left = tokio::time::timeout(Duration::from_millis(50), get(&upstream, "/")).await;
        assert!(left.is_err());
        assert_eq!(upstream.state().running, 0);
    }
}

#[tokio::test]
async fn the_breaker_opens_and_closes_again() {
    let is_ill = Arc::new(AtomicBool::new(true));
    let ill = is_ill.clone();
    let server = Server::start(move |_, _| match ill.load(Ordering::SeqCst) {
        true => Answer::Raw(reply("500 Oops", "", "")),
        false => ok("hi"),
    })
    .await;
    let outbound = Outbound::new(Settings {
        first_pause: Duration::from_millis(200),
        ..settings(None)
    });
    let upstream = outbound
        .unwrap()
        .upstream(to(&server.url("/"), &["127.0.0.1"]))
        .unwrap();
    for _ in 0..5 {
        let reply = get(&upstream, "/").await.unwrap();
        assert_eq!(reply.status, StatusCode::INTERNAL_SERVER_ERROR);
    }
    let OutboundError::Open { retry_after, .. } = get(&upstream, "/").await.unwrap_err() else {
        panic!("the breaker is closed");
    };
    assert!(retry_after <= Duration::from_millis(250));
    assert_eq!(server.seen().len(), 5);
    assert!(matches!(upstream.state().health, Health::Open { .. }));
    is_ill.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(get(&upstream, "/").await.unwrap().body, "hi");
    assert_eq!(upstream.state().health, Health::Closed);
}

/// An operation that answers too much is left alone for a while; the rest of the upstream is not.
#[tokio::test]
async fn an_operation_that_floods_is_left_alone_and_no_other() {
    let is_ill = Arc::new(AtomicBool::new(true));
    let ill = is_ill.clone();
    let server = Server::start(move |seen, _| {
        let floods = ill.load(Ordering::SeqCst) && seen.line().starts_with("GET /flood");
        match (floods, seen.line().contains("announced")) {
            (false, _) => ok("hi"),
            (true, true) => {
                Answer::Raw(b"HTTP/1.1 200 OK\r\ncontent-length: 10000000000\r\n\r\n".to_vec())
            }
            (true, false) => Answer::Endless(
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec(),
                format!("8000\r\n{}\r\n", "x".repeat(0x8000)).into_bytes(),
                Duration::ZERO,
            ),
        }
    });
    let server = server.await;
    let outbound = Outbound::new(Settings {
        first_pause: Duration::from_millis(200),
        ..settings(None)
    });
    let upstream = outbound
        .unwrap()
        .upstream(to(&server.url("/"), &["127.0.0.1"]))
        .unwrap();
    let ask = async |operation: &str, path: &str| {
        let mut request = request(path);
        let name = OperationName(operation.into());
        request.extensions_mut().insert(name);
        upstream.fetch(request, Repeat::Idempotent).await
    };
    for (operation, path) in [("export", "/flood"), ("dump", "/flood/announced")] {
        for _ in 0..5 {
            let failure = ask(operation, path).await.unwrap_err();
            assert!(
                matches!(failure, OutboundError::TooLarge { .. }),
                "{failure:?}"
            );
            assert_eq!(ask("get", "/").await.unwrap().body, "hi");
        }
        let before = server.seen().len();
        for _ in 0..20 {
            let failure = ask(operation, path).await.unwrap_err();
            let OutboundError::Excessive { retry_after, .. } = failure else {
                panic!("{failure:?}");
            };
            assert!(retry_after <= Duration::from_millis(250));
            // What has no name, or another one, goes on.
            assert_eq!(get(&upstream, "/").await.unwrap().body, "hi");
            assert_eq!(ask("get", "/").await.unwrap().body, "hi");
        }
        assert_eq!(server.seen().len(), before + 40);
        assert_eq!(upstream.state().health, Health::Closed);
    }
    is_ill.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(300)).await;
    for (operation, path) in [("export", "/flood"), ("dump", "/flood/announced")] {
        assert_eq!(ask(operation, path).await.unwrap().body, "hi");
    }
}

/// What an earlier attempt may have done is told, though a later one surely did nothing.
#[tokio::test]
async fn of_several_failures_the_one_that_may_have_done_something_is_told() {
    let server = Server::start(|_, _| Answer::Last(Vec::new())).await;
    let url = server.url("/");
    let upstream = upstream(&url);
    let repeated = upstream.fetch(request("/"), Repeat::Idempotent);
    let close = async {
        while server.seen().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(server);
    };
    let (failure, ()) = tokio::join!(repeated, close);
    let failure = failure.unwrap_err();
    assert!(
        matches!(failure, OutboundError::Broken { .. }) && failure.may_be_done(),
        "{failure:?}"
    );
    // By now it is down from the beginning.
    let failure = get(&upstream, "/").await.unwrap_err();
    assert!(!failure.may_be_done(), "{failure:?}");
}

#[tokio::test]
async fn an_upstream_that_says_no_is_not_ill() {
    let server = Server::start(|_, _| Answer::Raw(reply("404 Not Found", "", "no"))).await;
    let upstream = upstream(&server.url("/"));
    for _ in 0..30 {
        assert_eq!(
            get(&upstream, "/").await.unwrap().status,
            StatusCode::NOT_FOUND
        );
    }
    assert_eq!(upstream.state().health, Health::Closed);
}

#[tokio::test]
async fn a_dead_upstream_is_left_alone_after_a_while() {
    let port = Server::start(|_, _| Answer::Hang).await.address.port();
    let upstream = upstream(&format!("http://127.0.0.1:{port}/"));
    tokio::time::sleep(Duration::from_millis(50)).await;
    for _ in 0..5 {
        let failure = get(&upstream, "/").await.unwrap_err();
        assert!(
            matches!(failure, OutboundError::Unreachable { .. }),
            "{failure:?}"
        );
    }
    let failure = get(&upstream, "/").await.unwrap_err();
    assert!(matches!(failure, OutboundError::Open { .. }), "{failure:?}");
}

#[tokio::test]
async fn only_what_may_be_repeated_is_repeated() {
    for (status, again) in [
        ("503 Busy", 3),
        ("502 Bad", 3),
        ("500 Oops", 1),
        ("429 Slow", 1),
        ("400 No", 1),
    ] {
        let server = Server::start(move |_, _| Answer::Raw(reply(status, "", ""))).await;
        let upstream = upstream(&server.url("/"));
        upstream
            .fetch(request("/"), Repeat::Idempotent)
            .await
            .unwrap();
        assert_eq!(server.seen().len(), again, "{status}");
        get(&upstream, "/").await.unwrap();
        assert_eq!(server.seen().len(), again + 1, "{status}");
    }
}

// What was answered is told, though the breaker opened before it could be repeated.
#[tokio::test]
async fn a_call_that_was_sent_is_not_said_to_have_been_left_alone() {
    let server = Server::start(|_, _| Answer::Raw(reply("503 Busy", "", ""))).await;
    let upstream = upstream(&server.url("/"));
    for _ in 0..8 {
        let before = server.seen().len();
        let told = upstream.fetch(request("/"), Repeat::Idempotent).await;
        let was_sent = server.seen().len() > before;
        match told {
            Ok(told) => assert_eq!(told.status, 503),
            Err(failure) => assert!(
                !was_sent && matches!(failure, OutboundError::Open { .. }),
                "{failure:?}"
            ),
        }
    }
    assert!(
        get(&upstream, "/").await.is_err(),
        "the breaker never opened"
    );
}

#[tokio::test]
async fn a_repeat_waits_as_long_as_the_upstream_asks_unless_that_is_long() {
    for (asked, requests) in [("1", 2), ("3600", 1)] {
        let header = format!("retry-after: {asked}\r\n");
        let server = Server::start(move |_, before| match before {
            0 => Answer::Raw(reply("429 Slow", &header, "")),
            _ => ok("hi"),
        })
        .await;
        let started = Instant::now();
        let reply = upstream(&server.url("/"))
            .fetch(request("/"), Repeat::Idempotent)
            .await;
        assert_eq!(server.seen().len(), requests);
        let took = started.elapsed();
        assert_eq!(reply.unwrap().status.is_success(), requests == 2);
        assert!(requests == 1 || took >= Duration::from_secs(1), "{took:?}");
    }
}

#[tokio::test]
async fn a_reset_is_repeated_if_it_may_be() {
    let server = Server::start(|_, before| match before % 2 {
        0 => Answer::Last(Vec::new()),
        _ => ok("hi"),
    })
    .await;
    let upstream = upstream(&server.url("/"));
    let reply = upstream
        .fetch(request("/"), Repeat::Idempotent)
        .await
        .unwrap();
    assert_eq!((reply.body.as_ref(), server.seen().len()), (&b"hi"[..], 2));
    let failure = get(&upstream, "/").await.unwrap_err();
    assert!(
        matches!(failure, OutboundError::Broken { .. }),
        "{failure:?}"
    );
    assert_eq!(server.seen().len(), 3);
}

#[tokio::test]
async fn an_upstream_that_dies_in_the_middle_is_ill() {
    let half = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi".to_vec();
    let server = Server::start(move |_, _| Answer::Last(half.clone())).await;
    let upstream = upstream(&server.url("/"));
    for _ in 0..5 {
        assert!(matches!(
            get(&upstream, "/").await,
            Err(OutboundError::Broken { .. })
        ));
    }
    assert!(matches!(upstream.state().health, Health::Open { .. }));
}
