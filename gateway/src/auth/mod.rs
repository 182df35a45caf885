//! From a bearer key to a principal.

use chandlery_crds::key::{Digest, Key};
use jiff::Timestamp;

use crate::directory::{Holder, Snapshot};

/// Who holds `key`; `None` for anything that is not a live key.
///
/// The digest is looked up in a map, so the time it takes says nothing about any other key.
pub fn identify<'a>(snapshot: &'a Snapshot, key: &str, now: Timestamp) -> Option<&'a Holder> {
    if key.len() != chandlery_crds::key::LENGTH || !key.starts_with(chandlery_crds::key::PREFIX) {
        return None;
    }
    let holder = snapshot.keys.get(&Digest::of(key))?;
    holder
        .expires_at
        .is_none_or(|expiry| now < expiry)
        .then_some(holder)
}

/// Checks a key's format only; used where a person hands one in.
pub fn is_well_formed(key: &str) -> bool {
    Key::parse(key).is_some()
}
