//! Who may decide, answer and look on: people's tokens out of a Secret, as digests.

use std::collections::BTreeMap;
use std::sync::Arc;

use chandlery_crds::key::{Digest, Key};
use k8s_openapi::ByteString;
use tracing::warn;

/// A person with a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    /// The token's key in the Secret.
    pub name: Arc<str>,
    /// The account whose Workspaces the person sees, as `<namespace>.<name>`.
    pub account: Arc<str>,
}

/// The tokens of one account's people, by name.
pub(super) type Tokens = BTreeMap<String, Digest>;

/// Reads a Secret's data. A value that is no key of ours is passed over: a password's digest is never kept.
pub(super) fn tokens(secret: &str, data: Option<&BTreeMap<String, ByteString>>) -> Tokens {
    let mut tokens = Tokens::new();
    for (name, value) in data.into_iter().flatten() {
        let key = std::str::from_utf8(&value.0)
            .ok()
            .and_then(|text| Key::parse(text.trim()));
        match key {
            Some(key) => drop(tokens.insert(name.clone(), key.digest())),
            None => warn!(
                secret.name = secret,
                person.name = name,
                "a person's token is not in Chandlery's key format and does not work; `chandlery key new` makes one"
            ),
        }
    }
    tokens
}
