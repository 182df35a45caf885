//! Where nobody else writes: a row is chained as it comes, durable in the journal before its call is answered if that
//! matters, and in the database soon after, many at once.
//!
//! The database alone says what was written when; the journal holds what a crash would take. At the next start its
//! rows go behind the heads: those that follow, by their hashes, and no others.

use std::collections::{BTreeMap, HashMap};
use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

use super::Waiting;
use super::chain::{Head, Key, Link};
use super::store::{Inserts, Run, chains};
use super::writer::Patience;
use crate::store::{Journal, Store, StoreError};

/// What the journal is called.
pub(super) const JOURNAL: &str = "audit";
/// Rows that may be chained and not in the database yet.
const ROOM: usize = 16 * 1024;
/// Rows of one transaction, about.
const ENOUGH: usize = 2 * 1024;

pub(super) struct Journaled {
    store: Store,
    key: Key,
    patience: Patience,
    /// Where each Workspace's chain has come to.
    heads: HashMap<i64, Head>,
    inserts: Inserts,
    /// `None` since it failed: then rows are durable when they are in the database.
    journal: Option<Journal>,
    /// Batches that are neither in the journal nor known to be in the database.
    unwritten: Vec<Arc<Batch>>,
    /// Batches in each of the journal's files that are not known to be in the database.
    written: [Vec<Arc<Batch>>; 2],
    room: Arc<Semaphore>,
    mover: mpsc::UnboundedSender<Arc<Batch>>,
    moved: JoinHandle<()>,
    text: Vec<u8>,
}

/// Rows that came together.
struct Batch {
    links: Vec<Link>,
    /// The calls that wait until the rows are in the database.
    waiting: Mutex<Waiting>,
    is_stored: AtomicBool,
}

impl AsRef<[Link]> for Batch {
    fn as_ref(&self) -> &[Link] {
        &self.links
    }
}

impl Batch {
    fn is_stored(&self) -> bool {
        self.is_stored.load(Ordering::Acquire)
    }
}

impl Journaled {
    /// Opens the journal, and brings what a crash has left in it to the database. `None` when the program ends first.
    pub(super) async fn open(store: Store, key: Key, patience: Patience) -> Option<Self> {
        let mut inserts = Inserts::new(store.dialect());
        let mut tries = patience.tries();
        let journal = loop {
            match recover(&store, &key, &mut inserts).await {
                Ok(journal) => break journal,
                Err(failure) => {
                    if !tries.again(&failure, 0).await {
                        return None;
                    }
                }
            }
        };
        let room = Arc::new(Semaphore::new(ROOM));
        // `room` bounds it.
        let (mover, queue) = mpsc::unbounded_channel();
        let moving = moving(
            store.clone(),
            Inserts::new(store.dialect()),
            queue,
            room.clone(),
            patience.clone(),
        );
        Some(Self {
            store,
            key,
            patience,
            heads: HashMap::new(),
            inserts,
            journal,
            unwritten: Vec::new(),
            written: [Vec::new(), Vec::new()],
            room,
            mover,
            moved: tokio::spawn(moving),
            text: Vec::new(),
        })
    }

    /// Chains rows; returns once they are durable if a call waits for that.
    pub(super) async fn take(&mut self, runs: Vec<Run>, waiting: Waiting) {
        let mut links = Vec::new();
        for run in runs {
            let Some(mut head) = self.head(&run).await else {
                return;
            };
            for (caller, row) in run.rows {
                links.push(self.key.link(run.workspace, &mut head, caller, row));
            }
            self.heads.insert(run.workspace, head);
        }
        let rows = u32::try_from(links.len()).unwrap_or(u32::MAX);
        if let Ok(taken) = self.room.acquire_many(rows).await {
            // The mover gives it back.
            taken.forget();
        }
        let batch = Arc::new(Batch {
            links,
            waiting: Mutex::default(),
            is_stored: AtomicBool::new(false),
        });
        self.unwritten.push(batch.clone());
        if !waiting.is_empty() {
            if self.write_journal() {
                waiting.tell();
            } else {
                *batch.waiting.lock() = waiting;
            }
        }
        self.unwritten.retain(|batch| !batch.is_stored());
        let _ = self.mover.send(batch);
    }

    /// Where the chain of a Workspace has come to. `None` when the program ends before the database tells.
    async fn head(&mut self, run: &Run) -> Option<Head> {
        if let Some(head) = self.heads.get(&run.workspace) {
            return Some(*head);
        }
        let mut tries = self.patience.tries();
        loop {
            let head = self
                .inserts
                .head(&self.store, &self.key, run.workspace, &run.name)
                .await;
            match head {
                Ok(head) => return Some(head),
                Err(failure) => {
                    if !tries.again(&failure, run.rows.len()).await {
                        return None;
                    }
                }
            }
        }
    }

