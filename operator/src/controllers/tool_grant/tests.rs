use expect_test::{Expect, expect};

use super::*;

fn grant() -> ToolGrant {
    grant_of("")
}

/// The grant with more in its spec.
fn grant_of(more: &str) -> ToolGrant {
    let text = format!(
        "apiVersion: chandlery.dev/v1alpha1\nkind: ToolGrant\nmetadata: {{name: g, namespace: harbour, generation: 1}}\n\
         spec: {{workspaceRef: {{name: crew}}, agents: {{names: [bosun]}}, tools: ['crm/*'], {more}}}\n"
    );
    serde_saphyr::from_str(&text).unwrap()
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

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

#[track_caller]
fn check(observed: &Observed, expected: Expect) {
    check_grant(&grant(), observed, expected);
}

#[track_caller]
fn check_grant(grant: &ToolGrant, observed: &Observed, expected: Expect) {
    let status = status(grant, &plan(grant, observed, NOW), NOW);
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
            Accepted True Accepted: everything written can be understood
            ResolvedRefs True Resolved: everything named is there
            Served True Served: every replica goes by this generation
            Ready True Ready: the grant is in force
        "#]],
    );
    check(
        &observed(Coverage::Waiting(vec!["gateway-crew-1".to_owned()])),
        expect![[r#"
            Accepted True Accepted: everything written can be understood
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
            Accepted True Accepted: everything written can be understood
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
        &plan(&grant, &observed(Coverage::All), NOW),
        Timestamp::UNIX_EPOCH,
    ));
    let before = grant.status.clone().unwrap();
    let later = status(
        &grant,
        &plan(&grant, &observed(Coverage::NoReplica), NOW),
        Timestamp::from_second(9).unwrap(),
    );
    assert_eq!(before, later);
}

// The gateway leaves such a grant out, so nobody may take it for one in force.
#[test]
fn a_rule_or_a_time_that_cannot_be_read_stalls_the_grant() {
    let rules = "constraints: [{name: small, cel: 'args.amount <= 100', message: m}, {name: all, cel: 'args.items.all(i, i > 0)', message: m}]";
    check_grant(
        &grant_of(rules),
        &observed(Coverage::All),
        expect![[r#"
        Accepted False InvalidConstraint: rule all: comprehensions (all, exists, exists_one, filter, map) are not allowed in rules; test the fields by name
        ResolvedRefs True Resolved: everything named is there
        Served True Served: every replica goes by this generation
        Ready False InvalidConstraint: rule all: comprehensions (all, exists, exists_one, filter, map) are not allowed in rules; test the fields by name
        Stalled True InvalidConstraint: rule all: comprehensions (all, exists, exists_one, filter, map) are not allowed in rules; test the fields by name
    "#]],
    );
    let times = "notBefore: tomorrow, expiresAt: '1969-01-01T00:00:00Z'";
    check_grant(
        &grant_of(times),
        &observed(Coverage::All),
        expect![[r#"
        Accepted False Invalid: "tomorrow" is no time; write one such as 2027-01-31T18:00:00Z
        ResolvedRefs True Resolved: everything named is there
        Served True Served: every replica goes by this generation
        Ready False Invalid: "tomorrow" is no time; write one such as 2027-01-31T18:00:00Z
        Stalled True Invalid: "tomorrow" is no time; write one such as 2027-01-31T18:00:00Z
    "#]],
    );
}

#[test]
fn a_grant_says_that_it_is_over_or_not_begun() {
    let begin = "notBefore: '1970-01-01T00:00:01Z', expiresAt: '1970-01-02T00:00:00Z'";
    check_grant(
        &grant_of(begin),
        &observed(Coverage::All),
        expect![[r#"
        Accepted True Accepted: everything written can be understood
        ResolvedRefs True Resolved: everything named is there
        Served True Served: every replica goes by this generation
        Ready False NotYetBegun: the grant begins to count at 1970-01-01T00:00:01Z
    "#]],
    );
    let end = "expiresAt: '1970-01-01T00:00:00Z'";
    check_grant(
        &grant_of(end),
        &observed(Coverage::All),
        expect![[r#"
        Accepted True Accepted: everything written can be understood
        ResolvedRefs True Resolved: everything named is there
        Served True Served: every replica goes by this generation
        Ready False Expired: the grant ended at 1970-01-01T00:00:00Z: write a later expiresAt, or delete it
    "#]],
    );
}

#[test]
fn a_grant_is_looked_at_again_when_time_changes_it() {
    let second = |second| Timestamp::from_second(second).unwrap();
    let grant = grant_of("notBefore: '1970-01-01T00:00:10Z', expiresAt: '1970-01-01T00:00:20Z'");
    for (now, expected) in [(0, Some(10)), (9, Some(10)), (10, Some(20)), (20, None)] {
        assert_eq!(
            next_moment(&grant, second(now)),
            expected.map(second),
            "at {now}"
        );
    }
    assert_eq!(next_moment(&grant_of("notBefore: soon"), NOW), None);
}

#[test]
fn a_built_in_can_be_granted_where_the_workspace_requires_it() {
    let mut grant = grant();
    grant.spec.tools = vec!["agnt_datetime_now".to_owned(), "memory".to_owned()];
    let mut observed = observed(Coverage::All);
    let mut workspace = (*observed.workspace.unwrap()).clone();
    workspace.spec.grant_required = vec!["agnt_*".to_owned()];
    observed.workspace = Some(Arc::new(workspace));
    check_grant(
        &grant,
        &observed,
        expect![[r#"
        Accepted True Accepted: everything written can be understood
        ResolvedRefs False NotGrantable: memory names a built-in tool, which Workspace crew serves without a grant: write it under tools of the Agent, or under grantRequired of the Workspace
        Served True Served: every replica goes by this generation
        Ready False NotGrantable: memory names a built-in tool, which Workspace crew serves without a grant: write it under tools of the Agent, or under grantRequired of the Workspace
        Stalled True NotGrantable: memory names a built-in tool, which Workspace crew serves without a grant: write it under tools of the Agent, or under grantRequired of the Workspace
    "#]],
    );
}
