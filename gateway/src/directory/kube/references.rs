//! Secrets and ConfigMaps from the API server, each by a `get` of its name.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1 as core;
use kube::api::Api;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::directory::references::{ReferenceError, References, Referent, Secret, texts};

/// A caller of a tool waits for it.
const TIMEOUT: Duration = Duration::from_secs(3);

pub(super) struct ByName(pub(super) Client);

impl References for ByName {
    fn secret<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Secret, ReferenceError>> {
        Box::pin(async move {
            let secret: core::Secret = self.get(Referent::Secret, namespace, name).await?;
            Ok(Secret::from(&secret))
        })
    }

    fn config_map<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<BTreeMap<String, String>, ReferenceError>> {
        Box::pin(async move {
            let map: core::ConfigMap = self.get(Referent::ConfigMap, namespace, name).await?;
            Ok(texts(&map))
        })
    }
}

impl ByName {
    async fn get<K>(&self, kind: Referent, namespace: &str, name: &str) -> Result<K, ReferenceError>
    where
        K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.0.clone(), namespace);
        let named = name.to_owned();
        match timeout(TIMEOUT, api.get_opt(name)).await {
            Ok(Ok(Some(found))) => Ok(found),
            Ok(Ok(None)) => Err(ReferenceError::Missing { kind, name: named }),
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                Err(ReferenceError::Forbidden { kind, name: named })
            }
            // An error of the client can hold what it could not read.
            Ok(Err(_)) | Err(_) => Err(ReferenceError::Unreadable {
                kind,
                name: named,
                source: None,
            }),
        }
    }
}
