//! The part of the line that waits for a person.

use std::sync::Arc;

use chandlery_crds::{AgentState, Level};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::{Answer, Pipeline, Request};
use crate::approvals::{Standpoint, Ticket, Wanted};
use crate::audit::Record;
use crate::catalog::{Entry, Found};
use crate::directory::{Agent, Principal};
use crate::gate::{Ask, Decision};

impl Pipeline {
    /// Whether the person at the agent's own client may allow this call, if it has to be allowed at all.
    pub async fn client_may_approve(
        &self,
        agent: &Arc<Agent>,
        tool: &str,
        arguments: &RawValue,
    ) -> bool {
        let now = self.clock.now();
        let catalog = self.catalogs.of(agent, now);
        let found = catalog.find(tool, arguments);
        let Found::Entry {
            entry,
            arguments: own,
        } = found
        else {
            return false;
        };
        let own = own.as_deref().unwrap_or(arguments);
        let cents = super::most_cents(&entry, own);
        let decision = self.decide(agent, &entry, own, cents, now).await;
        matches!(decision, Ok(Decision::Ask(ask)) if ask.client_may_approve)
    }

    /// Waits for a decision about the ticket; `false` when nobody is left to wait for, or the gateway stops.
    pub(super) async fn wait(
        &self,
        request: &Request,
        ticket: Ticket,
        here: &CancellationToken,
    ) -> bool {
        tokio::select! {
            biased;
            () = request.cancelled.cancelled() => false,
            () = here.cancelled() => false,
            () = self.stopping.cancelled() => false,
            () = self.approvals.wait(ticket, self.approval_wait) => true,
        }
    }

    /// Finds out where the call stands, and does what is to be done there.
    pub(super) async fn stand(
        &self,
        request: &Request,
        entry: &Entry,
        ask: Ask<'_>,
        record: &mut Record,
    ) -> Stand {
        let wanted = wanted(request, entry, ask.level);
        let standpoint = match self.approvals.stand(&wanted).await {
            Ok(standpoint) => standpoint,
            Err(cause) => return Stand::Answered(Answer::Failed(cause.into())),
        };
        Stand::Answered(match standpoint {
            Standpoint::Pending(ticket) => {
                record.decided("ask");
                return Stand::Pending(ticket);
            }
            Standpoint::Remembered(allowed) => {
                record.decided("remembered");
                let (permit, passed) = ask.allowed(allowed);
                self.execute(request, entry, permit, passed, record)
                    .await
                    .into()
            }
            Standpoint::Claimed(claim, allowed) => {
                record.decided("approved");
                let (permit, passed) = ask.allowed(allowed);
                let result = self.execute(request, entry, permit, passed, record).await;
                self.approvals.finish(claim, &result).await;
                result.into()
            }
            Standpoint::Ran(result) => {
                record.decided("answered_again");
                result.into()
            }
            Standpoint::Refused(error) => {
                record.decided("denied");
                Answer::Failed(error)
            }
        })
    }

    /// The result of this very call, if it was approved and has run a while ago: what used up a limit is told again.
    pub(super) async fn told_before(&self, request: &Request, entry: &Entry) -> Option<Answer> {
        if !entry.rights.may_ask() {
            return None;
        }
        let wanted = wanted(request, entry, entry.rights.level);
        let result = self.approvals.result_of(&wanted).await.ok()?;
        result.map(Answer::from)
    }

    /// The caller and its tool as they are now; `None` when the key or the tool is gone.
    pub(super) fn still(&self, request: &Request, tool: &str) -> Option<(Arc<Agent>, Arc<Entry>)> {
        let now = self.clock.now();
        let snapshot = self.directory.snapshot()?;
        let agent = snapshot
            .agents
            .get(&request.agent.id)
            .filter(|agent| agent.uid == request.agent.uid)
            .filter(|agent| agent.spec.state == AgentState::Deployed)?;
        let has_key = snapshot.keys.values().any(|holder| {
            holder.key_id == request.key_id
                && holder.expires_at.is_none_or(|end| now < end)
                && matches!(&holder.principal, Principal::Agent(holder) if holder.uid == agent.uid)
        });
        if !has_key {
            return None;
        }
        let catalog = self.catalogs.of(agent, now);
        match catalog.find(tool, &request.arguments) {
            Found::Entry { entry, .. } => Some((agent.clone(), entry)),
            Found::NoOperation(_) | Found::Nothing(_) => None,
        }
    }
}

/// Where a call stands that somebody has to allow.
pub(super) enum Stand {
    Pending(Ticket),
    Answered(Answer),
}

fn wanted<'a>(request: &'a Request, entry: &'a Entry, level: Level) -> Wanted<'a> {
    Wanted {
        agent: &request.agent,
        tool: &entry.tool.name,
        arguments: request.arguments.get(),
        worker: request.worker.as_deref(),
        level,
    }
}
