//! ToolSource: where tools come from that are not built in.

use std::time::Duration as StdDuration;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::agent::Level;
use crate::fields::{Conditions, ConfigMapKeyRef, Duration, SecretKeyRef, SecretSource};

/// Where tools come from: an OpenAPI document or a remote MCP server.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "chandlery.dev",
    version = "v1alpha1",
    kind = "ToolSource",
    namespaced,
    status = "ToolSourceStatus",
    derive = "PartialEq",
    shortname = "chs",
    category = "chandlery",
    doc = "A source of tools: an OpenAPI document or a remote MCP server.",
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Tools", type_ = "integer", json_path = ".status.tools.served"),
    printcolumn(name = "Withheld", type_ = "integer", json_path = ".status.tools.withheld"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message", priority = 1),
    validation = Rule::new("self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && self.metadata.name.size() <= 40")
        .message("name a ToolSource with at most 40 lower-case letters, digits and hyphens (no dots)")
)]
#[x_kube(validation = Rule::new("has(self.openapi) != has(self.mcp)").message("write exactly one of: openapi, mcp"))]
#[x_kube(validation = Rule::new("!has(self.toolPrefix) || self.toolPrefix != '' || has(self.mcp)")
    .message("only the tools of an MCP server may go without a prefix: write one, or leave toolPrefix out").field_path(".toolPrefix"))]
#[serde(rename_all = "camelCase")]
pub struct ToolSourceSpec {
    /// Operations of an HTTP service, from its OpenAPI document. Write either this or mcp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub openapi: Option<OpenapiSpec>,
    /// Tools of a remote MCP server. Write either this or openapi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp: Option<McpSpec>,
    /// What the names of the source's tools begin with, followed by `_`. Empty, for mcp alone: nothing. Default: the
    /// source's name with `_` for `-`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 40))]
    #[x_kube(validation = Rule::new("self.matches('^([A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?)?$')")
        .message("write letters, digits, _ and -, beginning with a letter and without a _ at the end"))]
    pub tool_prefix: Option<String>,
    /// The least that a call of the source's tools needs, however lenient Agents and grants are. Default: act.
    #[serde(default)]
    pub permission: Level,
    /// The credential that goes along with every request. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<AuthSpec>,
    /// How the source proves who it is. Default: by a certificate of a public authority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsSpec>,
    /// How long a call may take, at least 1s. Default: 30s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = crate::fields::at_least("1s", "30s"))]
    pub timeout: Option<Duration>,
    /// The longest answer that is taken, in bytes, 1,024 to 16,777,216. Default: 1048576.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1024, max = 16_777_216))]
    pub max_response_bytes: Option<i64>,
    /// In-cluster and private hosts that the source may be reached at, at most 32: `crm.shop.svc`, `*.shop.svc`,
    /// `10.1.2.0/24`, each with or without a port. Default: public addresses alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 253)))]
    #[x_kube(validation = Rule::new(r"self.all(host, host.matches('^([*][.])?[A-Za-z0-9_.-]+(:[0-9]{1,5})?$') || host.matches('^[0-9.]+/[0-9]{1,2}(:[0-9]{1,5})?$') || host.matches('^\\[?[0-9A-Fa-f:.]+\\]?(/[0-9]{1,3})?(:[0-9]{1,5})?$'))")
        .message("write hosts, such as crm.shop.svc, *.shop.svc, 10.1.2.3:8080 or 10.1.2.0/24, without a scheme or a path"))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub allowed_hosts: Vec<String>,
    /// What happens when the source's tools change. Default: a tool that is new or has changed is withheld.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinning: Option<PinningSpec>,
    /// How often the source is asked what it offers, at least 10s. Default: 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = crate::fields::at_least("10s", "10m"))]
    pub refresh_every: Option<Duration>,
}

impl ToolSourceSpec {
    /// The ConfigMap that holds the document, if one does.
    pub fn document_ref(&self) -> Option<&ConfigMapKeyRef> {
        self.openapi.as_ref()?.config_map_key_ref.as_ref()
    }

    /// The ConfigMap that holds the certificates of its authorities, if one does.
    pub fn ca_ref(&self) -> Option<&ConfigMapKeyRef> {
        self.tls
            .as_ref()?
            .ca_bundle
            .as_ref()?
            .config_map_key_ref
            .as_ref()
    }

    /// The Secret that holds the credential, if there is one, and where it is written.
    pub fn credential_ref(&self) -> Option<(&SecretKeyRef, &'static str)> {
        self.auth.as_ref()?.secret()
    }

