//! The documentation and tickets (R-C-072…076).

use chandlery_gateway::families::support::{Changed, Sender, Status, Tickets};
use chandlery_gateway::pipeline::Answer;
use chandlery_gateway::store::Id;
use serde_json::{Value, json};

use crate::harness::{Caller, Database, Gateway};

const SEARCH: &str = "agnt_support_docs_search";
const LIST: &str = "agnt_support_tickets_list";
const GET: &str = "agnt_support_ticket_get";
const CREATE: &str = "agnt_support_ticket_create";
const REPLY: &str = "agnt_support_ticket_reply";

fn create(subject: &str) -> Value {
    json!({"subject": subject, "body": format!("the body of {subject}")})
}

impl Gateway {
    async fn ticket(&self, agent: &Caller, arguments: Value) -> String {
        let answer = self.value(agent, CREATE, arguments).await;
        assert_eq!(answer["status"], "open");
        answer["ticket_id"].as_str().unwrap().to_owned()
    }

    /// The subjects of the tickets that the agent sees.
    async fn subjects(&self, agent: &Caller, filter: Value) -> Vec<String> {
        let list = self.value(agent, LIST, filter).await;
        let subject = |row: &Value| row["subject"].as_str().unwrap().to_owned();
        list["tickets"]
            .as_array()
            .unwrap()
            .iter()
            .map(subject)
            .collect()
    }

    /// Status and messages of a ticket, each as `<from>: <body>`.
    async fn said(&self, agent: &Caller, id: &str) -> (String, Vec<String>) {
        let ticket = self.value(agent, GET, json!({"ticket_id": id})).await;
        let line = |message: &Value| {
            let text = |field: &str| message[field].as_str().unwrap();
            format!("{}: {}", text("from"), text("body"))
        };
        let lines = ticket["messages"].as_array().unwrap().iter().map(line);
        (
            ticket["status"].as_str().unwrap().to_owned(),
            lines.collect(),
        )
    }
}

async fn refused(gateway: &Gateway, agent: &Caller, tool: &str, arguments: Value) -> String {
    match gateway.answer(agent, tool, arguments.clone()).await {
        Answer::Failed(error) => error.message,
        other => panic!("{tool} {arguments}: {other:?}"),
    }
}

// R-C-073, R-C-074, R-C-075, R-C-076: a conversation from the question to the end.
#[tokio::test]
async fn people_answer_a_ticket() {
    for gateway in Gateway::each().await {
        let one = Caller::new("one", "lab");
        let people = Tickets::new(gateway.store.clone());
        let question = json!({"subject": "no egress", "body": "How?", "priority": "high"});
        let id = gateway.ticket(&one, question).await;
        let row: Id = id.parse().unwrap();
        assert_eq!(
            gateway.said(&one, &id).await,
            ("open".into(), vec!["agent: How?".into()])
        );

        let open = people
            .list("demo.lab", Some(Status::Open), None, 10)
            .await
            .unwrap();
        assert_eq!(
            (open.len(), &*open[0].agent, open[0].priority.word()),
            (1, "demo.one", "high")
        );
        let answer = people
            .reply("demo.lab", row, "ada", "Like so.")
            .await
            .unwrap()
            .unwrap();
        assert_eq!((answer.sender, &*answer.author), (Sender::Team, "ada"));
        let (status, said) = gateway.said(&one, &id).await;
        assert_eq!(
            (&*status, said.len(), &*said[1]),
            ("answered", 2, "team: Like so.")
        );
        assert_eq!(
            gateway.subjects(&one, json!({"status": "answered"})).await,
            ["no egress"]
        );
        // Only what is new.
        let first = people
            .get("demo.lab", row, None)
            .await
            .unwrap()
            .unwrap()
            .messages[0]
            .id;
        let later = json!({"ticket_id": id, "after": first.to_string()});
        let later = gateway.value(&one, GET, later).await;
        assert_eq!(later["messages"][0]["body"], "Like so.");
        assert_eq!(later["messages"].as_array().unwrap().len(), 1);

        let closed = people.close("demo.lab", row, "ada").await.unwrap();
        assert!(matches!(closed, Some(Changed::Now(ticket)) if ticket.status_by == "ada"));
        let closed = people.close("demo.lab", row, "bob").await.unwrap();
        assert!(matches!(closed, Some(Changed::Already(ticket)) if ticket.status_by == "ada"));
        let opened = people.reopen("demo.lab", row, "bob").await.unwrap();
        assert!(matches!(opened, Some(Changed::Now(ticket)) if ticket.status == Status::Open));
        people.close("demo.lab", row, "bob").await.unwrap();
        let reply = json!({"ticket_id": id, "body": "Still not."});
        let reply = gateway.value(&one, REPLY, reply).await;
        assert_eq!(
            (&reply["ticket_id"], &reply["status"]),
            (&json!(id), &json!("open"))
        );
        let (status, said) = gateway.said(&one, &id).await;
        assert_eq!((&*status, &*said[2]), ("open", "agent: Still not."));

        // Another Workspace's people have no such ticket.
        let none = people.get("demo.other", row, None).await.unwrap();
        assert!(none.is_none());
        assert!(
            people
                .reply("demo.other", row, "eve", "x")
                .await
                .unwrap()
                .is_none()
        );
        assert!(
            people
                .close("demo.other", row, "eve")
                .await
                .unwrap()
                .is_none()
        );
        assert!(
            people
                .reopen("demo.other", row, "eve")
                .await
                .unwrap()
                .is_none()
        );
    }
}

