//! A directory from a folder of manifests, read again whenever something in it changes.
//!
//! A file counts as a whole: while anything in it is wrong, its last good content goes on being served and all other
//! files are taken as they are. A folder that is wrong at the start is refused, since there is nothing good yet.

mod identities;
mod references;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chandlery_crds as crds;
use chandlery_crds::AgentState;
use chandlery_crds::check;
use chandlery_crds::crd::Kind;
use chandlery_crds::fields::KeyStatus;
use chandlery_crds::key::{Digest, Key};
use chandlery_crds::manifest::{self, Object, Problem, Resource};
use chandlery_crds::names::{ROTATE_KEY_ANNOTATION, agent_id};
use chandlery_crds::schema;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::Value;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use self::identities::{Identities, Identity};
pub use self::identities::{IdentityError, key_file, own_secret, person_file};
use super::build::{Resources, build};
use super::people::{self, Tokens};
use super::{Publisher, References, Snapshot, chain};
use crate::store::Clock;

/// How often the folder is looked at. A change counts once two looks agree, so that no half-written file is read.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Size of the largest manifest that is read, in bytes.
const MAX_BYTES: u64 = 4 << 20;

/// The person that there is when no account names any.
pub const ADMIN: &str = "admin";

/// What can be said of all manifests together, at a moment.
pub type Check = Box<dyn Fn(&[Object], Timestamp) -> Vec<Problem> + Send>;

/// The writing side of a directory that comes from a folder.
pub struct Files {
    folder: PathBuf,
    identities: Identities,
    check: Check,
    clock: Clock,
    publisher: Publisher,
    /// What was last acted upon.
    seen: Look,
    /// What was seen has not been published yet.
    is_behind: bool,
    /// The failure that was logged last.
    failure: Option<String>,
    /// The last good content of each file.
    files: BTreeMap<PathBuf, (Stamp, Vec<Object>)>,
    resources: Resources,
    snapshot: Arc<Snapshot>,
    /// Secrets and ConfigMaps of all files' good content.
    named: Arc<references::InFolder>,
}

/// Why a folder cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    #[error("read the folder {}", folder.display())]
    Folder {
        folder: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// What has to be put right, by file and line.
    #[error("{}", lines(.0))]
    Refused(Vec<Problem>),
}

/// Everything that a change can be seen by.
#[derive(Clone, Debug, Default, PartialEq)]
struct Look {
    manifests: BTreeMap<PathBuf, Stamp>,
    keys: BTreeMap<PathBuf, Stamp>,
    tokens: BTreeMap<PathBuf, Stamp>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Stamp {
    modified: (i64, i64),
    bytes: u64,
    inode: u64,
}

impl Files {
    /// Reads `folder` and publishes it. UIDs and keys are kept in `data`; what `check` says is logged.
    pub fn open(
        folder: &Path,
        data: &Path,
        check: Check,
        clock: Clock,
        publisher: Publisher,
    ) -> Result<Self, FilesError> {
        let mut files = Self {
            folder: folder.to_owned(),
            identities: Identities::open(data)?,
            check,
            clock,
            publisher,
            seen: Look::default(),
            is_behind: true,
            failure: None,
            files: BTreeMap::new(),
            resources: Resources::default(),
            snapshot: Arc::default(),
            named: Arc::default(),
        };
        let look = files.look()?;
        let refused = files.read(&look.manifests);
        if !refused.is_empty() {
            return Err(FilesError::Refused(refused));
        }
        files.seen = look;
        files.publish()?;
        Ok(files)
    }

    /// Reads what manifests name; it goes on knowing what the folder holds while somebody follows.
    pub fn references(&self) -> Arc<dyn References> {
        self.named.clone()
    }

    /// Publishes every change until `stop`. What goes wrong is logged and what was served before stays.
    pub async fn follow(mut self, stop: CancellationToken) {
        let mut before = None;
        while stop.run_until_cancelled(sleep(LOOK_EVERY)).await.is_some() {
            let step = tokio::task::spawn_blocking(move || {
                let look = self.step(before.as_ref());
                (self, look)
            });
            match step.await {
                Ok(next) => (self, before) = next,
                Err(error) => return error!(%error, "reading the manifests stopped"),
            }
        }
    }

