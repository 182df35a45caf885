//! What every reconcile may use.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chandlery_crds::key::Key;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::watch;
use tracing::{debug, warn};

use crate::api::{Cluster, Kind};
use crate::controllers::workspace::plan::network::ApiServer;
use crate::health::Health;
use crate::objects::Applied;
use crate::settings::{GatewaySettings, Settings};
use crate::watches::Caches;

/// What every reconcile of a scope may use; made anew each time that this replica begins to work.
pub(crate) struct Context {
    pub(crate) cluster: Cluster,
    pub(crate) gateway: GatewaySettings,
    pub(crate) caches: Arc<Caches>,
    pub(crate) applied: Applied,
    pub(crate) health: Arc<Health>,
    /// Where the API server listens.
    pub(crate) api_server: watch::Receiver<Vec<ApiServer>>,
    /// Which of the operator's replicas writes Events.
    pub(crate) reporter: String,
    pub(crate) told: Told,
    recorder: Recorder,
}

/// Names of Events that were written or found, so that they are not tried again and again. Forgetting is harmless.
#[derive(Default)]
pub(crate) struct Told(Mutex<HashSet<String>>);

impl Told {
    /// Names that are remembered.
    const MOST: usize = 10_000;

    pub(crate) fn knows(&self, name: &str) -> bool {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.contains(name)
    }

    pub(crate) fn add(&self, name: String) {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() >= Self::MOST {
            names.clear();
        }
        names.insert(name);
    }
}

impl Context {
    pub(crate) fn new(
        cluster: Cluster,
        settings: &Settings,
        health: Arc<Health>,
        caches: Arc<Caches>,
        api_server: watch::Receiver<Vec<ApiServer>>,
    ) -> Self {
        let reporter = Reporter {
            controller: "chandlery-operator".to_owned(),
            instance: Some(settings.identity.clone()),
        };
        Self {
            recorder: Recorder::new(cluster.client(), reporter),
            reporter: settings.identity.clone(),
            told: Told::default(),
            gateway: settings.gateway.clone(),
            applied: Applied::default(),
            cluster,
            caches,
            health,
            api_server,
        }
    }

    /// Tells people about something that happened to `object`. Events are a courtesy: failing to write one is no error.
    pub(crate) async fn tell<K: Kind>(
        &self,
        object: &K,
        type_: EventType,
        reason: &str,
        note: &str,
    ) {
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note.to_owned()),
            action: reason.to_owned(),
            secondary: None,
        };
        let reference: ObjectReference = object.object_ref(&());
        match tokio::time::timeout(
            Duration::from_secs(5),
            self.recorder.publish(&event, &reference),
        )
        .await
        {
            Ok(Ok(())) => {}
            Ok(Err(kube::Error::Api(status))) => {
                debug!(status.code, status.reason, "cannot write an event")
            }
            Ok(Err(_)) | Err(_) => debug!("cannot write an event"),
        }
    }
}

/// The time. Only drivers read it; plans get it handed in.
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

/// 32 random bytes.
pub(crate) fn random() -> [u8; 32] {
    let mut bytes = [0; 32];
    if let Err(error) = getrandom::fill(&mut bytes) {
        // Without randomness there are no keys: stop rather than mint a bad one.
        warn!(%error, "the system gives no randomness");
        std::process::abort();
    }
    bytes
}

/// A new key.
pub(crate) fn fresh_key() -> Key {
    Key::from_random(random())
}

/// `base`, give or take a quarter, so that a thousand objects do not come back at the same moment.
pub(crate) fn jittered(base: Duration) -> Duration {
    let [byte, ..] = random();
    base.mul_f64(0.75 + 0.5 * f64::from(byte) / 255.0)
}
