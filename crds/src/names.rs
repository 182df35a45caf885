//! One place for every name that two parts must agree on.

/// API group of the four resources.
pub const GROUP: &str = "chandlery.dev";
/// The served version.
pub const VERSION: &str = "v1alpha1";
/// The one field manager of everything the operator writes.
pub const FIELD_MANAGER: &str = "chandlery-operator";
/// Any new value of this annotation on an Agent rotates its key now.
pub const ROTATE_KEY_ANNOTATION: &str = "chandlery.dev/rotate-key";
/// The hosts that a Secret with a credential is for: see [`crate::check::AllowedHosts`].
pub const ALLOWED_HOSTS_ANNOTATION: &str = "chandlery.dev/allowed-hosts";
/// Label on every object of ours that belongs to a Workspace: its name.
pub const WORKSPACE_LABEL: &str = "chandlery.dev/workspace";
/// Type of the Secrets that agents mount (Service Binding).
pub const BINDING_SECRET_TYPE: &str = "servicebinding.io/mcp";

/// Port of a gateway pod that serves MCP to agents; the Service maps port 80 to it.
pub const GATEWAY_PORT: u16 = 8080;
/// Port of a gateway pod that only the operator may reach.
pub const GATEWAY_INTERNAL_PORT: u16 = 8081;
/// Port of a gateway pod for `/livez`, `/readyz` and `/metrics`.
pub const GATEWAY_HEALTH_PORT: u16 = 8082;

/// Folder in a gateway pod where the account's Secret is mounted, one file per [`gateway_secret`] key.
pub const GATEWAY_SECRET_DIR: &str = "/etc/chandlery/gateway";
/// Folder in a gateway pod where its store lives (SQLite only).
pub const GATEWAY_DATA_DIR: &str = "/data";
/// Environment variable of a gateway pod that holds the PostgreSQL URL of its store.
pub const STORE_URL_ENV: &str = "CHANDLERY_STORE_URL";

/// Keys of the account's Secret `gateway-<name>`; each value is 32 random bytes in base62.
pub mod gateway_secret {
    /// Bearer token of the internal port.
    pub const INTERNAL_TOKEN: &str = "internal-token";
    /// Key of the audit rows' digests.
    pub const AUDIT_KEY: &str = "audit-key";
    /// Key that seals the `requestState` of multi-round requests.
    pub const STATE_KEY: &str = "state-key";
}

/// Keys of the Secret that an agent or a workspace mounts (`servicebinding.io/mcp`).
pub mod binding_secret {
    pub const TYPE: &str = "type";
    pub const PROVIDER: &str = "provider";
    pub const URI: &str = "uri";
    pub const HOST: &str = "host";
    pub const PORT: &str = "port";
    /// The active key.
    pub const TOKEN: &str = "token";
    /// The key that a rotation has prepared and that is not yet active.
    pub const NEXT_TOKEN: &str = "next-token";
    /// `Bearer <token>`.
    pub const AUTHORIZATION: &str = "authorization";
    /// A client configuration that is ready to use.
    pub const MCP_JSON: &str = "mcp.json";
}

/// Whether `name` is a DNS label: 1 to 63 lower-case letters, digits and inner hyphens.
pub fn is_dns_label(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len())
        && name.bytes().all(is_inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// Whether `name` is a DNS subdomain: labels with dots between them, 253 characters at most.
pub fn is_dns_subdomain(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_dns_label)
}

/// Id of an agent: `<namespace>.<name>`. Both parts are DNS labels, so the id splits at its one dot.
pub fn agent_id(namespace: &str, name: &str) -> String {
    format!("{namespace}.{name}")
}

/// Path of an agent's own MCP endpoint.
pub fn agent_path(agent_id: &str) -> String {
    format!("/runtime/agents/{agent_id}/mcp")
}

/// Path of a Workspace's MCP endpoint; `id` is `<namespace>.<name>`.
pub fn workspace_path(id: &str) -> String {
    format!("/workspaces/{id}/mcp")
}

/// Name of the Secret with an agent's key, unless `spec.key.secretName` names another.
pub fn agent_secret(agent: &str) -> String {
    format!("agent-{agent}-mcp")
}

/// Name of the Secret with a Workspace's key.
pub fn workspace_secret(workspace: &str) -> String {
    format!("workspace-{workspace}-mcp")
}

/// Whether a Secret of this name is one of ours, or would be if there were a Workspace or an Agent of that name: a key, or
/// what a gateway keeps for itself. An Agent can give the Secret with its key another name.
pub fn is_own_secret(name: &str) -> bool {
    let is_key = |kind: &str| name.starts_with(kind) && name.ends_with("-mcp");
    name.starts_with("gateway-") || ["agent-", "workspace-", "manage-"].into_iter().any(is_key)
}

/// Name of an account's Deployment, Service, ServiceAccount, Role, RoleBinding, NetworkPolicy,
/// PodDisruptionBudget and of the Secret with the gateway's own keys.
pub fn gateway(account: &str) -> String {
    format!("gateway-{account}")
}

/// Name of the volume claim that holds an account's SQLite store.
pub fn store_claim(account: &str) -> String {
    format!("gateway-{account}-store")
}

/// Base URL of an account's Service inside the cluster, without a trailing slash.
pub fn gateway_url(account: &str, namespace: &str) -> String {
    format!("http://{}", gateway_host(account, namespace))
}

/// Host name of an account's Service.
pub fn gateway_host(account: &str, namespace: &str) -> String {
    format!("{}.{namespace}.svc", gateway(account))
}

/// Whether `entry`, a name or a glob whose `*` stands for any run of characters, names `tool`.
pub fn glob_matches(entry: &str, tool: &str) -> bool {
    let mut parts = entry.split('*');
    let Some(mut rest) = parts.next().and_then(|first| tool.strip_prefix(first)) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glob_names_what_its_parts_enclose() {
        for (entry, tool, expected) in [
            ("memory", "memory", true),
            ("memory", "memory2", false),
            ("agnt_*", "agnt_datetime_now", true),
            ("*", "anything", true),
            ("agnt_*_now", "agnt_datetime_now", true),
            ("agnt_*_now", "agnt_now", false),
            ("*time*now", "agnt_datetime_now", true),
            ("a*a", "a", false),
            ("", "task", false),
        ] {
            assert_eq!(glob_matches(entry, tool), expected, "{entry} names {tool}");
        }
    }
}
