//! From a bearer key to a principal.

use chandlery_crds::key::{Digest, Key};
use jiff::Timestamp;

use crate::directory::{Holder, Person, Snapshot};

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

/// Whose token this is; `None` for anything that is not a person's.
pub fn person<'a>(snapshot: &'a Snapshot, token: &str) -> Option<&'a Person> {
    if token.len() != chandlery_crds::key::LENGTH || !token.starts_with(chandlery_crds::key::PREFIX)
    {
        return None;
    }
    snapshot.people.get(&Digest::of(token))
}

/// Checks a key's format only; used where a person hands one in.
pub fn is_well_formed(key: &str) -> bool {
    Key::parse(key).is_some()
}
