//! Sessions of the older era: one bounded row each, bound to the key that opened it, for both lanes.
//!
//! An idle session has neither a task nor a channel. Only what is going on right now hangs off its row.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use dashmap::DashMap;
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use rmcp::model::{
    ClientCapabilities, ClientJsonRpcMessage, InitializeRequestParams, JsonRpcMessage,
    NumberOrString, RequestId,
};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::listening::{Listening, Tell};
use super::lists::List;
use super::wire::{self, SESSION_ID};
use crate::catalog::Catalog;
use crate::family::Wanted;
use crate::http::access::Caller;

/// How many sessions there may be and how long they live.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A session that nothing was heard of for so long ends, unless a stream of it is open.
    pub idle: Duration,
    /// At this many, a key's longest idle session makes room for its next.
    pub per_key: usize,
    /// At this many, nobody can open another.
    pub total: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(8 * 3600),
            per_key: 10_000,
            total: 100_000,
        }
    }
}

/// What remains of each client: its sessions, and the parameters of `initialize` that its sessions share.
pub(super) struct Sessions {
    limits: Limits,
    started: Instant,
    rows: DashMap<u128, Arc<Session>>,
    owners: DashMap<Owner, HashSet<u128>>,
    kinds: Mutex<HashMap<Vec<u8>, Arc<InitializeRequestParams>>>,
}

/// Whom a session is bound to. Another key of the same agent is somebody else.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Owner {
    pub(super) agent_uid: Arc<str>,
    pub(super) key_id: Arc<str>,
}

pub(super) struct Session {
    id: u128,
    pub(super) owner: Owner,
    /// What the client said of itself, shared by the sessions of one kind of client.
    pub(super) client: Arc<InitializeRequestParams>,
    /// The list that the client knows.
    pub(super) list: Mutex<Arc<List>>,
    /// Seconds since the table was made.
    last_seen: AtomicU32,
    next_outgoing: AtomicU32,
    /// The client has said which log messages it wants.
    wants_logs: AtomicBool,
    /// URIs of the resources that the client has subscribed to; no place at all for most.
    subscribed: Mutex<BTreeSet<String>>,
    state: Mutex<State>,
}

enum State {
    Idle,
    Live(Box<Live>),
    Ended,
}

/// What is going on in a session.
#[derive(Default)]
struct Live {
    /// The GET stream, with a number that tells it from the one before.
    stream: Option<(u64, mpsc::Sender<Bytes>)>,
    /// What the client hears of on that stream besides its tools.
    listening: Listening,
    /// Running calls, of either lane.
    calls: HashMap<RequestId, CancellationToken>,
    /// Questions to the client, by the id that they were sent under.
    asked: HashMap<u32, Asked>,
}

/// Who waits for the client's answer: a call, which knows the question under an id of its own.
struct Asked {
    id: RequestId,
    answers: mpsc::Sender<ClientJsonRpcMessage>,
}

/// A call that is listed in its session; dropping it takes it out.
pub(super) struct InFlight {
    session: Arc<Session>,
    id: RequestId,
}

/// The open GET stream of a session; dropping it closes it, unless a newer one has taken its place.
pub(super) struct OpenStream {
    session: Arc<Session>,
    number: u64,
}

/// Messages that may wait on a stream before its client counts as gone.
pub(super) const QUEUE: usize = 16;
/// Resources that one client can subscribe to, and bytes of their URIs.
pub(super) const MOST_RESOURCES: usize = 64;
pub(super) const LONGEST_URI: usize = 2_048;
/// Kinds of clients that are remembered before unused ones are forgotten.
const KINDS: usize = 1024;

static STREAMS: AtomicU64 = AtomicU64::new(0);

