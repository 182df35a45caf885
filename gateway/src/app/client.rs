//! How the command line asks a gateway: one request, bounded in time and size.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// A gateway's answers stay well below it.
const MAX_ANSWER: usize = 8 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Why there is no answer.
pub(super) enum SendError {
    /// Nobody has seen the request.
    Connect(String),
    /// Nobody knows what became of it.
    Broken(String),
}

/// Sends a request to an `http://` URL; the answer's status and body.
pub(super) async fn send(request: Request<Full<Bytes>>) -> Result<(StatusCode, String), SendError> {
    let url = request.uri().to_string();
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let client = Client::builder(TokioExecutor::new()).build::<_, Full<Bytes>>(connector);
    let response = client.request(request).await.map_err(|error| {
        if error.is_connect() {
            SendError::Connect(format!("connect to {url}: {}", root(&error)))
        } else {
            SendError::Broken(format!("{url}: {}", root(&error)))
        }
    })?;
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_ANSWER)
        .collect()
        .await
        .map_err(|error| SendError::Broken(format!("read the answer of {url}: {error}")))?;
    Ok((
        status,
        String::from_utf8_lossy(&body.to_bytes()).into_owned(),
    ))
}

/// A key or token from its file.
pub(super) fn read_secret(file: &Path) -> Result<String, String> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(error) => Err(format!("read {}: {error}", file.display())),
    }
}

/// What lies at the bottom of an error, since that is what people can act on.
fn root(error: &dyn Error) -> String {
    error.source().map_or_else(|| error.to_string(), root)
}
