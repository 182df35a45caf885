//! Secrets that a test changes while they are in use.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use chandlery_crds::check::AllowedHosts;
use chandlery_gateway::directory::{ReferenceError, References, Referent, Secret};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use secrecy::SecretSlice;

#[derive(Default)]
pub(crate) struct Secrets {
    held: Mutex<Option<Secret>>,
    is_away: Mutex<bool>,
    pub(crate) reads: AtomicUsize,
}

impl Secrets {
    /// There is the Secret `s`, with the key `k`.
    pub(crate) fn set(&self, value: &str) {
        self.set_for(value, None);
    }

    pub(crate) fn set_for(&self, value: &str, allowed_hosts: Option<&[&str]>) {
        let bytes = SecretSlice::from(value.as_bytes().to_vec());
        *self.held.lock() = Some(Secret {
            data: BTreeMap::from([("k".to_owned(), bytes)]),
            allowed_hosts: allowed_hosts.map(|hosts| AllowedHosts::parse(&hosts.join(","))),
        });
    }

    pub(crate) fn delete(&self) {
        *self.held.lock() = None;
    }

    pub(crate) fn set_away(&self, is_away: bool) {
        *self.is_away.lock() = is_away;
    }

    pub(crate) fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }
}

impl References for Secrets {
    fn secret<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Secret, ReferenceError>> {
        assert_eq!((namespace, name), ("demo", "s"));
        self.reads.fetch_add(1, Ordering::SeqCst);
        let (kind, name) = (Referent::Secret, name.to_owned());
        let found = if *self.is_away.lock() {
            Err(ReferenceError::Unreadable {
                kind,
                name,
                source: None,
            })
        } else {
            let held = self.held.lock().clone();
            held.ok_or(ReferenceError::Missing { kind, name })
        };
        Box::pin(std::future::ready(found))
    }

    fn config_map<'a>(
        &'a self,
        _: &'a str,
        _: &'a str,
    ) -> BoxFuture<'a, Result<BTreeMap<String, String>, ReferenceError>> {
        unreachable!("nothing here reads ConfigMaps")
    }
}
