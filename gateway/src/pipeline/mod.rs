//! The straight line of a call: which, record it, may it, do it, answer.

mod approval;
mod to_its_end;

use std::borrow::Cow;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chandlery_crds::report::Unresolved;
use jiff::Timestamp;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::approval::Stand;
use self::to_its_end::ToItsEnd;
use crate::approvals::{Approvals, Ticket};
use crate::audit::{Audit, Opening, Record};
use crate::budgets::Budgets;
use crate::catalog::{Catalog, Catalogs, Entry, Found, Registry};
use crate::directory::{Agent, Directory, Snapshot};
use crate::families::connect::Connectors;
use crate::family::{Call, Client};
use crate::gate::{self, Decision, Denial, Passed, Permit, Question};
use crate::metrics::Metrics;
use crate::sources::{self, Board, Maker, Sources};
use crate::store::{Clock, Store};
use crate::tool::{Effect, Operation, Output, ToolError};
use crate::usage::Usage;

/// How a call ended.
#[derive(Debug)]
pub enum Answer {
    Done(Output),
    Failed(ToolError),
    /// The agent has no tool of that name, or none exists; the two must look alike.
    UnknownTool,
    /// A person has to allow the call; the same call later goes on from here.
    Awaiting(Awaiting),
    /// `Request::cancelled` came first. A call that writes goes on all the same.
    Cancelled,
}

/// A call that waits for a person.
#[derive(Clone, Copy, Debug)]
pub struct Awaiting {
    pub ticket: Ticket,
    /// The person at the agent's own client may decide, too.
    pub client_may_approve: bool,
}

/// One call as it came in.
pub struct Request {
    pub agent: Arc<Agent>,
    pub key_id: Arc<str>,
    pub tool: String,
    /// A JSON object; `{}` when the client sent none.
    pub arguments: Box<RawValue>,
    /// See [`Call::worker`].
    pub worker: Option<String>,
    pub client: Arc<dyn Client>,
    pub patience: Patience,
    pub cancelled: CancellationToken,
}

/// What a call does that a person has to allow first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// It waits, up to [`Pipeline::approval_wait`].
    Wait,
    /// It waits, unless the person at the client may decide: then it says so at once.
    Ask,
    /// It says so at once.
    Leave,
}

impl Patience {
    fn waits(self, client_may_approve: bool) -> bool {
        match self {
            Self::Wait => true,
            Self::Ask => !client_may_approve,
            Self::Leave => false,
        }
    }
}

/// A call that is known and has not begun.
pub struct Prepared {
    request: Request,
    target: Target,
    /// When it came in.
    at: Timestamp,
}

impl Prepared {
    /// Whether the call talks to its client while it runs, or may have to wait for a person.
    pub fn is_conversation(&self) -> bool {
        let found = self.target.found.as_ref();
        found.is_ok_and(|entry| entry.is_conversation)
    }
}

pub struct Pipeline {
    pub catalogs: Arc<Catalogs>,
    /// The calls that went to sources.
    pub usage: Usage,
    /// What is known of the sources.
    pub sources: Arc<Board>,
    pub clock: Clock,
    pub store: Store,
    pub audit: Audit,
    pub metrics: Arc<Metrics>,
    pub approvals: Approvals,
    pub directory: Directory,
    /// How long a call waits for a person: shorter than clients wait for calls.
    pub approval_wait: Duration,
    budgets: Budgets,
    /// The calls that write. Whoever stops the gateway closes it and waits.
    pub writes: TaskTracker,
    /// Cancelled when the gateway stops: whoever waits for a person waits no longer.
    pub stopping: CancellationToken,
}

/// How long a call waits for a person when nothing else is said: common clients give up at 60 s.
const APPROVAL_WAIT: Duration = Duration::from_secs(50);

