//! For random agents, grants and times: lists and calls agree, and grouping gives nothing away.

use std::sync::Arc;

use chandlery_crds::manifest;
use chandlery_gateway::catalog::{Catalogs, Found, Registry};
use chandlery_gateway::directory::{Agent, Snapshot};
use chandlery_gateway::gate::{Decision, Question, Rights, decide};
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;
use serde_json::value::RawValue;

use crate::seeds::Seeds;

/// Tools, globs and nonsense that entries, grants and permissions name.
const NAMES: [&str; 14] = [
    "agnt_db_*",
    "agnt_db_select",
    "agnt_db_insert",
    "agnt_queues_*",
    "agnt_queues_enqueue",
    "agnt_files_*",
    "agnt_files_read",
    "agnt_*",
    "*",
    "notify_human",
    "agnt_tools_enable",
    "connection_*",
    "nothing_like_it",
    "*_read",
];
const RULES: [&str; 4] = [
    "true",
    "args.amount < 5",
    "false",
    "agent.labels.tier == 'gold'",
];

fn names(most: usize) -> impl Strategy<Value = Vec<&'static str>> {
    proptest::sample::subsequence(NAMES.to_vec(), 0..=most)
}

fn grant() -> impl Strategy<Value = String> {
    (
        proptest::sample::subsequence(NAMES.to_vec(), 1..=4),
        prop_oneof![
            Just("all: true"),
            Just("names: [one]"),
            Just("names: [two]"),
            Just("selector: {matchLabels: {tier: gold}}"),
            Just("selector: {matchLabels: {tier: lead}}"),
        ],
        proptest::option::of(0..4i64),
        proptest::option::of(4..8i64),
        proptest::option::of(proptest::sample::select(RULES.to_vec())),
        prop_oneof![Just("act"), Just("ask"), Just("always_ask")],
    )
        .prop_map(|(tools, agents, begin, end, rule, level)| {
            let time = |hour: i64| format!("2026-12-01T0{hour}:00:00Z");
            let mut spec = format!("agents: {{{agents}}}, tools: {tools:?}, permission: {level}");
            if let Some(begin) = begin {
                spec.push_str(&format!(", notBefore: \"{}\"", time(begin)));
            }
            if let Some(end) = end {
                spec.push_str(&format!(", expiresAt: \"{}\"", time(end)));
            }
            if let Some(rule) = rule {
                spec.push_str(&format!(
                    ", constraints: [{{name: r, cel: {rule:?}, message: not so}}]"
                ));
            }
            spec
        })
}

fn world() -> impl Strategy<Value = String> {
    (
        names(4),
        names(4),
        proptest::collection::vec(any::<bool>(), 8),
        proptest::collection::vec(grant(), 0..4),
        proptest::sample::subsequence(NAMES.to_vec(), 0..=3),
    )
        .prop_map(|(required, tools, on, grants, asked)| {
            let mut all = crate::harness::workspace(&format!("grantRequired: {required:?}"));
            let permissions: Vec<String> =
                asked.iter().map(|name| format!("{name:?}: always_ask")).collect();
            for (name, listing) in [("one", "Grouped"), ("flat", "PerOperation")] {
                all.push_str(&crate::harness::agent(
                    name,
                    &format!(
                        "listing: {listing}, tools: {tools:?}, workspaceToolsEnabled: {}, workspaceDb: {{enabled: {}, readOnly: {}, \
                         allowApplyMigration: {}}}, connectionsDb: {{postgresEnabled: {}}}, observabilityEnabled: {}, \
                         agentInvocationEnabled: {}, dataJobsEnabled: {}, permissions: {{tools: {{{}}}}}",
                        on[0], on[1], on[2], on[3], on[4], on[5], on[6], on[7], permissions.join(", ")
                    ),
                ));
            }
            for (at, spec) in grants.iter().enumerate() {
                // What is about `one` is about its twin.
                let spec = spec.replace("names: [one]", "names: [one, flat]");
                all.push_str(&crate::harness::grant(&format!("g{at}"), &spec));
            }
            all
        })
}

/// What the gate says, in a word.
fn said(
    agent: &Arc<Agent>,
    rights: &Rights,
    tool: &chandlery_gateway::tool::Tool,
    arguments: &str,
    now: Timestamp,
) -> &'static str {
    match decide(&Question {
        agent,
        tool,
        rights,
        arguments,
        now,
        used_up: &|_| None,
    }) {
        Decision::Permit(..) => "permit",
        Decision::Ask(_) => "ask",
        Decision::Deny(_) => "deny",
        Decision::Unknown => "unknown",
    }
}

// At least 20,000 cases: each world has two agents and every tool, at three times and with two arguments.
#[test]
fn lists_and_calls_agree_and_groups_give_nothing_away() {
    let registry = Arc::new(Registry::new(vec![Arc::new(Seeds {
        executed: Default::default(),
        bulk: 0,
    })]));
    let cases = std::cell::Cell::new(0u64);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 96,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let outcome = runner.run(&world(), |yaml| {
        let read = manifest::read("world", &yaml);
        prop_assert!(read.problems.is_empty(), "{:?}", read.problems);
        let snapshot = Snapshot::default().with(&read.objects);
        let grouped = &snapshot.agents["team.one"];
        let flat = &snapshot.agents["team.flat"];
        for hour in [1, 3, 6] {
            let now: Timestamp = format!("2026-12-01T0{hour}:30:00Z").parse().unwrap();
            let (of_groups, of_flat) = (
                Catalogs::new(registry.clone()),
                Catalogs::new(registry.clone()),
            );
            let (of_groups, of_flat) = (of_groups.of(grouped, now), of_flat.of(flat, now));
            for tool in registry.tools() {
                for amount in [1, 9] {
                    cases.set(cases.get() + 1);
                    let arguments = json!({"amount": amount}).to_string();
                    let alone = match Rights::of(flat, tool) {
                        Ok(rights) => {
                            let said = said(flat, &rights, tool, &arguments, now);
                            // The list has it unless the call is answered as if it did not exist.
                            prop_assert_eq!(rights.is_visible(now), said != "unknown");
                            said
                        }
                        Err(_) => "unknown",
                    };
                    let is_listed = of_flat.tools.iter().any(|listed| listed.name == tool.name);
                    prop_assert_eq!(is_listed, alone != "unknown");
                    // Through its group, and by its own name on a grouped agent.
                    let mut ways = vec![(tool.name.to_string(), json!({"amount": amount}))];
                    if let Some(group) = &tool.group {
                        let arguments = json!({"action": group.action, "amount": amount});
                        ways.push((group.name.to_string(), arguments));
                    }
                    for (name, arguments) in ways {
                        let raw = RawValue::from_string(arguments.to_string()).unwrap();
                        let through = match of_groups.find(&name, &raw) {
                            Found::Entry { entry, arguments } => {
                                prop_assert_eq!(&entry.tool.name, &tool.name);
                                let own = arguments.unwrap_or(raw);
                                said(grouped, &entry.rights, &entry.tool, own.get(), now)
                            }
                            Found::NoOperation(_) | Found::Nothing(_) => "unknown",
                        };
                        prop_assert_eq!(through, alone, "{} through {}", tool.name, name);
                    }
                }
            }
        }
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(cases.get() >= 20_000, "{} cases", cases.get());
}
