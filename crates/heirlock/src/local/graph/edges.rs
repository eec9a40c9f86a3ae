//! The changes that everything is made of: a wait comes or goes, a hold comes or goes. Each names whom it touches; none settles anything.

use std::cmp::Reverse;

use super::Graph;
use super::lock::{Kind, Mode};
use super::records::{Hold, OF_LOCK, OF_WORKER, Origin, State, Wait, WaitKey};
use super::slab::{Link, NIL};
use super::urgency::{NEVER, Urgency};

impl Graph {
    /// Puts a wait into its queue.
    pub(super) fn enqueue(&mut self, slot: u32) {
        let wait = &self.waits[slot];
        let (worker, lock, urgency, deadline, depth) = (wait.worker, wait.lock, wait.urgency, wait.deadline, u64::from(wait.depth));
        self.locks[lock].queue.insert(&mut self.waits, slot);
        self.soft_waits += usize::from(self.may_be_soft(slot));
        let entry = &mut self.workers[worker];
        entry.waits = self.waits.link(entry.waits, slot, 0);
        entry.pending += 1;
        entry.wanted += depth;
        if deadline < entry.own_deadline {
            entry.own_deadline = deadline;
            self.refresh(worker);
        }
        self.touch_holders(slot, Urgency::NONE, urgency);
        self.stir(lock);
    }

    /// Whether it may be only its place in the queue that keeps the wait out.
    #[inline]
    fn may_be_soft(&self, slot: u32) -> bool {
        let wait = &self.waits[slot];
        wait.mode != Mode::Exclusive && self.locks[wait.lock].spec.kind == Kind::RwLock
    }

    /// Takes a wait out of its queue and out of its worker's list.
    pub(super) fn dequeue(&mut self, slot: u32) {
        self.unqueue(slot);
        let lock = self.waits[slot].lock;
        self.stir(lock);
    }

    /// The same for who looks at the lock anyway.
    pub(super) fn unqueue(&mut self, slot: u32) {
        let wait = &self.waits[slot];
        let (worker, lock, urgency, deadline, depth) = (wait.worker, wait.lock, wait.urgency, wait.deadline, u64::from(wait.depth));
        self.touch_holders(slot, urgency, Urgency::NONE);
        self.locks[lock].queue.remove(&mut self.waits, slot);
        self.soft_waits -= usize::from(self.may_be_soft(slot));
        let entry = &mut self.workers[worker];
        entry.waits = self.waits.unlink(entry.waits, slot, 0);
        entry.pending -= 1;
        entry.wanted -= depth;
        if deadline != NEVER && deadline == entry.own_deadline {
            entry.own_deadline = NEVER;
            let mut other = entry.waits;
            while other != NIL {
                entry.own_deadline = entry.own_deadline.min(self.waits[other].deadline);
                other = self.waits[other].link[0].next;
            }
            if self.cyclic {
                // The worker may inherit the same deadline only because of this one.
                self.touch_forks(worker, Urgency { deadline, ..Urgency::NONE }, Urgency::NONE);
            }
            self.refresh(worker);
        }
        self.removals += 1;
    }

    /// Ends a wait that is queued. Its worker may be left with one wait, and a cycle thereby be certain.
    pub(super) fn end(&mut self, slot: u32) -> WaitKey {
        let key = WaitKey(self.waits.id(slot));
        let worker = self.waits[slot].worker;
        self.dequeue(slot);
        self.waits.remove(slot);
        self.waits_less(worker);
        key
    }

    /// The worker has one wait less; if it has one left, a cycle through that may be certain now.
    pub(super) fn waits_less(&mut self, worker: u32) {
        if self.workers[worker].pending == 1 {
            self.doubtful.push(worker);
        }
    }

    /// Gives the lock to the worker, so many levels. It inherits from who still waits.
    pub(super) fn add_hold(&mut self, worker: u32, lock: u32, mode: Mode, depth: u32) -> u32 {
        if let Some(hold) = self.find_hold(worker, lock) {
            let entry = &mut self.holds[hold];
            entry.depth = entry.depth.saturating_add(depth);
            entry.mode = entry.mode.and(mode);
            self.locks[lock].mode = self.locks[lock].mode.and(mode);
            return hold;
        }
        let hold = self.holds.insert(Hold { worker, lock, mode, depth, origin: Origin::UNKNOWN, link: [Link::NONE; 2] });
        let entry = &mut self.locks[lock];
        entry.mode = if entry.holds == NIL { mode } else { entry.mode.and(mode) };
        entry.holds = self.holds.link(entry.holds, hold, OF_LOCK);
        let best = if entry.queue.is_empty() { Urgency::NONE } else { entry.queue.best(&self.waits, worker) };
        let entry = &mut self.workers[worker];
        entry.holds = self.holds.link(entry.holds, hold, OF_WORKER);
        self.touch(worker, Urgency::NONE, best);
        hold
    }

    /// Where a hold began becomes known, and when; the first level's counts.
    pub(super) fn found(&mut self, hold: u32, origin: Origin) {
        let known = &mut self.holds[hold].origin;
        known.site = known.site.or(origin.site);
        known.at = known.at.min(origin.at);
    }

