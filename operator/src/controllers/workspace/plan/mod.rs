//! What there should be, and how things stand. Pure: nothing here can fail, wait or read a clock.

mod deployment;
pub(crate) mod network;
mod rights;
mod storage;

use std::time::Duration;

use chandlery_crds::check::{self, Finding, Held};
use chandlery_crds::conditions::{Wanted, is_true, kind, reason};
use chandlery_crds::fields::KeyStatus;
use chandlery_crds::key::Key;
use chandlery_crds::{Workspace, names};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;

use super::observe::{Gateway as Seen, Observed};
use crate::controllers::summary::{self, Obstacle, held};
use crate::keys::binding::{self, Binding};
use crate::keys::{self, Happened, Rotation, Situation, Standing};
use crate::objects::{NotOurs, Owner, SecretWrite};
use crate::settings::GatewaySettings;
pub(crate) use rights::MOST_NAMES;

/// What to do about a Workspace, and what to say of it.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) key_secret: SecretWrite,
    /// `None`: leave the gateway's objects alone.
    pub(crate) gateway: Option<Gateway>,
    pub(crate) keys: Vec<KeyStatus>,
    pub(crate) has_binding: bool,
    pub(crate) conditions: Vec<Wanted>,
    pub(crate) happened: Option<Happened>,
    pub(crate) again_at: Option<Timestamp>,
    /// Something is missing that can come any moment.
    pub(crate) is_waiting: bool,
}

/// The objects of an account's gateway; `None` is one that must not be.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) service_account: ServiceAccount,
    pub(crate) role: Role,
    pub(crate) role_binding: RoleBinding,
    pub(crate) policy: NetworkPolicy,
    pub(crate) own_secret: SecretWrite,
    pub(crate) claim: Option<PersistentVolumeClaim>,
    pub(crate) service: Service,
    pub(crate) deployment: Deployment,
    pub(crate) budget: Option<PodDisruptionBudget>,
}

/// Plans. `fresh` gives 32 random bytes.
pub(crate) fn plan(
    workspace: &Workspace,
    observed: &Observed,
    settings: &GatewaySettings,
    fresh: &mut dyn FnMut() -> [u8; 32],
    now: Timestamp,
) -> Plan {
    let owner = Owner::of(workspace);
    let name = names::workspace_secret(&owner.name);
    let published = workspace
        .status
        .as_ref()
        .map_or(&[][..], |status| &status.keys);
    let stored = binding::stored(observed.key_secret.as_ref(), &owner);
    let situation = Situation {
        wanted: keys::Wanted::Key,
        rotation: Rotation {
            every: None,
            asked: false,
            overlap: Duration::ZERO,
        },
        stored: &stored,
        moved: None,
        published,
        is_accepted: true,
        is_taken: false,
        now,
    };
    let decision = keys::mint(&situation, || Key::from_random(fresh()));
    let secret = Binding {
        owner: &owner,
        name: &name,
        workspace: &owner.name,
        endpoint: None,
        seen: observed.key_secret.as_ref(),
    };
    let key_secret = secret.write(&decision.write, &stored);

    let mut obstacles = Vec::new();
    match decision.standing {
        Standing::Conflict => obstacles.push(summary::secret_conflict(&name)),
        Standing::Going => obstacles.push(summary::secret_going(&name)),
        _ => {}
    }
    let postgres = workspace
        .spec
        .store
        .as_ref()
        .and_then(|store| store.postgres.as_ref());
    let store_url = postgres.map_or(Held::Unknown, |postgres| {
        held(
            observed.gateway.store_secret.as_ref(),
            &postgres.url_from.secret_key_ref.key,
        )
    });
    let people = summary::data(observed.gateway.people_secret.as_ref());
    let findings = check::workspace(workspace, observed.account.as_deref(), store_url, people);
    obstacles.extend(findings.iter().map(Obstacle::from));
    let (gateway, mut conditions) = match (&workspace.spec.account_ref, &observed.account) {
        (Some(reference), Some(account)) if findings.is_empty() => {
            obstacles.extend(account_obstacle(&reference.name, account));
            (None, Vec::new())
        }
        (Some(_), _) => (None, Vec::new()),
        (None, _) => account(
            workspace,
            &owner,
            &observed.gateway,
            &findings,
            settings,
            fresh,
            &mut obstacles,
        ),
    };
    conditions.extend(summary::conditions(&obstacles, "the Workspace is served"));
    // A token that is put right is no change of anything that is watched.
    let is_waiting = summary::is_waiting(&conditions)
        || findings
            .iter()
            .any(|finding| finding.reason == reason::SECRET_INVALID);
    Plan {
        key_secret,
        gateway,
        has_binding: !decision.keys.is_empty(),
        keys: decision.keys,
        conditions,
        happened: decision.happened,
        again_at: decision.again_at,
        is_waiting,
    }
}

