//! UIDs and keys of a gateway without Kubernetes, in its data folder.
//!
//! Both live as long as the manifest does: an agent that is removed and made again has a new key, as in a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use chandlery_crds::key::{Digest, Key, base62_of};
use jiff::Timestamp;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

/// The UIDs, by `Kind/<namespace>.<name>`.
const FILE: &str = "identities.json";
/// Folder of the keys, one file per agent.
const KEYS: &str = "keys";
/// Folder of people's tokens, one file per person.
const PEOPLE: &str = "people";

pub(super) struct Identities {
    data: PathBuf,
    keys: PathBuf,
    people: PathBuf,
    known: BTreeMap<String, Identity>,
}

/// What an API server would have given an object.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Identity {
    pub(super) uid: String,
    pub(super) created_at: Timestamp,
}

/// Why the data folder is of no use.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("{doing} {}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is damaged: restore it, or remove it and the keys beside it", path.display())]
    Damaged {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error("{} holds no key in Chandlery's format: remove it to get a new one", path.display())]
    NotAKey { path: PathBuf },
    #[error("no randomness from the system")]
    Randomness(#[source] getrandom::Error),
}

/// File of an agent's key.
pub fn key_file(data: &Path, agent_id: &str) -> PathBuf {
    data.join(KEYS).join(agent_id)
}

/// File of a person's token.
pub fn person_file(data: &Path, name: &str) -> PathBuf {
    data.join(PEOPLE).join(name)
}

/// A secret of the gateway itself, made at first use.
pub fn own_secret(data: &Path, name: &str) -> Result<SecretString, IdentityError> {
    let path = data.join(name);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(text.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let text = base62_of(&random::<32>()?, 43);
            // With PostgreSQL nobody else has made the folder by now.
            fs::create_dir_all(data).map_err(failed("make the folder", data))?;
            replace(&path, text.as_bytes())?;
            Ok(text.into())
        }
        Err(source) => Err(failed("read", &path)(source)),
    }
}

impl Identities {
    pub(super) fn open(data: &Path) -> Result<Self, IdentityError> {
        let (keys, people) = (data.join(KEYS), data.join(PEOPLE));
        for folder in [data, &keys, &people] {
            fs::create_dir_all(folder).map_err(failed("make the folder", folder))?;
            fs::set_permissions(folder, Permissions::from_mode(0o700))
                .map_err(failed("protect", folder))?;
        }
        let path = data.join(FILE);
        let known = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|source| IdentityError::Damaged { path, source })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(source) => return Err(failed("read", &path)(source)),
        };
        Ok(Self {
            data: data.to_owned(),
            keys,
            people,
            known,
        })
    }

    pub(super) fn data(&self) -> &Path {
        &self.data
    }

    pub(super) fn keys(&self) -> &Path {
        &self.keys
    }

    pub(super) fn people(&self) -> &Path {
        &self.people
    }

    /// Gives each of `names` an identity and forgets all others, their keys first.
    pub(super) fn settle(
        &mut self,
        names: impl Iterator<Item = String>,
        now: Timestamp,
    ) -> Result<(), IdentityError> {
        let names: BTreeSet<String> = names.collect();
        let mut settled = BTreeMap::new();
        for name in &names {
            let identity = match self.known.get(name) {
                Some(identity) => identity.clone(),
                None => Identity {
                    uid: new_uid()?,
                    created_at: now,
                },
            };
            settled.insert(name.clone(), identity);
        }
        if settled == self.known {
            return Ok(());
        }
        for gone in self.known.keys().filter(|name| !names.contains(*name)) {
            if let Some(id) = gone.strip_prefix("Agent/") {
                self.revoke(id)?;
            }
        }
        let bytes = serde_json::to_vec_pretty(&settled).expect("a map of texts serializes");
        replace(&self.data.join(FILE), &bytes)?;
        self.known = settled;
        Ok(())
    }

    /// # Panics
    /// When `name` was not among those last settled.
    pub(super) fn of(&self, name: &str) -> &Identity {
        &self.known[name]
    }

    /// The digest of the agent's key, which is made first when there is none.
    pub(super) fn key(&self, agent_id: &str) -> Result<Digest, IdentityError> {
        key_in(self.keys.join(agent_id))
    }

    /// The digest of the person's token, which is made first when there is none.
    pub(super) fn person(&self, name: &str) -> Result<Digest, IdentityError> {
        key_in(self.people.join(name))
    }

    /// Makes sure that the agent has no key.
    pub(super) fn revoke(&self, agent_id: &str) -> Result<(), IdentityError> {
        let path = self.keys.join(agent_id);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed("remove", &path)(error))
            }
            _ => Ok(()),
        }
    }
}

