//! Tasks of a server. Clients that take tasks look after them; for others the gateway waits.
//!
//! Only a client that takes tasks is declared as one that does, so that calls of others stream what they have to say. A
//! server that makes nothing but tasks of a tool says so, and then the gateway takes the task itself.

use std::borrow::Cow;
use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::time::{Instant, sleep};

use super::call::{Remote, answers};
use super::server::{Asking, Tally};
use super::trouble::Trouble;
use super::wire::{Kind, Params, Request, rpc_error};
use crate::family::{NEWER, TASKS};

/// How often the gateway looks after a task that it waits for, whatever the server suggests.
const LEAST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How often a task may ask while the gateway waits for it.
const MOST_QUESTIONS: usize = 10;

/// How it stands with a task.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Task<'a> {
    #[serde(borrow)]
    task_id: Cow<'a, str>,
    #[serde(borrow)]
    status: Cow<'a, str>,
    poll_interval_ms: Option<u64>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    input_requests: Option<Map<String, Value>>,
}

impl<'a> Task<'a> {
    fn read(answer: &'a [u8]) -> Result<Self, Trouble> {
        serde_json::from_slice(answer)
            .map_err(|_| Trouble::Broken("what it says of a task cannot be read"))
    }
}

impl Remote {
    /// Makes a call and waits for what comes of it, unless the client takes a task for an answer.
    pub(super) async fn outcome(
        &self,
        asking: &Asking<'_>,
        request: Request<'_>,
        tally: &mut Tally,
    ) -> Result<Bytes, Trouble> {
        if asking.takes_tasks || !self.features.tasks {
            return self.rounds(asking, request, tally).await;
        }
        let result = match self.rounds(asking, request.clone(), tally).await {
            // Nothing has happened yet.
            Err(Trouble::Rpc(error)) if error.requires(&["extensions", TASKS]) => {
                let asking = Asking {
                    takes_tasks: true,
                    ..*asking
                };
                self.rounds(&asking, request, tally).await?
            }
            result => result?,
        };
        match Kind::of(&result) {
            Some(kind) if kind.result_type() == Some("task") => {
                self.wait(asking, result, tally).await
            }
            _ => Ok(result),
        }
    }

    /// Waits for the result of a task, as long as a call may take; then the task is cancelled, as nobody would look after
    /// it.
    async fn wait(
        &self,
        asking: &Asking<'_>,
        begun: Bytes,
        tally: &mut Tally,
    ) -> Result<Bytes, Trouble> {
        let mut deadline = Instant::now() + self.server.patience;
        let mut answered = HashSet::new();
        let id = Task::read(&begun)?.task_id.into_owned();
        let about = |method, params: Params| Request {
            method,
            name: Some(Cow::Borrowed(&*id)),
            params: params.with("taskId", &id),
            ..Request::default()
        };
        let mut answer = begun;
        let trouble = loop {
            let task = Task::read(&answer)?;
            match &*task.status {
                "completed" => {
                    let result = task.result.ok_or(NO_RESULT)?;
                    return Ok(answer.slice_ref(result.get().as_bytes()));
                }
                "failed" => {
                    return Err(task
                        .error
                        .and_then(rpc_error)
                        .map_or(NO_RESULT, Trouble::Rpc));
                }
                "cancelled" => return Err(Trouble::CalledOff),
                "input_required" if asking.client.protocol_version() == NEWER => {
                    break Trouble::CannotAsk("only a client that takes tasks can be asked by one");
                }
                "input_required" => {
                    let mut questions = task.input_requests.unwrap_or_default();
                    // Those that it has not taken the answers of yet.
                    questions.retain(|key, _| answered.insert(key.clone()));
                    if answered.len() > MOST_QUESTIONS {
                        break Trouble::CannotAsk("it asks again and again");
                    }
                    if !questions.is_empty() {
                        let answers = match answers(&Value::Object(questions), asking.client).await
                        {
                            Ok(answers) => answers,
                            Err(trouble) => break trouble,
                        };
                        // A person has as long as their client gives them.
                        deadline = Instant::now() + self.server.patience;
                        let params = Params::default().with("inputResponses", &answers);
                        let request = about("tasks/update", params);
                        self.server
                            .ask(self.spoken, asking, &request, tally)
                            .await?;
                    }
                }
                _ => {}
            }
            let suggested = Duration::from_millis(task.poll_interval_ms.unwrap_or_default());
            let pause = suggested.clamp(LEAST_PAUSE, LONGEST_PAUSE);
            if Instant::now() + pause > deadline {
                break Trouble::GoesOn;
            }
            if asking
                .cancelled
                .run_until_cancelled(sleep(pause))
                .await
                .is_none()
            {
                break Trouble::Cancelled;
            }
            let request = about("tasks/get", Params::default());
            match self.server.ask(self.spoken, asking, &request, tally).await {
                Ok(told) => answer = told,
                Err(trouble) => break trouble,
            }
        };
        let never = Default::default();
        let asking = Asking {
            cancelled: &never,
            ..*asking
        };
        let cancel = about("tasks/cancel", Params::default());
        // One that cannot be cancelled ends by itself.
        let _ = self.server.ask(self.spoken, &asking, &cancel, tally).await;
        Err(trouble)
    }
}

const NO_RESULT: Trouble = Trouble::Broken("a task ends without a result");
