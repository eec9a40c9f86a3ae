//! Short sentences about permits.

use heirlock::local::graph::{Acquired, Kind, LockKey, LockSpec, Mode, Released, Request, WaitKey, WorkerKey};

use super::graph_sentences::World;

impl World {
    pub(crate) fn semaphore(&mut self, permits: u64, tracked: bool) -> LockKey {
        self.graph.add_lock(LockSpec { permits, tracked, ..LockSpec::new(Kind::Semaphore) })
    }

    pub(crate) fn want(&mut self, worker: WorkerKey, lock: LockKey, permits: u32) -> Acquired {
        self.effects.clear();
        self.graph.acquire(&Request { depth: permits, ..Request::new(worker, lock, Mode::Shared) }, &mut self.effects)
    }

    pub(crate) fn queue(&mut self, worker: WorkerKey, lock: LockKey, permits: u32) -> WaitKey {
        match self.want(worker, lock, permits) {
            Acquired::Queued(wait) => wait,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn add(&mut self, lock: LockKey, permits: u64) -> Vec<WaitKey> {
        self.effects.clear();
        assert!(self.graph.add_permits(lock, permits, &mut self.effects));
        self.effects.granted.clone()
    }

    pub(crate) fn give(&mut self, worker: WorkerKey, lock: LockKey, permits: u32) -> (Released, Vec<WaitKey>) {
        self.effects.clear();
        let released = self.graph.release_levels(worker, lock, permits, &mut self.effects);
        (released, self.effects.granted.clone())
    }

    pub(crate) fn permits_of(&self, worker: WorkerKey, lock: LockKey) -> u32 {
        self.graph.held(worker).iter().find(|holding| holding.lock == lock).map_or(0, |holding| holding.depth)
    }
}