/// Whether the account that serves this Workspace is ready.
fn account_obstacle(name: &str, account: &Workspace) -> Option<Obstacle> {
    let conditions = account
        .status
        .as_ref()
        .map_or(&[][..], |status| &status.conditions);
    let message = format!("the account \"{name}\" is not ready");
    (!is_true(conditions, kind::READY))
        .then(|| Obstacle::waiting(reason::GATEWAY_NOT_READY, message))
}

fn account(
    workspace: &Workspace,
    owner: &Owner,
    seen: &Seen,
    findings: &[Finding],
    settings: &GatewaySettings,
    fresh: &mut dyn FnMut() -> [u8; 32],
    obstacles: &mut Vec<Obstacle>,
) -> (Option<Gateway>, Vec<Wanted>) {
    let spec = workspace.spec.gateway.clone().unwrap_or_default();
    let store = workspace.spec.store.clone().unwrap_or_default();
    let postgres = store.postgres.as_ref();
    let sqlite = postgres
        .is_none()
        .then(|| store.sqlite.clone().unwrap_or_default());

    let (of_people, of_store): (Vec<Finding>, Vec<Finding>) = findings
        .iter()
        .cloned()
        .partition(|finding| finding.field == check::TOKENS_FIELD);
    let people = workspace.spec.people.as_ref();
    let is_ours = matches!(
        summary::data(seen.people_secret.as_ref()),
        check::Data::Ours
    );
    let resolved_refs = people.map(|_| summary::resolved_refs(&of_people));
    let store_ready = match (postgres, of_store.first()) {
        (Some(_), Some(finding)) => Wanted::new(
            kind::STORE_READY,
            Some(false),
            finding.reason,
            finding.message.clone(),
        ),
        (Some(_), None) => {
            let message = "the database's URL is there; the gateway says whether it opens it";
            Wanted::new(
                kind::STORE_READY,
                Some(true),
                reason::EXTERNAL_DATABASE,
                message,
            )
        }
        (None, _) => claim_ready(seen),
    };
    let gateway_ready = gateway_ready(spec.replicas, seen);
    for condition in [&store_ready, &gateway_ready] {
        if condition.status != Some(true) {
            obstacles.push(Obstacle::waiting(
                condition.reason,
                condition.message.clone(),
            ));
        }
    }
    // No gateway is let near a key, whatever people write.
    let tokens = people.filter(|_| !is_ours);
    let tokens = tokens.map(|people| people.tokens_secret_ref.name.as_str());
    let readable = rights::readable(tokens, &seen.sources, &seen.kept_secrets);
    if readable.is_cut {
        let message = format!(
            "its ToolSources name more than {MOST_NAMES} Secrets or ConfigMaps, and its gateway may read the first {MOST_NAMES}: let sources share them, or grant some to another account"
        );
        obstacles.push(Obstacle::stalled(reason::INVALID, message));
    }
    let own_secret = storage::own_keys(owner, seen.own_secret.as_ref(), fresh);
    let foreign = foreign_objects(owner, seen);
    if let Some(stuck) = seen.deployment.ours().and_then(gave_up) {
        obstacles.insert(0, Obstacle::stalled(reason::GATEWAY_NOT_READY, stuck));
    }
    let gateway = match own_secret {
        Err(NotOurs::Foreign) => {
            obstacles.insert(0, summary::secret_conflict(&names::gateway(&owner.name)));
            None
        }
        Err(NotOurs::Going) => {
            obstacles.insert(0, summary::secret_going(&names::gateway(&owner.name)));
            None
        }
        Ok(_) if !foreign.is_empty() => {
            let (verb, them) = if foreign.len() == 1 {
                ("exists and is", "it")
            } else {
                ("exist and are", "them")
            };
            let names = foreign.join(" and ");
            let message = format!(
                "{names} {verb} not Chandlery's: rename or delete {them}, or give the Workspace another name"
            );
            obstacles.insert(0, Obstacle::stalled(reason::CONFLICT, message));
            None
        }
        Ok(own_secret) => Some(Gateway {
            service_account: rights::service_account(owner),
            role: rights::role(owner, &readable),
            role_binding: rights::role_binding(owner),
            policy: network::policy(owner, &spec, &seen.api_server, settings),
            own_secret,
            claim: sqlite.map(|sqlite| storage::claim(owner, &sqlite, store.deletion_policy)),
            service: deployment::service(owner),
            deployment: deployment::deployment(owner, &spec, postgres, settings),
            budget: deployment::budget(owner, &spec),
        }),
    };
    let mut conditions = vec![store_ready, gateway_ready];
    conditions.extend(resolved_refs);
    (gateway, conditions)
}

