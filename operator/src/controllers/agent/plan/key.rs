//! What an Agent's key is to be, and what that means for its Secrets.

use std::time::Duration;

use chandlery_crds::agent::overlap;
use chandlery_crds::fields;
use chandlery_crds::key::Key;
use chandlery_crds::{Agent, AgentState, names};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;

use crate::controllers::agent::observe::{Observed, secret_name};
use crate::keys::binding::{self, Binding, Endpoint};
use crate::keys::{self, Decision, Existing, Rotation, Situation, Standing, Stored, Wanted, Write};
use crate::objects::{Owner, SecretWrite};
use crate::replicas::Coverage;

/// For an overlap that cannot be read, which the schema does not let through.
const OVERLAP: Duration = Duration::from_secs(15 * 60);

pub(super) struct KeyPlan {
    pub(super) secret: SecretWrite,
    pub(super) former: SecretWrite,
    pub(super) decision: Decision,
    pub(super) observed_rotate_key: Option<String>,
}

pub(super) fn plan(
    agent: &Agent,
    observed: &Observed,
    endpoint: Option<&Endpoint>,
    fresh: impl FnOnce() -> Key,
    now: Timestamp,
) -> KeyPlan {
    let owner = Owner::of(agent);
    let published = agent.status.as_ref().map_or(&[][..], |status| &status.keys);
    let stored = binding::stored(observed.secret.as_ref(), &owner);
    let stored_formerly = binding::stored(observed.former.as_ref(), &owner);
    let wanted = wanted(agent);
    let reference = agent
        .spec
        .key
        .as_ref()
        .and_then(|key| key.existing_secret_ref.as_ref());

    // An Agent that is seen for the first time has its annotation noted, and keeps its key.
    let annotation = agent
        .annotations()
        .get(names::ROTATE_KEY_ANNOTATION)
        .cloned()
        .unwrap_or_default();
    let noted = agent
        .status
        .as_ref()
        .and_then(|status| status.observed_rotate_key.clone());
    let rotation = rotation(
        agent,
        noted
            .as_ref()
            .is_some_and(|noted| *noted != annotation && !annotation.is_empty()),
    );

    let (secret, former, decision) = match (wanted, reference) {
        (Wanted::Key | Wanted::Suspended, _) if observed.workspace.is_none() => {
            // Without a Workspace there is nothing that a key could open; one that there is stays.
            let decision = Decision {
                keys: published.to_vec(),
                ..Decision::nothing(Standing::None)
            };
            (SecretWrite::Nothing, SecretWrite::Nothing, decision)
        }
        (Wanted::Key | Wanted::Suspended, Some(reference)) => {
            let existing = match observed.existing.as_ref() {
                None => Existing::Absent,
                Some(_) if observed.is_taken => Existing::Taken,
                Some(secret) => {
                    binding::key(secret, &reference.key).map_or(Existing::Invalid, Existing::Key)
                }
            };
            // The key that we minted before people brought theirs retires, and its Secret goes.
            let is_settled = matches!(existing, Existing::Key(_));
            let decision = keys::adopt(&existing, published, rotation.overlap, now);
            (
                remove(is_settled, &stored, observed.secret.as_ref()),
                remove(is_settled, &stored_formerly, observed.former.as_ref()),
                decision,
            )
        }
        _ => {
            let situation = Situation {
                wanted,
                rotation,
                stored: &stored,
                moved: match &stored_formerly {
                    Stored::Ours(tokens) => tokens.as_ref(),
                    _ => None,
                },
                published,
                is_accepted: !matches!(observed.accepted, Coverage::Waiting(_)),
                is_taken: observed.is_taken,
                now,
            };
            let decision = keys::mint(&situation, fresh);
            let binding = Binding {
                owner: &owner,
                name: &secret_name(agent),
                workspace: &agent.spec.workspace_ref.name,
                endpoint,
                seen: observed.secret.as_ref(),
            };
            let has_moved = matches!(stored, Stored::Ours(_)) || wanted == Wanted::Nothing;
            (
                binding.write(&decision.write, &stored),
                remove(has_moved, &stored_formerly, observed.former.as_ref()),
                decision,
            )
        }
    };
    let is_open =
        rotation.asked && !decision.asked_is_done && wanted == Wanted::Key && reference.is_none();
    KeyPlan {
        secret,
        former,
        decision,
        observed_rotate_key: if is_open { noted } else { Some(annotation) },
    }
}

fn remove(is_wanted: bool, stored: &Stored, secret: Option<&Secret>) -> SecretWrite {
    match (stored, secret) {
        (Stored::Ours(_), Some(secret)) if is_wanted => SecretWrite::Delete(secret.clone()),
        _ => SecretWrite::Nothing,
    }
}

fn rotation(agent: &Agent, asked: bool) -> Rotation {
    let spec = agent.spec.key.clone().unwrap_or_default();
    Rotation {
        every: spec.rotate_every.as_ref().and_then(fields::Duration::parse),
        asked,
        overlap: spec
            .overlap
            .parse()
            .or_else(|| overlap().parse())
            .unwrap_or(OVERLAP),
    }
}

fn wanted(agent: &Agent) -> Wanted {
    if agent.metadata.deletion_timestamp.is_some() {
        return Wanted::Nothing;
    }
    match agent.spec.state {
        AgentState::Draft | AgentState::Archived => Wanted::Nothing,
        AgentState::Disabled => Wanted::Suspended,
        AgentState::Deployed => Wanted::Key,
    }
}

impl Decision {
    fn nothing(standing: Standing) -> Self {
        Self {
            write: Write::Nothing,
            keys: Vec::new(),
            standing,
            happened: None,
            asked_is_done: false,
            again_at: None,
        }
    }
}
