//! The events.

use super::Graph;
use super::effects::{Effects, Left, Released};
use super::lock::{Kind, Lock, LockSpec, Mode};
use super::records::{Hold, LockKey, OF_LOCK, Origin, State, WaitKey, Worker, WorkerKey, WorkerSpec};
use super::slab::NIL;
use super::urgency::{NEVER, Urgency};

impl Graph {
    /// A new worker. A parent that has gone counts as none.
    pub fn add_worker(&mut self, spec: &WorkerSpec) -> WorkerKey {
        let slot = self.workers.insert(Worker::new(spec));
        if let Some(parent) = spec.parent.and_then(|parent| self.workers.slot(parent.0)) {
            self.adopt(parent, slot);
            let effective = self.workers[parent].effective;
            self.touch(slot, Urgency::NONE, effective);
            self.settle();
        }
        // It is new, not changed.
        self.touched.clear();
        self.workers[slot].scratch.before = None;
        WorkerKey(self.workers.id(slot))
    }

    fn adopt(&mut self, parent: u32, fork: u32) {
        let forks = self.workers[parent].forks;
        let forks = self.workers.link(forks, fork, 0);
        self.workers[parent].forks = forks;
        self.workers[fork].parent = parent;
    }

    /// Removes a worker: its waits end, what it holds goes on to the next. Its forks become those of its parent, and keep its base.
    pub fn remove_worker(&mut self, worker: WorkerKey, effects: &mut Effects) -> bool {
        let Some(slot) = self.workers.slot(worker.0) else { return false };
        for list in [self.workers[slot].waits, self.workers[slot].untaken] {
            let mut wait = list;
            while wait != NIL {
                let next = self.waits[wait].link[0].next;
                effects.removed.push(WaitKey(self.waits.id(wait)));
                if self.waits[wait].state == State::Queued {
                    self.dequeue(wait);
                    self.waits.remove(wait);
                } else {
                    self.give_back(wait);
                }
                wait = next;
            }
        }
        while self.workers[slot].holds != NIL {
            let hold = self.workers[slot].holds;
            let Hold { lock, depth, .. } = self.holds[hold];
            self.drop_hold(hold);
            if self.locks[lock].is_counted() {
                self.free_up(lock, u64::from(depth));
            }
        }
        self.settle();
        let (parent, base) = (self.workers[slot].parent, self.workers[slot].base);
        while self.workers[slot].forks != NIL {
            let fork = self.workers[slot].forks;
            self.workers[slot].forks = self.workers.unlink(fork, fork, 0);
            self.workers[fork].parent = NIL;
            let effective = self.workers[slot].effective;
            self.touch(fork, effective, Urgency::NONE);
            self.settle();
            if parent != NIL {
                self.adopt(parent, fork);
                let effective = self.workers[parent].effective;
                self.touch(fork, Urgency::NONE, effective);
                self.settle();
            }
            if base > self.workers[fork].base {
                self.rebase(fork, base);
            }
        }
        if parent != NIL {
            let forks = self.workers[parent].forks;
            self.workers[parent].forks = self.workers.unlink(forks, slot, 0);
        }
        self.touched.retain(|touched| *touched != slot);
        self.doubtful.retain(|doubtful| *doubtful != slot);
        self.grantees.retain(|grantee| *grantee != slot);
        self.workers.remove(slot);
        self.finish(effects);
        true
    }

    /// Changes a base priority. Waits whose calls have their own keep that.
    pub fn set_base(&mut self, worker: WorkerKey, base: i32, effects: &mut Effects) -> bool {
        let Some(slot) = self.workers.slot(worker.0) else { return false };
        self.rebase(slot, base);
        self.finish(effects);
        true
    }

    fn rebase(&mut self, slot: u32, base: i32) {
        let entry = &mut self.workers[slot];
        if self.cyclic && base < entry.base {
            // It may inherit its own base; it starts again, and its waits with it.
            self.fell.push(slot);
            entry.base = base;
        } else if base != entry.base {
            entry.base = base;
            let inherited = entry.inherited;
            self.inherit(slot, inherited);
        }
        self.settle();
    }

    /// Changes the deadline of the waits that the worker has yet to begin.
    pub fn set_deadline(&mut self, worker: WorkerKey, deadline: Option<u64>) -> bool {
        let Some(slot) = self.workers.slot(worker.0) else { return false };
        self.workers[slot].deadline = deadline.unwrap_or(NEVER);
        true
    }

    /// A new lock, held by nobody.
    pub fn add_lock(&mut self, spec: LockSpec) -> LockKey {
        let slot = self.locks.insert(Lock::new(spec));
        LockKey(self.locks.id(slot))
    }

