//! Pages of rows out of several Workspaces, newest first.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Query};
use http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::error::Refusal;
use super::{Visitor, id};
use crate::store::{Id, StoreError};

/// Rows of a page, unless the request says otherwise, and at most.
const USUAL: usize = 50;
const MOST: usize = 200;

/// Which page of what: the query of a list.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Filter {
    workspace: Option<String>,
    /// Of approvals alone.
    pub(super) agent: Option<String>,
    pub(super) state: Option<String>,
    pub(super) status: Option<String>,
    /// Of usage alone.
    pub(super) provider: Option<String>,
    before: Option<String>,
    limit: Option<usize>,
}

/// The query of a request, or why it cannot be read.
pub(super) struct Asked<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        let Query(query) =
            query.map_err(|error: QueryRejection| Refusal::invalid(error.body_text()))?;
        Ok(Self(query))
    }
}

impl Filter {
    /// The wanted one of a list's words, in `field`; `words` are all of them, as a sentence has them.
    pub(super) fn word<T>(
        wanted: Option<&str>,
        field: &str,
        read: impl Fn(&str) -> Option<T>,
        words: &str,
    ) -> Result<Option<T>, Refusal> {
        let read =
            |word| read(word).ok_or_else(|| Refusal::invalid(format!("{field} must be {words}")));
        wanted.map(read).transpose()
    }

    /// The page: of every Workspace that the person sees and the filter wants, `list` gives at most so many rows older
    /// than an id, and `show` says how each is told.
    pub(super) async fn page<T, F: Future<Output = Result<Vec<T>, StoreError>>>(
        &self,
        visitor: &Visitor,
        list: impl Fn(String, Option<Id>, i64) -> F,
        show: impl Fn(&str, T) -> (Id, Value),
    ) -> Result<Json<Value>, Refusal> {
        let limit = self.limit.unwrap_or(USUAL);
        if !(1..=MOST).contains(&limit) {
            return Err(Refusal::invalid(format!("limit must be 1 to {MOST}")));
        }
        let before = self.before.as_deref().map(id).transpose()?;
        let most = i64::try_from(MOST + 1).unwrap_or(i64::MAX);
        let mut rows = Vec::new();
        for workspace in visitor.workspaces() {
            if self
                .workspace
                .as_deref()
                .is_none_or(|wanted| wanted == workspace)
            {
                let found = list(workspace.to_owned(), before, most).await?;
                rows.extend(found.into_iter().map(|row| show(workspace, row)));
            }
        }
        rows.sort_by_key(|(id, _)| std::cmp::Reverse(*id));
        let next = (rows.len() > limit).then(|| rows[limit - 1].0);
        rows.truncate(limit);
        let items: Vec<Value> = rows.into_iter().map(|(_, row)| row).collect();
        Ok(Json(json!({"items": items, "next": next})))
    }
}
