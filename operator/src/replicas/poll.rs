//! Long polls of the gateway pods, one task for each pod that takes calls.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use chandlery_crds::names::{self, gateway_secret};
use chandlery_crds::report::{HOLD_SECONDS, PATH, Report};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Request, StatusCode, header};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::reflector::Store;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::task::JoinSet;
use tracing::debug;

use super::Replica;
use crate::api::Error as ApiError;
use crate::context::Context;
use crate::watches::Queues;

/// Longer than the gateway holds a poll.
const TIMEOUT: Duration = Duration::from_secs(HOLD_SECONDS + 10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// No report is larger: 5,000 agents take about 1 MiB.
const MOST_BYTES: usize = 32 << 20;

type Http = Client<HttpConnector, Empty<Bytes>>;

/// Polls every ready pod, and wakes what a report says something new about. Runs until it is dropped,
/// and ends its tasks with itself.
pub(crate) async fn run(ctx: Arc<Context>, queues: Queues) {
    let caches = &ctx.caches;
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let http: Http = Client::builder(TokioExecutor::new()).build(connector);
    let mut polls = JoinSet::new();
    let mut running = BTreeMap::new();
    loop {
        let replicas: BTreeSet<Replica> = ready(&caches.pods);
        caches.board.set_replicas(&replicas);
        running.retain(|replica, poll: &mut tokio::task::AbortHandle| {
            let stays = replicas.contains(replica);
            if !stays {
                poll.abort();
            }
            stays
        });
        for replica in replicas {
            let poll = |replica| poll(ctx.clone(), queues.clone(), http.clone(), replica);
            running
                .entry(replica.clone())
                .or_insert_with(|| polls.spawn(poll(replica)));
        }
        while polls.try_join_next().is_some() {}
        caches.pods_changed.notified().await;
    }
}

fn ready(pods: &Store<k8s_openapi::api::core::v1::Pod>) -> BTreeSet<Replica> {
    pods.state()
        .iter()
        .filter_map(|pod| Replica::of(pod))
        .collect()
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("read the gateway's own Secret")]
    Secret(#[source] ApiError),
    #[error("the gateway's own Secret has no internal token")]
    NoToken,
    #[error("the pod cannot be reached")]
    Unreachable,
    #[error("the pod did not answer in time")]
    Timeout,
    #[error("the pod answered {0}")]
    Status(StatusCode),
    #[error("the pod's report cannot be read")]
    Unreadable,
}

impl Error {
    fn label(&self) -> &'static str {
        match self {
            Self::Secret(_) | Self::NoToken => "no_token",
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::Status(_) => "refused",
            Self::Unreadable => "unreadable",
        }
    }
}

async fn poll(ctx: Arc<Context>, queues: Queues, http: Http, replica: Replica) {
    let mut token: Option<SecretString> = None;
    let mut since = 0;
    let mut pause = Duration::from_millis(100);
    loop {
        match once(&ctx, &http, &replica, &mut token, since).await {
            Ok(report) => {
                ctx.health.metrics.reported("ok");
                pause = Duration::from_millis(100);
                since = report.revision;
                let changed = ctx.caches.board.set_report(&replica, report);
                queues.wake_uids(&ctx.caches, &changed).await;
            }
            Err(error) => {
                ctx.health.metrics.reported(error.label());
                debug!(pod.name = %replica.pod, error = &error as &dyn std::error::Error, "cannot poll a gateway pod");
                token = None;
                since = 0;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
        // Also after an answer: whatever a pod does, it is asked ten times a second at most.
        tokio::time::sleep(pause).await;
    }
}

async fn once(
    ctx: &Context,
    http: &Http,
    replica: &Replica,
    token: &mut Option<SecretString>,
    since: u64,
) -> Result<Report, Error> {
    if token.is_none() {
        let account = &replica.account;
        let secret = ctx
            .cluster
            .get::<Secret>(&account.namespace, &names::gateway(&account.name))
            .await
            .map_err(Error::Secret)?;
        let value = secret
            .and_then(|secret| secret.data?.remove(gateway_secret::INTERNAL_TOKEN))
            .ok_or(Error::NoToken)?;
        *token = Some(SecretString::from(
            String::from_utf8(value.0).map_err(|_| Error::NoToken)?,
        ));
    }
    let token = token.as_ref().ok_or(Error::NoToken)?;
    let address = SocketAddr::new(replica.address, names::GATEWAY_INTERNAL_PORT);
    let request = Request::get(format!("http://{address}{PATH}?since={since}"))
        .header(
            header::AUTHORIZATION,
            format!("Bearer {}", token.expose_secret()),
        )
        .body(Empty::new())
        .map_err(|_| Error::NoToken)?;
    let exchange = async {
        let answer = http
            .request(request)
            .await
            .map_err(|_| Error::Unreachable)?;
        if answer.status() != StatusCode::OK {
            return Err(Error::Status(answer.status()));
        }
        let body = Limited::new(answer.into_body(), MOST_BYTES)
            .collect()
            .await
            .map_err(|_| Error::Unreadable)?;
        serde_json::from_slice(&body.to_bytes()).map_err(|_| Error::Unreadable)
    };
    tokio::time::timeout(TIMEOUT, exchange)
        .await
        .map_err(|_| Error::Timeout)?
}
