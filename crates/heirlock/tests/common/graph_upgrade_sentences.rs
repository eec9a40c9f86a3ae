//! Short sentences about upgradable readers.

use heirlock::local::graph::{Acquired, Kind, LockKey, Mode, Released, Request, WaitKey, WorkerKey};

use super::graph_sentences::World;

pub(crate) const X: Mode = Mode::Exclusive;
pub(crate) const U: Mode = Mode::Upgradable;
pub(crate) const S: Mode = Mode::Shared;

impl World {
    pub(crate) fn rwlock(&mut self) -> LockKey {
        self.lock(Kind::RwLock)
    }

    pub(crate) fn has(&mut self, worker: WorkerKey, lock: LockKey, mode: Mode) {
        assert!(matches!(self.ask(worker, lock, mode), Acquired::Held(_)), "{worker:?} {mode:?}");
    }

    pub(crate) fn upgrade(&mut self, worker: WorkerKey, lock: LockKey) -> Option<Acquired> {
        self.effects.clear();
        self.graph.upgrade(&Request::new(worker, lock, X), &mut self.effects)
    }

    pub(crate) fn waits_to_upgrade(&mut self, worker: WorkerKey, lock: LockKey) -> WaitKey {
        match self.upgrade(worker, lock) {
            Some(Acquired::Queued(wait)) => wait,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn downgrade(&mut self, worker: WorkerKey, lock: LockKey, to: Mode) -> bool {
        self.effects.clear();
        self.graph.downgrade(worker, lock, to, &mut self.effects)
    }

    pub(crate) fn release_mode(&mut self, worker: WorkerKey, lock: LockKey, mode: Mode) -> Released {
        self.effects.clear();
        self.graph.release_mode(worker, lock, mode, &mut self.effects)
    }

    pub(crate) fn held(&self, worker: WorkerKey, lock: LockKey) -> Option<(Mode, u32)> {
        self.graph.held(worker).iter().find(|holding| holding.lock == lock).map(|holding| (holding.mode, holding.depth))
    }
}
