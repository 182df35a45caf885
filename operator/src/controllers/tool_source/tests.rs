use std::net::IpAddr;

use chandlery_crds::NotedTool;
use chandlery_crds::report::{SourceFailure, SourceReport};
use expect_test::{Expect, expect};
use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::*;
use crate::replicas::Account;

const MCP: &str = "{mcp: {url: 'https://crm.example/mcp'}}";
const MCP_BEARER: &str = "{mcp: {url: 'https://crm.example/mcp'}, auth: {bearer: {secretKeyRef: {name: crm, key: token}}}}";
const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn source(spec: &str) -> ToolSource {
    let text = format!(
        "apiVersion: chandlery.dev/v1alpha1\nkind: ToolSource\nmetadata: {{name: crm, generation: 2}}\nspec: {spec}\n"
    );
    serde_saphyr::from_str(&text).unwrap()
}

fn status_of(source: &ToolSource, observed: &Observed) -> ToolSourceStatus {
    status(source, &plan(source, observed, false), NOW)
}

#[track_caller]
fn check(source: &ToolSource, observed: &Observed, expected: Expect) {
    check_status(&status_of(source, observed), expected);
}

#[track_caller]
fn check_status(status: &ToolSourceStatus, expected: Expect) {
    let said = status.conditions.iter().map(|condition| {
        format!(
            "{} {} {}: {}\n",
            condition.type_, condition.status, condition.reason, condition.message
        )
    });
    let revision = status
        .revision
        .iter()
        .map(|text| format!("revision {text}\n"));
    let tools = status.tools.iter().map(|tools| {
        let noted: Vec<&str> = tools
            .noted
            .iter()
            .map(|noted| noted.name.as_str())
            .collect();
        let SourceTools {
            served,
            withheld,
            left_out,
            noted: _,
        } = tools;
        let noted = noted.join(", ");
        format!("tools {served} served, {withheld} withheld, {left_out} left out: [{noted}]\n")
    });
    expected.assert_eq(&said.chain(revision).chain(tools).collect::<String>());
}

/// A replica of an account.
fn replica(account: &str, pod: &str) -> Replica {
    Replica {
        account: Account {
            namespace: "harbour".to_owned(),
            name: account.to_owned(),
        },
        pod: pod.to_owned(),
        uid: format!("uid-of-{pod}"),
        address: IpAddr::from([10, 0, 0, 1]),
    }
}

/// What replicas of the account `crew` say.
fn asked(words: Vec<Word>) -> Observed {
    let words = words.into_iter().enumerate();
    Observed {
        asked: Asked::Now,
        words: words
            .map(|(at, word)| (replica("crew", &format!("gateway-crew-{at}")), word))
            .collect(),
        ..Observed::default()
    }
}

const FIRST: &str = "11111111111111111111111111111111";
const SECOND: &str = "22222222222222222222222222222222";

fn offers(revision: &str) -> SourceReport {
    SourceReport {
        generation: 2,
        revision: Some(revision.to_owned()),
        tools: SourceTools {
            served: 12,
            ..SourceTools::default()
        },
        ..SourceReport::default()
    }
}

fn withholds(count: i64) -> SourceReport {
    let mut report = offers(SECOND);
    report.changed = count;
    report.tools.served -= count;
    report.tools.withheld = count;
    report.tools.noted = (0..count).map(|at| noted(&format!("tool_{at}"))).collect();
    report
}

fn noted(name: &str) -> NotedTool {
    NotedTool {
        name: name.to_owned(),
        reason: "Changed".to_owned(),
        message: String::new(),
    }
}

fn fails(revision: Option<&str>, reason: &str) -> SourceReport {
    let failure = SourceFailure {
        reason: reason.to_owned(),
        message: "crm.example does not answer".to_owned(),
    };
    SourceReport {
        failure: Some(failure),
        revision: revision.map(str::to_owned),
        tools: SourceTools::default(),
        ..offers(FIRST)
    }
}

