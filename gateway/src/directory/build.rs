//! From resources to a snapshot. Pure: nothing here does I/O, reads the clock or logs.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use chandlery_crds as crds;
use chandlery_crds::AgentState;
use chandlery_crds::fields::KeyStatus;
use chandlery_crds::key::Digest;
use chandlery_crds::names::agent_id as id;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::grant::{self, ToolGrant};
use super::people::{Person, Tokens};
use super::{Agent, Holder, Principal, Snapshot, ToolSource, Workspace};

/// The resources as they were read, each by `<namespace>.<name>`. The digests of keys are in their status.
#[derive(Clone, Debug, Default)]
pub(super) struct Resources {
    pub(super) workspaces: BTreeMap<String, Arc<crds::Workspace>>,
    pub(super) agents: BTreeMap<String, Arc<crds::Agent>>,
    pub(super) sources: BTreeMap<String, Arc<crds::ToolSource>>,
    pub(super) grants: BTreeMap<String, Arc<crds::ToolGrant>>,
    /// The tokens of people, by account.
    pub(super) people: BTreeMap<String, Tokens>,
}

/// What a gateway serves of `resources`: the one account, or every account.
///
/// What has not changed since `before` is the same `Arc` as there, since catalogs are kept by pointer.
pub(super) fn build(resources: &Resources, account: Option<&str>, before: &Snapshot) -> Snapshot {
    let workspaces = resources
        .workspaces
        .iter()
        .filter_map(|(id, workspace)| {
            let serving = account_of(resources, workspace)?;
            account
                .is_none_or(|account| account == serving)
                .then(|| (id.clone(), make_workspace(id, serving, workspace, before)))
        })
        .collect();
    let mut snapshot = Snapshot {
        workspaces,
        ..Snapshot::default()
    };
    for (id, source) in &resources.sources {
        let (uid, generation) = identity(&source.metadata);
        let old = before.sources.get(id);
        let source = kept(old, |old| old.uid == uid && old.generation == generation)
            .unwrap_or_else(|| {
                let spec = source.spec.clone();
                let created = source.metadata.creation_timestamp.as_ref();
                Arc::new(ToolSource {
                    uid: uid.to_owned(),
                    generation,
                    created_at: created.map(|time| time.0),
                    spec,
                })
            });
        snapshot.sources.insert(id.clone(), source);
    }
    for (id, grant) in &resources.grants {
        let home = in_namespace_of(&grant.metadata, &grant.spec.workspace_ref.name);
        if !snapshot.workspaces.contains_key(&home) {
            continue;
        }
        let (uid, generation) = identity(&grant.metadata);
        let old = before.grants.get(id);
        let grant =
            kept(old, |old| old.uid == uid && old.generation == generation).unwrap_or_else(|| {
                let name = grant.metadata.name.as_deref().unwrap_or_default();
                Arc::new(ToolGrant::new(name, uid, generation, home, &grant.spec))
            });
        snapshot.grants.insert(id.clone(), grant);
    }
    for (id, agent) in &resources.agents {
        let home = in_namespace_of(&agent.metadata, &agent.spec.workspace_ref.name);
        if agent.spec.state != AgentState::Draft
            && let Some(workspace) = snapshot.workspaces.get(&home)
        {
            let agent = make_agent(id, workspace, agent, &snapshot.grants, before);
            snapshot.agents.insert(id.clone(), agent);
        }
    }
    let claimed = hand_out_keys(resources, &mut snapshot);
    for (account, tokens) in &resources.people {
        if !snapshot.workspaces.contains_key(account) {
            continue;
        }
        for (name, digest) in tokens
            .iter()
            .filter(|(_, digest)| !claimed.contains(digest))
        {
            // Who holds the same token in several accounts is one person.
            let person = snapshot.people.entry(*digest).or_insert_with(|| Person {
                name: name.as_str().into(),
                accounts: Vec::new(),
            });
            person.accounts.push(account.as_str().into());
        }
    }
    snapshot
}

/// Id of the account that serves the Workspace; `None` while that Workspace is missing or no account itself.
fn account_of(resources: &Resources, workspace: &crds::Workspace) -> Option<String> {
    let name = workspace.metadata.name.as_deref()?;
    let account = in_namespace_of(&workspace.metadata, workspace.spec.account(name));
    resources
        .workspaces
        .get(&account)
        .is_some_and(|account| account.spec.account_ref.is_none())
        .then_some(account)
}

