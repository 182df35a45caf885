//! What the operator was told on its command line and in its environment, read once and checked.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use chandlery_crds::fields;
use chandlery_crds::key::base62_of;
use clap::{ArgAction, Parser, ValueEnum};

use crate::context;

/// Makes what Chandlery's resources describe: gateways, keys and their status.
#[derive(Debug, Parser)]
#[command(name = "chandlery-operator", version)]
struct Arguments {
    /// Image of the gateways, unless a Workspace names another.
    #[arg(long, required_unless_present = "print_rights")]
    gateway_image: Option<String>,
    /// When nodes pull the gateways' image: Always, IfNotPresent or Never. Default: as Kubernetes does.
    #[arg(long)]
    gateway_image_pull_policy: Option<PullPolicy>,
    /// Namespaces to watch, separated by commas. Default: all of them.
    #[arg(long, value_delimiter = ',')]
    watch_namespaces: Vec<String>,
    /// Whether to work only while holding the lease, so that replicas take turns.
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    leader_elect: bool,
    /// Namespace of the lease and of the operator's pods.
    #[arg(long, env = "POD_NAMESPACE", default_value = "chandlery-system")]
    lease_namespace: String,
    /// Name of the lease.
    #[arg(long, default_value = "chandlery-operator")]
    lease_name: String,
    /// How long a leader that vanished is waited for, such as 15s; at least 5s.
    #[arg(long, default_value = "15s")]
    lease_duration: String,
    /// Who this replica is in the lease and in events. Default: a name of its own each time it starts.
    #[arg(long, env = "POD_NAME")]
    identity: Option<String>,
    /// Address of /livez, /readyz and /metrics.
    #[arg(long, default_value = "0.0.0.0:8082")]
    health: SocketAddr,
    /// Domain of the cluster's DNS names.
    #[arg(long, default_value = "cluster.local")]
    cluster_domain: String,
    /// Whether a Secret has to say, by the annotation chandlery.dev/allowed-hosts, which hosts a ToolSource may show it to.
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    require_secret_hosts: bool,
    /// Ranges of addresses that look public and belong to the cluster, such as those of its pods, with commas between
    /// them: gateways treat them as private.
    #[arg(long, value_delimiter = ',')]
    private_ranges: Vec<String>,
    /// How log lines look.
    #[arg(long, value_enum, default_value_t = LogFormat::Json)]
    log_format: LogFormat,
    /// Prints the rights that the operator needs, as JSON, and ends.
    #[arg(long)]
    print_rights: bool,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Json,
    Text,
}

/// When nodes pull an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(crate) enum PullPolicy {
    Always,
    IfNotPresent,
    Never,
}

impl PullPolicy {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}

/// Where the resources lie that this operator looks after. References never leave a namespace, so each scope is
/// whole by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Cluster,
    Namespace(String),
}

/// What to do.
pub(crate) enum Command {
    PrintRights,
    Run(Box<Settings>),
}

/// Everything that may differ between two installations.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) gateway: GatewaySettings,
    pub(crate) scopes: Vec<Scope>,
    /// `None`: work without asking for the lease.
    pub(crate) lease: Option<LeaseSettings>,
    /// Who this replica is in events.
    pub(crate) identity: String,
    pub(crate) health: SocketAddr,
    pub(crate) log_format: LogFormat,
}

/// What the gateways' objects depend on besides their Workspace.
#[derive(Clone, Debug)]
pub(crate) struct GatewaySettings {
    pub(crate) image: String,
    pub(crate) image_pull_policy: Option<PullPolicy>,
    /// Where the operator's own pods run: they alone may reach a gateway's internal port.
    pub(crate) operator_namespace: String,
    pub(crate) cluster_domain: String,
    /// Whether the Secrets of ToolSources have to say which hosts they are for.
    pub(crate) require_secret_hosts: bool,
    /// Ranges of addresses that gateways treat as private besides those that always are.
    pub(crate) private_ranges: Vec<String>,
}

/// The lease that decides which replica works.
#[derive(Clone, Debug)]
pub(crate) struct LeaseSettings {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) identity: String,
    pub(crate) duration: Duration,
}

/// Reads and checks the command line and the environment. Ends the process where clap would (`--help`, bad flags).
pub(crate) fn read() -> anyhow::Result<Command> {
    let Arguments {
        gateway_image,
        gateway_image_pull_policy,
        watch_namespaces,
        leader_elect,
        lease_namespace,
        lease_name,
        lease_duration,
        identity,
        health,
        cluster_domain,
        require_secret_hosts,
        private_ranges,
        log_format,
        print_rights,
    } = Arguments::parse();
    if print_rights {
        return Ok(Command::PrintRights);
    }
    let duration = fields::Duration(lease_duration.clone())
        .parse()
        .with_context(|| {
            format!(
                "--lease-duration {lease_duration}: write a duration with its unit, such as 15s"
            )
        })?;
    if duration < Duration::from_secs(5) {
        bail!("--lease-duration {lease_duration}: write at least 5s");
    }
    let identity = identity.unwrap_or_else(|| {
        format!(
            "chandlery-operator-{}",
            base62_of(&context::random()[..4], 6)
        )
    });
    let mut scopes: Vec<Scope> = watch_namespaces
        .into_iter()
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .map(Scope::Namespace)
        .collect();
    if scopes.is_empty() {
        scopes.push(Scope::Cluster);
    }
    Ok(Command::Run(Box::new(Settings {
        gateway: GatewaySettings {
            image: gateway_image.context("--gateway-image is missing: name the gateways' image")?,
            image_pull_policy: gateway_image_pull_policy,
            operator_namespace: lease_namespace.clone(),
            cluster_domain,
            require_secret_hosts,
            private_ranges,
        },
        scopes,
        lease: leader_elect.then(|| LeaseSettings {
            namespace: lease_namespace,
            name: lease_name,
            identity: identity.clone(),
            duration,
        }),
        identity,
        health,
        log_format,
    })))
}
