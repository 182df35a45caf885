//! Why there is no result, in words for the agent and for whoever looks after the source.

use chandlery_crds::conditions::reason;
use http::StatusCode;

use crate::connector::{Failure, visible};
use crate::families::connect;
use crate::family::{RpcError, TASKS};
use crate::outbound::OutboundError;
use crate::tool::{ErrorKind, ToolError};

/// Characters of a server's own words that are passed on.
const WORDS: usize = 1_000;
/// Capabilities that a server may miss in its client.
const CAPABILITIES: [&str; 3] = ["elicitation", "sampling", "roots"];

#[derive(Debug)]
pub(super) enum Trouble {
    Outbound(OutboundError),
    /// No JSON-RPC came with it, or none that matters.
    Status(StatusCode),
    Rpc(RpcError),
    /// The session is not, or no longer, there.
    NoSession,
    /// What came is not MCP.
    Broken(&'static str),
    /// Nothing more came in time.
    Silent,
    /// The client gave up.
    Cancelled,
    /// The server asks for something that cannot be asked of the client.
    CannotAsk(&'static str),
    /// The server has cancelled a task.
    CalledOff,
    /// A task takes longer than a call may, and nobody can look after it.
    GoesOn,
}

impl From<OutboundError> for Trouble {
    fn from(error: OutboundError) -> Self {
        Self::Outbound(error)
    }
}

impl Trouble {
    /// A constant word for records.
    pub(super) fn outcome(&self) -> &'static str {
        match self {
            Self::Outbound(error) => error.kind(),
            Self::Status(_) => "failed",
            Self::Rpc(_) => "rpc_error",
            Self::NoSession => "no_session",
            Self::Broken(_) => "broken",
            Self::Silent => "timed_out",
            Self::Cancelled => "cancelled",
            Self::CannotAsk(_) => "cannot_ask",
            Self::CalledOff => "called_off",
            Self::GoesOn => "timed_out",
        }
    }

    /// For a log and a condition, about the server called `name`.
    fn sentence(&self, name: &str) -> String {
        match self {
            Self::Outbound(error) => error.to_string(),
            Self::Status(status) => match status.as_u16() {
                401 | 403 => format!(
                    "{name} refuses the credential ({status}): whoever looks after the ToolSource has to see to it"
                ),
                404 | 405 => format!("{name} has no MCP server at its URL ({status})"),
                429 => format!("{name} asks for fewer calls ({status}): try again later"),
                500.. => format!("{name} failed ({status}): try again later"),
                _ => format!("{name} does not take the request ({status})"),
            },
            Self::Rpc(error) => {
                let said = visible(&error.message);
                let said: String = said.chars().take(WORDS).collect();
                format!("{name} answered with error {}: {said}", error.code)
            }
            Self::NoSession => format!("{name} ends its sessions at once: try again later"),
            Self::Broken(what) => format!("{name} does not speak MCP as it should: {what}"),
            Self::Silent => format!("{name} did not finish in time"),
            Self::Cancelled => "the call was cancelled".to_owned(),
            Self::CannotAsk(why) => format!("{name} asks its client something, and {why}"),
            Self::CalledOff => format!("{name} has cancelled the task that this call had become"),
            Self::GoesOn => format!(
                "{name} made a task of this call that did not finish in time, and was told to cancel it; part of it may be done. Ask for less, use a client that declares the extension {TASKS}, or let whoever looks after the ToolSource raise its timeout"
            ),
        }
    }

    /// For the agent.
    pub(super) fn tool_error(self, name: &str) -> ToolError {
        let kind = match &self {
            Self::Rpc(error) if error.code == -32602 => ErrorKind::Params,
            Self::Rpc(error) => match missing(error) {
                Some(capability) => ErrorKind::NeedsCapability(capability),
                None => ErrorKind::Unavailable,
            },
            _ => ErrorKind::Unavailable,
        };
        let message = match (kind, &self) {
            (ErrorKind::Params | ErrorKind::NeedsCapability(_), Self::Rpc(error)) => {
                visible(&error.message).chars().take(WORDS).collect()
            }
            _ => self.sentence(name),
        };
        ToolError { kind, message }
    }

    /// For a client that asked for something else than a tool.
    pub(super) fn rpc_error(self, name: &str) -> RpcError {
        match self {
            Self::Rpc(error) => error,
            other => RpcError {
                code: -32603,
                message: other.sentence(name),
                data: None,
            },
        }
    }

    /// For whoever looks after the source.
    pub(super) fn failure(self, name: &str) -> Failure {
        match self {
            Self::Outbound(OutboundError::TooLarge { limit, .. }) => Failure::new(
                reason::DOCUMENT_INVALID,
                format!(
                    "a page of its list of tools is larger than {limit} bytes: let the server publish less, or in shorter pages"
                ),
            ),
            Self::Outbound(error) => connect::failure(error),
            Self::Status(status) if matches!(status.as_u16(), 401 | 403) => {
                Failure::new(reason::CREDENTIAL_REFUSED, self.sentence(name))
            }
            Self::Broken(_) => Failure::new(reason::DOCUMENT_INVALID, self.sentence(name)),
            _ => Failure::new(reason::UNREACHABLE, self.sentence(name)),
        }
    }
}

/// The capability that the server misses in its client.
fn missing(error: &RpcError) -> Option<&'static str> {
    CAPABILITIES
        .into_iter()
        .find(|capability| error.requires(&[capability]))
}
