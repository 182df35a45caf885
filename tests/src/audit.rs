//! The API server's audit log: who used which right.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::cluster;

/// A moment in the audit log.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mark(u64);

/// One answered request. Requests of Kubernetes' own components are not in the log.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    pub verb: String,
    pub user: User,
    #[serde(rename = "requestURI")]
    pub request_uri: String,
    /// Absent for what is not a resource, such as `/readyz`.
    pub object_ref: Option<ObjectRef>,
    pub response_status: Option<ResponseStatus>,
    pub stage: String,
}

#[derive(Clone, Debug, Deserialize)]
pub struct User {
    /// Empty: the request had no identity that the server believed.
    #[serde(default)]
    pub username: String,
}

/// What a request was about; empty strings where the request named none.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectRef {
    pub api_group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
}

#[derive(Clone, Debug, Deserialize)]
pub struct ResponseStatus {
    #[serde(default)]
    pub code: u16,
}

/// Now.
pub fn mark() -> Result<Mark> {
    Ok(Mark(log()?.metadata()?.len()))
}

/// All requests of the users that `of` names, answered since `mark`, in order.
///
/// A request is logged just after its answer is sent, so the very last one may come a moment later.
/// A service account's name is `system:serviceaccount:<namespace>:<name>`. A watch counts from its start.
pub fn since(mark: Mark, of: impl Fn(&str) -> bool) -> Result<Vec<Event>> {
    let mut log = log()?;
    log.seek(SeekFrom::Start(mark.0))?;
    let mut events = Vec::new();
    let mut text = String::new();
    log.read_to_string(&mut text)?;
    // Without what may be a half-written line.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    for line in whole.lines() {
        let event: Event = serde_json::from_str(line).with_context(|| line.to_owned())?;
        let counts = match event.verb.as_str() {
            "watch" => event.stage == "ResponseStarted",
            _ => event.stage == "ResponseComplete",
        };
        if counts && of(&event.user.username) {
            events.push(event);
        }
    }
    Ok(events)
}

fn log() -> Result<File> {
    File::open(cluster::state()?.join("log/audit.jsonl")).context("open the API server's audit log")
}
