//! What can be read.

use super::Graph;
use super::effects::Cycle;
use super::lock::{LockSpec, Mode};
use super::records::{LockKey, OF_LOCK, OF_WORKER, Origin, State, WaitKey, WorkerKey};
use super::search::Ways;
use super::slab::NIL;
use super::urgency::{NEVER, Urgency};

/// One hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Who holds.
    pub worker: WorkerKey,
    /// What.
    pub lock: LockKey,
    /// How.
    pub mode: Mode,
    /// How many levels deep; how many permits.
    pub depth: u32,
    /// Where it began, and since when at the latest.
    pub origin: Origin,
}

/// One wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitView {
    /// Who waits.
    pub worker: WorkerKey,
    /// For what.
    pub lock: LockKey,
    /// How it wants it.
    pub mode: Mode,
    /// Whether it is that of an upgradable holder: its own hold is not in its way.
    pub upgrades: bool,
    /// How many levels, or permits, at once.
    pub depth: u32,
    /// Queued or granted.
    pub state: State,
    /// Whether its worker has been served by another future for the lock since this one was last polled, so that it may be polled no more: its grant
    /// need not lie untaken for long before the next may have it.
    pub in_doubt: bool,
    /// How urgent it is, or was when it was granted.
    pub urgency: Urgency,
    /// Smaller came earlier.
    pub arrival: u64,
    /// The priority of its call, if that has one of its own.
    pub priority: Option<i32>,
    /// When it is over; [`NEVER`] if it may last.
    pub expires: u64,
    /// Where it waits, and since when.
    pub origin: Origin,
}

/// How much a graph contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Workers.
    pub workers: usize,
    /// Locks.
    pub locks: usize,
    /// Waits, queued or untaken.
    pub waits: usize,
    /// Holds.
    pub holds: usize,
}

impl Graph {
    /// The base priority.
    pub fn base(&self, worker: WorkerKey) -> Option<i32> {
        self.workers.slot(worker.0).map(|slot| self.workers[slot].base)
    }

    /// The effective priority.
    pub fn effective_priority(&self, worker: WorkerKey) -> Option<i32> {
        self.workers.slot(worker.0).map(|slot| self.workers[slot].effective.priority)
    }

    /// The effective deadline: for ordering only.
    pub fn effective_deadline(&self, worker: WorkerKey) -> Option<u64> {
        self.workers.slot(worker.0).map(|slot| self.workers[slot].effective.deadline).filter(|deadline| *deadline != NEVER)
    }

    /// What a lock is.
    pub fn spec(&self, lock: LockKey) -> Option<LockSpec> {
        self.locks.slot(lock.0).map(|slot| self.locks[slot].spec)
    }

    /// A holder of a lock: the one, if it is exclusive.
    pub fn holder(&self, lock: LockKey) -> Option<WorkerKey> {
        let hold = self.locks[self.locks.slot(lock.0)?].holds;
        (hold != NIL).then(|| WorkerKey(self.workers.id(self.holds[hold].worker)))
    }

    /// Whether a worker neither holds nor waits nor has forks: nothing would change if it went.
    pub fn is_idle(&self, worker: WorkerKey) -> bool {
        self.workers.slot(worker.0).is_some_and(|slot| {
            let worker = &self.workers[slot];
            [worker.holds, worker.waits, worker.untaken, worker.forks] == [NIL; 4]
        })
    }

    /// How many permits are free, of a semaphore.
    pub fn free(&self, lock: LockKey) -> Option<u64> {
        let lock = &self.locks[self.locks.slot(lock.0)?];
        lock.is_semaphore().then_some(lock.free)
    }

    /// Whether the worker was granted the lock, or notified by the condition, and has not taken note.
    pub fn has_untaken(&self, worker: WorkerKey, lock: LockKey) -> bool {
        let both = self.workers.slot(worker.0).zip(self.locks.slot(lock.0));
        both.is_some_and(|(worker, lock)| self.find_untaken(worker, lock).is_some())
    }

    /// A grant of the lock that was not taken, and whether its worker waits for nothing, so that taking it changes nothing else.
    #[inline]
    pub fn untaken(&self, lock: LockKey) -> Option<(WaitKey, bool)> {
        let wait = self.locks[self.locks.slot(lock.0)?].untaken;
        (wait != NIL).then(|| (WaitKey(self.waits.id(wait)), self.workers[self.waits[wait].worker].pending == 0))
    }

    /// The holders of a lock, in no order.
    pub fn holders(&self, lock: LockKey) -> Vec<Holding> {
        self.holding(lock).collect()
    }

