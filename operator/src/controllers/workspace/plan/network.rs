//! Who may reach a gateway, and what it may reach: everything else is denied.

use std::collections::BTreeMap;
use std::net::IpAddr;

use chandlery_crds::names::{self, GATEWAY_INTERNAL_PORT, GATEWAY_PORT};
use chandlery_crds::workspace::GatewaySpec;
use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPeer,
    NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::deployment::selector;
use crate::objects::{self, Owner};
use crate::settings::GatewaySettings;

/// An address of the API server: a NetworkPolicy cannot name it, so its endpoints are copied.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ApiServer {
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
}

/// Where node-local DNS caches listen.
const NODE_LOCAL_DNS: &str = "169.254.20.10/32";

pub(super) fn policy(
    owner: &Owner,
    spec: &GatewaySpec,
    api_server: &[ApiServer],
    settings: &GatewaySettings,
) -> NetworkPolicy {
    let account = &owner.name;
    NetworkPolicy {
        metadata: objects::metadata(owner, &names::gateway(account), account),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(LabelSelector {
                match_labels: Some(selector(account)),
                ..LabelSelector::default()
            }),
            policy_types: Some(vec!["Ingress".to_owned(), "Egress".to_owned()]),
            ingress: Some(ingress(spec, settings)),
            egress: Some(egress(spec, api_server)),
        }),
    }
}

fn ingress(spec: &GatewaySpec, settings: &GatewaySettings) -> Vec<NetworkPolicyIngressRule> {
    let clients = spec
        .allowed_from
        .clone()
        .unwrap_or_else(|| vec![pods(BTreeMap::new(), None)]);
    let operator = pods(
        labels(&[
            ("app.kubernetes.io/name", "chandlery"),
            ("app.kubernetes.io/component", "operator"),
        ]),
        Some(&settings.operator_namespace),
    );
    let rule = |from: Vec<NetworkPolicyPeer>, port| NetworkPolicyIngressRule {
        from: Some(from),
        ports: Some(vec![tcp(port)]),
    };
    let mut rules = Vec::new();
    // A rule without peers would let everybody in.
    if !clients.is_empty() {
        rules.push(rule(clients, GATEWAY_PORT));
    }
    rules.push(rule(vec![operator], GATEWAY_INTERNAL_PORT));
    rules
}

fn egress(spec: &GatewaySpec, api_server: &[ApiServer]) -> Vec<NetworkPolicyEgressRule> {
    let dns = pods(labels(&[("k8s-app", "kube-dns")]), Some("kube-system"));
    let mut rules = vec![NetworkPolicyEgressRule {
        to: Some(vec![dns, block(NODE_LOCAL_DNS.to_owned())]),
        ports: Some(vec![port("UDP", 53), port("TCP", 53)]),
    }];
    for ApiServer { address, port } in api_server {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        rules.push(NetworkPolicyEgressRule {
            to: Some(vec![block(format!("{address}/{bits}"))]),
            ports: Some(vec![tcp(*port)]),
        });
    }
    if !spec.egress_cidrs.is_empty() {
        let to = spec.egress_cidrs.iter().cloned().map(block).collect();
        rules.push(NetworkPolicyEgressRule {
            to: Some(to),
            ports: None,
        });
    }
    rules
}

/// Pods with these labels, in the named namespace or in the policy's own.
fn pods(labels: BTreeMap<String, String>, namespace: Option<&str>) -> NetworkPolicyPeer {
    let selector = |labels: BTreeMap<String, String>| LabelSelector {
        match_labels: Some(labels).filter(|labels| !labels.is_empty()),
        ..LabelSelector::default()
    };
    NetworkPolicyPeer {
        pod_selector: Some(selector(labels)),
        namespace_selector: namespace.map(|name| {
            selector(BTreeMap::from([(
                "kubernetes.io/metadata.name".to_owned(),
                name.to_owned(),
            )]))
        }),
        ip_block: None,
    }
}

fn labels(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
    labels
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

fn block(cidr: String) -> NetworkPolicyPeer {
    NetworkPolicyPeer {
        ip_block: Some(IPBlock { cidr, except: None }),
        ..NetworkPolicyPeer::default()
    }
}

fn tcp(number: u16) -> NetworkPolicyPort {
    port("TCP", number)
}

fn port(protocol: &str, number: u16) -> NetworkPolicyPort {
    NetworkPolicyPort {
        protocol: Some(protocol.to_owned()),
        port: Some(IntOrString::Int(number.into())),
        end_port: None,
    }
}