#[test]
fn what_a_source_refers_to_has_to_be_there() {
    check(
        &source(MCP_BEARER),
        &Observed::default(),
        expect![[r#"
        ResolvedRefs False SecretNotFound: there is no Secret crm in this namespace: make it, or correct the name
        Reachable Unknown NotDiscoveredYet: no ToolGrant names this source yet, so no gateway asks it
        ToolsChanged Unknown NotDiscoveredYet: no ToolGrant names this source yet, so no gateway asks it
        Ready False SecretNotFound: there is no Secret crm in this namespace: make it, or correct the name
        Reconciling True SecretNotFound: there is no Secret crm in this namespace: make it, or correct the name
    "#]],
    );
    check(
        &source("{openapi: {configMapKeyRef: {name: api, key: openapi.json}}}"),
        &Observed {
            document: Some(ConfigMap::default()),
            ..Observed::default()
        },
        expect![[r#"
            ResolvedRefs False ConfigMapNotFound: ConfigMap api has no key openapi.json: add it, or name another key
            Reachable Unknown NotDiscoveredYet: no ToolGrant names this source yet, so no gateway asks it
            ToolsChanged Unknown NotDiscoveredYet: no ToolGrant names this source yet, so no gateway asks it
            Ready False ConfigMapNotFound: ConfigMap api has no key openapi.json: add it, or name another key
            Reconciling True ConfigMapNotFound: ConfigMap api has no key openapi.json: add it, or name another key
        "#]],
    );
}

fn credential(annotation: Option<&str>) -> Observed {
    let annotations = annotation
        .map(|hosts| [("chandlery.dev/allowed-hosts".to_owned(), hosts.to_owned())].into());
    let secret = Secret {
        data: Some([("token".to_owned(), ByteString(b"s3cret".to_vec()))].into()),
        metadata: ObjectMeta {
            annotations,
            ..ObjectMeta::default()
        },
        ..Secret::default()
    };
    Observed {
        credential: Some(secret),
        ..Observed::default()
    }
}

#[test]
fn a_source_that_nobody_is_granted_is_as_ready_as_it_can_be() {
    check(
        &source(MCP_BEARER),
        &credential(None),
        expect![[r#"
        ResolvedRefs True Resolved: everything named is there
        Reachable Unknown NotDiscoveredYet: no ToolGrant names this source yet, so no gateway asks it
        ToolsChanged Unknown NotDiscoveredYet: no ToolGrant names this source yet, so no gateway asks it
        Ready True Ready: everything that the source refers to is there; no ToolGrant names this source yet, so no gateway asks it
    "#]],
    );
    let later = Observed {
        asked: Asked::Later,
        // A replica that has not heard of the grant's end yet.
        words: asked(vec![Word::Found(withholds(1))]).words,
        ..Observed::default()
    };
    check(
        &source(MCP),
        &later,
        expect![[r#"
        ResolvedRefs True Resolved: everything named is there
        Reachable Unknown NotDiscoveredYet: no ToolGrant that names this source counts at the moment, so no gateway asks it
        ToolsChanged Unknown NotDiscoveredYet: no ToolGrant that names this source counts at the moment, so no gateway asks it
        Ready True Ready: everything that the source refers to is there; no ToolGrant that names this source counts at the moment, so no gateway asks it
    "#]],
    );
}

#[test]
fn a_credential_goes_to_the_hosts_that_its_secret_names() {
    let said = |annotation, requires_hosts| {
        let source = source(MCP_BEARER);
        let plan = plan(&source, &credential(annotation), requires_hosts);
        let resolved = &plan.conditions[0];
        format!(
            "{:?} {}: {}",
            resolved.status, resolved.reason, resolved.message
        )
    };
    expect!["Some(false) SecretHostNotAllowed: Secret crm does not say which hosts it is for, as it has to here: its owner annotates it with chandlery.dev/allowed-hosts"].assert_eq(&said(None, true));
    expect!["Some(false) SecretHostNotAllowed: Secret crm is not for crm.example: correct spec.mcp.url, or have its owner add the host to the annotation chandlery.dev/allowed-hosts"].assert_eq(&said(Some("hr.example"), false));
    expect!["Some(true) Resolved: everything named is there"]
        .assert_eq(&said(Some("*.example"), true));
}

#[test]
fn no_key_is_a_credential() {
    let observed = Observed {
        is_kept: true,
        ..credential(None)
    };
    check(
        &source(MCP_BEARER),
        &observed,
        expect![[r#"
        ResolvedRefs False SecretInvalid: Secret crm is one of Chandlery's own (a key, or people's tokens), or named like one: put the credential into one of yours
        Reachable Unknown NotDiscoveredYet: no ToolGrant names this source yet, so no gateway asks it
        ToolsChanged Unknown NotDiscoveredYet: no ToolGrant names this source yet, so no gateway asks it
        Ready False SecretInvalid: Secret crm is one of Chandlery's own (a key, or people's tokens), or named like one: put the credential into one of yours
        Stalled True SecretInvalid: Secret crm is one of Chandlery's own (a key, or people's tokens), or named like one: put the credential into one of yours
    "#]],
    );
}

#[test]
fn a_source_is_ready_when_the_gateways_know_what_it_offers() {
    let source = source(MCP);
    check(
        &source,
        &asked(vec![]),
        expect![[r#"
        ResolvedRefs True Resolved: everything named is there
        Reachable Unknown NotDiscoveredYet: no gateway has said yet what this source offers
        ToolsChanged Unknown NotDiscoveredYet: no gateway has said yet what this source offers
        Ready False NotDiscoveredYet: no gateway has said yet what this source offers
        Reconciling True NotDiscoveredYet: no gateway has said yet what this source offers
    "#]],
    );
    let before = SourceReport {
        generation: 1,
        ..offers(FIRST)
    };
    let not_yet = SourceReport {
        revision: None,
        ..offers(FIRST)
    };
    let words = vec![Word::Found(before), Word::Found(not_yet), Word::Nothing];
    check(
        &source,
        &asked(words),
        expect![[r#"
        ResolvedRefs True Resolved: everything named is there
        Reachable Unknown NotDiscoveredYet: no gateway has said yet what this source offers
        ToolsChanged Unknown NotDiscoveredYet: no gateway has said yet what this source offers
        Ready False NotDiscoveredYet: no gateway has said yet what this source offers
        Reconciling True NotDiscoveredYet: no gateway has said yet what this source offers
    "#]],
    );
    check(
        &source,
        &asked(vec![Word::Nothing, Word::Found(offers(FIRST))]),
        expect![[r#"
            ResolvedRefs True Resolved: everything named is there
            Reachable True Discovered: the source has said what it offers
            ToolsChanged False AsApproved: every tool is as it was approved
            Ready True Ready: 12 tools can be granted
            revision 11111111111111111111111111111111
            tools 12 served, 0 withheld, 0 left out: []
        "#]],
    );
}

#[test]
fn the_worst_that_a_replica_says_counts() {
    let source = source(MCP);
    let unreachable = fails(Some(FIRST), reason::UNREACHABLE);
    check(
        &source,
        &asked(vec![Word::Found(withholds(2)), Word::Found(unreachable)]),
        expect![[r#"
            ResolvedRefs True Resolved: everything named is there
            Reachable False Unreachable: crm.example does not answer; what it offered before goes on being served
            ToolsChanged True ToolsWithheld: 2 tools are not as approved, and withheld: look at `chandlery sources diff crm`, then write spec.pinning.approvedRevision: 22222222222222222222222222222222
            Ready False Unreachable: crm.example does not answer; what it offered before goes on being served
            Reconciling True Unreachable: crm.example does not answer; what it offered before goes on being served
            revision 22222222222222222222222222222222
            tools 10 served, 2 withheld, 0 left out: [tool_0, tool_1]
        "#]],
    );
    let mut observed = asked(vec![Word::Found(offers(FIRST))]);
    let blocked = Word::Found(fails(None, reason::BLOCKED));
    observed
        .words
        .push((replica("deck", "gateway-deck-0"), blocked));
    check(
        &source,
        &observed,
        expect![[r#"
            ResolvedRefs True Resolved: everything named is there
            Reachable False Blocked: at Workspace deck: crm.example does not answer
            ToolsChanged False AsApproved: every tool is as it was approved
            Ready False Blocked: at Workspace deck: crm.example does not answer
            Stalled True Blocked: at Workspace deck: crm.example does not answer
            revision 11111111111111111111111111111111
            tools 12 served, 0 withheld, 0 left out: []
        "#]],
    );
    check(
        &source,
        &asked(vec![Word::Found(fails(None, "Whatever it says"))]),
        expect![[r#"
            ResolvedRefs True Resolved: everything named is there
            Reachable False Unreachable: crm.example does not answer
            ToolsChanged Unknown NotDiscoveredYet: the source has not said yet what it offers
            Ready False Unreachable: crm.example does not answer
            Reconciling True Unreachable: crm.example does not answer
        "#]],
    );
}

#[test]
fn tools_that_change_are_said_and_how_to_approve_them() {
    let approved = |policy: &str, revision: &str| {
        source(&format!(
            "{{mcp: {{url: 'https://crm.example/mcp'}}, pinning: {{policy: {policy}, approvedRevision: '{revision}'}}}}"
        ))
    };
    let said = |source: &ToolSource, report: SourceReport| {
        let status = status_of(source, &asked(vec![Word::Found(report)]));
        let mut conditions = status.conditions.into_iter();
        let changed = conditions
            .find(|condition| condition.type_ == "ToolsChanged")
            .unwrap();
        format!("{} {}: {}", changed.status, changed.reason, changed.message)
    };
    let served = SourceReport {
        changed: 2,
        ..offers(SECOND)
    };
    let some = SourceReport {
        changed: 3,
        ..withholds(2)
    };
    expect!["True ToolsWithheld: 1 tool is not as approved, and withheld: look at `chandlery sources diff crm`, then write spec.pinning.approvedRevision: 22222222222222222222222222222222"].assert_eq(&said(&source(MCP), withholds(1)));
    expect!["True ToolsWithheld: 3 tools are not as approved, and 2 withheld: look at `chandlery sources diff crm`, then write spec.pinning.approvedRevision: 22222222222222222222222222222222 in place of 11111111111111111111111111111111"].assert_eq(&said(&approved("Quarantine", FIRST), some));
    expect!["True ToolsChanged: 2 tools are not as approved, and served all the same: look at `chandlery sources diff crm`, then write spec.pinning.approvedRevision: 22222222222222222222222222222222 in place of 11111111111111111111111111111111"].assert_eq(&said(&approved("Warn", FIRST), served));
    expect!["False AsApproved: every tool is as it was approved; spec.pinning.approvedRevision names 11111111111111111111111111111111, which is not what the source offers now: 22222222222222222222222222222222"].assert_eq(&said(&approved("Quarantine", FIRST), offers(SECOND)));
    expect!["False AsApproved: every tool is as it was approved"]
        .assert_eq(&said(&approved("Quarantine", SECOND), offers(SECOND)));
    expect!["False AsApproved: no tool is pinned"]
        .assert_eq(&said(&approved("Off", FIRST), offers(SECOND)));
}

// The operator starts anew with the same gateways, whose reports come in any order.
#[test]
fn what_was_known_stays_until_gateways_say_otherwise() {
    let words = || {
        vec![
            Word::Found(withholds(2)),
            Word::Found(fails(Some(FIRST), reason::CREDENTIAL_REFUSED)),
            Word::Found(offers(FIRST)),
        ]
    };
    let mut source = source(MCP);
    let known = status_of(&source, &asked(words()));
    source.status = Some(known.clone());
    let again = |words: Vec<Word>| {
        let plan = plan(&source, &asked(words), false);
        status(&source, &plan, Timestamp::from_second(9).unwrap())
    };
    assert_eq!(again(vec![]), known, "the pods are not known yet");
    assert_eq!(again(vec![Word::Nothing]), known, "a gateway starts anew");
    for reported in 0..8 {
        let mut words = words();
        for (at, word) in words.iter_mut().enumerate() {
            if reported & (1 << at) == 0 {
                *word = Word::Silent;
            }
        }
        assert_eq!(again(words), known, "{reported:b}");
    }
    // Once all have spoken, what they say counts.
    check_status(
        &again(vec![Word::Found(offers(SECOND)), Word::Nothing]),
        expect![[r#"
            ResolvedRefs True Resolved: everything named is there
            Reachable True Discovered: the source has said what it offers
            ToolsChanged False AsApproved: every tool is as it was approved
            Ready True Ready: 12 tools can be granted
            revision 22222222222222222222222222222222
            tools 12 served, 0 withheld, 0 left out: []
        "#]],
    );
    // Of another generation nothing is known.
    source.metadata.generation = Some(3);
    check(
        &source,
        &asked(vec![Word::Silent]),
        expect![[r#"
            ResolvedRefs True Resolved: everything named is there
            Reachable Unknown NotDiscoveredYet: no gateway has said yet what this source offers
            ToolsChanged Unknown NotDiscoveredYet: no gateway has said yet what this source offers
            Ready False NotDiscoveredYet: no gateway has said yet what this source offers
            Reconciling True NotDiscoveredYet: no gateway has said yet what this source offers
            revision 22222222222222222222222222222222
            tools 10 served, 2 withheld, 0 left out: [tool_0, tool_1]
        "#]],
    );
}

#[test]
fn what_does_not_fit_a_status_is_cut() {
    let mut report = withholds(40);
    report.tools.noted.insert(1, noted("tool_0"));
    report.tools.noted.insert(0, noted(&"é".repeat(300)));
    let status = status_of(&source(MCP), &asked(vec![Word::Found(report)]));
    let noted = status.tools.unwrap().noted;
    assert_eq!(noted.len(), 32);
    assert_eq!(noted[0].name, "é".repeat(256));
    assert_eq!(noted[2].name, "tool_1");
}

#[test]
fn a_grant_counts_in_its_time() {
    let second = |second| Timestamp::from_second(second).unwrap();
    let grant = |more: &str| -> ToolGrantSpec {
        serde_saphyr::from_str(&format!(
            "{{workspaceRef: {{name: crew}}, agents: {{all: true}}, tools: ['crm/*'], {more}}}"
        ))
        .unwrap()
    };
    let times = grant("notBefore: '1970-01-01T00:00:10Z', expiresAt: '1970-01-01T00:00:20Z'");
    for (now, expected) in [(9, false), (10, true), (19, true), (20, false)] {
        assert_eq!(is_live(&times, second(now)), expected, "at {now}");
    }
    assert!(is_live(&grant(""), NOW));
    assert!(!is_live(&grant("notBefore: soon"), NOW));
}