    /// One look at the folder. It is acted upon when it shows something new and is the same as the look `before`.
    fn step(&mut self, before: Option<&Look>) -> Option<Look> {
        let look = match self.look() {
            Ok(look) => look,
            Err(error) => {
                self.fail(&error);
                return None;
            }
        };
        if before != Some(&look) || (look == self.seen && !self.is_behind) {
            return Some(look);
        }
        for problem in self.read(&look.manifests) {
            error!(file = %problem.file, line = problem.line, reason = %problem, "manifest refused; the file's last good content stays");
        }
        self.seen = look;
        self.is_behind = true;
        match self.publish() {
            Ok(()) => {
                self.failure = None;
                info!(
                    agents.count = self.snapshot.agents.len(),
                    "manifests read again"
                );
            }
            Err(error) => self.fail(&error),
        }
        Some(self.seen.clone())
    }

    /// Logs a failure once, however often it is met again.
    fn fail(&mut self, failure: &FilesError) {
        let failure = chain(failure);
        if self.failure.as_ref() != Some(&failure) {
            error!(
                error = failure,
                "a change cannot be served; what was served before stays"
            );
            self.failure = Some(failure);
        }
    }

    fn look(&self) -> Result<Look, FilesError> {
        Ok(Look {
            manifests: stamps(&self.folder, is_manifest)?,
            keys: stamps(self.identities.keys(), |_| true)?,
            tokens: stamps(self.identities.people(), |_| true)?,
        })
    }

    /// Takes over the content of every new or changed file that is good, and says what is wrong with the others.
    ///
    /// A file that was refused is tried again each time: what was wrong may have been put right in another.
    fn read(&mut self, look: &BTreeMap<PathBuf, Stamp>) -> Vec<Problem> {
        self.files.retain(|path, _| look.contains_key(path));
        let (mut refused, mut candidates) = (Vec::new(), Vec::new());
        let mut owners = HashMap::new();
        for (path, stamp) in look {
            let last_good = self.files.get(path);
            if last_good.is_some_and(|(read, _)| read == stamp) {
                own(&mut owners, last_good);
                continue;
            }
            match self.parse(path, stamp) {
                Ok(objects) => candidates.push((path, *stamp, objects)),
                Err(problems) => {
                    own(&mut owners, last_good);
                    refused.extend(problems);
                }
            }
        }
        for (path, stamp, objects) in candidates {
            let problems = owned_by_others(&owners, &objects);
            if problems.is_empty() {
                self.files.insert(path.clone(), (stamp, objects));
            }
            refused.extend(problems);
            own(&mut owners, self.files.get(path));
        }
        refused
    }

    fn parse(&self, path: &Path, stamp: &Stamp) -> Result<Vec<Object>, Vec<Problem>> {
        let name = path.display().to_string();
        let unreadable = |reason: &dyn std::fmt::Display| {
            vec![Problem {
                file: name.as_str().into(),
                line: 1,
                object: None,
                field: String::new(),
                message: format!("cannot be read: {reason}"),
            }]
        };
        if stamp.bytes > MAX_BYTES {
            return Err(unreadable(&"it is larger than 4 MiB; split it"));
        }
        let text = std::fs::read_to_string(path).map_err(|error| unreadable(&error))?;
        let mut manifests = manifest::read(&name, &text);
        for ignored in &manifests.ignored {
            info!(file = %ignored.file, line = ignored.line, reason = %ignored, "manifest left out");
        }
        for object in &manifests.objects {
            manifests.problems.extend(self.forbidden_change(object));
        }
        if manifests.problems.is_empty() {
            Ok(manifests.objects)
        } else {
            Err(manifests.problems)
        }
    }

    /// The last good content of all files.
    fn objects(&self) -> impl Iterator<Item = &Object> {
        self.files.values().flat_map(|(_, objects)| objects)
    }

    /// What the API server would refuse in changing an object into this one.
    fn forbidden_change(&self, new: &Object) -> Vec<Problem> {
        let old = self.objects().find(|old| full_name(old) == full_name(new));
        let (Some((kind, new_value)), Some((_, old_value))) = (value(new), old.and_then(value))
        else {
            return Vec::new();
        };
        schema::validate(kind, &new_value, Some(&old_value))
            .into_iter()
            .map(|violation| new.problem(&violation.field, violation.message))
            .collect()
    }

