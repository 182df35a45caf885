//! What changes at a server besides its tools, for the clients of agents.
//!
//! That a list has changed is heard on the gateway's own stream, for everyone. Which resources are updated is told to
//! whoever subscribes, so an agent has one stream for all its clients, as long as one of them listens.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use http::StatusCode;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Semaphore, broadcast, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::server::{Asking, Nobody, Server, Spoken, Tally};
use super::trouble::Trouble;
use super::watch::{self as told, PAUSE};
use super::wire::{Message, Params, Request};
use crate::family::{Change, Wanted};

/// Agents that listen to one server at once; others wait. Half of the server's streams are left for calls.
const MOST_AGENTS: usize = 64;
/// Resources that one agent hears of.
const MOST_RESOURCES: usize = 256;
/// Changes that a client may be behind before it misses some.
const QUEUE: usize = 64;
/// How often a session in which somebody listens counts as used.
const TOUCH: Duration = Duration::from_secs(60);
const UPDATED: &str = "notifications/resources/updated";

pub(super) struct Changes {
    lists: broadcast::Sender<Change>,
    /// By UID of the agent.
    hubs: Mutex<HashMap<String, Weak<Hub>>>,
    places: Arc<Semaphore>,
    next_want: AtomicU64,
}

/// What one agent's clients want to hear of, over one stream.
struct Hub {
    wants: watch::Sender<HashMap<u64, BTreeSet<String>>>,
    heard: broadcast::Sender<Change>,
    _listens: AbortOnDropHandle<()>,
}

/// What one client wants, until it is dropped.
struct Want {
    hub: Arc<Hub>,
    number: u64,
}

impl Drop for Want {
    fn drop(&mut self) {
        self.hub.wants.send_modify(|wants| {
            wants.remove(&self.number);
        });
    }
}

impl Changes {
    pub(super) fn new() -> Self {
        Self {
            lists: broadcast::Sender::new(QUEUE),
            hubs: Mutex::default(),
            places: Arc::new(Semaphore::new(MOST_AGENTS)),
            next_want: AtomicU64::new(0),
        }
    }

    /// A list has changed.
    pub(super) fn list(&self, change: Change) {
        // Nobody listens: nobody has to know.
        let _ = self.lists.send(change);
    }
}

