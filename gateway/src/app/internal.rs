//! What the operator asks: which generation of each agent and which of its keys this replica serves.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chandlery_crds::names::gateway_secret;
use chandlery_crds::report::{AgentReport, HOLD_SECONDS, PATH, Report};
use http::{HeaderMap, Method, Request, StatusCode, header};
use jiff::Timestamp;
use subtle::ConstantTimeEq as _;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::side::{Answer, text, with_type};
use crate::directory::{Directory, Snapshot};
use crate::pipeline::Pipeline;

/// News of approvals that come together are told together.
const TOGETHER: Duration = Duration::from_millis(100);
/// How many unresolved entries of an agent are told.
const MAX_UNRESOLVED: usize = 32;

/// The newest report; `None` before the first.
pub(super) type Newest = watch::Receiver<Option<Arc<Told>>>;

/// A report as it is sent.
pub(super) struct Told {
    report: Report,
    json: Bytes,
}

/// Makes a new report whenever one would differ from the last, until `stop`. `first` is a number that no earlier run
/// of this gateway has begun with, so that its revisions are not taken for ours.
pub(super) async fn keep(
    directory: Directory,
    pipeline: Arc<Pipeline>,
    first: u64,
    newest: watch::Sender<Option<Arc<Told>>>,
    stop: CancellationToken,
) {
    let mut changes = directory.changes();
    let mut offers = pipeline.catalogs.changes();
    let mut asked = pipeline.sources.changes();
    let mut news = pipeline.approvals.news.changes();
    let mut revision = first;
    loop {
        let mut moment = None;
        if let Some(snapshot) = directory.snapshot() {
            let (mut report, valid_until) = report(&snapshot, &pipeline);
            moment = valid_until;
            report.revision = revision;
            let is_new = newest
                .borrow()
                .as_ref()
                .is_none_or(|told| told.report != report);
            if is_new {
                revision += 1;
                report.revision = revision;
                let json = serde_json::to_vec(&report).unwrap_or_default().into();
                newest.send_replace(Some(Arc::new(Told { report, json })));
            }
        }
        let next = async {
            tokio::select! {
                changed = changes.changed() => changed.is_ok(),
                changed = offers.changed() => changed.is_ok(),
                changed = asked.changed() => changed.is_ok(),
                told = news.changed() => {
                    tokio::time::sleep(TOGETHER).await;
                    told.is_ok()
                }
                () = until(moment, pipeline.clock.now()) => true,
            }
        };
        if stop.run_until_cancelled(next).await != Some(true) {
            return;
        }
    }
}

/// Ends at `moment`, or never.
async fn until(moment: Option<Timestamp>, now: Timestamp) {
    match moment {
        Some(moment) => {
            // A timer may be a little early.
            let pause = Duration::try_from(moment.duration_since(now)).unwrap_or_default();
            tokio::time::sleep(pause + Duration::from_millis(5)).await;
        }
        None => std::future::pending().await,
    }
}