fn make_workspace(
    id: &str,
    account: String,
    workspace: &crds::Workspace,
    before: &Snapshot,
) -> Arc<Workspace> {
    let (uid, generation) = identity(&workspace.metadata);
    kept(before.workspaces.get(id), |old| {
        old.uid == uid && old.generation == generation && old.account == account
    })
    .unwrap_or_else(|| {
        Arc::new(Workspace {
            id: id.to_owned(),
            uid: uid.to_owned(),
            generation,
            account,
            spec: workspace.spec.clone(),
        })
    })
}

fn make_agent(
    id: &str,
    workspace: &Arc<Workspace>,
    agent: &crds::Agent,
    grants: &HashMap<String, Arc<ToolGrant>>,
    before: &Snapshot,
) -> Arc<Agent> {
    let (uid, generation) = identity(&agent.metadata);
    let key_revision = agent
        .status
        .as_ref()
        .map_or(0, |status| status.key_revision);
    let labels = agent.metadata.labels.clone().unwrap_or_default();
    let name = agent.metadata.name.as_deref().unwrap_or_default();
    let grants = grant::of_agent(grants.values(), name, &labels, &workspace.id);
    kept(before.agents.get(id), |old| {
        old.uid == uid
            && old.generation == generation
            && old.key_revision == key_revision
            && labels == old.labels
            && grant::are_same(&grants, &old.grants)
            && Arc::ptr_eq(&old.workspace, workspace)
    })
    .unwrap_or_else(|| {
        Arc::new(Agent {
            id: id.to_owned(),
            uid: uid.to_owned(),
            generation,
            key_revision,
            labels,
            spec: agent.spec.clone(),
            grants,
            workspace: workspace.clone(),
        })
    })
}

/// Gives every digest to the oldest object that claims it, and to nobody while that object may not use it:
/// the key of a disabled agent must not start to work as someone else's. Gives back all digests that are claimed.
fn hand_out_keys(resources: &Resources, snapshot: &mut Snapshot) -> HashSet<Digest> {
    let mut claims: Vec<Claim<'_>> = Vec::new();
    for (id, workspace) in &resources.workspaces {
        let live = snapshot
            .workspaces
            .get(id)
            .filter(|_| lives(&workspace.metadata));
        claims.push(Claim {
            metadata: &workspace.metadata,
            keys: workspace
                .status
                .as_ref()
                .map_or(&[], |status| status.keys.as_slice()),
            principal: live.cloned().map(Principal::Workspace),
        });
    }
    for (id, agent) in &resources.agents {
        let live = snapshot
            .agents
            .get(id)
            .filter(|live| live.spec.state == AgentState::Deployed && lives(&agent.metadata));
        claims.push(Claim {
            metadata: &agent.metadata,
            keys: agent
                .status
                .as_ref()
                .map_or(&[], |status| status.keys.as_slice()),
            principal: live.cloned().map(Principal::Agent),
        });
    }
    claims.sort_by_key(|claim| {
        let created = claim.metadata.creation_timestamp.as_ref();
        (created.map(|time| time.0), claim.metadata.uid.as_deref())
    });
    let mut claimed = HashSet::new();
    for claim in claims {
        for key in claim.keys {
            let Some(digest) = Digest::parse(&key.digest) else {
                continue;
            };
            if claimed.insert(digest)
                && let (Some(principal), Ok(expires_at)) = (&claim.principal, expiry(key))
            {
                let holder = Holder {
                    principal: principal.clone(),
                    key_id: digest.id().into(),
                    expires_at,
                };
                snapshot.keys.insert(digest, holder);
            }
        }
    }
    claimed
}

/// Who says that certain keys are its own.
struct Claim<'a> {
    metadata: &'a ObjectMeta,
    keys: &'a [KeyStatus],
    /// `None` while its keys must not work.
    principal: Option<Principal>,
}

/// An expiry that cannot be read is an error: the key must not work for good because of it.
fn expiry(key: &KeyStatus) -> Result<Option<Timestamp>, jiff::Error> {
    key.expires_at.as_deref().map(str::parse).transpose()
}

