//! P12: nothing that was not meant is ever dialed, whatever a URL, a name server or an upstream says.

use std::net::IpAddr;

use chandlery_gateway::outbound::{Blocked, Outbound, OutboundError, Repeat, parse};
use http::Request;

use crate::dns::Dns;
use crate::server::{Answer, Server, ok, reply};
use crate::urls::URLS;
use crate::world::{get, outbound, request, to, upstream};

/// Listeners on every local address that a URL of the list could mean, all on one port.
async fn canaries() -> (u16, Vec<Server>) {
    let first = Server::canary("127.0.0.1:0").await.unwrap();
    let port = first.address.port();
    let mut all = vec![first];
    for address in ["127.0.0.2", "[::1]"] {
        // Not every machine has IPv6.
        all.extend(Server::canary(&format!("{address}:{port}")).await);
    }
    (port, all)
}

#[track_caller]
fn assert_silent(canaries: &[Server]) {
    for canary in canaries {
        assert_eq!(canary.connections(), 0, "{}", canary.address);
    }
}

/// As the lead's code does with every URL that a person, a document or an upstream wrote.
async fn dial(outbound: &Outbound, url: &str) -> Result<(), OutboundError> {
    let mut settings = to("https://api.example.com/", &[]);
    settings.base = parse(url)?;
    let upstream = outbound.upstream(settings)?;
    let url = upstream.base().as_str().to_owned();
    get(&upstream, &url).await.map(drop)
}

