//! Tools of remote MCP servers: discovered as they are published, called as they are called, answered as they answer.
//!
//! The client is our own and thin. rmcp's would parse each result into its types and write it again, run a task and
//! queues for each connection, and know one client alone, where here many agents come by way of one source; and what it
//! does not know of a tool it would not pass on. Discovery shares the way of calls, so that both see the same server.

mod call;
mod changes;
mod conversation;
mod discovery;
mod events;
mod features;
mod mirror;
mod offers;
mod older;
mod server;
mod sessions;
mod tasks;
mod trouble;
mod watch;
mod wire;

use std::sync::Arc;

use bytes::Bytes;
use chandlery_crds::Level;
use chandlery_crds::conditions::reason;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use self::call::Remote;
use self::discovery::Answer;
use self::offers::Common;
use self::server::{Server, Spoken};
use self::watch::Tells;
use super::connect::{Site, url};
use crate::connector::{Connector, Failure, Offered};
use crate::usage::Usage;

/// The connector of an MCP server.
pub(super) fn connect(site: Site) -> Result<Arc<dyn Connector>, Failure> {
    let spec = site.spec.mcp.as_ref();
    let spec = spec.ok_or_else(|| Failure::new(reason::INVALID, "spec.mcp: write it"))?;
    let base = url(&spec.url, "spec.mcp.url")?;
    let uri = base.as_str().parse();
    let uri =
        uri.map_err(|_| Failure::new(reason::INVALID, "spec.mcp.url: it cannot be sent to"))?;
    let upstream = site.upstream(base)?;
    let server = Server::new(site.name.clone(), upstream, uri, site.spec.timeout());
    Ok(Arc::new(Source {
        server: Arc::new(server),
        prefix: site.prefix(),
        permission: site.spec.permission,
        usage: site.usage().clone(),
        known: Mutex::default(),
    }))
}

/// One generation of a ToolSource.
struct Source {
    server: Arc<Server>,
    prefix: String,
    permission: Level,
    usage: Usage,
    /// How the server can be listened to.
    known: Mutex<Option<Known>>,
}

#[derive(Clone, Copy)]
struct Known {
    spoken: Spoken,
    tells: Tells,
}

impl Connector for Source {
    fn fetch(&self) -> BoxFuture<'_, Result<Bytes, Failure>> {
        Box::pin(async {
            let answer = discovery::discover(&self.server).await;
            let answer = answer.map_err(|trouble| trouble.failure(&self.server.name))?;
            *self.known.lock() = Some(Known {
                spoken: answer.spoken(),
                tells: Tells::of(&answer.capabilities),
            });
            let answer = serde_json::to_vec(&answer).expect("what was read as JSON is JSON");
            Ok(answer.into())
        })
    }

    fn read(&self, answer: &Bytes) -> Result<Offered, Failure> {
        let answer: Answer = serde_json::from_slice(answer).map_err(|_| {
            Failure::new(
                reason::DOCUMENT_INVALID,
                "what the server said before cannot be read; it is asked again soon",
            )
        })?;
        let common = Common {
            source: &self.server.name,
            prefix: &self.prefix,
            permission: self.permission,
        };
        let spoken = answer.spoken();
        let tools = offers::read(&answer, &common);
        Ok(Offered {
            tools: tools.tools,
            left_out: tools.left_out,
            family: Arc::new(Remote {
                server: self.server.clone(),
                spoken,
                prefix: self.prefix.clone(),
                features: features::features(&answer.capabilities, spoken),
                mirrors: tools.mirrors,
                usage: self.usage.clone(),
            }),
        })
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let known = *self.known.lock();
            match known {
                Some(known) => {
                    watch::changed(&self.server, known.spoken, known.tells).await;
                }
                None => self.server.has_changed.notified().await,
            }
        })
    }
}