fn lives(metadata: &ObjectMeta) -> bool {
    metadata.deletion_timestamp.is_none()
}

fn identity(metadata: &ObjectMeta) -> (&str, i64) {
    let uid = metadata.uid.as_deref().unwrap_or_default();
    (uid, metadata.generation.unwrap_or_default())
}

fn in_namespace_of(metadata: &ObjectMeta, name: &str) -> String {
    id(metadata.namespace.as_deref().unwrap_or_default(), name)
}

fn kept<T>(old: Option<&Arc<T>>, is_same: impl Fn(&T) -> bool) -> Option<Arc<T>> {
    old.filter(|old| is_same(old)).cloned()
}

#[cfg(test)]
mod tests {
    use chandlery_crds::key::Key;
    use serde_json::{Value, json};

    use super::*;

    fn key(seed: u8) -> Digest {
        Key::from_random([seed; 32]).digest()
    }

    fn workspace(name: &str, account: Option<&str>) -> Value {
        let spec = account.map_or(json!({}), |name| json!({"accountRef": {"name": name}}));
        object("Workspace", name, spec, json!({}))
    }

    fn agent(name: &str, state: &str, created: &str, keys: Value) -> Value {
        let spec = json!({"workspaceRef": {"name": "home"}, "state": state});
        let mut agent = object("Agent", name, spec, json!({"keys": keys, "keyRevision": 1}));
        agent["metadata"]["creationTimestamp"] = json!(created);
        agent
    }

    fn object(kind: &str, name: &str, spec: Value, status: Value) -> Value {
        json!({
            "apiVersion": "chandlery.dev/v1alpha1", "kind": kind, "spec": spec, "status": status,
            "metadata": {"name": name, "namespace": "team", "uid": format!("uid-{name}"), "generation": 1}
        })
    }

    fn published(seed: u8, expires_at: Option<&str>) -> Value {
        json!({"id": key(seed).id(), "digest": key(seed).to_string(), "createdAt": "2026-01-01T00:00:00Z",
               "expiresAt": expires_at})
    }

    fn resources(objects: &[Value]) -> Resources {
        fn typed<T: serde::de::DeserializeOwned>(object: &Value) -> Arc<T> {
            serde_json::from_value(object.clone()).expect("a valid object")
        }
        let mut resources = Resources::default();
        for object in objects {
            let id = id("team", object["metadata"]["name"].as_str().unwrap());
            match object["kind"].as_str() {
                Some("Workspace") => drop(resources.workspaces.insert(id, typed(object))),
                Some("Agent") => drop(resources.agents.insert(id, typed(object))),
                Some("ToolGrant") => drop(resources.grants.insert(id, typed(object))),
                _ => drop(resources.sources.insert(id, typed(object))),
            }
        }
        resources
    }

    /// What is served, in words: workspaces, agents, and who holds which of the keys 1 to 9.
    #[track_caller]
    fn check(objects: &[Value], account: Option<&str>, expected: &str) {
        let snapshot = build(&resources(objects), account, &Snapshot::default());
        let mut words: Vec<String> = Vec::new();
        words.extend(snapshot.workspaces.keys().cloned());
        words.extend(snapshot.agents.keys().cloned());
        words.extend(snapshot.grants.keys().cloned());
        words.extend((1..10).filter_map(|seed| {
            let holder = snapshot.keys.get(&key(seed))?;
            let id = match &holder.principal {
                Principal::Agent(agent) => &agent.id,
                Principal::Workspace(workspace) => &workspace.id,
            };
            let until = holder
                .expires_at
                .map_or(String::new(), |at| format!(" until {at}"));
            Some(format!("{seed}={id}{until}"))
        }));
        words.sort();
        assert_eq!(words.join(", "), expected);
    }

    const DAY: &str = "2026-01-01T00:00:00Z";
    const NEXT_DAY: &str = "2026-01-02T00:00:00Z";