    /// What the names of the tools of a source called `name` begin with; empty for nothing.
    pub fn prefix(&self, name: &str) -> String {
        self.tool_prefix
            .clone()
            .unwrap_or_else(|| name.replace('-', "_"))
    }

    /// How long a call may take.
    pub fn timeout(&self) -> StdDuration {
        parsed(&self.timeout, StdDuration::from_secs(30))
    }

    /// How often the source is asked what it offers.
    pub fn refresh_every(&self) -> StdDuration {
        parsed(&self.refresh_every, StdDuration::from_secs(600))
    }

    /// The longest answer that is taken, in bytes.
    pub fn max_response_bytes(&self) -> usize {
        let wanted = self.max_response_bytes.unwrap_or(1 << 20);
        usize::try_from(wanted).unwrap_or(1 << 20)
    }

    /// What happens when the tools change, and which revision somebody has approved.
    pub fn pinning(&self) -> PinningSpec {
        self.pinning.clone().unwrap_or_default()
    }
}

fn parsed(duration: &Option<Duration>, default: StdDuration) -> StdDuration {
    let written = duration.as_ref().and_then(Duration::parse);
    written.unwrap_or(default)
}

/// An OpenAPI document.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[x_kube(validation = Rule::new("(has(self.url) ? 1 : 0) + (has(self.configMapKeyRef) ? 1 : 0) + (has(self.inline) ? 1 : 0) == 1")
    .message("write exactly one of: url, configMapKeyRef, inline"))]
#[serde(rename_all = "camelCase")]
pub struct OpenapiSpec {
    /// Where the document is served. Write one of url, configMapKeyRef and inline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    #[x_kube(validation = crate::fields::url())]
    pub url: Option<String>,
    /// A ConfigMap that holds the document. Write one of url, configMapKeyRef and inline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<ConfigMapKeyRef>,
    /// The document itself, at most 200,000 characters; a longer one belongs in a ConfigMap. Write one of url,
    /// configMapKeyRef and inline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200000))]
    pub inline: Option<String>,
    /// Where the service itself listens. Default: the first server that the document names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    #[x_kube(validation = crate::fields::url())]
    pub base_url: Option<String>,
    /// The operations to take, at most 256: names and globs (`list_*`), or `GET /customers/*`. Default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(min = 1, max = 200)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub include: Vec<String>,
    /// The operations to leave out of those, at most 256, written the same way. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(min = 1, max = 200)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub exclude: Vec<String>,
}

/// A remote MCP server.
#[derive(KubeSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct McpSpec {
    /// Where it listens (Streamable HTTP).
    #[schemars(length(max = 2048))]
    #[x_kube(validation = crate::fields::url())]
    pub url: String,
}

/// A credential, from a Secret.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[x_kube(validation = Rule::new("(has(self.bearer) ? 1 : 0) + (has(self.header) ? 1 : 0) + (has(self.query) ? 1 : 0) + (has(self.basic) ? 1 : 0) + (has(self.oauthClientCredentials) ? 1 : 0) == 1")
    .message("write exactly one of: bearer, header, query, basic, oauthClientCredentials"))]
#[serde(rename_all = "camelCase")]
pub struct AuthSpec {
    /// Sent as `Authorization: Bearer <value>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bearer: Option<SecretSource>,
    /// Sent in a header of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<HeaderAuth>,
    /// Sent in the query of each URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<QueryAuth>,
    /// Sent as `Authorization: Basic <user name and password>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basic: Option<BasicAuth>,
    /// A token that an authorization server gives for a client's own secret (OAuth 2, client credentials).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oauth_client_credentials: Option<OauthClientCredentials>,
}

impl AuthSpec {
    /// The Secret that is read, and where it is written; `None` when nothing is.
    pub fn secret(&self) -> Option<(&SecretKeyRef, &'static str)> {
        if let Some(bearer) = &self.bearer {
            Some((&bearer.secret_key_ref, "spec.auth.bearer.secretKeyRef"))
        } else if let Some(header) = &self.header {
            Some((&header.secret_key_ref, "spec.auth.header.secretKeyRef"))
        } else if let Some(query) = &self.query {
            Some((&query.secret_key_ref, "spec.auth.query.secretKeyRef"))
        } else if let Some(basic) = &self.basic {
            Some((&basic.secret_key_ref, "spec.auth.basic.secretKeyRef"))
        } else {
            let oauth = self.oauth_client_credentials.as_ref()?;
            let field = "spec.auth.oauthClientCredentials.secretKeyRef";
            Some((&oauth.secret_key_ref, field))
        }
    }
}

