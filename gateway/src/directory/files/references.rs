//! Secrets and ConfigMaps of the folder of manifests.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arc_swap::ArcSwap;
use chandlery_crds::manifest::{Object, Resource};
use futures::future::BoxFuture;

use crate::directory::references::{ReferenceError, References, Referent, Secret, texts};

/// What the folder holds now, shared with whoever reads it.
#[derive(Default)]
pub(super) struct InFolder(ArcSwap<Contents>);

#[derive(Default)]
struct Contents {
    secrets: HashMap<(String, String), Secret>,
    config_maps: HashMap<(String, String), BTreeMap<String, String>>,
}

impl InFolder {
    pub(super) fn replace(&self, objects: &[Object]) {
        let mut contents = Contents::default();
        for object in objects {
            let id = || (object.namespace().to_owned(), object.name().to_owned());
            match &object.resource {
                Resource::Secret(secret) => {
                    contents.secrets.insert(id(), Secret::from(&**secret));
                }
                Resource::ConfigMap(map) => {
                    contents.config_maps.insert(id(), texts(map));
                }
                Resource::Workspace(_)
                | Resource::Agent(_)
                | Resource::ToolSource(_)
                | Resource::ToolGrant(_) => {}
            }
        }
        self.0.store(Arc::new(contents));
    }
}

impl References for InFolder {
    fn secret<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Secret, ReferenceError>> {
        let contents = self.0.load();
        let found = contents
            .secrets
            .get(&(namespace.to_owned(), name.to_owned()));
        let found = found.cloned().ok_or(ReferenceError::Missing {
            kind: Referent::Secret,
            name: name.to_owned(),
        });
        Box::pin(std::future::ready(found))
    }

    fn config_map<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<BTreeMap<String, String>, ReferenceError>> {
        let contents = self.0.load();
        let found = contents
            .config_maps
            .get(&(namespace.to_owned(), name.to_owned()));
        let found = found.cloned().ok_or(ReferenceError::Missing {
            kind: Referent::ConfigMap,
            name: name.to_owned(),
        });
        Box::pin(std::future::ready(found))
    }
}
