//! One value out of a Secret, read again while it is in use.
//!
//! There is no task: a caller reads when the value is due, the others go on with the last one meanwhile.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use secrecy::{ExposeSecret as _, SecretSlice};
use tokio::time::Instant;
use url::Url;

use super::{CredentialError, SecretKey, SecretSettings};
use crate::directory::{ReferenceError, References, Secret};
use crate::times::jittered;

/// Pause after a failed reading.
const RETRY: Duration = Duration::from_secs(3);
/// Readings because of refusals are this far apart at least, whatever an upstream answers.
const REFUSALS: Duration = Duration::from_secs(1);

/// Where a value lies and whom it may be sent to.
pub(super) struct Place {
    pub(super) references: Arc<dyn References>,
    pub(super) namespace: String,
    pub(super) secret: SecretKey,
    /// All of them have to be allowed.
    pub(super) targets: Vec<Url>,
    pub(super) settings: SecretSettings,
}

type Make<T> = Box<dyn Fn(&[u8]) -> Result<T, &'static str> + Send + Sync>;

/// A value, made ready to be sent.
pub(super) struct Kept<T> {
    place: Place,
    make: Make<T>,
    state: Mutex<State<T>>,
    reading: tokio::sync::Mutex<()>,
}

pub(super) struct Value<T> {
    pub(super) made: Arc<T>,
    pub(super) revision: u64,
}

struct State<T> {
    value: Option<(Value<T>, SecretSlice<u8>)>,
    failure: Option<CredentialError>,
    /// When the value was last found to be what the Secret holds.
    read_at: Instant,
    /// When it is read again.
    due: Instant,
    refused_at: Option<Instant>,
    revisions: u64,
}

impl<T> Clone for Value<T> {
    fn clone(&self) -> Self {
        Self {
            made: self.made.clone(),
            revision: self.revision,
        }
    }
}

impl<T> Kept<T> {
    pub(super) fn new(
        place: Place,
        make: impl Fn(&[u8]) -> Result<T, &'static str> + Send + Sync + 'static,
    ) -> Self {
        let now = Instant::now();
        Self {
            place,
            make: Box::new(make),
            state: Mutex::new(State {
                value: None,
                failure: None,
                read_at: now,
                due: now,
                refused_at: None,
                revisions: 0,
            }),
            reading: tokio::sync::Mutex::new(()),
        }
    }

    /// The value, never older than the settings say while the Secret can be read.
    pub(super) async fn value(&self) -> Result<Value<T>, CredentialError> {
        if let Some(known) = self.known(Instant::now()) {
            return known;
        }
        let _reading = match self.reading.try_lock() {
            Ok(reading) => reading,
            Err(_) => {
                if let Some(value) = self.meanwhile() {
                    return Ok(value);
                }
                let reading = self.reading.lock().await;
                if let Some(known) = self.known(Instant::now()) {
                    return known;
                }
                reading
            }
        };
        self.read().await;
        let state = self.state.lock();
        let answer = state.answer(self.place.settings.keep);
        answer.expect("a reading leaves a value or a failure")
    }

    /// The value of this revision was refused; whether there is another one now.
    pub(super) async fn refused(&self, revision: u64) -> bool {
        let _reading = self.reading.lock().await;
        {
            let mut state = self.state.lock();
            if state.revision() != Some(revision) {
                return state.value.is_some();
            }
            let now = Instant::now();
            if state.refused_at.is_some_and(|last| now < last + REFUSALS) {
                return false;
            }
            state.refused_at = Some(now);
        }
        self.read().await;
        let now = self.state.lock().revision();
        now.is_some_and(|now| now != revision)
    }

    /// What is known without reading; `None` when it is time to read.
    fn known(&self, now: Instant) -> Option<Result<Value<T>, CredentialError>> {
        let state = self.state.lock();
        if now < state.due {
            state.answer(self.place.settings.keep)
        } else {
            None
        }
    }

    /// What those go on with who find somebody else reading.
    fn meanwhile(&self) -> Option<Value<T>> {
        let state = self.state.lock();
        let is_fresh = state.read_at.elapsed() < self.place.settings.every;
        if is_fresh || state.failure.is_some() {
            state.answer(self.place.settings.keep)?.ok()
        } else {
            None
        }
    }

    async fn read(&self) {
        let Place {
            references,
            namespace,
            secret,
            targets: _,
            settings,
        } = &self.place;
        let read = references.secret(namespace, &secret.name).await;
        let read = read.map_err(CredentialError::from);
        let read = read.and_then(|found| self.take(&found));
        let mut state = self.state.lock();
        let now = Instant::now();
        match read {
            Ok((made, bytes)) => {
                let is_same = state
                    .value
                    .as_ref()
                    .is_some_and(|(_, known)| known.expose_secret() == bytes.expose_secret());
                if !is_same {
                    state.revisions += 1;
                    let value = Value {
                        made: Arc::new(made),
                        revision: state.revisions,
                    };
                    state.value = Some((value, bytes));
                }
                state.failure = None;
                state.read_at = now;
                // Whatever the jitter, and however long the reading takes, it is over in time.
                state.due = now + jittered(settings.every.mul_f64(0.7));
            }
            Err(failure) => {
                let is_passing = matches!(
                    failure,
                    CredentialError::Reference(ReferenceError::Unreadable { .. })
                );
                if !is_passing {
                    state.value = None;
                }
                state.failure = Some(failure);
                state.due = now + jittered(RETRY.min(settings.every));
            }
        }
    }

    fn take(&self, found: &Secret) -> Result<(T, SecretSlice<u8>), CredentialError> {
        let SecretKey { name, key } = &self.place.secret;
        let secret = || name.clone();
        match &found.allowed_hosts {
            None if self.place.settings.require_hosts => {
                return Err(CredentialError::NoHosts { secret: secret() });
            }
            None => {}
            Some(allowed) => {
                let mut targets = self.place.targets.iter();
                if let Some(other) = targets.find(|target| !allowed.allow(target.as_str())) {
                    return Err(CredentialError::OtherHost {
                        secret: secret(),
                        host: other.host_str().unwrap_or_default().to_owned(),
                    });
                }
            }
        }
        let bytes = found.data.get(key).ok_or_else(|| CredentialError::NoKey {
            secret: secret(),
            key: key.clone(),
        })?;
        let made = (self.make)(bytes.expose_secret());
        let made = made.map_err(|why| CredentialError::Unusable {
            secret: secret(),
            key: key.clone(),
            why,
        })?;
        Ok((made, bytes.clone()))
    }
}

impl<T> State<T> {
    fn revision(&self) -> Option<u64> {
        self.value.as_ref().map(|(value, _)| value.revision)
    }

    /// `None` before anything was read.
    fn answer(&self, keep: Duration) -> Option<Result<Value<T>, CredentialError>> {
        match (&self.value, &self.failure) {
            (Some((value, _)), None) => Some(Ok(value.clone())),
            (Some((value, _)), Some(_)) if self.read_at.elapsed() < keep => Some(Ok(value.clone())),
            (_, Some(failure)) => Some(Err(failure.clone())),
            (None, None) => None,
        }
    }
}
