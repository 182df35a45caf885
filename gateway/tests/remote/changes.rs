//! What changes at a server besides its tools.

use serde_json::{Value, json};

use crate::fake::Fake;
use crate::harness::{Desk, Events, World, eventually, request};

const RESOURCES: World = World {
    source: "",
    grant: "  resources: true\n  prompts: true",
    approved: None,
};

/// What the server says, and what of it a client hears that wants lists and `crm://1`.
async fn hears(upstream: &Fake, events: &mut Events) {
    for uri in ["crm://2", "crm://1"] {
        upstream.tell("notifications/resources/updated", json!({"uri": uri}));
    }
    let updated = events.next().await.unwrap();
    assert_eq!(updated["method"], "notifications/resources/updated");
    assert_eq!(updated["params"]["uri"], "crm://1", "{updated}");
    for list in ["resources", "prompts"] {
        let method = format!("notifications/{list}/list_changed");
        upstream.tell(&method, json!({}));
        let changed = events.next().await.unwrap();
        assert_eq!(changed["method"], method, "{changed}");
    }
}

/// The stream of a client of the newer era that wants lists and `crm://1`.
async fn listen(desk: &Desk, agent: &str) -> (Events, Value) {
    let wanted = json!({
        "promptsListChanged": true, "resourcesListChanged": true, "resourceSubscriptions": ["crm://1"],
    });
    let params = json!({"notifications": wanted});
    let mut events = desk
        .begin(agent, json!({}), "subscriptions/listen", params)
        .await;
    let acknowledged = events.next().await.unwrap();
    (events, acknowledged["params"]["notifications"].clone())
}

/// The stream of a client of the older era that has subscribed to `crm://1`.
async fn subscribe(desk: &Desk, agent: &str) -> (Events, String) {
    let session = desk.session(agent, json!({})).await;
    let events = desk.stream(agent, &session).await;
    let message = request("resources/subscribe", json!({"uri": "crm://1"}));
    let answer = desk.older(agent, &session, &message).await.last().await;
    assert_eq!(answer["result"], json!({}), "{answer}");
    (events, session)
}

// Issue: list changes, and updates of resources, in each era from each era.
#[tokio::test]
async fn a_client_hears_of_lists_and_resources_that_it_wants() {
    for (newer, older) in [(true, false), (false, true), (true, true)] {
        let upstream = Fake::start(newer, older).await;
        let desk = Desk::open(&upstream, &RESOURCES).await;
        let listeners = async |count| {
            let what = format!("{count} streams are open");
            eventually(&what, async || upstream.listeners() == count).await;
        };
        listeners(1).await;

        let (mut first, accepted) = listen(&desk, "one").await;
        assert_eq!(accepted["resourceSubscriptions"], json!(["crm://1"]));
        assert_eq!(accepted["promptsListChanged"], true);
        listeners(2).await;
        hears(&upstream, &mut first).await;

        // Clients of one agent share a stream, those of another have one of their own.
        let (mut second, session) = subscribe(&desk, "one").await;
        let (mut third, _) = listen(&desk, "two").await;
        listeners(3).await;
        hears(&upstream, &mut second).await;
        // They come by two ways, so in any order.
        for events in [&mut first, &mut third] {
            let mut heard = Vec::new();
            for _ in 0..3 {
                heard.push(events.next().await.unwrap()["method"].clone());
            }
            for method in [
                "resources/updated",
                "resources/list_changed",
                "prompts/list_changed",
            ] {
                let method = json!(format!("notifications/{method}"));
                assert!(heard.contains(&method), "{heard:?}");
            }
        }

        let end = request("resources/unsubscribe", json!({"uri": "crm://1"}));
        desk.older("one", &session, &end).await.last().await;
        drop((first, third));
        listeners(1).await;
        upstream.tell("notifications/resources/updated", json!({"uri": "crm://1"}));
        upstream.tell("notifications/prompts/list_changed", json!({}));
        let heard = second.next().await.unwrap();
        assert_eq!(heard["method"], "notifications/prompts/list_changed");
        drop(second);
        listeners(1).await;
    }
}

#[tokio::test]
async fn nobody_hears_of_what_is_not_granted_any_more() {
    for (newer, older) in [(true, false), (false, true)] {
        let upstream = Fake::start(newer, older).await;
        let desk = Desk::open(&upstream, &RESOURCES).await;
        let capabilities = async || {
            let answer = desk
                .newer("one", json!({}), "server/discover", json!({}))
                .await;
            answer["result"]["capabilities"].clone()
        };
        assert_eq!(
            capabilities().await["resources"],
            json!({"subscribe": true, "listChanged": true})
        );
        let (mut newer, _) = listen(&desk, "one").await;
        let (mut older, _) = subscribe(&desk, "one").await;
        eventually("the server is listened to", async || {
            upstream.listeners() == 2
        })
        .await;
        desk.apply(&World {
            grant: "  prompts: true",
            ..World::default()
        });
        eventually("nobody listens any more", async || {
            upstream.listeners() == 1
        })
        .await;
        assert_eq!(capabilities().await.get("resources"), None);
        upstream.tell("notifications/resources/updated", json!({"uri": "crm://1"}));
        upstream.tell("notifications/resources/list_changed", json!({}));
        upstream.tell("notifications/prompts/list_changed", json!({}));
        for events in [&mut newer, &mut older] {
            let heard = events.next().await.unwrap();
            assert_eq!(heard["method"], "notifications/prompts/list_changed");
        }
        let (_, accepted) = listen(&desk, "one").await;
        assert_eq!(accepted, json!({"promptsListChanged": true}));
    }
}

#[tokio::test]
async fn only_resources_that_are_there_are_subscribed_to_and_not_too_many() {
    let upstream = Fake::start(false, true).await;
    let desk = Desk::open(&upstream, &RESOURCES).await;
    let session = desk.session("one", json!({})).await;
    let subscribe = async |uri: String| {
        let message = request("resources/subscribe", json!({"uri": uri}));
        desk.older("one", &session, &message).await.last().await
    };
    let unknown = subscribe("other://1".to_owned()).await;
    assert_eq!(unknown["error"]["code"], -32002, "{unknown}");
    for at in 0..64 {
        assert_eq!(subscribe(format!("crm://{at}")).await["result"], json!({}));
    }
    for refused in [
        subscribe("crm://64".to_owned()).await,
        subscribe(format!("crm://{}", "x".repeat(3_000))).await,
    ] {
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains("unsubscribe from one first"), "{refused}");
    }
}
