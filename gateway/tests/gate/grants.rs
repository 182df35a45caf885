//! Grants: what is served under them, for how long, and what their rules and limits let pass.

use std::time::Duration;

use chandlery_gateway::store::StoreUrl;
use serde_json::{Value, json};

use crate::harness::{Desk, Said, Setup, agent, grant, workspace};

const TOOL: &str = "agnt_queues_enqueue";

/// An agent that needs a grant for the queues, and these grants.
fn guarded(grants: &[String]) -> String {
    let mut all = workspace("grantRequired: ['agnt_queues_*']");
    all.push_str(&agent("one", "listing: PerOperation"));
    all.push_str(&agent("two", "listing: PerOperation"));
    all.push_str(&grants.concat());
    all
}

async fn enqueue(desk: &Desk, amount: i64) -> Said {
    desk.call("one", TOOL, json!({"amount": amount})).await
}

// R-C-210, R-C-211: a built-in of grantRequired is served only under a live grant; lists and calls agree.
#[tokio::test]
async fn a_tool_that_needs_a_grant_is_there_while_one_lives() {
    let desk = Desk::open(&guarded(&[])).await;
    assert!(!desk.list("one").await.contains(&TOOL.to_owned()));
    assert_eq!(enqueue(&desk, 1).await, Said::unknown(TOOL));
    let only_one = grant("queues", "agents: {names: [one]}, tools: ['agnt_queues_*']");
    desk.apply(&guarded(std::slice::from_ref(&only_one))).await;
    assert!(desk.list("one").await.contains(&TOOL.to_owned()));
    assert!(enqueue(&desk, 1).await.text().contains("#1"));
    // Another agent has none of it.
    assert!(!desk.list("two").await.contains(&TOOL.to_owned()));
    assert_eq!(desk.call("two", TOOL, json!({})).await, Said::unknown(TOOL));
    desk.apply(&guarded(&[])).await;
    assert!(!desk.list("one").await.contains(&TOOL.to_owned()));
    assert_eq!(enqueue(&desk, 2).await, Said::unknown(TOOL));
    assert_eq!(desk.executed.count(TOOL), 1);
    desk.close().await;
}

#[tokio::test]
async fn a_grant_by_label_is_for_the_agents_that_have_it() {
    let gold = grant(
        "gold",
        "agents: {selector: {matchExpressions: [{key: tier, operator: In, values: [gold]}]}}, tools: ['agnt_queues_enqueue']",
    );
    let desk = Desk::open(&guarded(&[gold])).await;
    assert!(enqueue(&desk, 1).await.text().contains("#1"));
    let silver = guarded(&[grant(
        "gold",
        "agents: {selector: {matchLabels: {tier: silver}}}, tools: ['agnt_queues_enqueue']",
    )]);
    desk.apply(&silver).await;
    assert_eq!(enqueue(&desk, 1).await, Said::unknown(TOOL));
    desk.close().await;
}

// An expiry bites on the very next call, and lists are not kept for longer.
#[tokio::test]
async fn a_grant_begins_and_ends_at_its_times() {
    let desk = Desk::open(&guarded(&[])).await;
    let now = desk.now().as_second();
    let at = |seconds: i64| jiff::Timestamp::from_second(now + seconds).unwrap();
    let times = format!(
        "agents: {{all: true}}, tools: ['agnt_queues_*'], notBefore: \"{}\", expiresAt: \"{}\"",
        at(100),
        at(130)
    );
    desk.apply(&guarded(&[grant("soon", &times)])).await;
    assert_eq!(enqueue(&desk, 1).await, Said::unknown(TOOL));
    desk.pass_time(Duration::from_secs(101));
    assert!(enqueue(&desk, 1).await.text().contains("#1"));
    let answer = desk.newer("one", "tools/list", json!({})).await;
    let ttl = answer["result"]["ttlMs"].as_i64().unwrap();
    assert!((0..=30_000).contains(&ttl), "{ttl}");
    desk.pass_time(Duration::from_secs(30));
    assert_eq!(enqueue(&desk, 1).await, Said::unknown(TOOL));
    assert!(!desk.list("one").await.contains(&TOOL.to_owned()));
    desk.close().await;
}

#[tokio::test]
async fn rules_look_at_the_arguments() {
    let small = grant(
        "small",
        "agents: {all: true}, tools: ['agnt_queues_*'], constraints: [\
         {name: small, cel: 'args.amount <= 100', message: ask for at most 100}, \
         {name: gold, cel: 'agent.labels.tier == \"gold\" && tool.startsWith(\"agnt_\")', message: gold agents only}]",
    );
    let desk = Desk::open(&guarded(&[small])).await;
    assert!(enqueue(&desk, 100).await.text().contains("#1"));
    let said = enqueue(&desk, 101).await;
    assert_eq!(
        said.refusal(),
        "agnt_queues_enqueue: ask for at most 100 (rule small of ToolGrant small)"
    );
    // What is not there, is of another type or is written twice does not get around a rule.
    for arguments in [
        r#"{}"#,
        r#"{"amount":"1"}"#,
        r#"{"amount":1,"amount":1000}"#,
    ] {
        let arguments: Value = match serde_json::from_str(arguments) {
            Ok(arguments) => arguments,
            Err(_) => continue,
        };
        let _ = desk.call("one", TOOL, arguments).await;
    }
    let executed = desk.executed.of(TOOL);
    assert!(
        executed.iter().all(|arguments| arguments["amount"]
            .as_f64()
            .is_some_and(|amount| amount <= 100.0)),
        "{executed:?}"
    );
    let long = json!({"amount": 1, "rows": ["x".repeat(70_000)]});
    let said = desk.call("one", TOOL, long).await;
    assert!(said.refusal().contains("more than 65536 bytes"), "{said:?}");
    desk.close().await;
}

