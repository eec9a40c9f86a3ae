//! A graph whose workers, locks and waits have names, driven as the texts and the histories do: a grant becomes a hold at once, though its
//! worker need not notice.

use std::collections::{BTreeMap, BTreeSet};

use super::case_text::{Call, Names, Outcome, Snapshot, Stage};
use heirlock::local::graph::{
    Acquired, Cycle, Effects, Graph, Left, LockKey, LockSpec, Mode, On, Released, Request, WaitKey, WorkerKey, WorkerSpec,
};

#[derive(Default)]
pub(crate) struct World {
    pub(crate) graph: Graph,
    pub(crate) workers: BTreeMap<String, WorkerKey>,
    pub(crate) locks: BTreeMap<String, LockKey>,
    pub(crate) waits: BTreeMap<String, WaitKey>,
    parents: BTreeMap<String, String>,
    /// The worker and the lock of every wait, also of one that was taken.
    who: BTreeMap<String, (String, String)>,
    names: BTreeMap<WorkerKey, String>,
    lock_names: BTreeMap<LockKey, String>,
    effects: Effects,
}

impl World {
    pub(crate) fn worker(&mut self, name: &str, base: i32, deadline: Option<u64>, parent: Option<&str>, sequential: bool) -> Outcome {
        if let Some(parent) = parent {
            self.parents.insert(name.to_owned(), parent.to_owned());
        }
        let parent = parent.map(|parent| self.workers[parent]);
        let key = self.graph.add_worker(&WorkerSpec { base, deadline, parent, sequential });
        self.workers.insert(name.to_owned(), key);
        self.names.insert(key, name.to_owned());
        Outcome { result: "ok", ..Outcome::default() }
    }

    pub(crate) fn lock(&mut self, name: &str, spec: LockSpec) -> Outcome {
        let key = self.graph.add_lock(spec);
        self.locks.insert(name.to_owned(), key);
        self.lock_names.insert(key, name.to_owned());
        Outcome { result: "ok", ..Outcome::default() }
    }

    pub(crate) fn acquire(&mut self, worker: &str, lock: &str, wait: &str, call: Call) -> Outcome {
        self.notice(worker, lock);
        let mode = if call.shared { Mode::Shared } else { Mode::Exclusive };
        let request =
            Request { priority: call.priority, deadline: call.deadline, ..Request::new(self.workers[worker], self.locks[lock], mode) };
        self.who.insert(wait.to_owned(), (worker.to_owned(), lock.to_owned()));
        match self.graph.acquire(&request, &mut self.effects) {
            Acquired::Held(_) => self.outcome("held"),
            Acquired::Queued(key) => {
                self.waits.insert(wait.to_owned(), key);
                self.outcome("queued")
            }
            Acquired::Deadlock(cycle) => {
                let cycle = Some(self.cycle(&cycle));
                Outcome { cycle, ..self.outcome("deadlock") }
            }
            Acquired::Overflow => panic!("too deep"),
        }
    }

    pub(crate) fn try_acquire(&mut self, worker: &str, lock: &str, shared: bool) -> Outcome {
        self.notice(worker, lock);
        let mode = if shared { Mode::Shared } else { Mode::Exclusive };
        let held = self.graph.try_acquire(&Request::new(self.workers[worker], self.locks[lock], mode), &mut self.effects);
        self.outcome(if held.is_some() { "held" } else { "no" })
    }

    pub(crate) fn cancel(&mut self, wait: &str) -> Outcome {
        let left = self.waits.get(wait).map_or(Left::Gone, |key| self.graph.cancel(*key, &mut self.effects));
        match left {
            Left::Queued => self.outcome("cancelled"),
            Left::Granted => self.outcome("forwarded"),
            Left::Gone => {
                // It was noticed meanwhile, which the texts do not know: as a release.
                let (worker, lock) = self.who[wait].clone();
                let released = self.graph.release(self.workers[&worker], self.locks[&lock], &mut self.effects);
                assert_ne!(released, Released::NotHeld, "{wait}");
                self.outcome("forwarded")
            }
        }
    }

    pub(crate) fn expire(&mut self, wait: &str) -> Outcome {
        assert_eq!(self.graph.expire(self.waits[wait], &mut self.effects), Left::Queued);
        self.outcome("timeout")
    }

    pub(crate) fn release(&mut self, worker: &str, lock: &str) -> Outcome {
        let released = self.graph.release(self.workers[worker], self.locks[lock], &mut self.effects);
        match released {
            Released::Kept(_) => self.outcome("kept"),
            Released::Freed => self.outcome("released"),
            Released::NotHeld => panic!("{worker} does not hold {lock}"),
        }
    }

    pub(crate) fn base(&mut self, worker: &str, base: i32) -> Outcome {
        assert!(self.graph.set_base(self.workers[worker], base, &mut self.effects));
        self.outcome("ok")
    }