/// A credential in a header.
#[derive(KubeSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HeaderAuth {
    /// Name of the header, such as `X-Api-Key`.
    #[schemars(length(max = 128))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z0-9-]+$') && !(self.lowerAscii() in ['host', 'content-length', 'transfer-encoding', 'connection', 'content-type', 'accept'])")
        .message("write the name of a header for credentials, such as X-Api-Key"))]
    pub name: String,
    /// The Secret's name and key.
    pub secret_key_ref: SecretKeyRef,
}

/// A credential in the query.
#[derive(KubeSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueryAuth {
    /// Name of the parameter, such as `api_key`.
    #[schemars(length(max = 128))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z0-9_.-]+$')").message("write the name of a query parameter, such as api_key"))]
    pub name: String,
    /// The Secret's name and key.
    pub secret_key_ref: SecretKeyRef,
}

/// A user name and a password.
#[derive(KubeSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BasicAuth {
    /// The user name.
    #[schemars(length(min = 1, max = 256))]
    #[x_kube(validation = Rule::new("self.matches('^[ -9;-~]+$')").message("write a user name in ASCII, without a colon"))]
    pub username: String,
    /// Name and key of the Secret with the password.
    pub secret_key_ref: SecretKeyRef,
}

/// A client of an authorization server.
#[derive(KubeSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OauthClientCredentials {
    /// Where tokens are given. `allowedHosts` is about it, too.
    #[schemars(length(max = 2048))]
    #[x_kube(validation = crate::fields::url())]
    pub token_url: String,
    /// The client's id.
    #[schemars(length(min = 1, max = 512))]
    pub client_id: String,
    /// Name and key of the Secret with the client's secret.
    pub secret_key_ref: SecretKeyRef,
    /// What is asked for, at most 32. Default: what the server gives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 256)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub scopes: Vec<String>,
    /// Whom the token is for, where the server wants to know. Default: nothing is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub audience: Option<String>,
}

/// How a source proves who it is.
#[derive(KubeSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TlsSpec {
    /// Certificates of the authorities that sign for it, beside the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_bundle: Option<CaBundle>,
}

/// Certificates of authorities, in PEM.
#[derive(KubeSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
#[x_kube(validation = Rule::new("has(self.configMapKeyRef) != has(self.inline)").message("write exactly one of: configMapKeyRef, inline"))]
#[serde(rename_all = "camelCase")]
pub struct CaBundle {
    /// A ConfigMap that holds them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<ConfigMapKeyRef>,
    /// The certificates themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 100000))]
    #[x_kube(validation = Rule::new("self.contains('-----BEGIN CERTIFICATE-----')").message("write certificates in PEM"))]
    pub inline: Option<String>,
}

/// What happens when a source's tools change.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PinningSpec {
    /// Quarantine: a tool that is new or has changed is withheld. Warn: it is served, and the status says so. Off: it is
    /// served. The first revision that is seen is trusted, unless approvedRevision names another. Default: Quarantine.
    #[serde(default)]
    pub policy: PinningPolicy,
    /// The revision that somebody has looked at, as `status.revision` names it: its tools are served, and what an MCP
    /// server says in their annotations counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^[0-9a-f]{32}$')").message("write a revision as the status names it: 32 hex digits"))]
    pub approved_revision: Option<String>,
}

/// What happens to tools that are new or have changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum PinningPolicy {
    #[default]
    Quarantine,
    Warn,
    Off,
}

/// What the operator and the gateways found.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolSourceStatus {
    /// The `metadata.generation` that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, ResolvedRefs, Reachable, ToolsChanged, and Reconciling or Stalled while something is open or wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::embedded::conditions")]
    pub conditions: Conditions,
    /// Names what the source offers now: 32 hex digits, to be written into `spec.pinning.approvedRevision`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub revision: Option<String>,
    /// How many tools there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<SourceTools>,
}

/// How many tools a source has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceTools {
    /// Tools that can be granted.
    pub served: i64,
    /// Tools that are withheld until somebody approves the revision.
    pub withheld: i64,
    /// Operations that cannot be tools, or that there was no room for.
    pub left_out: i64,
    /// The first 32 that are withheld or left out, each with why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub noted: Vec<NotedTool>,
}

/// A tool that somebody should look at.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NotedTool {
    /// As an entry names it, without the source.
    #[schemars(length(max = 256))]
    pub name: String,
    /// A fact in PascalCase: `New`, `Changed`, `Gone`, `NameTaken`, `Unreadable`, `TooMany`, `HiddenCharacters`.
    #[schemars(length(max = 128))]
    pub reason: String,
    /// What there is to know.
    #[schemars(length(max = 1024))]
    pub message: String,
}
