//! The life of a key: minted, prepared, active, retiring, revoked.
//!
//! [`mint`] and [`adopt`] decide from what is stored alone — the Secret, and the digests in the status — so a crash
//! at any point goes on where it stopped. Three rules make that work:
//!
//! - The Secret is always written before the status, and a reconcile writes each at most once.
//! - Which of two keys is active says the Secret; which keys work says the status. A key that the status does not
//!   know yet is published before anything else happens to the Secret.
//! - Deleting a Secret revokes its keys: those that work are the ones in the Secret, and one that retires.
//!
//! Nothing here reads a clock, takes randomness or talks to anybody.

pub(crate) mod binding;

use std::time::Duration;

use chandlery_crds::fields::KeyStatus;
use chandlery_crds::key::{Digest, Key};
use jiff::{SignedDuration, Timestamp};

/// Keys that a status may list; the schema holds the same bound.
const MOST_KEYS: usize = 8;

/// What a Secret of ours holds.
#[derive(Clone, Debug)]
pub(crate) struct Tokens {
    pub(crate) token: Key,
    /// The key that a rotation has prepared.
    pub(crate) next: Option<Key>,
}

/// What lies under the name of the Secret.
#[derive(Clone, Debug)]
pub(crate) enum Stored {
    Absent,
    /// Ours, but on its way out, or left over from an owner of the same name: it will be gone in a moment.
    Going,
    /// Somebody else's: never written.
    Foreign,
    /// Ours; no tokens when there is no valid key in it.
    Ours(Option<Tokens>),
}

/// What the owner's spec asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// No key: what there is gets revoked for good.
    Nothing,
    /// Keep what there is, and start or finish no rotation.
    Suspended,
    /// One key.
    Key,
}

/// When a key is replaced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rotation {
    pub(crate) every: Option<Duration>,
    /// Somebody asked for it by annotation.
    pub(crate) asked: bool,
    /// How long the old key goes on working.
    pub(crate) overlap: Duration,
}

/// Everything a decision depends on.
#[derive(Clone, Debug)]
pub(crate) struct Situation<'a> {
    pub(crate) wanted: Wanted,
    pub(crate) rotation: Rotation,
    pub(crate) stored: &'a Stored,
    /// Keys of the Secret that was used before `secretName` changed: they move along.
    pub(crate) moved: Option<&'a Tokens>,
    /// `status.keys`.
    pub(crate) published: &'a [KeyStatus],
    /// Whether every gateway replica accepts `published`; true when there is none.
    pub(crate) is_accepted: bool,
    /// Whether the stored token, which is not published yet, already belongs to another.
    pub(crate) is_taken: bool,
    pub(crate) now: Timestamp,
}

/// What to do to the Secret.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    Nothing,
    /// Make it; it must not exist.
    Create(Tokens),
    /// Write it, if it is still as it was seen.
    Update(Tokens),
    Delete,
}

/// How the owner's key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// No key is wanted.
    None,
    Active,
    /// A new key is prepared and waits until every replica accepts it.
    Rotating,
    Conflict,
    Going,
    NotFound,
    Invalid,
    InUse,
}

/// What a person may want to know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    Rotated,
    Regenerated,
}

/// What [`mint`] and [`adopt`] say.
#[derive(Clone, Debug)]
pub(crate) struct Decision {
    pub(crate) write: Write,
    /// `status.keys` once the write has succeeded.
    pub(crate) keys: Vec<KeyStatus>,
    pub(crate) standing: Standing,
    pub(crate) happened: Option<Happened>,
    /// A rotation that was asked for has begun, or rides along with one that is under way.
    pub(crate) asked_is_done: bool,
    /// When time alone changes something next.
    pub(crate) again_at: Option<Timestamp>,
}

