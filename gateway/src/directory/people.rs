//! Who may decide, answer and look on: people's tokens out of a Secret, as digests.

use std::collections::BTreeMap;
use std::sync::Arc;

use chandlery_crds::key::{Digest, Key};
use k8s_openapi::ByteString;

/// A person with a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    /// The token's key in the Secret.
    pub name: Arc<str>,
    /// The accounts whose Workspaces the person sees, each as `<namespace>.<name>`.
    pub accounts: Vec<Arc<str>>,
}

/// The tokens of one account's people, by name.
pub(super) type Tokens = BTreeMap<String, Digest>;

/// What a Secret says of people.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) tokens: Tokens,
    /// Whose tokens do not work and why; never a value.
    pub(super) flaw: Option<String>,
}

/// Reads a Secret's data. A value that is no key of ours is passed over: a password's digest is never kept. A token
/// that two people have is nobody's, since no record could say who it was.
pub(super) fn read(secret: &str, data: Option<&BTreeMap<String, ByteString>>) -> Read {
    let mut tokens = Tokens::new();
    let mut flawed = Vec::new();
    for (name, value) in data.into_iter().flatten() {
        let key = std::str::from_utf8(&value.0)
            .ok()
            .and_then(|text| Key::parse(text.trim()));
        match key {
            Some(key) => drop(tokens.insert(name.clone(), key.digest())),
            None => flawed.push(name.as_str()),
        }
    }
    let all = tokens.clone();
    tokens.retain(|_, digest| all.values().filter(|other| *other == digest).count() == 1);
    let shared: Vec<&str> = all
        .keys()
        .filter(|name| !tokens.contains_key(*name))
        .map(String::as_str)
        .collect();
    let said = |names: &[&str], what: &str| {
        let names = names.join(", ");
        (!names.is_empty()).then(|| format!("{names} in Secret {secret}: {what}"))
    };
    let flaws: Vec<String> = [
        said(
            &flawed,
            "no key in Chandlery's format (`chandlery key new` makes one), so it opens nothing",
        ),
        said(
            &shared,
            "the same token for several people, so it opens nothing",
        ),
    ]
    .into_iter()
    .flatten()
    .collect();
    Read {
        tokens,
        flaw: (!flaws.is_empty()).then(|| flaws.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_that_one_person_has_are_tokens() {
        let text = |seed: u8| Key::from_random([seed; 32]).expose().to_owned();
        let data: BTreeMap<String, ByteString> = [
            ("alice", format!(" {}\n", text(1))),
            ("bob", "hunter2".to_owned()),
            ("carol", text(3)),
            ("dave", text(3)),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), ByteString(value.into_bytes())))
        .collect();
        let read = read("p", Some(&data));
        let digest = Key::from_random([1; 32]).digest();
        assert_eq!(read.tokens, Tokens::from([("alice".to_owned(), digest)]));
        let flaw = read.flaw.unwrap();
        assert!(flaw.contains("bob in Secret p") && flaw.contains("carol, dave in Secret p"));
        assert!(!flaw.contains("hunter2"));
    }
}
