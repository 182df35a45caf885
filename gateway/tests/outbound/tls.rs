//! TLS: whom it trusts.

use std::sync::Arc;

use chandlery_gateway::outbound::OutboundError;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::server::{ok, start_tls};
use crate::world::{get, outbound, to};

#[tokio::test]
async fn a_certificate_is_trusted_by_the_bundle_alone_and_for_its_name_alone() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let (address, task) = start_tls(Arc::new(config), |_, _| ok("hi")).await;
    let port = address.port();
    let all = ["localhost", "127.0.0.1"];
    let upstream = |host: &str, bundle: Option<String>| {
        let mut settings = to(&format!("https://{host}:{port}/"), &all);
        settings.ca_bundle = bundle;
        outbound(None).upstream(settings)
    };
    let pem = made.cert.pem();
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
