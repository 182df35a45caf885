//! Every call to the API server: each under a timeout, and errors that never carry an object's content.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use chandlery_crds::names;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Status;
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// How long one call may take. A server that hangs must not hold a reconcile for ever.
const TIMEOUT: Duration = Duration::from_secs(15);

/// What went wrong between us and the API server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{verb} {kind} {name}: no answer within {}s", TIMEOUT.as_secs())]
    Timeout {
        verb: &'static str,
        kind: String,
        name: String,
    },
    /// The server said no. Its message may repeat what was sent, so only code and reason are kept here.
    #[error("{verb} {kind} {name}: {code} {reason}")]
    Refused {
        verb: &'static str,
        kind: String,
        name: String,
        code: u16,
        reason: String,
        #[source]
        status: Quiet,
    },
    #[error("{verb} {kind} {name}: the API server cannot be reached")]
    Unreachable {
        verb: &'static str,
        kind: String,
        name: String,
    },
}

/// A server's answer that prints nothing: it can echo a whole Secret.
#[derive(Clone, thiserror::Error)]
#[error("see the API server's audit log")]
pub(crate) struct Quiet(Box<Status>);

impl Debug for Quiet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Status(…)")
    }
}

impl Error {
    fn status(&self) -> Option<&Status> {
        match self {
            Self::Refused { status, .. } => Some(&status.0),
            Self::Timeout { .. } | Self::Unreachable { .. } => None,
        }
    }

    /// Somebody else wrote first, or made the object first: look again.
    pub(crate) fn is_conflict(&self) -> bool {
        self.status().is_some_and(|status| status.code == 409)
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.status().is_some_and(|status| status.code == 404)
    }

    /// What the server says against the object itself: a value it refuses, a quota, a policy. `None` when the answer
    /// is about us or about the moment.
    pub(crate) fn refusal(&self) -> Option<&str> {
        let status = self.status()?;
        let terminating = status.details.as_ref().is_some_and(|details| {
            details
                .causes
                .iter()
                .any(|cause| cause.reason == "NamespaceTerminating")
        });
        matches!(status.code, 400 | 403 | 422)
            .then_some(status.message.as_str())
            .filter(|_| !terminating)
    }

    /// For the metric: few values, none of them free text.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Timeout { .. } => "timeout",
            Self::Unreachable { .. } => "unreachable",
            Self::Refused { .. } if self.is_conflict() => "conflict",
            Self::Refused { .. } => "refused",
        }
    }
}

/// A kind that lies in a namespace.
pub(crate) trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
{
}

impl<K> Kind for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
{
}

/// The API server.
#[derive(Clone)]
pub(crate) struct Cluster {
    client: Client,
}

impl Cluster {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    fn api<K: Kind>(&self, namespace: &str) -> Api<K> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// One object by name; `None` when there is none.
    pub(crate) async fn get<K: Kind>(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<K>, Error> {
        call::<K, _>("get", name, self.api::<K>(namespace).get_opt(name)).await
    }

    /// Makes a Secret that must not exist yet; one that does is a conflict.
    pub(crate) async fn create_secret(&self, secret: &Secret) -> Result<Secret, Error> {
        let namespace = secret.namespace().unwrap_or_default();
        let parameters = PostParams {
            field_manager: Some(names::FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let name = secret.name_any();
        call::<Secret, _>(
            "create",
            &name,
            self.api(&namespace).create(&parameters, secret),
        )
        .await
    }

    /// Makes an Event; one of that name is a conflict.
    pub(crate) async fn create_event(&self, event: &Event) -> Result<(), Error> {
        let api: Api<Event> = self.api(&event.namespace().unwrap_or_default());
        let parameters = PostParams::default();
        let create = api.create(&parameters, event);
        call::<Event, _>("create", &event.name_any(), create)
            .await
            .map(drop)
    }

    /// Server-side apply under our one field manager. An object that carries uid and resourceVersion is written only
    /// if it is still that one.
    pub(crate) async fn apply<K: Kind>(&self, object: &K) -> Result<K, Error> {
        let namespace = object.namespace().unwrap_or_default();
        let name = object.name_any();
        let parameters = PatchParams::apply(names::FIELD_MANAGER).force();
        let body = with_type(object);
        call::<K, _>(
            "apply",
            &name,
            self.api::<K>(&namespace)
                .patch(&name, &parameters, &Patch::Apply(&body)),
        )
        .await
    }

    /// Replaces what we say in an object's status, if the object is still as we saw it.
    ///
    /// Only the status goes over the wire: a typed apply would make us the owner of every defaulted field of `spec`.
    pub(crate) async fn apply_status<K: Kind>(
        &self,
        object: &K,
        status: &impl Serialize,
    ) -> Result<(), Error> {
        let meta = object.meta();
        let namespace = object.namespace().unwrap_or_default();
        let name = object.name_any();
        let body = json!({
            "apiVersion": K::api_version(&()),
            "kind": K::kind(&()),
            "metadata": { "name": name, "uid": meta.uid, "resourceVersion": meta.resource_version },
            "status": status,
        });
        let parameters = PatchParams::apply(names::FIELD_MANAGER).force();
        let api = self.api::<K>(&namespace);
        call::<K, _>(
            "apply status of",
            &name,
            api.patch_status(&name, &parameters, &Patch::Apply(&body)),
        )
        .await
        .map(drop)
    }

    /// Deletes exactly the object that was seen. One that is gone already is fine.
    pub(crate) async fn delete<K: Kind>(&self, object: &K) -> Result<(), Error> {
        let namespace = object.namespace().unwrap_or_default();
        let name = object.name_any();
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: object.uid(),
                resource_version: None,
            }),
            ..DeleteParams::background()
        };
        match call::<K, _>(
            "delete",
            &name,
            self.api::<K>(&namespace).delete(&name, &parameters),
        )
        .await
        {
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The object as JSON with apiVersion and kind, which an apply needs.
pub(crate) fn with_type<K: Kind>(object: &K) -> Value {
    let mut value = serde_json::to_value(object).expect("Kubernetes objects are JSON");
    value["apiVersion"] = json!(K::api_version(&()));
    value["kind"] = json!(K::kind(&()));
    value
}

/// Runs one call under [`TIMEOUT`] and turns its error into ours.
pub(crate) async fn call<K: Kind, T>(
    verb: &'static str,
    name: &str,
    future: impl Future<Output = kube::Result<T>>,
) -> Result<T, Error> {
    let kind = K::kind(&()).into_owned();
    let name = name.to_owned();
    match tokio::time::timeout(TIMEOUT, future).await {
        Err(_) => Err(Error::Timeout { verb, kind, name }),
        Ok(Ok(value)) => Ok(value),
        Ok(Err(kube::Error::Api(status))) => Err(Error::Refused {
            verb,
            kind,
            name,
            code: status.code,
            reason: status.reason.clone(),
            status: Quiet(status),
        }),
        Ok(Err(_)) => Err(Error::Unreachable { verb, kind, name }),
    }
}
