//! What agents ask people for, and what people answer.

use serde_json::{Value, json};

use crate::harness::{Desk, WORKSPACE, agent, openapi};

fn manifests() -> String {
    [WORKSPACE.to_owned(), agent("one", ""), agent("two", "")].concat()
}

// R-C-044, R-C-077, R-C-078: an agent asks for a change of its config, a person decides, the agent reads what came of it.
#[tokio::test]
async fn a_change_of_the_config_is_asked_for_and_decided() {
    let desk = Desk::open(&manifests()).await;
    let ask = json!({"summary": "I need the database of orders", "patch": {"connectionsDb": {"postgresEnabled": true}}});
    desk.call("one", "agnt_request_config_change", ask)
        .await
        .text();
    let (status, answer) = desk
        .api("GET", "/config-requests?status=open", Value::Null)
        .await;
    assert_eq!(status, 200, "{answer}");
    let row = &answer["items"][0];
    assert_eq!(row["agent"], "team.one");
    assert_eq!(
        row["patch"],
        json!({"connectionsDb": {"postgresEnabled": true}})
    );
    let id = row["id"].as_str().unwrap();
    let path = format!("/config-requests/{id}/reject");
    let (status, _) = desk
        .api("POST", &path, json!({"reason": "ask for the copy"}))
        .await;
    assert_eq!(status, 200);
    let (status, _) = desk
        .api(
            "POST",
            &format!("/config-requests/{id}/approve"),
            Value::Null,
        )
        .await;
    assert_eq!(status, 409);
    let said = desk
        .call("one", "agnt_list_config_requests", json!({}))
        .await;
    assert!(said.text().contains("ask for the copy"), "{said:?}");
    let said = desk
        .call("two", "agnt_list_config_requests", json!({}))
        .await;
    assert!(!said.text().contains("orders"), "{said:?}");
    assert_eq!(
        desk.api("GET", "/config-requests?status=new", Value::Null)
            .await
            .0,
        422
    );
    assert_eq!(
        desk.api("POST", "/config-requests/00000000001/approve", Value::Null)
            .await
            .0,
        404
    );
    // No approval changes what the agent has: that is the manifest's to do.
    assert!(
        !desk
            .list("one")
            .await
            .contains(&"connection_postgres_query".to_owned())
    );
    desk.close().await;
}

// R-C-073…076: a ticket goes to the platform team and its answer comes back.
#[tokio::test]
async fn a_ticket_is_answered_by_people() {
    let desk = Desk::open(&manifests()).await;
    let ask =
        json!({"action": "ticket_create", "subject": "Slow", "body": "The search takes a minute."});
    desk.call("one", "agnt_support_write", ask).await.text();
    let (_, answer) = desk.api("GET", "/tickets?status=open", Value::Null).await;
    let id = answer["items"][0]["id"].as_str().unwrap().to_owned();
    let (status, _) = desk
        .api(
            "POST",
            &format!("/tickets/{id}/reply"),
            json!({"body": "It has an index now."}),
        )
        .await;
    assert_eq!(status, 200);
    let get = json!({"ticket_id": id});
    let said = desk
        .call("one", "agnt_support_ticket_get", get.clone())
        .await;
    assert!(said.text().contains("It has an index now."), "{said:?}");
    let reply = json!({"ticket_id": id, "body": "Thank you."});
    desk.call("one", "agnt_support_ticket_reply", reply)
        .await
        .text();
    let (_, whole) = desk
        .api("GET", &format!("/tickets/{id}"), Value::Null)
        .await;
    assert_eq!(whole["messages"].as_array().unwrap().len(), 3, "{whole}");
    assert_eq!(whole["messages"][1]["author"], "admin");
    assert_eq!(
        desk.api("POST", &format!("/tickets/{id}/close"), Value::Null)
            .await
            .1["status"],
        "closed"
    );
    assert_eq!(
        desk.api("POST", &format!("/tickets/{id}/reopen"), Value::Null)
            .await
            .0,
        200
    );
    assert_eq!(
        desk.api(
            "POST",
            &format!("/tickets/{id}/reply"),
            json!({"body": " "})
        )
        .await
        .0,
        422
    );
    let said = desk.call("two", "agnt_support_ticket_get", get).await;
    assert!(!format!("{said:?}").contains("Slow"), "{said:?}");
    desk.close().await;
}

// Whatever the description lists is there.
#[tokio::test]
async fn the_description_lists_what_there_is() {
    let desk = Desk::open(&manifests()).await;
    for (template, operations) in openapi()["paths"].as_object().unwrap() {
        let path = template.replace("{id}", "00000000001");
        for method in operations.as_object().unwrap().keys() {
            let (status, answer) = desk.api(&method.to_uppercase(), &path, Value::Null).await;
            assert_ne!(status, 405, "{method} {template}");
            assert!(
                !answer.to_string().contains("no such resource"),
                "{method} {template}"
            );
        }
    }
    let (status, me) = desk.api("GET", "/me", Value::Null).await;
    assert_eq!((status, &me["name"]), (200, &json!("admin")));
    desk.close().await;
}
