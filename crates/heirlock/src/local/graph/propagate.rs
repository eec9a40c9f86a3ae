//! What holders inherit: the least fixpoint.
//!
//! Every change names the workers whose inheritance it may touch; [`Graph::settle`] works through them, first come first served, until nothing
//! changes. A rise joins what is inherited with what is new, in O(1). A fall is computed anew from the queues of what the worker holds, and goes
//! no further if something else is as urgent.
//!
//! That would leave a phantom behind where workers wait for each other: each would owe its urgency to the next. So while a cycle may stand,
//! a fall is worked off in another way: whoever *may* owe its urgency to what fell starts again from its base, and rises from there.

use std::mem::replace;

use super::Graph;
use super::lock::Mode;
use super::records::{Due, OF_LOCK, OF_WORKER};
use super::slab::NIL;
use super::urgency::Urgency;

impl Graph {
    /// Brings everything up to date.
    #[inline]
    pub(super) fn settle(&mut self) {
        if !(self.due.is_empty() && self.fell.is_empty()) {
            self.work_off();
        }
    }

    fn work_off(&mut self) {
        loop {
            if !self.fell.is_empty() {
                self.restart();
            }
            let Some(worker) = self.due.pop_front() else { return };
            let scratch = &mut self.workers[worker].scratch;
            let (due, raise) = (replace(&mut scratch.due, Due::Nothing), replace(&mut scratch.raise, Urgency::NONE));
            let inherited = match due {
                Due::Nothing => continue,
                Due::Raise => self.workers[worker].inherited.join(raise),
                Due::All => self.inheritance(worker),
            };
            if inherited != self.workers[worker].inherited {
                self.inherit(worker, inherited);
            }
        }
    }

    /// Something that the worker inherits was `old` and is `new`.
    pub(super) fn touch(&mut self, worker: u32, old: Urgency, new: Urgency) {
        let inherited = self.workers[worker].inherited;
        // What is more urgent than what is inherited so far has been noted and not yet been worked off.
        let falls = (new.priority < old.priority && old.priority >= inherited.priority)
            || (new.deadline > old.deadline && old.deadline <= inherited.deadline);
        if falls {
            if self.cyclic {
                self.fell.push(worker);
            } else {
                self.schedule(worker, Due::All);
            }
            return;
        }
        let joined = inherited.join(new);
        if joined == inherited {
            return;
        }
        if self.workers[worker].is_last() {
            self.workers[worker].inherited = joined;
            self.weigh(worker);
        } else {
            let raise = &mut self.workers[worker].scratch.raise;
            *raise = raise.join(new);
            self.schedule(worker, Due::Raise);
        }
    }

    fn schedule(&mut self, worker: u32, due: Due) {
        let scratch = &mut self.workers[worker].scratch;
        match scratch.due {
            Due::Nothing => {
                scratch.due = due;
                self.due.push_back(worker);
            }
            Due::Raise => scratch.due = due,
            Due::All => {}
        }
    }

    /// What the worker inherits, from the queues of all that it holds and from its parent.
    fn inheritance(&self, worker: u32) -> Urgency {
        let Self { workers, holds, locks, waits, .. } = self;
        let mut inherited = Urgency::NONE;
        let mut hold = workers[worker].holds;
        while hold != NIL {
            inherited = inherited.join(locks[holds[hold].lock].queue.best(waits, worker));
            hold = holds[hold].link[OF_WORKER].next;
        }
        match workers[worker].parent {
            NIL => inherited,
            parent => inherited.join(workers[parent].effective),
        }
    }

    /// The worker inherits this, or has another base: its waits are re-keyed, and whoever depends on it is told.
    pub(super) fn inherit(&mut self, worker: u32, inherited: Urgency) {
        self.workers[worker].inherited = inherited;
        self.refresh(worker);
        let mut wait = self.workers[worker].waits;
        while wait != NIL {
            let (old, new) = self.rekey(wait);
            if old != new {
                self.touch_holders(wait, old, new);
            }
            wait = self.waits[wait].link[0].next;
        }
    }

