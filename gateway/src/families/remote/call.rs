//! Calls: one request to the server, and its result passed on as it came, in the words of the client's era.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::changes;
use super::features;
use super::mirror::{self, Mirror};
use super::server::{Asking, QUESTIONS, Server, Spoken, Tally};
use super::trouble::Trouble;
use super::wire::{Kind, Params, Request};
use crate::directory::Agent;
use crate::family::{Call, Change, Client, Family, Features, NEWER, RpcError, Wanted, has_tasks};
use crate::gate::Permit;
use crate::tool::{Output, ToolError};
use crate::usage::{self, Usage};

/// How often a server may ask again before there is a result.
const ROUNDS: usize = 10;

/// The tools of one server, as it was when it was asked last.
pub(super) struct Remote {
    pub(super) server: Arc<Server>,
    pub(super) spoken: Spoken,
    /// What names begin with.
    pub(super) prefix: String,
    pub(super) features: Features,
    pub(super) mirrors: HashMap<String, Vec<Mirror>>,
    pub(super) usage: Usage,
}

impl Family for Remote {
    fn source(&self) -> Option<&str> {
        Some(&self.server.name)
    }

    fn call<'a>(
        &'a self,
        permit: &'a Permit<'a>,
        call: Call<'a>,
    ) -> BoxFuture<'a, Result<Output, ToolError>> {
        Box::pin(self.run(permit, call))
    }

    fn features(&self) -> Features {
        self.features
    }

    fn changes(&self, agent: &Arc<Agent>, wanted: &Wanted) -> BoxStream<'static, Change> {
        changes::of(&self.server, self.spoken, &agent.uid, wanted.clone())
    }

    fn request<'a>(
        &'a self,
        agent: &'a Arc<Agent>,
        method: &'a str,
        params: Value,
        client: &'a dyn Client,
    ) -> BoxFuture<'a, Result<Value, RpcError>> {
        Box::pin(features::request(self, agent, method, params, client))
    }
}

impl Remote {
    async fn run(&self, permit: &Permit<'_>, call: Call<'_>) -> Result<Output, ToolError> {
        let tool = permit.tool();
        let origin = tool.origin.as_deref();
        let operation = origin.map_or(&*tool.name, |origin| origin.operation());
        let mirrors = self.mirrors.get(operation).map_or(&[][..], Vec::as_slice);
        let request = Request {
            method: "tools/call",
            name: Some(Cow::Borrowed(operation)),
            params: Params::default()
                .with("name", operation)
                .with_raw("arguments", call.arguments),
            mirrored: match mirrors {
                [] => Vec::new(),
                mirrors => mirror::headers(mirrors, call.arguments),
            },
        };
        let asking = Asking {
            agent: &permit.agent().uid,
            client: call.client,
            takes_tasks: self.features.tasks
                && call.client.protocol_version() == NEWER
                && has_tasks(&call.client.capabilities()),
            cancelled: &call.cancelled,
        };
        let began = Instant::now();
        let mut tally = Tally::default();
        let result = self.outcome(&asking, request, &mut tally).await;
        let output = result.and_then(|result| self.output(result, &asking));
        let note = tally
            .asked_in_vain
            .then(|| asked_in_vain(&self.server.name, call.client));
        let outcome = match &output {
            Ok((_, false)) => "done",
            Ok((_, true)) => "failed",
            Err(trouble) => trouble.outcome(),
        };
        self.usage.record(usage::Call {
            at: permit.now(),
            agent: permit.agent().clone(),
            tool: tool.name.to_string(),
            provider: self.server.name.clone(),
            method: "tools/call".to_owned(),
            path: self.server.path().to_owned(),
            status: tally.status,
            outcome,
            latency: began.elapsed(),
            cost_cents: 0,
            request_bytes: tally.sent,
            response_bytes: tally.received,
        });
        match (output, note) {
            (Ok((Output::Raw(result), _)), Some(note)) => Ok(Output::Raw(noted(result, &note))),
            (Ok((output, _)), _) => Ok(output),
            (Err(trouble), note) => {
                self.notice(&trouble);
                let mut error = trouble.tool_error(&self.server.name);
                if let Some(note) = note {
                    error.message = format!("{} {note}", error.message);
                }
                Err(error)
            }
        }
    }

