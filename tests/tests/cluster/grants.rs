//! Grants as people write them: what a ToolGrant gives and takes away, when, and what is said of it.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use chandlery_tests::agents::DESK;
use chandlery_tests::client::{Client, Era};
use chandlery_tests::namespace::{Namespace, in_namespace};
use chandlery_tests::{eventually, release};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

const TOOL: &str = "agnt_datetime_now";
const GRANT: &str = "toolgrants.chandlery.dev/clock";
const SOON: Duration = Duration::from_secs(60);
/// Within what a right that is given or taken away bites.
const BITES: Duration = Duration::from_secs(2);

/// The account `desk`, with a built-in tool that needs a grant.
fn desk() -> String {
    DESK.replace("{store: ", &format!("{{grantRequired: [{TOOL}], store: "))
}

/// A grant of `tool` for the agent `one`.
fn grant(tool: &str, more: &str) -> String {
    format!(
        "{{apiVersion: chandlery.dev/v1alpha1, kind: ToolGrant, metadata: {{name: clock}}, \
          spec: {{workspaceRef: {{name: desk}}, agents: {{names: [one]}}, tools: ['{tool}']{more}}}}}"
    )
}

async fn has_tool(client: &Client) -> Result<bool> {
    Ok(client.tools().await?.iter().any(|tool| tool == TOOL))
}

/// Waits until the agent's list has the tool, or no longer, and until a call agrees; gives back how long it took.
async fn until_list(client: &Client, wanted: bool) -> Result<Duration> {
    let started = Instant::now();
    eventually("the list has changed", SOON, async || {
        Ok((has_tool(client).await? == wanted).then_some(()))
    })
    .await?;
    let took = started.elapsed();
    match client.call(TOOL, json!({})).await {
        Ok(_) => ensure!(wanted, "the call still went through"),
        Err(error) => ensure!(
            !wanted && error.to_string().contains("Unknown tool"),
            "{error:#}"
        ),
    }
    Ok(took)
}

/// Waits until the grant's Ready has this reason; gives back what all its conditions say.
async fn until_reason(namespace: &Namespace, reason: &str) -> Result<String> {
    eventually(&format!("the grant is {reason}"), SOON, async || {
        let path = "--output=jsonpath={.status.conditions[?(@.type==\"Ready\")].reason}";
        let found = namespace.kubectl(&["get", GRANT, path]).await?;
        ensure!(found == reason, "it is {found}");
        Ok(Some(()))
    })
    .await?;
    let path = "--output=jsonpath={range .status.conditions[*]}{.type} {.status} {.reason}: {.message}{\"\\n\"}{end}";
    namespace.kubectl(&["get", GRANT, path]).await
}

// P8, design §2: a right that is given or taken away bites within 2 s.
#[tokio::test]
#[ignore = "needs the test cluster"]
async fn a_built_in_that_needs_a_grant_comes_and_goes_with_it() {
    release::installed().await.unwrap();
    in_namespace(async |namespace| {
        namespace.apply(&desk()).await?;
        namespace.agents_ready().await?;
        let client = namespace
            .binding("one")
            .await?
            .connect(Era::Stateless)
            .await?;
        let other = namespace
            .binding("two")
            .await?
            .connect(Era::Stateless)
            .await?;
        ensure!(!has_tool(&client).await?, "there is no grant yet");

        namespace.apply(&grant(TOOL, "")).await?;
        let took = until_list(&client, true).await?;
        ensure!(took <= BITES, "the tool came after {took:?}");
        ensure!(!has_tool(&other).await?, "the grant is about another agent");
        until_reason(namespace, "Ready").await?;

        namespace.kubectl(&["delete", GRANT]).await?;
        let took = until_list(&client, false).await?;
        ensure!(took <= BITES, "the tool went on for {took:?}");
        Ok(())
    })
    .await;
}

