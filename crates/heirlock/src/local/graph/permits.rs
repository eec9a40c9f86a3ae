//! The permits of semaphores.
//!
//! The lock's own word counts them while nobody waits; the graph does so only from when it knows the lock. Hence events that add some, or take
//! some away, without anybody who acquires or releases.

use super::Graph;
use super::effects::{Effects, Released};
use super::records::{LockKey, WorkerKey};
use super::slab::NIL;

impl Graph {
    /// So many more permits are free; who waits may be granted them. Whoever holds permits goes on doing so. False, and nothing has been done, if
    /// the lock is no semaphore, or would have more free ones than can be counted.
    pub fn add_permits(&mut self, lock: LockKey, many: u64, effects: &mut Effects) -> bool {
        let Some(slot) = self.semaphore(lock).filter(|slot| self.locks[*slot].free.checked_add(many).is_some()) else { return false };
        self.free_up(slot, many);
        self.finish(effects);
        true
    }

    /// Takes free permits away, at most so many; says how many there were. Nobody has them: they are counted elsewhere now, or nowhere.
    pub fn take_permits(&mut self, lock: LockKey, many: u64) -> u64 {
        let Some(slot) = self.semaphore(lock) else { return 0 };
        let taken = many.min(self.locks[slot].free);
        self.locks[slot].free -= taken;
        taken
    }

    /// So many of a holder's permits are no more: it holds less, and nothing becomes free. Only of a tracked semaphore; the permits of another are
    /// forgotten by not being added again.
    pub fn forget(&mut self, worker: WorkerKey, lock: LockKey, permits: u32, effects: &mut Effects) -> Released {
        let hold = self.workers.slot(worker.0).zip(self.semaphore(lock)).and_then(|(worker, lock)| self.find_hold(worker, lock));
        hold.map_or(Released::NotHeld, |hold| self.give_up(hold, permits, effects))
    }

    /// Whether the worker's levels could be counted if it got so many more, beside those that it waits for already.
    pub(super) fn countable(&self, worker: u32, lock: u32, more: u32) -> bool {
        if !self.locks[lock].is_held() {
            return true;
        }
        let held = self.find_hold(worker, lock).map_or(0, |hold| self.holds[hold].depth);
        let (mut wait, mut permits) = (self.workers[worker].waits, u64::from(held) + u64::from(more));
        // It need not be known for which locks it waits, if all of that is not too much.
        if u32::try_from(permits + self.workers[worker].wanted).is_ok() {
            return true;
        }
        while wait != NIL {
            if self.waits[wait].lock == lock {
                permits += u64::from(self.waits[wait].depth);
            }
            wait = self.waits[wait].link[0].next;
        }
        u32::try_from(permits).is_ok()
    }

    fn semaphore(&self, lock: LockKey) -> Option<u32> {
        self.locks.slot(lock.0).filter(|slot| self.locks[*slot].is_semaphore())
    }
}