// R-C-073, R-C-074, R-C-076: others' tickets look like none at all.
#[tokio::test]
async fn a_ticket_is_its_agents_alone() {
    for gateway in Gateway::each().await {
        let (one, two) = (Caller::new("one", "lab"), Caller::new("two", "lab"));
        for (agent, subject) in [(&one, "a"), (&two, "b"), (&one, "c")] {
            gateway.ticket(agent, create(subject)).await;
        }
        let id = gateway.ticket(&one, create("d")).await;
        assert_eq!(gateway.subjects(&one, json!({})).await, ["d", "c", "a"]);
        assert_eq!(gateway.subjects(&one, json!({"limit": 1})).await, ["d"]);
        assert_eq!(gateway.subjects(&two, json!({})).await, ["b"]);
        let again = one.made_again();
        assert!(gateway.subjects(&again, json!({})).await.is_empty());
        for other in [&two, &again, &Caller::new("three", "elsewhere")] {
            for missing in [&*id, "0HtDqT3kVbW", "not-an-id-7"] {
                let sentence = format!(
                    "ticket_id: you have no ticket \"{missing}\"; agnt_support_tickets_list shows those that you have"
                );
                let get = refused(&gateway, other, GET, json!({"ticket_id": missing})).await;
                assert_eq!(get, format!("{GET}: {sentence}"));
                let reply = json!({"ticket_id": missing, "body": "mine now"});
                let reply = refused(&gateway, other, REPLY, reply).await;
                assert_eq!(reply, format!("{REPLY}: {sentence}"));
            }
        }
        assert_eq!(gateway.said(&one, &id).await.1.len(), 1);
        // People see the Workspace's, newest first, page by page.
        let people = Tickets::new(gateway.store.clone());
        let page = people.list("demo.lab", None, None, 3).await.unwrap();
        let subjects: Vec<&str> = page.iter().map(|ticket| &*ticket.subject).collect();
        assert_eq!(subjects, ["d", "c", "b"]);
        let rest = people
            .list("demo.lab", None, Some(page[2].id), 3)
            .await
            .unwrap();
        assert_eq!(rest.len(), 1);
    }
}

// R-C-075, R-C-076: a call that is repeated after a lost answer is done once.
#[tokio::test]
async fn a_repeated_call_gives_the_same_answer_and_does_nothing_more() {
    for gateway in Gateway::each().await {
        let (one, two) = (Caller::new("one", "lab"), Caller::new("two", "lab"));
        let question = |body: &str| json!({"subject": "s", "body": body, "request_id": "r1"});
        let calls = (0..4).map(|_| gateway.value(&one, CREATE, question("b")));
        let answers = futures::future::join_all(calls).await;
        assert!(
            answers.iter().all(|answer| *answer == answers[0]),
            "{answers:?}"
        );
        assert_eq!(gateway.subjects(&one, json!({})).await, ["s"]);
        let id = answers[0]["ticket_id"].as_str().unwrap();

        let reply = |body: &str, request: &str| json!({"ticket_id": id, "body": body, "request_id": request});
        let first = gateway.value(&one, REPLY, reply("more", "r2")).await;
        assert_eq!(gateway.value(&one, REPLY, reply("more", "r2")).await, first);
        assert_eq!(gateway.said(&one, id).await.1, ["agent: b", "agent: more"]);
        for (tool, arguments) in [
            (CREATE, question("other")),
            (
                CREATE,
                json!({"subject": "s", "body": "b", "priority": "low", "request_id": "r1"}),
            ),
            (REPLY, reply("other", "r2")),
            (REPLY, reply("more", "r1")),
        ] {
            let refused = gateway.refusal(&one, tool, arguments).await;
            let sentence = "request_id was used for other content before, and nothing was done: take a new one for something new";
            assert_eq!(refused, format!("{tool}: {sentence}"));
        }
        assert_eq!(gateway.said(&one, id).await.1.len(), 2);
        // Another agent's ids are its own; a call that was refused has used none up.
        gateway.ticket(&two, question("other")).await;
        let unknown = json!({"ticket_id": "0HtDqT3kVbW", "body": "b", "request_id": "r3"});
        gateway.refusal(&one, REPLY, unknown).await;
        gateway.value(&one, REPLY, reply("last", "r3")).await;
    }
}

