//! A loopback proxy that adds a header, for clients that cannot: it passes everything else through as it comes.

use std::net::SocketAddr;

use anyhow::Result;
use http::{HeaderValue, Request, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

/// Ends when it is dropped.
pub struct Proxy {
    pub address: SocketAddr,
    _task: AbortOnDropHandle<()>,
}

impl Proxy {
    /// Forwards to `upstream`, with `Authorization: Bearer <key>` on every request.
    pub async fn start(upstream: SocketAddr, key: &str) -> Result<Self> {
        let bearer = HeaderValue::from_str(&format!("Bearer {key}"))?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        // A connection of its own for each request: what a client drops is dropped upstream too.
        let client = Client::builder(TokioExecutor::new())
            .set_host(false)
            .pool_max_idle_per_host(0)
            .build_http::<Incoming>();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // Streams suffer without it, and the proxy must not be what is slow.
                let _ = stream.set_nodelay(true);
                let (client, bearer) = (client.clone(), bearer.clone());
                let forward = service_fn(move |mut request: Request<Incoming>| {
                    let path = request
                        .uri()
                        .path_and_query()
                        .map_or("/", |path| path.as_str());
                    let uri = format!("http://{upstream}{path}").parse();
                    if let Ok(uri) = uri {
                        *request.uri_mut() = uri;
                    }
                    request
                        .headers_mut()
                        .insert(header::AUTHORIZATION, bearer.clone());
                    client.request(request)
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), forward));
            }
        });
        Ok(Self {
            address,
            _task: AbortOnDropHandle::new(task),
        })
    }
}
