//! What every gateway replica serves right now, as the replicas themselves report it.
//!
//! One task polls each ready pod ([`poll`]); [`Board`] keeps the last report of each and answers for all replicas of
//! an account at once.

pub(crate) mod poll;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

use chandlery_crds::names;
use chandlery_crds::report::{AgentReport, ApprovalNews, Report, SourceReport};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

/// An account: the Workspace that a gateway belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Account {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// A gateway pod that takes calls.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Replica {
    pub(crate) account: Account,
    pub(crate) pod: String,
    pub(crate) uid: String,
    pub(crate) address: IpAddr,
}

impl Replica {
    /// `None` unless the pod is ready and staying.
    pub(crate) fn of(pod: &Pod) -> Option<Self> {
        let status = pod.status.as_ref()?;
        let is_ready = status
            .conditions
            .iter()
            .flatten()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True");
        if !is_ready || pod.metadata.deletion_timestamp.is_some() {
            return None;
        }
        Some(Self {
            account: Account {
                namespace: pod.namespace()?,
                name: pod.labels().get(names::WORKSPACE_LABEL)?.clone(),
            },
            pod: pod.name_any(),
            uid: pod.uid()?,
            address: status.pod_ip.as_ref()?.parse().ok()?,
        })
    }
}

/// Whether all replicas of an account serve something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Coverage {
    /// There is no replica that takes calls.
    NoReplica,
    /// These pods do not serve it yet.
    Waiting(Vec<String>),
    All,
}

/// What a replica says of a ToolSource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// It has not reported yet.
    Silent,
    /// It does not know the source, or has no use for it.
    Nothing,
    Found(SourceReport),
}

/// The replicas of an account; `None` for one that has not reported yet.
type Reports = BTreeMap<Replica, Option<Arc<Report>>>;

/// The last report of every replica.
#[derive(Default)]
pub(crate) struct Board(RwLock<HashMap<Account, Reports>>);

impl Board {
    /// Takes over which replicas there are; reports of those that stay are kept.
    fn set_replicas(&self, replicas: &BTreeSet<Replica>) {
        let mut accounts = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *accounts);
        for replica in replicas {
            let report = before
                .get_mut(&replica.account)
                .and_then(|known| known.remove(replica))
                .flatten();
            accounts
                .entry(replica.account.clone())
                .or_default()
                .insert(replica.clone(), report);
        }
    }

    /// Takes over a report; gives the UIDs of what it says something new about.
    fn set_report(&self, replica: &Replica, report: Report) -> BTreeSet<String> {
        let mut accounts = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let Some(slot) = accounts
            .get_mut(&replica.account)
            .and_then(|known| known.get_mut(replica))
        else {
            return BTreeSet::new();
        };
        let before = slot.take().unwrap_or_default();
        let changed = changed(&before, &report);
        *slot = Some(Arc::new(report));
        changed
    }

    /// Whether all replicas of `account` serve what `serves` looks for in a report.
    pub(crate) fn coverage(&self, account: &Account, serves: impl Fn(&Report) -> bool) -> Coverage {
        let accounts = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let Some(replicas) = accounts
            .get(account)
            .filter(|replicas| !replicas.is_empty())
        else {
            return Coverage::NoReplica;
        };
        let waiting: Vec<String> = replicas
            .iter()
            .filter(|(_, report)| !report.as_ref().is_some_and(|report| serves(report)))
            .map(|(replica, _)| replica.pod.clone())
            .collect();
        if waiting.is_empty() {
            Coverage::All
        } else {
            Coverage::Waiting(waiting)
        }
    }

    /// What the account's replicas made of an Agent; from the one that is furthest.
    pub(crate) fn agent(&self, account: &Account, uid: &str) -> Option<AgentReport> {
        let accounts = self.0.read().unwrap_or_else(PoisonError::into_inner);
        accounts
            .get(account)?
            .values()
            .flatten()
            .filter_map(|report| report.agents.get(uid))
            .max_by_key(|report| report.generation)
            .cloned()
    }

    /// What each replica of the namespace's accounts says of a ToolSource, in the order of accounts and pods.
    pub(crate) fn source(&self, namespace: &str, uid: &str) -> Vec<(Replica, Word)> {
        let accounts = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut words: Vec<(Replica, Word)> = accounts
            .iter()
            .filter(|(account, _)| account.namespace == namespace)
            .flat_map(|(_, replicas)| replicas)
            .map(|(replica, report)| {
                let word = match report {
                    None => Word::Silent,
                    Some(report) => match report.sources.get(uid) {
                        None => Word::Nothing,
                        Some(found) => Word::Found(found.clone()),
                    },
                };
                (replica.clone(), word)
            })
            .collect();
        words.sort_by(|(one, _), (other, _)| one.cmp(other));
        words
    }

    /// What every replica says of the Agent's calls that people decide about; each knows of some.
    pub(crate) fn approvals(&self, account: &Account, uid: &str) -> Vec<ApprovalNews> {
        let accounts = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let reports = accounts.get(account).into_iter().flatten();
        let mut all: Vec<ApprovalNews> = Vec::new();
        for (_, report) in reports {
            let agent = report.as_ref().and_then(|report| report.agents.get(uid));
            for news in agent.iter().flat_map(|agent| &agent.approvals) {
                if !all.contains(news) {
                    all.push(news.clone());
                }
            }
        }
        all
    }
}

