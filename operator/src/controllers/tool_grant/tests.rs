use expect_test::{Expect, expect};

use super::*;

fn grant() -> ToolGrant {
    let text = "apiVersion: chandlery.dev/v1alpha1\nkind: ToolGrant\nmetadata: {name: g, namespace: harbour, generation: 1}\n\
                spec: {workspaceRef: {name: crew}, agents: {names: [bosun]}, tools: ['crm/*']}\n";
    serde_saphyr::from_str(text).unwrap()
}

fn observed(served: Coverage) -> Observed {
    let text = "apiVersion: chandlery.dev/v1alpha1\nkind: Workspace\nmetadata: {name: crew, namespace: harbour}\nspec: {}\n";
    Observed {
        workspace: Some(Arc::new(serde_saphyr::from_str(text).unwrap())),
        account: None,
        workplaces: BTreeMap::from([("bosun".to_owned(), "crew".to_owned())]),
        sources: BTreeSet::from(["crm".to_owned()]),
        served,
    }
}

#[track_caller]
fn check(observed: &Observed, expected: Expect) {
    let grant = grant();
    let status = status(&grant, &plan(&grant, observed), Timestamp::UNIX_EPOCH);
    let said = status.conditions.iter().map(|condition| {
        format!(
            "{} {} {}: {}\n",
            condition.type_, condition.status, condition.reason, condition.message
        )
    });
    expected.assert_eq(&said.collect::<String>());
}

#[test]
fn a_grant_is_ready_when_all_it_names_is_there_and_every_replica_goes_by_it() {
    check(
        &observed(Coverage::All),
        expect![[r#"
            ResolvedRefs True Resolved: everything named is there
            Served True Served: every replica goes by this generation
            Ready True Ready: the grant is in force
        "#]],
    );
    check(
        &observed(Coverage::Waiting(vec!["gateway-crew-1".to_owned()])),
        expect![[r#"
            ResolvedRefs True Resolved: everything named is there
            Served False NotServedYet: not every replica goes by this generation yet
            Ready False NotServedYet: not every replica goes by this generation yet
            Reconciling True NotServedYet: not every replica goes by this generation yet
        "#]],
    );
    let nobody = Observed {
        workplaces: BTreeMap::new(),
        sources: BTreeSet::new(),
        ..observed(Coverage::All)
    };
    check(
        &nobody,
        expect![[r#"
            ResolvedRefs False AgentNotFound: there is no Agent bosun in this namespace: make it, or take it out of the grant; there is no ToolSource crm in this namespace: make it, or take crm/* out of the grant
            Served True Served: every replica goes by this generation
            Ready False AgentNotFound: there is no Agent bosun in this namespace: make it, or take it out of the grant
            Reconciling True AgentNotFound: there is no Agent bosun in this namespace: make it, or take it out of the grant
        "#]],
    );
}

#[test]
fn served_latches_for_a_generation() {
    let mut grant = grant();
    grant.status = Some(status(
        &grant,
        &plan(&grant, &observed(Coverage::All)),
        Timestamp::UNIX_EPOCH,
    ));
    let before = grant.status.clone().unwrap();
    let later = status(
        &grant,
        &plan(&grant, &observed(Coverage::NoReplica)),
        Timestamp::from_second(9).unwrap(),
    );
    assert_eq!(before, later);
}
