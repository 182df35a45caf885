//! The tokens of the account's people: one Secret, read by its name again and again, since a gateway may list none.
//!
//! While the API server does not answer, the tokens that were read last go on working.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::{Change, FIRST_RETRY, PAGE_TIMEOUT};
use crate::directory::people::{Read, Tokens, read};
use crate::times::jittered;

/// How often the Secret is read again, give or take a quarter.
const EVERY: Duration = Duration::from_secs(30);
/// The longest pause while it is missing or cannot be read: whoever makes it, or lets us read it, wants to use it.
const LAST_RETRY: Duration = Duration::from_secs(5);

/// Where the tokens are written, and by which generation of the Workspace: a new one has the Secret read at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) secret: String,
    pub(super) generation: i64,
}

/// Reads what `place` names for as long as somebody listens.
pub(super) async fn follow(
    secrets: Api<Secret>,
    account: String,
    mut place: watch::Receiver<Option<Place>>,
    sender: mpsc::Sender<Change>,
) {
    let mut known = Tokens::new();
    let mut secret = None;
    let mut trouble = None;
    let mut retry = FIRST_RETRY;
    loop {
        let wanted = place.borrow_and_update().clone().map(|place| place.secret);
        let mut tokens = known.clone();
        if wanted != secret {
            // Nobody's token out of another Secret goes on working.
            tokens.clear();
            secret.clone_from(&wanted);
            retry = FIRST_RETRY;
        }
        let now_wrong = match &wanted {
            None => None,
            Some(name) => match look(&secrets, name).await {
                Ok(Some(found)) => {
                    tokens = found.tokens;
                    found.flaw
                }
                Ok(None) => {
                    tokens.clear();
                    Some(format!("there is no Secret {name}"))
                }
                Err(failure) => Some(failure),
            },
        };
        let is_missing = wanted.is_some() && tokens.is_empty();
        if now_wrong != trouble {
            match &now_wrong {
                Some(reason) => warn!(reason, "people's tokens are not as they should be"),
                None => info!(people.count = tokens.len(), "people's tokens are read"),
            }
            trouble = now_wrong;
        }
        if tokens != known {
            known.clone_from(&tokens);
            let change = Change::People(account.clone(), tokens);
            if sender.send(change).await.is_err() {
                return;
            }
        }
        let pause = if is_missing || trouble.is_some() {
            retry = (retry * 2).min(LAST_RETRY);
            retry
        } else {
            retry = FIRST_RETRY;
            EVERY
        };
        tokio::select! {
            changed = place.changed() => if changed.is_err() { return },
            () = sleep(jittered(pause)) => {}
        }
    }
}

/// `None`: there is no such Secret. The failure never repeats what the server sent, which can be a Secret.
async fn look(secrets: &Api<Secret>, name: &str) -> Result<Option<Read>, String> {
    match timeout(PAGE_TIMEOUT, secrets.get_opt(name)).await {
        Ok(Ok(found)) => Ok(found.map(|found| read(name, found.data.as_ref()))),
        Ok(Err(kube::Error::Api(status))) => Err(format!(
            "Secret {name} cannot be read: {} {}",
            status.code, status.reason
        )),
        Ok(Err(_)) => Err(format!(
            "Secret {name} cannot be read: the API server cannot be reached"
        )),
        Err(_) => Err(format!("Secret {name} cannot be read: no answer in time")),
    }
}