    /// Removes a lock: the waits on it end, and nobody holds it.
    pub fn remove_lock(&mut self, lock: LockKey, effects: &mut Effects) -> bool {
        let Some(slot) = self.locks.slot(lock.0) else { return false };
        while let Some(wait) = self.locks[slot].queue.first() {
            let key = self.end(wait);
            effects.removed.push(key);
        }
        while self.locks[slot].untaken != NIL {
            let wait = self.locks[slot].untaken;
            effects.removed.push(WaitKey(self.waits.id(wait)));
            self.strike(wait);
        }
        while self.locks[slot].holds != NIL {
            self.drop_hold(self.locks[slot].holds);
        }
        self.settle();
        self.locks.remove(slot);
        self.finish(effects);
        true
    }

    /// The instant from which on a hand-over passes by whoever has expired. Never goes back. To be told before an event on a lock of which
    /// [`head_expires`](Graph::head_expires).
    pub fn advance(&mut self, now: u64) {
        self.now = self.now.max(now);
    }

    /// Records a hold that was taken without the graph: `depth` levels, beside those already known. Permits are not taken off the free ones: they
    /// were when they were taken. False for what nobody holds: a condition, a semaphore that is not tracked.
    pub fn hold(&mut self, worker: WorkerKey, lock: LockKey, mode: Mode, depth: u32, effects: &mut Effects) -> bool {
        let (Some(worker), Some(lock)) = (self.workers.slot(worker.0), self.locks.slot(lock.0)) else { return false };
        if !self.locks[lock].is_held() {
            return false;
        }
        let mode = self.mode_of(lock, mode);
        self.add_hold(worker, lock, mode, depth);
        self.holds_more(worker);
        self.stir(lock);
        self.finish(effects);
        true
    }

    /// Where and when a hold began. What is known already stays.
    pub fn note_origin(&mut self, worker: WorkerKey, lock: LockKey, origin: Origin) {
        let both = self.workers.slot(worker.0).zip(self.locks.slot(lock.0));
        if let Some(hold) = both.and_then(|(worker, lock)| self.find_hold(worker, lock)) {
            self.found(hold, origin);
        }
    }

    /// Since when a hold stands, at the latest.
    pub fn note_since(&mut self, worker: WorkerKey, lock: LockKey, at: u64) {
        self.note_origin(worker, lock, Origin { site: None, at });
    }

    /// Holds of the lock of which it is not known since when they stand do so from now on at the latest.
    pub(super) fn stamp(&mut self, lock: u32, now: u64) {
        let mut hold = self.locks[lock].holds;
        // The newest comes first, and behind one of which it is known it is known of all. Most have one.
        while hold != NIL && self.holds[hold].origin.at == NEVER {
            self.holds[hold].origin.at = now;
            hold = self.holds[hold].link[OF_LOCK].next;
        }
    }

    /// Takes note of a grant. The worker's other waits on that lock, queued or granted, come in doubt; those lose their places that would now come to
    /// something else than to wait: of a re-entrant lock, of a reader that may enter again, of an exclusive lock whose holder is sequential and would
    /// wait for itself. False if there is no such grant (any more).
    pub fn take(&mut self, wait: WaitKey, effects: &mut Effects) -> bool {
        let Some(slot) = self.waits.slot(wait.0).filter(|slot| self.waits[*slot].state == State::Granted) else { return false };
        let (worker, lock) = (self.waits[slot].worker, self.waits[slot].lock);
        self.strike(slot);
        self.take_note(worker, lock, effects);
        self.finish(effects);
        true
    }

    /// Revokes an untaken grant, if another waits for the lock, who then has it. Says the arrival number to queue again with.
    pub fn take_over(&mut self, wait: WaitKey, effects: &mut Effects) -> Option<u64> {
        let slot = self.waits.slot(wait.0).filter(|slot| self.waits[*slot].state == State::Granted)?;
        if self.locks[self.waits[slot].lock].queue.is_empty() {
            return None;
        }
        let arrival = self.waits[slot].arrival;
        self.revoke(wait, effects);
        Some(arrival)
    }

    /// Ends a wait in whatever state: its future was dropped.
    pub fn cancel(&mut self, wait: WaitKey, effects: &mut Effects) -> Left {
        let Some(slot) = self.waits.slot(wait.0) else { return Left::Gone };
        let left = if self.waits[slot].state == State::Queued {
            self.end(slot);
            Left::Queued
        } else {
            self.give_back(slot);
            Left::Granted
        };
        self.finish(effects);
        left
    }

    /// Ends a wait that has lasted too long. A grant came before that, and stands.
    pub fn expire(&mut self, wait: WaitKey, effects: &mut Effects) -> Left {
        match self.waits.slot(wait.0) {
            None => Left::Gone,
            Some(slot) if self.waits[slot].state == State::Granted => Left::Granted,
            Some(slot) => {
                self.end(slot);
                self.finish(effects);
                Left::Queued
            }
        }
    }

