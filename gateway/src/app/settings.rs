//! What `chandlery serve` runs with: flags and environment, checked once. Nothing else reads the environment.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use chandlery_crds::fields;
use chandlery_crds::names;
use clap::ValueEnum;
use ipnet::IpNet;
use secrecy::SecretString;

/// Where data lies when nothing else is said.
pub(super) const DATA: &str = "chandlery-data";

/// Flags of `chandlery serve`.
#[derive(clap::Args)]
pub(super) struct ServeArgs {
    /// Serve the manifests of this folder (*.yaml, *.yml, *.json), without Kubernetes.
    #[arg(long, value_name = "DIR", required_unless_present = "account", conflicts_with_all = ["account", "internal", "keys"])]
    manifests: Option<PathBuf>,
    /// Serve the account <NAMESPACE>/<NAME>, a Workspace of the cluster that this pod runs in.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = account, requires_all = ["internal", "keys"])]
    account: Option<AccountName>,
    /// Folder of the SQLite store; without Kubernetes also of the agents' keys.
    #[arg(long, value_name = "DIR", default_value = DATA)]
    data: PathBuf,
    /// URL of a PostgreSQL store (postgres://user:password@host/database), instead of SQLite.
    #[arg(long, value_name = "URL", env = names::STORE_URL_ENV, hide_env_values = true)]
    store: Option<SecretString>,
    /// Where agents connect.
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = loopback(names::GATEWAY_PORT))]
    listen: SocketAddr,
    /// Where /livez, /readyz and /metrics answer.
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = loopback(names::GATEWAY_HEALTH_PORT))]
    health: SocketAddr,
    /// Where the operator asks; only with --account.
    #[arg(long, value_name = "ADDRESS:PORT")]
    internal: Option<SocketAddr>,
    /// Folder of the account's own keys; only with --account.
    #[arg(long, value_name = "DIR")]
    keys: Option<PathBuf>,
    /// A host name that clients use, besides localhost. May be repeated; *.example.com stands for any one label.
    #[arg(long = "hostname", value_name = "HOST")]
    hostnames: Vec<String>,
    /// How long to go on serving what was known when the API server cannot be reached. Default: without limit.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    max_config_staleness: Option<Duration>,
    /// How long a call waits for a person before it says that it does. Many clients give a call up after 60s.
    #[arg(long, value_name = "DURATION", default_value = "50s", value_parser = duration)]
    approval_wait: Duration,
    /// Use credentials of Secrets alone that say which hosts they are for (annotation chandlery.dev/allowed-hosts).
    #[arg(long)]
    require_secret_hosts: bool,
    /// A range of addresses that is private although it looks public, such as that of a cluster's pods. May be repeated.
    #[arg(long = "private-range", value_name = "CIDR")]
    private_ranges: Vec<IpNet>,
    /// How log lines look.
    #[arg(long, value_enum, default_value_t)]
    log_format: LogFormat,
    /// What is logged: a level, or levels by module such as info,chandlery_gateway=debug.
    #[arg(long, value_name = "LEVELS", default_value = "info", env = "RUST_LOG")]
    log: String,
}

/// What a gateway runs with.
#[derive(Debug)]
pub struct Settings {
    pub source: Source,
    /// Folder of the SQLite store, and of keys and UIDs when there is no cluster.
    pub data: PathBuf,
    /// URL of the PostgreSQL store; `None` is SQLite.
    pub postgres: Option<SecretString>,
    pub listen: SocketAddr,
    pub health: SocketAddr,
    /// Host names that requests may carry on top of loopback.
    pub hostnames: Vec<String>,
    /// `None` is without limit.
    pub max_config_staleness: Option<Duration>,
    /// How long a call waits for a person.
    pub approval_wait: Duration,
    /// A Secret without the annotation is no credential.
    pub require_secret_hosts: bool,
    /// Addresses that only `allowedHosts` opens, besides those that are always private.
    pub private_ranges: Vec<IpNet>,
    pub log_format: LogFormat,
    /// Directives of what is logged.
    pub log: String,
}

/// Where the directory comes from.
#[derive(Debug)]
pub enum Source {
    /// A folder of manifests.
    Files { manifests: PathBuf },
    /// The API server of the cluster that the pod runs in.
    Cluster {
        account: AccountName,
        internal: SocketAddr,
        /// Folder with one file per key of the account's Secret.
        keys: PathBuf,
    },
}

/// An account: a Workspace that has a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountName {
    pub namespace: String,
    pub name: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

impl TryFrom<ServeArgs> for Settings {
    /// What to write instead.
    type Error = String;

    fn try_from(args: ServeArgs) -> Result<Self, String> {
        let ServeArgs {
            manifests,
            account,
            data,
            store,
            listen,
            health,
            internal,
            keys,
            hostnames,
            max_config_staleness,
            approval_wait,
            require_secret_hosts,
            private_ranges,
            log_format,
            log,
        } = args;
        let source = match (manifests, account, internal, keys) {
            (Some(manifests), None, None, None) if !manifests.is_dir() => {
                return Err(format!(
                    "--manifests {}: there is no such folder",
                    manifests.display()
                ));
            }
            (Some(manifests), None, None, None) => Source::Files { manifests },
            (None, Some(account), Some(internal), Some(keys)) => Source::Cluster {
                account,
                internal,
                keys,
            },
            _ => {
                return Err(
                    "write --manifests DIR, or --account with --internal and --keys".to_owned(),
                );
            }
        };
        Ok(Self {
            source,
            data,
            postgres: store,
            listen,
            health,
            hostnames,
            max_config_staleness,
            approval_wait,
            require_secret_hosts,
            private_ranges,
            log_format,
            log,
        })
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

fn account(text: &str) -> Result<AccountName, String> {
    match text.split_once('/') {
        Some((namespace, name))
            if !namespace.is_empty() && !name.is_empty() && !name.contains('/') =>
        {
            Ok(AccountName {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            })
        }
        _ => Err("write the account as <namespace>/<name>".to_owned()),
    }
}

/// Reads a duration with its unit.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    fields::Duration(text.to_owned())
        .parse()
        .ok_or_else(|| "write a duration with its unit, such as 30s or 15m".to_owned())
}
