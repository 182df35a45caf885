//! The gateway's pods: Deployment, Service and PodDisruptionBudget.

use std::collections::BTreeMap;

use chandlery_crds::names::{
    self, GATEWAY_DATA_DIR, GATEWAY_HEALTH_PORT, GATEWAY_INTERNAL_PORT, GATEWAY_PORT,
    GATEWAY_SECRET_DIR, STORE_URL_ENV,
};
use chandlery_crds::workspace::{GatewaySpec, PostgresSpec};
use k8s_openapi::api::apps::v1::{
    Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment,
};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, EmptyDirVolumeSource, EnvVar, EnvVarSource,
    HTTPGetAction, Lifecycle, LifecycleHandler, PersistentVolumeClaimVolumeSource,
    PodSecurityContext, PodSpec, PodTemplateSpec, Probe, ResourceRequirements, SeccompProfile,
    SecretKeySelector, SecretVolumeSource, SecurityContext, Service, ServicePort, ServiceSpec,
    SleepAction, Volume, VolumeMount,
};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::ObjectMeta;

use crate::objects::{self, Owner};
use crate::settings::{GatewaySettings, PullPolicy};

/// The user that a gateway runs as; its image is made for it.
const USER: i64 = 65532;
/// Seconds for a call that waits for a person (50 s) to end when a pod stops.
const GRACE_SECONDS: i64 = 60;
/// Seconds that a stopping pod goes on taking calls, until every node has heard that it is leaving.
const LEAVING_SECONDS: i64 = 3;

/// Labels that select an account's pods. Immutable in a Deployment: never add one.
pub(super) fn selector(account: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (
            "app.kubernetes.io/name".to_owned(),
            "chandlery-gateway".to_owned(),
        ),
        ("app.kubernetes.io/instance".to_owned(), account.to_owned()),
    ])
}

pub(super) fn deployment(
    owner: &Owner,
    spec: &GatewaySpec,
    postgres: Option<&PostgresSpec>,
    settings: &GatewaySettings,
) -> Deployment {
    let account = &owner.name;
    let mut labels = objects::labels(account);
    labels.extend(selector(account));
    Deployment {
        metadata: objects::metadata(owner, &names::gateway(account), account),
        spec: Some(DeploymentSpec {
            replicas: Some(spec.replicas),
            revision_history_limit: Some(3),
            selector: LabelSelector {
                match_labels: Some(selector(account)),
                ..LabelSelector::default()
            },
            strategy: Some(strategy(postgres.is_some())),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(labels),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod(owner, spec, postgres, settings)),
            },
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

/// Two pods never open one SQLite file; on PostgreSQL the new ones are ready before the old ones go.
fn strategy(is_postgres: bool) -> DeploymentStrategy {
    let rolling = RollingUpdateDeployment {
        max_surge: Some(IntOrString::Int(1)),
        max_unavailable: Some(IntOrString::Int(0)),
    };
    DeploymentStrategy {
        type_: Some(
            if is_postgres {
                "RollingUpdate"
            } else {
                "Recreate"
            }
            .to_owned(),
        ),
        rolling_update: is_postgres.then_some(rolling),
    }
}

fn pod(
    owner: &Owner,
    spec: &GatewaySpec,
    postgres: Option<&PostgresSpec>,
    settings: &GatewaySettings,
) -> PodSpec {
    let GatewaySpec {
        replicas: _,
        resources: _,
        hostnames: _,
        allowed_from: _,
        egress_cidrs: _,
        max_config_staleness: _,
        image: _,
        image_pull_secrets,
        priority_class_name,
        topology_spread_constraints,
        tolerations,
        node_selector,
    } = spec;
    let name = names::gateway(&owner.name);
    PodSpec {
        service_account_name: Some(name.clone()),
        // The gateway watches its own resources.
        automount_service_account_token: Some(true),
        enable_service_links: Some(false),
        termination_grace_period_seconds: Some(GRACE_SECONDS),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(USER),
            run_as_group: Some(USER),
            fs_group: Some(USER),
            fs_group_change_policy: Some("OnRootMismatch".to_owned()),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                localhost_profile: None,
            }),
            ..PodSecurityContext::default()
        }),
        containers: vec![container(owner, spec, postgres, settings)],
        volumes: Some(vec![
            Volume {
                name: "keys".to_owned(),
                secret: Some(SecretVolumeSource {
                    secret_name: Some(name),
                    // Group-readable: the files belong to root, and the gateway reads them through fsGroup.
                    default_mode: Some(0o440),
                    ..SecretVolumeSource::default()
                }),
                ..Volume::default()
            },
            data_volume(&owner.name, postgres.is_some()),
            Volume {
                name: "tmp".to_owned(),
                empty_dir: Some(EmptyDirVolumeSource::default()),
                ..Volume::default()
            },
        ]),
        image_pull_secrets: Some(image_pull_secrets.clone()).filter(|secrets| !secrets.is_empty()),
        priority_class_name: priority_class_name.clone(),
        topology_spread_constraints: Some(topology_spread_constraints.clone())
            .filter(|list| !list.is_empty()),
        tolerations: Some(tolerations.clone()).filter(|list| !list.is_empty()),
        node_selector: Some(node_selector.clone()).filter(|map| !map.is_empty()),
        ..PodSpec::default()
    }
}