    /// Asks, and where a server of the newer era asks back, puts its questions to a client of the older one.
    pub(super) async fn rounds(
        &self,
        asking: &Asking<'_>,
        mut request: Request<'_>,
        tally: &mut Tally,
    ) -> Result<Bytes, Trouble> {
        let client = asking.client;
        // A client of the newer era answers questions by calling again, and a server of the older one asks on its stream.
        let must_ask = self.spoken.is_newer_for(client) && client.protocol_version() != NEWER;
        let first = request.params.clone();
        if let Some(Value::Object(retry)) = client.retry() {
            for (name, value) in &retry {
                request.params = request.params.with(name, value);
            }
        }
        for _ in 0..ROUNDS {
            let result = self
                .server
                .ask(self.spoken, asking, &request, tally)
                .await?;
            if !result.starts_with(b"{") {
                return Err(Trouble::Broken("a result is no object"));
            }
            let is_question = || {
                let kind = Kind::of(&result);
                kind.is_some_and(|kind| kind.result_type() == Some("input_required"))
            };
            if !must_ask || !is_question() {
                return Ok(result);
            }
            let questions: Value = serde_json::from_slice(&result)
                .map_err(|_| Trouble::Broken("its questions cannot be read"))?;
            let answers = answers(&questions["inputRequests"], client).await?;
            request.params = first.clone().with("inputResponses", &answers);
            if let Some(state) = questions.get("requestState") {
                request.params = request.params.with("requestState", state);
            }
        }
        Err(Trouble::CannotAsk("it asks again and again"))
    }

    /// What a failure says of the server beyond this call.
    pub(super) fn notice(&self, trouble: &Trouble) {
        // It does not speak as it did, or does not have what it had.
        if matches!(trouble, Trouble::Rpc(error) if matches!(error.code, -32601 | -32022)) {
            self.server.has_changed.notify_one();
        }
    }

    /// A result in the words of the client's era, and whether it says that the tool failed.
    fn output(&self, result: Bytes, asking: &Asking<'_>) -> Result<(Output, bool), Trouble> {
        let broken = |_| Trouble::Broken("a result cannot be read");
        let Some(kind) = Kind::of(&result) else {
            return Err(Trouble::Broken("a result is no object"));
        };
        let is_error = kind.is_error();
        let is_newer = asking.client.protocol_version() == NEWER;
        match kind.result_type() {
            Some("input_required") if is_newer => {
                let questions = serde_json::from_slice(&result).map_err(broken)?;
                return Ok((Output::NeedsInput(questions), false));
            }
            Some("task") if asking.takes_tasks => {
                let source = self.server.name.clone();
                let task = serde_json::from_slice(&result).map_err(broken)?;
                return Ok((Output::Task { source, task }, false));
            }
            Some("complete") if is_newer => {}
            None if !is_newer => {}
            None => {
                let mut all = Vec::with_capacity(result.len() + 32);
                all.extend_from_slice(b"{\"resultType\":\"complete\"");
                let rest = result[1..].trim_ascii_start();
                if rest != b"}" {
                    all.push(b',');
                }
                all.extend_from_slice(rest);
                return Ok((Output::Raw(all.into()), is_error));
            }
            Some("complete") => {
                let mut members: BTreeMap<Cow<'_, str>, &RawValue> =
                    serde_json::from_slice(&result).map_err(broken)?;
                members.remove("resultType");
                // Revisions before the newer one allow objects only.
                let is_object = |raw: &&RawValue| raw.get().starts_with('{');
                if !members.get("structuredContent").is_none_or(is_object) {
                    members.remove("structuredContent");
                }
                // As they were written: what a number or a text is, the client may read otherwise than we do.
                let members = serde_json::to_vec(&members).map_err(broken)?;
                return Ok((Output::Raw(members.into()), is_error));
            }
            Some(_) => {
                return Err(Trouble::Broken(
                    "a result is of a kind that was not asked for",
                ));
            }
        }
        Ok((Output::Raw(result.clone()), is_error))
    }
}

/// What the agent reads whose client could not be asked.
fn asked_in_vain(server: &str, client: &dyn Client) -> String {
    let instead = match client.protocol_version() {
        NEWER => {
            "a server of an older revision cannot ask a client of this one: connect with an older one to be asked"
        }
        _ => "the client has not declared that it can be asked",
    };
    format!(
        "[{server} asked its client something in the middle of this call and was refused: {instead}.]"
    )
}

/// A result with a note at its end; what is no result stays as it is.
fn noted(result: Bytes, note: &str) -> Bytes {
    let Ok(mut told) = serde_json::from_slice::<Value>(&result) else {
        return result;
    };
    let Some(content) = told.get_mut("content").and_then(Value::as_array_mut) else {
        return result;
    };
    content.push(json!({"type": "text", "text": note}));
    told.to_string().into()
}

/// The client's answers to the questions of one round.
pub(super) async fn answers(questions: &Value, client: &dyn Client) -> Result<Value, Trouble> {
    let mut answers = Map::new();
    for (key, question) in questions.as_object().into_iter().flatten() {
        let method = question["method"].as_str().unwrap_or_default();
        if !QUESTIONS.iter().any(|(_, known)| *known == method) {
            return Err(Trouble::CannotAsk("that is no question of the protocol"));
        }
        let answer = client.request(method, question["params"].clone()).await;
        let answer = answer.map_err(|_| Trouble::CannotAsk("the client does not answer"))?;
        answers.insert(key.clone(), answer);
    }
    Ok(Value::Object(answers))
}
