//! The HTTP server: bounded connections, and the endpoint of each agent.

mod access;
mod api;
mod mcp;
mod workers;

use std::convert::Infallible;
use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::response::Response;
use http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use secrecy::SecretString;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;
use tracing::{info, warn};

pub use self::mcp::Limits;
pub use self::workers::Workers;

use self::access::Access;
use self::api::Api;
use self::mcp::Mcp;
use crate::families::config::ConfigRequests;
use crate::families::support::Tickets;
use crate::pipeline::Pipeline;

/// How a server behaves. The defaults are those of the product.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Host names that are accepted besides loopback, without port; `*.example.com` stands for every name below.
    pub hostnames: Vec<String>,
    /// How old the directory may get while its source cannot be reached; then 503. `None`: without limit.
    pub max_config_staleness: Option<Duration>,
    /// Threads that serve connections.
    pub workers: NonZeroUsize,
    /// Connections at once; more wait to be accepted.
    pub max_connections: usize,
    /// How long a connection may be silent between two requests, and how long the head of a request may take, and its
    /// body.
    pub idle_connection: Duration,
    /// Largest request body in bytes.
    pub max_body: usize,
    /// How often a call says that it goes on, to a client that sent a progress token.
    pub progress_interval: Duration,
    /// When a call that is still running is turned into an event stream.
    pub stream_after: Duration,
    /// Longest silence of an event stream; then it carries a comment.
    pub longest_silence: Duration,
    /// Largest page of `tools/list` in bytes.
    pub page_bytes: usize,
    pub sessions: Limits,
    /// Answers plain calls without rmcp. Off only to show that it makes no difference.
    pub fast_lane: bool,
    /// Seals what goes to clients and comes back; replicas share it. `None`: one that ends with the process.
    pub state_key: Option<SecretString>,
    /// How long running calls may go on once the server stops.
    pub grace: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            hostnames: Vec::new(),
            max_config_staleness: None,
            workers: thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            max_connections: 20_000,
            idle_connection: Duration::from_secs(75),
            max_body: 4 << 20,
            progress_interval: Duration::from_secs(20),
            stream_after: Duration::from_secs(10),
            longest_silence: Duration::from_secs(15),
            page_bytes: 900 << 10,
            sessions: Limits::default(),
            fast_lane: true,
            state_key: None,
            grace: Duration::from_secs(20),
        }
    }
}

/// Serves agents on `listener` until `shutdown`.
///
/// Then no connection is accepted any more, event streams end, and running calls have [`Settings::grace`] to finish.
/// Returns when all of that is done, the calls that write included; drop what it gives after the store is closed.
///
/// Fails only at the start, when threads cannot be had.
pub async fn serve(
    listener: TcpListener,
    pipeline: Arc<Pipeline>,
    settings: Settings,
    shutdown: CancellationToken,
) -> io::Result<Workers> {
    let workers = Workers::start(settings.workers)?;
    let grace = settings.grace;
    let mcp = Arc::new(Mcp::new(
        pipeline.clone(),
        settings.clone(),
        shutdown.clone(),
    ));
    let access = Arc::new(Access {
        directory: pipeline.directory.clone(),
        clock: pipeline.clock.clone(),
        metrics: pipeline.metrics.clone(),
        hostnames: settings.hostnames.clone(),
        max_config_staleness: settings.max_config_staleness,
    });
    let house = mcp.clone();
    tokio::join!(
        accept(
            listener,
            front(mcp, access, pipeline.clone()),
            &workers,
            &settings,
            &shutdown,
        ),
        house.keep_house(),
        async {
            shutdown.cancelled().await;
            pipeline.stopping.cancel();
        },
        async {
            shutdown
                .run_until_cancelled(pipeline.approvals.keep_house())
                .await
        },
    );
    pipeline.writes.close();
    if tokio::time::timeout(grace, pipeline.writes.wait())
        .await
        .is_err()
    {
        warn!(
            calls = pipeline.writes.len(),
            "stopping in the middle of calls that write"
        );
    }
    Ok(workers)
}

/// What agents' endpoints look like, before and after the agent's id.
const ENDPOINT: (&str, &str) = ("/runtime/agents/", "/mcp");