// One grant must pass every check by itself: two never add up.
#[tokio::test]
async fn two_grants_do_not_add_up() {
    let desk = Desk::open(&guarded(&[
        grant(
            "small",
            "agents: {all: true}, tools: ['agnt_queues_*'], constraints: [{name: small, cel: 'args.amount <= 10', message: too much}]",
        ),
        grant(
            "large",
            "agents: {all: true}, tools: ['agnt_queues_*'], permission: always_ask, constraints: [{name: large, cel: 'args.amount >= 100', message: too little}]",
        ),
    ]))
    .await;
    assert!(enqueue(&desk, 5).await.text().contains("#1"));
    assert!(matches!(enqueue(&desk, 50).await, Said::Refused(_)));
    enqueue(&desk, 500).await.approval();
    assert_eq!(desk.executed.count(TOOL), 1);
    desk.close().await;
}

// The strictest level among the grants that pass counts, and among agent's and grants'.
#[tokio::test]
async fn the_strictest_level_counts() {
    let lenient = grant("lenient", "agents: {all: true}, tools: ['agnt_queues_*']");
    let strict = grant(
        "strict",
        "agents: {all: true}, tools: ['agnt_queues_*'], permission: ask",
    );
    let desk = Desk::open(&guarded(&[lenient.clone(), strict])).await;
    enqueue(&desk, 1).await.approval();
    let own = guarded(&[lenient]).replace(
        "listing: PerOperation",
        "listing: PerOperation, permissions: {tools: {'agnt_*': act, 'agnt_queues_*': always_ask, agnt_queues_list: act}}",
    );
    desk.apply(&own).await;
    enqueue(&desk, 1).await.approval();
    assert!(
        desk.call("one", "agnt_queues_list", json!({}))
            .await
            .text()
            .contains("#1")
    );
    desk.close().await;
}

// A grant with a rule that cannot be read counts for nothing.
#[tokio::test]
async fn a_broken_rule_grants_nothing() {
    let broken = grant(
        "broken",
        "agents: {all: true}, tools: ['agnt_queues_*'], constraints: [{name: r, cel: 'args.rows.all(r, r > 0)', message: m}]",
    );
    let desk = Desk::open(&guarded(&[broken])).await;
    assert_eq!(enqueue(&desk, 1).await, Said::unknown(TOOL));
    let (_, tools) = desk.api("GET", "/agents/team.one/tools", Value::Null).await;
    let tool = tools["tools"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["tool"] == TOOL)
        .unwrap();
    assert!(tool.to_string().contains("comprehensions"), "{tool}");
    desk.close().await;
}

#[tokio::test]
async fn a_limit_says_when_to_try_again() {
    let few = grant(
        "few",
        "agents: {all: true}, tools: ['agnt_queues_*'], limits: {callsPerMinute: 3, callsPerDay: 5}",
    );
    let desk = Desk::open(&guarded(&[few])).await;
    // The minute must not end between two calls.
    let into = desk.now().as_millisecond() % 60_000;
    desk.pass_time(Duration::from_millis(
        u64::try_from(60_000 - into + 1000).unwrap(),
    ));
    for _ in 0..3 {
        enqueue(&desk, 1).await.text();
    }
    let said = enqueue(&desk, 1).await;
    assert!(
        said.refusal()
            .contains("the limit of ToolGrant few is used up; try again in"),
        "{said:?}"
    );
    desk.pass_time(Duration::from_secs(60));
    for _ in 0..2 {
        enqueue(&desk, 1).await.text();
    }
    desk.pass_time(Duration::from_secs(60));
    let said = enqueue(&desk, 1).await;
    assert!(said.refusal().contains("try again in"), "{said:?}");
    assert_eq!(desk.executed.count(TOOL), 5);
    desk.close().await;
}

// Budgets hold across replicas: three gateways on one database, 300 calls at once, a limit of 100.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_limit_holds_over_replicas() {
    let Ok(server) = std::env::var("TEST_DATABASE_URL") else {
        return;
    };
    let url = crate::harness::schema_of_its_own(&server, "budgets").await;
    let limited = guarded(&[grant(
        "hundred",
        "agents: {all: true}, tools: ['agnt_queues_*'], limits: {callsPerDay: 100}",
    )]);
    let open = async |data| {
        let url = StoreUrl::Postgres(url.clone().into());
        Desk::open_on(&limited, Setup::default(), data, url).await
    };
    let mut desks = vec![open(tempfile::tempdir().unwrap()).await];
    for _ in 0..2 {
        let data = desks[0].copy_of_identities();
        desks.push(open(data).await);
    }
    // The replicas of an account share its objects' UIDs.
    let calls = (0..300).map(|at| {
        let desk = &desks[at % 3];
        async move { matches!(enqueue(desk, 1).await, Said::Text(_)) }
    });
    let passed = futures::future::join_all(calls).await;
    let passed = passed.into_iter().filter(|passed| *passed).count();
    assert!(passed <= 100, "{passed}");
    assert!(passed >= 90, "{passed}");
    let executed: usize = desks.iter().map(|desk| desk.executed.count(TOOL)).sum();
    assert_eq!(executed, passed);
    for desk in desks {
        desk.close().await;
    }
}
