//! What a tool family is: a few tools that belong together, and how calls of them run.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::directory::Agent;
use crate::gate::Permit;
use crate::tool::{Operation, Output, Tool, ToolError};

/// The stateless revision of the protocol; every request says so in its `_meta` and its headers.
pub const NEWER: &str = "2026-07-28";
/// The revisions with `initialize` and sessions, newest first.
pub const OLDER: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// The extension of the protocol for calls that go on for longer than a request.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";

/// Whether these capabilities, of a client or a server, have tasks among them.
pub fn has_tasks(capabilities: &Value) -> bool {
    capabilities["extensions"][TASKS].is_object()
}

/// Code of the error that a server gives whose client lacks a capability.
pub const MISSING_CAPABILITY: i32 = -32021;

/// A tool family. Adding one is a folder under `families/` and a line in `families/mod.rs`.
pub trait Family: Send + Sync + 'static {
    /// The tools, in the order in which they are listed. Asked once, at start; those of a source are offered by its
    /// connector instead.
    fn tools(&self) -> Vec<Tool> {
        Vec::new()
    }

    /// What an agent that has any of the tools should know before its first call: one or two sentences.
    fn instructions(&self) -> Option<&'static str> {
        None
    }

    /// What this very agent should know from its next session on, after [`Family::instructions`].
    ///
    /// Asked when a session begins. It has a second or two, and what it says is cut at 8,000 characters; when it can't
    /// say, the session begins without.
    fn standing<'a>(&'a self, agent: &'a Agent) -> BoxFuture<'a, Option<String>> {
        let _ = agent;
        Box::pin(std::future::ready(None))
    }

    /// Names that are answered but not listed, each with the tool that answers and how its arguments are rewritten.
    fn aliases(&self) -> Vec<Alias> {
        Vec::new()
    }

    /// What a call of `tool` with these arguments does. It decides how the call is recorded, and that one which
    /// writes runs to its end though its client goes away. Arguments that make no sense are the tool's own operation.
    fn operation(&self, tool: &Tool, arguments: &RawValue) -> Operation {
        let _ = arguments;
        Operation {
            name: tool.name.clone(),
            effect: tool.effect,
        }
    }

    /// The most that a call of `tool` with these arguments can cost, in cents; `None` when nothing bounds it.
    fn cost(&self, tool: &Tool, arguments: &RawValue) -> Option<u64> {
        let _ = (tool, arguments);
        Some(0)
    }

    /// Runs a call that the gate has permitted.
    ///
    /// Dropping the future, or `call.cancelled`, ends a call that reads; a call that writes runs to its end.
    fn call<'a>(
        &'a self,
        permit: &'a Permit<'a>,
        call: Call<'a>,
    ) -> BoxFuture<'a, Result<Output, ToolError>>;

    /// The ToolSource that it is the way to, by name. What such a family has besides tools is for agents alone whose
    /// grants say so.
    fn source(&self) -> Option<&str> {
        None
    }

    /// Which of the protocol's other features the family has.
    fn features(&self) -> Features {
        Features::default()
    }

    /// Tells an agent what changes of what is `wanted` until it is dropped. A few changes may be missed.
    fn changes(&self, agent: &Arc<Agent>, wanted: &Wanted) -> BoxStream<'static, Change> {
        let _ = (agent, wanted);
        Box::pin(futures::stream::pending())
    }

    /// Answers a request of [`Family::features`] (`resources/…`, `prompts/…`, `completion/complete`, …), JSON in and out.
    ///
    /// One for something that it does not have gets [`RpcError::not_found`]; another family may have it.
    fn request<'a>(
        &'a self,
        agent: &'a Arc<Agent>,
        method: &'a str,
        params: Value,
        client: &'a dyn Client,
    ) -> BoxFuture<'a, Result<Value, RpcError>> {
        let _ = (agent, params, client);
        Box::pin(std::future::ready(Err(RpcError::no_method(method))))
    }
}

/// An older name of a tool.
#[derive(Clone, Copy)]
pub struct Alias {
    pub name: &'static str,
    /// Listed name of the tool that answers.
    pub tool: &'static str,
    /// From the older tool's arguments to the tool's. What was wrong in them is still wrong afterwards.
    pub rewrite: fn(&RawValue) -> Box<RawValue>,
}

/// One call, as a family gets it.
pub struct Call<'a> {
    /// A JSON object; `{}` when the client sent none.
    pub arguments: &'a RawValue,
    /// Tells callers under one key apart: the older era's session, or `_meta["chandlery.dev/worker"]`.
    pub worker: Option<&'a str>,
    /// The client at the other end.
    pub client: &'a dyn Client,
    pub cancelled: CancellationToken,
    /// What the call has cost, in cents, once it is known.
    pub spent: &'a AtomicU64,
}

