//! The client under test, and requests.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chandlery_gateway::outbound::{
    CredentialSpec, NameServers, Outbound, OutboundError, Repeat, Reply, SecretKey, SecretSettings,
    Settings, Upstream, UpstreamSettings, parse,
};
use http::Request;

use crate::dns::Dns;
use crate::secrets::Secrets;

/// For what must happen; how long it takes is not what these tests are about.
pub(crate) const SOON: Duration = Duration::from_secs(30);

pub(crate) fn settings(dns: Option<&Dns>) -> Settings {
    Settings {
        // Without one nothing is asked that could answer.
        name_servers: dns.map_or(NameServers::One("127.0.0.1:9".parse().unwrap()), |dns| {
            NameServers::One(dns.address)
        }),
        connect_timeout: Duration::from_secs(5),
        ..Settings::default()
    }
}

pub(crate) fn outbound(dns: Option<&Dns>) -> Outbound {
    Outbound::new(settings(dns)).unwrap()
}

pub(crate) fn to(base: &str, allowed: &[&str]) -> UpstreamSettings {
    UpstreamSettings {
        name: "demo.crm".to_owned(),
        base: parse(base).unwrap(),
        allowed_hosts: allowed.iter().map(|entry| (*entry).to_owned()).collect(),
        ca_bundle: None,
        timeout: SOON,
        max_response_bytes: 1 << 20,
        concurrency: 8,
        credential: None,
    }
}

/// To a server on loopback, which has to be allowed.
pub(crate) fn upstream(base: &str) -> Arc<Upstream> {
    upstream_with(base, |_| {})
}

pub(crate) fn upstream_with(
    base: &str,
    change: impl FnOnce(&mut UpstreamSettings),
) -> Arc<Upstream> {
    let mut settings = to(base, &["127.0.0.1"]);
    change(&mut settings);
    outbound(None).upstream(settings).unwrap()
}

pub(crate) fn request(url: &str) -> Request<Bytes> {
    Request::get(url).body(Bytes::new()).unwrap()
}

pub(crate) async fn get(upstream: &Upstream, url: &str) -> Result<Reply, OutboundError> {
    upstream.fetch(request(url), Repeat::Never).await
}

pub(crate) fn key() -> SecretKey {
    SecretKey {
        name: "s".to_owned(),
        key: "k".to_owned(),
    }
}

/// An upstream with a credential, read again every `every`.
pub(crate) fn with_credential(
    base: &str,
    spec: CredentialSpec,
    secrets: &Arc<Secrets>,
    every: Duration,
) -> Result<Arc<Upstream>, OutboundError> {
    with_rules(
        base,
        spec,
        secrets,
        SecretSettings {
            every,
            ..SecretSettings::default()
        },
    )
}

pub(crate) fn with_rules(
    base: &str,
    spec: CredentialSpec,
    secrets: &Arc<Secrets>,
    rules: SecretSettings,
) -> Result<Arc<Upstream>, OutboundError> {
    let outbound = Outbound::new(Settings {
        secrets: rules,
        ..settings(None)
    });
    let outbound = outbound.unwrap();
    let mut settings = to(base, &["127.0.0.1", "127.0.0.2"]);
    let credential = outbound.credential(spec, "demo", secrets.clone(), &settings)?;
    settings.credential = Some(credential);
    outbound.upstream(settings)
}
