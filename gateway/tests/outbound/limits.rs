//! What an upstream may send, and how long it may take.

use std::time::{Duration, Instant};

use chandlery_gateway::outbound::{OutboundError, Repeat};
use http::{Method, Request, StatusCode};

use crate::server::{Answer, Server, ok, reply};
use crate::world::{SOON, get, request, upstream, upstream_with};

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\n";
const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
const EVENTS: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

fn chunk(text: &str) -> Vec<u8> {
    format!("{:x}\r\n{text}\r\n", text.len()).into_bytes()
}

#[tokio::test]
async fn a_request_arrives_as_it_is_but_for_headers_about_the_connection() {
    let server = Server::start(|_, _| ok("hi")).await;
    let upstream = upstream(&server.url("/v1"));
    let request = Request::builder()
        .method(Method::POST)
        .uri(server.url("/v1/a%2Fb?x=1&y=%20"))
        .header("x-own", "1")
        .header("host", "evil.example")
        .header("transfer-encoding", "chunked")
        .header("content-length", "99")
        .header("proxy-authorization", "x")
        .header("accept-encoding", "gzip")
        .body("{}".into())
        .unwrap();
    let reply = upstream.fetch(request, Repeat::Never).await.unwrap();
    assert_eq!((reply.status, &*reply.body), (StatusCode::OK, &b"hi"[..]));
    let seen = &server.seen()[0];
    assert_eq!(seen.line(), "POST /v1/a%2Fb?x=1&y=%20 HTTP/1.1");
    assert_eq!(seen.header("x-own"), Some("1"));
    assert_eq!(seen.header("host"), Some(&*server.address.to_string()));
    assert_eq!(seen.header("content-length"), Some("2"));
    assert_eq!(seen.header("transfer-encoding"), None);
    assert_eq!(seen.header("proxy-authorization"), None);
    assert_eq!(seen.header("accept-encoding"), Some("identity"));
    assert_eq!(seen.body, "{}");
}

#[tokio::test]
async fn connections_are_used_again() {
    let server = Server::start(|_, _| ok("hi")).await;
    let upstream = upstream(&server.url("/"));
    for _ in 0..50 {
        assert_eq!(get(&upstream, "/").await.unwrap().body, "hi");
    }
    assert_eq!((server.connections(), server.seen().len()), (1, 50));
}

