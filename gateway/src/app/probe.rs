//! `chandlery probe`: whether something answers, for tests and for images that have no shell.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use http::Uri;

use super::cli::{fail, print, usage};

#[derive(clap::Args)]
pub(super) struct Args {
    /// `http://host:port/path` asks for an answer below 400, `tcp://host:port` only for a connection.
    url: Uri,
    /// How long to wait for it.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = super::settings::duration)]
    timeout: Duration,
}

pub(super) fn run(args: Args) -> ExitCode {
    let (Some(host), scheme) = (args.url.host(), args.url.scheme_str()) else {
        return usage("write a whole URL, such as http://localhost:8082/readyz");
    };
    let port = args.url.port_u16().unwrap_or(80);
    let asks_http = match scheme {
        Some("http") => true,
        Some("tcp") => false,
        _ => return usage("the URL must start with http:// or tcp://"),
    };
    let deadline = Instant::now() + args.timeout;
    let mut stream = match connect(host.trim_matches(['[', ']']), port, deadline) {
        Ok(stream) => stream,
        Err(error) => return fail(format_args!("connect to {host}:{port}: {error}")),
    };
    if !asks_http {
        return print("connected");
    }
    match get(&mut stream, &args.url, deadline) {
        Ok(status) if status < 400 => print(status),
        Ok(status) => fail(format_args!("the answer was {status}")),
        Err(error) => fail(format_args!("no answer from {host}:{port}: {error}")),
    }
}

fn connect(host: &str, port: u16, deadline: Instant) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::other("the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left(deadline)?) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The status of `GET url`.
fn get(stream: &mut TcpStream, url: &Uri, deadline: Instant) -> std::io::Result<u16> {
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let host = url.authority().map_or("", |authority| authority.as_str());
    stream.set_write_timeout(Some(left(deadline)?))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: {host}\r\naccept: */*\r\nconnection: close\r\n\r\n"
    )?;
    // `HTTP/1.1 200`: twelve bytes say it all.
    let mut head = [0; 12];
    let mut filled = 0;
    while filled < head.len() {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(&mut head[filled..])? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            read => filled += read,
        }
    }
    std::str::from_utf8(&head)
        .ok()
        .filter(|head| head.starts_with("HTTP/1."))
        .and_then(|head| head[9..].parse().ok())
        .ok_or_else(|| std::io::Error::other("the answer is not HTTP"))
}

fn left(deadline: Instant) -> std::io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(std::io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}
