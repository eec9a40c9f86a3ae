//! The reference's semaphores.

use heirlock::local::graph::Kind;

use super::{Id, Naive, Reply};

impl Naive {
    pub(crate) fn is_condition(&self, lock: Id) -> bool {
        matches!(self.kind(lock), Kind::Condition | Kind::Event | Kind::Barrier)
    }

    /// Whether who is granted it holds it.
    pub(crate) fn has_holders(&self, lock: Id) -> bool {
        !self.is_condition(lock) && (self.kind(lock) != Kind::Semaphore || self.locks[&lock].spec.tracked)
    }

    pub(crate) fn free(&self, lock: Id) -> Option<u64> {
        (self.kind(lock) == Kind::Semaphore).then(|| self.locks[&lock].free)
    }

    /// How many permits the worker has, and waits for.
    pub(crate) fn permits_to_be(&self, worker: Id, lock: Id) -> u64 {
        let pending = self.pending(worker).into_iter().map(|wait| &self.waits[&wait]).filter(|wait| wait.lock == lock);
        u64::from(self.depth(worker, lock)) + pending.map(|wait| u64::from(wait.depth)).sum::<u64>()
    }

    pub(crate) fn free_up(&mut self, lock: Id, permits: u32) {
        let free = &mut self.locks.get_mut(&lock).unwrap().free;
        *free = free.saturating_add(u64::from(permits));
    }

    pub(crate) fn add_permits(&mut self, lock: Id, many: u64) -> Reply {
        let sum = self.free(lock).and_then(|free| free.checked_add(many));
        if let Some(sum) = sum {
            self.locks.get_mut(&lock).unwrap().free = sum;
        }
        Reply::Done(sum.is_some())
    }

    pub(crate) fn take_permits(&mut self, lock: Id, many: u64) -> u64 {
        let taken = self.free(lock).unwrap_or(0).min(many);
        self.locks.get_mut(&lock).unwrap().free -= taken;
        taken
    }

    pub(crate) fn forget(&mut self, worker: Id, lock: Id, permits: u32) -> Reply {
        if self.kind(lock) == Kind::Semaphore { self.give_up(worker, lock, permits) } else { Reply::NotHeld }
    }
}
