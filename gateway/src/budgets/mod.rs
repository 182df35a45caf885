//! The limits of grants, over all replicas: each draws slices from the store and spends them on its own.
//!
//! A slice that a replica drew and did not spend is lost with the window, so fewer calls may pass than a limit allows,
//! never more.

mod store;

use std::sync::Arc;

use dashmap::DashMap;
use jiff::Timestamp;
use parking_lot::Mutex;

use self::store::Wanted;
use crate::directory::{Limit, Per, ToolGrant, Unit};
use crate::gate::{Passed, Rights};
use crate::store::{Store, StoreError};

/// How many slices a limit has, so that few calls wait for the store and little is lost.
const SLICES: i64 = 32;
/// Calls, or cents, of the largest slice.
const LARGEST: i64 = 256;
/// Windows that are remembered before those that have passed are forgotten.
const WINDOWS: usize = 4096;

pub struct Budgets {
    store: Store,
    /// By the grant's UID and what the limit counts.
    windows: DashMap<Key, Arc<Window>>,
}

type Key = (String, Per, Unit);

#[derive(Default)]
struct Window {
    state: Mutex<State>,
    /// Whoever draws, so that one does it for all.
    drawing: tokio::sync::Mutex<()>,
}

#[derive(Clone, Copy, Default)]
struct State {
    starts_at: i64,
    /// Of the grant: another limit is asked for anew.
    generation: i64,
    left: i64,
    /// The least that was missing and that there was no room for.
    refused: Option<i64>,
}

impl Budgets {
    pub fn new(store: Store) -> Self {
        Self {
            store,
            windows: DashMap::new(),
        }
    }

    /// Makes sure that a call under any of the rights' grants can be answered for without the store. It costs `cents` at
    /// most.
    pub async fn prepare(
        &self,
        rights: &Rights,
        cents: i64,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        for grant in rights.grants.iter().filter(|grant| grant.is_live(now)) {
            for limit in grant.limits() {
                let (window, amount) = (self.window(grant, limit), amount(limit, cents));
                if !window.is_settled(grant, amount, start_of(limit.per, now)) {
                    // Boxed: few calls draw, and every call would carry the room for it.
                    Box::pin(self.fill(&window, grant, limit, amount, now)).await?;
                }
            }
        }
        Ok(())
    }

    async fn fill(
        &self,
        window: &Window,
        grant: &ToolGrant,
        limit: Limit,
        amount: i64,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let starts_at = start_of(limit.per, now);
        let _one = window.drawing.lock().await;
        if window.is_settled(grant, amount, starts_at) {
            return Ok(());
        }
        let missing = amount - window.left(starts_at);
        let scope = self.store.scope(&grant.workspace).await?;
        let wanted = Wanted {
            grant_uid: grant.uid.clone(),
            per: word(limit),
            starts_at,
            most: limit.most,
        };
        let slice = (limit.most / SLICES).clamp(1, LARGEST);
        let drawn = store::draw(&self.store, scope, wanted, slice, missing).await?;
        let mut state = window.state.lock();
        let left = if state.starts_at == starts_at {
            state.left
        } else {
            0
        };
        *state = State {
            starts_at,
            generation: grant.generation,
            left: left + drawn,
            refused: (drawn == 0).then_some(missing),
        };
        Ok(())
    }

    /// Until when `grant` has no room for a call that costs `cents` at most; `None` while there is room.
    pub fn used_up(&self, grant: &ToolGrant, cents: i64, now: Timestamp) -> Option<Timestamp> {
        let limits = grant.limits().filter_map(|limit| {
            let state = *self.window(grant, limit).state.lock();
            let has_room =
                state.starts_at == start_of(limit.per, now) && state.left >= amount(limit, cents);
            (!has_room).then(|| end_of(limit.per, now))
        });
        limits.max()
    }

    /// Spends one call that costs `cents` at most of every grant's limits, or nothing when one has no room left.
    pub fn spend(&self, passed: &Passed<'_>, cents: i64, now: Timestamp) -> bool {
        let mut spent: Vec<(Arc<Window>, i64)> = Vec::new();
        for grant in &passed.0 {
            for limit in grant.limits() {
                let window = self.window(grant, limit);
                let amount = amount(limit, cents);
                if !window.take(start_of(limit.per, now), amount) {
                    for (window, amount) in spent {
                        window.give_back(amount);
                    }
                    return false;
                }
                spent.push((window, amount));
            }
        }
        true
    }

    /// Takes back what a call was thought to cost and did not.
    pub fn refund(&self, passed: &Passed<'_>, cents: i64, now: Timestamp) {
        for grant in &passed.0 {
            for limit in grant.limits().filter(|limit| limit.unit == Unit::Cents) {
                let window = self.window(grant, limit);
                if window.state.lock().starts_at == start_of(limit.per, now) {
                    window.give_back(cents);
                }
            }
        }
    }

    fn window(&self, grant: &ToolGrant, limit: Limit) -> Arc<Window> {
        let key = (grant.uid.clone(), limit.per, limit.unit);
        if let Some(window) = self.windows.get(&key) {
            return window.clone();
        }
        if self.windows.len() >= WINDOWS {
            let newest = self.windows.iter().map(|kept| kept.state.lock().starts_at);
            let newest = newest.max().unwrap_or_default();
            self.windows
                .retain(|_, kept| kept.state.lock().starts_at + DAY >= newest);
        }
        self.windows.entry(key).or_default().clone()
    }
}

impl Window {
    /// Whether nothing has to be drawn for a call of `amount` in the window that starts at `starts_at`.
    fn is_settled(&self, grant: &ToolGrant, amount: i64, starts_at: i64) -> bool {
        let state = *self.state.lock();
        let missing = amount - state.left;
        let is_refused = state.refused.is_some_and(|refused| refused <= missing);
        state.starts_at == starts_at
            && (missing <= 0 || is_refused && state.generation == grant.generation)
    }

    /// What was drawn in the window that starts at `starts_at` and is not spent.
    fn left(&self, starts_at: i64) -> i64 {
        let state = *self.state.lock();
        if state.starts_at == starts_at {
            state.left
        } else {
            0
        }
    }

    fn take(&self, starts_at: i64, amount: i64) -> bool {
        let mut state = self.state.lock();
        let has_room = state.starts_at == starts_at && state.left >= amount;
        if has_room {
            state.left -= amount;
        }
        has_room
    }

    fn give_back(&self, amount: i64) {
        self.state.lock().left += amount;
    }
}

/// What one call takes of a limit.
fn amount(limit: Limit, cents: i64) -> i64 {
    match limit.unit {
        Unit::Calls => 1,
        Unit::Cents => cents,
    }
}

/// What the store calls a limit.
fn word(limit: Limit) -> &'static str {
    match (limit.per, limit.unit) {
        (Per::Minute, _) => "minute",
        (Per::Day, Unit::Calls) => "day",
        (Per::Day, Unit::Cents) => "cents",
    }
}

const MINUTE: i64 = 60_000;
const DAY: i64 = 24 * 60 * MINUTE;

fn length_of(per: Per) -> i64 {
    match per {
        Per::Minute => MINUTE,
        Per::Day => DAY,
    }
}

/// Windows are those of the clock, in UTC.
fn start_of(per: Per, now: Timestamp) -> i64 {
    let now = now.as_millisecond();
    now - now.rem_euclid(length_of(per))
}

fn end_of(per: Per, now: Timestamp) -> Timestamp {
    let end = start_of(per, now) + length_of(per);
    Timestamp::from_millisecond(end).unwrap_or(Timestamp::MAX)
}
