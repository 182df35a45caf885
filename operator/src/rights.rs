//! Every right that the operator needs, and none besides. The chart's roles are compared with this table, and this
//! table with what the API server's audit log saw.

use serde::Serialize;

/// Where a right is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Where {
    /// In every namespace that is watched.
    Watched,
    /// In the operator's own namespace, for leader election.
    Lease,
    /// In the namespace `default`.
    Default,
}

/// One rule, as in a Role.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Right {
    #[serde(rename = "where")]
    pub(crate) place: Where,
    pub(crate) api_group: &'static str,
    pub(crate) resources: &'static [&'static str],
    /// Empty: whatever their names.
    pub(crate) resource_names: &'static [&'static str],
    pub(crate) verbs: &'static [&'static str],
}

const fn watched(
    api_group: &'static str,
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
) -> Right {
    Right {
        place: Where::Watched,
        api_group,
        resources,
        resource_names: &[],
        verbs,
    }
}

/// Verbs on what the operator makes: it watches its own objects by label, looks at a foreign one of the same name
/// once before it would write, and server-side apply counts as create and patch. What belongs to a Workspace that is
/// deleted goes by the garbage collector's hand.
const OWNED: &[&str] = &["get", "list", "watch", "create", "patch"];

/// The table. A gateway's Role grants list and watch on the four kinds, and get on Secrets and ConfigMaps by their names:
/// nobody can grant more than they hold.
pub(crate) const RIGHTS: &[Right] = &[
    watched(
        "chandlery.dev",
        &["workspaces", "agents", "toolsources", "toolgrants"],
        &["list", "watch"],
    ),
    watched(
        "chandlery.dev",
        &[
            "workspaces/status",
            "agents/status",
            "toolsources/status",
            "toolgrants/status",
        ],
        &["patch"],
    ),
    // By name only: nobody can make the operator show all Secrets of a namespace.
    watched("", &["secrets"], &["get", "create", "patch", "delete"]),
    watched("", &["configmaps"], &["get"]),
    watched(
        "",
        &["services", "serviceaccounts", "persistentvolumeclaims"],
        OWNED,
    ),
    watched("apps", &["deployments"], OWNED),
    watched("networking.k8s.io", &["networkpolicies"], OWNED),
    watched(
        "policy",
        &["poddisruptionbudgets"],
        &["get", "list", "watch", "create", "patch", "delete"],
    ),
    watched(
        "rbac.authorization.k8s.io",
        &["roles", "rolebindings"],
        OWNED,
    ),
    watched("", &["pods"], &["list", "watch"]),
    watched("events.k8s.io", &["events"], &["create", "patch"]),
    Right {
        place: Where::Lease,
        api_group: "coordination.k8s.io",
        resources: &["leases"],
        resource_names: &[],
        verbs: &["create"],
    },
    // The chart narrows these to the lease's name.
    Right {
        place: Where::Lease,
        api_group: "coordination.k8s.io",
        resources: &["leases"],
        resource_names: &[],
        verbs: &["get", "watch", "update"],
    },
    Right {
        place: Where::Default,
        api_group: "discovery.k8s.io",
        resources: &["endpointslices"],
        resource_names: &["kubernetes"],
        verbs: &["get"],
    },
];
