//! One source, from its first answer to its end: asked on its own schedule, held against what is approved, and served
//! from its last good answer while it does not give another.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chandlery_crds::conditions::reason;
use chandlery_crds::{NotedTool, PinningPolicy, SourceTools};
use jiff::Timestamp;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use super::board::State;
use super::clean::{self, Hidden};
use super::offers::Place;
use super::pins::{self, Change, Kind};
use super::store::{self, Approved, Revision};
use super::{Maker, Parts};
use crate::catalog::{Offer, Taken};
use crate::connector::{Connector, Failure, Offered, OfferedTool, line, served_name};
use crate::directory::ToolSource;
use crate::store::Causes;
use crate::times::jittered;

/// How long a source may take to say what it offers, whatever a call of it may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long it may take to read that; what has 20 MB takes two seconds.
const READING: Duration = Duration::from_secs(20);
/// The first pause after a failure; it doubles up to how often the source is asked anyway.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// How many tools of a source are named in a report.
const NOTED: usize = 32;
/// How many tools a source may have.
const MOST: usize = 2_000;

/// Why tools are left out that there is no room for.
const TOO_MANY: &str = "TooMany";

/// One generation of a source.
pub(super) struct Followed {
    pub(super) parts: Arc<Parts>,
    /// `<namespace>.<name>`.
    pub(super) id: String,
    pub(super) source: Arc<ToolSource>,
    /// Whether an answer is being read, be it one that nobody waits for any more.
    pub(super) reading: Arc<Semaphore>,
}

impl Followed {
    /// Goes on until it is dropped.
    pub(super) async fn run(self, make: Maker) {
        let mut pause = FIRST_PAUSE;
        let connector = loop {
            match make(&self.id, &self.source).await {
                Ok(connector) => break connector,
                Err(failure) => {
                    self.withdraw_if_forbidden(&failure);
                    self.failed(&failure);
                }
            }
            tokio::time::sleep(jittered(pause)).await;
            pause = (pause * 2).min(self.source.spec.refresh_every());
        };
        self.restore(&connector).await;
        let mut served = None;
        let mut pause = FIRST_PAUSE;
        let mut calm = FIRST_PAUSE;
        loop {
            let every = self.source.spec.refresh_every();
            let next = match self.ask(&connector, &mut served).await {
                Ok(()) => {
                    pause = FIRST_PAUSE;
                    every
                }
                Err(failure) => {
                    self.failed(&failure);
                    let next = pause;
                    pause = (pause * 2).min(every);
                    next
                }
            };
            let asked = Instant::now();
            tokio::select! {
                () = tokio::time::sleep(jittered(next)) => calm = FIRST_PAUSE,
                // A source that tells of changes without end is asked ever more rarely.
                () = connector.changed() => {
                    let is_again = asked.elapsed() < calm * 2;
                    calm = if is_again { (calm * 2).min(every) } else { FIRST_PAUSE };
                    tokio::time::sleep_until(asked + calm).await;
                }
            }
        }
    }

    /// Serves what the source said the last time that any replica asked it.
    async fn restore(&self, connector: &Arc<dyn Connector>) {
        let uid = &self.source.uid;
        let known = match store::last(&self.parts.store, uid).await {
            Ok(Some(known)) => known,
            Ok(None) => return,
            Err(error) => {
                warn!(source = self.id, error = %Causes(&error), "what the source said before cannot be read");
                return;
            }
        };
        let read = match self.read(connector, &known.answer).await {
            Ok(read) => read,
            Err(failure) => return self.withdraw_if_forbidden(&failure),
        };
        let approve = self.source.spec.pinning().approved_revision;
        let Ok(approved) = store::approved(&self.parts.store, uid, approve).await else {
            return;
        };
        let answered_at = Timestamp::from_millisecond(known.answered_at).ok();
        self.serve(read, approved, answered_at);
    }

