//! A ToolSource with an OpenAPI document: where the document comes from, which tools come of it, and how they are called.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use chandlery_crds::conditions::reason;
use chandlery_crds::fields::ConfigMapKeyRef;
use futures::future::BoxFuture;
use http::{Request, StatusCode, header};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};
use tokio::time::Instant;
use url::Url;

use super::offer::{Offer, offer, settings};
use super::{MAX_BYTES, Operation, Settings, answer, join};
use crate::connector::{Connector, Failure, Offered};
use crate::families::connect::{Site, failure};
use crate::families::view::{self, Format, View};
use crate::family::{Call, Family};
use crate::gate::Permit;
use crate::outbound::{OperationName, OutboundError, Repeat, Reply, Upstream};
use crate::tool::{Effect, Output, Tool, ToolError};
use crate::usage::{self, Usage};

/// Of a document that wants a credential, which nobody has said to be for it.
const NO_BASE: &str = "it was asked for without the credential, since nobody says that the service is there: write spec.openapi.baseUrl";
const ELSEWHERE: &str = "it was asked for without the credential, which is for the origin of spec.openapi.baseUrl alone: put the document into a ConfigMap";

/// The connector of an OpenAPI document.
pub(in crate::families) fn connect(site: Site) -> Result<Arc<dyn Connector>, Failure> {
    let openapi = site.spec.openapi.clone().unwrap_or_default();
    let Settings {
        base_url,
        document_url,
        ..
    } = settings(&site.spec)?;
    let document = match (document_url, openapi.config_map_key_ref, openapi.inline) {
        (Some(from), _, _) => {
            // What describes the service may lie elsewhere; then it is no business of the credential. Where the service
            // is, a person says: the document would say it only once it has been read.
            let is_service = base_url
                .as_ref()
                .is_some_and(|base| base.origin() == from.origin());
            let advice = match (&site.spec.auth, &base_url) {
                (Some(_), None) => NO_BASE,
                (Some(_), Some(_)) if !is_service => ELSEWHERE,
                _ => "look at spec.auth",
            };
            Document::At {
                upstream: site.way(from.clone(), is_service, MAX_BYTES)?,
                from,
                advice,
            }
        }
        (None, Some(reference), _) => Document::In(reference),
        (None, None, text) => Document::Here(text.unwrap_or_default().into()),
    };
    Ok(Arc::new(Source { site, document }))
}

struct Source {
    site: Site,
    document: Document,
}

/// Where a document lies.
enum Document {
    At {
        upstream: Arc<Upstream>,
        from: Url,
        /// What to do where it is refused.
        advice: &'static str,
    },
    In(ConfigMapKeyRef),
    Here(Bytes),
}

impl Connector for Source {
    fn fetch(&self) -> BoxFuture<'_, Result<Bytes, Failure>> {
        Box::pin(async move {
            match &self.document {
                Document::At {
                    upstream,
                    from,
                    advice,
                } => fetch(upstream, from, advice).await,
                Document::In(reference) => Ok(self.site.config_map(reference).await?.into()),
                Document::Here(text) => Ok(text.clone()),
            }
        })
    }

    fn read(&self, answer: &Bytes) -> Result<Offered, Failure> {
        let Offer {
            document,
            base,
            tools,
            left_out,
        } = offer(&self.site.name, &self.site.spec, answer)?;
        let operations = document.operations.into_iter();
        let family = Operations {
            source: self.site.name.clone(),
            upstream: self.site.upstream(base.clone())?,
            base,
            operations: operations
                .map(|operation| (operation.name.clone(), operation))
                .collect(),
            usage: self.site.usage().clone(),
        };
        Ok(Offered {
            tools,
            left_out,
            family: Arc::new(family),
        })
    }
}

async fn fetch(upstream: &Upstream, from: &Url, advice: &str) -> Result<Bytes, Failure> {
    let request = Request::get(from.as_str())
        .header(
            header::ACCEPT,
            "application/json, application/yaml;q=0.9, */*;q=0.5",
        )
        .body(Bytes::new())
        .map_err(|error| Failure::new(reason::BLOCKED, error.to_string()))?;
    let reply = upstream
        .fetch(request, Repeat::Idempotent)
        .await
        .map_err(failure)?;
    match reply.status {
        status if status.is_success() => Ok(reply.body),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(Failure::new(
            reason::CREDENTIAL_REFUSED,
            format!("the document cannot be had: {}; {advice}", reply.status),
        )),
        status => Err(Failure::new(
            reason::UNREACHABLE,
            format!("the document cannot be had: {status}"),
        )),
    }
}

/// The operations of one revision of a document.
struct Operations {
    /// Name of the ToolSource.
    source: String,
    upstream: Arc<Upstream>,
    base: Url,
    operations: HashMap<String, Operation>,
    usage: Usage,
}

impl Family for Operations {
    fn cost(&self, tool: &Tool, arguments: &RawValue) -> Option<u64> {
        match self.find(tool) {
            Some(operation) => operation.cost_cap(arguments),
            None => Some(0),
        }
    }

