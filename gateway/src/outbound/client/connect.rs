//! The one place where a connection is made: to an address that was checked, and to no other.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;
use tower::Service;
use url::Host;

use super::Tls;
use crate::outbound::error::OutboundError;
use crate::outbound::guard::{Blocked, Guard};
use crate::outbound::names::Names;

/// The next address of a name is tried when the one before has not answered for this long.
const STAGGER: Duration = Duration::from_millis(250);
/// So many addresses of a name are tried at most.
const MAX_TRIED: usize = 6;

/// Makes the connections of one upstream.
#[derive(Clone)]
pub(in crate::outbound) struct Connector(Arc<Parts>);

struct Parts {
    guard: Guard,
    names: Names,
    tls: Tls,
    timeout: Duration,
}

impl Connector {
    pub(in crate::outbound) fn new(
        guard: Guard,
        names: Names,
        tls: Tls,
        timeout: Duration,
    ) -> Self {
        Self(Arc::new(Parts {
            guard,
            names,
            tls,
            timeout,
        }))
    }
}

impl Service<Uri> for Connector {
    type Response = Wire;
    type Error = OutboundError;
    type Future = BoxFuture<'static, Result<Wire, OutboundError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), OutboundError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let parts = self.0.clone();
        Box::pin(async move {
            let connected = timeout(parts.timeout, parts.connect(&uri)).await;
            connected.unwrap_or_else(|_| {
                Err(OutboundError::Unreachable {
                    host: host_of(&uri),
                    source: Arc::new(io::Error::from(io::ErrorKind::TimedOut)),
                })
            })
        })
    }
}

impl Parts {
    async fn connect(&self, uri: &Uri) -> Result<Wire, OutboundError> {
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(Blocked::Scheme.into()),
        };
        // Parsed as URLs are: what reads like an address is one.
        let host = Host::parse(uri.host().unwrap_or_default()).map_err(|_| Blocked::Url)?;
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let addresses = self.resolve(&host, port).await?;
        let tcp = dial(&addresses, port)
            .await
            .map_err(|error| OutboundError::Unreachable {
                host: host.to_string(),
                source: Arc::new(error),
            })?;
        // Otherwise a small request waits for the answer to the one before.
        let _ = tcp.set_nodelay(true);
        if !is_tls {
            return Ok(Wire::new(Either::Left(tcp), false));
        }
        let failed = |error: io::Error| OutboundError::Tls {
            host: host.to_string(),
            source: Arc::new(error),
        };
        let tls = TlsConnector::from(self.tls.clone())
            .connect(server_name(&host).ok_or(Blocked::Url)?, tcp)
            .await
            .map_err(failed)?;
        let is_h2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok(Wire::new(Either::Right(Box::new(tls)), is_h2))
    }

    /// Addresses of `host` that may all be dialed.
    async fn resolve(&self, host: &Host<String>, port: u16) -> Result<Vec<IpAddr>, OutboundError> {
        self.guard.check_host(host, port)?;
        let name = match host {
            Host::Ipv4(address) => return Ok(vec![(*address).into()]),
            Host::Ipv6(address) => return Ok(vec![address.to_canonical()]),
            Host::Domain(name) => name,
        };
        let with_search = self.guard.may_search(name, port);
        let addresses = self.names.addresses(name, with_search).await;
        let addresses = addresses.map_err(|source| OutboundError::Unresolvable {
            host: name.clone(),
            source,
        })?;
        self.guard.check_answers(name, port, &addresses)?;
        Ok(interleaved(addresses))
    }
}

fn host_of(uri: &Uri) -> String {
    uri.host().unwrap_or_default().to_owned()
}

fn server_name(host: &Host<String>) -> Option<ServerName<'static>> {
    match host {
        Host::Ipv4(address) => Some(ServerName::IpAddress(IpAddr::V4(*address).into())),
        Host::Ipv6(address) => Some(ServerName::IpAddress(IpAddr::V6(*address).into())),
        Host::Domain(name) => {
            ServerName::try_from(super::super::guard::plain(name).to_owned()).ok()
        }
    }
}

/// The two kinds of addresses in turns, since one of them may lead nowhere.
fn interleaved(addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    let (v6, v4): (Vec<IpAddr>, Vec<IpAddr>) = addresses.into_iter().partition(IpAddr::is_ipv6);
    let (mut v6, mut v4) = (v6.into_iter(), v4.into_iter());
    let mut mixed = Vec::new();
    loop {
        let next = [v6.next(), v4.next()];
        if next == [None, None] {
            return mixed;
        }
        mixed.extend(
            next.into_iter()
                .flatten()
                .map(|address| address.to_canonical()),
        );
    }
}

/// The first of `addresses` that answers; the next begins when one fails or is slow.
async fn dial(addresses: &[IpAddr], port: u16) -> io::Result<TcpStream> {
    let mut rest = addresses.iter().take(MAX_TRIED);
    let mut running = FuturesUnordered::new();
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    let mut next_at = Instant::now();
    loop {
        let is_last = rest.len() == 0;
        if is_last && running.is_empty() {
            return Err(failure);
        }
        tokio::select! {
            biased;
            Some(ended) = running.next() => match ended {
                Ok(stream) => return Ok(stream),
                Err(error) => {
                    failure = error;
                    next_at = Instant::now();
                }
            },
            () = sleep_until(next_at), if !is_last => {
                if let Some(address) = rest.next() {
                    running.push(TcpStream::connect(SocketAddr::new(*address, port)));
                }
                next_at = Instant::now() + STAGGER;
            }
        }
    }
}

/// A connection, in the clear or not.
pub(in crate::outbound) struct Wire {
    io: TokioIo<Either<TcpStream, Box<TlsStream<TcpStream>>>>,
    is_h2: bool,
}

impl Wire {
    fn new(io: Either<TcpStream, Box<TlsStream<TcpStream>>>, is_h2: bool) -> Self {
        Self {
            io: TokioIo::new(io),
            is_h2,
        }
    }
}

impl Connection for Wire {
    fn connected(&self) -> Connected {
        if self.is_h2 {
            Connected::new().negotiated_h2()
        } else {
            Connected::new()
        }
    }
}

impl Read for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl Write for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, buffers)
    }
}