/// What changes of what a client of `agent` wants, until it is dropped.
pub(super) fn of(
    server: &Arc<Server>,
    spoken: Spoken,
    agent: &str,
    wanted: Wanted,
) -> BoxStream<'static, Change> {
    let lists = server.changes.lists.subscribe();
    let updates = (!wanted.resources.is_empty()).then(|| want(server, spoken, agent, &wanted));
    let state = (lists, updates, wanted);
    let changes = stream::unfold(state, |(mut lists, mut updates, wanted)| async move {
        loop {
            let heard = tokio::select! {
                heard = lists.recv() => heard,
                heard = next(&mut updates) => heard,
            };
            match heard {
                Ok(change) if wanted.covers(&change) => {
                    return Some((change, (lists, updates, wanted)));
                }
                // Somebody else's, or too many at once.
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    });
    changes.boxed()
}

async fn next(
    updates: &mut Option<(Want, broadcast::Receiver<Change>)>,
) -> Result<Change, RecvError> {
    match updates {
        Some((_, heard)) => heard.recv().await,
        None => std::future::pending().await,
    }
}

/// Joins the agent's other clients.
fn want(
    server: &Arc<Server>,
    spoken: Spoken,
    agent: &str,
    wanted: &Wanted,
) -> (Want, broadcast::Receiver<Change>) {
    let changes = &server.changes;
    let number = changes.next_want.fetch_add(1, Ordering::Relaxed);
    let mut hubs = changes.hubs.lock();
    let hub = hubs.get(agent).and_then(Weak::upgrade).unwrap_or_else(|| {
        let (wants, wanted) = watch::channel(HashMap::new());
        let heard = broadcast::Sender::new(QUEUE);
        let listens = follow(
            server.clone(),
            spoken,
            agent.to_owned(),
            wanted,
            heard.clone(),
        );
        Arc::new(Hub {
            wants,
            heard,
            _listens: AbortOnDropHandle::new(tokio::spawn(listens)),
        })
    });
    hubs.retain(|_, hub| hub.strong_count() > 0);
    hubs.insert(agent.to_owned(), Arc::downgrade(&hub));
    drop(hubs);
    let heard = hub.heard.subscribe();
    hub.wants.send_modify(|wants| {
        wants.insert(number, wanted.resources.clone());
    });
    (Want { hub, number }, heard)
}

/// Listens to what the agent's clients want, beginning anew whenever that changes.
async fn follow(
    server: Arc<Server>,
    spoken: Spoken,
    agent: String,
    mut wants: watch::Receiver<HashMap<u64, BTreeSet<String>>>,
    heard: broadcast::Sender<Change>,
) {
    let Ok(_place) = server.changes.places.acquire().await else {
        return;
    };
    let never = CancellationToken::new();
    let asking = Asking {
        agent: &agent,
        client: &Nobody,
        takes_tasks: false,
        cancelled: &never,
    };
    let mut subscribed = BTreeSet::new();
    loop {
        let all = together(&wants.borrow());
        let listening = async {
            loop {
                match listen(&server, spoken, &asking, &all, &mut subscribed, &heard).await {
                    // It cannot say so.
                    Err(Trouble::Status(
                        StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_FOUND,
                    )) => std::future::pending::<()>().await,
                    Ok(()) | Err(_) => sleep(PAUSE).await,
                }
            }
        };
        tokio::select! {
            () = listening => {}
            changed = wants.wait_for(|wants| together(wants) != all) => if changed.is_err() { return },
        }
    }
}

/// What all of them want.
fn together(wants: &HashMap<u64, BTreeSet<String>>) -> BTreeSet<String> {
    let all: BTreeSet<&String> = wants.values().flatten().collect();
    all.into_iter().take(MOST_RESOURCES).cloned().collect()
}

/// Listens until the stream ends.
async fn listen(
    server: &Server,
    spoken: Spoken,
    asking: &Asking<'_>,
    wanted: &BTreeSet<String>,
    subscribed: &mut BTreeSet<String>,
    heard: &broadcast::Sender<Change>,
) -> Result<(), Trouble> {
    if !spoken.newer {
        subscribe(server, spoken, asking, wanted, subscribed).await?;
    }
    if wanted.is_empty() {
        std::future::pending::<()>().await;
    }
    let filter = json!({"resourceSubscriptions": wanted});
    let mut events = told::open(server, spoken, asking, &filter).await?;
    loop {
        let Ok(event) = timeout(TOUCH, events.next()).await else {
            if !spoken.newer {
                server.session(&server.key(asking)).await?;
            }
            continue;
        };
        let Some(event) = event.transpose()? else {
            return Ok(());
        };
        let Some(message) = Message::parse(&event) else {
            continue;
        };
        if message.method.as_deref() == Some(UPDATED)
            && let Some(change) = message.params.and_then(updated)
        {
            let _ = heard.send(change);
        }
    }
}

/// Brings what an agent's session has subscribed to in line with what is wanted.
async fn subscribe(
    server: &Server,
    spoken: Spoken,
    asking: &Asking<'_>,
    wanted: &BTreeSet<String>,
    subscribed: &mut BTreeSet<String>,
) -> Result<(), Trouble> {
    let gone: Vec<String> = subscribed.difference(wanted).cloned().collect();
    let gone = gone.iter().map(|uri| ("resources/unsubscribe", uri));
    let wanted = wanted.iter().map(|uri| ("resources/subscribe", uri));
    for (method, uri) in gone.chain(wanted) {
        let request = Request {
            method,
            params: Params::default().with("uri", uri),
            ..Request::default()
        };
        let told = server
            .ask(spoken, asking, &request, &mut Tally::default())
            .await;
        match told {
            // One that the server does not have is no reason to miss the others.
            Ok(_) | Err(Trouble::Rpc(_)) => {}
            Err(trouble) => return Err(trouble),
        }
        if method == "resources/subscribe" {
            subscribed.insert(uri.clone());
        } else {
            subscribed.remove(uri);
        }
    }
    Ok(())
}

fn updated(params: &serde_json::value::RawValue) -> Option<Change> {
    let params: serde_json::Value = serde_json::from_str(params.get()).ok()?;
    Some(Change::Resource(params["uri"].as_str()?.to_owned()))
}
