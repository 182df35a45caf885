//! The bare echo server: as little as axum can do with the same request.

use std::convert::Infallible;

use anyhow::Result;
use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::net::TcpListener;

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(borrow)]
    params: &'a RawValue,
}

/// Prints its address and serves until it is killed.
pub(crate) fn serve() -> Result<bool> {
    run(async { Ok(Router::new().route("/", post(echo))) })
}

/// Prints its address and serves until it is killed.
pub(crate) fn run(router: impl Future<Output = Result<Router>>) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let router = router.await?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let service = TowerToHyperService::new(router.clone());
            let mut server = http1::Builder::new();
            server.max_buf_size(8192);
            tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
        }
    })
}

async fn echo(body: Bytes) -> Result<([(&'static str, &'static str); 1], Vec<u8>), Infallible> {
    let answer = match serde_json::from_slice::<Message<'_>>(&body) {
        Ok(Message { id, params }) => {
            let mut answer = Vec::with_capacity(body.len() + 64);
            answer.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
            answer.extend_from_slice(id.get().as_bytes());
            answer.extend_from_slice(b",\"result\":");
            answer.extend_from_slice(params.get().as_bytes());
            answer.push(b'}');
            answer
        }
        Err(_) => b"null".to_vec(),
    };
    Ok(([("content-type", "application/json")], answer))
}
