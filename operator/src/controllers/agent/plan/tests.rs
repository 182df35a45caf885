use std::sync::Arc;

use chandlery_crds::conditions;
use chandlery_crds::names::binding_secret;
use chandlery_crds::report::{AgentReport, Unresolved};
use chandlery_crds::{AgentStatus, Workspace};
use expect_test::{Expect, expect};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;

use super::*;
use crate::controllers::agent::status::status;
use crate::replicas::Coverage;

fn key(number: u8) -> Key {
    Key::from_random([number; 32])
}

fn now() -> Timestamp {
    Timestamp::from_second(100).unwrap()
}

fn agent(spec: &str) -> Agent {
    let text = format!(
        "apiVersion: chandlery.dev/v1alpha1\nkind: Agent\nmetadata: {{name: bosun, namespace: harbour, uid: u-bosun, generation: 2}}\nspec: {{workspaceRef: {{name: crew}}, {spec}}}\n"
    );
    serde_saphyr::from_str(&text).unwrap()
}

fn workspace(spec: &str) -> Arc<Workspace> {
    let text = format!(
        "apiVersion: chandlery.dev/v1alpha1\nkind: Workspace\nmetadata: {{name: crew, namespace: harbour}}\nspec: {spec}\n"
    );
    Arc::new(serde_saphyr::from_str(&text).unwrap())
}

fn observed() -> Observed {
    Observed {
        workspace: Some(workspace("{}")),
        account: None,
        secret: None,
        former: None,
        existing: None,
        is_taken: false,
        accepted: Coverage::NoReplica,
        served: Coverage::NoReplica,
        report: None,
        approvals: Vec::new(),
    }
}

/// A Secret that people made, with this value under `token`.
fn theirs(value: &str) -> Secret {
    let data = [(
        binding_secret::TOKEN.to_owned(),
        ByteString(value.as_bytes().to_vec()),
    )]
    .into();
    Secret {
        data: Some(data),
        ..Secret::default()
    }
}

fn created(write: &SecretWrite) -> Secret {
    match write {
        SecretWrite::Create(secret) | SecretWrite::Update(secret) => secret.clone(),
        other => panic!("{other:?}"),
    }
}

/// The agent one turn later, and what is then there.
fn turn(agent: &Agent, observed: &mut Observed, number: u8) -> (Agent, Plan) {
    let plan = plan(agent, observed, || key(number), now());
    if let SecretWrite::Create(secret) | SecretWrite::Update(secret) = &plan.secret {
        observed.secret = Some(secret.clone());
    }
    let mut next = agent.clone();
    next.status = Some(status(agent, &plan, now()));
    (next, plan)
}

/// An agent that has its key and is served.
fn served_agent(spec: &str) -> (Agent, Observed) {
    let mut observed = observed();
    let (agent, _) = turn(&agent(spec), &mut observed, 1);
    observed.accepted = Coverage::All;
    observed.served = Coverage::All;
    observed.report = Some(AgentReport {
        generation: 2,
        key_revision: 1,
        listed: 5,
        ..AgentReport::default()
    });
    let (agent, _) = turn(&agent, &mut observed, 2);
    (agent, observed)
}

fn said(agent: &Agent) -> String {
    let AgentStatus {
        keys,
        key_revision,
        binding,
        endpoint,
        conditions,
        ..
    } = agent.status.clone().unwrap();
    let mut text = format!(
        "{} keys, revision {key_revision}, Secret {}, endpoint {}\n",
        keys.len(),
        binding.map_or("none".to_owned(), |binding| binding.name),
        endpoint.unwrap_or("none".to_owned()),
    );
    for condition in conditions {
        text += &format!(
            "{} {} {}: {}\n",
            condition.type_, condition.status, condition.reason, condition.message
        );
    }
    text
}

#[track_caller]
fn check(agent: &Agent, expected: Expect) {
    expected.assert_eq(&said(agent));
}

