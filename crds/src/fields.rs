//! Small field types that several resources share.

use std::time::Duration as StdDuration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use kube::core::Rule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A reference to an object of the same namespace.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalRef {
    /// Name of the object, in the same namespace.
    #[schemars(length(max = 63))]
    #[x_kube(validation = crate::fields::label())]
    pub name: String,
}

/// A key of a Secret in the same namespace.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyRef {
    /// Name of the Secret, in the same namespace.
    #[schemars(length(max = 253))]
    #[x_kube(validation = crate::fields::subdomain())]
    pub name: String,
    /// Key in the Secret's data.
    #[schemars(length(max = 253))]
    #[x_kube(validation = crate::fields::data_key())]
    pub key: String,
}

/// A value that lies in a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretSource {
    /// The Secret's name and key.
    pub secret_key_ref: SecretKeyRef,
}

/// A key of a ConfigMap in the same namespace.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapKeyRef {
    /// Name of the ConfigMap, in the same namespace.
    #[schemars(length(max = 253))]
    #[x_kube(validation = crate::fields::subdomain())]
    pub name: String,
    /// Key in the ConfigMap's data.
    #[schemars(length(max = 253))]
    #[x_kube(validation = crate::fields::data_key())]
    pub key: String,
}

/// A span of time with its units, largest first: `30s`, `1h30m`, `720h`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Duration(#[schemars(length(max = 32))] pub String);

impl Duration {
    /// `None` when the text is no duration: the API server refuses it, a file may still hold it.
    pub fn parse(&self) -> Option<StdDuration> {
        let mut rest = self.0.as_str();
        if rest.is_empty() {
            return None;
        }
        let mut total = StdDuration::ZERO;
        while !rest.is_empty() {
            let digits = rest
                .find(|c: char| !c.is_ascii_digit())
                .filter(|&n| n > 0)?;
            let number: u64 = rest[..digits].parse().ok()?;
            rest = &rest[digits..];
            let (unit, milliseconds) = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)]
                .into_iter()
                .find(|(unit, _)| rest.starts_with(unit))?;
            rest = &rest[unit.len()..];
            total =
                total.checked_add(StdDuration::from_millis(number.checked_mul(milliseconds)?))?;
        }
        Some(total)
    }
}

/// The rule of a duration that is at least `least` long. The digits are bounded: CEL fails beyond 292 years.
pub(crate) fn at_least(least: &str, example: &str) -> Rule {
    Rule::new(format!(
        "self.matches('^([0-9]{{1,5}}h)?([0-9]{{1,7}}m)?([0-9]{{1,9}}s)?([0-9]{{1,9}}ms)?$') && self != '' && duration(self) >= duration('{least}')"
    ))
    .message(format!("write a duration of at least {least} with its units, largest first, such as {example}").as_str())
}

/// The rule of a name that is a DNS label.
pub(crate) fn label() -> Rule {
    Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')").message(
        "write the name of an object in this namespace: lower-case letters, digits and hyphens",
    )
}

/// The rule of a name that is a DNS subdomain.
pub(crate) fn subdomain() -> Rule {
    Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')")
        .message("write a name of lower-case letters, digits, hyphens and dots")
}

/// The rule of a key in a Secret's or ConfigMap's data.
pub(crate) fn data_key() -> Rule {
    Rule::new("self.matches('^[-._a-zA-Z0-9]+$')")
        .message("write a key of letters, digits, hyphens, underscores and dots")
}

/// The rule of a URL that is dialed.
pub(crate) fn url() -> Rule {
    Rule::new(r"self.matches('^https?://[^\\s/@?#]+(/[^\\s#]*)?$')")
        .message("write a URL that starts with https:// or http://, without a user name")
}

/// The rule of names of tools, in lists.
pub(crate) fn tool_entries() -> Rule {
    Rule::new(r"self.all(entry, entry.matches('^[A-Za-z0-9_.*-]+$') || entry.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[!-~][ -~]*$'))")
        .message("write a built-in tool's name or glob, such as agnt_*, or <source>/<operation>, such as crm/list_customers")
}

/// A key that works, or is about to: its digest is public, the key itself lies in a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyStatus {
    /// Short public name of the key: the first 8 hex digits of its digest.
    #[schemars(length(max = 16))]
    pub id: String,
    /// `sha256:<hex>` of the whole key.
    #[schemars(length(max = 71))]
    pub digest: String,
    /// When the key was made, RFC 3339.
    #[schemars(length(max = 40))]
    pub created_at: String,
    /// When it stops working, RFC 3339; absent while it is prepared or active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 40))]
    pub expires_at: Option<String>,
}

/// Where an application finds its Secret (Service Binding).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Binding {
    /// Name of the Secret, in the same namespace.
    #[schemars(length(max = 253))]
    pub name: String,
}

/// A status' conditions, a list keyed by `type`.
pub type Conditions = Vec<Condition>;
