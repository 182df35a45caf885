//! Secrets and ConfigMaps that resources name: read one by one and by name, since a gateway may list none.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use chandlery_crds::check::AllowedHosts;
use chandlery_crds::names;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1 as core;
use secrecy::SecretSlice;

/// Where Secrets and ConfigMaps are read.
pub trait References: Send + Sync {
    /// Never from a cache. Bounded in time.
    fn secret<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Secret, ReferenceError>>;

    /// The texts of a ConfigMap, by key. Never from a cache. Bounded in time.
    fn config_map<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<BTreeMap<String, String>, ReferenceError>>;
}

/// What a Secret holds, and for whom.
#[derive(Clone, Debug, Default)]
pub struct Secret {
    pub data: BTreeMap<String, SecretSlice<u8>>,
    /// The hosts that its values may be sent to; `None` without the annotation that says so.
    pub allowed_hosts: Option<AllowedHosts>,
}

/// What is referred to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Referent {
    Secret,
    ConfigMap,
}

/// Why something that a resource names cannot be read. No text repeats what the server sent, which can be a Secret.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReferenceError {
    #[error("there is no {kind} {name}")]
    Missing { kind: Referent, name: String },
    #[error("the gateway may not read the {kind} {name}")]
    Forbidden { kind: Referent, name: String },
    #[error("the {kind} {name} cannot be read now")]
    Unreadable {
        kind: Referent,
        name: String,
        #[source]
        source: Option<Arc<dyn Error + Send + Sync>>,
    },
}

impl fmt::Display for Referent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
        })
    }
}

impl From<&core::Secret> for Secret {
    fn from(secret: &core::Secret) -> Self {
        let data = secret.data.iter().flatten();
        let annotations = secret.metadata.annotations.as_ref();
        let hosts = annotations.and_then(|all| all.get(names::ALLOWED_HOSTS_ANNOTATION));
        Self {
            data: data
                .map(|(key, value)| (key.clone(), SecretSlice::from(value.0.clone())))
                .collect(),
            allowed_hosts: hosts.map(|hosts| AllowedHosts::parse(hosts)),
        }
    }
}

/// Every text of a ConfigMap, those among `binaryData` too.
pub(super) fn texts(map: &core::ConfigMap) -> BTreeMap<String, String> {
    let mut texts = map.data.clone().unwrap_or_default();
    for (key, value) in map.binary_data.iter().flatten() {
        if let Ok(text) = std::str::from_utf8(&value.0) {
            texts.insert(key.clone(), text.to_owned());
        }
    }
    texts
}