// R-C-073…076: bounds, each with a sentence.
#[tokio::test]
async fn what_is_wrong_with_a_call_is_said() {
    let gateway = Gateway::on(Database::sqlite()).await;
    let one = Caller::new("one", "lab");
    for (tool, arguments, part) in [
        (CREATE, json!({"body": "b"}), "subject is required (string)"),
        (
            CREATE,
            json!({"subject": "s", "body": "\n"}),
            "body must not be empty",
        ),
        (
            CREATE,
            json!({"subject": "s".repeat(201), "body": "b"}),
            "subject is 201 characters long; the limit is 200, and nothing was done",
        ),
        (
            CREATE,
            json!({"subject": "s", "body": "é".repeat(16_001)}),
            "body is 16001 characters long; the limit is 16000",
        ),
        (
            CREATE,
            json!({"subject": "s", "body": "b", "priority": "now"}),
            "priority must be one of low, normal, high, urgent, not \"now\"",
        ),
        (
            CREATE,
            json!({"subject": "s", "body": "b", "request_id": ""}),
            "request_id must not be empty",
        ),
        (
            CREATE,
            json!({"subject": "s", "body": "b", "cc": "x"}),
            "there is no argument \"cc\"",
        ),
        (REPLY, json!({"body": "b"}), "ticket_id is required"),
        (
            REPLY,
            json!({"ticket_id": 7, "body": "b"}),
            "ticket_id must be a string, not a number",
        ),
        (GET, json!({}), "ticket_id is required"),
        (
            GET,
            json!({"ticket_id": "7"}),
            "ticket_id must have 11 characters, not 1",
        ),
        (
            GET,
            json!({"ticket_id": "0HtDqT3kVbW", "after": "not-an-id-7"}),
            "after must be the id of a message",
        ),
        (
            LIST,
            json!({"status": "new"}),
            "status must be one of open, answered, closed, not \"new\"",
        ),
        (
            LIST,
            json!({"limit": 101}),
            "limit must be an integer from 1 to 100, not 101",
        ),
        (SEARCH, json!({}), "query is required"),
        (
            SEARCH,
            json!({"query": "q".repeat(401)}),
            "query is 401 characters long; the limit is 400",
        ),
        (
            SEARCH,
            json!({"query": "q", "limit": 21}),
            "limit must be an integer from 1 to 20, not 21",
        ),
        (
            SEARCH,
            json!({"query": "q", "lang": "de"}),
            "there is no argument \"lang\"",
        ),
    ] {
        let refused = gateway.refusal(&one, tool, arguments).await;
        assert!(
            refused.starts_with(&format!("{tool}: {part}")),
            "{part} in {refused}"
        );
    }
    assert!(gateway.subjects(&one, json!({})).await.is_empty());
}

// R-C-075, R-C-076
#[tokio::test]
async fn tickets_and_their_messages_are_limited() {
    for gateway in Gateway::each().await {
        let one = Caller::new("one", "lab");
        let mut id = String::new();
        for n in 0..50 {
            id = gateway.ticket(&one, create(&n.to_string())).await;
        }
        let more = refused(&gateway, &one, CREATE, create("more")).await;
        assert!(
            more.contains("50 of your tickets are not closed yet"),
            "{more}"
        );
        let people = Tickets::new(gateway.store.clone());
        people
            .close("demo.lab", id.parse().unwrap(), "ada")
            .await
            .unwrap();
        gateway.ticket(&one, create("more")).await;
        let long = "x".repeat(16_000);
        let row = id.parse().unwrap();
        for _ in 2..200 {
            people.reply("demo.lab", row, "ada", &long).await.unwrap();
        }
        let last = json!({"ticket_id": id, "body": "the last"});
        gateway.value(&one, REPLY, last).await;
        let reply = json!({"ticket_id": id, "body": "one too many"});
        let more = refused(&gateway, &one, REPLY, reply).await;
        assert!(
            more.contains("the ticket holds 200 messages, and takes no more"),
            "{more}"
        );
        // A long conversation is read in pages.
        let (mut pages, mut read, mut after) = (0, 0, Value::Null);
        loop {
            let get = json!({"ticket_id": id, "after": after});
            let page = gateway.value(&one, GET, get).await;
            let messages = page["messages"].as_array().unwrap();
            (pages, read) = (pages + 1, read + messages.len());
            after = messages.last().unwrap()["id"].clone();
            if page["more"] == false {
                break;
            }
        }
        assert!(pages > 5, "{pages}");
        assert_eq!(read, 200);
    }
}