fn data_volume(account: &str, is_postgres: bool) -> Volume {
    let claim = PersistentVolumeClaimVolumeSource {
        claim_name: names::store_claim(account),
        read_only: None,
    };
    Volume {
        name: "data".to_owned(),
        persistent_volume_claim: (!is_postgres).then_some(claim),
        empty_dir: is_postgres.then(EmptyDirVolumeSource::default),
        ..Volume::default()
    }
}

fn container(
    owner: &Owner,
    spec: &GatewaySpec,
    postgres: Option<&PostgresSpec>,
    settings: &GatewaySettings,
) -> Container {
    let mount = |name: &str, path: &str, read_only: bool| VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    };
    let port = |name: &str, port: u16| ContainerPort {
        name: Some(name.to_owned()),
        container_port: port.into(),
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    };
    let sleep = LifecycleHandler {
        sleep: Some(SleepAction {
            seconds: LEAVING_SECONDS,
        }),
        ..LifecycleHandler::default()
    };
    Container {
        name: "gateway".to_owned(),
        image: Some(spec.image.clone().unwrap_or_else(|| settings.image.clone())),
        image_pull_policy: settings
            .image_pull_policy
            .map(PullPolicy::as_str)
            .map(str::to_owned),
        args: Some(arguments(owner, spec, settings)),
        env: postgres.map(|postgres| vec![store_url(postgres)]),
        ports: Some(vec![
            port("mcp", GATEWAY_PORT),
            port("internal", GATEWAY_INTERNAL_PORT),
            port("health", GATEWAY_HEALTH_PORT),
        ]),
        volume_mounts: Some(vec![
            mount("keys", GATEWAY_SECRET_DIR, true),
            mount("data", GATEWAY_DATA_DIR, false),
            mount("tmp", "/tmp", false),
        ]),
        // Migrations may take a while at the start; afterwards a stuck process is restarted.
        startup_probe: Some(Probe {
            period_seconds: Some(1),
            failure_threshold: Some(300),
            ..probe("/livez")
        }),
        liveness_probe: Some(Probe {
            period_seconds: Some(10),
            failure_threshold: Some(6),
            ..probe("/livez")
        }),
        readiness_probe: Some(Probe {
            period_seconds: Some(2),
            failure_threshold: Some(3),
            ..probe("/readyz")
        }),
        // One SQLite pod has no other that could take its calls: there waiting would only make the gap longer.
        lifecycle: postgres.map(|_| Lifecycle {
            pre_stop: Some(sleep),
            ..Lifecycle::default()
        }),
        resources: Some(spec.resources.clone().unwrap_or_else(default_resources)),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                add: None,
            }),
            ..SecurityContext::default()
        }),
        ..Container::default()
    }
}

