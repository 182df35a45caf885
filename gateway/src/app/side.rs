//! A small HTTP server for what is not for agents: health, metrics, and what the operator asks.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// Connections at once; more wait to be accepted.
const MAX_CONNECTIONS: usize = 64;
/// How long a connection may be silent.
const IDLE: Duration = Duration::from_secs(60);

pub(super) type Answer = Response<Full<Bytes>>;

/// Answers requests on `listener` until `stop`, then drops what is still open.
pub(super) async fn serve<A, F>(listener: TcpListener, answer: A, stop: CancellationToken)
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    let accept = async || {
        let place = room.clone().acquire_owned().await;
        (place, listener.accept().await)
    };
    while let Some((place, accepted)) = stop.run_until_cancelled(accept()).await {
        while connections.try_join_next().is_some() {}
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let answer = answer.clone();
        let service = service_fn(move |request| {
            let answer = answer(request);
            async move { Ok::<_, Infallible>(answer.await) }
        });
        connections.spawn(async move {
            // A prober that hangs up is nothing to tell of.
            let _ = http1::Builder::new()
                .header_read_timeout(IDLE)
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
            drop(place);
        });
    }
}

pub(super) fn text(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    with_type(status, "text/plain; charset=utf-8", text)
}

pub(super) fn with_type(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}