    /// Serves the good content of all files. When it fails nothing has changed for readers.
    fn publish(&mut self) -> Result<(), FilesError> {
        let objects: Vec<Object> = self.objects().cloned().collect();
        self.identities
            .settle(objects.iter().map(full_name), self.clock.now())?;
        let before = &self.resources;
        let mut resources = Resources::default();
        for object in &objects {
            let id = agent_id(object.namespace(), object.name());
            let identity = self.identities.of(&full_name(object));
            match &object.resource {
                Resource::Workspace(workspace) => {
                    let mut workspace = (**workspace).clone();
                    let old = before.workspaces.get(&id);
                    let old = old.map(|old| (&old.metadata, old.spec == workspace.spec));
                    identify(&mut workspace.metadata, identity, old);
                    resources.workspaces.insert(id, Arc::new(workspace));
                }
                Resource::Agent(agent) => {
                    let mut agent = (**agent).clone();
                    let old = before.agents.get(&id);
                    let old = old.map(|old| (&old.metadata, old.spec == agent.spec));
                    identify(&mut agent.metadata, identity, old);
                    agent.status = Some(crds::AgentStatus {
                        keys: self
                            .key(&id, object, &agent, &objects)?
                            .into_iter()
                            .collect(),
                        ..crds::AgentStatus::default()
                    });
                    resources.agents.insert(id, Arc::new(agent));
                }
                Resource::ToolSource(source) => {
                    let mut source = (**source).clone();
                    let old = before.sources.get(&id);
                    let old = old.map(|old| (&old.metadata, old.spec == source.spec));
                    identify(&mut source.metadata, identity, old);
                    resources.sources.insert(id, Arc::new(source));
                }
                Resource::ToolGrant(grant) => {
                    let mut grant = (**grant).clone();
                    let old = before.grants.get(&id);
                    let old = old.map(|old| (&old.metadata, old.spec == grant.spec));
                    identify(&mut grant.metadata, identity, old);
                    resources.grants.insert(id, Arc::new(grant));
                }
                Resource::Secret(_) | Resource::ConfigMap(_) => {}
            }
        }
        resources.people = self.people(&objects)?;
        for problem in (self.check)(&objects, self.clock.now()) {
            note(&problem);
        }
        self.named.replace(&objects);
        self.snapshot = Arc::new(build(&resources, None, &self.snapshot));
        self.resources = resources;
        self.publisher.publish(self.snapshot.clone());
        // Minting touched the folders of keys and tokens.
        self.seen.keys = stamps(self.identities.keys(), |_| true)?;
        self.seen.tokens = stamps(self.identities.people(), |_| true)?;
        self.is_behind = false;
        Ok(())
    }

    /// The tokens of people, by account: those of the Secrets that accounts name, or else one that is made here, since
    /// nobody could allow anything without it.
    fn people(&self, objects: &[Object]) -> Result<BTreeMap<String, Tokens>, FilesError> {
        let mut people = BTreeMap::new();
        for object in objects {
            let Resource::Workspace(workspace) = &object.resource else {
                continue;
            };
            if workspace.spec.account_ref.is_some() {
                continue;
            }
            let tokens = match &workspace.spec.people {
                Some(people) => {
                    let name = &people.tokens_secret_ref.name;
                    let secret = find_secret(objects, object.namespace(), name);
                    if secret.is_none() {
                        let message =
                            format!("no tokens yet: put the Secret {name} into this folder");
                        note(&object.problem(check::TOKENS_FIELD, message));
                    }
                    // What is wrong with single tokens is said by the check of all manifests.
                    people::read(name, secret.and_then(|secret| secret.data.as_ref())).tokens
                }
                None => match self.identities.person(ADMIN) {
                    Err(error @ IdentityError::NotAKey { .. }) => {
                        note(&object.problem("", error.to_string()));
                        Tokens::new()
                    }
                    token => Tokens::from([(ADMIN.to_owned(), token?)]),
                },
            };
            people.insert(agent_id(object.namespace(), object.name()), tokens);
        }
        Ok(people)
    }

