//! What an agent reads of a service's answer, or of there being none.

use http::{StatusCode, header};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::connector::visible;
use crate::families::view::{self, View};
use crate::outbound::{OutboundError, Reply};
use crate::tool::{MAX_TEXT_BYTES, Output, ToolError};

/// Answers of more bytes are laid out on a thread of their own: other calls wait for this one meanwhile.
const AT_ONCE: usize = 128 << 10;
/// So many long answers are laid out at once; each can take some tens of megabytes meanwhile.
static LAYOUTS: Semaphore = Semaphore::const_new(2);
/// Characters of an error's body that an agent reads.
const OF_ERROR: usize = 2_000;

/// What the agent reads, in the form that it asked for.
pub(super) async fn show(
    reply: Result<Reply, OutboundError>,
    view: View,
) -> Result<Output, ToolError> {
    let reply = reply.map_err(unanswered)?;
    if reply.body.len() <= AT_ONCE {
        return answered(reply, &view);
    }
    let unread = || ToolError::unavailable("the call was made, but its answer could not be read");
    let permit = LAYOUTS.acquire().await.map_err(|_| unread())?;
    let shown = spawn_blocking(move || {
        // It goes on if nobody waits for it any more, and counts as long.
        let _permit = permit;
        answered(reply, &view)
    });
    shown.await.unwrap_or_else(|_| Err(unread()))
}

fn answered(reply: Reply, view: &View) -> Result<Output, ToolError> {
    let content_type = reply.headers.get(header::CONTENT_TYPE);
    let content_type = content_type
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let status = reply.status;
    if status.is_success() {
        if reply.body.is_empty() {
            return Ok(Output::Text(format!("done: {status}, without a body")));
        }
        return view::render(view, content_type, &reply.body, MAX_TEXT_BYTES);
    }
    let said = String::from_utf8_lossy(&reply.body);
    let said: String = visible(said.trim()).chars().take(OF_ERROR).collect();
    let message = match said.as_str() {
        "" => format!("the service answered {status}"),
        said => format!("the service answered {status}: {said}"),
    };
    Err(match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => {
            ToolError::unavailable(message)
        }
        status if status.is_client_error() => ToolError::refused(message),
        _ => ToolError::unavailable(message),
    })
}

fn unanswered(error: OutboundError) -> ToolError {
    match error {
        OutboundError::Blocked(_) | OutboundError::Credential(_) => {
            ToolError::refused(error.to_string())
        }
        _ => ToolError::unavailable(error.to_string()),
    }
}
