//! P15, issue 5: a credential reaches its origin, that one alone, the newest one, and never comes back.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use chandlery_gateway::outbound::{
    CredentialError, CredentialSpec, OutboundError, Repeat, SecretSettings,
};
use parking_lot::Mutex;

use crate::secrets::Secrets;
use crate::server::{Answer, Server, ok, reply};
use crate::world::{get, key, request, with_credential, with_rules};

const CANARY: &str = "canary-7f3e19/\"52\"-token";
const LONG: Duration = Duration::from_secs(600);

fn bearer() -> CredentialSpec {
    CredentialSpec::Bearer { secret: key() }
}

fn header() -> CredentialSpec {
    CredentialSpec::Header {
        name: "x-api-key".to_owned(),
        secret: key(),
    }
}

fn query() -> CredentialSpec {
    CredentialSpec::Query {
        name: "api key".to_owned(),
        secret: key(),
    }
}

fn basic() -> CredentialSpec {
    CredentialSpec::Basic {
        username: "bob".to_owned(),
        secret: key(),
    }
}

fn holding(value: &str) -> Arc<Secrets> {
    let secrets = Arc::new(Secrets::default());
    secrets.set(value);
    secrets
}

#[tokio::test]
async fn each_kind_is_sent_as_it_should_be() {
    let server = Server::start(|_, _| ok("hi")).await;
    let secrets = holding("s3cret+value/9\n");
    let expected = [
        (bearer(), "authorization", "Bearer s3cret+value/9"),
        (header(), "x-api-key", "s3cret+value/9"),
        (basic(), "authorization", "Basic Ym9iOnMzY3JldCt2YWx1ZS85"),
    ];
    for (spec, name, value) in expected {
        let upstream = with_credential(&server.url("/"), spec, &secrets, LONG).unwrap();
        get(&upstream, "/a?b=c").await.unwrap();
        let seen = server.seen().pop().unwrap();
        assert_eq!(seen.header(name), Some(value));
        assert_eq!(seen.line(), "GET /a?b=c HTTP/1.1");
    }
    let upstream = with_credential(&server.url("/"), query(), &secrets, LONG).unwrap();
    for (asked, sent) in [
        ("/a", "/a?api+key=s3cret%2Bvalue%2F9"),
        ("/a?b=c&", "/a?b=c&api+key=s3cret%2Bvalue%2F9"),
        ("/a?api%20key=mine&b=c", "/a?b=c&api+key=s3cret%2Bvalue%2F9"),
    ] {
        get(&upstream, asked).await.unwrap();
        let seen = server.seen().pop().unwrap();
        assert_eq!(seen.line(), format!("GET {sent} HTTP/1.1"));
    }
}

#[tokio::test]
async fn what_a_caller_wrote_in_its_place_is_not_sent() {
    let server = Server::start(|_, _| ok("hi")).await;
    let upstream = with_credential(&server.url("/"), bearer(), &holding("the-real-one"), LONG);
    let mut asked = request("/");
    asked
        .headers_mut()
        .append("authorization", "Bearer mine".parse().unwrap());
    asked
        .headers_mut()
        .append("authorization", "Bearer mine2".parse().unwrap());
    upstream.unwrap().fetch(asked, Repeat::Never).await.unwrap();
    let head = server.seen().pop().unwrap().head;
    assert!(
        head.contains("Bearer the-real-one") && !head.contains("mine"),
        "{head}"
    );
}

#[tokio::test]
async fn a_url_that_has_no_room_for_it_is_not_sent() {
    let server = Server::start(|_, _| ok("hi")).await;
    let secrets = holding("s3cret+value/9");
    let upstream = with_credential(&server.url("/"), query(), &secrets, LONG).unwrap();
    let path = format!("/x?v={}", "a".repeat(65_505));
    let refused = get(&upstream, &path).await.unwrap_err();
    assert!(
        matches!(refused, OutboundError::Credential(CredentialError::NoRoom)),
        "{refused:?}"
    );
    assert_eq!(server.seen().len(), 0);
}