/// The name server knows one bad answer for any name, as those of an attacker do.
async fn loopback_dns() -> Dns {
    Dns::start(|_, _| vec!["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()]).await
}

#[tokio::test]
async fn none_of_the_62_urls_is_dialed() {
    let (port, canaries) = canaries().await;
    let dns = loopback_dns().await;
    let outbound = outbound(Some(&dns));
    for url in URLS {
        for part in [String::new(), format!(":{port}")] {
            let url = url.replace("{p}", &part);
            let refused = dial(&outbound, &url).await;
            assert!(
                matches!(refused, Err(OutboundError::Blocked(_))),
                "{url}: {refused:?}"
            );
        }
    }
    assert_silent(&canaries);
}

#[tokio::test]
async fn none_of_the_62_urls_is_dialed_when_an_upstream_is_asked_for_them() {
    let (port, canaries) = canaries().await;
    let dns = loopback_dns().await;
    let upstream = outbound(Some(&dns)).upstream(to("https://api.example.com/", &[]));
    let upstream = upstream.unwrap();
    for url in URLS {
        let url = url.replace("{p}", &format!(":{port}"));
        // What is no URI cannot even be asked for.
        if let Ok(request) = Request::get(&url).body(bytes::Bytes::new()) {
            let fetched = upstream.fetch(request.clone(), Repeat::Idempotent).await;
            assert!(fetched.is_err(), "{url}");
            assert!(upstream.open(request).await.is_err(), "{url}");
        }
    }
    assert_silent(&canaries);
}

#[tokio::test]
async fn one_bad_answer_among_good_ones_is_enough_to_dial_none() {
    let good = Server::canary("127.0.0.1:0").await.unwrap();
    let port = good.address.port();
    let bad = Server::canary(&format!("127.0.0.2:{port}")).await.unwrap();
    let dns = Dns::start(|_, _| {
        ["127.0.0.1", "127.0.0.2"]
            .map(|address| address.parse().unwrap())
            .to_vec()
    })
    .await;
    let base = format!("http://api.example.com:{port}/");
    let upstream = outbound(Some(&dns))
        .upstream(to(&base, &["127.0.0.1"]))
        .unwrap();
    let refused = get(&upstream, &base).await;
    let blocked = OutboundError::Blocked(Blocked::Loopback("api.example.com".to_owned()));
    assert_eq!(refused.unwrap_err().to_string(), blocked.to_string());
    assert_silent(&[good, bad]);
}

/// Issue 5: DNS that changes its answer.
#[tokio::test]
async fn a_name_that_changes_its_mind_is_checked_again_for_each_connection() {
    let good =
        Server::start(|_, _| Answer::Last(reply("200 OK", "connection: close\r\n", "hi"))).await;
    let port = good.address.port();
    let canary = Server::canary(&format!("127.0.0.2:{port}")).await.unwrap();
    let dns = Dns::start(|_, before| {
        let address: &str = if before < 2 { "127.0.0.1" } else { "127.0.0.2" };
        vec![address.parse::<IpAddr>().unwrap()]
    })
    .await;
    let base = format!("http://api.example.com:{port}/");
    let upstream = outbound(Some(&dns))
        .upstream(to(&base, &["127.0.0.1"]))
        .unwrap();
    for _ in 0..2 {
        assert_eq!(get(&upstream, &base).await.unwrap().body, "hi");
    }
    for _ in 0..4 {
        let refused = get(&upstream, &base).await;
        assert!(
            matches!(refused, Err(OutboundError::Blocked(_))),
            "{refused:?}"
        );
    }
    assert_eq!(good.seen().len(), 2);
    assert_eq!(
        good.seen()[0].header("host"),
        Some(&*format!("api.example.com:{port}"))
    );
    assert!(dns.asked() >= 6);
    assert_silent(&[canary]);
}

#[tokio::test]
async fn no_redirect_is_followed_and_none_is_repeated_to_the_agent() {
    let canary = Server::canary("127.0.0.1:0").await.unwrap();
    for status in [
        "301 Moved",
        "302 Found",
        "303 See Other",
        "307 Temporary",
        "308 Permanent",
    ] {
        let location = format!("location: {}\r\n", canary.url("/?token=hunter2"));
        let server = Server::start(move |_, _| Answer::Raw(reply(status, &location, ""))).await;
        let upstream = upstream(&server.url("/"));
        for repeat in [Repeat::Never, Repeat::Idempotent] {
            let refused = upstream.fetch(request("/a"), repeat).await.unwrap_err();
            assert!(matches!(refused, OutboundError::Redirected { .. }));
            let said = format!("{refused} {refused:?}");
            assert!(
                said.contains(&status[..3]) && !said.contains("hunter2"),
                "{said}"
            );
        }
        assert!(upstream.open(request("/a")).await.is_err());
        assert_eq!(server.seen().len(), 3);
    }
    assert_silent(&[canary]);
}

#[tokio::test]
async fn a_loop_of_redirects_is_one_request() {
    let server = Server::start(|_, _| Answer::Raw(reply("302 Found", "location: /\r\n", ""))).await;
    assert!(get(&upstream(&server.url("/")), "/").await.is_err());
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn a_name_is_dialed_at_the_address_that_passed() {
    let server = Server::start(|_, _| ok("hi")).await;
    let port = server.address.port();
    let dns = Dns::start(|_, _| vec!["127.0.0.1".parse().unwrap()]).await;
    let base = format!("http://crm.shop.svc:{port}/v1");
    let outbound = outbound(Some(&dns));
    let refused = outbound.upstream(to(&base, &[])).err().unwrap().to_string();
    assert!(refused.contains("name it under allowedHosts"), "{refused}");
    // Even a name that is allowed leads to this machine only if the machine is meant.
    let upstream = outbound.upstream(to(&base, &["crm.shop.svc"])).unwrap();
    assert!(get(&upstream, "/").await.is_err());
    assert_eq!(server.connections(), 0);
    let upstream = outbound
        .upstream(to(&base, &["crm.shop.svc", "127.0.0.1"]))
        .unwrap();
    assert_eq!(get(&upstream, "/").await.unwrap().body, "hi");
    let upstream = outbound.upstream(to(
        &server.url("/").replace("127.0.0.1", "localhost"),
        &["localhost"],
    ));
    assert_eq!(get(&upstream.unwrap(), "/").await.unwrap().body, "hi");
}

#[tokio::test]
async fn a_name_that_nobody_knows_says_so() {
    let dns = Dns::start(|_, _| Vec::new()).await;
    let upstream = outbound(Some(&dns))
        .upstream(to("https://nowhere.example/", &[]))
        .unwrap();
    let failure = get(&upstream, "/").await.unwrap_err();
    assert!(
        matches!(failure, OutboundError::Unresolvable { .. }),
        "{failure:?}"
    );
}
