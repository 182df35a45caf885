//! What a server offers: which eras it speaks, what it can do, and all pages of its tools.

use std::collections::HashSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::server::{Asking, LIST_BYTES, Server, Spoken, Tally};
use super::trouble::Trouble;
use super::wire::{Params, Request};
use crate::family::{NEWER, OLDER};

/// How long a server may take to say that it speaks the newer era. Some of the older one say nothing.
const PROBE: Duration = Duration::from_secs(10);
/// Tools that are kept, and pages that are asked for; in bytes all pages may have what one may have.
const MOST_TOOLS: usize = 2_000;
const MOST_PAGES: usize = 100;

/// The answer that is kept: what came, in a form of our own.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Answer {
    pub(super) newer: bool,
    pub(super) older: bool,
    pub(super) capabilities: Value,
    /// As they came.
    pub(super) tools: Vec<Box<RawValue>>,
    /// There are more tools than are kept.
    pub(super) is_cut: bool,
}

impl Answer {
    pub(super) fn spoken(&self) -> Spoken {
        Spoken {
            newer: self.newer,
            older: self.older,
        }
    }
}

/// Asks a server what it offers.
pub(super) async fn discover(server: &Server) -> Result<Answer, Trouble> {
    let never = CancellationToken::new();
    let asking = Asking::itself(&never);
    let (spoken, capabilities) = negotiate(server, &asking).await?;
    let mut answer = Answer {
        newer: spoken.newer,
        older: spoken.older,
        capabilities,
        tools: Vec::new(),
        is_cut: false,
    };
    if answer.capabilities.get("tools").is_some() {
        pages(server, &asking, &mut answer).await?;
    }
    Ok(answer)
}

/// Which eras the server speaks, and what it can do. The newer one is tried first.
async fn negotiate(server: &Server, asking: &Asking<'_>) -> Result<(Spoken, Value), Trouble> {
    let request = Request {
        method: "server/discover",
        ..Request::default()
    };
    let mut tally = Tally::default();
    match timeout(PROBE, server.newer(asking, &request, &mut tally)).await {
        Ok(Ok(result)) => {
            let result: Value = serde_json::from_slice(&result)
                .map_err(|_| Trouble::Broken("its answer to server/discover cannot be read"))?;
            let versions = result["supportedVersions"].as_array();
            let speaks = |version: &str| {
                versions.is_some_and(|versions| versions.iter().any(|own| own == version))
            };
            if speaks(NEWER) {
                let spoken = Spoken {
                    newer: true,
                    older: OLDER.iter().any(|version| speaks(version)),
                };
                return Ok((spoken, result["capabilities"].clone()));
            }
        }
        Ok(Err(trouble @ Trouble::Outbound(_))) => return Err(trouble),
        Ok(Err(Trouble::Status(status))) if matches!(status.as_u16(), 401 | 403 | 429) => {
            return Err(Trouble::Status(status));
        }
        // Whatever else it says: a server of the older era does not know better.
        Ok(Err(_)) | Err(_) => {}
    }
    let session = server.session(&server.key(asking)).await?;
    let spoken = Spoken {
        newer: false,
        older: true,
    };
    Ok((spoken, session.capabilities.clone()))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    #[serde(default)]
    tools: Vec<Box<RawValue>>,
    next_cursor: Option<String>,
}

async fn pages(server: &Server, asking: &Asking<'_>, answer: &mut Answer) -> Result<(), Trouble> {
    let mut cursor: Option<String> = None;
    let mut seen = HashSet::new();
    let mut bytes = 0;
    for _ in 0..MOST_PAGES {
        let params = cursor.as_ref().map_or_else(Params::default, |cursor| {
            Params::default().with("cursor", cursor)
        });
        let request = Request {
            method: "tools/list",
            params,
            ..Request::default()
        };
        let mut tally = Tally::default();
        let page = server
            .ask(answer.spoken(), asking, &request, &mut tally)
            .await?;
        bytes += page.len();
        let page: Page = serde_json::from_slice(&page)
            .map_err(|_| Trouble::Broken("its list of tools cannot be read"))?;
        answer.tools.extend(page.tools);
        if answer.tools.len() > MOST_TOOLS || bytes > LIST_BYTES {
            answer.tools.truncate(MOST_TOOLS);
            answer.is_cut = true;
            return Ok(());
        }
        match page.next_cursor {
            None => return Ok(()),
            Some(next) if !seen.insert(next.clone()) => {
                return Err(Trouble::Broken("its list of tools goes round in circles"));
            }
            next => cursor = next,
        }
    }
    answer.is_cut = true;
    Ok(())
}