    #[test]
    fn an_agent_is_served_when_its_workspace_is() {
        let deployed = agent("a", "Deployed", DAY, json!([published(1, None)]));
        check(std::slice::from_ref(&deployed), None, "");
        check(
            &[workspace("home", None), deployed.clone()],
            None,
            "1=team.a, team.a, team.home",
        );
        check(
            &[workspace("home", Some("gone")), deployed.clone()],
            None,
            "",
        );
        check(
            &[
                workspace("home", Some("top")),
                workspace("top", Some("above")),
                workspace("above", None),
                deployed,
            ],
            None,
            "team.above, team.top",
        );
    }

    #[test]
    fn a_gateway_serves_its_own_account_only() {
        let objects = [
            workspace("top", None),
            workspace("home", Some("top")),
            workspace("other", None),
            agent("a", "Deployed", DAY, json!([published(1, None)])),
            object(
                "ToolGrant",
                "g",
                json!({"workspaceRef": {"name": "other"}, "agents": {"all": true}, "tools": ["x/*"]}),
                json!({}),
            ),
        ];
        check(
            &objects,
            Some("team.top"),
            "1=team.a, team.a, team.home, team.top",
        );
        check(&objects, Some("team.other"), "team.g, team.other");
    }

    #[test]
    fn only_deployed_agents_hold_keys() {
        for (state, expected) in [
            ("Draft", "team.home"),
            ("Deployed", "1=team.a, team.a, team.home"),
            ("Disabled", "team.a, team.home"),
            ("Archived", "team.a, team.home"),
        ] {
            let agent = agent("a", state, DAY, json!([published(1, None)]));
            check(&[workspace("home", None), agent], None, expected);
        }
        let mut going = agent("a", "Deployed", DAY, json!([published(1, None)]));
        going["metadata"]["deletionTimestamp"] = json!(NEXT_DAY);
        check(&[workspace("home", None), going], None, "team.a, team.home");
    }

    #[test]
    fn retiring_active_and_prepared_keys_work_side_by_side() {
        let keys = json!([
            published(1, Some(NEXT_DAY)),
            published(2, None),
            published(3, None)
        ]);
        check(
            &[workspace("home", None), agent("a", "Deployed", DAY, keys)],
            None,
            "1=team.a until 2026-01-02T00:00:00Z, 2=team.a, 3=team.a, team.a, team.home",
        );
    }

    #[test]
    fn what_cannot_be_read_opens_nothing() {
        let mut unreadable = published(2, None);
        unreadable["digest"] = json!("sha256:short");
        let keys = json!([published(1, Some("soon")), unreadable]);
        check(
            &[workspace("home", None), agent("a", "Deployed", DAY, keys)],
            None,
            "team.a, team.home",
        );
    }

    #[test]
    fn a_digest_claimed_twice_stays_with_the_older() {
        let older = |state| agent("z", state, DAY, json!([published(1, None)]));
        let newer = agent(
            "a",
            "Deployed",
            NEXT_DAY,
            json!([published(1, None), published(2, None)]),
        );
        check(
            &[workspace("home", None), older("Deployed"), newer.clone()],
            None,
            "1=team.z, 2=team.a, team.a, team.home, team.z",
        );
        check(
            &[workspace("home", None), older("Disabled"), newer],
            None,
            "2=team.a, team.a, team.home, team.z",
        );
    }

    #[test]
    fn a_workspace_holds_its_own_keys() {
        let mut home = workspace("home", None);
        home["status"]["keys"] = json!([published(4, None)]);
        check(&[home], None, "4=team.home, team.home");
    }

    #[test]
    fn what_has_not_changed_is_the_same_object() {
        let mut objects = [
            workspace("home", None),
            agent("a", "Deployed", DAY, json!([])),
            agent("b", "Deployed", DAY, json!([])),
        ];
        let before = build(&resources(&objects), None, &Snapshot::default());
        objects[2]["metadata"]["generation"] = json!(2);
        let after = build(&resources(&objects), None, &before);
        let is_same = |id: &str| Arc::ptr_eq(&before.agents[id], &after.agents[id]);
        assert!(is_same("team.a") && !is_same("team.b"));
        objects[0]["metadata"]["generation"] = json!(2);
        let later = build(&resources(&objects), None, &after);
        assert!(!Arc::ptr_eq(
            &after.agents["team.a"],
            &later.agents["team.a"]
        ));
    }
}