    /// Computes the effective urgency, and tells the forks.
    pub(super) fn refresh(&mut self, worker: u32) {
        let (old, new) = self.weigh(worker);
        if old != new {
            self.touch_forks(worker, old, new);
        }
    }

    /// Computes the effective urgency; was and is.
    pub(super) fn weigh(&mut self, slot: u32) -> (Urgency, Urgency) {
        let worker = &mut self.workers[slot];
        let new = worker.own().join(worker.inherited);
        let old = replace(&mut worker.effective, new);
        if old.priority != new.priority && worker.scratch.before.is_none() {
            worker.scratch.before = Some(old.priority);
            self.touched.push(slot);
        }
        (old, new)
    }

    /// Computes the urgency of a wait and moves it in its queue; was and is.
    fn rekey(&mut self, slot: u32) -> (Urgency, Urgency) {
        let wait = &self.waits[slot];
        let worker = &self.workers[wait.worker];
        let own = Urgency { priority: wait.priority.unwrap_or(worker.base), deadline: wait.deadline };
        let (old, new) = (wait.urgency, own.join(worker.inherited));
        if old != new {
            let lock = &mut self.locks[wait.lock];
            let may_grant = lock.mode != Mode::Exclusive;
            let slot_of_lock = wait.lock;
            lock.queue.rekey(&mut self.waits, slot, new);
            if may_grant {
                self.stir(slot_of_lock);
            }
        }
        (old, new)
    }

    /// What this wait gives to those who hold its lock was `old` and is `new`.
    pub(super) fn touch_holders(&mut self, wait: u32, old: Urgency, new: Urgency) {
        let (worker, lock) = (self.waits[wait].worker, self.waits[wait].lock);
        let mut hold = self.locks[lock].holds;
        while hold != NIL {
            if self.holds[hold].worker != worker {
                self.touch(self.holds[hold].worker, old, new);
            }
            hold = self.holds[hold].link[OF_LOCK].next;
        }
    }

    pub(super) fn touch_forks(&mut self, worker: u32, old: Urgency, new: Urgency) {
        let mut fork = self.workers[worker].forks;
        while fork != NIL {
            self.touch(fork, old, new);
            fork = self.workers[fork].link[0].next;
        }
    }

    /// Takes away what workers inherit if they may owe it to what fell, and lets them rise again.
    ///
    /// Before the fall, everything inherited could be followed back to a base or to a deadline. Whoever is not reached here can still be followed
    /// back on a way that avoids all who are reached, so it keeps what it has.
    fn restart(&mut self) {
        let mut reached = std::mem::take(&mut self.fell);
        reached.retain(|&worker| !replace(&mut self.workers[worker].scratch.restarts, true));
        let mut next = 0;
        while let Some(&worker) = reached.get(next) {
            next += 1;
            let Self { workers, holds, locks, waits, .. } = self;
            let mut wait = workers[worker].waits;
            while wait != NIL {
                let mut hold = locks[waits[wait].lock].holds;
                while hold != NIL {
                    let holder = &mut workers[holds[hold].worker];
                    if !holder.scratch.restarts && holds[hold].worker != worker && waits[wait].urgency.supports(holder.inherited) {
                        holder.scratch.restarts = true;
                        reached.push(holds[hold].worker);
                    }
                    hold = holds[hold].link[OF_LOCK].next;
                }
                wait = waits[wait].link[0].next;
            }
            let effective = workers[worker].effective;
            let mut fork = workers[worker].forks;
            while fork != NIL {
                if !workers[fork].scratch.restarts && effective.supports(workers[fork].inherited) {
                    workers[fork].scratch.restarts = true;
                    reached.push(fork);
                }
                fork = workers[fork].link[0].next;
            }
        }
        for &worker in &reached {
            self.workers[worker].scratch.restarts = false;
            self.workers[worker].inherited = Urgency::NONE;
            self.weigh(worker);
            let mut wait = self.workers[worker].waits;
            while wait != NIL {
                self.rekey(wait);
                wait = self.waits[wait].link[0].next;
            }
        }
        for &worker in &reached {
            self.schedule(worker, Due::All);
        }
        reached.clear();
        self.fell = reached;
    }
}
