//! The HTTP client of one upstream: hyper's pool over connections that only [`Connector`] makes.

mod connect;
mod tls;

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};

pub(super) use self::connect::Connector;
pub(super) use self::tls::{Tls, trusting};
use super::error::OutboundError;

/// A server of HTTP/2 that has fallen silent is noticed after about twice this.
const PING: Duration = Duration::from_secs(15);

/// What a client allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// How long a connection may lie idle in the pool.
    pub(super) idle: Duration,
    pub(super) header_bytes: usize,
}

pub(super) struct Client {
    pool: legacy::Client<Connector, Full<Bytes>>,
    header_bytes: usize,
}

impl Client {
    pub(super) fn new(connector: Connector, limits: Limits) -> Self {
        let Limits { idle, header_bytes } = limits;
        let pool = legacy::Client::builder(TokioExecutor::new())
            .pool_idle_timeout(idle)
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .http1_max_buf_size(header_bytes)
            .http2_max_header_list_size(u32::try_from(header_bytes).unwrap_or(u32::MAX))
            .http2_keep_alive_interval(PING)
            .http2_keep_alive_timeout(PING)
            .build(connector);
        Self { pool, header_bytes }
    }

    /// Sends to the request's absolute URL. A connection out of the pool that turned out to be dead before anything was
    /// sent is replaced without a word.
    pub(super) async fn send(
        &self,
        name: &str,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, OutboundError> {
        let sent = self.pool.request(request).await;
        sent.map_err(|error| self.explain(name, error))
    }

    fn explain(&self, name: &str, error: legacy::Error) -> OutboundError {
        let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
        while let Some(error) = cause {
            if let Some(known) = error.downcast_ref::<OutboundError>() {
                return known.clone();
            }
            if error
                .downcast_ref::<hyper::Error>()
                .is_some_and(hyper::Error::is_parse_too_large)
            {
                return OutboundError::HeaderTooLarge {
                    name: name.to_owned(),
                    limit: self.header_bytes,
                };
            }
            cause = error.source();
        }
        OutboundError::Broken {
            name: name.to_owned(),
            source: std::sync::Arc::new(error),
        }
    }
}
