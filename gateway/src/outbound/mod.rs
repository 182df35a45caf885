//! The one way out: every request that the gateway makes on somebody's behalf goes through here.
//!
//! Nothing here knows what a tool is. Nothing follows a redirect, asks a proxy, or reads the environment.

mod admission;
mod body;
mod breaker;
mod client;
mod credential;
mod error;
mod guard;
mod names;
mod origin;
mod redact;
mod slots;
mod upstream;

use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

pub use self::admission::OperationName;
pub use self::body::Body;
pub use self::breaker::Health;
pub use self::credential::{
    Attached, Credential, CredentialError, CredentialSpec, SecretKey, SecretSettings,
};
pub use self::error::{Cause, OutboundError};
pub use self::guard::{Blocked, parse};
pub use self::names::NameServers;
pub use self::redact::Redactor;
pub use self::upstream::{Repeat, Reply, State, Upstream, UpstreamSettings};

use self::client::{Client, Connector, Limits, Tls, trusting};
use self::guard::Guard;
use self::names::Names;
use crate::directory::References;

/// What holds for all upstreams.
#[derive(Clone, Debug)]
pub struct Settings {
    pub name_servers: NameServers,
    /// Resolving the name and TLS included.
    pub connect_timeout: Duration,
    /// How long a connection may lie idle. Below the 5 s after which common servers close theirs, since a request that
    /// crosses the end of its connection can often not be repeated.
    pub idle_connection: Duration,
    /// How long an event stream may be silent.
    pub idle_stream: Duration,
    pub max_header_bytes: usize,
    /// Ranges of the cluster that look public.
    pub private_ranges: Vec<IpNet>,
    /// How long an upstream that keeps failing is left alone at first.
    pub first_pause: Duration,
    pub secrets: SecretSettings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            name_servers: NameServers::System,
            connect_timeout: Duration::from_secs(5),
            idle_connection: Duration::from_secs(4),
            idle_stream: Duration::from_secs(300),
            max_header_bytes: 64 << 10,
            private_ranges: Vec::new(),
            first_pause: Duration::from_secs(1),
            secrets: SecretSettings::default(),
        }
    }
}

/// Makes upstreams; cheap to clone.
#[derive(Clone)]
pub struct Outbound(Arc<Inner>);

struct Inner {
    settings: Settings,
    names: Names,
    /// Of upstreams without certificates of their own.
    tls: Tls,
}

/// Why there is no way out at all.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error("make a resolver of names")]
    Names(#[source] Cause),
    #[error(transparent)]
    Tls(OutboundError),
}

impl Outbound {
    /// Reads the machine's name servers and hosts. Needs a runtime.
    pub fn new(settings: Settings) -> Result<Self, SetupError> {
        let names = Names::new(&settings.name_servers);
        Ok(Self(Arc::new(Inner {
            names: names.map_err(|error| SetupError::Names(Arc::new(error)))?,
            tls: trusting(None).map_err(SetupError::Tls)?,
            settings,
        })))
    }

    /// Prepares an upstream, or says why it may not be dialed as far as that is known without asking a name server.
    /// Dials nothing.
    pub fn upstream(&self, settings: UpstreamSettings) -> Result<Arc<Upstream>, OutboundError> {
        let all = &self.0.settings;
        let guard = Guard::new(&settings.allowed_hosts, &all.private_ranges)?;
        let tls = match &settings.ca_bundle {
            Some(bundle) => trusting(Some(bundle))?,
            None => self.0.tls.clone(),
        };
        let names = self.0.names.clone();
        let connector = Connector::new(guard.clone(), names, tls, all.connect_timeout);
        let limits = Limits {
            idle: all.idle_connection,
            header_bytes: all.max_header_bytes,
        };
        let client = Client::new(connector, limits);
        let upstream = Upstream::new(settings, guard, client, all.idle_stream, all.first_pause)?;
        Ok(Arc::new(upstream))
    }

    /// Makes the credential of the upstream that `settings` describe, out of Secrets of `namespace`. Reads none yet.
    pub fn credential(
        &self,
        spec: CredentialSpec,
        namespace: &str,
        references: Arc<dyn References>,
        settings: &UpstreamSettings,
    ) -> Result<Arc<dyn Credential>, OutboundError> {
        let secrets = self.0.settings.secrets;
        credential::credential(spec, namespace, references, settings, secrets, |tokens| {
            self.upstream(tokens)
        })
    }
}