    /// The public half of the agent's key; `None` while it has none.
    fn key(
        &self,
        id: &str,
        object: &Object,
        agent: &crds::Agent,
        objects: &[Object],
    ) -> Result<Option<KeyStatus>, FilesError> {
        let spec = agent.spec.key.clone().unwrap_or_default();
        let annotations = agent.metadata.annotations.as_ref();
        if spec.rotate_every.is_some()
            || annotations.is_some_and(|all| all.contains_key(ROTATE_KEY_ANNOTATION))
        {
            let file = key_file(self.identities.data(), id);
            let message = format!(
                "keys are rotated on Kubernetes only: remove {} to get a new one",
                file.display()
            );
            note(&object.problem("spec.key", message));
        }
        let digest = match (agent.spec.state, &spec.existing_secret_ref) {
            (AgentState::Draft, _) => None,
            (AgentState::Archived, _) => {
                self.identities.revoke(id)?;
                None
            }
            (AgentState::Deployed | AgentState::Disabled, None) => match self.identities.key(id) {
                Err(error @ IdentityError::NotAKey { .. }) => {
                    note(&object.problem("", error.to_string()));
                    None
                }
                key => Some(key?),
            },
            (AgentState::Deployed | AgentState::Disabled, Some(secret)) => {
                self.identities.revoke(id)?;
                let found = find_secret(objects, object.namespace(), &secret.name);
                if found.is_none() {
                    let message = format!(
                        "no key yet: put the Secret {} into this folder",
                        secret.name
                    );
                    note(&object.problem("spec.key.existingSecretRef", message));
                }
                found.and_then(|found| key_in(found, &secret.key))
            }
        };
        Ok(digest.map(|digest| KeyStatus {
            id: digest.id(),
            digest: digest.to_string(),
            created_at: String::new(),
            expires_at: None,
        }))
    }
}

fn find_secret<'a>(objects: &'a [Object], namespace: &str, name: &str) -> Option<&'a Secret> {
    objects.iter().find_map(|object| match &object.resource {
        Resource::Secret(secret) if object.namespace() == namespace && object.name() == name => {
            Some(&**secret)
        }
        _ => None,
    })
}

fn key_in(secret: &Secret, key: &str) -> Option<Digest> {
    let bytes = &secret.data.as_ref()?.get(key)?.0;
    Some(Key::parse(std::str::from_utf8(bytes).ok()?.trim())?.digest())
}

fn own(owners: &mut HashMap<String, Arc<str>>, file: Option<&(Stamp, Vec<Object>)>) {
    for object in file.iter().flat_map(|(_, objects)| objects) {
        owners.insert(full_name(object), object.file.clone());
    }
}

/// Objects that another file holds already, or the same file twice.
fn owned_by_others(owners: &HashMap<String, Arc<str>>, objects: &[Object]) -> Vec<Problem> {
    let mut seen = HashSet::new();
    let mut problems = Vec::new();
    for object in objects {
        let name = full_name(object);
        let again = seen.contains(&name).then_some(&object.file);
        if let Some(owner) = owners.get(&name).or(again) {
            problems.push(object.problem("", format!("is written twice: it is also in {owner}")));
        }
        seen.insert(name);
    }
    problems
}

/// Gives the object what an API server would; the generation grows with every change of the spec.
fn identify(metadata: &mut ObjectMeta, identity: &Identity, old: Option<(&ObjectMeta, bool)>) {
    metadata.uid = Some(identity.uid.clone());
    metadata.creation_timestamp = Some(Time(identity.created_at));
    metadata.generation = match old {
        Some((old, is_same)) if old.uid == metadata.uid => {
            Some(old.generation.unwrap_or_default() + i64::from(!is_same))
        }
        _ => Some(1),
    };
}

/// `Kind/<namespace>.<name>`.
fn full_name(object: &Object) -> String {
    format!(
        "{}/{}",
        object.kind(),
        agent_id(object.namespace(), object.name())
    )
}

/// The object as JSON, with its kind; `None` for kinds that are not ours.
fn value(object: &Object) -> Option<(Kind, Value)> {
    let value = match &object.resource {
        Resource::Workspace(object) => serde_json::to_value(object),
        Resource::Agent(object) => serde_json::to_value(object),
        Resource::ToolSource(object) => serde_json::to_value(object),
        Resource::ToolGrant(object) => serde_json::to_value(object),
        Resource::Secret(_) | Resource::ConfigMap(_) => return None,
    };
    Some((Kind::named(object.kind())?, value.ok()?))
}