#[tokio::test]
async fn no_other_origin_gets_it() {
    let server = Server::start(|_, _| ok("hi")).await;
    let other = Server::start(|_, _| ok("hi")).await;
    let port = server.address.port();
    let neighbour = Server::canary(&format!("127.0.0.2:{port}")).await.unwrap();
    for spec in [bearer(), header(), query(), basic()] {
        let upstream = with_credential(&server.url("/v1"), spec, &holding(CANARY), LONG).unwrap();
        for url in [other.url("/x"), neighbour.url("/x")] {
            get(&upstream, &url).await.unwrap();
        }
    }
    for seen in other.seen().iter().chain(&neighbour.seen()) {
        assert_eq!(seen.line(), "GET /x HTTP/1.1");
        assert_eq!(
            (seen.header("authorization"), seen.header("x-api-key")),
            (None, None)
        );
    }
    assert_eq!((other.seen().len(), server.seen().len()), (4, 0));
}

/// An upstream that sends its request back.
async fn echo() -> Server {
    Server::start(|seen, _| {
        let key = seen.header("x-api-key").unwrap_or_default();
        let headers = format!("x-echo: {key}\r\nx-other: 1\r\n");
        let json = serde_json::json!({ "you": { "sent": seen.head } });
        Answer::Raw(reply("200 OK", &headers, &json.to_string()))
    })
    .await
}

#[tokio::test]
async fn an_echo_does_not_bring_it_back() {
    let server = echo().await;
    for spec in [bearer(), header(), query(), basic()] {
        let upstream = with_credential(&server.url("/"), spec, &holding(CANARY), LONG).unwrap();
        let fetched = get(&upstream, "/").await.unwrap();
        assert_eq!(fetched.headers["x-other"], "1");
        let opened = upstream.open(request("/")).await.unwrap();
        let headers = format!("{:?}{:?}", fetched.headers, opened.headers());
        let opened = opened.into_body().whole_bytes().await.unwrap();
        let text = String::from_utf8([fetched.body, opened].concat()).unwrap() + &headers;
        assert!(text.contains("[redacted]"), "{text}");
        for form in ["canary", "Ym9i", "7f3e19", "%2F"] {
            assert!(!text.contains(form), "{text}");
        }
    }
}

#[tokio::test]
async fn an_echo_in_pieces_does_not_bring_it_back() {
    let server = Server::start(|_, _| {
        let (a, b) = CANARY.split_at(9);
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        let first = format!("{head}{:x}\r\ndata: {a}\r\n", a.len() + 6);
        let then = format!("{:x}\r\n{b}\n\n\r\n", b.len() + 2);
        Answer::Endless(first.into(), then.into(), Duration::from_millis(50))
    })
    .await;
    let upstream = with_credential(&server.url("/"), bearer(), &holding(CANARY), LONG).unwrap();
    let mut body = upstream.open(request("/")).await.unwrap().into_body();
    let mut text = Vec::new();
    while !text.ends_with(b"\n\n") {
        text.extend(body.next().await.unwrap().unwrap());
    }
    assert!(
        text.starts_with(b"data: [redacted]"),
        "{}",
        String::from_utf8_lossy(&text)
    );
}

/// Answers 401 to every other token.
async fn only(token: &'static str) -> Server {
    Server::start(move |seen, _| {
        match seen.header("authorization") == Some(&*format!("Bearer {token}")) {
            true => ok("hi"),
            false => Answer::Raw(reply("401 Unauthorized", "", "")),
        }
    })
    .await
}

#[tokio::test]
async fn a_rotated_secret_is_used_at_once_after_the_old_one_was_refused() {
    let server = only("new-token").await;
    let secrets = holding("old-token");
    let upstream = with_credential(&server.url("/"), bearer(), &secrets, LONG).unwrap();
    assert_eq!(get(&upstream, "/").await.unwrap().status, 401);
    // What was refused is read again, but not for each refusal.
    assert_eq!((server.seen().len(), secrets.reads()), (1, 2));
    get(&upstream, "/").await.unwrap();
    assert_eq!((server.seen().len(), secrets.reads()), (2, 2));
    secrets.set("new-token");
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let post = http::Request::post("/").body("x".into()).unwrap();
    assert_eq!(
        upstream.fetch(post, Repeat::Never).await.unwrap().status,
        200
    );
    assert_eq!(server.seen().len(), 4);
}

#[tokio::test]
async fn a_rotated_secret_is_used_in_time_without_any_refusal() {
    let server = Server::start(|_, _| ok("hi")).await;
    let secrets = holding("old-token");
    let every = Duration::from_millis(300);
    let upstream = with_credential(&server.url("/"), bearer(), &secrets, every).unwrap();
    get(&upstream, "/").await.unwrap();
    get(&upstream, "/").await.unwrap();
    assert_eq!(secrets.reads(), 1);
    secrets.set("new-token");
    tokio::time::sleep(every).await;
    get(&upstream, "/").await.unwrap();
    let seen = server.seen();
    assert_eq!(seen[1].header("authorization"), Some("Bearer old-token"));
    assert_eq!(seen[2].header("authorization"), Some("Bearer new-token"));
}

