//! A name server that says what a test wants.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

const A: u16 = 1;
const AAAA: u16 = 28;

pub(crate) struct Dns {
    pub(crate) address: SocketAddr,
    asked: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Dns {
    /// `answers` gets a name without its last dot, and how often addresses were asked for before. TTLs are 0.
    pub(crate) async fn start(
        answers: impl Fn(&str, usize) -> Vec<IpAddr> + Send + 'static,
    ) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let task = tokio::spawn(async move {
            let mut packet = [0; 1500];
            loop {
                let (size, from) = socket.recv_from(&mut packet).await.unwrap();
                let answer = answer(&packet[..size], |name, kind| {
                    // Both kinds are asked for at once; they are one question here.
                    let before = match kind {
                        A => count.fetch_add(1, Ordering::SeqCst),
                        _ => count.load(Ordering::SeqCst),
                    };
                    answers(name, before)
                });
                socket.send_to(&answer, from).await.unwrap();
            }
        });
        Self {
            address,
            asked,
            task,
        }
    }

    /// How often IPv4 addresses were asked for.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Drop for Dns {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn answer(query: &[u8], answers: impl FnOnce(&str, u16) -> Vec<IpAddr>) -> Vec<u8> {
    let mut at = 12;
    let mut labels = Vec::new();
    while query[at] != 0 {
        let length = usize::from(query[at]);
        labels.push(String::from_utf8_lossy(&query[at + 1..=at + length]).to_lowercase());
        at += 1 + length;
    }
    let kind = u16::from_be_bytes([query[at + 1], query[at + 2]]);
    let question = &query[12..at + 5];
    let all = answers(&labels.join("."), kind);
    let is_known = !all.is_empty();
    let of_kind: Vec<Vec<u8>> = all
        .into_iter()
        .filter_map(|address| match (address, kind) {
            (IpAddr::V4(address), A) => Some(address.octets().to_vec()),
            (IpAddr::V6(address), AAAA) => Some(address.octets().to_vec()),
            _ => None,
        })
        .collect();
    let mut out = query[..2].to_vec();
    out.extend([0x81, if is_known { 0x80 } else { 0x83 }, 0, 1]);
    out.extend((of_kind.len() as u16).to_be_bytes());
    out.extend([0, 0, 0, 0]);
    out.extend(question);
    for data in of_kind {
        out.extend([0xc0, 12]);
        out.extend(kind.to_be_bytes());
        out.extend([0, 1, 0, 0, 0, 0]);
        out.extend((data.len() as u16).to_be_bytes());
        out.extend(data);
    }
    out
}
