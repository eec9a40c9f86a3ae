//! The short way from a holder to the next: what [`promote`](Graph::promote) does in general, for the hand-over that nothing else depends on. Most
//! are of that kind: who lets go has nothing else, and who is next waits for nothing else.

use super::Graph;
use super::effects::Effects;
use super::lock::Mode;
use super::records::{OF_LOCK, OF_WORKER, Origin, State, WaitKey};
use super::slab::NIL;
use super::urgency::{NEVER, Urgency};

impl Graph {
    /// Gives the whole hold to the first of the queue, whose grant it becomes. False, and nothing has been done, if that may concern a third.
    ///
    /// Neither of both waits for anything afterwards, and neither has forks: so whatever they inherit more or less ends with them, no cycle can be
    /// closed, and nothing else can become grantable. The lock is closed before as after.
    pub(super) fn pass_on(&mut self, hold: u32, effects: &mut Effects) -> bool {
        if self.cyclic || !self.is_settled() {
            return false;
        }
        let Self { workers, holds, locks, waits, .. } = self;
        let (giver, lock) = (holds[hold].worker, holds[hold].lock);
        let entry = &locks[lock];
        let Some(wait) = entry.queue.first() else { return false };
        let taker = waits[wait].worker;
        let is_only = holds[hold].is_only() && entry.holds == hold && workers[giver].holds == hold && holds[hold].mode == Mode::Exclusive;
        let is_plain = waits[wait].mode == Mode::Exclusive && waits[wait].expires > self.now && !entry.stirred;
        let is_apart = workers[giver].is_last() && [workers[giver].parent, workers[giver].untaken] == [NIL; 2];
        if !(is_only && is_plain && is_apart && workers[taker].waits_for_one()) {
            return false;
        }
        // The wait leaves the queue, and is the worker's only one.
        locks[lock].queue.passed(wait);
        locks[lock].queue.remove(waits, wait);
        waits[wait].state = State::Granted;
        let (depth, site) = (waits[wait].depth, waits[wait].origin.site);
        let entry = &mut workers[taker];
        (entry.waits, entry.pending, entry.wanted, entry.own_deadline) = (NIL, 0, 0, NEVER);
        entry.untaken = waits.link(entry.untaken, wait, OF_WORKER);
        locks[lock].untaken = waits.link(locks[lock].untaken, wait, OF_LOCK);
        // The hold changes hands.
        workers[giver].holds = NIL;
        let record = &mut holds[hold];
        (record.worker, record.depth, record.origin) = (taker, depth, Origin { site, at: NEVER });
        workers[taker].holds = holds.link(workers[taker].holds, hold, OF_WORKER);
        let best = locks[lock].queue.best(waits, taker);
        self.inherit_last(giver, Urgency::NONE);
        let inherited = self.workers[taker].inherited.join(best);
        self.inherit_last(taker, inherited);
        effects.granted.push(WaitKey(self.waits.id(wait)));
        effects.doubts |= self.waits[wait].in_doubt;
        true
    }

    /// What a worker inherits on which nobody depends.
    fn inherit_last(&mut self, worker: u32, inherited: Urgency) {
        self.workers[worker].inherited = inherited;
        self.weigh(worker);
    }
}
