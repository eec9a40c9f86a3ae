//! A graph with its effects, for short sentences.

use heirlock::local::graph::{
    Acquired, DeadlockPolicy, Effects, Graph, Kind, LockKey, LockSpec, Mode, Released, Request, WaitKey, WorkerKey, WorkerSpec,
};

/// A graph with its effects, for short sentences.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) graph: Graph,
    pub(crate) effects: Effects,
}

impl World {
    pub(crate) fn new(policy: DeadlockPolicy) -> World {
        World { graph: Graph::new(policy), effects: Effects::default() }
    }

    pub(crate) fn worker(&mut self, base: i32) -> WorkerKey {
        self.graph.add_worker(&WorkerSpec { base, deadline: None, parent: None, sequential: true })
    }

    pub(crate) fn bare(&mut self, base: i32) -> WorkerKey {
        self.graph.add_worker(&WorkerSpec { base, deadline: None, parent: None, sequential: false })
    }

    pub(crate) fn lock(&mut self, kind: Kind) -> LockKey {
        self.graph.add_lock(LockSpec::new(kind))
    }

    pub(crate) fn ask(&mut self, worker: WorkerKey, lock: LockKey, mode: Mode) -> Acquired {
        self.effects.clear();
        self.graph.acquire(&Request::new(worker, lock, mode), &mut self.effects)
    }

    pub(crate) fn hold(&mut self, worker: WorkerKey, lock: LockKey) {
        assert!(matches!(self.ask(worker, lock, Mode::Exclusive), Acquired::Held(_)));
    }

    pub(crate) fn wait(&mut self, worker: WorkerKey, lock: LockKey) -> WaitKey {
        self.wait_as(worker, lock, Mode::Exclusive)
    }

    pub(crate) fn wait_as(&mut self, worker: WorkerKey, lock: LockKey, mode: Mode) -> WaitKey {
        match self.ask(worker, lock, mode) {
            Acquired::Queued(wait) => wait,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn release(&mut self, worker: WorkerKey, lock: LockKey) -> Released {
        self.effects.clear();
        self.graph.release(worker, lock, &mut self.effects)
    }

    pub(crate) fn eff(&self, worker: WorkerKey) -> i32 {
        self.graph.effective_priority(worker).unwrap()
    }

    pub(crate) fn owners(&self, lock: LockKey) -> Vec<WorkerKey> {
        self.graph.holders(lock).iter().map(|holding| holding.worker).collect()
    }
}