#[tokio::test]
async fn a_connection_that_the_upstream_closed_is_replaced() {
    let server = Server::start(|_, _| Answer::Last(reply("200 OK", "", "hi"))).await;
    let upstream = upstream(&server.url("/"));
    for _ in 0..5 {
        let post = Request::post("/").body("x".into()).unwrap();
        assert_eq!(
            upstream.fetch(post, Repeat::Never).await.unwrap().body,
            "hi"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(server.seen().len(), 5);
}

/// Issue 5: 10 GB.
#[tokio::test]
async fn a_body_without_end_is_cut() {
    let piece = chunk(&"x".repeat(60_000));
    let server =
        Server::start(move |_, _| Answer::Endless(CHUNKED.to_vec(), piece.clone(), Duration::ZERO))
            .await;
    let failure = get(&upstream(&server.url("/")), "/").await.unwrap_err();
    assert!(
        matches!(
            failure,
            OutboundError::TooLarge {
                limit: 1_048_576,
                ..
            }
        ),
        "{failure:?}"
    );
    tokio::time::sleep(Duration::from_millis(200)).await;
    // What is more than the cap lies in buffers of sockets.
    assert!(server.written() < 32 << 20, "{}", server.written());
}

#[tokio::test]
async fn a_body_that_announces_too_much_is_not_read() {
    let server =
        Server::start(|_, _| Answer::Raw([HEAD, b"content-length: 10000000000\r\n\r\n"].concat()))
            .await;
    let failure = get(&upstream(&server.url("/")), "/").await.unwrap_err();
    assert!(
        matches!(failure, OutboundError::TooLarge { .. }),
        "{failure:?}"
    );
}

/// Issue 5: 1 byte/s.
#[tokio::test]
async fn a_body_that_trickles_is_given_up_in_time() {
    let server = Server::start(|_, _| {
        Answer::Endless(CHUNKED.to_vec(), chunk("x"), Duration::from_millis(100))
    })
    .await;
    let upstream = upstream_with(&server.url("/"), |to| {
        to.timeout = Duration::from_millis(500)
    });
    let started = Instant::now();
    let failure = get(&upstream, "/").await.unwrap_err();
    assert!(
        matches!(failure, OutboundError::TimedOut { .. }),
        "{failure:?}"
    );
    assert!(started.elapsed() < Duration::from_secs(5));
    // A head that trickles is no better.
    let slow = Server::start(|_, _| {
        Answer::Endless(
            HEAD.to_vec(),
            b"x-a: 1\r\n".to_vec(),
            Duration::from_millis(100),
        )
    })
    .await;
    let upstream = upstream_with(&slow.url("/"), |to| to.timeout = Duration::from_millis(500));
    let failure = get(&upstream, "/").await.unwrap_err();
    assert!(
        matches!(failure, OutboundError::TimedOut { .. }),
        "{failure:?}"
    );
}

#[tokio::test]
async fn an_upstream_that_hangs_is_given_up_in_time() {
    let server = Server::start(|_, _| Answer::Hang).await;
    let upstream = upstream_with(&server.url("/"), |to| {
        to.timeout = Duration::from_millis(300)
    });
    let failure = upstream
        .fetch(request("/"), Repeat::Idempotent)
        .await
        .unwrap_err();
    assert!(
        matches!(failure, OutboundError::TimedOut { .. }),
        "{failure:?}"
    );
}

/// Issue 5: 100 MB of headers.
#[tokio::test]
async fn a_head_without_end_is_refused() {
    let lines = format!("x-a: {}\r\n", "y".repeat(8000)).into_bytes();
    let server =
        Server::start(move |_, _| Answer::Endless(HEAD.to_vec(), lines.clone(), Duration::ZERO))
            .await;
    let failure = get(&upstream(&server.url("/")), "/").await.unwrap_err();
    assert!(
        matches!(failure, OutboundError::HeaderTooLarge { .. }),
        "{failure:?}"
    );
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(server.written() < 32 << 20, "{}", server.written());
}

#[tokio::test]
async fn a_compressed_answer_is_refused() {
    for encoding in ["gzip", "br", "deflate, gzip", "x"] {
        let header = format!("content-encoding: {encoding}\r\n");
        let server = Server::start(move |_, _| Answer::Raw(reply("200 OK", &header, "bomb"))).await;
        let failure = get(&upstream(&server.url("/")), "/").await.unwrap_err();
        assert!(
            matches!(failure, OutboundError::Encoded { .. }),
            "{failure:?}"
        );
    }
}

#[tokio::test]
async fn what_is_no_http_is_said_to_be_none() {
    for answer in [
        &b"SSH-2.0-x\r\n\r\n"[..],
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi",
    ] {
        let server = Server::start(|_, _| Answer::Last(answer.to_vec())).await;
        let failure = get(&upstream(&server.url("/")), "/").await.unwrap_err();
        assert!(
            matches!(failure, OutboundError::Broken { .. }),
            "{failure:?}"
        );
    }
}

#[tokio::test]
async fn a_stream_comes_as_it_is_sent_and_may_be_longer_than_the_cap() {
    let event = chunk(&format!("data: {}\n\n", "x".repeat(50_000)));
    let server = Server::start(move |_, _| {
        Answer::Endless(EVENTS.to_vec(), event.clone(), Duration::from_millis(1))
    })
    .await;
    let upstream = upstream_with(&server.url("/"), |to| to.timeout = Duration::from_secs(5));
    let mut body = upstream.open(request("/")).await.unwrap().into_body();
    assert!(body.is_events());
    assert_eq!(upstream.state().streams, 1);
    let mut got = 0;
    while got < 4 << 20 {
        got += body.next().await.unwrap().unwrap().len();
    }
    drop(body);
    assert_eq!(upstream.state().streams, 0);
}

#[tokio::test]
async fn one_event_must_not_be_longer_than_the_cap() {
    let piece = chunk(&"x".repeat(50_000));
    let server =
        Server::start(move |_, _| Answer::Endless(EVENTS.to_vec(), piece.clone(), Duration::ZERO))
            .await;
    let mut body = upstream(&server.url("/"))
        .open(request("/"))
        .await
        .unwrap()
        .into_body();
    let failure = loop {
        if let Err(failure) = body.next().await.unwrap() {
            break failure;
        }
    };
    assert!(
        matches!(failure, OutboundError::TooLarge { .. }),
        "{failure:?}"
    );
    assert!(body.next().await.is_none());
}

#[tokio::test]
async fn an_answer_that_is_no_stream_has_its_deadline_when_opened_too() {
    let server = Server::start(|_, _| {
        Answer::Endless(CHUNKED.to_vec(), chunk("x"), Duration::from_millis(50))
    })
    .await;
    let upstream = upstream_with(&server.url("/"), |to| {
        to.timeout = Duration::from_millis(400)
    });
    let body = upstream.open(request("/")).await.unwrap().into_body();
    let failure = tokio::time::timeout(SOON, body.whole_bytes())
        .await
        .unwrap()
        .unwrap_err();
    assert!(
        matches!(failure, OutboundError::TimedOut { .. }),
        "{failure:?}"
    );
}