impl Pipeline {
    pub fn new(
        registry: Registry,
        store: &Store,
        audit: Audit,
        metrics: Arc<Metrics>,
        directory: Directory,
    ) -> Self {
        Self {
            catalogs: Arc::new(Catalogs::new(Arc::new(registry))),
            usage: Usage::start(store.clone(), metrics.clone()),
            sources: Arc::default(),
            clock: store.clock(),
            store: store.clone(),
            audit,
            approvals: Approvals::new(store.clone(), metrics.clone()),
            metrics,
            directory,
            approval_wait: APPROVAL_WAIT,
            budgets: Budgets::new(store.clone()),
            writes: TaskTracker::new(),
            stopping: CancellationToken::new(),
        }
    }

    /// Follows the sources that agents may be granted; what they offer becomes part of the catalogs.
    pub fn follow_sources(&self, connectors: Connectors) -> Sources {
        let make: Maker = Arc::new(move |id, source| {
            let connectors = connectors.clone();
            Box::pin(async move { connectors.connect(id, source).await })
        });
        Sources::new(
            self.directory.clone(),
            self.store.clone(),
            self.catalogs.clone(),
            self.sources.clone(),
            self.metrics.clone(),
            make,
        )
    }

    /// The entries of an agent that serve nothing, each with why.
    pub fn unresolved(&self, catalog: &Catalog, snapshot: &Snapshot) -> Vec<Unresolved> {
        sources::unresolved(
            &catalog.unresolved,
            catalog.agent(),
            snapshot,
            &self.sources,
        )
    }

    /// Runs one call, whoever carries it: MCP, REST or a program in process.
    ///
    /// Dropping the future or cancelling the request ends a call that reads, or that waits for a person; a call that
    /// writes runs to its end all the same. Either is recorded, and a call that writes is answered after its
    /// record is durable.
    pub async fn call(self: &Arc<Self>, request: Request) -> Answer {
        self.go(self.prepare(request)).await
    }

    /// Finds out what a call is about. Nothing has happened yet: it may be dropped, or carried another way.
    pub fn prepare(&self, mut request: Request) -> Prepared {
        let at = self.clock.now();
        let target = self.find(&mut request, at);
        Prepared {
            request,
            target,
            at,
        }
    }

    /// Runs a prepared call, as [`Pipeline::call`] does.
    pub async fn go(self: &Arc<Self>, prepared: Prepared) -> Answer {
        let Prepared {
            request,
            target,
            at,
        } = prepared;
        let cancelled = request.cancelled.clone();
        let here = CancellationToken::new();
        if !target.runs_to_its_end() {
            return cancelled
                .run_until_cancelled(pin!(self.run(request, target, at, here)))
                .await
                .unwrap_or(Answer::Cancelled);
        }
        let _gone = here.clone().drop_guard();
        let pipeline = self.clone();
        let work = async move { pipeline.run(request, target, at, here).await };
        cancelled
            .run_until_cancelled(ToItsEnd::new(work, &self.writes))
            .await
            .unwrap_or(Answer::Cancelled)
    }

    /// What the request asks for, whether or not the agent may. The arguments become the tool's own.
    fn find(&self, request: &mut Request, at: Timestamp) -> Target {
        let catalog = self.catalogs.of(&request.agent, at);
        match catalog.find(&request.tool, &request.arguments) {
            Found::Entry { entry, arguments } => {
                if let Some(arguments) = arguments {
                    request.arguments = arguments;
                }
                if entry.rights.looks_at_arguments() {
                    request.arguments = one_reading(&request.arguments);
                }
                let operation = entry.family.operation(&entry.tool, &request.arguments);
                Target {
                    operation,
                    found: Ok(entry),
                }
            }
            Found::NoOperation(error) => {
                Target::none(request.tool.clone().into(), Unfound::NoOperation(error))
            }
            Found::Nothing(Some(operation)) => {
                Target::none(operation.name, Unfound::Unknown { exists: true })
            }
            Found::Nothing(None) => Target::none(
                request.tool.clone().into(),
                Unfound::Unknown { exists: false },
            ),
        }
    }

