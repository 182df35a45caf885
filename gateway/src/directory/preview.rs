//! What a snapshot would be if some manifests were applied, so that a change can be looked at before it is made.

use std::sync::Arc;

use chandlery_crds::manifest::{Object, Resource};
use chandlery_crds::names::agent_id;

use super::grant::{self, ToolGrant};
use super::{Agent, Snapshot, Workspace};

impl Snapshot {
    /// This snapshot's agents as they would be after `objects` were applied. Keys stay as they are: nobody can sign in
    /// to what is only looked at.
    pub fn with(&self, objects: &[Object]) -> Self {
        let mut next = Self {
            agents: self.agents.clone(),
            workspaces: self.workspaces.clone(),
            sources: self.sources.clone(),
            grants: self.grants.clone(),
            ..Self::default()
        };
        for object in objects {
            let id = agent_id(object.namespace(), object.name());
            match &object.resource {
                Resource::Workspace(new) => {
                    let account = new.spec.account(object.name());
                    let old = self.workspaces.get(&id);
                    let workspace = Workspace {
                        uid: old.map_or_else(|| format!("preview/{id}"), |old| old.uid.clone()),
                        generation: old.map_or(1, |old| old.generation + 1),
                        account: agent_id(object.namespace(), account),
                        spec: new.spec.clone(),
                        id: id.clone(),
                    };
                    next.workspaces.insert(id, Arc::new(workspace));
                }
                Resource::ToolGrant(new) => {
                    let home = agent_id(object.namespace(), &new.spec.workspace_ref.name);
                    let uid = format!("preview/{id}");
                    let made = ToolGrant::new(object.name(), &uid, 0, home, &new.spec);
                    next.grants.insert(id, Arc::new(made));
                }
                Resource::Agent(_)
                | Resource::ToolSource(_)
                | Resource::Secret(_)
                | Resource::ConfigMap(_) => {}
            }
        }
        let ids: Vec<String> = next.agents.keys().cloned().collect();
        let written = |id: &str| {
            objects.iter().find_map(|object| match &object.resource {
                Resource::Agent(agent) if agent_id(object.namespace(), object.name()) == id => {
                    Some(agent)
                }
                _ => None,
            })
        };
        let new = objects
            .iter()
            .filter(|object| matches!(object.resource, Resource::Agent(_)))
            .map(|object| agent_id(object.namespace(), object.name()));
        for id in ids.into_iter().chain(new) {
            let (old, written) = (self.agents.get(&id), written(&id));
            let Some(spec) = written
                .map(|agent| &agent.spec)
                .or(old.map(|agent| &agent.spec))
            else {
                continue;
            };
            let namespace = id.split_once('.').map_or("", |(namespace, _)| namespace);
            let home = agent_id(namespace, &spec.workspace_ref.name);
            let Some(workspace) = next.workspaces.get(&home) else {
                next.agents.remove(&id);
                continue;
            };
            let labels = match written {
                Some(agent) => agent.metadata.labels.clone().unwrap_or_default(),
                None => old.map(|agent| agent.labels.clone()).unwrap_or_default(),
            };
            let name = id.split_once('.').map_or(id.as_str(), |(_, name)| name);
            let agent = Agent {
                uid: old.map_or_else(|| format!("preview/{id}"), |old| old.uid.clone()),
                generation: old.map_or(1, |old| old.generation),
                key_revision: old.map_or(0, |old| old.key_revision),
                grants: grant::of_agent(next.grants.values(), name, &labels, &workspace.id),
                spec: spec.clone(),
                workspace: workspace.clone(),
                labels,
                id: id.clone(),
            };
            next.agents.insert(id, Arc::new(agent));
        }
        next
    }
}
