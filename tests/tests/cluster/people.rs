//! People's tokens: out of one Secret that the gateway reads by its name, and what they are good for.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use chandlery_crds::key::Key;
use chandlery_tests::agents::Binding;
use chandlery_tests::client::Era;
use chandlery_tests::namespace::{Namespace, in_namespace};
use chandlery_tests::people::{TOKENS, ask, desk_with_people};
use chandlery_tests::{eventually, release};
use k8s_openapi::api::rbac::v1::Role;
use serde_json::json;

const SOON: Duration = Duration::from_secs(60);
/// Within what a changed token works and the old one does not.
const ROTATED: Duration = Duration::from_secs(60);

/// Waits until the token gets this status; gives back how long it took.
async fn until(binding: &Binding, token: &Key, wanted: u16) -> Result<Duration> {
    let started = Instant::now();
    eventually(&format!("the token gets {wanted}"), ROTATED, async || {
        let (status, _) = ask(binding, token.expose(), "GET", "/api/v1/me").await?;
        ensure!(status == wanted, "it gets {status}");
        Ok(Some(()))
    })
    .await?;
    Ok(started.elapsed())
}

// P20, design §8: a gateway reads the Secret of its people by name and no other; a rotated token works within a minute.
#[tokio::test]
#[ignore = "needs the test cluster"]
async fn a_persons_token_works_once_it_is_in_the_secret_and_until_it_is_another() {
    release::installed().await.unwrap();
    in_namespace(async |namespace| {
        namespace.apply(&desk_with_people()).await?;
        namespace.agents_ready().await?;
        let wait = [
            "wait",
            "--for=condition=ResolvedRefs=False",
            "chw/desk",
            "--timeout=60s",
        ];
        namespace.kubectl(&wait).await?;
        let said = "--output=jsonpath={.status.conditions[?(@.type==\"Ready\")].message}";
        let said = namespace.kubectl(&["get", "chw/desk", said]).await?;
        ensure!(said.contains("there is no Secret our-people"), "{said}");

        let role = namespace.api::<Role>().get("gateway-desk").await?;
        let rules = role.rules.unwrap_or_default();
        let of_secrets: Vec<_> = rules
            .iter()
            .filter(|rule| {
                rule.resources
                    .iter()
                    .flatten()
                    .any(|kind| kind == "secrets")
            })
            .collect();
        ensure!(of_secrets.len() == 1, "{rules:?}");
        ensure!(of_secrets[0].verbs == ["get"], "{rules:?}");
        ensure!(
            of_secrets[0].resource_names == Some(vec![TOKENS.to_owned()]),
            "{rules:?}"
        );
        let gateway = format!("--as=system:serviceaccount:{}:gateway-desk", namespace.name);
        for (secret, expected) in [(TOKENS, "yes"), ("agent-one-mcp", "no")] {
            let can = [
                "auth",
                "can-i",
                "get",
                &format!("secrets/{secret}"),
                &gateway,
            ];
            let can = namespace.kubectl(&can).await;
            // `can-i` fails when the answer is no.
            let answer = can.as_deref().map_or("no", str::trim);
            ensure!(answer == expected, "get {secret}: {answer}");
        }

        let one = namespace.binding("one").await?;
        let (old, new) = (Key::from_random([1; 32]), Key::from_random([2; 32]));
        until(&one, &old, 401).await?;
        namespace.write_token(&old).await?;
        let took = until(&one, &old, 200).await?;
        ensure!(
            took < Duration::from_secs(15),
            "the first token works after {took:?}"
        );
        let wait = ["wait", "--for=condition=Ready", "chw/desk", "--timeout=60s"];
        namespace.kubectl(&wait).await?;
        let (_, me) = ask(&one, old.expose(), "GET", "/api/v1/me").await?;
        assert_eq!(me["name"], "alice", "{me}");
        // An agent decides nothing, and a person is no agent.
        let (status, _) = ask(&one, &one.key, "GET", "/api/v1/me").await?;
        ensure!(
            (401..=403).contains(&status),
            "an agent's key gets {status}"
        );
        let as_agent = one.endpoint.status_for(old.expose()).await?;
        ensure!(
            as_agent.is_client_error(),
            "a person's token gets {as_agent}"
        );

        namespace.write_token(&new).await?;
        until(&one, &new, 200).await?;
        until(&one, &old, 401).await?;
        // Whoever is taken out of the Workspace is out at once.
        let patch = r#"{"spec": {"people": null}}"#;
        let patch = ["patch", "chw", "desk", "--type=merge", "--patch", patch];
        namespace.kubectl(&patch).await?;
        let took = until(&one, &new, 401).await?;
        ensure!(
            took < Duration::from_secs(2),
            "the token went on working for {took:?}"
        );
        Ok(())
    })
    .await;
}

