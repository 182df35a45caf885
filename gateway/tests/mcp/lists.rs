//! Tool lists: what is on them, when they change, and who is told.

use chandlery_crds::workspace::ToolListUpdates;
use chandlery_gateway::http::Settings;
use http::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, Call, Gateway, TWO, World, key, request};

fn list() -> Value {
    request(1, "tools/list", json!({}))
}

fn names(answer: &Answer) -> Vec<String> {
    let answer = answer.json();
    let tools = answer["result"]["tools"].as_array();
    let tools = tools.unwrap_or_else(|| panic!("no list: {answer}"));
    let name = |tool: &Value| tool["name"].as_str().unwrap().to_owned();
    tools.iter().map(name).collect()
}

// R-C-001, R-C-002, R-C-020: each agent has the list that its own config says, in a fixed order.
#[tokio::test]
async fn two_agents_have_two_lists() {
    let gateway = Gateway::start(Settings::default()).await;
    let mut world = World::default();
    world.agents[1].tools = vec!["other_tool"];
    gateway.publish(&world);
    let one = names(&gateway.one().newer(list()).send().await);
    assert_eq!(
        one[..3],
        ["agnt_datetime_now", "fixture_echo", "fixture_wait"]
    );
    let two = gateway.to("two").key(&key(TWO)).newer(list()).send().await;
    assert_eq!(names(&two), ["agnt_datetime_now", "other_tool"]);
    let result = &two.json()["result"];
    assert_eq!(result["cacheScope"], "private");
    assert!(result["ttlMs"].as_u64().unwrap() > 0);
    let hints = &result["tools"][0]["annotations"];
    assert_eq!(hints["readOnlyHint"], true);
    gateway.stop().await;
}

// R-C-026: a session keeps its list; a right that is removed bites at once; the newer era has no such pinning.
#[tokio::test]
async fn a_session_keeps_its_list_but_not_the_right() {
    for fast_lane in [true, false] {
        let gateway = Gateway::start(Settings {
            fast_lane,
            ..Settings::default()
        })
        .await;
        let session = gateway.session().await;
        let own = || gateway.one().in_session(&session);
        let before = names(&own().message(list()).send().await);
        let mut world = World::default();
        world.agents[0].tools = vec!["other_tool"];
        gateway.publish(&world);
        assert_eq!(names(&own().message(list()).send().await), before);
        let call = |name: &str| request(2, "tools/call", json!({"name": name}));
        let gone = own().message(call("fixture_echo")).send().await;
        assert_eq!(gone.json()["error"]["code"], -32602);
        let now = ["agnt_datetime_now", "other_tool"];
        assert_eq!(names(&gateway.one().newer(list()).send().await), now);
        let next = gateway.session().await;
        let next = gateway.one().in_session(&next).message(list());
        assert_eq!(names(&next.send().await), now);
        gateway.stop().await;
    }
}

#[tokio::test]
async fn a_changed_list_is_told_where_that_was_announced() {
    let gateway = Gateway::start(Settings::default()).await;
    let mut world = World {
        updates: ToolListUpdates::Live,
        ..World::default()
    };
    gateway.publish(&world);
    let session = gateway.session().await;
    let own = || gateway.one().in_session(&session);
    let mut stream = own().method(Method::GET).open().await;
    stream.next().await.unwrap();
    let wanted = json!({"notifications": {"toolsListChanged": true, "promptsListChanged": true, "resourceSubscriptions": ["a:b"]}});
    let listen = gateway
        .one()
        .newer(request("s", "subscriptions/listen", wanted));
    let mut subscription = listen.open().await;
    let subscription_id = "io.modelcontextprotocol/subscriptionId";
    let acknowledged = subscription.next_message().await.unwrap();
    assert_eq!(
        acknowledged["method"],
        "notifications/subscriptions/acknowledged"
    );
    assert_eq!(
        acknowledged["params"]["notifications"],
        json!({"toolsListChanged": true})
    );
    assert_eq!(acknowledged["params"]["_meta"][subscription_id], "s");

    // The same tools again are no news; another agent's are none either.
    gateway.publish(&world);
    world.agents[1].tools = vec!["other_tool"];
    gateway.publish(&world);
    world.agents[0].tools = vec!["other_tool"];
    gateway.publish(&world);
    let told = stream.next_message().await.unwrap();
    assert_eq!(told["method"], "notifications/tools/list_changed");
    let told = subscription.next_message().await.unwrap();
    assert_eq!(told["method"], "notifications/tools/list_changed");
    assert_eq!(told["params"]["_meta"][subscription_id], "s");
    let now = ["agnt_datetime_now", "other_tool"];
    assert_eq!(names(&own().message(list()).send().await), now);
    let announced = gateway.one().message(crate::harness::initialize(json!({})));
    let capabilities = &announced.send().await.json()["result"]["capabilities"];
    assert_eq!(capabilities["tools"]["listChanged"], true);
    gateway.stop().await;
}

// A list of more than one page comes whole, whichever lane gives it.
#[tokio::test]
async fn a_long_list_comes_in_pages() {
    for fast_lane in [true, false] {
        let gateway = Gateway::start(Settings {
            page_bytes: 700,
            fast_lane,
            ..Settings::default()
        })
        .await;
        let session = gateway.session().await;
        let eras: [fn(Call, Value) -> Call; 2] = [
            |call, message| call.message(message),
            |call, message| call.newer(message),
        ];
        for (is_newer, send) in eras.into_iter().enumerate() {
            let base = || match is_newer {
                0 => gateway.one().in_session(&session),
                _ => gateway.one(),
            };
            let (mut all, mut pages, mut cursor) = (Vec::new(), 0, None);
            loop {
                let params = cursor.map_or(json!({}), |cursor: Value| json!({"cursor": cursor}));
                let answer = send(base(), request(1, "tools/list", params)).send().await;
                all.extend(names(&answer));
                pages += 1;
                cursor = answer.json()["result"].get("nextCursor").cloned();
                if cursor.is_none() {
                    break;
                }
            }
            assert!(pages > 1);
            assert_eq!(all.len(), 7, "{all:?}");
            let wrong = request(1, "tools/list", json!({"cursor": "wrong"}));
            let answer = send(base(), wrong).send().await;
            assert_eq!(answer.json()["error"]["code"], -32602, "{answer:?}");
        }
        gateway.stop().await;
    }
}