    async fn run(
        &self,
        request: Request,
        target: Target,
        at: Timestamp,
        here: CancellationToken,
    ) -> Answer {
        let Target { operation, found } = target;
        let effect = operation.effect;
        let opening = Opening {
            agent: &request.agent,
            key_id: &request.key_id,
            tool: operation.name,
            arguments: &request.arguments,
            at,
        };
        let Ok(mut record) = self.audit.open(opening).await else {
            return Answer::Failed(ToolError::unavailable(
                "The call could not be recorded, so nothing was done. Try it again in a few seconds.",
            ));
        };
        let answer = match found {
            Ok(entry) => self.permitted(&request, entry, here, &mut record).await,
            Err(unfound) => unfound.answer(&mut record),
        };
        let (outcome, size) = answer.summary();
        if effect == Effect::Reads {
            record.close(outcome, size);
        } else if record.close_durably(outcome, size).await.is_err() {
            return Answer::Failed(ToolError::unavailable(
                "The call ran, but its record was not confirmed, so its result is held back. Read back what it changed before you repeat it.",
            ));
        }
        answer
    }

    /// Asks the gate and goes on as it says; where it says to ask a person, asks once more after the wait.
    ///
    /// What few calls come to is boxed: every call carries room for the rest.
    async fn permitted(
        &self,
        request: &Request,
        mut entry: Arc<Entry>,
        here: CancellationToken,
        record: &mut Record,
    ) -> Answer {
        let mut agent = request.agent.clone();
        let mut waited = false;
        loop {
            let now = self.clock.now();
            let cents = most_cents(&entry, &request.arguments);
            let decision = self
                .decide(&agent, &entry, &request.arguments, cents, now)
                .await;
            let ask = match decision {
                Ok(Decision::Permit(permit, passed)) => {
                    record.decided("permit");
                    let result = self.execute(request, &entry, permit, passed, record).await;
                    return result.into();
                }
                Ok(Decision::Ask(ask)) => ask,
                Ok(Decision::Deny(denial)) => {
                    if let Denial::Limit { .. } = denial
                        && let Some(answer) = Box::pin(self.told_before(request, &entry)).await
                    {
                        record.decided("answered_again");
                        return answer;
                    }
                    record.decided(denial.reason());
                    let mut message = denial.message(&entry.tool.name, now);
                    if cents == UNBOUNDED && matches!(denial, Denial::Limit { .. }) {
                        message.push_str(". Nothing bounds what this call may cost: if it takes max_cost_cents, write that");
                    }
                    return Answer::Failed(ToolError::refused(message));
                }
                Ok(Decision::Unknown) => {
                    record.decided("not_granted");
                    return Answer::UnknownTool;
                }
                Err(error) => {
                    record.decided("no_budget");
                    return Answer::Failed(error);
                }
            };
            let client_may_approve = ask.client_may_approve;
            let ticket = match Box::pin(self.stand(request, &entry, ask, record)).await {
                Stand::Pending(ticket) => ticket,
                Stand::Answered(answer) => return answer,
            };
            let waits = !waited && request.patience.waits(client_may_approve);
            if !waits || !Box::pin(self.wait(request, ticket, &here)).await {
                return Answer::Awaiting(Awaiting {
                    ticket,
                    client_may_approve,
                });
            }
            // The world may have changed meanwhile: what was taken away is not given back by an approval.
            let Some(still) = self.still(request, &entry.tool.name) else {
                record.decided("right_removed");
                return Answer::UnknownTool;
            };
            (agent, entry) = still;
            waited = true;
        }
    }