    /// The worker takes note of what it was granted before it asks for the same lock again.
    fn notice(&mut self, worker: &str, lock: &str) {
        for (wait, (by, of)) in &self.who {
            if by == worker
                && of == lock
                && let Some(key) = self.waits.get(wait)
            {
                self.graph.take(*key, &mut self.effects);
            }
        }
        assert!(self.effects.is_empty());
    }

    fn outcome(&mut self, result: &'static str) -> Outcome {
        let effects = std::mem::take(&mut self.effects);
        assert!(effects.displaced.is_empty() && effects.expired.is_empty() && effects.removed.is_empty());
        let mut granted: Vec<String> = effects.granted.iter().map(|wait| self.wait_name(*wait)).collect();
        granted.sort();
        let closed = effects.ended.iter().map(|(wait, cycle)| (self.wait_name(*wait), self.cycle(cycle))).collect();
        let mut changed: Vec<String> = effects.changed.iter().map(|worker| self.names[worker].clone()).collect();
        changed.sort();
        Outcome { result, granted, cycle: None, closed, changed }
    }

    fn wait_name(&self, key: WaitKey) -> String {
        self.waits.iter().find(|(_, wait)| **wait == key).map_or_else(|| panic!("unknown {key:?}"), |(name, _)| name.clone())
    }

    fn cycle(&self, cycle: &Cycle) -> Names {
        let mut names = Names::new();
        for step in cycle {
            names.push(self.names[&step.worker].clone());
            if let On::Lock { lock, .. } = step.on {
                names.push(self.lock_names[&lock].clone());
            }
        }
        names
    }

    /// Whether a cycle stands: the plainest search over what the graph shows, with or without the ways from parents to their forks.
    pub(crate) fn stands(&self, forks: bool) -> bool {
        let mut ways: BTreeSet<(WorkerKey, WorkerKey)> = BTreeSet::new();
        for key in self.locks.values() {
            for wait in self.graph.queue(*key) {
                let waiter = self.graph.wait(wait).unwrap().worker;
                ways.extend(self.graph.holders(*key).iter().map(|holding| (waiter, holding.worker)));
            }
        }
        if forks {
            ways.extend(self.parents.iter().map(|(fork, parent)| (self.workers[parent], self.workers[fork])));
        }
        loop {
            // Who leads nowhere is on no cycle.
            let from: BTreeSet<WorkerKey> = ways.iter().map(|way| way.0).collect();
            let before = ways.len();
            ways.retain(|way| from.contains(&way.1));
            if ways.len() == before {
                return before > 0;
            }
        }
    }

    pub(crate) fn snapshot(&mut self) -> Snapshot {
        let mut snapshot = Snapshot { suspected: !self.graph.suspected(1).is_empty(), ..Snapshot::default() };
        let names: BTreeMap<WaitKey, &String> = self.waits.iter().map(|(name, key)| (*key, name)).collect();
        for (name, key) in &self.workers {
            snapshot.eff.insert(name.clone(), self.graph.effective_priority(*key).unwrap());
            if let Some(deadline) = self.graph.effective_deadline(*key) {
                snapshot.eff_deadline.insert(name.clone(), deadline);
            }
        }
        for (name, key) in &self.locks {
            let holders = self.graph.holders(*key).into_iter().map(|holding| {
                let mode = if holding.mode == Mode::Shared { "s" } else { "x" };
                (self.names[&holding.worker].clone(), (mode.to_owned(), holding.depth))
            });
            let holders: BTreeMap<_, _> = holders.collect();
            if !holders.is_empty() {
                snapshot.holders.insert(name.clone(), holders);
            }
            let queue: Vec<String> = self.graph.queue(*key).iter().map(|wait| names[wait].clone()).collect();
            if !queue.is_empty() {
                snapshot.queues.insert(name.clone(), queue);
            }
        }
        snapshot
    }
}

impl Stage for World {
    const SHOWS_DEADLINES: bool = true;

    fn begin(&mut self, _expiries: &[&str]) {
        *self = World::default();
    }

    fn worker(&mut self, name: &str, base: Option<i32>, deadline: Option<u64>, parent: Option<&str>) -> Outcome {
        World::worker(self, name, base.unwrap_or(i32::MIN), deadline, parent, true)
    }

    fn lock(&mut self, name: &str, spec: LockSpec) -> Outcome {
        World::lock(self, name, spec)
    }

    fn acquire(&mut self, worker: &str, lock: &str, wait: &str, call: Call) -> Outcome {
        World::acquire(self, worker, lock, wait, call)
    }

    fn try_acquire(&mut self, worker: &str, lock: &str, shared: bool) -> Outcome {
        World::try_acquire(self, worker, lock, shared)
    }

    fn cancel(&mut self, wait: &str) -> Outcome {
        World::cancel(self, wait)
    }

    fn expire(&mut self, wait: &str) -> Outcome {
        World::expire(self, wait)
    }

    fn release(&mut self, worker: &str, lock: &str) -> Outcome {
        World::release(self, worker, lock)
    }

    fn base(&mut self, worker: &str, base: i32) -> Outcome {
        World::base(self, worker, base)
    }

    fn look(&mut self) -> Snapshot {
        World::snapshot(self)
    }
}
