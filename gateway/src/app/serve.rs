//! `chandlery serve`: one straight line from settings to a gateway that serves, and back down.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chandlery_crds::names::gateway_secret;
use secrecy::SecretString;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info};

use super::cli::fail;
use super::health::Health;
use super::internal::{self, Internal};
use super::settings::{AccountName, Settings, Source};
use super::standalone::Announcement;
use super::{lint, logs, side};
use crate::audit::Audit;
use crate::catalog::Registry;
use crate::directory::files::{self, Files, FilesError, IdentityError};
use crate::directory::kube::{Cluster, ClusterError};
use crate::directory::{Directory, Publisher};
use crate::families;
use crate::families::connect::Connectors;
use crate::http;
use crate::metrics::Metrics;
use crate::outbound::{self, Outbound, SecretSettings};
use crate::pipeline::Pipeline;
use crate::store::{Clock, Store, StoreError, StoreUrl};

/// Why a gateway does not serve.
#[derive(Debug, thiserror::Error)]
enum ServeError {
    #[error("listen on {address}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("open the store")]
    Store(#[source] StoreError),
    #[error(transparent)]
    Files(#[from] FilesError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("read the account's key {}", path.display())]
    Key {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Outbound(#[from] outbound::SetupError),
    #[error("listen for signals")]
    Signals(#[source] io::Error),
    #[error("start the threads that serve")]
    Threads(#[source] io::Error),
}

pub(super) fn run(settings: Settings) -> ExitCode {
    if let Err(error) = logs::start(settings.log_format, &settings.log) {
        return super::cli::usage(error);
    }
    // Whoever opens a TLS connection first finds one provider, and no two to choose from.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // Looking at sockets this often keeps a busy connection from starving others.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .event_interval(8)
        .global_queue_interval(8)
        .build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(serve(settings)),
        Err(error) => return fail(format_args!("start: {error}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let reason = crate::directory::chain(&error);
            error!(reason, "the gateway does not serve");
            fail(reason)
        }
    }
}

async fn serve(settings: Settings) -> Result<(), ServeError> {
    let clock = Clock::system();
    let metrics = Arc::new(Metrics::default());
    let (publisher, directory) = Directory::new();
    // `stop` ends the work; `end` ends what watches over it.
    let (stop, end) = (CancellationToken::new(), CancellationToken::new());
    let tasks = TaskTracker::new();
    tasks.spawn(heed_signals(stop.clone(), end.clone())?);

    let health = Arc::new(Health {
        directory: directory.clone(),
        metrics: metrics.clone(),
        clock: clock.clone(),
        is_open: AtomicBool::new(false),
        stop: stop.clone(),
    });
    let (health_listener, health_address) = listen(settings.health).await?;
    let asked = health.clone();
    let answer = move |request| {
        let answer = asked.answer(&request);
        async move { answer }
    };
    tasks.spawn(side::serve(health_listener, answer, end.clone()));

    let (listener, address) = listen(settings.listen).await?;
    let url = match settings.postgres {
        Some(url) => StoreUrl::Postgres(url),
        None => StoreUrl::Sqlite(settings.data.clone()),
    };
    let opened = stop
        .run_until_cancelled(Store::open(&url, clock.clone()))
        .await;
    let Some(store) = opened.transpose().map_err(ServeError::Store)? else {
        return Ok(());
    };
    let own_key = |name| match &settings.source {
        Source::Files { .. } => Ok(files::own_secret(&settings.data, name)?),
        Source::Cluster { keys, .. } => account_key(keys, name),
    };
    let audit_key = own_key(gateway_secret::AUDIT_KEY)?;
    let state_key = own_key(gateway_secret::STATE_KEY)?;
    let mut pipeline = Pipeline::new(
        Registry::new(families::all(&store)),
        &store,
        Audit::start(store.clone(), &audit_key, metrics.clone()),
        metrics,
        directory.clone(),
    );
    pipeline.approval_wait = settings.approval_wait;
    let pipeline = Arc::new(pipeline);
    let outbound = Outbound::new(outbound::Settings {
        secrets: SecretSettings {
            require_hosts: settings.require_secret_hosts,
            ..SecretSettings::default()
        },
        private_ranges: settings.private_ranges,
        ..outbound::Settings::default()
    })?;

    let (references, announcement) = match settings.source {
        Source::Files { manifests } => {
            let files = read_files(&manifests, &settings.data, &clock, publisher).await?;
            let references = files.references();
            tasks.spawn(files.follow(end.clone()));
            let announcement =
                Announcement::new(address, health_address, &settings.data, &directory);
            (references, Some(announcement))
        }
        Source::Cluster {
            account,
            internal,
            keys,
        } => {
            let AccountName { namespace, name } = account;
            let cluster = Cluster::new(&namespace, &name, clock.clone(), publisher).await?;
            let references = cluster.references();
            tasks.spawn(cluster.follow(end.clone()));
            let (listener, _) = listen(internal).await?;
            let (sender, newest) = watch::channel(None);
            let internal = Internal::new(keys, newest);
            let answer = move |request| internal.clone().answer(request);
            tasks.spawn(side::serve(listener, answer, end.clone()));
            let first = u64::try_from(clock.now().as_millisecond()).unwrap_or_default();
            tasks.spawn(internal::keep(
                directory.clone(),
                pipeline.clone(),
                first,
                sender,
                end.clone(),
            ));
            info!(account.namespace = namespace, account.name = name, %address, "serving agents");
            (references, None)
        }
    };
    let connectors = Connectors {
        outbound,
        references,
        usage: pipeline.usage.clone(),
    };
    tasks.spawn(pipeline.follow_sources(connectors).run(end.clone()));
    health.is_open.store(true, Ordering::Release);
    // Whoever reads it finds what it says.
    if let Some(announcement) = announcement {
        announcement.print();
    }
    tasks.spawn(log_heads(pipeline.clone(), end.clone()));

    let http_settings = http::Settings {
        hostnames: settings.hostnames,
        max_config_staleness: settings.max_config_staleness,
        state_key: Some(state_key),
        ..http::Settings::default()
    };
    let workers = http::serve(listener, pipeline.clone(), http_settings, stop)
        .await
        .map_err(ServeError::Threads)?;
    pipeline.audit.close().await;
    pipeline.usage.close().await;
    say_heads(&pipeline).await;
    store.close().await;
    drop(workers);
    end.cancel();
    tasks.close();
    tasks.wait().await;
    info!("stopped");
    Ok(())
}

/// How often the heads of the audit's chains are logged.
const HEADS_EVERY: Duration = Duration::from_secs(3600);

async fn log_heads(pipeline: Arc<Pipeline>, end: CancellationToken) {
    let mut hours = tokio::time::interval(HEADS_EVERY);
    while end.run_until_cancelled(hours.tick()).await.is_some() {
        say_heads(&pipeline).await;
    }
}

async fn say_heads(pipeline: &Pipeline) {
    if let Err(failure) = pipeline.audit.log_heads().await {
        error!(error = %crate::store::Causes(&failure), "the heads of the audit could not be read");
    }
}

/// Cancels `stop` at the first signal to end. At the second the process ends as it is.
fn heed_signals(
    stop: CancellationToken,
    end: CancellationToken,
) -> Result<impl Future<Output = ()>, ServeError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(ServeError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServeError::Signals)?;
    Ok(async move {
        let mut next = async || {
            tokio::select! {
                _ = terminate.recv() => true,
                _ = interrupt.recv() => true,
                () = end.cancelled() => false,
            }
        };
        if next().await {
            info!("asked to stop: finishing what runs");
            stop.cancel();
        }
        if next().await {
            std::process::exit(1);
        }
    })
}

/// The listener and where it really listens: port 0 stands for any.
async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), ServeError> {
    let listener = TcpListener::bind(address).await;
    listener
        .and_then(|listener| Ok((listener.local_addr()?, listener)))
        .map(|(address, listener)| (listener, address))
        .map_err(|source| ServeError::Listen { address, source })
}

fn account_key(keys: &Path, name: &str) -> Result<SecretString, ServeError> {
    let path = keys.join(name);
    let read = std::fs::read_to_string(&path).and_then(|text| match text.is_empty() {
        true => Err(io::Error::new(io::ErrorKind::InvalidData, "it is empty")),
        false => Ok(text),
    });
    read.map(SecretString::from)
        .map_err(|source| ServeError::Key { path, source })
}

async fn read_files(
    manifests: &Path,
    data: &Path,
    clock: &Clock,
    publisher: Publisher,
) -> Result<Files, ServeError> {
    let (manifests, data, clock) = (manifests.to_owned(), data.to_owned(), clock.clone());
    let tools = families::tools();
    let check = Box::new(move |objects: &[_], now| lint::problems(objects, &tools, now));
    let open = move || Files::open(&manifests, &data, check, clock, publisher);
    match tokio::task::spawn_blocking(open).await {
        Ok(files) => Ok(files?),
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}
