//! TLS: whom it trusts, and what is spoken in it.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use chandlery_gateway::outbound::{OutboundError, Repeat};
use futures::future::join_all;
use http::{Request, Response, Version};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::server::{ok, start_tls};
use crate::world::{get, outbound, to};

/// A server's side, with a certificate for `localhost`, and that in PEM.
fn certified() -> (ServerConfig, String) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    (config, made.cert.pem())
}

/// Says what it was asked; at `/large`, more than may be.
async fn echo(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    assert_eq!(request.version(), Version::HTTP_2);
    let asked = format!("{} {}", request.method(), request.uri());
    let body = match request.uri().path() {
        "/large" => "x".repeat(2 << 20).into(),
        _ => {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            [asked.as_bytes(), b" ", &body].concat()
        }
    };
    Ok(Response::new(Full::from(body)))
}

#[tokio::test]
async fn http_2_is_spoken_where_the_server_offers_it() {
    let (mut config, pem) = certified();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!(
        "https://localhost:{}",
        listener.local_addr().unwrap().port()
    );
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let connections = Arc::new(AtomicUsize::new(0));
    let count = connections.clone();
    let task = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            count.fetch_add(1, Ordering::SeqCst);
            let stream = TokioIo::new(acceptor.accept(stream).await.unwrap());
            let server = http2::Builder::new(TokioExecutor::new());
            tokio::spawn(server.serve_connection(stream, service_fn(echo)));
        }
    });
    let mut settings = to(&format!("{base}/"), &["localhost", "127.0.0.1"]);
    settings.ca_bundle = Some(pem);
    let upstream = outbound(None).upstream(settings).unwrap();
    // The first finds out what the server speaks; the others share its connection.
    assert!(get(&upstream, "/").await.is_ok());
    let calls = (0..8).map(|number| {
        let post = Request::post(format!("/a%2Fb?c={number}"));
        upstream.fetch(post.body("{}".into()).unwrap(), Repeat::Never)
    });
    for (number, reply) in join_all(calls).await.into_iter().enumerate() {
        let asked = format!("POST {base}/a%2Fb?c={number} {{}}");
        assert_eq!(reply.unwrap().body, asked);
    }
    let failure = get(&upstream, "/large").await.unwrap_err();
    assert!(
        matches!(failure, OutboundError::TooLarge { .. }),
        "{failure:?}"
    );
    // A stream is given up, and the connection is not.
    assert!(get(&upstream, "/").await.is_ok());
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    task.abort();
}

#[tokio::test]
async fn a_certificate_is_trusted_by_the_bundle_alone_and_for_its_name_alone() {
    let (config, pem) = certified();
    let (address, task) = start_tls(Arc::new(config), |_, _| ok("hi")).await;
    let port = address.port();
    let all = ["localhost", "127.0.0.1"];
    let upstream = |host: &str, bundle: Option<String>| {
        let mut settings = to(&format!("https://{host}:{port}/"), &all);
        settings.ca_bundle = bundle;
        outbound(None).upstream(settings)
    };
    let trusting = upstream("localhost", Some(pem.clone())).unwrap();
    assert_eq!(get(&trusting, "/").await.unwrap().body, "hi");
    drop(trusting);
    for (host, bundle) in [("localhost", None), ("127.0.0.1", Some(pem))] {
        let failure = get(&upstream(host, bundle).unwrap(), "/")
            .await
            .unwrap_err();
        assert!(matches!(failure, OutboundError::Tls { .. }), "{failure:?}");
    }
    for bundle in [
        "",
        "nonsense",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ] {
        let refused = upstream("localhost", Some(bundle.to_owned()))
            .err()
            .unwrap();
        assert!(matches!(refused, OutboundError::CaBundle), "{refused:?}");
    }
    task.abort();
}
