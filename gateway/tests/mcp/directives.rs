//! An agent's standing directives reach it in the instructions of its next session (R-C-079…082).

use std::sync::Arc;

use chandlery_gateway::directory::Agent;
use chandlery_gateway::families::config::Config;
use chandlery_gateway::family::{Call, Family};
use chandlery_gateway::gate::Permit;
use chandlery_gateway::http::Settings;
use chandlery_gateway::tool::{Effect, Output, Served, Tool, ToolError};
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use crate::harness::{Gateway, TWO, World, initialize, key, request};

const ASIDE: &str = "Your standing directives, which you have written yourself with the tool `agnt_update_self_directives`:\n\n";

async fn gateway(fast_lane: bool) -> Gateway {
    let settings = Settings {
        fast_lane,
        ..Settings::default()
    };
    let gateway =
        Gateway::start_with(settings, |store| vec![Arc::new(Config::new(store.clone()))]).await;
    gateway.publish(&World::default());
    gateway
}

/// What `demo.one` is told as a session begins, in the older era and in the newer.
async fn told(gateway: &Gateway) -> [String; 2] {
    let older = gateway.one().message(initialize(json!({})));
    let newer = gateway
        .one()
        .newer(request(1, "server/discover", json!({})));
    let mut told = [String::new(), String::new()];
    for (call, told) in [older, newer].into_iter().zip(&mut told) {
        let answer = call.send().await.json();
        *told = answer["result"]["instructions"]
            .as_str()
            .unwrap_or_else(|| panic!("{answer}"))
            .to_owned();
    }
    told
}

fn rewrite(directives: &str) -> Value {
    request(
        2,
        "tools/call",
        json!({"name": "agnt_update_self_directives", "arguments": {"directives": directives}}),
    )
}

// R-C-079, R-C-081, R-C-082
#[tokio::test]
async fn directives_are_told_from_the_next_session_on() {
    for fast_lane in [true, false] {
        let gateway = gateway(fast_lane).await;
        let session = gateway.session().await;
        for told in told(&gateway).await {
            assert!(told.starts_with("The fixture says hello."), "{told}");
            assert!(!told.contains("standing directives"), "{told}");
        }
        let answer = gateway
            .one()
            .in_session(&session)
            .message(rewrite("Be brief.\nAsk first."))
            .send()
            .await;
        let result = &answer.json()["result"];
        assert_eq!(
            result["structuredContent"],
            json!({"chars": 20, "effective": "next_session"})
        );
        for told in told(&gateway).await {
            let expected = format!("\n\n{ASIDE}Be brief.\nAsk first.");
            assert!(told.ends_with(&expected), "{told}");
        }
        // All of it is replaced, and in the newer era it is done like in the older.
        gateway.one().newer(rewrite("Be kind.")).send().await;
        for told in told(&gateway).await {
            assert!(told.ends_with("\n\nBe kind."), "{told}");
            assert!(!told.contains("brief"), "{told}");
        }
        // Another agent has its own, which are none.
        let two = gateway.to("two").key(&key(TWO));
        let two = two.message(initialize(json!({}))).send().await.json();
        let two = two["result"]["instructions"].as_str().unwrap().to_owned();
        assert!(!two.contains("standing directives"), "{two}");
        gateway.one().newer(rewrite(" \n")).send().await;
        for told in told(&gateway).await {
            assert!(!told.contains("standing directives"), "{told}");
        }
        gateway.stop().await;
    }
}

// R-C-081: who is made again under the same name begins without.
#[tokio::test]
async fn directives_end_with_the_agent() {
    let gateway = gateway(true).await;
    gateway.one().newer(rewrite("Be kind.")).send().await;
    let mut world = World::default();
    world.agents[0].uid = "uid-1-again";
    gateway.publish(&world);
    for told in told(&gateway).await {
        assert!(!told.contains("Be kind."), "{told}");
    }
    gateway.stop().await;
}

/// A family that says this, and never comes to an end where there is nothing to say.
struct Says(&'static str, Option<&'static str>);

impl Family for Says {
    fn tools(&self) -> Vec<Tool> {
        vec![Tool {
            name: self.0.into(),
            title: self.0.into(),
            description: "A tool of the tests.".into(),
            input_schema: Map::new(),
            effect: Effect::Reads,
            served: Served::Always,
            group: None,
            interactive: false,
            origin: None,
        }]
    }

    fn standing<'a>(&'a self, agent: &'a Agent) -> BoxFuture<'a, Option<String>> {
        let said = self.1.map(|text| text.repeat(9_000) + &agent.id);
        Box::pin(async {
            match said {
                None => std::future::pending().await,
                some => some,
            }
        })
    }

    fn call<'a>(
        &'a self,
        _: &'a Permit<'a>,
        _: Call<'a>,
    ) -> BoxFuture<'a, Result<Output, ToolError>> {
        Box::pin(async { Ok(Output::Text(String::new())) })
    }
}

// R-C-080: whatever a family wants to say, a session begins in time and its instructions stay short.
#[tokio::test]
async fn what_is_told_is_bounded() {
    let gateway = Gateway::start_with(Settings::default(), |_| {
        vec![Arc::new(Says("says_much", Some("é")))]
    })
    .await;
    gateway.publish(&World::default());
    for told in told(&gateway).await {
        assert_eq!(
            told,
            format!("The fixture says hello.\n\n{}", "é".repeat(8_000))
        );
    }
    gateway.stop().await;
    let gateway = Gateway::start_with(Settings::default(), |_| {
        vec![Arc::new(Says("says_nothing", None))]
    })
    .await;
    gateway.publish(&World::default());
    for told in told(&gateway).await {
        assert_eq!(told, "The fixture says hello.");
    }
    gateway.stop().await;
}