    /// The same, one after the other.
    pub fn holding(&self, lock: LockKey) -> impl Iterator<Item = Holding> + '_ {
        let head = self.locks.slot(lock.0).map_or(NIL, |slot| self.locks[slot].holds);
        self.holdings(head, OF_LOCK)
    }

    /// What a worker holds, in no order.
    pub fn held(&self, worker: WorkerKey) -> Vec<Holding> {
        let head = self.workers.slot(worker.0).map_or(NIL, |slot| self.workers[slot].holds);
        self.holdings(head, OF_WORKER).collect()
    }

    fn holdings(&self, head: u32, list: usize) -> impl Iterator<Item = Holding> + '_ {
        let holds = std::iter::successors((head != NIL).then_some(head), move |hold| {
            let next = self.holds[*hold].link[list].next;
            (next != NIL).then_some(next)
        });
        holds.map(|hold| {
            let entry = &self.holds[hold];
            Holding {
                worker: WorkerKey(self.workers.id(entry.worker)),
                lock: LockKey(self.locks.id(entry.lock)),
                mode: entry.mode,
                depth: entry.depth,
                origin: entry.origin,
            }
        })
    }

    /// The waits on a lock, in the order in which they would be served.
    pub fn queue(&self, lock: LockKey) -> Vec<WaitKey> {
        let Some(lock) = self.locks.slot(lock.0).map(|slot| &self.locks[slot]) else { return Vec::new() };
        let mut slots: Vec<u32> = lock.queue.slots(&self.waits).collect();
        let rank = |slot: u32| lock.spec.order.rank(self.waits[slot].urgency, self.waits[slot].arrival);
        slots.sort_unstable_by_key(|&slot| (!self.waits[slot].upgrades, lock.queue.overdue() != Some(slot), rank(slot)));
        slots.into_iter().map(|slot| WaitKey(self.waits.id(slot))).collect()
    }

    /// The queued waits of a worker, in no order.
    pub fn pending(&self, worker: WorkerKey) -> Vec<WaitKey> {
        let mut wait = self.workers.slot(worker.0).map_or(NIL, |slot| self.workers[slot].waits);
        let mut pending = Vec::new();
        while wait != NIL {
            pending.push(WaitKey(self.waits.id(wait)));
            wait = self.waits[wait].link[0].next;
        }
        pending
    }

    /// A wait, unless it has ended or its grant was taken.
    pub fn wait(&self, wait: WaitKey) -> Option<WaitView> {
        let wait = &self.waits[self.waits.slot(wait.0)?];
        Some(WaitView {
            worker: WorkerKey(self.workers.id(wait.worker)),
            lock: LockKey(self.locks.id(wait.lock)),
            mode: wait.mode,
            upgrades: wait.upgrades,
            depth: wait.depth,
            state: wait.state,
            in_doubt: wait.in_doubt,
            urgency: wait.urgency,
            arrival: wait.arrival,
            priority: wait.priority,
            expires: wait.expires,
            origin: wait.origin,
        })
    }

    /// How many wait for a lock.
    pub fn waiting(&self, lock: LockKey) -> usize {
        self.locks.slot(lock.0).map_or(0, |slot| self.locks[slot].queue.len())
    }

    /// Cycles that stand, at most so many: none of them certain, or it would not stand. Looks at the whole graph.
    pub fn suspected(&mut self, most: usize) -> Vec<Cycle> {
        let cycles = self.standing(Ways::Any, most);
        cycles.iter().map(|hops| self.tell(hops)).collect()
    }

    /// For tests: whether what the graph believes of itself between events is so.
    pub fn is_sound(&mut self) -> bool {
        let idle = self.due.is_empty() && self.fell.is_empty() && self.stirred.is_empty() && self.grantees.is_empty();
        let idle = idle && self.locks.slots().all(|lock| self.is_plain(lock));
        idle && self.doubtful.is_empty() && self.touched.is_empty() && (self.cyclic || self.standing(Ways::Boosts, 1).is_empty())
    }

    /// Whether nothing is left to do for the lock, and its mode is that of its holders.
    fn is_plain(&self, lock: u32) -> bool {
        let entry = &self.locks[lock];
        let (mut hold, mut mode) = (entry.holds, Mode::Shared);
        while hold != NIL {
            mode = mode.and(self.holds[hold].mode);
            hold = self.holds[hold].link[OF_LOCK].next;
        }
        (entry.holds == NIL || entry.mode == mode) && !entry.loosened && !(entry.is_condition() && entry.free > 0)
    }

    /// How much there is.
    pub fn counts(&self) -> Counts {
        Counts { workers: self.workers.len(), locks: self.locks.len(), waits: self.waits.len(), holds: self.holds.len() }
    }
}
