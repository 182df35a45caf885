//! What a client hears of besides its tools: each family that has it for the agent is listened to.

use std::sync::Arc;

use futures::StreamExt;
use tokio_util::task::AbortOnDropHandle;

use crate::catalog::Catalog;
use crate::family::{Change, Family, Wanted};

/// Puts a change on a client's stream.
pub(super) type Tell = Box<dyn Fn(&Change) + Send + Sync>;

/// The families that one client listens to. Dropping it ends that.
#[derive(Default)]
pub(super) struct Listening(Vec<Heard>);

struct Heard {
    family: Arc<dyn Family>,
    /// Of this family.
    wanted: Wanted,
    _task: AbortOnDropHandle<()>,
}

impl Listening {
    /// Listens to exactly the families that have for the agent what its client wants.
    pub(super) fn adjust(&mut self, catalog: &Catalog, wanted: &Wanted, tell: impl Fn() -> Tell) {
        let parts = catalog.relays.iter().filter_map(|(family, has)| {
            let part = wanted.of(*has);
            (part != Wanted::default()).then_some((family, part))
        });
        let before = std::mem::take(&mut self.0);
        let mut before: Vec<Option<Heard>> = before.into_iter().map(Some).collect();
        self.0 = parts
            .map(|(family, wanted)| {
                let is_it = |heard: &&mut Option<Heard>| {
                    heard.as_ref().is_some_and(|heard| {
                        Arc::ptr_eq(&heard.family, family) && heard.wanted == wanted
                    })
                };
                let kept = before.iter_mut().find(is_it).and_then(Option::take);
                kept.unwrap_or_else(|| listen(catalog, family, wanted, tell()))
            })
            .collect();
    }
}

fn listen(catalog: &Catalog, family: &Arc<dyn Family>, wanted: Wanted, tell: Tell) -> Heard {
    let mut changes = family.changes(catalog.agent(), &wanted);
    let task = tokio::spawn(async move {
        while let Some(change) = changes.next().await {
            tell(&change);
        }
    });
    Heard {
        family: family.clone(),
        wanted,
        _task: AbortOnDropHandle::new(task),
    }
}