    fn call<'a>(
        &'a self,
        permit: &'a Permit<'a>,
        call: Call<'a>,
    ) -> BoxFuture<'a, Result<Output, ToolError>> {
        Box::pin(async move {
            let operation = self.find(permit.tool()).ok_or_else(|| {
                ToolError::unavailable(
                    "the source does not offer this any more; list the tools again",
                )
            })?;
            let named = |error: ToolError| ToolError {
                message: format!("{}: {}", permit.tool().name, error.message),
                ..error
            };
            let (view, arguments) = Self::viewed(operation, call.arguments).map_err(named)?;
            let request = operation.request(&arguments).map_err(named)?;
            let target = join(
                operation.base.as_ref().unwrap_or(&self.base),
                &request.path_and_query,
            );
            let mut sent = Request::builder()
                .method(request.method)
                .uri(target.as_str())
                .extension(OperationName(operation.name.as_str().into()));
            if let Some(headers) = sent.headers_mut() {
                headers.extend(request.headers);
                if let Some(content_type) = request.content_type {
                    headers.insert(header::CONTENT_TYPE, content_type);
                }
            }
            let size = request.body.len();
            let sent = sent
                .body(request.body)
                .map_err(|_| ToolError::arguments("the arguments make no URL that can be sent"))?;
            let out = Out {
                source: self,
                permit,
                operation,
                arguments: &arguments,
                size,
                began: Instant::now(),
                call: &call,
                is_taken_down: false,
            };
            let reply = self.upstream.fetch(sent, repeat(operation)).await;
            out.ended(&reply);
            answer::show(reply, view).await
        })
    }
}

impl Operations {
    fn find(&self, tool: &Tool) -> Option<&Operation> {
        self.operations.get(tool.origin.as_ref()?.operation())
    }

    /// How the answer is to look, and the operation's own arguments. Only a grouped list says how; else it is given as it
    /// comes (R-C-205).
    fn viewed(
        operation: &Operation,
        arguments: &RawValue,
    ) -> Result<(View, Box<RawValue>), ToolError> {
        let as_it_is = View {
            format: Format::Raw,
            ..View::default()
        };
        let own = operation
            .input_schema
            .get("properties")
            .and_then(Value::as_object);
        let is_ours = |name: &&str| own.is_none_or(|own| !own.contains_key(*name));
        let names = view::NAMES.into_iter().filter(is_ours);
        let text = arguments.get();
        if !names.clone().any(|name| text.contains(name)) {
            return Ok((as_it_is, arguments.to_owned()));
        }
        let mut given: BTreeMap<String, &RawValue> = serde_json::from_str(text)
            .map_err(|_| ToolError::arguments("the arguments must be an object"))?;
        let mut about = Map::new();
        for name in names {
            if let Some(value) = given.remove(name) {
                let value = serde_json::from_str(value.get()).unwrap_or_default();
                about.insert(name.to_owned(), value);
            }
        }
        let view = if about.is_empty() {
            as_it_is
        } else {
            View::take(&mut about)?
        };
        let own = to_raw_value(&given)
            .map_err(|_| ToolError::arguments("the arguments cannot be read"))?;
        Ok((view, own))
    }
}

/// A request that is on its way: it leaves one row of usage, also where nobody waits for its answer any more.
struct Out<'a> {
    source: &'a Operations,
    permit: &'a Permit<'a>,
    operation: &'a Operation,
    arguments: &'a RawValue,
    /// Bytes of its body.
    size: usize,
    began: Instant,
    call: &'a Call<'a>,
    is_taken_down: bool,
}

impl Out<'_> {
    fn ended(mut self, reply: &Result<Reply, OutboundError>) {
        let (operation, arguments) = (self.operation, self.arguments);
        let cost = match reply {
            Ok(answer) if answer.status.is_success() => {
                operation.cost(arguments, records(operation, &answer.body))
            }
            // Whether it was done nobody knows, so it counts.
            Ok(answer) if is_between(answer.status) => operation.cost(arguments, None),
            Err(error) if error.may_be_done() => operation.cost(arguments, None),
            Ok(_) | Err(_) => 0,
        };
        self.call.spent(cost);
        let outcome = match reply {
            Ok(answer) if answer.status.is_success() => "done",
            Ok(_) => "failed",
            Err(error) => error.kind(),
        };
        let status = match reply {
            Ok(answer) => Some(answer.status),
            Err(error) => error.status(),
        };
        self.take_down(reply.as_ref().ok(), status, outcome, cost);
    }

    fn take_down(
        &mut self,
        answer: Option<&Reply>,
        status: Option<StatusCode>,
        outcome: &'static str,
        cost: u64,
    ) {
        self.is_taken_down = true;
        self.source.usage.record(usage::Call {
            at: self.permit.now(),
            agent: self.permit.agent().clone(),
            tool: self.permit.tool().name.to_string(),
            provider: self.source.source.clone(),
            method: self.operation.method.to_string(),
            path: self.operation.path.clone(),
            status: status.map(|status| status.as_u16()),
            outcome,
            latency: answer.map_or(self.began.elapsed(), |answer| answer.took),
            cost_cents: i64::try_from(cost).unwrap_or(i64::MAX),
            request_bytes: self.size,
            response_bytes: answer.map_or(0, |answer| answer.body.len()),
        });
    }
}

impl Drop for Out<'_> {
    fn drop(&mut self) {
        if !self.is_taken_down {
            // What the service did nobody knows, so it counts.
            let cost = self.operation.cost(self.arguments, None);
            self.take_down(None, None, "cancelled", cost);
        }
    }
}

/// Whether somebody between us and the service says that no answer came of it.
fn is_between(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT
    )
}

fn repeat(operation: &Operation) -> Repeat {
    match operation.effect {
        Effect::Reads
        | Effect::Writes { idempotent: true }
        | Effect::Destroys { idempotent: true } => Repeat::Idempotent,
        Effect::Writes { idempotent: false } | Effect::Destroys { idempotent: false } => {
            Repeat::Never
        }
    }
}

/// How many records the answer holds, where the document says where they are.
fn records(operation: &Operation, body: &[u8]) -> Option<u64> {
    let pointer = operation.cost.as_ref()?.records.as_deref()?;
    let answer: Value = serde_json::from_slice(body).ok()?;
    let count = answer.pointer(pointer)?.as_array()?.len();
    u64::try_from(count).ok()
}
