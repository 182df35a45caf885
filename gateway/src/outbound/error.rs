use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use super::credential::CredentialError;
use super::guard::Blocked;

/// What lies beneath a failure: for the log, never for an agent, since it may name addresses.
pub type Cause = Arc<dyn Error + Send + Sync>;

/// Why there is no answer. The text is for whoever called: it names what a person wrote, no resolved address and
/// nothing that the upstream sent.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OutboundError {
    #[error(transparent)]
    Blocked(#[from] Blocked),
    #[error("{host} cannot be resolved: no name server knows an address of it")]
    Unresolvable {
        host: String,
        #[source]
        source: Cause,
    },
    #[error("{host} cannot be reached")]
    Unreachable {
        host: String,
        #[source]
        source: Cause,
    },
    #[error("{host} has no certificate that is trusted, or does not speak TLS")]
    Tls {
        host: String,
        #[source]
        source: Cause,
    },
    #[error("the CA bundle cannot be used: it holds no certificate in PEM format")]
    CaBundle,
    #[error("{name} did not answer within {}", Seconds(*after))]
    TimedOut { name: String, after: Duration },
    #[error("{name} sent nothing more for {}", Seconds(*after))]
    Silent { name: String, after: Duration },
    /// The connection ended before the whole answer had come, or what came was no HTTP.
    #[error("{name} broke off the connection, or did not answer in HTTP")]
    Broken {
        name: String,
        #[source]
        source: Cause,
    },
    #[error("the answer of {name} is larger than {limit} bytes")]
    TooLarge { name: String, limit: usize },
    #[error("the header of {name}'s answer is larger than {limit} bytes")]
    HeaderTooLarge { name: String, limit: usize },
    #[error("{name} is busy: as many calls as may wait are waiting; try again later")]
    Busy { name: String },
    #[error("{name} has failed several times, so it is left alone for {}", Seconds(*retry_after))]
    Open { name: String, retry_after: Duration },
    #[error(
        "the answers of this operation of {name} were too large several times, so it is left alone for {}: ask for less at once",
        Seconds(*retry_after)
    )]
    Excessive { name: String, retry_after: Duration },
    #[error("{name} answered {status}, a redirect, and redirects are not followed")]
    Redirected { name: String, status: StatusCode },
    #[error("{name} sent a compressed answer, although it was asked not to")]
    Encoded { name: String },
    #[error(transparent)]
    Credential(#[from] CredentialError),
    #[error("the request is none that can be sent: {0}")]
    Request(&'static str),
}

impl OutboundError {
    /// The status of the answer, if there was one.
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Redirected { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// A constant word for metrics and records.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Blocked(_) => "blocked",
            Self::Unresolvable { .. } => "unresolvable",
            Self::Unreachable { .. } => "unreachable",
            Self::Tls { .. } | Self::CaBundle => "tls",
            Self::TimedOut { .. } | Self::Silent { .. } => "timed_out",
            Self::Broken { .. } => "broken",
            Self::TooLarge { .. } | Self::HeaderTooLarge { .. } => "too_large",
            Self::Busy { .. } => "busy",
            Self::Open { .. } | Self::Excessive { .. } => "open",
            Self::Redirected { .. } => "redirected",
            Self::Encoded { .. } => "encoded",
            Self::Credential(_) => "credential",
            Self::Request(_) => "request",
        }
    }

    /// Whom it speaks against.
    pub(super) fn blame(&self) -> Blame {
        match self {
            Self::Unresolvable { .. }
            | Self::Unreachable { .. }
            | Self::Tls { .. }
            | Self::TimedOut { .. }
            | Self::Silent { .. }
            | Self::Broken { .. } => Blame::Upstream,
            Self::TooLarge { .. } | Self::HeaderTooLarge { .. } => Blame::Operation,
            Self::Redirected { .. } | Self::Encoded { .. } => Blame::Answer,
            Self::Blocked(_)
            | Self::CaBundle
            | Self::Busy { .. }
            | Self::Open { .. }
            | Self::Excessive { .. }
            | Self::Credential(_)
            | Self::Request(_) => Blame::Nobody,
        }
    }

    /// Whether the upstream may have done what it was asked to.
    pub fn may_be_done(&self) -> bool {
        match self {
            Self::TimedOut { .. }
            | Self::Silent { .. }
            | Self::Broken { .. }
            | Self::TooLarge { .. }
            | Self::HeaderTooLarge { .. }
            | Self::Encoded { .. } => true,
            Self::Blocked(_)
            | Self::Unresolvable { .. }
            | Self::Unreachable { .. }
            | Self::Tls { .. }
            | Self::CaBundle
            | Self::Busy { .. }
            | Self::Open { .. }
            | Self::Excessive { .. }
            | Self::Redirected { .. }
            | Self::Credential(_)
            | Self::Request(_) => false,
        }
    }

    /// Whether a call that may be repeated is worth repeating at once.
    pub(super) fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::Unresolvable { .. } | Self::Unreachable { .. } | Self::Broken { .. }
        )
    }
}

/// What a failure says of whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blame {
    /// It is ill.
    Upstream,
    /// The upstream is well, and this operation of it answers more than may be.
    Operation,
    /// The upstream is well; this answer cannot be used.
    Answer,
    /// Nothing was sent.
    Nobody,
}

/// A duration in seconds, with one digit where it is short.
struct Seconds(Duration);

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.0.as_secs_f64();
        if seconds < 10.0 && seconds.fract() != 0.0 {
            write!(f, "{seconds:.1} s")
        } else {
            write!(f, "{seconds:.0} s")
        }
    }
}
