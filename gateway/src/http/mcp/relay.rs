//! What the protocol has besides tools, from all the families that have it for an agent.
//!
//! Lists are merged; what one source cannot give, or writes wrongly, is left out. A request about one thing goes to the
//! families in order, until one knows it: to the next also when one fails, or takes long.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use futures::FutureExt as _;
use futures::future::join_all;
use futures::stream::{FuturesUnordered, StreamExt as _};
use rmcp::RoleServer;
use rmcp::model::ErrorData;
use rmcp::service::RequestContext;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tracing::warn;

use super::asking;
use super::handler::{Handler, arguments, broken, needs_input, not_found, rpc_error};
use super::peer::Peer;
use crate::family::{Family, Features, RpcError};

/// How long one family may take for its part of a list.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long one may take that was too slow within the last minute.
const IMPATIENCE: Duration = Duration::from_millis(200);
pub(super) const SLOW_FOR: Duration = Duration::from_secs(60);
/// How long one family may take to say whether it knows a thing, before the next is asked, too.
const HEAD_START: Duration = Duration::from_secs(1);
/// Where the next page of one family begins, at most.
const CURSOR_BYTES: usize = 4_096;

impl Handler {
    /// Asks the families that have a feature, one after the other, until one knows what is meant.
    pub(super) async fn relay<R: DeserializeOwned>(
        &self,
        has: impl Fn(Features) -> bool,
        method: &str,
        params: impl Serialize,
        context: RequestContext<RoleServer>,
    ) -> Result<R, ErrorData> {
        let params = serde_json::to_value(params).map_err(|cause| broken(method, &cause))?;
        let cancelled = context.ct.clone();
        let peer = Peer::new(context, &self.body);
        let subject = format!("{method} {}", subject(&params));
        let arguments = arguments(&self.body);
        let sent_back = peer.sent_back();
        let (mcp, caller) = (&self.mcp, &self.caller);
        let retry = asking::take_answer_of(mcp, caller, &subject, &arguments, sent_back).await?;
        let mut families: Vec<_> = self.catalog.families_with(has).collect();
        let peer = match retry {
            None => peer,
            Some((source, retry)) => {
                // What one source has asked is no other one's business.
                families.retain(|family| family.source().unwrap_or_default() == source);
                peer.with_retry(Some(retry))
            }
        };
        let asked = families.iter().map(|family| {
            let asked = family.request(&caller.agent, method, params.clone(), &peer);
            asked.map(|answer| (family.source().unwrap_or_default(), answer))
        });
        let answer = cancelled
            .run_until_cancelled(first_who_knows(asked))
            .await
            .ok_or_else(|| ErrorData::internal_error("cancelled", None))?;
        let (source, mut answer) = match answer {
            Some(answer) => answer.map_err(rpc_error)?,
            None => return Err(rpc_error(RpcError::no_method(method))),
        };
        if needs_input(&answer) {
            asking::seal_state_of(mcp, caller, (&subject, source), &arguments, &mut answer)?;
        }
        self.finish(method, answer)
    }

    /// Asks all families that have a feature for their part of a list.
    pub(super) async fn relay_list<R: DeserializeOwned>(
        &self,
        has: impl Fn(Features) -> bool,
        method: &str,
        params: Option<impl Serialize>,
        context: RequestContext<RoleServer>,
    ) -> Result<R, ErrorData> {
        let params = serde_json::to_value(params).map_err(|cause| broken(method, &cause))?;
        let families: Vec<_> = self.catalog.families_with(has).collect();
        if families.is_empty() {
            return Err(not_found(method));
        }
        let cursors = match params["cursor"].as_str() {
            None => None,
            Some(cursor) => Some(places(cursor).ok_or_else(|| {
                ErrorData::invalid_params("Unknown cursor: start again without a cursor", None)
            })?),
        };
        let peer = Peer::new(context, &self.body);
        let parts = families.iter().enumerate().filter_map(|(at, family)| {
            let place = place(&***family, at);
            let cursor = match &cursors {
                None => None,
                Some(cursors) => Some(cursors.get(&place)?.clone()),
            };
            let params = cursor.map_or_else(|| json!({}), |cursor| json!({"cursor": cursor}));
            let asked = family.request(&self.caller.agent, method, params, &peer);
            let slow = &self.mcp.slow;
            let source = (self.caller.agent.namespace().to_owned(), place.clone());
            Some(async move {
                let is_slow = slow
                    .get(&source)
                    .is_some_and(|since| since.elapsed() < SLOW_FOR);
                let patience = if is_slow { IMPATIENCE } else { PATIENCE };
                let part = tokio::time::timeout(patience, asked).await;
                match &part {
                    Ok(_) => drop(slow.remove(&source)),
                    Err(_) if is_slow => {}
                    Err(_) => drop(slow.insert(source, Instant::now())),
                }
                (place, part)
            })
        });
        let mut items = Vec::new();
        let mut next = Map::new();
        let mut failure = None;
        let mut has_answer = false;
        let field = field(method);
        // Of two things of one name there is the first, which is the one that is had by it.
        let mut known = HashSet::new();
        for (place, part) in join_all(parts).await {
            match part {
                Ok(Ok(mut part)) => {
                    has_answer = true;
                    if let Some(Value::Array(own)) = part.get_mut(field).map(Value::take) {
                        let is_sound = |item: &Value| {
                            let id = id(item, field);
                            let is_new = id.is_none_or(|id| known.insert(id.to_owned()));
                            is_new && self.finish::<R>(method, json!({field: [item]})).is_ok()
                        };
                        items.extend(own.into_iter().filter(is_sound));
                    }
                    if let Some(cursor) = part["nextCursor"].as_str()
                        && cursor.len() <= CURSOR_BYTES
                    {
                        next.insert(place, cursor.into());
                    }
                }
                Ok(Err(error)) => failure = Some(error),
                Err(_) => warn!(
                    rpc.method = method,
                    source = place,
                    "a source was too slow: a list goes without its part"
                ),
            }
        }
        if let (Some(failure), false) = (failure, has_answer) {
            return Err(rpc_error(failure));
        }
        let mut answer = json!({field: items});
        if !next.is_empty() {
            let cursor = Value::Object(next).to_string();
            answer["nextCursor"] = BASE64_URL_SAFE_NO_PAD.encode(cursor).into();
        }
        self.finish(method, answer)
    }

