//! Leader election: a lease that one replica holds and the others watch.
//!
//! It saves work and nothing else depends on it: two leaders at once would still make one key each, since every write
//! of a key is create-only or tied to the version that was read.

use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams, WatchParams};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::api::{self, Error};
use crate::settings::LeaseSettings;

/// How long before the lease's end a leader stops: its last writes must be through when another may begin.
const MARGIN: Duration = Duration::from_secs(2);

struct Election {
    api: Api<Lease>,
    settings: LeaseSettings,
    /// Until when this replica leads: the start of the request that won, plus the duration, less the margin.
    leads_until: Option<Instant>,
    /// The record of another that was seen last, and when we first saw it. Clocks of two machines are never compared.
    other: Option<(String, Instant)>,
}

/// Takes part in the election until `shutdown`, and then gives the lease back. `leading` says who works.
pub(crate) async fn run(
    client: Client,
    settings: LeaseSettings,
    leading: watch::Sender<bool>,
    shutdown: CancellationToken,
) {
    let mut election = Election {
        api: Api::namespaced(client, &settings.namespace),
        settings,
        leads_until: None,
        other: None,
    };
    let retry = election.settings.duration / 6;
    while !shutdown.is_cancelled() {
        // An attempt that hangs must not outlive the leadership that it was to renew.
        let allowance = election.leads_until.map_or(retry * 2, |until| {
            until.saturating_duration_since(Instant::now())
        });
        match tokio::time::timeout(allowance, election.attempt()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(%error, "cannot renew or take the lease"),
            Err(_) => warn!("the API server did not answer about the lease in time"),
        }
        let leads = election
            .leads_until
            .is_some_and(|until| Instant::now() < until);
        if !leads {
            election.leads_until = None;
        }
        if leading.send_if_modified(|was| std::mem::replace(was, leads) != leads) {
            info!(leader = leads, "leadership changed");
        }
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = tokio::time::sleep(retry) => {}
            () = election.released(), if !leads => {}
        }
    }
}

/// Gives the lease back, so that a standby takes over at once. Call it when the work has stopped.
pub(crate) async fn release(client: Client, settings: &LeaseSettings) {
    let api: Api<Lease> = Api::namespaced(client, &settings.namespace);
    let released = async {
        let Some(mut lease) = get(&api, &settings.name).await? else {
            return Ok(());
        };
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_ref() == Some(&settings.identity) {
            spec.holder_identity = None;
            replace(&api, &settings.name, &lease).await?;
        }
        Ok::<_, Error>(())
    };
    match tokio::time::timeout(MARGIN, released).await {
        Ok(Ok(())) => debug!("lease released"),
        Ok(Err(error)) => warn!(%error, "cannot release the lease: a standby waits until it ends"),
        Err(_) => warn!("cannot release the lease in time: a standby waits until it ends"),
    }
}

impl Election {
    /// Renews the lease if it is ours, takes it if it is free or over.
    async fn attempt(&mut self) -> Result<(), Error> {
        let started = Instant::now();
        let name = &self.settings.name;
        let written = match get(&self.api, name).await? {
            None => {
                let metadata = ObjectMeta {
                    name: Some(name.clone()),
                    ..ObjectMeta::default()
                };
                let lease = Lease {
                    metadata,
                    spec: Some(self.claim(None)),
                };
                api::call::<Lease, _>(
                    "create",
                    name,
                    self.api.create(&PostParams::default(), &lease),
                )
                .await
            }
            Some(mut lease) => {
                let spec = lease.spec.take().unwrap_or_default();
                let holder = spec
                    .holder_identity
                    .clone()
                    .filter(|holder| !holder.is_empty());
                if holder
                    .as_ref()
                    .is_some_and(|holder| *holder != self.settings.identity)
                {
                    self.leads_until = None;
                    let version = lease.metadata.resource_version.clone().unwrap_or_default();
                    let seen_at = match &self.other {
                        Some((known, seen_at)) if *known == version => *seen_at,
                        _ => started,
                    };
                    self.other = Some((version, seen_at));
                    let duration = spec
                        .lease_duration_seconds
                        .and_then(|seconds| u64::try_from(seconds).ok());
                    let duration = duration.map_or(self.settings.duration, Duration::from_secs);
                    if started.duration_since(seen_at) < duration {
                        return Ok(());
                    }
                }
                lease.spec = Some(self.claim(Some(&spec)));
                replace(&self.api, name, &lease).await
            }
        };
        match written {
            Ok(_) => {
                self.leads_until = Some(started + self.settings.duration.saturating_sub(MARGIN));
                Ok(())
            }
            // Another was quicker; or our own write before this one did arrive: look again soon.
            Err(error) if error.is_conflict() => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn claim(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let before = before.cloned().unwrap_or_default();
        let is_ours = before.holder_identity.as_ref() == Some(&self.settings.identity);
        LeaseSpec {
            holder_identity: Some(self.settings.identity.clone()),
            lease_duration_seconds: i32::try_from(self.settings.duration.as_secs()).ok(),
            acquire_time: before
                .acquire_time
                .filter(|_| is_ours)
                .or_else(|| Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(before.lease_transitions.unwrap_or(0) + i32::from(!is_ours)),
            ..LeaseSpec::default()
        }
    }

    /// Ends when the holder has given the lease back; stays pending when that cannot be watched.
    async fn released(&self) {
        let parameters = WatchParams::default()
            .fields(&format!("metadata.name={}", self.settings.name))
            .timeout(30);
        if let Ok(stream) = self.api.watch(&parameters, "0").await {
            let mut stream = std::pin::pin!(stream);
            while let Some(Ok(event)) = stream.next().await {
                let free = match &event {
                    kube::api::WatchEvent::Deleted(_) => true,
                    kube::api::WatchEvent::Added(lease)
                    | kube::api::WatchEvent::Modified(lease) => lease
                        .spec
                        .as_ref()
                        .and_then(|spec| spec.holder_identity.as_deref())
                        .unwrap_or("")
                        .is_empty(),
                    _ => false,
                };
                if free {
                    return;
                }
            }
        }
        std::future::pending().await
    }
}

async fn get(api: &Api<Lease>, name: &str) -> Result<Option<Lease>, Error> {
    api::call::<Lease, _>("get", name, api.get_opt(name)).await
}

async fn replace(api: &Api<Lease>, name: &str, lease: &Lease) -> Result<Lease, Error> {
    api::call::<Lease, _>(
        "replace",
        name,
        api.replace(name, &PostParams::default(), lease),
    )
    .await
}
