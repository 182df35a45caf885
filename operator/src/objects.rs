//! What all objects that the operator makes have in common: metadata, and how they are told from other people's.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use chandlery_crds::names;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use kube::runtime::reflector::{ObjectRef, Store};
use serde_json::Value;
use tracing::info;

use crate::api::{self, Cluster, Error, Kind};

/// Label that every object of ours carries; caches select by it.
pub(crate) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// The resource that an object belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl Owner {
    pub(crate) fn of<K: Kind>(resource: &K) -> Self {
        Self {
            api_version: K::api_version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            namespace: resource.namespace().unwrap_or_default(),
            name: resource.name_any(),
            uid: resource.uid().unwrap_or_default(),
        }
    }

    /// With it, the garbage collector takes the object along. `blockOwnerDeletion` is false: it would need a right on
    /// finalizers that we do not have, and nothing of ours must hold up a deletion.
    fn reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: self.api_version.clone(),
            kind: self.kind.clone(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            controller: Some(true),
            block_owner_deletion: Some(false),
        }
    }
}

/// Metadata of an object that goes when `owner` goes.
pub(crate) fn metadata(owner: &Owner, name: &str, workspace: &str) -> ObjectMeta {
    ObjectMeta {
        owner_references: Some(vec![owner.reference()]),
        ..unowned(owner, name, workspace)
    }
}

/// Metadata of an object that outlives `owner`.
pub(crate) fn unowned(owner: &Owner, name: &str, workspace: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(owner.namespace.clone()),
        labels: Some(labels(workspace)),
        ..ObjectMeta::default()
    }
}

/// Labels of everything that belongs to `workspace`. None are copied from people's objects: tools that track by label
/// would take ours for theirs, and prune them.
pub(crate) fn labels(workspace: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (MANAGED_BY.to_owned(), names::FIELD_MANAGER.to_owned()),
        (names::WORKSPACE_LABEL.to_owned(), workspace.to_owned()),
    ])
}

/// What lies under the name of an object that the operator makes.
#[derive(Clone, Debug, Default)]
pub(crate) enum Live<K> {
    #[default]
    Absent,
    Ours(Arc<K>),
    /// Somebody else's: never written, never deleted.
    Foreign,
}

impl<K: Kind> Live<K> {
    /// From the cache, which holds what carries our label; a name that is free there is looked up once, since it may be
    /// taken by an object without the label.
    pub(crate) async fn observe(
        cluster: &Cluster,
        cache: &Store<K>,
        namespace: &str,
        name: &str,
        workspace: &str,
    ) -> Result<Self, Error> {
        let live = match cache.get(&ObjectRef::new(name).within(namespace)) {
            Some(live) => Some(live),
            None => cluster.get::<K>(namespace, name).await?.map(Arc::new),
        };
        Ok(match live {
            None => Self::Absent,
            Some(live) if is_ours(live.as_ref(), workspace) => Self::Ours(live),
            Some(_) => Self::Foreign,
        })
    }

    pub(crate) fn is_foreign(&self) -> bool {
        matches!(self, Self::Foreign)
    }

    pub(crate) fn ours(&self) -> Option<&K> {
        match self {
            Self::Ours(live) => Some(live),
            Self::Absent | Self::Foreign => None,
        }
    }
}

/// Whether the object carries our labels for `workspace`.
pub(crate) fn is_ours(object: &impl ResourceExt, workspace: &str) -> bool {
    let carried = object.labels();
    labels(workspace)
        .iter()
        .all(|(name, value)| carried.get(name) == Some(value))
}

/// Why an object that lies under one of our names is not to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotOurs {
    /// On its way out, or left over from an owner of the same name: it will be gone in a moment.
    Going,
    Foreign,
}

/// Whether `object` belongs to exactly this `owner`, and stays.
pub(crate) fn check_owned(object: &impl ResourceExt, owner: &Owner) -> Result<(), NotOurs> {
    let controller = object
        .owner_references()
        .iter()
        .find(|reference| reference.controller == Some(true));
    match controller {
        Some(controller) if controller.uid == owner.uid => match object.meta().deletion_timestamp {
            Some(_) => Err(NotOurs::Going),
            None => Ok(()),
        },
        // The owner was deleted and made again: the garbage collector is on its way.
        Some(controller) if controller.kind == owner.kind && controller.name == owner.name => {
            Err(NotOurs::Going)
        }
        _ => Err(NotOurs::Foreign),
    }
}

