//! The load: a closed loop per connection, HTTP/1.1 by hand, and every answer is checked.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

/// A request that is sent again and again, its id apart.
#[derive(Clone)]
pub(crate) struct Shot {
    pub(crate) address: SocketAddr,
    /// Path and headers, each with its line end.
    pub(crate) path: String,
    pub(crate) headers: String,
    /// Body before and after the id.
    pub(crate) body: (String, String),
    /// What every answer holds.
    pub(crate) expected: &'static str,
}

/// What one point of the measurement gave.
pub(crate) struct Point {
    pub(crate) per_second: f64,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    /// Every call that was answered, those of the warm-up too.
    pub(crate) calls: usize,
}

const WARM_UP: Duration = Duration::from_secs(1);
const MEASURED: Duration = Duration::from_secs(3);

/// Saturates with `connections` for a few seconds.
pub(crate) async fn saturate(shots: &[Shot]) -> Result<Point> {
    let times = Rc::new(RefCell::new(Vec::<u32>::with_capacity(1 << 20)));
    let calls = Rc::new(Cell::new(0));
    let start = Instant::now();
    let (from, until) = (start + WARM_UP, start + WARM_UP + MEASURED);
    let set = LocalSet::new();
    let loops: Vec<_> = shots
        .iter()
        .map(|shot| {
            let (shot, times, calls) = (shot.clone(), times.clone(), calls.clone());
            set.spawn_local(async move {
                let mut connection = Connection::open(shot.address).await?;
                for id in 1u64.. {
                    let sent = Instant::now();
                    if sent >= until {
                        break;
                    }
                    let answer = connection.fire(&shot, id).await?;
                    ensure!(answer.contains(shot.expected), "{answer}");
                    let done = Instant::now();
                    calls.set(calls.get() + 1);
                    if sent >= from && done <= until {
                        times
                            .borrow_mut()
                            .push(u32::try_from((done - sent).as_nanos()).unwrap_or(u32::MAX));
                    }
                }
                anyhow::Ok(())
            })
        })
        .collect();
    set.run_until(async {
        for one in loops {
            one.await??;
        }
        anyhow::Ok(())
    })
    .await?;
    let mut times = times.take();
    ensure!(!times.is_empty(), "no answer in time");
    times.sort_unstable();
    let at = |part: f64| {
        let index = (times.len() - 1) as f64 * part;
        Duration::from_nanos(times[index as usize].into())
    };
    Ok(Point {
        per_second: times.len() as f64 / MEASURED.as_secs_f64(),
        p50: at(0.5),
        p99: at(0.99),
        calls: calls.get(),
    })
}

/// A connection that is kept.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    request: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: Vec::new(),
            request: Vec::new(),
        })
    }

    /// Sends the shot under `id`; gives the head and the body of the answer.
    pub(crate) async fn fire(&mut self, shot: &Shot, id: u64) -> Result<String> {
        let id = id.to_string();
        let (before, after) = &shot.body;
        let length = before.len() + id.len() + after.len();
        self.request.clear();
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\n{}content-length: {length}\r\n\r\n",
            shot.path, shot.headers
        );
        for part in [&head, before, &id, after] {
            self.request.extend_from_slice(part.as_bytes());
        }
        self.stream.write_all(&self.request).await?;
        let answer = self.answer().await?;
        ensure!(answer.contains(&format!("\"id\":{id}")), "{answer}");
        Ok(answer)
    }

    /// Sends a request without a body and waits for the head of its answer: a GET or a DELETE.
    pub(crate) async fn ask(&mut self, method: &str, path: &str, headers: &str) -> Result<String> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n{headers}\r\n"
        );
        self.stream.write_all(request.as_bytes()).await?;
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                let head = String::from_utf8(self.buffer.drain(..end + 4).collect())?;
                return Ok(head);
            }
            self.more().await?;
        }
    }

    async fn answer(&mut self) -> Result<String> {
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                let head = std::str::from_utf8(&self.buffer[..end])?;
                ensure!(head.starts_with("HTTP/1.1 200"), "{head}");
                let length: usize = head
                    .lines()
                    .find_map(|line| line.strip_prefix("content-length: "))
                    .context("an answer without a length")?
                    .parse()?;
                let end = end + 4 + length;
                if self.buffer.len() >= end {
                    return Ok(String::from_utf8(self.buffer.drain(..end).collect())?);
                }
            }
            self.more().await?;
        }
    }

    async fn more(&mut self) -> Result<()> {
        let read = self.stream.read_buf(&mut self.buffer).await?;
        ensure!(read > 0, "the server closed the connection");
        Ok(())
    }
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|part| part == wanted)
}
