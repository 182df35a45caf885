//! A directory from a folder of manifests, read again whenever something in it changes.
//!
//! A file counts as a whole: while anything in it is wrong, its last good content goes on being served and all other
//! files are taken as they are. A folder that is wrong at the start is refused, since there is nothing good yet.

mod content;
mod folder;
mod holders;
mod identities;
mod references;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chandlery_crds::AgentStatus;
use chandlery_crds::crd::identified;
use chandlery_crds::manifest::{Object, Problem, Resource};
use chandlery_crds::names::agent_id;
use jiff::Timestamp;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use self::content::{Content, full_name};
pub(crate) use self::folder::is_manifest;
use self::folder::{Stamp, stamps};
use self::identities::{Identities, Identity};
pub use self::identities::{IdentityError, key_file, own_secret, person_file};
use super::build::{Resources, build};
use super::{Publisher, References, Snapshot, chain};
use crate::store::Clock;

/// How often the folder is looked at. A change counts once two looks agree, so that no half-written file is read.
const LOOK_EVERY: Duration = Duration::from_millis(200);

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
    content: Content,
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
            content: Content::default(),
            resources: Resources::default(),
            snapshot: Arc::default(),
            named: Arc::default(),
        };
        let look = files.look()?;
        let refused = files.content.read(&look.manifests);
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
        for problem in self.content.read(&look.manifests) {
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

    /// Serves the good content of all files. When it fails nothing has changed for readers.
    fn publish(&mut self) -> Result<(), FilesError> {
        let objects: Vec<Object> = self.content.objects().cloned().collect();
        self.identities
            .settle(objects.iter().map(full_name), self.clock.now())?;
        let before = &self.resources;
        let mut resources = Resources::default();
        for object in &objects {
            let id = agent_id(object.namespace(), object.name());
            let Identity { uid, created_at } = self.identities.of(&full_name(object));
            match &object.resource {
                Resource::Workspace(workspace) => {
                    let workspace = identified(
                        &**workspace,
                        uid,
                        created_at,
                        before.workspaces.get(&id).map(|old| &**old),
                    );
                    resources.workspaces.insert(id, Arc::new(workspace));
                }
                Resource::Agent(agent) => {
                    let mut agent = identified(
                        &**agent,
                        uid,
                        created_at,
                        before.agents.get(&id).map(|old| &**old),
                    );
                    let key = holders::key(&self.identities, &id, object, &agent, &objects)?;
                    agent.status = Some(AgentStatus {
                        keys: key.into_iter().collect(),
                        ..AgentStatus::default()
                    });
                    resources.agents.insert(id, Arc::new(agent));
                }
                Resource::ToolSource(source) => {
                    let source = identified(
                        &**source,
                        uid,
                        created_at,
                        before.sources.get(&id).map(|old| &**old),
                    );
                    resources.sources.insert(id, Arc::new(source));
                }
                Resource::ToolGrant(grant) => {
                    let grant = identified(
                        &**grant,
                        uid,
                        created_at,
                        before.grants.get(&id).map(|old| &**old),
                    );
                    resources.grants.insert(id, Arc::new(grant));
                }
                Resource::Secret(_) | Resource::ConfigMap(_) => {}
            }
        }
        resources.people = holders::people(&self.identities, &objects)?;
        self.named.replace(&objects);
        self.snapshot = Arc::new(build(&resources, None, &self.snapshot));
        self.resources = resources;
        self.publisher.publish(self.snapshot.clone());
        // Only now: documents of sources are read for it, which takes a while.
        for problem in (self.check)(&objects, self.clock.now()) {
            note(&problem);
        }
        // Minting touched the folders of keys and tokens.
        self.seen.keys = stamps(self.identities.keys(), |_| true)?;
        self.seen.tokens = stamps(self.identities.people(), |_| true)?;
        self.is_behind = false;
        Ok(())
    }
}

fn note(problem: &Problem) {
    warn!(file = %problem.file, line = problem.line, reason = %problem, "manifest served, but for this");
}

fn lines(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
    lines.join("\n")
}