fn changed(before: &Report, after: &Report) -> BTreeSet<String> {
    fn differing<'a, V: PartialEq>(
        before: &'a BTreeMap<String, V>,
        after: &'a BTreeMap<String, V>,
    ) -> impl Iterator<Item = String> + 'a {
        after
            .iter()
            .filter(|(uid, value)| before.get(*uid) != Some(value))
            .map(|(uid, _)| uid.clone())
    }
    fn gone<'a, V>(
        before: &'a BTreeMap<String, V>,
        after: &'a BTreeMap<String, V>,
    ) -> impl Iterator<Item = String> + 'a {
        let uids = before.keys().filter(|uid| !after.contains_key(*uid));
        uids.cloned()
    }
    differing(&before.agents, &after.agents)
        .chain(differing(&before.workspaces, &after.workspaces))
        .chain(differing(&before.grants, &after.grants))
        .chain(differing(&before.sources, &after.sources))
        // A source that a replica asks no more is news, too: what it said of it counts no longer.
        .chain(gone(&before.sources, &after.sources))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(pod: &str) -> Replica {
        Replica {
            account: Account {
                namespace: "harbour".to_owned(),
                name: "crew".to_owned(),
            },
            pod: pod.to_owned(),
            uid: format!("uid-of-{pod}"),
            address: IpAddr::from([10, 0, 0, 1]),
        }
    }

    fn report(generation: i64) -> Report {
        let agent = AgentReport {
            generation,
            ..AgentReport::default()
        };
        Report {
            agents: BTreeMap::from([("a".to_owned(), agent)]),
            ..Report::default()
        }
    }

    #[test]
    fn all_means_every_replica_that_there_is_now() {
        let board = Board::default();
        let account = replica("one").account;
        let serves = |report: &Report| {
            report
                .agents
                .get("a")
                .is_some_and(|agent| agent.generation >= 2)
        };
        assert_eq!(board.coverage(&account, serves), Coverage::NoReplica);

        board.set_replicas(&BTreeSet::from([replica("one"), replica("two")]));
        assert_eq!(
            board.set_report(&replica("one"), report(2)),
            BTreeSet::from(["a".to_owned()])
        );
        board.set_report(&replica("two"), report(1));
        assert_eq!(
            board.coverage(&account, serves),
            Coverage::Waiting(vec!["two".to_owned()])
        );

        assert_eq!(
            board.set_report(&replica("one"), report(2)),
            BTreeSet::new()
        );
        board.set_replicas(&BTreeSet::from([replica("one")]));
        assert_eq!(board.coverage(&account, serves), Coverage::All);
        assert_eq!(
            board.agent(&account, "a").map(|agent| agent.generation),
            Some(2)
        );

        // The report of a pod that has gone is no news, and a pod that comes back starts from nothing.
        assert_eq!(
            board.set_report(&replica("two"), report(9)),
            BTreeSet::new()
        );
        board.set_replicas(&BTreeSet::new());
        assert_eq!(board.coverage(&account, serves), Coverage::NoReplica);
    }

    #[test]
    fn what_replicas_find_of_a_source_is_known_by_replica() {
        let board = Board::default();
        let elsewhere = Replica {
            account: Account {
                namespace: "pier".to_owned(),
                name: "crew".to_owned(),
            },
            ..replica("three")
        };
        board.set_replicas(&BTreeSet::from([replica("two"), replica("one"), elsewhere]));
        let found = SourceReport {
            generation: 3,
            ..SourceReport::default()
        };
        let report = |found: Option<&SourceReport>| Report {
            sources: found
                .map(|found| ("s".to_owned(), found.clone()))
                .into_iter()
                .collect(),
            ..Report::default()
        };
        let uids = BTreeSet::from(["s".to_owned()]);
        assert_eq!(
            board.set_report(&replica("two"), report(Some(&found))),
            uids
        );
        assert_eq!(
            board.source("harbour", "s"),
            [
                (replica("one"), Word::Silent),
                (replica("two"), Word::Found(found))
            ]
        );
        assert_eq!(board.set_report(&replica("two"), report(None)), uids);
        let (_, last) = &board.source("harbour", "s")[1];
        assert_eq!(*last, Word::Nothing);
    }
}
