//! The limits of grants, over all replicas: each draws slices from the store and spends them on its own.
//!
//! A slice that a replica drew and did not spend is lost with the window, so fewer calls may pass than a limit allows,
//! never more.

mod store;

use std::sync::Arc;

use dashmap::DashMap;
use jiff::Timestamp;
use parking_lot::Mutex;

use self::store::Limit;
use crate::directory::ToolGrant;
use crate::gate::{Passed, Rights};
use crate::store::{Store, StoreError};

/// How many slices a limit has, so that few calls wait for the store and little is lost.
const SLICES: i64 = 32;
/// Calls of the largest slice.
const LARGEST: i64 = 256;
/// Windows that are remembered before those that have passed are forgotten.
const WINDOWS: usize = 4096;

pub struct Budgets {
    store: Store,
    /// By the grant's UID and `minute` or `day`.
    windows: DashMap<(String, &'static str), Arc<Window>>,
}

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
    used_up: bool,
}

impl Budgets {
    pub fn new(store: Store) -> Self {
        Self {
            store,
            windows: DashMap::new(),
        }
    }

    /// Makes sure that a call under any of the rights' grants can be answered for without the store.
    pub async fn prepare(&self, rights: &Rights, now: Timestamp) -> Result<(), StoreError> {
        for grant in rights.grants.iter().filter(|grant| grant.is_live(now)) {
            for (most, per) in grant.limits() {
                self.fill(grant, per, most, now).await?;
            }
        }
        Ok(())
    }

    async fn fill(
        &self,
        grant: &ToolGrant,
        per: &'static str,
        most: i64,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let window = self.window(grant, per);
        let starts_at = start_of(per, now);
        if window.is_settled(grant, starts_at) {
            return Ok(());
        }
        let _one = window.drawing.lock().await;
        if window.is_settled(grant, starts_at) {
            return Ok(());
        }
        let scope = self.store.scope(&grant.workspace).await?;
        let limit = Limit {
            grant_uid: grant.uid.clone(),
            per,
            starts_at,
            most,
        };
        let slice = (most / SLICES).clamp(1, LARGEST);
        let drawn = store::draw(&self.store, scope, limit, slice).await?;
        *window.state.lock() = State {
            starts_at,
            generation: grant.generation,
            left: drawn,
            used_up: drawn == 0,
        };
        Ok(())
    }

    /// Until when `grant` is used up; `None` while there is room.
    pub fn used_up(&self, grant: &ToolGrant, now: Timestamp) -> Option<Timestamp> {
        let limits = grant.limits().filter_map(|(_, per)| {
            let state = *self.window(grant, per).state.lock();
            let has_room = state.starts_at == start_of(per, now) && state.left > 0;
            (!has_room).then(|| end_of(per, now))
        });
        limits.max()
    }

    /// Spends one call of every grant's limits, or nothing when one has no room left.
    pub fn spend(&self, passed: &Passed<'_>, now: Timestamp) -> bool {
        let mut spent: Vec<Arc<Window>> = Vec::new();
        for grant in &passed.0 {
            for (_, per) in grant.limits() {
                let window = self.window(grant, per);
                if !window.take(start_of(per, now)) {
                    spent.iter().for_each(|window| window.give_back());
                    return false;
                }
                spent.push(window);
            }
        }
        true
    }

    fn window(&self, grant: &ToolGrant, per: &'static str) -> Arc<Window> {
        let key = (grant.uid.clone(), per);
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
    /// Whether nothing has to be drawn for a call in the window that starts at `starts_at`.
    fn is_settled(&self, grant: &ToolGrant, starts_at: i64) -> bool {
        let state = *self.state.lock();
        state.starts_at == starts_at
            && (state.left > 0 || state.used_up && state.generation == grant.generation)
    }

    fn take(&self, starts_at: i64) -> bool {
        let mut state = self.state.lock();
        let has_room = state.starts_at == starts_at && state.left > 0;
        if has_room {
            state.left -= 1;
        }
        has_room
    }

    fn give_back(&self) {
        self.state.lock().left += 1;
    }
}

const MINUTE: i64 = 60_000;
const DAY: i64 = 24 * 60 * MINUTE;

fn length_of(per: &str) -> i64 {
    if per == "minute" { MINUTE } else { DAY }
}

/// Windows are those of the clock, in UTC.
fn start_of(per: &str, now: Timestamp) -> i64 {
    let now = now.as_millisecond();
    now - now.rem_euclid(length_of(per))
}

fn end_of(per: &str, now: Timestamp) -> Timestamp {
    let end = start_of(per, now) + length_of(per);
    Timestamp::from_millisecond(end).unwrap_or(Timestamp::MAX)
}