/// The report, and until when it is true by the clock alone.
fn report(snapshot: &Snapshot, pipeline: &Pipeline) -> (Report, Option<Timestamp>) {
    let now = pipeline.clock.now();
    let mut news = pipeline.approvals.news.by_agent(now.as_millisecond());
    let mut valid_until: Option<Timestamp> = None;
    let agents = snapshot.agents.values().map(|agent| {
        let catalog = pipeline.catalogs.of(agent, now);
        valid_until = [valid_until, catalog.valid_until]
            .into_iter()
            .flatten()
            .min();
        let mut unresolved = pipeline.unresolved(&catalog, snapshot);
        let unresolved_count = count(unresolved.len());
        unresolved.truncate(MAX_UNRESOLVED);
        let report = AgentReport {
            generation: agent.generation,
            key_revision: agent.key_revision,
            listed: count(catalog.tools.len()),
            unresolved_count,
            unresolved,
            approvals: news.remove(&agent.uid).unwrap_or_default(),
        };
        (agent.uid.clone(), report)
    });
    let agents = agents.collect();
    let workspaces = snapshot.workspaces.values();
    let grants = snapshot.grants.values();
    let report = Report {
        revision: 0,
        agents,
        workspaces: workspaces
            .map(|workspace| (workspace.uid.clone(), workspace.generation))
            .collect(),
        grants: grants
            .map(|grant| (grant.uid.clone(), grant.generation))
            .collect(),
        sources: pipeline.sources.reports(),
    };
    (report, valid_until)
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The operator's side of the port.
#[derive(Clone)]
pub(super) struct Internal {
    /// Folder of the account's keys. The token is read for each poll: a changed Secret needs no restart.
    keys: PathBuf,
    newest: Newest,
    /// How long a poll waits for news.
    hold: Duration,
}

impl Internal {
    pub(super) fn new(keys: PathBuf, newest: Newest) -> Self {
        let hold = Duration::from_secs(HOLD_SECONDS);
        Self { keys, newest, hold }
    }

    pub(super) async fn answer<B>(mut self, request: Request<B>) -> Answer {
        if !self.knows(request.headers()).await {
            return text(
                StatusCode::UNAUTHORIZED,
                "send the account's internal token\n",
            );
        }
        if request.method() != Method::GET || request.uri().path() != PATH {
            return text(StatusCode::NOT_FOUND, "not found\n");
        }
        let since = request.uri().query().and_then(|query| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(name, _)| *name == "since")?.1.parse().ok()
        });
        let is_new = |told: &Option<Arc<Told>>| {
            told.as_ref()
                .is_some_and(|told| Some(told.report.revision) != since)
        };
        let _ = timeout(self.hold, self.newest.wait_for(is_new)).await;
        let newest = self.newest.borrow().clone();
        match newest {
            Some(told) => with_type(StatusCode::OK, "application/json", told.json.clone()),
            None => text(
                StatusCode::SERVICE_UNAVAILABLE,
                "the configuration has not been read yet\n",
            ),
        }
    }

    async fn knows(&self, headers: &HeaderMap) -> bool {
        let path = self.keys.join(gateway_secret::INTERNAL_TOKEN);
        let token = match tokio::fs::read(&path).await {
            Ok(token) if !token.is_empty() => token,
            Ok(_) => return false,
            Err(error) => {
                error!(%error, "the internal token cannot be read");
                return false;
            }
        };
        headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.as_bytes().strip_prefix(b"Bearer "))
            .is_some_and(|sent| sent.ct_eq(&token).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;

    fn told(revision: u64) -> Option<Arc<Told>> {
        let report = Report {
            revision,
            ..Report::default()
        };
        let json = serde_json::to_vec(&report).unwrap().into();
        Some(Arc::new(Told { report, json }))
    }

    async fn ask(internal: &Internal, query: &str, bearer: &str) -> (StatusCode, String) {
        let request = Request::get(format!("{PATH}{query}"))
            .header(header::AUTHORIZATION, bearer)
            .body(())
            .unwrap();
        let answer = internal.clone().answer(request).await;
        let status = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    fn internal(keys: &tempfile::TempDir) -> (watch::Sender<Option<Arc<Told>>>, Internal) {
        std::fs::write(keys.path().join("internal-token"), "right").unwrap();
        let (sender, newest) = watch::channel(told(7));
        let keys = keys.path().to_owned();
        let hold = Duration::from_millis(50);
        (
            sender,
            Internal {
                hold,
                ..Internal::new(keys, newest)
            },
        )
    }

    #[tokio::test]
    async fn only_the_right_token_is_answered() {
        let keys = tempfile::tempdir().unwrap();
        let (_sender, internal) = internal(&keys);
        for bearer in [
            "Bearer wrong",
            "Bearer ",
            "right",
            "Bearer right2",
            "Basic right",
        ] {
            assert_eq!(
                ask(&internal, "", bearer).await.0,
                StatusCode::UNAUTHORIZED,
                "{bearer}"
            );
        }
        assert_eq!(ask(&internal, "", "Bearer right").await.0, StatusCode::OK);
        std::fs::write(keys.path().join("internal-token"), "").unwrap();
        assert_eq!(
            ask(&internal, "", "Bearer ").await.0,
            StatusCode::UNAUTHORIZED
        );
    }

    #[tokio::test]
    async fn a_poll_waits_for_news() {
        let keys = tempfile::tempdir().unwrap();
        let (sender, internal) = internal(&keys);
        let (_, body) = ask(&internal, "?since=6", "Bearer right").await;
        assert!(body.contains("\"revision\":7"), "{body}");
        let mut asked = internal.clone();
        asked.hold = Duration::from_secs(60);
        let poll = tokio::spawn(async move { ask(&asked, "?since=7", "Bearer right").await });
        tokio::task::yield_now().await;
        sender.send_replace(told(8));
        assert!(poll.await.unwrap().1.contains("\"revision\":8"));
        // Nothing new: the same again once the hold is over.
        let (status, body) = ask(&internal, "?since=8", "Bearer right").await;
        assert!(status.is_success() && body.contains("\"revision\":8"));
    }
}