    /// The gate's decision, with budgets that can be answered for.
    async fn decide<'a>(
        &self,
        agent: &'a Arc<Agent>,
        entry: &'a Entry,
        arguments: &'a RawValue,
        cents: i64,
        now: Timestamp,
    ) -> Result<Decision<'a>, ToolError> {
        self.budgets.prepare(&entry.rights, cents, now).await?;
        Ok(gate::decide(&Question {
            agent,
            tool: &entry.tool,
            rights: &entry.rights,
            arguments: arguments.get(),
            now,
            used_up: &|grant| self.budgets.used_up(grant, cents, now),
        }))
    }

    /// Charges the grants and runs the call.
    async fn execute(
        &self,
        request: &Request,
        entry: &Entry,
        permit: Permit<'_>,
        passed: Passed<'_>,
        record: &mut Record,
    ) -> Result<Output, ToolError> {
        let cents = most_cents(entry, &request.arguments);
        if !self.budgets.spend(&passed, cents, permit.now()) {
            // Others have spent the slice meanwhile.
            record.decided("limit");
            return Err(ToolError::refused(format!(
                "{}: the limit of a ToolGrant is used up for now; try again in a second",
                entry.tool.name
            )));
        }
        let call = Call {
            arguments: &request.arguments,
            worker: request.worker.as_deref(),
            client: request.client.as_ref(),
            cancelled: request.cancelled.clone(),
            spent: &AtomicU64::new(0),
        };
        let spent = call.spent;
        let result = entry.family.call(&permit, call).await;
        let spent = i64::try_from(spent.load(Ordering::Relaxed)).unwrap_or(i64::MAX);
        if cents > spent {
            self.budgets.refund(&passed, cents - spent, permit.now());
        }
        result
    }
}

/// What a call can cost at most that nothing bounds: more cents than any grant allows.
const UNBOUNDED: i64 = i64::MAX;

/// The most that a call can cost, in cents.
fn most_cents(entry: &Entry, arguments: &RawValue) -> i64 {
    let cost = entry.family.cost(&entry.tool, arguments);
    cost.and_then(|cents| i64::try_from(cents).ok())
        .unwrap_or(UNBOUNDED)
}

/// What a call is about.
struct Target {
    operation: Operation,
    found: Result<Arc<Entry>, Unfound>,
}

enum Unfound {
    NoOperation(ToolError),
    Unknown { exists: bool },
}

impl Target {
    /// Whether the call goes on though its client goes away: one that writes, and one whose approval it would use up.
    fn runs_to_its_end(&self) -> bool {
        let may_ask = |entry: &Arc<Entry>| entry.rights.may_ask();
        self.operation.effect != Effect::Reads || self.found.as_ref().is_ok_and(may_ask)
    }

    fn none(name: Cow<'static, str>, unfound: Unfound) -> Self {
        Self {
            operation: Operation {
                name,
                effect: Effect::Reads,
            },
            found: Err(unfound),
        }
    }
}

impl Unfound {
    fn answer(self, record: &mut Record) -> Answer {
        match self {
            Self::NoOperation(error) => {
                record.decided("no_operation");
                Answer::Failed(error)
            }
            Self::Unknown { exists } => {
                record.decided(if exists { "not_listed" } else { "unknown_tool" });
                Answer::UnknownTool
            }
        }
    }
}

/// The arguments written so that they can be read in one way only: rules, people and the tool see the same.
fn one_reading(arguments: &RawValue) -> Box<RawValue> {
    serde_json::from_str::<serde_json::Value>(arguments.get())
        .and_then(|value| serde_json::value::to_raw_value(&value))
        .unwrap_or_else(|_| arguments.to_owned())
}

impl From<Result<Output, ToolError>> for Answer {
    fn from(result: Result<Output, ToolError>) -> Self {
        match result {
            Ok(output) => Self::Done(output),
            Err(error) => Self::Failed(error),
        }
    }
}

impl Answer {
    /// The outcome that audit rows, logs and metrics name, and how many bytes the agent reads.
    fn summary(&self) -> (&'static str, usize) {
        match self {
            Self::Done(output) => ("done", output.size()),
            Self::Failed(error) => (error.kind.outcome(), error.message.len()),
            Self::UnknownTool => ("unknown_tool", 0),
            Self::Awaiting(_) => ("awaiting_approval", 0),
            Self::Cancelled => ("cancelled", 0),
        }
    }
}