    /// Asks once, and serves what comes of it.
    async fn ask(
        &self,
        connector: &Arc<dyn Connector>,
        served: &mut Option<Served>,
    ) -> Result<(), Failure> {
        let answer = timeout(PATIENCE, connector.fetch())
            .await
            .unwrap_or_else(|_| {
                Err(Failure::new(
                    reason::UNREACHABLE,
                    "the source did not say within a minute what it offers",
                ))
            })?;
        let is_as_before = served.as_ref().is_some_and(|served| {
            served.answer == answer && served.taken == self.parts.offers.taken(&self.place())
        });
        if is_as_before {
            self.answered_again().await;
            return Ok(());
        }
        let read = self.read(connector, &answer).await?;
        let approve = self.source.spec.pinning().approved_revision;
        let kept = store::keep(
            &self.parts.store,
            &self.source.uid,
            answer.clone(),
            &read.revision,
            approve,
        );
        let approved = kept.await.map_err(|error| {
            warn!(source = self.id, error = %Causes(&error), "what the source offers cannot be kept");
            Failure::new(
                reason::UNREACHABLE,
                "the store did not take what the source offers; it is asked again soon",
            )
        })?;
        info!(
            source = self.id,
            revision = read.revision.name,
            tools = read.revision.tools.len(),
            "asked what it offers"
        );
        let now = self.parts.store.clock().now();
        let taken = self.serve(read, approved, Some(now));
        *served = Some(Served { answer, taken });
        Ok(())
    }

    /// The source said what it said before: it goes on being served as it is, with its connections and its breaker.
    async fn answered_again(&self) {
        let uid = &self.source.uid;
        if let Err(error) = store::touch(&self.parts.store, uid).await {
            warn!(source = self.id, error = %Causes(&error), "when the source answered cannot be kept");
        }
        let now = Some(self.parts.store.clock().now());
        self.parts.board.update(uid, |state: &mut State| {
            state.report.failure = None;
            state.answered_at = now;
        });
        self.parts.metrics.source_answered(&self.id, now);
    }

    /// What an answer offers, tidied up. A long one takes a while, and not all are read at once.
    async fn read(&self, connector: &Arc<dyn Connector>, answer: &Bytes) -> Result<Read, Failure> {
        let Ok(own_turn) = self.reading.clone().try_acquire_owned() else {
            return Err(slow());
        };
        let _turn = self.parts.readers.acquire().await;
        let (connector, answer) = (connector.clone(), answer.clone());
        let read = tokio::task::spawn_blocking(move || {
            let _own_turn = own_turn;
            look(&*connector, &answer)
        });
        // One that takes too long no longer holds up the others.
        let read = timeout(READING, read).await.map_err(|_| slow())?;
        read.unwrap_or_else(|_| {
            Err(Failure::new(
                reason::DOCUMENT_INVALID,
                "what the source offers could not be read",
            ))
        })
    }