impl Call<'_> {
    /// Says what the call has cost, in cents: no more than [`Family::cost`].
    pub fn spent(&self, cents: u64) {
        self.spent.store(cents, Ordering::Relaxed);
    }
}

/// The client of a running call. On the fast lane it neither wants progress nor comes back from earlier questions: see
/// [`Tool::interactive`].
pub trait Client: Send + Sync {
    /// Revision of the protocol that the request speaks.
    fn protocol_version(&self) -> &str;
    /// The client's declared capabilities, as JSON.
    fn capabilities(&self) -> Value;
    /// The progress token of the request.
    fn progress_token(&self) -> Option<Value>;
    /// From which level on the client wants log messages of this request (newer era only).
    fn log_level(&self) -> Option<Value> {
        None
    }
    /// `inputResponses` as they came, and `requestState` as [`Output::NeedsInput`] gave it, of a request that was
    /// answered with questions before.
    fn retry(&self) -> Option<Value>;
    /// Sends a notification on this request's stream.
    fn notify<'a>(&'a self, method: &'a str, params: Value) -> BoxFuture<'a, Result<(), RpcError>>;
    /// Asks the client and waits for its answer (older eras only).
    fn request<'a>(
        &'a self,
        method: &'a str,
        params: Value,
    ) -> BoxFuture<'a, Result<Value, RpcError>>;
}

/// Features of the protocol besides tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    pub resources: bool,
    /// It tells when a resource that somebody has subscribed to is updated.
    pub subscriptions: bool,
    /// It tells when the list of resources has changed.
    pub resource_changes: bool,
    pub prompts: bool,
    /// It tells when the list of prompts has changed.
    pub prompt_changes: bool,
    pub completions: bool,
    pub logging: bool,
    /// Calls may go on as tasks: `tasks/get`, `tasks/update` and `tasks/cancel`, about the server's own ids.
    pub tasks: bool,
}

impl Features {
    /// What either has.
    pub fn or(self, other: Self) -> Self {
        Self {
            resources: self.resources | other.resources,
            subscriptions: self.subscriptions | other.subscriptions,
            resource_changes: self.resource_changes | other.resource_changes,
            prompts: self.prompts | other.prompts,
            prompt_changes: self.prompt_changes | other.prompt_changes,
            completions: self.completions | other.completions,
            logging: self.logging | other.logging,
            tasks: self.tasks | other.tasks,
        }
    }
}

/// What a client wants to hear of besides its tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub resource_list: bool,
    pub prompt_list: bool,
    /// URIs of resources.
    pub resources: BTreeSet<String>,
}

impl Wanted {
    /// The part that a family of these features can tell.
    pub fn of(&self, has: Features) -> Self {
        Self {
            resource_list: self.resource_list && has.resource_changes,
            prompt_list: self.prompt_list && has.prompt_changes,
            resources: if has.subscriptions {
                self.resources.clone()
            } else {
                BTreeSet::new()
            },
        }
    }

    pub fn covers(&self, change: &Change) -> bool {
        match change {
            Change::ResourceList => self.resource_list,
            Change::PromptList => self.prompt_list,
            Change::Resource(uri) => self.resources.contains(uri),
        }
    }
}

/// Something has changed that a client may want to hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    ResourceList,
    PromptList,
    /// The resource of this URI.
    Resource(String),
}

impl Change {
    /// The notification that says so: its method and its parameters.
    pub fn notification(&self) -> (&'static str, Value) {
        match self {
            Self::ResourceList => ("notifications/resources/list_changed", json!({})),
            Self::PromptList => ("notifications/prompts/list_changed", json!({})),
            Self::Resource(uri) => ("notifications/resources/updated", json!({"uri": uri})),
        }
    }
}

/// A JSON-RPC error.
#[derive(Clone, Debug, PartialEq)]
pub struct RpcError {
    pub code: i32,
    pub message: String,
    pub data: Option<Value>,
}

impl RpcError {
    /// Whether a server refuses because its client lacks the capability that the path leads to.
    pub fn requires(&self, path: &[&str]) -> bool {
        let required = self
            .data
            .as_ref()
            .filter(|_| self.code == MISSING_CAPABILITY);
        let required = required.and_then(|data| data.get("requiredCapabilities"));
        let mut steps = path.iter();
        required
            .and_then(|required| steps.try_fold(required, |at, step| at.get(step)))
            .is_some()
    }

    /// There is no such method.
    pub fn no_method(method: &str) -> Self {
        Self {
            code: -32601,
            message: format!("Method not found: {method}"),
            data: None,
        }
    }

    /// There is no such prompt or resource.
    pub fn not_found(what: &str) -> Self {
        Self {
            code: -32602,
            message: format!("Not found: {what}"),
            data: None,
        }
    }
}
