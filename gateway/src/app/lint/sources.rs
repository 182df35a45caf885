//! What the ToolSources of manifests offer, as far as their documents lie among them.

use std::collections::BTreeMap;

use chandlery_crds::conditions::reason;
use chandlery_crds::manifest::{Object, Problem, Resource};
use chandlery_crds::report::Unresolved;
use chandlery_crds::{NotedTool, ToolSource, names};
use k8s_openapi::api::core::v1::ConfigMap;

use crate::families::openapi;
use crate::sources;
use crate::tool::Tool;

/// The ToolSources among the objects, by namespace and name.
pub(super) struct Sources<'a>(BTreeMap<(&'a str, &'a str), Source>);

enum Source {
    /// Its document has been read.
    Read {
        tools: Vec<Tool>,
        left_out: Vec<NotedTool>,
    },
    /// Only asking it would tell, or its document cannot be read, which is said already.
    Unknown,
}

impl<'a> Sources<'a> {
    /// Reads the documents; says what is wrong with those that cannot be.
    pub(super) fn read(objects: &'a [Object]) -> (Self, Vec<Problem>) {
        let mut problems = Vec::new();
        let mut sources = BTreeMap::new();
        for object in objects {
            let Resource::ToolSource(source) = &object.resource else {
                continue;
            };
            let document = document(source, object.namespace(), objects);
            let read = document.map(|(field, text)| {
                let offer = openapi::offer(object.name(), &source.spec, text);
                offer.map_err(|failure| object.problem(field, failure.message))
            });
            let known = match read {
                Some(Ok(offer)) => Source::Read {
                    tools: offer
                        .tools
                        .into_iter()
                        .map(|offered| offered.tool)
                        .collect(),
                    left_out: offer.left_out,
                },
                Some(Err(problem)) => {
                    problems.push(problem);
                    Source::Unknown
                }
                None => Source::Unknown,
            };
            sources.insert((object.namespace(), object.name()), known);
        }
        (Self(sources), problems)
    }

    /// The tools that are known of a namespace's sources.
    pub(super) fn tools(&self, namespace: &str) -> impl Iterator<Item = &Tool> + Clone {
        let known = self.0.iter().filter(move |((own, _), _)| *own == namespace);
        known.flat_map(|(_, source)| match source {
            Source::Read { tools, .. } => tools.as_slice(),
            Source::Unknown => &[],
        })
    }

    /// What is left to say of an entry that serves nothing: nothing where only asking its source would tell.
    pub(super) fn explained(&self, mut entry: Unresolved, namespace: &str) -> Option<Unresolved> {
        if entry.reason == reason::SOURCE_NOT_SERVED
            && let Some((name, glob)) = entry.entry.split_once('/')
        {
            (entry.reason, entry.message) = self.why(namespace, name, glob)?;
        }
        Some(entry)
    }

    /// What is wrong with a grant's entries.
    pub(super) fn of_grant(&self, object: &Object, entries: &[String]) -> Vec<Problem> {
        let namespace = object.namespace();
        let wrong = entries.iter().enumerate().filter_map(|(at, entry)| {
            let (name, glob) = entry.split_once('/')?;
            // That a source is missing has been said of the grant's references.
            self.0.get(&(namespace, name))?;
            if self.tools(namespace).any(|tool| tool.is_named_by(entry)) {
                return None;
            }
            let (_, message) = self.why(namespace, name, glob)?;
            Some(object.problem(&format!("spec.tools[{at}]"), message))
        });
        wrong.collect()
    }

    fn why(&self, namespace: &str, name: &str, glob: &str) -> Option<(String, String)> {
        match self.0.get(&(namespace, name)) {
            None => Some(sources::missing(name)),
            Some(Source::Unknown) => None,
            Some(Source::Read { left_out, .. }) => {
                let is_meant = |noted: &&NotedTool| names::glob_matches(glob, &noted.name);
                let noted = left_out.iter().find(is_meant);
                Some(noted.map_or_else(
                    || sources::nothing(name, glob),
                    |noted| sources::left_out(name, noted),
                ))
            }
        }
    }
}

/// The document of a source that has one among the objects, and the field that says where.
fn document<'a>(
    source: &'a ToolSource,
    namespace: &str,
    objects: &'a [Object],
) -> Option<(&'static str, &'a [u8])> {
    let openapi = source.spec.openapi.as_ref()?;
    if let Some(text) = &openapi.inline {
        return Some(("spec.openapi.inline", text.as_bytes()));
    }
    let reference = openapi.config_map_key_ref.as_ref()?;
    let map = objects.iter().find_map(|object| match &object.resource {
        Resource::ConfigMap(map)
            if object.namespace() == namespace && object.name() == reference.name =>
        {
            Some(&**map)
        }
        _ => None,
    })?;
    Some((
        "spec.openapi.configMapKeyRef",
        text_of(map, &reference.key)?,
    ))
}

fn text_of<'a>(map: &'a ConfigMap, key: &str) -> Option<&'a [u8]> {
    let text = map.data.as_ref().and_then(|data| data.get(key));
    let binary = map.binary_data.as_ref().and_then(|data| data.get(key));
    text.map(String::as_bytes)
        .or_else(|| Some(binary?.0.as_slice()))
}