/// What to do to a Secret.
#[derive(Clone, Debug)]
pub(crate) enum SecretWrite {
    Nothing,
    /// Make it; it must not exist.
    Create(Secret),
    /// Write it, if it is still the version whose uid and resourceVersion it carries.
    Update(Secret),
    Delete(Secret),
}

impl SecretWrite {
    pub(crate) async fn run(&self, cluster: &Cluster) -> Result<(), Error> {
        let (secret, done) = match self {
            Self::Nothing => return Ok(()),
            Self::Create(secret) => {
                cluster.create_secret(secret).await?;
                (secret, "made")
            }
            Self::Update(secret) => {
                cluster.apply(secret).await?;
                (secret, "written")
            }
            Self::Delete(secret) => {
                cluster.delete(secret).await?;
                (secret, "deleted")
            }
        };
        let ObjectMeta {
            namespace, name, ..
        } = &secret.metadata;
        info!(
            object.namespace = namespace,
            object.name = name,
            done,
            "wrote a Secret"
        );
        Ok(())
    }
}

/// What was last applied, so that nothing is sent again while it holds.
///
/// An apply that changes nothing costs the API server as much as one that does. Empty after a restart: then each
/// object is applied once more, which changes nothing in the store.
#[derive(Default)]
pub(crate) struct Applied(Mutex<HashMap<String, u64>>);

impl Applied {
    /// Makes the cluster hold `wanted`.
    pub(crate) async fn ensure<K: Kind>(
        &self,
        cluster: &Cluster,
        wanted: &K,
        live: &Live<K>,
    ) -> Result<(), Error> {
        if live.is_foreign() {
            return Ok(());
        }
        let body = api::with_type(wanted);
        let key = format!(
            "{} {}/{}",
            K::kind(&()),
            wanted.namespace().unwrap_or_default(),
            wanted.name_any()
        );
        let mut hasher = DefaultHasher::new();
        body.to_string().hash(&mut hasher);
        let hash = hasher.finish();
        // What was taken out of `wanted` shows in the hash, what others changed shows in the live object.
        let is_same = self.lock().get(&key) == Some(&hash);
        if is_same
            && live
                .ours()
                .is_some_and(|live| contains(&api::with_type(live), &body))
        {
            return Ok(());
        }
        cluster.apply(wanted).await?;
        info!(object = key, "applied an object");
        self.lock().insert(key, hash);
        Ok(())
    }

    /// As [`Applied::ensure`], and without `wanted` deletes what is ours.
    pub(crate) async fn ensure_or_delete<K: Kind>(
        &self,
        cluster: &Cluster,
        wanted: Option<&K>,
        live: &Live<K>,
    ) -> Result<(), Error> {
        match (wanted, live) {
            (Some(wanted), live) => self.ensure(cluster, wanted, live).await,
            (None, Live::Ours(live)) => cluster.delete(live.as_ref()).await,
            (None, Live::Absent | Live::Foreign) => Ok(()),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether `live` has everything that `wanted` says; the server may have added more.
fn contains(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => wanted
            .iter()
            .all(|(name, wanted)| live.get(name).is_some_and(|live| contains(live, wanted))),
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len()
                && live
                    .iter()
                    .zip(wanted)
                    .all(|(live, wanted)| contains(live, wanted))
        }
        (live, wanted) => live == wanted,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::contains;

    #[test]
    fn what_the_server_adds_is_no_difference_and_what_people_change_is() {
        let wanted = json!({ "spec": { "replicas": 1, "args": ["a"], "ports": [{ "port": 80 }] } });
        let live = json!({ "spec": { "replicas": 1, "args": ["a"], "ports": [{ "port": 80, "protocol": "TCP" }] }, "status": {} });
        assert!(contains(&live, &wanted));
        for (path, value) in [
            ("/spec/replicas", json!(2)),
            ("/spec/args", json!(["a", "b"])),
            ("/spec", json!({})),
        ] {
            let mut live = live.clone();
            *live.pointer_mut(path).unwrap() = value;
            assert!(!contains(&live, &wanted), "{path}");
        }
    }
}