/// Decides about a key of our own making. `fresh` is asked for at most one new key.
pub(crate) fn mint(situation: &Situation<'_>, fresh: impl FnOnce() -> Key) -> Decision {
    let Situation {
        wanted,
        rotation,
        stored,
        moved,
        published,
        is_accepted,
        is_taken,
        now,
    } = situation;
    let none = |write, standing| Decision {
        write,
        keys: Vec::new(),
        standing,
        happened: None,
        asked_is_done: false,
        again_at: None,
    };
    let stored = match (wanted, stored) {
        (Wanted::Nothing, Stored::Ours(_)) => return none(Write::Delete, Standing::None),
        (Wanted::Nothing, _) => return none(Write::Nothing, Standing::None),
        (_, Stored::Foreign) => return none(Write::Nothing, Standing::Conflict),
        (_, Stored::Going) => return none(Write::Nothing, Standing::Going),
        (_, Stored::Absent) => None,
        (_, Stored::Ours(tokens)) => Some(tokens.as_ref()),
    };
    let regenerated = (!published.is_empty()).then_some(Happened::Regenerated);
    let tokens = match stored {
        None => {
            let (tokens, happened) = match moved {
                Some(tokens) => ((*tokens).clone(), None),
                None => (
                    Tokens {
                        token: fresh(),
                        next: None,
                    },
                    regenerated,
                ),
            };
            let keys = publish(&tokens, published, rotation.overlap, *now);
            return Decision {
                happened,
                ..settled(Write::Create(tokens), keys)
            };
        }
        // What lies there is no key, or the key of another: one new key, and the old one is lost.
        Some(None) => None,
        Some(Some(tokens)) if *is_taken && !lists(published, &tokens.token) => None,
        Some(Some(tokens)) => Some(tokens),
    };
    let Some(tokens) = tokens else {
        let tokens = Tokens {
            token: fresh(),
            next: None,
        };
        let keys = publish(&tokens, published, rotation.overlap, *now);
        return Decision {
            happened: regenerated,
            ..settled(Write::Update(tokens), keys)
        };
    };

    // Publish first: what the status does not know, no gateway accepts.
    if !lists(published, &tokens.token) {
        let keys = publish(tokens, published, rotation.overlap, *now);
        return Decision {
            happened: regenerated,
            ..settled(Write::Nothing, keys)
        };
    }
    let keys = publish(tokens, published, rotation.overlap, *now);
    let resting = settled(Write::Nothing, keys.clone());
    match &tokens.next {
        Some(next) if !lists(published, next) => Decision {
            standing: Standing::Rotating,
            asked_is_done: rotation.asked,
            ..resting
        },
        Some(next) if *is_accepted && *wanted == Wanted::Key => {
            let tokens = Tokens {
                token: next.clone(),
                next: None,
            };
            let keys = publish(&tokens, published, rotation.overlap, *now);
            Decision {
                happened: Some(Happened::Rotated),
                asked_is_done: rotation.asked,
                ..settled(Write::Update(tokens), keys)
            }
        }
        Some(_) => Decision {
            standing: Standing::Rotating,
            asked_is_done: rotation.asked,
            ..resting
        },
        None => {
            let retiring = keys.iter().any(|key| key.expires_at.is_some());
            let due_at = rotation
                .every
                .and_then(|every| after(created_at(&keys, &tokens.token)?, every));
            // By period only one key retires at a time; a person who asks for a new key gets it now.
            let is_due = match due_at {
                _ if *wanted != Wanted::Key => false,
                _ if rotation.asked => keys.len() < MOST_KEYS,
                Some(due_at) => due_at <= *now && !retiring,
                None => false,
            };
            if is_due {
                let tokens = Tokens {
                    token: tokens.token.clone(),
                    next: Some(fresh()),
                };
                let keys = publish(&tokens, published, rotation.overlap, *now);
                return Decision {
                    standing: Standing::Rotating,
                    asked_is_done: rotation.asked,
                    ..settled(Write::Update(tokens), keys)
                };
            }
            let due_at = due_at.filter(|_| *wanted == Wanted::Key && !retiring);
            let again_at = [resting.again_at, due_at].into_iter().flatten().min();
            Decision {
                again_at,
                ..resting
            }
        }
    }
}

/// What lies where `existingSecretRef` points.
#[derive(Clone, Debug)]
pub(crate) enum Existing {
    Absent,
    Invalid,
    /// A key that belongs to an older owner.
    Taken,
    Key(Key),
}

