//! What there should be, and how things stand. Pure: nothing here can fail, wait or read a clock.

mod conditions;
mod key;

use chandlery_crds::agent::ToolsStatus;
use chandlery_crds::check::{self, Held};
use chandlery_crds::conditions::Wanted;
use chandlery_crds::fields::{Binding, KeyStatus};
use chandlery_crds::key::Key;
use chandlery_crds::{Agent, AgentState, names};
use jiff::Timestamp;
use kube::ResourceExt;

use super::observe::{Observed, secret_name};
use crate::controllers::summary::{self, held};
use crate::keys::binding::Endpoint;
use crate::keys::{Happened, Standing};
use crate::objects::SecretWrite;

/// What to do about an Agent, and what to say of it.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) secret: SecretWrite,
    /// The Secret that the key has moved out of.
    pub(crate) former: SecretWrite,
    pub(crate) observed_rotate_key: Option<String>,
    pub(crate) endpoint: Option<String>,
    pub(crate) binding: Option<Binding>,
    pub(crate) keys: Vec<KeyStatus>,
    pub(crate) key_revision: i64,
    pub(crate) tools: Option<ToolsStatus>,
    pub(crate) conditions: Vec<Wanted>,
    pub(crate) happened: Option<Happened>,
    /// When time alone changes something next.
    pub(crate) again_at: Option<Timestamp>,
    /// Something is missing that can come any moment.
    pub(crate) is_waiting: bool,
}

/// Plans. `fresh` gives a new key; it is asked for one at most.
pub(crate) fn plan(
    agent: &Agent,
    observed: &Observed,
    fresh: impl FnOnce() -> Key,
    now: Timestamp,
) -> Plan {
    let status = agent.status.clone().unwrap_or_default();
    let endpoint = endpoint(agent, observed);
    let reference = agent
        .spec
        .key
        .as_ref()
        .and_then(|key| key.existing_secret_ref.as_ref());
    let existing = reference.map_or(Held::Unknown, |reference| {
        held(observed.existing.as_ref(), &reference.key)
    });
    let findings = check::agent(
        agent,
        observed.workspace.as_deref(),
        observed.account.as_deref(),
        existing,
    );

    let key::KeyPlan {
        secret,
        former,
        decision,
        observed_rotate_key,
    } = key::plan(agent, observed, endpoint.as_ref(), fresh, now);
    let keys_change = decision.keys != status.keys;
    let key_revision = status.key_revision + i64::from(keys_change);
    let tools = conditions::tools(agent, observed, &status);
    let conditions = conditions::conditions(
        agent,
        observed,
        &findings,
        &decision,
        keys_change,
        tools.as_ref(),
    );

    let binding = (!decision.keys.is_empty()).then(|| Binding {
        name: reference.map_or_else(|| secret_name(agent), |reference| reference.name.clone()),
    });
    Plan {
        secret,
        former,
        observed_rotate_key,
        endpoint: endpoint.map(|endpoint| endpoint.uri),
        binding,
        keys: decision.keys,
        key_revision,
        tools,
        is_waiting: summary::is_waiting(&conditions)
            || matches!(decision.standing, Standing::Invalid | Standing::InUse),
        conditions,
        happened: decision.happened,
        again_at: decision.again_at,
    }
}

/// `None` for a draft, and while it is not known which account serves the agent.
fn endpoint(agent: &Agent, observed: &Observed) -> Option<Endpoint> {
    if agent.spec.state == AgentState::Draft {
        return None;
    }
    let namespace = agent.namespace()?;
    let account = observed
        .workspace
        .as_ref()?
        .spec
        .account(&agent.spec.workspace_ref.name);
    let id = names::agent_id(&namespace, &agent.name_any());
    Some(Endpoint {
        uri: format!(
            "{}{}",
            names::gateway_url(account, &namespace),
            names::agent_path(&id)
        ),
        host: names::gateway_host(account, &namespace),
        port: 80,
    })
}

#[cfg(test)]
mod tests;
