//! Secrets and ConfigMaps that are not anywhere yet: what the person at the terminal has.

use std::collections::BTreeMap;

use futures::future::{BoxFuture, ready};
use secrecy::SecretSlice;

use crate::directory::{ReferenceError, References, Referent, Secret};

/// The same for every name that is asked for: there is one source.
#[derive(Default)]
pub(super) struct Held {
    /// The credential, by its key.
    pub(super) secret: BTreeMap<String, SecretSlice<u8>>,
    /// The document, by its key.
    pub(super) config_map: BTreeMap<String, String>,
}

impl References for Held {
    fn secret<'a>(
        &'a self,
        _namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Secret, ReferenceError>> {
        let missing = || ReferenceError::Missing {
            kind: Referent::Secret,
            name: name.to_owned(),
        };
        let secret = (!self.secret.is_empty()).then(|| Secret {
            data: self.secret.clone(),
            allowed_hosts: None,
        });
        Box::pin(ready(secret.ok_or_else(missing)))
    }

    fn config_map<'a>(
        &'a self,
        _namespace: &'a str,
        _name: &'a str,
    ) -> BoxFuture<'a, Result<BTreeMap<String, String>, ReferenceError>> {
        Box::pin(ready(Ok(self.config_map.clone())))
    }
}