/// Whether a file of a folder is read.
pub(crate) fn is_manifest(path: &Path) -> bool {
    let is_hidden = path
        .file_name()
        .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    let extension = path.extension().and_then(|extension| extension.to_str());
    !is_hidden && matches!(extension, Some("yaml" | "yml" | "json"))
}

/// The files of a folder, not of the folders in it.
fn stamps(
    folder: &Path,
    counts: impl Fn(&Path) -> bool,
) -> Result<BTreeMap<PathBuf, Stamp>, FilesError> {
    let read = || {
        let mut stamps = BTreeMap::new();
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if !counts(&path) {
                continue;
            }
            match std::fs::metadata(&path) {
                Ok(metadata) if metadata.is_file() => {
                    let stamp = Stamp {
                        modified: (metadata.mtime(), metadata.mtime_nsec()),
                        bytes: metadata.len(),
                        inode: metadata.ino(),
                    };
                    stamps.insert(path, stamp);
                }
                Ok(_) => {}
                // Gone since the folder was read, or a dangling link.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(stamps)
    };
    read().map_err(|source| FilesError::Folder {
        folder: folder.to_owned(),
        source,
    })
}

fn note(problem: &Problem) {
    warn!(file = %problem.file, line = problem.line, reason = %problem, "manifest served, but for this");
}

fn lines(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;
    use crate::auth;
    use crate::directory::Directory;

    const HOME: &str =
        "apiVersion: chandlery.dev/v1alpha1\nkind: Workspace\nmetadata: {name: home}\nspec: {}\n";

    fn agent(name: &str, more: &str) -> String {
        format!(
            "apiVersion: chandlery.dev/v1alpha1\nkind: Agent\nmetadata: {{name: {name}}}\nspec:\n  workspaceRef: {{name: home}}\n{more}"
        )
    }

    struct Folder {
        root: tempfile::TempDir,
        files: Option<Files>,
        directory: Directory,
    }

    impl Folder {
        fn new(manifests: &[(&str, &str)]) -> Self {
            let root = tempfile::tempdir().unwrap();
            std::fs::create_dir(root.path().join("manifests")).unwrap();
            let folder = Self {
                root,
                files: None,
                directory: Directory::new().1,
            };
            folder.write(manifests);
            folder
        }

        fn write(&self, manifests: &[(&str, &str)]) {
            for (name, text) in manifests {
                std::fs::write(self.root.path().join("manifests").join(name), text).unwrap();
            }
        }

        fn remove(&self, name: &str) {
            std::fs::remove_file(self.root.path().join("manifests").join(name)).unwrap();
        }

        fn start(&mut self) -> Result<(), String> {
            let (publisher, directory) = Directory::new();
            self.directory = directory;
            let (manifests, data) = (
                self.root.path().join("manifests"),
                self.root.path().join("data"),
            );
            let files = Files::open(
                &manifests,
                &data,
                Box::new(|objects, _| check::all(objects)),
                Clock::system(),
                publisher,
            )
            .map_err(|error| {
                error
                    .to_string()
                    .replace(&*manifests.to_string_lossy(), "…")
            })?;
            self.files = Some(files);
            Ok(())
        }

        /// Two looks at the folder, as many as a change takes.
        fn look(&mut self) {
            let files = self.files.as_mut().unwrap();
            let look = files.step(None);
            files.step(look.as_ref());
        }

        fn agents(&self) -> Vec<String> {
            let snapshot = self.directory.snapshot().unwrap();
            let mut agents: Vec<String> = snapshot.agents.keys().cloned().collect();
            agents.sort();
            agents
        }

        fn key(&self, agent: &str) -> Option<String> {
            std::fs::read_to_string(key_file(&self.root.path().join("data"), agent)).ok()
        }

        fn opens(&self, key: &str) -> bool {
            auth::identify(
                &self.directory.snapshot().unwrap(),
                key,
                jiff::Timestamp::now(),
            )
            .is_some()
        }
    }

    #[test]
    fn the_same_key_opens_after_a_restart_and_none_after_removal() {
        let (a, b) = (agent("a", ""), agent("b", ""));
        let mut folder = Folder::new(&[
            ("home.yaml", HOME),
            ("a.yaml", &a),
            ("b.yml", &b),
            ("notes.txt", "-"),
        ]);
        folder.start().unwrap();
        assert_eq!(folder.agents(), ["default.a", "default.b"]);
        let key = folder.key("default.a").unwrap();
        assert!(folder.opens(&key));
        folder.start().unwrap();
        assert!(folder.opens(&key));
        folder.remove("a.yaml");
        folder.look();
        assert_eq!(folder.agents(), ["default.b"]);
        assert!(!folder.opens(&key) && folder.key("default.a").is_none());
    }

    #[test]
    fn a_disabled_agent_keeps_its_key_and_an_archived_one_does_not() {
        let mut folder = Folder::new(&[("home.yaml", HOME), ("a.yaml", &agent("a", ""))]);
        folder.start().unwrap();
        let key = folder.key("default.a").unwrap();
        folder.write(&[("a.yaml", &agent("a", "  state: Disabled\n"))]);
        folder.look();
        assert!(!folder.opens(&key));
        folder.write(&[("a.yaml", &agent("a", "  state: Deployed\n"))]);
        folder.look();
        assert!(folder.opens(&key));
        folder.write(&[("a.yaml", &agent("a", "  state: Archived\n"))]);
        folder.look();
        folder.write(&[("a.yaml", &agent("a", ""))]);
        folder.look();
        assert!(!folder.opens(&key) && folder.opens(&folder.key("default.a").unwrap()));
    }

    #[test]
    fn a_broken_file_keeps_its_last_good_content_and_holds_up_no_other() {
        let mut folder = Folder::new(&[("home.yaml", HOME), ("a.yaml", &agent("a", ""))]);
        folder.start().unwrap();
        let both = format!("{}---\n{}", agent("c", ""), agent("a", "  toools: []\n"));
        folder.write(&[("a.yaml", &both), ("b.yaml", &agent("b", ""))]);
        folder.look();
        assert_eq!(folder.agents(), ["default.a", "default.b"]);
    }

    #[tokio::test]
    async fn secrets_and_config_maps_are_read_as_the_folder_has_them() {
        let secret = |value: &str| {
            format!(
                "apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\n  annotations: {{chandlery.dev/allowed-hosts: \"a.example, *.b.example:8443,\"}}\nstringData: {{k: {value}}}\n"
            )
        };
        let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {doc: '{}'}\nbinaryData: {more: e30=, raw: /w==}\n";
        let mut folder = Folder::new(&[
            ("home.yaml", HOME),
            ("s.yaml", &secret("old")),
            ("m.yaml", map),
        ]);
        folder.start().unwrap();
        let references = folder.files.as_ref().unwrap().references();
        let read = async || {
            let secret = references.secret("default", "s").await.unwrap();
            let allowed = secret.allowed_hosts.unwrap();
            assert!(allowed.allow("https://a.example") && !allowed.allow("https://c.example"));
            secret.data["k"].expose_secret().to_vec()
        };
        assert_eq!(read().await, b"old");
        let texts = references.config_map("default", "m").await.unwrap();
        assert_eq!(texts.keys().collect::<Vec<_>>(), ["doc", "more"]);
        folder.write(&[("s.yaml", &secret("newer"))]);
        folder.look();
        assert_eq!(read().await, b"newer");
        folder.remove("s.yaml");
        folder.look();
        let gone = references.secret("default", "s").await.unwrap_err();
        assert_eq!(gone.to_string(), "there is no Secret s");
        assert!(references.config_map("other", "m").await.is_err());
    }

    #[test]
    fn an_object_stays_with_the_file_that_had_it() {
        let mut folder = Folder::new(&[("home.yaml", HOME), ("b.yaml", &agent("x", ""))]);
        folder.start().unwrap();
        folder.write(&[(
            "a.yaml",
            &format!("{}---\n{}", agent("z", ""), agent("x", "")),
        )]);
        folder.look();
        assert_eq!(folder.agents(), ["default.x"]);
        folder.remove("b.yaml");
        folder.look();
        assert_eq!(folder.agents(), ["default.x", "default.z"]);
    }

    #[test]
    fn what_is_immutable_in_a_cluster_is_so_here() {
        let mut folder = Folder::new(&[("home.yaml", HOME), ("a.yaml", &agent("a", ""))]);
        folder.start().unwrap();
        let moved = agent("a", "").replace("name: home", "name: away");
        folder.write(&[("a.yaml", &moved)]);
        folder.look();
        assert_eq!(folder.agents(), ["default.a"]);
    }

    #[test]
    fn a_folder_that_is_wrong_at_the_start_is_refused() {
        let mut folder = Folder::new(&[
            ("home.yaml", HOME),
            ("a.yaml", &agent("a", "  state: Running\n")),
            ("b.json", "{"),
        ]);
        expect_test::expect![[r#"
            …/a.yaml:6: Agent/a: spec.state: Unsupported value: "Running": supported values: "Draft", "Deployed", "Disabled", "Archived"
            …/b.json:1: cannot be read as YAML: unclosed bracket '{'"#]]
        .assert_eq(&folder.start().unwrap_err());
    }

    #[test]
    fn a_key_of_ones_own_comes_from_a_secret_of_the_folder() {
        let key = Key::from_random([5; 32]);
        let secret = format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: mine}}\nstringData: {{token: {}}}\n",
            key.expose()
        );
        let theirs = agent("a", "  key: {existingSecretRef: {name: mine}}\n");
        let mut folder = Folder::new(&[("home.yaml", HOME), ("a.yaml", &theirs)]);
        folder.start().unwrap();
        assert!(!folder.opens(key.expose()));
        folder.write(&[("secret.yaml", &secret)]);
        folder.look();
        assert!(folder.opens(key.expose()) && folder.key("default.a").is_none());
    }

    #[test]
    fn people_are_those_of_the_secret_or_an_admin_whose_token_stays() {
        let mut folder = Folder::new(&[("home.yaml", HOME)]);
        let people = |folder: &Folder| {
            let snapshot = folder.directory.snapshot().unwrap();
            let mut names: Vec<String> = snapshot
                .people
                .values()
                .map(|person| format!("{} of {}", person.name, person.accounts.join(" and ")))
                .collect();
            names.sort();
            names
        };
        let token = |folder: &Folder| {
            std::fs::read_to_string(person_file(&folder.root.path().join("data"), ADMIN)).unwrap()
        };
        folder.start().unwrap();
        assert_eq!(people(&folder), ["admin of default.home"]);
        let made = token(&folder);
        folder.start().unwrap();
        assert_eq!(token(&folder), made);
        let snapshot = folder.directory.snapshot().unwrap();
        assert!(auth::person(&snapshot, &made).is_some());
        std::fs::remove_file(person_file(&folder.root.path().join("data"), ADMIN)).unwrap();
        folder.look();
        assert_ne!(token(&folder), made);
        let snapshot = folder.directory.snapshot().unwrap();
        assert!(auth::person(&snapshot, &made).is_none());
        assert!(auth::person(&snapshot, &token(&folder)).is_some());

        folder.write(&[(
            "home.yaml",
            &HOME.replace("{}", "{people: {tokensSecretRef: {name: p}}}"),
        )]);
        folder.look();
        assert_eq!(people(&folder), [""; 0]);
        let key = Key::from_random([5; 32]);
        let secret = format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: p}}\nstringData: {{alice: '{}', bob: hunter2}}\n",
            key.expose()
        );
        folder.write(&[("p.yaml", &secret)]);
        folder.look();
        assert_eq!(people(&folder), ["alice of default.home"]);
        // An agent's key is no person's token.
        let mine = agent("a", "  key: {existingSecretRef: {name: p, key: alice}}\n");
        folder.write(&[("a.yaml", &mine)]);
        folder.look();
        assert_eq!(people(&folder), [""; 0]);
        assert!(folder.opens(key.expose()));
    }

    #[test]
    fn a_key_file_that_is_removed_is_made_anew() {
        let mut folder = Folder::new(&[("home.yaml", HOME), ("a.yaml", &agent("a", ""))]);
        folder.start().unwrap();
        let key = folder.key("default.a").unwrap();
        std::fs::remove_file(key_file(&folder.root.path().join("data"), "default.a")).unwrap();
        folder.look();
        assert!(!folder.opens(&key) && folder.opens(&folder.key("default.a").unwrap()));
    }
}