    /// Tells all families that have a feature.
    pub(super) async fn relay_all(
        &self,
        has: impl Fn(Features) -> bool,
        method: &str,
        params: impl Serialize,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let params = serde_json::to_value(params).map_err(|cause| broken(method, &cause))?;
        let peer = Peer::new(context, &self.body);
        let told = self.catalog.families_with(has).map(|family| {
            let told = family.request(&self.caller.agent, method, params.clone(), &peer);
            tokio::time::timeout(PATIENCE, told)
        });
        let told = join_all(told).await;
        if told.is_empty() {
            return Err(not_found(method));
        }
        let refused = told.into_iter().flatten().find_map(Result::err);
        refused.map_or(Ok(()), |refused| Err(rpc_error(refused)))
    }

    /// Reads an answer as what the protocol calls it.
    fn finish<R: DeserializeOwned>(&self, method: &str, mut answer: Value) -> Result<R, ErrorData> {
        if let (true, Some(fields)) = (self.is_newer, answer.as_object_mut()) {
            fields
                .entry("resultType")
                .or_insert_with(|| json!("complete"));
        }
        serde_json::from_value(answer).map_err(|cause| broken(method, &cause))
    }
}

/// The first answer of one who knows, else the first failure. Each is asked once those before have failed, or have taken
/// long: they may answer still.
async fn first_who_knows<'a, A>(
    mut asked: impl Iterator<Item = A>,
) -> Option<Result<(&'a str, Value), RpcError>>
where
    A: Future<Output = (&'a str, Result<Value, RpcError>)>,
{
    let mut running = FuturesUnordered::new();
    let mut failure: Option<RpcError> = None;
    loop {
        if running.is_empty() {
            let Some(next) = asked.next() else {
                return failure.map(Err);
            };
            running.push(next);
        }
        let answered = tokio::time::timeout(HEAD_START, running.next()).await;
        match answered {
            Ok(Some((source, Ok(answer)))) => return Some(Ok((source, answer))),
            Ok(Some((_, Err(error)))) => {
                // That one does not know it says less than that one could not tell.
                if failure.as_ref().is_none_or(is_unknown) {
                    failure = Some(error);
                }
            }
            Ok(None) | Err(_) => running.extend(asked.next()),
        }
    }
}

/// What a thing of a list is had by.
fn id<'a>(item: &'a Value, field: &str) -> Option<&'a str> {
    let id = match field {
        "prompts" => "name",
        "resources" => "uri",
        _ => "uriTemplate",
    };
    item[id].as_str()
}

/// What a request is about.
fn subject(params: &Value) -> &str {
    let name = params["name"].as_str().or(params["uri"].as_str());
    name.unwrap_or_default()
}

/// Whether an error says that the family does not have what is asked for.
fn is_unknown(error: &RpcError) -> bool {
    matches!(error.code, -32602 | -32601 | -32002)
}

fn field(method: &str) -> &'static str {
    match method {
        "prompts/list" => "prompts",
        "resources/list" => "resources",
        _ => "resourceTemplates",
    }
}

/// What cursors call a family.
fn place(family: &dyn Family, at: usize) -> String {
    family
        .source()
        .map_or_else(|| format!("#{at}"), str::to_owned)
}

/// Where the families go on, by place.
fn places(cursor: &str) -> Option<std::collections::HashMap<String, String>> {
    let cursor = BASE64_URL_SAFE_NO_PAD.decode(cursor).ok()?;
    serde_json::from_slice(&cursor).ok()
}
