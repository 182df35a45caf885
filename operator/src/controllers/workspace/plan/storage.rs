//! What a gateway keeps: the volume claim of its store, and the Secret with its own keys.

use std::collections::BTreeMap;

use chandlery_crds::key::base62_of;
use chandlery_crds::names::{self, gateway_secret};
use chandlery_crds::workspace::{DeletionPolicy, SqliteSpec};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, Secret, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::ObjectMeta;

use crate::objects::{self, NotOurs, Owner, SecretWrite};

/// A claim that is retained has no owner, so a new Workspace of the same name finds it, and its data.
pub(super) fn claim(
    owner: &Owner,
    sqlite: &SqliteSpec,
    policy: DeletionPolicy,
) -> PersistentVolumeClaim {
    let account = &owner.name;
    let name = names::store_claim(account);
    PersistentVolumeClaim {
        metadata: match policy {
            DeletionPolicy::Retain => objects::unowned(owner, &name, account),
            DeletionPolicy::Delete => objects::metadata(owner, &name, account),
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            storage_class_name: sqlite.storage_class_name.clone(),
            resources: Some(VolumeResourceRequirements {
                requests: Some(BTreeMap::from([(
                    "storage".to_owned(),
                    Quantity(sqlite.size.clone()),
                )])),
                limits: None,
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        ..PersistentVolumeClaim::default()
    }
}

/// Makes those of the gateway's own keys that are missing, and keeps those that are there.
pub(super) fn own_keys(
    owner: &Owner,
    seen: Option<&Secret>,
    fresh: &mut dyn FnMut() -> [u8; 32],
) -> Result<SecretWrite, NotOurs> {
    let account = &owner.name;
    let name = names::gateway(account);
    if let Some(seen) = seen {
        objects::check_owned(seen, owner)?;
    }
    let mut data = seen.and_then(|seen| seen.data.clone()).unwrap_or_default();
    let mut is_complete = true;
    for key in [
        gateway_secret::INTERNAL_TOKEN,
        gateway_secret::AUDIT_KEY,
        gateway_secret::STATE_KEY,
    ] {
        if data.get(key).is_none_or(|value| value.0.is_empty()) {
            is_complete = false;
            data.insert(
                key.to_owned(),
                ByteString(base62_of(&fresh(), 43).into_bytes()),
            );
        }
    }
    let secret = Secret {
        metadata: ObjectMeta {
            uid: seen.and_then(|seen| seen.metadata.uid.clone()),
            resource_version: seen.and_then(|seen| seen.metadata.resource_version.clone()),
            ..objects::metadata(owner, &name, account)
        },
        type_: Some("Opaque".to_owned()),
        data: Some(data),
        ..Secret::default()
    };
    Ok(match (seen, is_complete) {
        (Some(_), true) => SecretWrite::Nothing,
        (Some(_), false) => SecretWrite::Update(secret),
        (None, _) => SecretWrite::Create(secret),
    })
}