fn arguments(owner: &Owner, spec: &GatewaySpec, settings: &GatewaySettings) -> Vec<String> {
    let Owner {
        namespace,
        name: account,
        ..
    } = owner;
    let service = names::gateway(account);
    let any = |port: u16| format!("0.0.0.0:{port}");
    let mut arguments = vec!["serve".to_owned()];
    let mut flag = |name: &str, value: String| arguments.extend([format!("--{name}"), value]);
    flag("account", format!("{namespace}/{account}"));
    flag("listen", any(GATEWAY_PORT));
    flag("internal", any(GATEWAY_INTERNAL_PORT));
    flag("health", any(GATEWAY_HEALTH_PORT));
    flag("keys", GATEWAY_SECRET_DIR.to_owned());
    flag("data", GATEWAY_DATA_DIR.to_owned());
    flag("hostname", service.clone());
    flag("hostname", format!("{service}.{namespace}"));
    flag("hostname", format!("{service}.{namespace}.svc"));
    flag(
        "hostname",
        format!("{service}.{namespace}.svc.{}", settings.cluster_domain),
    );
    for hostname in &spec.hostnames {
        flag("hostname", hostname.clone());
    }
    if let Some(staleness) = &spec.max_config_staleness {
        flag("max-config-staleness", staleness.0.clone());
    }
    for range in &settings.private_ranges {
        flag("private-range", range.clone());
    }
    flag("log-format", "json".to_owned());
    if settings.require_secret_hosts {
        arguments.push("--require-secret-hosts".to_owned());
    }
    arguments
}

fn store_url(postgres: &PostgresSpec) -> EnvVar {
    let source = &postgres.url_from.secret_key_ref;
    EnvVar {
        name: STORE_URL_ENV.to_owned(),
        value_from: Some(EnvVarSource {
            secret_key_ref: Some(SecretKeySelector {
                name: source.name.clone(),
                key: source.key.clone(),
                optional: None,
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    }
}

fn probe(path: &str) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String("health".to_owned()),
            ..HTTPGetAction::default()
        }),
        timeout_seconds: Some(5),
        ..Probe::default()
    }
}

fn default_resources() -> ResourceRequirements {
    let quantity = |name: &str, value: &str| (name.to_owned(), Quantity(value.to_owned()));
    ResourceRequirements {
        requests: Some(BTreeMap::from([
            quantity("cpu", "50m"),
            quantity("memory", "64Mi"),
        ])),
        ..ResourceRequirements::default()
    }
}

/// Port 80 of the account's name inside the cluster. The internal port is not among its ports.
pub(super) fn service(owner: &Owner) -> Service {
    let account = &owner.name;
    Service {
        metadata: objects::metadata(owner, &names::gateway(account), account),
        spec: Some(ServiceSpec {
            type_: Some("ClusterIP".to_owned()),
            selector: Some(selector(account)),
            ports: Some(vec![ServicePort {
                name: Some("mcp".to_owned()),
                port: 80,
                target_port: Some(IntOrString::String("mcp".to_owned())),
                protocol: Some("TCP".to_owned()),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

/// Only with more than one replica: a budget for a single pod would block every drain of its node.
pub(super) fn budget(owner: &Owner, spec: &GatewaySpec) -> Option<PodDisruptionBudget> {
    let account = &owner.name;
    (spec.replicas > 1).then(|| PodDisruptionBudget {
        metadata: objects::metadata(owner, &names::gateway(account), account),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(LabelSelector {
                match_labels: Some(selector(account)),
                ..LabelSelector::default()
            }),
            ..PodDisruptionBudgetSpec::default()
        }),
        ..PodDisruptionBudget::default()
    })
}
