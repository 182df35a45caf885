//! Tells people that a call waits for them, and what came of it: Events on the Agent, each written once.

use chandlery_crds::Agent;
use chandlery_crds::report::{ApprovalNews, ApprovalState};
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::{Resource as _, ResourceExt as _};
use tracing::debug;

use crate::context::{Context, now};

/// Longest text out of a report that is passed on, in characters.
const MOST: usize = 200;

/// Writes an Event for each of `news` that has none yet. Events are a courtesy: failing to write one is no error.
///
/// Their names follow from what they say, so neither another replica nor a restart writes one twice.
pub(super) async fn tell(ctx: &Context, agent: &Agent, news: &[ApprovalNews]) {
    for news in news {
        let event = event(agent, news, &ctx.reporter, now());
        let name = format!(
            "{}/{}",
            agent.namespace().unwrap_or_default(),
            event.name_any()
        );
        if ctx.told.knows(&name) {
            continue;
        }
        match ctx.cluster.create_event(&event).await {
            Ok(()) => ctx.told.add(name),
            Err(error) if error.is_conflict() => ctx.told.add(name),
            Err(error) => {
                debug!(
                    error = &error as &dyn std::error::Error,
                    "cannot write an event"
                );
            }
        }
    }
}

fn event(agent: &Agent, news: &ApprovalNews, reporter: &str, now: Timestamp) -> Event {
    let few = |text: &str| text.chars().take(MOST).collect::<String>();
    let (id, tool) = (few(&news.id), few(&news.tool));
    let by = few(news.by.as_deref().unwrap_or("somebody"));
    let (reason, state, note) = match news.state {
        ApprovalState::Pending => (
            "ApprovalRequested",
            "pending",
            format!("a call of {tool} waits for a person (approval {id})"),
        ),
        ApprovalState::Approved => (
            "CallApproved",
            "approved",
            format!("{by} allowed a call of {tool} (approval {id})"),
        ),
        ApprovalState::Denied => (
            "CallDenied",
            "denied",
            format!("{by} denied a call of {tool} (approval {id})"),
        ),
    };
    // Ids tell upper and lower case apart, names of objects do not.
    let id = news.id.as_bytes();
    let hex = hex::encode(&id[..id.len().min(32)]);
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{}.{hex}.{state}", agent.name_any())),
            namespace: agent.namespace(),
            ..ObjectMeta::default()
        },
        action: Some(reason.to_owned()),
        event_time: Some(MicroTime(now)),
        note: Some(note),
        reason: Some(reason.to_owned()),
        regarding: Some(agent.object_ref(&())),
        reporting_controller: Some("chandlery-operator".to_owned()),
        reporting_instance: Some(reporter.to_owned()),
        type_: Some("Normal".to_owned()),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[track_caller]
    fn check(state: ApprovalState, by: Option<&str>, expected: Expect) {
        let agent = "apiVersion: chandlery.dev/v1alpha1\nkind: Agent\nmetadata: {name: bosun, namespace: harbour, uid: u1}\n\
                     spec: {workspaceRef: {name: crew}}\n";
        let news = ApprovalNews {
            id: "0AbcDefGhij".to_owned(),
            tool: "agnt_queues_enqueue".to_owned(),
            state,
            by: by.map(str::to_owned),
        };
        let agent = serde_saphyr::from_str(agent).unwrap();
        let event = event(&agent, &news, "operator-1", Timestamp::UNIX_EPOCH);
        expected.assert_eq(&format!(
            "{} {}: {}\n",
            event.name_any(),
            event.reason.unwrap(),
            event.note.unwrap()
        ));
        let regarding = event.regarding.unwrap();
        assert_eq!(regarding.uid.as_deref(), Some("u1"));
        assert_eq!(regarding.kind.as_deref(), Some("Agent"));
    }

    // R-C-210
    #[test]
    fn each_step_of_an_approval_is_one_event_of_its_own_name() {
        check(
            ApprovalState::Pending,
            None,
            expect![[r#"
            bosun.304162634465664768696a.pending ApprovalRequested: a call of agnt_queues_enqueue waits for a person (approval 0AbcDefGhij)
        "#]],
        );
        check(
            ApprovalState::Approved,
            Some("alice"),
            expect![[r#"
            bosun.304162634465664768696a.approved CallApproved: alice allowed a call of agnt_queues_enqueue (approval 0AbcDefGhij)
        "#]],
        );
        check(
            ApprovalState::Denied,
            Some("bob"),
            expect![[r#"
            bosun.304162634465664768696a.denied CallDenied: bob denied a call of agnt_queues_enqueue (approval 0AbcDefGhij)
        "#]],
        );
    }
}