    /// Gives up one level. Where a hold has levels of two modes see [`Graph::release_mode`].
    pub fn release(&mut self, worker: WorkerKey, lock: LockKey, effects: &mut Effects) -> Released {
        self.release_levels(worker, lock, 1, effects)
    }

    /// Gives up all levels, and says how many there were: what a condition acquires again.
    pub fn release_all(&mut self, worker: WorkerKey, lock: LockKey, effects: &mut Effects) -> Option<u32> {
        let hold = self.find_hold(self.workers.slot(worker.0)?, self.locks.slot(lock.0)?)?;
        let depth = self.holds[hold].depth;
        self.release_levels(worker, lock, depth, effects);
        Some(depth)
    }

    /// Gives up so many levels; those of a reader first, where another is upgradable.
    pub fn release_levels(&mut self, worker: WorkerKey, lock: LockKey, levels: u32, effects: &mut Effects) -> Released {
        let (Some(worker), Some(lock)) = (self.workers.slot(worker.0), self.locks.slot(lock.0)) else { return Released::NotHeld };
        let Some(hold) = self.find_hold(worker, lock) else { return Released::NotHeld };
        if self.holds[hold].depth == levels && self.pass_on(hold, effects) {
            self.finish(effects);
            return Released::Freed;
        }
        if self.locks[lock].is_counted() {
            let permits = self.holds[hold].depth.min(levels);
            self.free_up(lock, u64::from(permits));
        }
        self.give_up(hold, levels, effects)
    }

    /// So many levels of the hold are no more.
    pub(super) fn give_up(&mut self, hold: u32, levels: u32, effects: &mut Effects) -> Released {
        let Hold { worker, lock, mode, depth, .. } = self.holds[hold];
        if mode == Mode::Upgradable && depth <= levels {
            self.end_upgrade(worker, lock, effects);
        }
        // Who gives up what it was granted has taken note.
        let mut noted = false;
        while u64::from(self.holds[hold].depth) < u64::from(levels) + u64::from(self.untaken_levels(worker, lock)) {
            let Some(grant) = self.find_untaken(worker, lock) else { break };
            self.strike(grant);
            noted = true;
        }
        let depth = self.lower(hold, levels);
        if noted && depth > 0 {
            self.take_note(worker, lock, effects);
        }
        self.finish(effects);
        if depth == 0 { Released::Freed } else { Released::Kept(depth) }
    }

    /// Gives a hold, with all its levels, to another worker. False if it is not held, or if the other would hold more levels than can be counted.
    pub fn transfer(&mut self, lock: LockKey, from: WorkerKey, to: WorkerKey, effects: &mut Effects) -> bool {
        let (Some(from), Some(to)) = (self.workers.slot(from.0), self.workers.slot(to.0)) else { return false };
        let Some(lock) = self.locks.slot(lock.0) else { return false };
        let Some(hold) = self.find_hold(from, lock) else { return false };
        if from == to {
            return true;
        }
        let (mode, depth, origin) = (self.holds[hold].mode, self.holds[hold].depth, self.holds[hold].origin);
        if let Some(other) = self.find_hold(to, lock)
            && self.holds[other].depth.checked_add(depth).is_none()
        {
            return false;
        }
        if self.locks[lock].is_counted() && !self.countable(to, lock, depth) {
            return false;
        }
        while let Some(grant) = self.find_untaken(from, lock) {
            self.strike(grant);
        }
        if mode == Mode::Upgradable {
            self.end_upgrade(from, lock, effects);
        }
        if self.locks[lock].spec.kind == Kind::RLock {
            // It gets what it waits for: its waits ask again, and enter.
            self.take_note(to, lock, effects);
            self.settle();
        }
        self.drop_hold(hold);
        self.settle();
        let hold = self.add_hold(to, lock, mode, depth);
        self.found(hold, origin);
        self.holds_more(to);
        self.finish(effects);
        true
    }

    pub(super) fn mode_of(&self, lock: u32, mode: Mode) -> Mode {
        match self.locks[lock].spec.kind {
            Kind::RwLock => mode,
            Kind::Semaphore => Mode::Shared,
            _ => Mode::Exclusive,
        }
    }

    /// Whether the first of the lock's queue may have expired, so that a hand-over must know the time; where several may be granted at once,
    /// whether anybody waits.
    pub fn head_expires(&self, lock: LockKey) -> bool {
        let Some(lock) = self.locks.slot(lock.0).map(|slot| &self.locks[slot]) else { return false };
        let several = matches!(lock.spec.kind, Kind::RwLock | Kind::Semaphore);
        lock.queue.first().is_some_and(|wait| several || self.waits[wait].expires != NEVER)
    }
}
