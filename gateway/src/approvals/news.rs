//! What happened lately to calls that wait for people, for whoever passes it on. In memory and bounded: the store has
//! the truth, and what a restart loses here nobody misses.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use chandlery_crds::report::{ApprovalNews, ApprovalState};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{Approval, State, ms};
use crate::store::Id;

/// Rows that are remembered, over all agents.
const MOST: usize = 1024;
/// Rows of one agent that are told.
const MOST_PER_AGENT: usize = 16;
/// How long a decision is news.
const RECENT: Duration = Duration::from_secs(10 * 60);

/// The newest state of each row, the latest at the end.
pub struct News {
    items: Mutex<VecDeque<Item>>,
    changes: watch::Sender<u64>,
}

struct Item {
    id: Id,
    agent_uid: String,
    /// Unix milliseconds.
    until: i64,
    news: ApprovalNews,
}

impl News {
    pub(super) fn new() -> Self {
        Self {
            items: Mutex::default(),
            changes: watch::Sender::new(0),
        }
    }

    /// Takes over where a row stands. What it is about stays in the store: arguments are nobody's news.
    pub(super) fn tell(&self, row: &Approval) {
        let (state, until) = match row.state {
            State::Pending => (ApprovalState::Pending, row.expires_at),
            State::Approved => (ApprovalState::Approved, decided(row)),
            State::Denied => (ApprovalState::Denied, decided(row)),
            State::Running | State::Done | State::Withdrawn => return,
        };
        let item = Item {
            id: row.id,
            agent_uid: row.agent_uid.clone(),
            until,
            news: ApprovalNews {
                id: row.id.to_string(),
                tool: row.tool.clone(),
                state,
                by: row.decided_by.clone(),
            },
        };
        let mut items = self.items.lock();
        items.retain(|known| known.id != row.id);
        items.push_back(item);
        if items.len() > MOST {
            items.pop_front();
        }
        drop(items);
        self.changes.send_modify(|count| *count += 1);
    }

    /// Nobody waits for the row any more.
    pub(super) fn forget(&self, id: Id) {
        self.items.lock().retain(|known| known.id != id);
    }

    /// Counts news; changes with each.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// What is news at `now` (Unix milliseconds), by the agent's UID, at most 16 each, the latest first.
    pub fn by_agent(&self, now: i64) -> HashMap<String, Vec<ApprovalNews>> {
        let mut items = self.items.lock();
        items.retain(|item| now < item.until);
        let mut by_agent: HashMap<String, Vec<ApprovalNews>> = HashMap::new();
        for item in items.iter().rev() {
            let own = by_agent.entry(item.agent_uid.clone()).or_default();
            if own.len() < MOST_PER_AGENT {
                own.push(item.news.clone());
            }
        }
        by_agent
    }
}

fn decided(row: &Approval) -> i64 {
    row.decided_at.unwrap_or(row.created_at) + ms(RECENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: i64, agent: &str, state: State) -> Approval {
        Approval {
            id: Id::from_row(id),
            agent: format!("default.{agent}"),
            agent_uid: agent.to_owned(),
            tool: "agnt_queues_enqueue".to_owned(),
            arguments: r#"{"text":"hunter2"}"#.to_owned(),
            worker: None,
            level: "ask".to_owned(),
            state,
            created_at: 0,
            expires_at: 1_000_000,
            decided_at: Some(1_000),
            decided_by: Some("alice".to_owned()),
            reason: None,
            started_at: None,
            ended_at: None,
            result: None,
        }
    }

    fn states(news: &News, agent: &str, now: i64) -> Vec<ApprovalState> {
        let mut by_agent = news.by_agent(now);
        let own = by_agent.remove(agent).unwrap_or_default();
        own.into_iter().map(|news| news.state).collect()
    }

    #[test]
    fn news_are_what_waits_and_what_was_decided_lately() {
        let news = News::new();
        let changes = news.changes();
        news.tell(&row(1, "a", State::Pending));
        news.tell(&row(2, "a", State::Pending));
        news.tell(&row(3, "b", State::Denied));
        news.tell(&row(1, "a", State::Approved));
        news.tell(&row(1, "a", State::Running));
        assert_eq!(*changes.borrow(), 4);
        use ApprovalState::{Approved, Denied, Pending};
        assert_eq!(states(&news, "a", 2_000), [Approved, Pending]);
        assert_eq!(states(&news, "b", 2_000), [Denied]);
        assert_eq!(states(&news, "b", 601_000), []);
        assert_eq!(states(&news, "a", 601_000), [Pending]);
        assert_eq!(states(&news, "a", 1_000_000), []);
    }

    #[test]
    fn news_are_few_and_the_latest() {
        let news = News::new();
        for id in 0..2_000 {
            news.tell(&row(id, "a", State::Pending));
        }
        assert_eq!(states(&news, "a", 0).len(), MOST_PER_AGENT);
        assert_eq!(news.items.lock().len(), MOST);
        let first = Id::from_row(1_999).to_string();
        assert_eq!(news.by_agent(0)["a"][0].id, first);
    }
}
