//! A family whose tools do what the tests need: wait, write, talk, give too much.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use chandlery_gateway::family::{Call, Family};
use chandlery_gateway::gate::Permit;
use chandlery_gateway::tool::{Effect, Output, Served, Tool, ToolError};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::Notify;

/// What has become of the fixture's calls.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) started: AtomicUsize,
    pub(crate) finished: AtomicUsize,
    /// Calls that were dropped or cancelled before their end.
    pub(crate) abandoned: AtomicUsize,
    /// Lets every waiting call go on.
    pub(crate) go: Notify,
}

impl Seen {
    pub(crate) fn started(&self) -> usize {
        self.started.load(Ordering::SeqCst)
    }

    pub(crate) fn finished(&self) -> usize {
        self.finished.load(Ordering::SeqCst)
    }

    pub(crate) fn abandoned(&self) -> usize {
        self.abandoned.load(Ordering::SeqCst)
    }
}

pub(crate) struct Fixture {
    seen: Arc<Seen>,
}

impl Fixture {
    pub(crate) fn new(seen: Arc<Seen>) -> Self {
        Self { seen }
    }

    /// Waits until the test says go.
    async fn wait(&self) {
        struct Unfinished<'s>(&'s Seen, bool);
        impl Drop for Unfinished<'_> {
            fn drop(&mut self) {
                let count = if self.1 {
                    &self.0.finished
                } else {
                    &self.0.abandoned
                };
                count.fetch_add(1, Ordering::SeqCst);
            }
        }
        let go = self.seen.go.notified();
        self.seen.started.fetch_add(1, Ordering::SeqCst);
        let mut unfinished = Unfinished(&self.seen, false);
        go.await;
        unfinished.1 = true;
    }
}

impl Family for Fixture {
    fn tools(&self) -> Vec<Tool> {
        let reads = Effect::Reads;
        let writes = Effect::Writes { idempotent: false };
        [
            ("fixture_echo", reads, false),
            ("fixture_wait", reads, false),
            ("fixture_write", writes, false),
            ("fixture_talk", reads, true),
            ("fixture_ask", reads, true),
            ("fixture_much", reads, false),
            ("other_tool", reads, false),
        ]
        .into_iter()
        .map(|(name, effect, interactive)| Tool {
            name: name.into(),
            title: name.into(),
            description: "A tool of the tests.".into(),
            input_schema: json!({"type": "object"}).as_object().cloned().unwrap(),
            effect,
            served: Served::Entry,
            group: None,
            interactive,
            origin: None,
        })
        .collect()
    }

    fn instructions(&self) -> Option<&'static str> {
        Some("The fixture says hello.")
    }

    fn call<'a>(
        &'a self,
        permit: &'a Permit<'a>,
        call: Call<'a>,
    ) -> BoxFuture<'a, Result<Output, ToolError>> {
        Box::pin(async move {
            let arguments: Value = serde_json::from_str(call.arguments.get())
                .map_err(|error| ToolError::arguments(error.to_string()))?;
            match &*permit.tool().name {
                "fixture_echo" => {
                    if arguments["fail"] == true {
                        return Err(ToolError::refused("told to fail"));
                    }
                    let value = json!({"arguments": arguments, "worker": call.worker});
                    Ok(Output::Structured {
                        text: value.to_string(),
                        value,
                    })
                }
                "fixture_talk" => {
                    for at in 1..=2 {
                        let progress =
                            json!({"progressToken": call.client.progress_token(), "progress": at});
                        let _ = call.client.notify("notifications/progress", progress).await;
                    }
                    self.wait().await;
                    Ok(Output::Text("talked".into()))
                }
                "fixture_ask" => {
                    let answer = call.client.request("elicitation/create", json!({"message": "well?", "requestedSchema": {"type": "object", "properties": {}}})).await;
                    Ok(Output::Text(format!("{answer:?}")))
                }
                "fixture_much" => Ok(Output::Text("x".repeat(2 << 20))),
                _ => {
                    self.wait().await;
                    Ok(Output::Text("waited".into()))
                }
            }
        })
    }
}