// Design §2: an expiry bites on the very next call, by the local clock; and people see that a grant is over.
#[tokio::test]
#[ignore = "needs the test cluster"]
async fn a_grant_begins_and_ends_at_its_moments() {
    release::installed().await.unwrap();
    in_namespace(async |namespace| {
        namespace.apply(&desk()).await?;
        namespace.agents_ready().await?;
        let client = namespace
            .binding("one")
            .await?
            .connect(Era::Stateless)
            .await?;
        let begin = Timestamp::now() + SignedDuration::from_secs(6);
        let end = begin + SignedDuration::from_secs(6);
        let times = format!(", notBefore: '{begin:.0}', expiresAt: '{end:.0}'");
        // Both were cut to whole seconds.
        let (begin, end) = (
            Timestamp::from_second(begin.as_second())?,
            Timestamp::from_second(end.as_second())?,
        );
        namespace.apply(&grant(TOOL, &times)).await?;
        let said = until_reason(namespace, "NotYetBegun").await?;
        ensure!(
            !has_tool(&client).await? || Timestamp::now() >= begin,
            "{said}"
        );

        sleep_until(begin).await;
        client.call(TOOL, json!({})).await?;
        until_reason(namespace, "Ready").await?;
        sleep_until(end).await;
        let error = client
            .call(TOOL, json!({}))
            .await
            .expect_err("the grant is over");
        ensure!(error.to_string().contains("Unknown tool"), "{error:#}");
        let over = Instant::now();
        let said = until_reason(namespace, "Expired").await?;
        ensure!(
            over.elapsed() < Duration::from_secs(5),
            "said after {:?}",
            over.elapsed()
        );
        ensure!(
            !said.contains("Stalled"),
            "nobody has to do anything: {said}"
        );
        let table = namespace.kubectl(&["get", "chg"]).await?;
        ensure!(
            table.contains("Expired") && table.contains("EXPIRES"),
            "{table}"
        );
        Ok(())
    })
    .await;
}

async fn sleep_until(moment: Timestamp) {
    let pause = moment.duration_since(Timestamp::now()) + SignedDuration::from_millis(20);
    tokio::time::sleep(Duration::try_from(pause).unwrap_or_default()).await;
}

// A grant whose rule nobody understands grants nothing, and says which rule it is.
#[tokio::test]
#[ignore = "needs the test cluster"]
async fn a_grant_with_a_bad_rule_or_of_another_built_in_says_so() {
    release::installed().await.unwrap();
    in_namespace(async |namespace| {
        namespace.apply(&desk()).await?;
        namespace.agents_ready().await?;
        let client = namespace
            .binding("one")
            .await?
            .connect(Era::Stateless)
            .await?;
        let rule = |cel: &str| {
            format!(", constraints: [{{name: only-utc, cel: \"{cel}\", message: 'ask for UTC'}}]")
        };
        namespace
            .apply(&grant(TOOL, &rule("args.zones.all(z, z == 'UTC')")))
            .await?;
        let said = until_reason(namespace, "InvalidConstraint").await?;
        ensure!(
            said.contains("Accepted False InvalidConstraint: rule only-utc: "),
            "{said}"
        );
        ensure!(said.contains("Stalled True"), "{said}");
        ensure!(
            !has_tool(&client).await?,
            "a grant that is not understood gives nothing"
        );

        namespace
            .apply(&grant(
                TOOL,
                &rule("!has(args.timezone) || args.timezone == 'UTC'"),
            ))
            .await?;
        until_reason(namespace, "Ready").await?;
        until_list(&client, true).await?;
        let error = client
            .call(TOOL, json!({"timezone": "Europe/Berlin"}))
            .await
            .expect_err("the rule does not hold");
        ensure!(error.to_string().contains("ask for UTC"), "{error:#}");

        namespace.apply(&grant("memory", "")).await?;
        let said = until_reason(namespace, "NotGrantable").await?;
        ensure!(said.contains("memory"), "{said}");
        // What may be granted is up to the Workspace, and is looked at again when that changes.
        let patch = r#"{"spec": {"grantRequired": ["memory"]}}"#;
        let patch = ["patch", "chw", "desk", "--type=merge", "--patch", patch];
        namespace.kubectl(&patch).await?;
        until_reason(namespace, "Ready").await?;
        Ok(())
    })
    .await;
}