/// Names of ours that other people's objects have.
fn foreign_objects(owner: &Owner, seen: &Seen) -> Vec<String> {
    let name = names::gateway(&owner.name);
    let claim = names::store_claim(&owner.name);
    [
        (seen.service_account.is_foreign(), "ServiceAccount", &name),
        (seen.role.is_foreign(), "Role", &name),
        (seen.role_binding.is_foreign(), "RoleBinding", &name),
        (seen.policy.is_foreign(), "NetworkPolicy", &name),
        (seen.claim.is_foreign(), "PersistentVolumeClaim", &claim),
        (seen.service.is_foreign(), "Service", &name),
        (seen.deployment.is_foreign(), "Deployment", &name),
        (seen.budget.is_foreign(), "PodDisruptionBudget", &name),
    ]
    .into_iter()
    .filter(|(is_foreign, _, _)| *is_foreign)
    .map(|(_, kind, name)| format!("{kind} \"{name}\""))
    .collect()
}

fn claim_ready(seen: &Seen) -> Wanted {
    let phase = seen
        .claim
        .ours()
        .and_then(|claim| claim.status.as_ref()?.phase.as_deref());
    match phase {
        Some("Bound") => Wanted::new(
            kind::STORE_READY,
            Some(true),
            reason::CLAIM_BOUND,
            "the volume claim is bound",
        ),
        Some("Lost") => Wanted::new(
            kind::STORE_READY,
            Some(false),
            reason::INVALID,
            "the volume of the claim is lost: restore it, or delete the claim to start with an empty one",
        ),
        _ => Wanted::new(
            kind::STORE_READY,
            Some(false),
            reason::PROGRESSING,
            "the volume claim waits for its volume",
        ),
    }
}

fn gateway_ready(wanted: i32, seen: &Seen) -> Wanted {
    let deployment = seen.deployment.ours();
    let status = deployment.and_then(|deployment| deployment.status.as_ref());
    let is_current = status.and_then(|status| status.observed_generation)
        == deployment.and_then(|deployment| deployment.metadata.generation);
    let ready = status.and_then(|status| status.ready_replicas).unwrap_or(0);
    let updated = status
        .and_then(|status| status.updated_replicas)
        .unwrap_or(0);
    let count = format!("{ready} of {wanted} replicas serve");
    if deployment.is_some() && is_current && ready >= wanted && updated >= wanted {
        return Wanted::new(
            kind::GATEWAY_READY,
            Some(true),
            reason::REPLICAS_SERVE,
            count,
        );
    }
    let message = match seen.pods.iter().find_map(|pod| trouble(pod)) {
        Some(trouble) => format!("{count}; {trouble}"),
        None => count,
    };
    Wanted::new(
        kind::GATEWAY_READY,
        Some(false),
        reason::GATEWAY_NOT_READY,
        message,
    )
}

/// What a person should look at in a pod that does not get ready.
fn trouble(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let waiting = status
        .container_statuses
        .iter()
        .flatten()
        .find_map(|container| {
            let reason = container
                .state
                .as_ref()?
                .waiting
                .as_ref()?
                .reason
                .as_deref()?;
            (!matches!(reason, "ContainerCreating" | "PodInitializing")).then(|| reason.to_owned())
        });
    let unscheduled = || {
        let scheduled = status
            .conditions
            .iter()
            .flatten()
            .find(|condition| condition.type_ == "PodScheduled")?;
        (scheduled.status == "False").then(|| scheduled.message.clone().unwrap_or_default())
    };
    waiting
        .or_else(unscheduled)
        .map(|what| format!("pod {}: {what}", pod.name_any()))
}

/// `Some` once Kubernetes has given up on rolling out the gateway.
fn gave_up(deployment: &Deployment) -> Option<String> {
    let conditions = deployment.status.as_ref()?.conditions.as_ref()?;
    let progressing = conditions
        .iter()
        .find(|condition| condition.type_ == "Progressing")?;
    (progressing.reason.as_deref() == Some("ProgressDeadlineExceeded"))
        .then(|| "the gateway's pods do not get ready: look at the Deployment's events and the pods' logs".to_owned())
}

#[cfg(test)]
mod tests;