#[tokio::test]
async fn a_secret_that_cannot_be_read_goes_on_being_used_and_one_that_is_gone_does_not() {
    let server = Server::start(|_, _| ok("hi")).await;
    let secrets = holding("the-token");
    let rules = SecretSettings {
        every: Duration::from_millis(50),
        keep: Duration::from_secs(1),
        require_hosts: false,
    };
    let upstream = with_rules(&server.url("/"), bearer(), &secrets, rules).unwrap();
    get(&upstream, "/").await.unwrap();
    secrets.set_away(true);
    tokio::time::sleep(Duration::from_millis(100)).await;
    get(&upstream, "/").await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let failure = get(&upstream, "/").await.unwrap_err().to_string();
    assert!(failure.contains("Secret s cannot be read now"), "{failure}");
    secrets.set_away(false);
    tokio::time::sleep(Duration::from_millis(100)).await;
    get(&upstream, "/").await.unwrap();
    secrets.delete();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let failure = get(&upstream, "/").await.unwrap_err().to_string();
    assert!(failure.contains("there is no Secret s"), "{failure}");
    assert_eq!(server.seen().len(), 3);
}

#[tokio::test]
async fn a_secret_is_for_the_hosts_that_it_names() {
    let server = Server::start(|_, _| ok("hi")).await;
    let port = server.address.port();
    let strict = SecretSettings {
        require_hosts: true,
        ..SecretSettings::default()
    };
    let here = format!("127.0.0.1:{port}");
    for (hosts, rules, expected) in [
        (None, SecretSettings::default(), None),
        (None, strict, Some("must say which hosts")),
        (Some(vec!["127.0.0.1"]), strict, None),
        (Some(vec!["api.example.com", &here]), strict, None),
        (
            Some(vec!["127.0.0.1:1"]),
            strict,
            Some("may not be used for 127.0.0.1"),
        ),
        (
            Some(vec!["*.example.com"]),
            SecretSettings::default(),
            Some("may not be used"),
        ),
        (
            Some(vec![]),
            SecretSettings::default(),
            Some("may not be used"),
        ),
    ] {
        let secrets = Arc::new(Secrets::default());
        secrets.set_for("the-token", hosts.as_deref());
        let upstream = with_rules(&server.url("/"), bearer(), &secrets, rules).unwrap();
        let said = get(&upstream, "/")
            .await
            .err()
            .map(|error| error.to_string());
        match expected {
            None => assert_eq!(said, None),
            Some(text) => assert!(said.as_ref().unwrap().contains(text), "{said:?}"),
        }
    }
}

#[tokio::test]
async fn what_cannot_be_sent_is_said_without_saying_it() {
    let server = Server::start(|_, _| ok("hi")).await;
    for (value, expected) in [
        ("", "it is empty"),
        ("hunter2\nhunter3", "a header cannot hold"),
    ] {
        let upstream = with_credential(&server.url("/"), bearer(), &holding(value), LONG).unwrap();
        let said = get(&upstream, "/").await.unwrap_err();
        assert!(said.to_string().contains(expected), "{said}");
        assert!(!format!("{said:?}").contains("hunter"), "{said:?}");
    }
    let spec = CredentialSpec::Header {
        name: "Host".to_owned(),
        secret: key(),
    };
    let refused = with_credential(&server.url("/"), spec, &holding("x"), LONG).err();
    assert!(matches!(
        refused,
        Some(OutboundError::Credential(CredentialError::HeaderName(_)))
    ));
}

/// P15: at the level at which everything is logged.
#[test]
fn no_log_holds_it() {
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);
    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    tracing::subscriber::with_default(subscriber, || {
        runtime.block_on(async {
            let server = echo().await;
            for spec in [bearer(), header(), query(), basic()] {
                let url = server.url("/");
                let upstream = with_credential(&url, spec, &holding(CANARY), LONG).unwrap();
                get(&upstream, "/").await.unwrap();
            }
        });
    });
    let log = String::from_utf8(log.0.lock().clone()).unwrap();
    assert!(log.contains("hyper"), "nothing was logged");
    for form in ["canary-7f", "Ym9i"] {
        assert!(!log.contains(form));
    }
}
