//! Small field types that several resources share.

use std::time::Duration as StdDuration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A reference to an object of the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalRef {
    /// Name of the object, in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A key of a Secret in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyRef {
    /// Name of the Secret, in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in the Secret's data.
    #[schemars(length(min = 1, max = 253))]
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
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapKeyRef {
    /// Name of the ConfigMap, in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in the ConfigMap's data.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// A span of time with its unit: `30s`, `15m`, `720h`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Duration(#[schemars(length(max = 32))] pub String);

/// What a [`Duration`] may look like; CEL rules use the same text.
pub const DURATION_PATTERN: &str = r"^([0-9]+(ms|s|m|h))+$";

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

/// A key that works, or is about to: its digest is public, the key itself lies in a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyStatus {
    /// Short public name of the key: the first 8 hex digits of its digest.
    pub id: String,
    /// `sha256:<hex>` of the whole key.
    pub digest: String,
    /// When the key was made, RFC 3339.
    pub created_at: String,
    /// When it stops working, RFC 3339; absent while it is prepared or active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

/// Where an application finds its Secret (Service Binding).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Binding {
    /// Name of the Secret, in the same namespace.
    pub name: String,
}

/// A status' conditions, a list keyed by `type`.
pub type Conditions = Vec<Condition>;
