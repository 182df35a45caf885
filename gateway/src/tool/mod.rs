//! What a tool is and what a call of one gives back. Knows no other module of the gateway.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use chandlery_crds::{Level, names};
use serde_json::{Map, Value};

/// A tool as it is listed.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// At most 64 characters of `[A-Za-z0-9_-]`, unique in an agent's list.
    pub name: Cow<'static, str>,
    pub title: Cow<'static, str>,
    pub description: Cow<'static, str>,
    /// JSON Schema 2020-12 of the arguments; always of type object.
    pub input_schema: Map<String, Value>,
    pub effect: Effect,
    /// What decides whether an agent has it.
    pub served: Served,
    /// Where a grouped list has it; `None` when it stands there by itself.
    pub group: Option<Group>,
    /// Calls talk to their client without looking whether it listens, or have headers that mirror arguments
    /// (`x-mcp-header`): the fast lane has neither.
    pub interactive: bool,
    /// Where it comes from; `None` for what is built in.
    pub origin: Option<Box<Origin>>,
}

/// Where a tool comes from that is not built in. It is served under live grants alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Origin {
    /// Name of the ToolSource, in the agent's namespace.
    pub source: String,
    /// What entries call it after `<source>/`: its operation, and what else it is known by, such as `GET /customers`.
    pub operations: Vec<String>,
    /// The least that a call needs.
    pub permission: Level,
    /// Its answers are data: in a grouped list the caller chooses how they look (R-C-203).
    pub is_data: bool,
    /// JSON Schema of the structured result, where the source publishes one.
    pub output_schema: Option<Map<String, Value>>,
}

impl Origin {
    /// What the source calls it.
    pub fn operation(&self) -> &str {
        self.operations.first().map_or("", String::as_str)
    }
}

impl Tool {
    /// Whether an entry of an Agent or a grant names the tool: by its name, or as `<source>/<operation>`; `*` stands for
    /// any run of characters.
    pub fn is_named_by(&self, entry: &str) -> bool {
        match &self.origin {
            None => names::glob_matches(entry, &self.name),
            Some(origin) => entry
                .strip_prefix(origin.source.as_str())
                .and_then(|rest| rest.strip_prefix('/'))
                .is_some_and(|glob| {
                    let mut operations = origin.operations.iter();
                    operations.any(|operation| names::glob_matches(glob, operation))
                }),
        }
    }

    /// How an entry would name it.
    pub fn entry(&self) -> Cow<'_, str> {
        match &self.origin {
            None => Cow::Borrowed(&*self.name),
            Some(origin) => Cow::Owned(format!("{}/{}", origin.source, origin.operation())),
        }
    }
}

/// A tool of grouped lists: all operations of one resource and risk level, told apart by `action`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Name of the grouped tool, such as `agnt_db_read`; the same words in every operation of the group.
    pub name: Cow<'static, str>,
    pub title: Cow<'static, str>,
    /// What the group is for, one or two sentences; the list of actions follows it.
    pub description: Cow<'static, str>,
    /// This operation's value of `action`, such as `select`.
    pub action: Cow<'static, str>,
}

/// What a call does to the world; becomes the tool's annotations and decides when its audit row is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    Reads,
    /// Adds, or changes so that repeating it changes nothing more.
    Writes {
        idempotent: bool,
    },
    Destroys {
        idempotent: bool,
    },
}

impl Effect {
    /// What two operations together do; idempotent when all that write are.
    pub fn strongest(self, other: Self) -> Self {
        match (self, other) {
            (Self::Reads, other) | (other, Self::Reads) => other,
            (Self::Writes { idempotent: a }, Self::Writes { idempotent: b }) => {
                Self::Writes { idempotent: a && b }
            }
            (
                Self::Writes { idempotent: a } | Self::Destroys { idempotent: a },
                Self::Writes { idempotent: b } | Self::Destroys { idempotent: b },
            ) => Self::Destroys { idempotent: a && b },
        }
    }
}

/// One thing that a tool can do: what the record of a call names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The tool's name, followed by `.<action>` where the tool has several.
    pub name: Cow<'static, str>,
    pub effect: Effect,
}

/// What decides whether an agent has a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// Every deployed agent has it.
    Always,
    /// A switch of the Agent's spec is on.
    Switch(Switch),
    /// An entry of `spec.tools` names it.
    Entry,
}

