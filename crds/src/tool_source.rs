//! ToolSource: where tools come from that are not built in.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fields::{Conditions, ConfigMapKeyRef, SecretKeyRef, SecretSource};

/// Where tools come from: an OpenAPI document or a remote MCP server.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
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
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message", priority = 1),
    validation = Rule::new("self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && self.metadata.name.size() <= 40")
        .message("name a ToolSource with at most 40 lower-case letters, digits and hyphens (no dots)")
)]
#[x_kube(validation = Rule::new("has(self.openapi) != has(self.mcp)").message("write exactly one of: openapi, mcp"))]
#[serde(rename_all = "camelCase")]
pub struct ToolSourceSpec {
    /// Operations of an HTTP service, from its OpenAPI document. Write either this or mcp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub openapi: Option<OpenapiSpec>,
    /// Tools of a remote MCP server. Write either this or openapi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp: Option<McpSpec>,
    /// The credential that goes along with every request. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<AuthSpec>,
}

impl ToolSourceSpec {
    /// The ConfigMap that holds the document, if one does.
    pub fn document_ref(&self) -> Option<&ConfigMapKeyRef> {
        self.openapi.as_ref()?.config_map_key_ref.as_ref()
    }

    /// The Secret that holds the credential, if there is one.
    pub fn credential_ref(&self) -> Option<&SecretKeyRef> {
        Some(&self.auth.as_ref()?.bearer.secret_key_ref)
    }
}

/// An OpenAPI document.
#[derive(KubeSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
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
#[derive(KubeSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuthSpec {
    /// Sent as `Authorization: Bearer <value>`.
    pub bearer: SecretSource,
}

/// What the operator found.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolSourceStatus {
    /// The `metadata.generation` that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, ResolvedRefs, and Reconciling or Stalled while something is open or wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::embedded::conditions")]
    pub conditions: Conditions,
}