    /// Serves what is offered and approved, and says so. Gives back which names were taken.
    fn serve(&self, read: Read, approved: Approved, answered_at: Option<Timestamp>) -> Vec<Taken> {
        let Read {
            offered,
            hidden,
            cut,
            revision,
        } = read;
        // What says how many did not fit is no tool itself.
        let count_left_out = offered.left_out.len() + cut - usize::from(cut > 0);
        let spec = &self.source.spec;
        let changes: Vec<Change> = match spec.pinning().policy {
            PinningPolicy::Off => Vec::new(),
            PinningPolicy::Warn | PinningPolicy::Quarantine => {
                pins::changes(&approved.tools, &revision.tools)
            }
        };
        let withheld = pins::withheld(&changes, spec.pinning().policy);
        let said_by_a_person =
            spec.pinning().approved_revision.as_ref() == Some(&approved.revision);
        let served = offered.tools.into_iter().filter_map(|offered| {
            let OfferedTool {
                mut tool, claimed, ..
            } = offered;
            let operation = tool.origin.as_ref()?.operation();
            if withheld.contains(operation) {
                return None;
            }
            if let Some(effect) = claimed
                && said_by_a_person
                && pins::is_approved(&approved.tools, &revision.tools, operation)
            {
                tool.effect = effect;
            }
            Some(Arc::new(tool))
        });
        let served: Vec<_> = served.collect();
        let count = served.len();
        let place = self.place();
        let prefix = spec.prefix(&place.name);
        // Whoever knows a name by this source must not find another one's tool there.
        let reserved = withheld
            .iter()
            .filter(|operation| approved.tools.contains_key(**operation))
            .map(|operation| served_name(&prefix, operation));
        let offer = Offer {
            tools: served,
            reserved: reserved.collect(),
            family: offered.family,
        };
        let taken = self.parts.offers.set(&place, offer);
        let (clashes, left_out) = (taken.len(), count_left_out + taken.len());
        let clashing = taken.iter().map(|taken| NotedTool {
            name: taken.operation.clone(),
            reason: "NameTaken".to_owned(),
            message: format!(
                "the name {} is taken: write another toolPrefix, or leave the operation out",
                taken.name
            ),
        });
        let changed = changes
            .iter()
            .map(|change| noted(change, spec.pinning().policy));
        // What is about the whole list comes first: there may be no room for all.
        let (of_all, left_out_each): (Vec<_>, Vec<_>) = offered
            .left_out
            .into_iter()
            .partition(|noted| noted.reason == TOO_MANY);
        let noted = self
            .unknown_revision(&approved, &revision.name)
            .into_iter()
            .chain(of_all)
            .chain(changed)
            .chain(clashing)
            .chain(left_out_each)
            .chain(hidden);
        let mut noted: Vec<NotedTool> = noted.take(NOTED * 2).collect();
        // A list that is keyed by names holds each once; what is said first counts.
        let mut names = std::collections::BTreeSet::new();
        noted.retain(|noted| names.insert(noted.name.clone()));
        noted.truncate(NOTED);
        for noted in &mut noted {
            noted.message = line(&noted.message);
        }
        let report = SourceTools {
            served: number(count - clashes),
            withheld: number(withheld.len()),
            left_out: number(left_out),
            noted,
        };
        if !changes.is_empty() {
            warn!(
                source = self.id,
                revision = revision.name,
                changed = changes.len(),
                withheld = withheld.len(),
                "tools of the source are not as they were approved"
            );
        }
        let changed = number(changes.len());
        self.parts
            .board
            .update(&self.source.uid, |state: &mut State| {
                state.id.clone_from(&self.id);
                state.report.generation = self.source.generation;
                state.report.revision = Some(revision.name);
                state.report.tools = report;
                state.report.changed = changed;
                state.report.failure = None;
                state.answered_at = answered_at;
                state.approved = Some(approved.revision).filter(|name| !name.is_empty());
                state.changes = changes.into();
            });
        self.parts.metrics.source_answered(&self.id, answered_at);
        taken
    }

    /// What there is to say where the revision that a person names was never seen.
    fn unknown_revision(&self, approved: &Approved, now: &str) -> Option<NotedTool> {
        let named = self.source.spec.pinning().approved_revision?;
        let stays = match approved.revision.as_str() {
            approved if approved == named => return None,
            "" => "nothing is approved".to_owned(),
            approved => format!("{approved} stays approved"),
        };
        Some(NotedTool {
            name: "approvedRevision".to_owned(),
            reason: "UnknownRevision".to_owned(),
            message: format!(
                "{named} was not seen here yet, or is no longer kept; until it is, {stays}; the source offers {now} now"
            ),
        })
    }

    /// Takes back what an earlier generation offered, if this one says that it must not be used.
    fn withdraw_if_forbidden(&self, failure: &Failure) {
        if matches!(failure.reason, reason::BLOCKED | reason::INVALID) {
            self.parts.offers.remove(&self.place());
            let uid = &self.source.uid;
            let withdraw = |state: &mut State| state.report.tools = SourceTools::default();
            self.parts.board.update(uid, withdraw);
        }
    }