    /// Takes so many levels from a hold; says how many remain.
    pub(super) fn lower(&mut self, hold: u32, levels: u32) -> u32 {
        let entry = &mut self.holds[hold];
        entry.depth = entry.depth.saturating_sub(levels);
        let (depth, mode, lock) = (entry.depth, entry.mode, entry.lock);
        if depth == 0 {
            self.drop_hold(hold);
        } else if mode == Mode::Upgradable {
            // It may have been in the way of its own upgrade.
            self.stir(lock);
        }
        depth
    }

    pub(super) fn drop_hold(&mut self, hold: u32) {
        let Hold { worker, lock, mode, .. } = self.holds[hold];
        let entry = &mut self.locks[lock];
        entry.holds = self.holds.unlink(entry.holds, hold, OF_LOCK);
        if entry.holds != NIL && mode != Mode::Shared {
            // Whoever is left reads.
            entry.mode = Mode::Shared;
            entry.loosened = !entry.queue.is_empty();
        }
        let queue = &entry.queue;
        let entry = &mut self.workers[worker];
        entry.holds = self.holds.unlink(entry.holds, hold, OF_WORKER);
        self.holds.remove(hold);
        if entry.is_free() {
            // Whatever it inherited it owed to this.
            if entry.inherited != Urgency::NONE {
                entry.inherited = Urgency::NONE;
                self.weigh(worker);
            }
        } else if !queue.is_empty() {
            let best = queue.best(&self.waits, worker);
            self.touch(worker, best, Urgency::NONE);
        }
        self.removals += 1;
        self.stir(lock);
    }

    /// The worker's hold of the lock: looked for from both ends, as either may have many.
    pub(super) fn find_hold(&self, worker: u32, lock: u32) -> Option<u32> {
        let (mut mine, mut its) = (self.workers[worker].holds, self.locks[lock].holds);
        while mine != NIL && its != NIL {
            if self.holds[mine].lock == lock {
                return Some(mine);
            }
            if self.holds[its].worker == worker {
                return Some(its);
            }
            mine = self.holds[mine].link[OF_WORKER].next;
            its = self.holds[its].link[OF_LOCK].next;
        }
        None
    }

    /// The grants of the lock that the worker has not taken note of, the last first.
    pub(super) fn untaken_of(&self, worker: u32, lock: u32) -> impl Iterator<Item = u32> + '_ {
        let listed = |slot: u32| (slot != NIL).then_some(slot);
        let all = std::iter::successors(listed(self.workers[worker].untaken), move |slot| listed(self.waits[*slot].link[OF_WORKER].next));
        all.filter(move |slot| self.waits[*slot].lock == lock)
    }

    /// One of those.
    pub(super) fn find_untaken(&self, worker: u32, lock: u32) -> Option<u32> {
        self.untaken_of(worker, lock).next()
    }

    /// How many levels of the worker's hold it has not taken note of.
    pub(super) fn untaken_levels(&self, worker: u32, lock: u32) -> u32 {
        self.untaken_of(worker, lock).fold(0, |levels, slot| levels.saturating_add(self.waits[slot].depth))
    }

    /// Strikes a grant off the untaken; whoever calls decides about the hold. Says its depth.
    pub(super) fn strike(&mut self, slot: u32) -> u32 {
        let (worker, lock) = (self.waits[slot].worker, self.waits[slot].lock);
        let entry = &mut self.workers[worker];
        entry.untaken = self.waits.unlink(entry.untaken, slot, OF_WORKER);
        let entry = &mut self.locks[lock];
        entry.untaken = self.waits.unlink(entry.untaken, slot, OF_LOCK);
        let depth = self.waits[slot].depth;
        self.waits.remove(slot);
        depth
    }

    /// Gives a grant back: the next may have it. A notification goes on to who waits now, and if nobody does, it is gone; permits are free.
    pub(super) fn give_back(&mut self, slot: u32) {
        let Wait { worker, lock, mode, upgrades, .. } = self.waits[slot];
        let levels = self.strike(slot);
        let entry = &self.locks[lock];
        let (held, price) = (entry.is_held(), if entry.is_counted() { entry.price(levels) } else { 0 });
        if held && let Some(hold) = self.find_hold(worker, lock) {
            if upgrades {
                self.soften(hold, Mode::Upgradable);
            } else if self.lower(hold, levels) > 0 && mode == Mode::Upgradable {
                self.soften(hold, Mode::Shared);
            }
        }
        self.free_up(lock, price);
    }

    /// So many more permits are free, or so many of the condition's queue are to be notified.
    pub(super) fn free_up(&mut self, lock: u32, many: u64) {
        if many > 0 {
            let free = &mut self.locks[lock].free;
            *free = free.saturating_add(many);
            self.stir(lock);
        }
    }

    /// The lock is to be looked at for a grant.
    #[inline]
    pub(super) fn stir(&mut self, lock: u32) {
        let entry = &mut self.locks[lock];
        if entry.queue.is_empty() {
            if entry.is_condition() {
                entry.free = 0;
            }
        } else if !entry.stirred && !entry.closed() {
            entry.stirred = true;
            self.stirred.push(Reverse((self.locks.id(lock), lock)));
        }
    }

    pub(super) fn is_queued(&self, key: WaitKey) -> Option<u32> {
        self.waits.slot(key.0).filter(|slot| self.waits[*slot].state == State::Queued)
    }
}