    /// Makes all that was chained durable; `false` when the journal cannot.
    fn write_journal(&mut self) -> bool {
        let Some(journal) = &mut self.journal else {
            return false;
        };
        if journal.is_long() {
            let other = &mut self.written[1 - journal.turn()];
            other.retain(|batch| !batch.is_stored());
            if other.is_empty() {
                journal.take_turns();
            }
        }
        self.text.clear();
        let rest = take(&mut self.unwritten);
        for link in rest
            .iter()
            .filter(|batch| !batch.is_stored())
            .flat_map(|batch| &batch.links)
        {
            // Into memory, of types that have a JSON.
            let _ = serde_json::to_writer(&mut self.text, link);
            self.text.push(b'\n');
        }
        if let Err(failure) = journal.add(&self.text) {
            error!(error = %failure, "the audit's journal failed; calls that write wait for the database from now on");
            self.journal = None;
            return false;
        }
        self.written[journal.turn()].extend(rest);
        true
    }

    /// Waits until all rows are in the database. Those that do not get there stay in the journal.
    pub(super) async fn end(mut self) {
        drop(std::mem::replace(
            &mut self.mover,
            mpsc::unbounded_channel().0,
        ));
        let _ = (&mut self.moved).await;
        let all = self.written.iter().flatten().chain(&self.unwritten);
        if !all.into_iter().all(|batch| batch.is_stored()) {
            self.write_journal();
            return;
        }
        if let Some(journal) = &mut self.journal
            && let Err(failure) = journal.clear()
        {
            warn!(error = %failure, "the audit's journal could not be emptied");
        }
    }
}

/// Brings batches to the database until there come no more.
async fn moving(
    store: Store,
    mut inserts: Inserts,
    mut queue: mpsc::UnboundedReceiver<Arc<Batch>>,
    room: Arc<Semaphore>,
    patience: Patience,
) {
    let mut batches: Vec<Arc<Batch>> = Vec::new();
    while let Some(first) = queue.recv().await {
        // Whoever waits here waits for want of a journal. And rows that are enough wait for no more.
        let is_enough = room.available_permits() < ROOM - ENOUGH;
        if !is_enough && first.waiting.lock().is_empty() {
            patience.linger().await;
        }
        let mut rows = first.links.len();
        batches.push(first);
        while rows < ENOUGH
            && let Ok(batch) = queue.try_recv()
        {
            rows += batch.links.len();
            batches.push(batch);
        }
        let mut tries = patience.tries();
        let mut again = false;
        while let Err(failure) = inserts.write(&store, &batches, again).await {
            again = true;
            if !tries.again(&failure, rows).await {
                room.close();
                return;
            }
        }
        room.add_permits(rows);
        for batch in batches.drain(..) {
            batch.is_stored.store(true, Ordering::Release);
            take(&mut *batch.waiting.lock()).tell();
        }
    }
}

/// Opens the journal and brings the rows that follow the heads to the database.
async fn recover(
    store: &Store,
    key: &Key,
    inserts: &mut Inserts,
) -> Result<Option<Journal>, StoreError> {
    let Some(journal) = store.journal(JOURNAL)? else {
        return Ok(None);
    };
    let mut left = Left::new(journal.lines().map_err(StoreError::Journal)?);
    let mut reader = store.read().await?;
    let chains = chains(reader.connection()).await?;
    drop(reader);
    for chain in chains {
        let Some(head) = chain
            .head
            .and_then(|(seq, mac)| Some((seq, mac.try_into().ok()?)))
        else {
            continue;
        };
        let (links, others) = left.behind(key, chain.workspace, head);
        if others > 0 {
            warn!(
                workspace = chain.name,
                rows = others,
                "rows in the audit's journal do not follow the chain: left out"
            );
        }
        if links.is_empty() {
            continue;
        }
        let rows = links.len();
        inserts.write(store, &[Arc::new(links)], false).await?;
        info!(
            workspace = chain.name,
            rows, "audit rows were brought from the journal"
        );
    }
    Ok(Some(journal))
}

/// The rows in a journal: by Workspace, in the order of their numbers.
pub(super) struct Left(BTreeMap<i64, BTreeMap<i64, Link>>);

impl Left {
    pub(super) fn new(lines: Vec<Vec<u8>>) -> Self {
        let mut left: BTreeMap<i64, BTreeMap<i64, Link>> = BTreeMap::new();
        for line in lines {
            // A crash may have cut it.
            if let Ok(link) = serde_json::from_slice::<Link>(&line) {
                left.entry(link.workspace)
                    .or_default()
                    .insert(link.seq, link);
            }
        }
        Self(left)
    }

    /// The rows that follow `head`, one after the other, and how many come later and do not.
    pub(super) fn behind(
        &mut self,
        key: &Key,
        workspace: i64,
        mut head: Head,
    ) -> (Vec<Link>, usize) {
        let mut links = Vec::new();
        let mut rest = self
            .0
            .remove(&workspace)
            .unwrap_or_default()
            .split_off(&(head.0 + 1));
        while let Some(link) = rest
            .first_entry()
            .filter(|first| key.follows(first.get(), &head))
        {
            let link = link.remove();
            head = (link.seq, link.mac);
            links.push(link);
        }
        (links, rest.len())
    }
}