/// What answers requests.
struct Front {
    mcp: Arc<Mcp>,
    access: Arc<Access>,
    /// Everything but agents' endpoints.
    rest: Router,
}

fn front(mcp: Arc<Mcp>, access: Arc<Access>, pipeline: Arc<Pipeline>) -> Arc<Front> {
    let api = api::router(Api {
        requests: ConfigRequests::new(pipeline.store.clone()),
        tickets: Tickets::new(pipeline.store.clone()),
        pipeline,
        access: access.clone(),
    });
    let rest = api.fallback(async || (StatusCode::NOT_FOUND, "not found\n"));
    Arc::new(Front { mcp, access, rest })
}

impl Front {
    /// Answers one request. An agent's endpoint is found by hand: a router costs more than the check of the key.
    async fn answer(&self, request: Request<Incoming>) -> Result<Response, Infallible> {
        let Some(agent) = agent_of(request.uri().path()) else {
            // Boxed: every request would carry the room for it.
            return Box::pin(self.rest.clone().oneshot(request)).await;
        };
        Ok(
            match self.access.admit(request.uri(), request.headers(), agent) {
                Ok(caller) => self.mcp.answer(&caller, request).await,
                Err(refusal) => *refusal,
            },
        )
    }
}

/// The id in the path of an agent's endpoint; `None` for any other path.
fn agent_of(path: &str) -> Option<&str> {
    let id = path.strip_prefix(ENDPOINT.0)?.strip_suffix(ENDPOINT.1)?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}

async fn accept(
    listener: TcpListener,
    front: Arc<Front>,
    workers: &Workers,
    settings: &Settings,
    shutdown: &CancellationToken,
) {
    let connections = TaskTracker::new();
    let room = Arc::new(Semaphore::new(settings.max_connections));
    loop {
        let place = tokio::select! {
            place = room.clone().acquire_owned() => place.expect("the semaphore is never closed"),
            () = shutdown.cancelled() => break,
        };
        let stream = tokio::select! {
            // Given to a thread of its own, a connection leaves the one that listens.
            accepted = listener.accept() => match accepted.and_then(|(stream, _)| stream.into_std()) {
                Ok(stream) => stream,
                Err(cause) => {
                    // Out of file descriptors, say: others may become free.
                    warn!(error = %cause, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = shutdown.cancelled() => break,
        };
        let front = front.clone();
        let (idle, grace) = (settings.idle_connection, settings.grace);
        let shutdown = shutdown.clone();
        let connection = async move {
            if let Ok(stream) = TcpStream::from_std(stream) {
                converse(stream, front, idle, grace, &shutdown).await;
            }
            drop(place);
        };
        connections.spawn_on(connection, workers.next());
    }
    info!(connections = connections.len(), "stopping to serve agents");
    connections.close();
    connections.wait().await;
}

async fn converse(
    stream: TcpStream,
    front: Arc<Front>,
    idle: Duration,
    grace: Duration,
    shutdown: &CancellationToken,
) {
    // Without it every event of a stream waits for the acknowledgement of the one before, about 40 ms.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let answer = service_fn(move |request| {
        let front = front.clone();
        // Boxed, so that an idle connection holds no room for it.
        Box::pin(async move { front.answer(request).await })
    });
    let connection = http1::Builder::new()
        .max_buf_size(8192)
        // hyper counts from the end of one request to the end of the next one's head.
        .header_read_timeout(idle)
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), answer);
    let mut connection = std::pin::pin!(connection);
    // How a connection ends says nothing that the call's own record does not say.
    tokio::select! {
        _ = connection.as_mut() => {}
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(grace, connection).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::agent_of;

    #[test]
    fn an_endpoint_has_one_segment_for_its_agent() {
        for (path, expected) in [
            ("/runtime/agents/team.bot/mcp", Some("team.bot")),
            ("/runtime/agents/%2F/mcp", Some("%2F")),
            ("/runtime/agents/mcp", None),
            ("/runtime/agents//mcp", None),
            ("/runtime/agents/a/b/mcp", None),
            ("/runtime/agents/a/mcp/", None),
            ("/api/v1/me", None),
        ] {
            assert_eq!(agent_of(path), expected, "{path}");
        }
    }
}