#[test]
fn a_new_agent_gets_a_secret_that_a_client_can_use_as_it_is() {
    let mut observed = observed();
    let (agent, plan) = turn(&agent(""), &mut observed, 1);
    let secret = created(&plan.secret);
    let text: String = secret
        .data
        .as_ref()
        .unwrap()
        .iter()
        .map(|(name, value)| format!("{name}: {}\n", String::from_utf8_lossy(&value.0).trim_end()))
        .collect();
    expect![[r#"
        authorization: Bearer KEY
        host: gateway-crew.harbour.svc
        mcp.json: {
          "mcpServers": {
            "chandlery": {
              "headers": {
                "Authorization": "Bearer KEY"
              },
              "type": "http",
              "url": "http://gateway-crew.harbour.svc/runtime/agents/harbour.bosun/mcp"
            }
          }
        }
        port: 80
        provider: chandlery
        token: KEY
        type: mcp
        uri: http://gateway-crew.harbour.svc/runtime/agents/harbour.bosun/mcp
    "#]]
    .assert_eq(&text.replace(key(1).expose(), "KEY"));
    assert_eq!(secret.type_.as_deref(), Some("servicebinding.io/mcp"));
    let owner = &secret.metadata.owner_references.unwrap()[0];
    assert_eq!(
        (
            owner.controller,
            owner.block_owner_deletion,
            owner.uid.as_str()
        ),
        (Some(true), Some(false), "u-bosun")
    );
    check(
        &agent,
        expect![[r#"
            1 keys, revision 1, Secret agent-bosun-mcp, endpoint http://gateway-crew.harbour.svc/runtime/agents/harbour.bosun/mcp
            KeyReady True KeyMinted: the key is in Secret "agent-bosun-mcp"
            ToolsResolved Unknown NotServedYet: no gateway has said yet what it makes of spec.tools
            Served False NotServedYet: the keys have changed
            Ready False NotServedYet: the keys have changed
            Reconciling True NotServedYet: the keys have changed
        "#]],
    );
}

#[test]
fn an_agent_is_ready_once_every_replica_serves_it() {
    let (agent, observed) = served_agent("");
    check(
        &agent,
        expect![[r#"
            1 keys, revision 1, Secret agent-bosun-mcp, endpoint http://gateway-crew.harbour.svc/runtime/agents/harbour.bosun/mcp
            KeyReady True KeyMinted: the key is in Secret "agent-bosun-mcp"
            ToolsResolved True Resolved: every entry of spec.tools names a tool
            Served True Served: every replica serves this generation and its keys
            Ready True Ready: the agent is served with 5 tools
        "#]],
    );
    // P3: a restart, which knows of no report yet, and a lost replica change nothing.
    for (served, report) in [
        (Coverage::Waiting(vec!["gateway-crew-1".to_owned()]), None),
        (Coverage::NoReplica, observed.report.clone()),
    ] {
        let after = Observed {
            served: served.clone(),
            accepted: served,
            report,
            ..served_agent("").1
        };
        let plan = plan(&agent, &after, || panic!("no new key"), now());
        assert!(
            matches!(plan.secret, SecretWrite::Nothing),
            "{:?}",
            plan.secret
        );
        assert_eq!(
            agent.status.as_ref(),
            Some(&status(&agent, &plan, Timestamp::from_second(999).unwrap()))
        );
    }
    // A new generation has to be served anew.
    let mut changed = agent.clone();
    changed.metadata.generation = Some(3);
    let mut waiting = Observed {
        served: Coverage::Waiting(vec!["gateway-crew-1".to_owned()]),
        ..observed
    };
    let (changed, _) = turn(&changed, &mut waiting, 3);
    check(
        &changed,
        expect![[r#"
            1 keys, revision 1, Secret agent-bosun-mcp, endpoint http://gateway-crew.harbour.svc/runtime/agents/harbour.bosun/mcp
            KeyReady True KeyMinted: the key is in Secret "agent-bosun-mcp"
            ToolsResolved Unknown NotServedYet: no gateway has said yet what it makes of spec.tools
            Served False NotServedYet: waits for gateway-crew-1
            Ready False NotServedYet: waits for gateway-crew-1
            Reconciling True NotServedYet: waits for gateway-crew-1
        "#]],
    );
}

#[test]
fn entries_that_name_nothing_are_told() {
    let (agent, mut observed) = served_agent("");
    let unresolved = Unresolved {
        entry: "x".to_owned(),
        reason: "NoSuchTool".to_owned(),
        message: "there is no built-in tool x".to_owned(),
    };
    observed.report = Some(AgentReport {
        generation: 2,
        key_revision: 1,
        listed: 5,
        unresolved_count: 1,
        unresolved: vec![unresolved],
        ..AgentReport::default()
    });
    let (agent, _) = turn(&agent, &mut observed, 2);
    check(
        &agent,
        expect![[r#"
            1 keys, revision 1, Secret agent-bosun-mcp, endpoint http://gateway-crew.harbour.svc/runtime/agents/harbour.bosun/mcp
            KeyReady True KeyMinted: the key is in Secret "agent-bosun-mcp"
            ToolsResolved False Unresolved: one entry of spec.tools names nothing: there is no built-in tool x
            Served True Served: every replica serves this generation and its keys
            Ready True Ready: the agent is served with 5 tools; one entry of spec.tools names nothing: there is no built-in tool x
        "#]],
    );
}

fn annotated(agent: &Agent, value: &str) -> Agent {
    let mut agent = agent.clone();
    let annotation = (names::ROTATE_KEY_ANNOTATION.to_owned(), value.to_owned());
    agent.metadata.annotations = Some([annotation].into());
    agent
}

#[test]
fn an_annotation_rotates_once_and_never_at_first_sight() {
    let mut observed = observed();
    let (first, plan) = turn(&annotated(&agent(""), "from-git"), &mut observed, 1);
    assert!(created(&plan.secret).data.unwrap().contains_key("token"));
    assert_eq!(
        first
            .status
            .as_ref()
            .unwrap()
            .observed_rotate_key
            .as_deref(),
        Some("from-git")
    );
    assert!(matches!(
        turn(&first, &mut observed, 2).1.secret,
        SecretWrite::Nothing
    ));

    let (agent, mut observed) = served_agent("");
    let (agent, plan) = turn(&annotated(&agent, "now"), &mut observed, 3);
    assert!(
        created(&plan.secret)
            .data
            .unwrap()
            .contains_key("next-token")
    );
    assert_eq!(
        agent
            .status
            .as_ref()
            .unwrap()
            .observed_rotate_key
            .as_deref(),
        Some("now")
    );
    // It stays ready all along: the active key works.
    observed.accepted = Coverage::Waiting(vec!["gateway-crew-1".to_owned()]);
    observed.served = observed.accepted.clone();
    let (agent, _) = turn(&agent, &mut observed, 4);
    check(
        &agent,
        expect![[r#"
            2 keys, revision 2, Secret agent-bosun-mcp, endpoint http://gateway-crew.harbour.svc/runtime/agents/harbour.bosun/mcp
            KeyReady True KeyRotating: the key is in Secret "agent-bosun-mcp"; the next one waits for gateway-crew-1
            ToolsResolved True Resolved: every entry of spec.tools names a tool
            Served False NotServedYet: waits for gateway-crew-1
            Ready True Ready: the agent is served with 5 tools
        "#]],
    );
    observed.accepted = Coverage::All;
    let (agent, plan) = turn(&agent, &mut observed, 5);
    let data = created(&plan.secret).data.unwrap();
    assert_eq!(data["token"].0, key(3).expose().as_bytes());
    assert!(!data.contains_key("next-token"));
    let keys = agent.status.unwrap().keys;
    assert_eq!(
        keys[0].expires_at.as_deref(),
        Some("1970-01-01T00:16:40Z"),
        "15 minutes later"
    );
    assert_eq!(keys[1].expires_at, None);
}

#[test]
fn a_missing_workspace_blocks_the_agent() {
    let mut observed = Observed {
        workspace: None,
        ..observed()
    };
    let (agent, plan) = turn(&agent(""), &mut observed, 1);
    assert!(matches!(plan.secret, SecretWrite::Nothing));
    check(
        &agent,
        expect![[r#"
            0 keys, revision 0, Secret none, endpoint none
            KeyReady False NoKey: there is no key without a Workspace
            ToolsResolved Unknown NotServedYet: no gateway has said yet what it makes of spec.tools
            Served False WorkspaceNotFound: there is no Workspace, and so no gateway
            Ready False WorkspaceNotFound: there is no Workspace crew in this namespace: make it, or correct workspaceRef
            Reconciling True WorkspaceNotFound: there is no Workspace crew in this namespace: make it, or correct workspaceRef
        "#]],
    );
    // A key that is there already stays: the Workspace may come back.
    let (agent, before) = served_agent("");
    let mut gone = Observed {
        workspace: None,
        ..before
    };
    let (after, plan) = turn(&agent, &mut gone, 2);
    assert!(matches!(plan.secret, SecretWrite::Nothing));
    assert_eq!(after.status.unwrap().keys, agent.status.unwrap().keys);
}

#[test]
fn a_secret_of_somebody_else_is_told_and_never_written() {
    let mut observed = Observed {
        secret: Some(theirs("s3cret")),
        ..observed()
    };
    let (agent, plan) = turn(&agent(""), &mut observed, 1);
    assert!(matches!(plan.secret, SecretWrite::Nothing));
    let text = said(&agent);
    assert!(!text.contains("s3cret"));
    expect![[r#"
        0 keys, revision 0, Secret none, endpoint http://gateway-crew.harbour.svc/runtime/agents/harbour.bosun/mcp
        KeyReady False SecretConflict: Secret "agent-bosun-mcp" exists and is not Chandlery's, so nothing was written: rename or delete it
        ToolsResolved Unknown NotServedYet: no gateway has said yet what it makes of spec.tools
        Served False NoKey: there is no key yet
        Ready False SecretConflict: Secret "agent-bosun-mcp" exists and is not Chandlery's, so nothing was written: rename or delete it
        Stalled True SecretConflict: Secret "agent-bosun-mcp" exists and is not Chandlery's, so nothing was written: rename or delete it
    "#]]
    .assert_eq(&text);
}

#[test]
fn a_draft_has_nothing_a_disabled_agent_keeps_its_key_and_an_archived_one_loses_it() {
    let ready = |agent: &Agent| {
        let status = agent.status.clone().unwrap();
        let ready = status
            .conditions
            .iter()
            .find(|condition| condition.type_ == "Ready")
            .unwrap()
            .clone();
        (
            ready.status,
            ready.reason,
            status.keys.len(),
            status.conditions.len(),
        )
    };
    let mut nothing = observed();
    let (draft, plan) = turn(&agent("state: Draft"), &mut nothing, 1);
    assert!(matches!(plan.secret, SecretWrite::Nothing));
    assert_eq!(draft.status.as_ref().unwrap().endpoint, None);
    assert_eq!(
        ready(&draft),
        ("False".to_owned(), "Draft".to_owned(), 0, 4)
    );

    let (mut agent, mut observed) = served_agent("");
    agent.spec.state = AgentState::Disabled;
    let (disabled, plan) = turn(&annotated(&agent, "now"), &mut observed, 2);
    assert!(
        matches!(plan.secret, SecretWrite::Nothing),
        "a rotation waits until the agent is deployed again"
    );
    assert_eq!(
        ready(&disabled),
        ("False".to_owned(), "Disabled".to_owned(), 1, 4)
    );

    agent.spec.state = AgentState::Archived;
    let (archived, plan) = turn(&agent, &mut observed, 2);
    assert!(matches!(plan.secret, SecretWrite::Delete(_)));
    assert_eq!(
        ready(&archived),
        ("False".to_owned(), "Archived".to_owned(), 0, 4)
    );
    assert_eq!(archived.status.unwrap().binding, None);
}

#[test]
fn a_key_that_people_bring_is_published_and_never_written() {
    let spec = "key: {existingSecretRef: {name: mine, key: token}}";
    let brought = |secret: Option<Secret>, is_taken: bool| {
        let mut observed = Observed {
            existing: secret,
            is_taken,
            ..observed()
        };
        let (agent, plan) = turn(&agent(spec), &mut observed, 1);
        assert!(matches!(plan.secret, SecretWrite::Nothing));
        let status = agent.status.unwrap();
        let ready = status
            .conditions
            .iter()
            .find(|condition| condition.type_ == "KeyReady")
            .unwrap();
        let is_stalled = conditions::is_true(&status.conditions, "Stalled");
        format!(
            "{} {} stalled: {is_stalled}: {}",
            status.keys.len(),
            ready.reason,
            ready.message
        )
    };
    expect![[r#"1 KeyMinted stalled: false: the key is in Secret "mine""#]]
        .assert_eq(&brought(Some(theirs(key(5).expose())), false));
    expect!["0 SecretNotFound stalled: false: there is no Secret mine in this namespace: make it, or correct the name"]
        .assert_eq(&brought(None, false));
    expect!["0 SecretInvalid stalled: true: key token of Secret mine holds no key in Chandlery's format: `chandlery key new` makes one"]
        .assert_eq(&brought(Some(theirs("hunter2")), false));
    expect![[r#"0 KeyInUse stalled: true: the key in Secret "mine" belongs to another: `chandlery key new` makes one of its own"#]]
        .assert_eq(&brought(Some(theirs(key(5).expose())), true));
}

#[test]
fn a_secret_that_is_renamed_takes_the_key_along_and_then_goes() {
    let (mut agent, before) = served_agent("");
    agent.spec.key = Some(serde_saphyr::from_str("{secretName: other}").unwrap());
    let mut observed = Observed {
        secret: None,
        former: before.secret.clone(),
        ..before
    };
    let (agent, plan) = turn(&agent, &mut observed, 9);
    let made = created(&plan.secret);
    assert_eq!(made.metadata.name.as_deref(), Some("other"));
    assert_eq!(made.data.unwrap()["token"].0, key(1).expose().as_bytes());
    assert!(
        matches!(plan.former, SecretWrite::Nothing),
        "the new one first"
    );
    let (agent, plan) = turn(&agent, &mut observed, 9);
    let SecretWrite::Delete(former) = plan.former else {
        panic!("{:?}", plan.former)
    };
    assert_eq!(former.metadata.name.as_deref(), Some("agent-bosun-mcp"));
    assert_eq!(agent.status.unwrap().keys.len(), 1);
}

#[test]
fn a_secret_that_people_changed_is_mended_around_its_key() {
    let (agent, mut observed) = served_agent("");
    let data = observed.secret.as_mut().unwrap().data.as_mut().unwrap();
    data.insert("uri".to_owned(), ByteString(b"http://elsewhere".to_vec()));
    let (_, plan) = turn(&agent, &mut observed, 9);
    let data = created(&plan.secret).data.unwrap();
    assert_eq!(data["token"].0, key(1).expose().as_bytes());
    assert!(
        data["uri"]
            .0
            .ends_with(b"/runtime/agents/harbour.bosun/mcp")
    );
}