impl Sessions {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            started: Instant::now(),
            rows: DashMap::new(),
            owners: DashMap::new(),
            kinds: Mutex::default(),
        }
    }

    /// Opens a session; `None` when there are too many.
    pub(super) fn open(
        &self,
        caller: &Caller,
        client: InitializeRequestParams,
        list: Arc<List>,
    ) -> Option<Arc<Session>> {
        if self.rows.len() >= self.limits.total {
            return None;
        }
        let mut random = [0; 16];
        getrandom::fill(&mut random).ok()?;
        let owner = Owner::of(caller);
        let session = Arc::new(Session {
            id: u128::from_ne_bytes(random),
            owner: owner.clone(),
            client: self.kind(client)?,
            list: Mutex::new(list),
            last_seen: AtomicU32::new(self.now()),
            next_outgoing: AtomicU32::new(1),
            wants_logs: AtomicBool::new(false),
            subscribed: Mutex::default(),
            state: Mutex::new(State::Idle),
        });
        self.rows.insert(session.id, session.clone());
        let crowded = {
            let mut own = self.owners.entry(owner).or_default();
            let before = (own.len() >= self.limits.per_key).then(|| own.clone());
            own.insert(session.id);
            before
        };
        if let Some(oldest) = crowded.and_then(|own| self.longest_idle(&own)) {
            self.close(&oldest);
        }
        Some(session)
    }

    /// The session that the headers name, if it is the caller's; otherwise the status that says what is wrong.
    pub(super) fn find(
        &self,
        headers: &HeaderMap,
        caller: &Caller,
    ) -> Result<Arc<Session>, StatusCode> {
        if !headers.contains_key(SESSION_ID) {
            return Err(StatusCode::BAD_REQUEST);
        }
        let session = wire::sole(headers, &SESSION_ID)
            .filter(|id| id.len() == 32)
            .and_then(|id| u128::from_str_radix(id, 16).ok())
            .and_then(|id| self.rows.get(&id).map(|row| row.value().clone()))
            .filter(|session| session.owner.is(caller))
            .ok_or(StatusCode::NOT_FOUND)?;
        session.last_seen.store(self.now(), Ordering::Relaxed);
        Ok(session)
    }

    /// Ends a session: its calls are cancelled and its stream ends.
    pub(super) fn close(&self, session: &Session) {
        self.rows.remove(&session.id);
        if let Some(mut own) = self.owners.get_mut(&session.owner) {
            own.remove(&session.id);
        }
        self.owners
            .remove_if(&session.owner, |_, own| own.is_empty());
        session.end();
    }

    /// Ends the sessions whose key is no longer live, and those that have been idle for too long.
    pub(super) fn sweep(&self, is_live: impl Fn(&Owner) -> bool) {
        let oldest = self
            .now()
            .saturating_sub(u32::try_from(self.limits.idle.as_secs()).unwrap_or(u32::MAX));
        let dead: HashSet<Owner> = self
            .owners
            .iter()
            .map(|own| own.key().clone())
            .filter(|owner| !is_live(owner))
            .collect();
        let ended: Vec<Arc<Session>> = self
            .rows
            .iter()
            .map(|row| row.value().clone())
            .filter(|session| {
                dead.contains(&session.owner)
                    || (session.last_seen.load(Ordering::Relaxed) < oldest && session.is_idle())
            })
            .collect();
        for session in ended {
            self.close(&session);
        }
        let mut kinds = self.kinds.lock();
        kinds.retain(|_, client| Arc::strong_count(client) > 1);
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.rows.len()
    }

    /// The sessions that a stream is open for.
    pub(super) fn connected(&self) -> Vec<Arc<Session>> {
        self.rows
            .iter()
            .filter(|row| row.has_stream())
            .map(|row| row.value().clone())
            .collect()
    }

    fn kind(&self, client: InitializeRequestParams) -> Option<Arc<InitializeRequestParams>> {
        let key = serde_json::to_vec(&client).ok()?;
        let mut kinds = self.kinds.lock();
        if kinds.len() >= KINDS {
            kinds.retain(|_, client| Arc::strong_count(client) > 1);
        }
        if kinds.len() >= KINDS {
            return Some(Arc::new(client));
        }
        Some(kinds.entry(key).or_insert_with(|| Arc::new(client)).clone())
    }

    fn longest_idle(&self, own: &HashSet<u128>) -> Option<Arc<Session>> {
        own.iter()
            .filter_map(|id| self.rows.get(id).map(|row| row.value().clone()))
            .min_by_key(|session| {
                (
                    !session.is_idle(),
                    session.last_seen.load(Ordering::Relaxed),
                )
            })
    }

    fn now(&self) -> u32 {
        u32::try_from(self.started.elapsed().as_secs()).unwrap_or(u32::MAX)
    }
}

