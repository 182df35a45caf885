//! OAuth 2 client credentials against a token server on loopback.

use std::sync::Arc;
use std::time::Duration;

use chandlery_gateway::outbound::{CredentialSpec, Repeat, Upstream, parse};
use futures::future::join_all;

use crate::secrets::Secrets;
use crate::server::{Answer, Server, ok, reply};
use crate::world::{get, key, request, with_credential};

const LONG: Duration = Duration::from_secs(600);

fn token(number: usize, expires_in: &str) -> Answer {
    let text = format!(
        r#"{{"access_token":"token-number-{number}","token_type":"Bearer","expires_in":{expires_in}}}"#
    );
    Answer::Raw(reply("200 OK", "content-type: application/json\r\n", &text))
}

fn spec(tokens: &Server) -> CredentialSpec {
    CredentialSpec::OauthClientCredentials {
        token_url: parse(&tokens.url("/token")).unwrap(),
        client_id: "client one".to_owned(),
        secret: key(),
        scopes: vec!["read".to_owned(), "write".to_owned()],
        audience: Some("crm".to_owned()),
    }
}

fn upstream(api: &Server, tokens: &Server) -> (Arc<Upstream>, Arc<Secrets>) {
    let secrets = Arc::new(Secrets::default());
    secrets.set("client+secret");
    let upstream = with_credential(&api.url("/"), spec(tokens), &secrets, LONG).unwrap();
    (upstream, secrets)
}

#[tokio::test]
async fn one_token_serves_many_calls() {
    let tokens = Server::start(|_, before| token(before, "3600")).await;
    let api = Server::start(|_, _| ok("hi")).await;
    let (upstream, _) = upstream(&api, &tokens);
    for ended in join_all((0..8).map(|_| get(&upstream, "/"))).await {
        ended.unwrap();
    }
    get(&upstream, "/").await.unwrap();
    assert_eq!(tokens.seen().len(), 1);
    let asked = &tokens.seen()[0];
    assert_eq!(asked.line(), "POST /token HTTP/1.1");
    assert_eq!(
        asked.header("authorization"),
        Some("Basic Y2xpZW50K29uZTpjbGllbnQlMkJzZWNyZXQ=")
    );
    assert_eq!(
        asked.body,
        "grant_type=client_credentials&scope=read+write&audience=crm"
    );
    for seen in api.seen() {
        assert_eq!(seen.header("authorization"), Some("Bearer token-number-0"));
    }
}

#[tokio::test]
async fn a_server_that_wants_the_secret_in_the_form_gets_it_there() {
    let tokens = Server::start(|seen, before| match seen.header("authorization") {
        Some(_) => Answer::Raw(reply(
            "401 Unauthorized",
            "",
            r#"{"error":"invalid_client"}"#,
        )),
        None => token(before, r#""0""#),
    })
    .await;
    let api = Server::start(|_, _| ok("hi")).await;
    let (upstream, _) = upstream(&api, &tokens);
    for _ in 0..2 {
        get(&upstream, "/").await.unwrap();
    }
    let seen = tokens.seen();
    // It ends at once, so each call asks; the way that works is known the second time.
    assert_eq!(seen.len(), 3);
    assert!(
        seen[1]
            .body
            .ends_with("&client_id=client+one&client_secret=client%2Bsecret")
    );
}

#[tokio::test]
async fn a_refused_token_is_replaced_at_once() {
    let tokens = Server::start(|_, before| token(before, "3600")).await;
    let api = Server::start(|seen, _| match seen.header("authorization") {
        Some("Bearer token-number-1") => ok("hi"),
        _ => Answer::Raw(reply("401 Unauthorized", "", "")),
    })
    .await;
    let (upstream, _) = upstream(&api, &tokens);
    let reply = upstream.fetch(request("/"), Repeat::Never).await.unwrap();
    assert_eq!((reply.status.as_u16(), tokens.seen().len()), (200, 2));
}

#[tokio::test]
async fn a_token_that_ends_is_replaced_before() {
    let tokens = Server::start(|_, before| token(before, "2")).await;
    let api = Server::start(|_, _| ok("hi")).await;
    let (upstream, _) = upstream(&api, &tokens);
    get(&upstream, "/").await.unwrap();
    tokio::time::sleep(Duration::from_millis(1850)).await;
    get(&upstream, "/").await.unwrap();
    let last = api.seen().pop().unwrap();
    assert_eq!(last.header("authorization"), Some("Bearer token-number-1"));
}

#[tokio::test]
async fn a_refusal_is_told_by_its_code_alone() {
    let tokens = Server::start(|_, _| {
        let text =
            r#"{"error":"invalid_scope","error_description":"client+secret has no hunter2"}"#;
        Answer::Raw(reply("400 Bad Request", "", text))
    })
    .await;
    let api = Server::start(|_, _| ok("hi")).await;
    let (upstream, secrets) = upstream(&api, &tokens);
    let said = get(&upstream, "/").await.unwrap_err();
    assert_eq!(
        said.to_string(),
        "the token server refused: 400 invalid_scope"
    );
    assert!(!format!("{said:?}").contains("hunter2"));
    assert_eq!(api.connections(), 0);
    secrets.set_for("client+secret", Some(&["api.example.com"]));
    let upstream = with_credential(&api.url("/"), spec(&tokens), &secrets, LONG).unwrap();
    let said = get(&upstream, "/").await.unwrap_err().to_string();
    assert!(said.contains("may not be used for"), "{said}");
}

/// A token server that knows one secret only.
#[tokio::test]
async fn a_rotated_client_secret_is_used_at_once_and_a_wrong_one_not_again_and_again() {
    let tokens = Server::start(|seen, before| {
        let header = seen.header("authorization");
        if header == Some("Basic Y2xpZW50K29uZTpuZXc=") {
            token(before, "3600")
        } else {
            Answer::Raw(reply(
                "401 Unauthorized",
                "",
                r#"{"error":"invalid_client"}"#,
            ))
        }
    })
    .await;
    let api = Server::start(|_, _| ok("hi")).await;
    let (upstream, secrets) = upstream(&api, &tokens);
    for _ in 0..5 {
        let said = get(&upstream, "/").await.unwrap_err().to_string();
        assert_eq!(said, "the token server refused: 401 invalid_client");
    }
    // By header and by form, once.
    assert_eq!((tokens.seen().len(), secrets.reads()), (2, 2));
    secrets.set("new");
    tokio::time::sleep(Duration::from_millis(1300)).await;
    get(&upstream, "/").await.unwrap();
}

/// P12: the token server is dialed by the same rules.
#[tokio::test]
async fn a_token_server_in_the_cluster_needs_to_be_allowed() {
    let api = Server::start(|_, _| ok("hi")).await;
    let secrets = Arc::new(Secrets::default());
    let spec = CredentialSpec::OauthClientCredentials {
        token_url: parse("http://169.254.169.254/token").unwrap(),
        client_id: "a".to_owned(),
        secret: key(),
        scopes: Vec::new(),
        audience: None,
    };
    let refused = with_credential(&api.url("/"), spec, &secrets, LONG)
        .err()
        .unwrap();
    assert_eq!(refused.kind(), "blocked");
}