    fn failed(&self, failure: &Failure) {
        warn!(
            source = self.id,
            reason = failure.reason,
            message = failure.message,
            "the source could not be asked what it offers"
        );
        self.parts.metrics.source_failed(&self.id);
        self.parts
            .board
            .update(&self.source.uid, |state: &mut State| {
                state.id.clone_from(&self.id);
                state.failed(self.source.generation, failure.reason, &failure.message);
            });
    }

    pub(super) fn place(&self) -> Place {
        let (namespace, name) = self.id.split_once('.').unwrap_or(("", &self.id));
        Place {
            namespace: namespace.to_owned(),
            made_at: self.source.created_at,
            name: name.to_owned(),
        }
    }
}

fn slow() -> Failure {
    let message = "what the source offers takes longer than 20 s to read: leave operations out by spec.openapi.include, or let the source say it more simply";
    Failure::new(reason::DOCUMENT_INVALID, message)
}

/// What the source said last in this generation, and which names it could not have.
struct Served {
    answer: Bytes,
    taken: Vec<Taken>,
}

/// What an answer means.
pub(super) struct Read {
    pub(super) offered: Offered,
    /// Tools that held characters which nobody sees.
    pub(super) hidden: Vec<NotedTool>,
    /// How many more tools there were than a source may have.
    cut: usize,
    pub(super) revision: Revision,
}

/// What an answer means, as it would be served. Takes a while where it is long.
pub(super) fn look(connector: &dyn Connector, answer: &Bytes) -> Result<Read, Failure> {
    let (offered, hidden, cut) = tidy(connector.read(answer)?);
    let tools = Arc::new(pins::shown(&offered.tools));
    Ok(Read {
        offered,
        hidden,
        cut,
        revision: Revision::of(tools),
    })
}

/// What is offered without hidden characters, and no more than there is room for; with what there is to say
/// of that, and how many did not fit.
fn tidy(mut offered: Offered) -> (Offered, Vec<NotedTool>, usize) {
    let mut hidden = Vec::new();
    let left_out = &mut offered.left_out;
    offered.tools.retain_mut(|offered| {
        let found = clean::tool(&mut offered.tool);
        let origin = offered.tool.origin.as_ref();
        let note = |message: String| NotedTool {
            name: origin.map_or("", |origin| origin.operation()).to_owned(),
            reason: "HiddenCharacters".to_owned(),
            message,
        };
        match found {
            Hidden::Nothing => {}
            Hidden::Texts => hidden.push(note(
                "it held characters that nobody sees; they are taken out".to_owned(),
            )),
            Hidden::Names(schema) => left_out.push(note(format!(
                "a name or a value in its {schema} holds characters that nobody sees: let the source write it without them"
            ))),
        }
        !matches!(found, Hidden::Names(_))
    });
    let cut = offered.tools.len().saturating_sub(MOST);
    if cut > 0 {
        offered.tools.truncate(MOST);
        offered.left_out.push(NotedTool {
            name: "*".to_owned(),
            reason: TOO_MANY.to_owned(),
            message: format!(
                "{cut} more tools were left out, since a source may have {MOST}: leave some out, or make another source"
            ),
        });
    }
    (offered, hidden, cut)
}

fn noted(change: &Change, policy: PinningPolicy) -> NotedTool {
    let what = match change.kind {
        Kind::New => "it was not there when the source was approved",
        Kind::Changed => "it is not as it was approved",
        Kind::Gone => "the source does not offer it any more",
    };
    let and = match (change.kind, policy) {
        (Kind::New | Kind::Changed, PinningPolicy::Quarantine) => " and is withheld",
        _ => "",
    };
    NotedTool {
        name: change.name.clone(),
        reason: change.kind.name().to_owned(),
        message: format!("{what}{and}"),
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