/// Whether a client of these capabilities can be asked something.
fn answers(capabilities: &ClientCapabilities) -> bool {
    capabilities.elicitation.is_some()
        || capabilities.sampling.is_some()
        || capabilities.roots.is_some()
}

impl Owner {
    pub(super) fn of(caller: &Caller) -> Self {
        Self {
            agent_uid: caller.agent.uid.as_str().into(),
            key_id: caller.key_id.clone(),
        }
    }

    fn is(&self, caller: &Caller) -> bool {
        *self.key_id == *caller.key_id && *self.agent_uid == *caller.agent.uid
    }
}

impl Session {
    /// The client has said which log messages it wants.
    pub(super) fn wants_logs(&self) {
        self.wants_logs.store(true, Ordering::Relaxed);
    }

    /// Whether a call has somebody to talk to.
    pub(super) fn listens(&self) -> bool {
        self.wants_logs.load(Ordering::Relaxed) || answers(&self.client.capabilities)
    }

    /// Subscribes to a resource; `false` when there are too many, or its URI is too long.
    pub(super) fn subscribe(self: &Arc<Self>, uri: String, catalog: &Catalog) -> bool {
        {
            let mut subscribed = self.subscribed.lock();
            let is_full = subscribed.len() >= MOST_RESOURCES && !subscribed.contains(&uri);
            if is_full || uri.len() > LONGEST_URI {
                return false;
            }
            subscribed.insert(uri);
        }
        self.listen(catalog);
        true
    }

    pub(super) fn unsubscribe(self: &Arc<Self>, uri: &str, catalog: &Catalog) {
        self.subscribed.lock().remove(uri);
        self.listen(catalog);
    }

    /// Listens to the families that the agent has now, while the GET stream is open.
    pub(super) fn listen(self: &Arc<Self>, catalog: &Catalog) {
        let tell = || -> Tell {
            let session = Arc::downgrade(self);
            Box::new(move |change| {
                let (method, params) = change.notification();
                let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
                if let Some(session) = session.upgrade() {
                    session.push(wire::event(message.to_string().as_bytes()));
                }
            })
        };
        let wanted = Wanted {
            resource_list: true,
            prompt_list: true,
            resources: self.subscribed.lock().clone(),
        };
        self.with(|live| {
            if live.stream.is_some() {
                live.listening.adjust(catalog, &wanted, tell);
            }
        });
    }

    /// Lists a call, so that `notifications/cancelled` finds it; `None` when one of that id is running.
    pub(super) fn register(
        self: &Arc<Self>,
        id: RequestId,
        cancelled: &CancellationToken,
    ) -> Option<InFlight> {
        self.with(|live| match live.calls.entry(id.clone()) {
            std::collections::hash_map::Entry::Occupied(_) => None,
            std::collections::hash_map::Entry::Vacant(free) => {
                free.insert(cancelled.clone());
                Some(())
            }
        })?;
        Some(InFlight {
            session: self.clone(),
            id,
        })
    }

    /// Cancels the call `id`, if it is running.
    pub(super) fn cancel(&self, id: &RequestId) {
        if let Some(call) = self.with(|live| live.calls.get(id).cloned()) {
            call.cancel();
        }
    }

    /// Opens the GET stream; the newest wins, and the one before ends.
    pub(super) fn open_stream(self: &Arc<Self>) -> (OpenStream, mpsc::Receiver<Bytes>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let number = STREAMS.fetch_add(1, Ordering::Relaxed);
        self.with(|live| live.stream = Some((number, sender)));
        (
            OpenStream {
                session: self.clone(),
                number,
            },
            receiver,
        )
    }