/// Decides about a key that people brought: it is published as it is, and never written. One that it replaces retires.
pub(crate) fn adopt(
    existing: &Existing,
    published: &[KeyStatus],
    overlap: Duration,
    now: Timestamp,
) -> Decision {
    let without = |standing| Decision {
        standing,
        ..settled(Write::Nothing, Vec::new())
    };
    match existing {
        Existing::Absent => without(Standing::NotFound),
        Existing::Invalid => without(Standing::Invalid),
        Existing::Taken => without(Standing::InUse),
        Existing::Key(key) => {
            let mut keys = settle(&[key], published, overlap, now);
            if !lists(published, key) {
                keys.push(new_entry(key, now));
            }
            settled(Write::Nothing, keys)
        }
    }
}

fn settled(write: Write, keys: Vec<KeyStatus>) -> Decision {
    let again_at = keys.iter().filter_map(expires_at).min();
    Decision {
        write,
        keys,
        standing: Standing::Active,
        happened: None,
        asked_is_done: false,
        again_at,
    }
}

/// `status.keys` for a Secret that holds `tokens`: its keys, and what still retires.
///
/// When the status does not know the active key, the Secret was made anew, and whatever was published before is lost.
fn publish(
    tokens: &Tokens,
    published: &[KeyStatus],
    overlap: Duration,
    now: Timestamp,
) -> Vec<KeyStatus> {
    let held: Vec<&Key> = std::iter::once(&tokens.token).chain(&tokens.next).collect();
    let mut keys = match lists(published, &tokens.token) {
        true => settle(&held, published, overlap, now),
        false => Vec::new(),
    };
    for key in held {
        if !lists(&keys, key) {
            keys.push(new_entry(key, now));
        }
    }
    keys
}

/// Keeps the `held` keys, retires those that are held no more, and drops those whose time is over.
fn settle(
    held: &[&Key],
    published: &[KeyStatus],
    overlap: Duration,
    now: Timestamp,
) -> Vec<KeyStatus> {
    published
        .iter()
        .filter_map(|entry| {
            let mut entry = entry.clone();
            let is_held = held
                .iter()
                .any(|key| key.digest().to_string() == entry.digest);
            match expires_at(&entry) {
                _ if is_held => entry.expires_at = None,
                Some(at) if at <= now => return None,
                Some(_) => {}
                None => entry.expires_at = Some(after(now, overlap).unwrap_or(now).to_string()),
            }
            Some(entry)
        })
        .collect()
}

fn new_entry(key: &Key, now: Timestamp) -> KeyStatus {
    let digest = key.digest();
    KeyStatus {
        id: digest.id(),
        digest: digest.to_string(),
        created_at: Timestamp::from_second(now.as_second())
            .unwrap_or(now)
            .to_string(),
        expires_at: None,
    }
}

fn lists(keys: &[KeyStatus], key: &Key) -> bool {
    holds(keys, key.digest())
}

/// Whether `keys` has this digest.
pub(crate) fn holds(keys: &[KeyStatus], digest: Digest) -> bool {
    let digest = digest.to_string();
    keys.iter().any(|entry| entry.digest == digest)
}

/// `None` while a key has no end. An end that cannot be read is over already: fail closed.
fn expires_at(entry: &KeyStatus) -> Option<Timestamp> {
    let text = entry.expires_at.as_ref()?;
    Some(text.parse().unwrap_or(Timestamp::UNIX_EPOCH))
}

fn created_at(keys: &[KeyStatus], key: &Key) -> Option<Timestamp> {
    let digest = key.digest().to_string();
    keys.iter()
        .find(|entry| entry.digest == digest)?
        .created_at
        .parse()
        .ok()
}

/// `duration` after `at`, up to the next whole second. `None` beyond the end of time.
fn after(at: Timestamp, duration: Duration) -> Option<Timestamp> {
    let exact = at
        .checked_add(SignedDuration::try_from(duration).ok()?)
        .ok()?;
    let whole = Timestamp::from_second(exact.as_second()).ok()?;
    if whole == exact {
        Some(exact)
    } else {
        whole.checked_add(SignedDuration::from_secs(1)).ok()
    }
}

#[cfg(test)]
mod tests;
