//! The REST API of people, `/api/v1`: what waits for them, why agents have what they have, and what was asked.
//!
//! Every request carries a person's token. An agent's key is refused like on another agent's endpoint: no agent decides
//! about its own calls.

mod agents;
mod approvals;
mod error;
mod page;
mod requests;
mod sources;

use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRequestParts, Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{delete, get, post};
use http::request::Parts;
use http::{HeaderValue, header};
use serde::de::DeserializeOwned;

use self::error::Refusal;
use super::access::Access;
use crate::directory::{Person, Snapshot};
use crate::families::config::ConfigRequests;
use crate::families::support::Tickets;
use crate::pipeline::Pipeline;
use crate::store::{Id, StoreError};

/// What the API's handlers work on.
#[derive(Clone)]
pub(super) struct Api {
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) access: Arc<Access>,
    pub(super) requests: ConfigRequests,
    pub(super) tickets: Tickets,
}

/// Largest request body in bytes: manifests to look at.
const MAX_BODY: usize = 1 << 20;

/// The description of the API, in OpenAPI 3.1.
const OPENAPI: &str = include_str!("openapi.json");

pub(super) fn router(api: Api) -> Router {
    let description = async || ([(header::CONTENT_TYPE, "application/json")], OPENAPI);
    let people = Router::new()
        .route("/me", get(agents::me))
        .route("/agents", get(agents::list))
        .route("/agents/{id}/tools", get(agents::tools))
        .route("/agents/{id}/tools/preview", post(agents::preview))
        .route("/sources", get(sources::list))
        .route("/sources/{id}/diff", get(sources::diff))
        .route("/usage", get(sources::usage))
        .route("/approvals", get(approvals::list))
        .route("/approvals/{id}", get(approvals::get))
        .route("/approvals/{id}/approve", post(approvals::approve))
        .route("/approvals/{id}/deny", post(approvals::deny))
        .route("/standing-approvals", get(approvals::standing))
        .route("/standing-approvals/{id}", delete(approvals::forget))
        .route("/config-requests", get(requests::requests))
        .route(
            "/config-requests/{id}/approve",
            post(requests::approve_request),
        )
        .route(
            "/config-requests/{id}/reject",
            post(requests::reject_request),
        )
        .route("/tickets", get(requests::tickets))
        .route("/tickets/{id}", get(requests::get_ticket))
        .route("/tickets/{id}/reply", post(requests::reply))
        .route("/tickets/{id}/close", post(requests::close))
        .route("/tickets/{id}/reopen", post(requests::reopen))
        .fallback(async || Refusal::not_found("there is no such resource in /api/v1"))
        .method_not_allowed_fallback(async || Refusal::method())
        .layer(axum::extract::DefaultBodyLimit::max(MAX_BODY))
        .layer(middleware::from_fn_with_state(api.clone(), admit))
        .with_state(api.clone());
    Router::new()
        .route("/api/v1/openapi.json", get(description))
        .nest("/api/v1", people)
}

/// The person behind a request, and what is known at its moment.
#[derive(Clone)]
struct Visitor {
    person: Person,
    snapshot: Arc<Snapshot>,
}

impl Visitor {
    /// Ids of the Workspaces that the person sees.
    fn workspaces(&self) -> Vec<&str> {
        let accounts = &self.person.accounts;
        let is_own = |account: &str| accounts.iter().any(|own| **own == *account);
        let own = self.snapshot.workspaces.values();
        let mut own: Vec<&str> = own
            .filter(|workspace| is_own(&workspace.account))
            .map(|workspace| workspace.id.as_str())
            .collect();
        own.sort_unstable();
        own
    }

    /// What `look` finds in the first of the person's Workspaces that has it: ids say nothing of where a row is.
    async fn find<T, F: Future<Output = Result<Option<T>, StoreError>>>(
        &self,
        look: impl Fn(String) -> F,
    ) -> Result<Option<(String, T)>, Refusal> {
        for workspace in self.workspaces() {
            if let Some(found) = look(workspace.to_owned()).await? {
                return Ok(Some((workspace.to_owned(), found)));
            }
        }
        Ok(None)
    }

    /// Whether the person sees the Workspace.
    fn sees(&self, workspace: &str) -> bool {
        self.workspaces().contains(&workspace)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Visitor {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        parts
            .extensions
            .get::<Self>()
            .cloned()
            .ok_or_else(Refusal::token)
    }
}

async fn admit(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    match api.access.person(request.uri(), request.headers()) {
        Ok((person, snapshot)) => {
            request
                .extensions_mut()
                .insert(Visitor { person, snapshot });
            let mut response = next.run(request).await;
            // Arguments of calls are among the answers.
            let headers = response.headers_mut();
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
            response
        }
        Err(refusal) => *refusal,
    }
}

/// A body that may be left out.
fn read<T: Default + DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    if body.trim_ascii().is_empty() {
        return Ok(T::default());
    }
    serde_json::from_slice(body).map_err(|error| Refusal::invalid(format!("the body: {error}")))
}

fn id(text: &str) -> Result<Id, Refusal> {
    text.parse()
        .map_err(|_| Refusal::invalid("an id has 11 letters and digits, such as 00b7Qx2LmNa"))
}
