//! What locks need that come and go by the million, one for each key: the same rules, and words for which of them it is.

use std::sync::Arc;

use super::{Raw, Site};
use crate::local::core::Core;
use crate::local::identity::Owner;

impl Raw {
    /// A free lock of the same name, domain and rules. If it is `placed`, it can be told which of all these it is.
    pub(in crate::local) fn sibling(&self, placed: bool) -> Raw {
        let mut raw = Raw::new(self.setup.kind, self.name);
        raw.setup = self.setup;
        raw.place = placed.then(Box::default);
        if let Some(domain) = &self.domain {
            raw.set_domain(domain);
        }
        raw
    }

    /// Whether errors and snapshots could say which of its siblings it is, and cannot yet.
    pub(in crate::local) fn lacks_place(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.get().is_none())
    }

    /// Says which of its siblings it is. The first to say so is right; the graph learns it when it first hears of the lock.
    pub(in crate::local) fn set_place(&self, place: Arc<str>) {
        if let Some(cell) = &self.place {
            let _: Result<(), Arc<str>> = cell.set(place);
        }
    }

    /// Nobody will use the lock any more, though a future or a guard of it was leaked: the graph forgets it.
    pub(in crate::local) fn abandon(&self) {
        self.purge();
    }

    /// Tells the check of orders that the owner will want the lock, with what it holds now.
    pub(in crate::local) fn declare(&self, core: &mut Core, owner: &Owner, site: Site) {
        let key = self.key(core);
        let worker = core.enlist(owner);
        core.nests(worker, key, Some(site));
        core.leaves(worker);
    }

    /// What tells it from all other locks, as long as it stays where it is.
    pub(in crate::local) fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}
