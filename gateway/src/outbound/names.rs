//! Names become addresses: by `/etc/hosts` and the name servers of `/etc/resolv.conf`, asked by ourselves.
//!
//! A binary that is one static file has no `getaddrinfo`, and what is checked must be what is dialed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use tracing::warn;

use super::guard::is_localhost;
use super::guard::plain;

/// Which name servers are asked.
#[derive(Clone, Debug, Default)]
pub enum NameServers {
    /// Those of `/etc/resolv.conf`, and `/etc/hosts` before them.
    #[default]
    System,
    /// This one and nothing else; for tests.
    One(SocketAddr),
}

/// Longer than this no single question to a name server waits; it is asked twice.
const TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Clone)]
pub(super) struct Names(TokioResolver);

impl Names {
    /// Fails only if the resolver cannot be made; a machine without name servers knows `/etc/hosts` alone.
    pub(super) fn new(servers: &NameServers) -> Result<Self, NetError> {
        let mut builder = match servers {
            NameServers::System => TokioResolver::builder_tokio().unwrap_or_else(|error| {
                warn!(%error, "no name server is known, so only /etc/hosts is");
                configured(ResolverConfig::default())
            }),
            NameServers::One(address) => {
                let mut connection = ConnectionConfig::udp();
                connection.port = address.port();
                let server = NameServerConfig::new(address.ip(), true, vec![connection]);
                configured(ResolverConfig::from_name_servers(vec![server]))
            }
        };
        let options = builder.options_mut();
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        // Each new connection asks again.
        options.cache_size = 0;
        options.timeout = options.timeout.min(TIMEOUT);
        options.use_hosts_file = match servers {
            NameServers::System => ResolveHosts::Always,
            NameServers::One(_) => ResolveHosts::Never,
        };
        Ok(Self(builder.build()?))
    }

    /// Every address of `name`, at least one. Only `with_search` are the search domains of a cluster tried.
    pub(super) async fn addresses(
        &self,
        name: &str,
        with_search: bool,
    ) -> Result<Vec<IpAddr>, Arc<NetError>> {
        if is_localhost(name) {
            return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
        }
        let name = plain(name);
        let asked = if with_search {
            name.to_owned()
        } else {
            format!("{name}.")
        };
        let found = self.0.lookup_ip(asked).await.map_err(Arc::new)?;
        let addresses: Vec<IpAddr> = found.iter().collect();
        if addresses.is_empty() {
            return Err(Arc::new(NetError::from("no addresses")));
        }
        Ok(addresses)
    }
}

fn configured(config: ResolverConfig) -> hickory_resolver::ResolverBuilder<TokioRuntimeProvider> {
    TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
}
