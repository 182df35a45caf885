//! Upstreams that answer as badly as a test wants, and canaries that must never be reached.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::sleep;

#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Request line and headers.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (own, value) = line.split_once(':')?;
            own.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }
}

pub(crate) enum Answer {
    /// Exactly these bytes; the connection stays.
    Raw(Vec<u8>),
    /// These bytes, then the end of the connection.
    Last(Vec<u8>),
    /// The first bytes, then the second ones again and again, with a pause before each.
    Endless(Vec<u8>, Vec<u8>, Duration),
    Hang,
}

/// A whole answer.
pub(crate) fn reply(status: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{headers}\r\n{body}").into_bytes()
}

pub(crate) fn ok(body: &str) -> Answer {
    Answer::Raw(reply("200 OK", "", body))
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    connections: AtomicUsize,
    written: AtomicUsize,
    seen: Mutex<Vec<Seen>>,
}

impl Server {
    /// `handler` gets each request, and how many there were before.
    pub(crate) async fn start(
        handler: impl Fn(&Seen, usize) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self::at("127.0.0.1:0", handler).await.unwrap()
    }

    pub(crate) async fn at(
        address: &str,
        handler: impl Fn(&Seen, usize) -> Answer + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let state = Arc::new(State::default());
        let (shared, handler) = (state.clone(), Arc::new(handler));
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                shared.connections.fetch_add(1, Ordering::SeqCst);
                let (shared, handler) = (shared.clone(), handler.clone());
                tokio::spawn(async move { serve(stream, &shared, &*handler).await });
            }
        });
        Ok(Self {
            address,
            state,
            task,
        })
    }

    /// On `address`, and reached by nobody.
    pub(crate) async fn canary(address: &str) -> io::Result<Self> {
        Self::at(address, |_, _| ok("the canary was reached")).await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn written(&self) -> usize {
        self.state.written.load(Ordering::SeqCst)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.state.seen.lock().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers requests on one connection until something ends it.
async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    state: &State,
    handler: &(dyn Fn(&Seen, usize) -> Answer + Send + Sync),
) {
    while let Some(seen) = read(&mut stream).await {
        let before = {
            let mut all = state.seen.lock();
            all.push(seen.clone());
            all.len() - 1
        };
        match handler(&seen, before) {
            Answer::Raw(bytes) => {
                if stream.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            Answer::Last(bytes) => {
                let _ = stream.write_all(&bytes).await;
                let _ = stream.shutdown().await;
                return;
            }
            Answer::Endless(first, then, pause) => {
                let mut next = first;
                while let Ok(()) = stream.write_all(&next).await {
                    state.written.fetch_add(next.len(), Ordering::SeqCst);
                    next.clone_from(&then);
                    if !pause.is_zero() {
                        sleep(pause).await;
                    }
                }
                return;
            }
            Answer::Hang => std::future::pending().await,
        }
    }
}

async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Option<Seen> {
    let mut bytes = Vec::new();
    loop {
        let head = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(end) = head {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let seen = Seen {
                head,
                body: String::new(),
            };
            let length = seen.header("content-length");
            let length: usize = length.map_or(0, |length| length.parse().unwrap());
            if bytes.len() >= end + 4 + length {
                let body = String::from_utf8_lossy(&bytes[end + 4..]).into_owned();
                return Some(Seen { body, ..seen });
            }
        }
        let mut piece = [0; 4096];
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => return None,
            Ok(size) => bytes.extend_from_slice(&piece[..size]),
        }
    }
}

/// One TLS connection after the other, with a certificate for `localhost`.
pub(crate) async fn start_tls(
    config: Arc<rustls::ServerConfig>,
    handler: impl Fn(&Seen, usize) -> Answer + Send + Sync + 'static,
) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(config);
    let task = tokio::spawn(async move {
        let state = State::default();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            if let Ok(stream) = acceptor.accept(stream).await {
                serve(stream, &state, &handler).await;
            }
        }
    });
    (address, task)
}
