//! Grants, and what is to be done about cycles.

use std::cmp::Reverse;

use super::Graph;
use super::effects::{Cycle, DeadlockPolicy, Effects};
use super::records::{OF_LOCK, OF_WORKER, Origin, State, WaitKey, WorkerKey};
use super::search::{Hop, Judgement, Ways};
use super::slab::NIL;
use super::urgency::NEVER;

impl Graph {
    /// Grants whatever can be granted: one at a time, of the lock with the smallest id, everything brought up to date in between.
    pub(super) fn promote(&mut self, effects: &mut Effects) {
        self.settle();
        while let Some(Reverse((id, lock))) = self.stirred.pop() {
            if self.locks.slot(id) != Some(lock) {
                continue;
            }
            let entry = &mut self.locks[lock];
            entry.stirred = false;
            let loosened = std::mem::replace(&mut entry.loosened, false);
            let Some(wait) = self.grantable(lock) else {
                if loosened {
                    self.review(lock);
                }
                continue;
            };
            if self.waits[wait].expires <= self.now {
                let key = self.end(wait);
                effects.expired.push(key);
            } else {
                self.grant(wait, effects);
            }
            self.stir(lock);
            let entry = &mut self.locks[lock];
            entry.loosened = entry.loosened || loosened && entry.stirred;
            self.settle();
        }
    }

    /// The first of the queue, if it can hold beside the holders; of a semaphore, if there are permits enough; of a condition, if it is to be
    /// notified.
    fn grantable(&self, lock: u32) -> Option<u32> {
        let entry = &self.locks[lock];
        entry.queue.first().filter(|first| {
            let wait = &self.waits[*first];
            if wait.upgrades { self.is_alone(wait.worker, lock) } else { entry.admits(wait.mode, wait.depth) }
        })
    }

    /// The wait becomes a hold, of which its worker has yet to take note; unless there is nothing to hold.
    pub(super) fn grant(&mut self, slot: u32, effects: &mut Effects) {
        let wait = &self.waits[slot];
        let (worker, lock, mode, depth, site) = (wait.worker, wait.lock, wait.mode, wait.depth, wait.origin.site);
        let upgrades = wait.upgrades;
        let entry = &mut self.locks[lock];
        if !upgrades {
            entry.queue.passed(slot);
        }
        if entry.is_counted() {
            entry.free = entry.free.saturating_sub(entry.price(depth));
        }
        self.unqueue(slot);
        // What falls must have fallen before the hold closes a cycle, or it would go round in it.
        self.settle();
        self.waits[slot].state = State::Granted;
        let entry = &mut self.workers[worker];
        entry.untaken = self.waits.link(entry.untaken, slot, OF_WORKER);
        let entry = &mut self.locks[lock];
        entry.untaken = self.waits.link(entry.untaken, slot, OF_LOCK);
        effects.granted.push(WaitKey(self.waits.id(slot)));
        effects.doubts |= self.waits[slot].in_doubt;
        if upgrades {
            self.harden(worker, lock);
        } else if entry.is_held() {
            let hold = self.add_hold(worker, lock, mode, depth);
            self.found(hold, Origin { site, at: NEVER });
            self.holds_more(worker);
        } else {
            self.waits_less(worker);
        }
    }

    /// The worker has a hold that others may wait for: if it waits itself, this may have closed a cycle.
    pub(super) fn holds_more(&mut self, worker: u32) {
        self.settle();
        let entry = &self.workers[worker];
        if entry.pending > 0 || entry.forks != NIL {
            self.grantees.push(worker);
            // Further grants must not leave phantoms in it.
            self.cyclic = self.cyclic || self.find_cycle(worker, Ways::Boosts, false).is_some();
        }
    }

    /// Ends what must be ended because of cycles through this worker. The cycle, if its own wait was to be refused.
    pub(super) fn resolve(&mut self, worker: u32, own: Option<WaitKey>, effects: &mut Effects) -> Option<Cycle> {
        while own.is_none_or(|own| self.is_queued(own).is_some()) {
            let (hops, victim) = match self.judge(worker) {
                Judgement::Clear => return None,
                Judgement::LetIn(reader) => {
                    self.cyclic = true;
                    let lock = self.waits[reader].lock;
                    self.grant(reader, effects);
                    self.stir(lock);
                    self.promote(effects);
                    continue;
                }
                Judgement::Certain(hops) => {
                    let victim = self.victim(&hops);
                    (hops, victim)
                }
                Judgement::Suspected(hops) => {
                    let victim = hops.iter().map(|hop| hop.wait).find(|wait| *wait != NIL);
                    let Some(victim) = victim.filter(|_| self.policy == DeadlockPolicy::ErrSuspected) else {
                        self.cyclic = self.cyclic || self.find_cycle(worker, Ways::Boosts, false).is_some();
                        effects.suspected.push(self.tell(&hops));
                        return None;
                    };
                    (hops, victim)
                }
            };
            let cycle = self.tell(&hops);
            // All that the closer's own wait closed goes with it. Without any other, something may stand.
            self.cyclic = self.cyclic || own != Some(WaitKey(self.waits.id(victim)));
            let key = self.end(victim);
            self.promote(effects);
            if own == Some(key) {
                return Some(cycle);
            }
            effects.ended.push((key, cycle));
        }
        None
    }

    /// Whose wait ends: the closer's, which comes first, unless the policy knows better.
    fn victim(&self, hops: &[Hop]) -> u32 {
        let mut victim = hops[0];
        if self.policy == DeadlockPolicy::LowestPriority {
            for hop in hops {
                if self.workers[hop.worker].base < self.workers[victim.worker].base {
                    victim = *hop;
                }
            }
        }
        victim.wait
    }

    /// What grants have closed, what has become certain.
    pub(super) fn follow(&mut self, effects: &mut Effects) {
        if self.is_settled() {
            return;
        }
        self.promote(effects);
        loop {
            if !self.grantees.is_empty() {
                let worker = self.grantees.remove(0);
                self.resolve(worker, None, effects);
            } else if !self.doubtful.is_empty() {
                self.doubtful.sort_unstable_by_key(|worker| self.workers.id(*worker));
                let worker = self.doubtful.remove(0);
                // The same cycle need not be reported twice: only a verdict is news.
                if self.find_cycle(worker, Ways::CertainHolders, false).is_some() {
                    self.resolve(worker, None, effects);
                }
            } else {
                return;
            }
        }
    }

    /// Whether the running event has nothing left to do.
    #[inline]
    pub(super) fn is_settled(&self) -> bool {
        self.stirred.is_empty() && self.due.is_empty() && self.grantees.is_empty() && self.doubtful.is_empty() && self.fell.is_empty()
    }

    /// The end of every event.
    pub(super) fn finish(&mut self, effects: &mut Effects) {
        self.follow(effects);
        if !self.cyclic {
            self.removals = 0;
        } else if self.removals > self.locks.len() + self.workers.len() {
            self.removals = 0;
            self.cyclic = !self.standing(Ways::Boosts, 1).is_empty();
        }
        if self.touched.is_empty() {
            return;
        }
        let mut touched = std::mem::take(&mut self.touched);
        for worker in touched.drain(..) {
            let entry = &mut self.workers[worker];
            if entry.scratch.before.take().is_some_and(|before| before != entry.effective.priority) {
                effects.changed.push(WorkerKey(self.workers.id(worker)));
            }
        }
        self.touched = touched;
    }
}