/// The switches of an Agent's spec that serve tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// `workspaceToolsEnabled`. With the switch off, an entry still serves a tool of these.
    WorkspaceTools,
    /// `workspaceDb.enabled`.
    Database,
    /// `workspaceDb.enabled` without `readOnly`.
    DatabaseWrites,
    /// `workspaceDb.allowApplyMigration` without `readOnly`.
    DatabaseMigrations,
    /// `connectionsDb.postgresEnabled`.
    PostgresConnection,
    /// `connectionsDb.supabaseEnabled`.
    SupabaseConnection,
    /// Any entry of `documentCollectionIds`.
    Documents,
    /// `observabilityEnabled`.
    Observability,
    /// `agentInvocationEnabled`.
    AgentInvocation,
    /// `dashboardsEnabled`.
    Dashboards,
    /// `codeExecution.enabled`.
    CodeExecution,
    /// `codeExecution.enabled` with any of `codeExecution.skills`.
    TypescriptSkills,
    /// `dataJobsEnabled`.
    DataJobs,
}

/// What a call gives back when it worked.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    Text(String),
    /// A JSON value and the text that says the same.
    Structured {
        text: String,
        value: Value,
    },
    /// A whole `tools/call` result as JSON, in the words of the client's revision; passed on as it is.
    Raw(Bytes),
    /// Questions to the client, as an `input_required` result of the newer era: the call is not done. Its
    /// `requestState` is sealed on its way to the client, and is good for the same call of the same agent alone.
    NeedsInput(Value),
    /// The call goes on as a task of the server behind a ToolSource, given as it told: a `CreateTaskResult` of the newer
    /// era. Its id is sealed on its way to the client.
    Task {
        /// Name of the ToolSource.
        source: String,
        task: Value,
    },
}

impl Output {
    /// How many bytes the agent reads, protocol aside.
    pub fn size(&self) -> usize {
        match self {
            Self::Text(text) | Self::Structured { text, .. } => text.len(),
            Self::Raw(result) => result.len(),
            Self::NeedsInput(value) | Self::Task { task: value, .. } => value.to_string().len(),
        }
    }
}

/// Largest result in bytes; a common client breaks above 1 MiB per event, envelope included.
pub const MAX_RESULT_BYTES: usize = 1_000_000;

/// The longest text that a result has room for, in bytes as [`escaped`] counts them.
pub const MAX_TEXT_BYTES: usize = MAX_RESULT_BYTES - 256;

/// How many bytes a byte of a text takes in the JSON of a result.
pub fn escaped(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..b' ' => 6,
        _ => 1,
    }
}

/// As much of `text` as takes at most `room` bytes, where a byte of it takes as many as `size` says.
pub fn beginning(text: &str, mut room: usize, size: impl Fn(u8) -> usize) -> &str {
    let mut end = 0;
    for byte in text.bytes() {
        match room.checked_sub(size(byte)) {
            Some(left) => room = left,
            None => break,
        }
        end += 1;
    }
    &text[..text.floor_char_boundary(end)]
}

/// A call that did not work, in words for the agent: what was wrong and what to do instead.
///
/// Becomes a result with `isError`, never a protocol error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolError {
    pub kind: ErrorKind,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The arguments were wrong; nothing was done.
    Arguments,
    /// The call was understood and refused; nothing was done.
    Refused,
    /// Something of ours or upstream failed; calling again may work.
    Unavailable,
    /// The client lacks a capability of the protocol that the tool cannot do without, by name. A protocol error, since
    /// it is about the client and not about the call.
    NeedsCapability(&'static str),
    /// What the client sent back of an earlier round is not what it was given. A protocol error too.
    ForgedState,
    /// The source says that the request's parameters are wrong. A protocol error too.
    Params,
}

impl ErrorKind {
    /// The outcome that audit rows, logs and metrics name.
    pub fn outcome(self) -> &'static str {
        match self {
            Self::Arguments => "bad_arguments",
            Self::Refused => "refused",
            Self::Unavailable => "failed",
            Self::NeedsCapability(_) => "needs_capability",
            Self::ForgedState => "forged_state",
            Self::Params => "bad_parameters",
        }
    }
}

impl ToolError {
    pub fn arguments(message: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::Arguments,
            message: message.into(),
        }
    }

    pub fn refused(message: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::Refused,
            message: message.into(),
        }
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::Unavailable,
            message: message.into(),
        }
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ToolError {}