// R-C-072: sections of our own documentation, best first.
#[tokio::test]
async fn the_documentation_is_searched() {
    for gateway in Gateway::each().await {
        let one = Caller::new("one", "lab");
        let found = async |query: &str| {
            let arguments = json!({"query": query, "limit": 10});
            let value = gateway.value(&one, SEARCH, arguments).await;
            value["results"].as_array().unwrap().clone()
        };
        for (query, path, section) in [
            ("datetime timezone", "docs/tools.md", "agnt_datetime_now"),
            ("Argo CD health", "docs/gitops.md", "Argo CD"),
            (
                "what are exit codes of lint?",
                "docs/lint.md",
                "Check manifests",
            ),
            (
                "how do I rotate a key",
                "docs/concepts.md",
                "Four states of a key",
            ),
            (
                "the metric chandlery_sessions",
                "docs/operations.md",
                "Metrics",
            ),
        ] {
            let hits = found(query).await;
            let hit = hits.iter().take(3).find(|hit| hit["path"] == path);
            let hit = hit.unwrap_or_else(|| panic!("{query}: {hits:#?}"));
            assert_eq!(hit["section"], section, "{query}");
            assert!(!hit["title"].as_str().unwrap().is_empty());
            let length = hit["excerpt"].as_str().unwrap().len();
            assert!((1..5_000).contains(&length), "{length}");
        }
        // Endings of words do not matter.
        let (one_word, many) = (found("rotation").await, found("rotations").await);
        assert!(!one_word.is_empty());
        assert_eq!(one_word, many);
        let value = gateway.value(&one, SEARCH, json!({"query": "the"})).await;
        assert_eq!(value["results"].as_array().unwrap().len(), 5);
    }
}

// R-C-072: whatever is asked, it is words to look for.
#[tokio::test]
async fn no_query_is_a_syntax_error() {
    let gateway = Gateway::on(Database::sqlite()).await;
    let one = Caller::new("one", "lab");
    for query in [
        "\"",
        "\"unclosed",
        "NEAR(",
        "a AND",
        "AND OR NOT",
        "title:key",
        "key*",
        "-key",
        "^key",
        "{title}: key",
        "'; drop table docs; --",
        "key\n\tkey",
        "()",
        "…",
        "+",
        "ключ 鍵 🔑",
        "a\u{300}",
        "Ⓐ",
        "\u{345}",
        "%_?",
        "rowid",
        "docs",
        "*",
        "key \\\"",
        "\u{ad}",
        "1e999",
    ] {
        gateway.value(&one, SEARCH, json!({"query": query})).await;
    }
    let many = json!({"query": "a b ".repeat(100)});
    gateway.value(&one, SEARCH, many).await;
    let nothing = gateway.text(&one, SEARCH, json!({"query": "zzyzx"})).await;
    assert!(
        nothing.starts_with("nothing in the documentation"),
        "{nothing}"
    );
}

// R-C-161…171: as grouped tools list them.
#[tokio::test]
async fn grouped_tools_do_the_same() {
    let gateway = Gateway::on(Database::sqlite()).await;
    let one = Caller::new("one", "lab");
    let question = json!({"action": "ticket_create", "subject": "s", "body": "b"});
    let made = gateway.value(&one, "agnt_support_write", question).await;
    let get = json!({"action": "ticket_get", "ticket_id": made["ticket_id"]});
    let ticket = gateway.value(&one, "agnt_support_read", get).await;
    assert_eq!(ticket["subject"], "s");
    let search = json!({"action": "docs_search", "query": "quickstart"});
    let hits = gateway.value(&one, "agnt_support_read", search).await;
    assert!(!hits["results"].as_array().unwrap().is_empty());
    let catalog = gateway
        .pipeline
        .catalogs
        .of(&one.agent, gateway.pipeline.clock.now());
    let grouped: Vec<String> = catalog
        .tools
        .iter()
        .filter(|tool| tool.name.starts_with("agnt_support_"))
        .map(|tool| {
            format!(
                "{} {}",
                tool.name, tool.input_schema["properties"]["action"]["enum"]
            )
        })
        .collect();
    assert_eq!(
        grouped,
        [
            r#"agnt_support_read ["docs_search","tickets_list","ticket_get"]"#,
            r#"agnt_support_write ["ticket_create","ticket_reply"]"#,
        ]
    );
}