    /// Puts an event on the GET stream; `false` when none is open or its client does not read.
    pub(super) fn push(&self, event: Bytes) -> bool {
        match &*self.state.lock() {
            State::Live(live) => live
                .stream
                .as_ref()
                .is_some_and(|(_, stream)| stream.try_send(event).is_ok()),
            State::Idle | State::Ended => false,
        }
    }

    /// Notes a question, and gives the id under which it goes to the client.
    pub(super) fn ask(&self, id: RequestId, answers: &mpsc::Sender<ClientJsonRpcMessage>) -> u32 {
        let outgoing = self.next_outgoing.fetch_add(1, Ordering::Relaxed);
        let answers = answers.clone();
        self.with(|live| live.asked.insert(outgoing, Asked { id, answers }));
        outgoing
    }

    /// Takes back the question that its call knows as `id`; gives the id under which the client knows it.
    pub(super) fn take_back(
        &self,
        id: &RequestId,
        answers: &mpsc::Sender<ClientJsonRpcMessage>,
    ) -> Option<u32> {
        self.with(|live| {
            let outgoing = live
                .asked
                .iter()
                .find(|(_, asked)| asked.id == *id && asked.answers.same_channel(answers))
                .map(|(outgoing, _)| *outgoing)?;
            live.asked.remove(&outgoing);
            Some(outgoing)
        })
    }

    /// Takes back every question of one call.
    pub(super) fn take_back_all(&self, answers: &mpsc::Sender<ClientJsonRpcMessage>) {
        self.with(|live| {
            live.asked
                .retain(|_, asked| !asked.answers.same_channel(answers));
        });
    }

    /// Hands the client's answer to the call that asked.
    pub(super) fn answer(&self, mut answer: ClientJsonRpcMessage) {
        let id = match &answer {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        let Some(NumberOrString::Number(outgoing)) = id else {
            return;
        };
        let Ok(outgoing) = u32::try_from(*outgoing) else {
            return;
        };
        let Some(asked) = self.with(|live| live.asked.remove(&outgoing)) else {
            return;
        };
        match &mut answer {
            JsonRpcMessage::Response(response) => response.id = asked.id,
            JsonRpcMessage::Error(error) => error.id = Some(asked.id),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => {}
        }
        // A call that no longer listens has ended: nobody waits for the answer.
        let _ = asked.answers.try_send(answer);
    }

    fn is_idle(&self) -> bool {
        matches!(&*self.state.lock(), State::Idle)
    }

    fn has_stream(&self) -> bool {
        matches!(&*self.state.lock(), State::Live(live) if live.stream.is_some())
    }

    fn end(&self) {
        let state = mem::replace(&mut *self.state.lock(), State::Ended);
        if let State::Live(live) = state {
            live.end();
        }
    }

    /// Changes what is going on. In a session that has ended nothing can begin any more.
    fn with<T>(&self, change: impl FnOnce(&mut Live) -> T) -> T {
        let mut state = self.state.lock();
        let mut live = match mem::replace(&mut *state, State::Idle) {
            State::Idle => Box::default(),
            State::Live(live) => live,
            State::Ended => {
                *state = State::Ended;
                let mut live = Live::default();
                let result = change(&mut live);
                live.end();
                return result;
            }
        };
        let result = change(&mut live);
        if !live.is_empty() {
            *state = State::Live(live);
        }
        result
    }
}

/// The id as clients see it.
impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.id)
    }
}

impl Live {
    fn is_empty(&self) -> bool {
        self.stream.is_none() && self.calls.is_empty() && self.asked.is_empty()
    }

    fn end(self) {
        for call in self.calls.values() {
            call.cancel();
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.session.with(|live| live.calls.remove(&self.id));
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.session.with(|live| {
            if live
                .stream
                .as_ref()
                .is_some_and(|(number, _)| *number == self.number)
            {
                live.stream = None;
                live.listening = Listening::default();
            }
        });
    }
}
