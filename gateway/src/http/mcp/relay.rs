//! What the protocol has besides tools, from all the families that have it for an agent.
//!
//! Lists are merged. A request about one thing goes to the families in order, until one knows it.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use futures::future::join_all;
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
        let retry = asking::take_answer(mcp, caller, &subject, &arguments, sent_back).await?;
        let peer = peer.with_retry(retry);
        let ask = async {
            let mut answer = Err(RpcError::no_method(method));
            for family in self.catalog.families_with(has) {
                answer = family
                    .request(&self.caller.agent, method, params.clone(), &peer)
                    .await;
                if !answer.as_ref().is_err_and(is_unknown) {
                    break;
                }
            }
            answer
        };
        let answer = cancelled.run_until_cancelled(ask).await;
        let mut answer = answer
            .ok_or_else(|| ErrorData::internal_error("cancelled", None))?
            .map_err(rpc_error)?;
        if needs_input(&answer) {
            asking::seal_state(mcp, caller, &subject, &arguments, &mut answer)?;
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
            Some(async move { (place, tokio::time::timeout(PATIENCE, asked).await) })
        });
        let mut items = Vec::new();
        let mut next = Map::new();
        let mut failure = None;
        let mut has_answer = false;
        let field = field(method);
        for (place, part) in join_all(parts).await {
            match part {
                Ok(Ok(mut part)) => {
                    has_answer = true;
                    if let Some(Value::Array(own)) = part.get_mut(field).map(Value::take) {
                        items.extend(own);
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