fn key_in(path: PathBuf) -> Result<Digest, IdentityError> {
    match fs::read_to_string(&path) {
        Ok(text) => {
            let key = Key::parse(text.trim()).ok_or(IdentityError::NotAKey { path })?;
            Ok(key.digest())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let key = Key::from_random(random()?);
            replace(&path, key.expose().as_bytes())?;
            Ok(key.digest())
        }
        Err(source) => Err(failed("read", &path)(source)),
    }
}

/// Writes a file that only its owner may read, whole or not at all, and on the disk when this returns.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), IdentityError> {
    let draft = path.with_file_name(format!(
        ".{}.new",
        path.file_name().unwrap_or_default().display()
    ));
    let write = || {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&draft)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&draft, path)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()
    };
    write().map_err(failed("write", path))
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> IdentityError {
    let path = path.to_owned();
    move |source| IdentityError::Io {
        doing,
        path,
        source,
    }
}

/// A random (version 4) UUID.
fn new_uid() -> Result<String, IdentityError> {
    let bits = u128::from_be_bytes(random()?);
    let bits = bits & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let hex = format!("{bits:032x}");
    let [a, b, c, d, e] = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &hex[part]);
    Ok(format!("{a}-{b}-{c}-{d}-{e}"))
}

fn random<const N: usize>() -> Result<[u8; N], IdentityError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(IdentityError::Randomness)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settle(identities: &mut Identities, names: &[&str]) {
        let names = names.iter().map(|name| (*name).to_owned());
        identities.settle(names, Timestamp::UNIX_EPOCH).unwrap();
    }

    #[test]
    fn an_agent_made_again_has_a_new_uid_and_a_new_key() {
        let data = tempfile::tempdir().unwrap();
        let mut identities = Identities::open(data.path()).unwrap();
        settle(&mut identities, &["Agent/default.a", "Agent/default.b"]);
        let (uid, key) = (
            identities.of("Agent/default.a").uid.clone(),
            identities.key("default.a").unwrap(),
        );
        let mut identities = Identities::open(data.path()).unwrap();
        settle(&mut identities, &["Agent/default.a"]);
        assert_eq!(identities.of("Agent/default.a").uid, uid);
        assert_eq!(identities.key("default.a").unwrap(), key);
        settle(&mut identities, &[]);
        settle(&mut identities, &["Agent/default.a"]);
        assert_ne!(identities.of("Agent/default.a").uid, uid);
        assert_ne!(identities.key("default.a").unwrap(), key);
    }

    #[test]
    fn only_the_owner_reads_keys() {
        let data = tempfile::tempdir().unwrap();
        let identities = Identities::open(data.path()).unwrap();
        identities.key("default.a").unwrap();
        identities.person("admin").unwrap();
        for (path, mode) in [
            (data.path().to_owned(), 0o700),
            (data.path().join(KEYS), 0o700),
            (key_file(data.path(), "default.a"), 0o600),
            (data.path().join(PEOPLE), 0o700),
            (person_file(data.path(), "admin"), 0o600),
        ] {
            let found = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            assert_eq!(found, mode, "{}", path.display());
        }
    }

    #[test]
    fn a_uid_is_a_version_4_uuid() {
        let uid = new_uid().unwrap();
        let parts: Vec<usize> = uid.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12]);
        assert_eq!(&uid[14..15], "4");
        assert!("89ab".contains(&uid[19..20]), "{uid}");
    }
}
