//! What the manifests of a folder say: of each file the last content in which nothing was wrong.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chandlery_crds::crd::Kind;
use chandlery_crds::manifest::{self, Object, Problem, Resource};
use chandlery_crds::names::agent_id;
use chandlery_crds::schema;
use serde_json::Value;
use tracing::info;

use super::folder::Stamp;

/// Size of the largest manifest that is read, in bytes.
const MAX_BYTES: u64 = 4 << 20;

/// The last good content of each file.
#[derive(Default)]
pub(super) struct Content(BTreeMap<PathBuf, (Stamp, Vec<Object>)>);

impl Content {
    /// Takes over the content of every new or changed file that is good, and says what is wrong with the others.
    ///
    /// A file that was refused is tried again each time: what was wrong may have been put right in another.
    pub(super) fn read(&mut self, look: &BTreeMap<PathBuf, Stamp>) -> Vec<Problem> {
        self.0.retain(|path, _| look.contains_key(path));
        let (mut refused, mut candidates) = (Vec::new(), Vec::new());
        let mut owners = HashMap::new();
        for (path, stamp) in look {
            let last_good = self.0.get(path);
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
                self.0.insert(path.clone(), (stamp, objects));
            }
            refused.extend(problems);
            own(&mut owners, self.0.get(path));
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

    /// The objects of all files.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Object> {
        self.0.values().flat_map(|(_, objects)| objects)
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

/// `Kind/<namespace>.<name>`.
pub(super) fn full_name(object: &Object) -> String {
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