// R-C-210, P17: what waits for a person and what came of it are Events on the Agent, without the arguments.
#[tokio::test]
#[ignore = "needs the test cluster"]
async fn a_call_that_waits_for_a_person_is_told_of_on_the_agent() {
    release::installed().await.unwrap();
    in_namespace(async |namespace| {
        let alice = Key::from_random([3; 32]);
        namespace.write_token(&alice).await?;
        namespace.apply(&desk_with_people()).await?;
        namespace
            .kubectl(&[
                "wait",
                "--for=create",
                "agents.chandlery.dev/one",
                "--timeout=10s",
            ])
            .await?;
        let asks = json!({"permissions": {"tools": {"agnt_datetime_now": "ask"}}});
        namespace.change_agent("one", asks).await?;
        namespace.agents_ready().await?;
        let one = namespace.binding("one").await?;
        until(&one, &alice, 200).await?;
        for decision in ["deny", "approve"] {
            let client = one.connect(Era::Stateless).await?;
            let zone = if decision == "deny" {
                "Asia/Tokyo"
            } else {
                "UTC"
            };
            let arguments = json!({"timezone": zone});
            let asked = arguments.clone();
            let call = tokio::spawn(async move { client.call("agnt_datetime_now", asked).await });
            let id = eventually("the call waits", SOON, async || {
                let path = "/api/v1/approvals?state=pending";
                let (_, rows) = ask(&one, alice.expose(), "GET", path).await?;
                Ok(rows["items"][0]["id"].as_str().map(str::to_owned))
            })
            .await?;
            until_event(namespace, "ApprovalRequested", &id).await?;
            let path = format!("/api/v1/approvals/{id}/{decision}");
            let (status, said) = ask(&one, alice.expose(), "POST", &path).await?;
            ensure!(status == 200, "{status} {said}");
            let reason = if decision == "deny" {
                "CallDenied"
            } else {
                "CallApproved"
            };
            let note = until_event(namespace, reason, &id).await?;
            ensure!(note.contains("alice"), "{note}");
            ensure!(!note.contains(zone), "arguments are nobody's news: {note}");
            let result = call.await?;
            ensure!(
                result.is_ok() == (decision == "approve"),
                "{decision}: {result:?}"
            );
        }
        let events = [
            "get",
            "events",
            "--output=jsonpath={.items[*].metadata.name}",
        ];
        let before = namespace.kubectl(&events).await?;
        let names: Vec<&str> = before
            .split(' ')
            .filter(|name| name.starts_with("one."))
            .collect();
        let told = names.iter().filter(|name| {
            [".pending", ".approved", ".denied"]
                .iter()
                .any(|end| name.ends_with(end))
        });
        assert_eq!(told.count(), 4, "{before}");
        Ok(())
    })
    .await;
}

/// Waits for the Event of this reason about the approval `id`; gives back its note.
async fn until_event(namespace: &Namespace, reason: &str, id: &str) -> Result<String> {
    let field = format!(
        "--field-selector=reason={reason},involvedObject.kind=Agent,involvedObject.name=one"
    );
    eventually(&format!("{reason} is told"), SOON, async || {
        let path = "--output=jsonpath={range .items[*]}{.message}{\"\\n\"}{end}";
        let notes = namespace.kubectl(&["get", "events", &field, path]).await?;
        Ok(notes
            .lines()
            .find(|note| note.contains(id))
            .map(str::to_owned))
    })
    .await
    .context("an Event on the Agent")
}
