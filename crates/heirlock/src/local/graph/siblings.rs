//! A worker's several futures for one lock, of which one is served.
//!
//! A grant belongs to the worker, whichever of its futures is polled next; and one that is kept and polled no more must not stand in anybody's way.
//! Whether it will be polled cannot be known: arms of a task are, each when it is woken. So when one of them is served, the others keep their places
//! and their grants, and come *in doubt*: what they were granted, or will be, is taken over soon if nobody takes it. Whoever is polled is in doubt no
//! more. So many arms of one worker need not be polled more often than one each.
//!
//! Only those lose their places at once that would not queue again if they were polled: they enter, or are refused.

use super::Graph;
use super::effects::{Displaced, Effects};
use super::lock::{Kind, Mode};
use super::records::{Hold, OF_WORKER, State, Wait, WaitKey};
use super::slab::NIL;

impl Graph {
    /// A future was polled that waits: it is in doubt no more. If its worker was granted the same by another wait, or may enter the lock again by what
    /// it has taken note of, it has that, and its wait ends; then true.
    pub fn claim(&mut self, wait: WaitKey, effects: &mut Effects) -> bool {
        let Some(slot) = self.is_queued(wait) else { return false };
        let Wait { worker, lock, mode, upgrades, depth, .. } = self.waits[slot];
        if !upgrades {
            if let Some(grant) = self.find_fitting(worker, lock, mode, depth) {
                self.end(slot);
                self.take_as(grant, depth, effects);
                self.finish(effects);
                return true;
            }
            let noted = self.enters(worker, lock, mode).filter(|hold| self.holds[*hold].depth > self.untaken_levels(worker, lock));
            if let Some((hold, levels)) = noted.and_then(|hold| Some((hold, self.holds[hold].depth.checked_add(depth)?))) {
                self.end(slot);
                self.deepen(hold, levels);
                self.finish(effects);
                return true;
            }
            // What it was granted is something else.
            self.doubt_grants(worker, lock, effects);
        }
        if self.waits[slot].in_doubt {
            self.waits[slot].in_doubt = false;
            // Who is in doubt comes after all who are not.
            let entry = &mut self.workers[worker];
            entry.waits = self.waits.unlink(entry.waits, slot, OF_WORKER);
            entry.waits = self.waits.link(entry.waits, slot, OF_WORKER);
        }
        false
    }

    /// The worker takes what another of its futures was granted, so many levels deep.
    pub(super) fn take_as(&mut self, grant: u32, depth: u32, effects: &mut Effects) {
        let Wait { worker, lock, arrival, .. } = self.waits[grant];
        effects.displaced.push(Displaced { wait: WaitKey(self.waits.id(grant)), arrival });
        let granted = self.strike(grant);
        if let Some(hold) = self.find_hold(worker, lock) {
            let levels = &mut self.holds[hold].depth;
            *levels = (*levels - granted).saturating_add(depth);
        }
        self.take_note(worker, lock, effects);
    }

    /// The worker has entered again, so many levels deep.
    pub(super) fn deepen(&mut self, hold: u32, levels: u32) {
        let Hold { worker, lock, mode, .. } = self.holds[hold];
        self.holds[hold].depth = levels;
        if mode == Mode::Upgradable && self.find_upgrade(worker, lock).is_some() {
            // It is in its own way now.
            self.holds_more(worker);
        }
    }

    /// Revokes an untaken grant, whether or not anybody waits: for another call of its own worker that will not wait. False if there is none.
    pub fn revoke(&mut self, wait: WaitKey, effects: &mut Effects) -> bool {
        let Some(slot) = self.waits.slot(wait.0).filter(|slot| self.waits[*slot].state == State::Granted) else { return false };
        effects.displaced.push(Displaced { wait, arrival: self.waits[slot].arrival });
        self.give_back(slot);
        self.finish(effects);
        true
    }

    /// The worker has taken note of what it was granted, or had it at once: what becomes of its other futures for the lock.
    pub(super) fn take_note(&mut self, worker: u32, lock: u32, effects: &mut Effects) {
        self.doubt_grants(worker, lock, effects);
        let readers = self.locks[lock].spec.kind == Kind::RwLock;
        let (mut slot, mut stays) = (self.workers[worker].waits, false);
        while slot != NIL {
            let Wait { lock: of, arrival, in_doubt, ref link, .. } = self.waits[slot];
            let next = link[OF_WORKER].next;
            if of == lock && self.asks_again(slot) {
                effects.displaced.push(Displaced { wait: self.end(slot), arrival });
            } else if of == lock {
                stays = true;
                self.waits[slot].in_doubt = true;
                if in_doubt && !readers {
                    // So are all behind it, and none of them asks again.
                    break;
                }
            }
            slot = next;
        }
        if stays && self.locks[lock].is_held() {
            // What it has taken note of is in the way of those.
            self.grantees.push(worker);
        }
    }

    /// Whether a wait of who holds the lock, or holds more of it, would come to anything else but a place in the queue if it asked now: further
    /// levels, or a refusal.
    fn asks_again(&self, slot: u32) -> bool {
        let Wait { worker, lock, mode, .. } = self.waits[slot];
        match self.locks[lock].spec.kind {
            Kind::RLock => true,
            Kind::Semaphore => false,
            kind if kind.is_condition() => false,
            _ => self.workers[worker].sequential || self.enters(worker, lock, mode).is_some(),
        }
    }

    /// The worker was served, or asked for more: what it was granted else and has not taken may be forgotten.
    pub(super) fn doubt_grants(&mut self, worker: u32, lock: u32, effects: &mut Effects) {
        let mut slot = self.workers[worker].untaken;
        while slot != NIL {
            let wait = &mut self.waits[slot];
            if wait.lock == lock && !wait.in_doubt {
                wait.in_doubt = true;
                effects.doubts = true;
            }
            slot = wait.link[OF_WORKER].next;
        }
    }

    /// The worker's untaken grant that is what it asks for: of this mode, and of so many permits.
    pub(super) fn find_fitting(&self, worker: u32, lock: u32, mode: Mode, depth: u32) -> Option<u32> {
        let counts = self.locks[lock].is_semaphore();
        let fits = |wait: &Wait| wait.mode == mode && !wait.upgrades && (!counts || wait.depth == depth);
        self.untaken_of(worker, lock).find(|slot| fits(&self.waits[*slot]))
    }

    /// Gives back what the worker was granted of the lock and has not taken. Nobody has it yet.
    pub(super) fn give_back_all(&mut self, worker: u32, lock: u32, effects: &mut Effects) {
        while let Some(grant) = self.find_untaken(worker, lock) {
            effects.displaced.push(Displaced { wait: WaitKey(self.waits.id(grant)), arrival: self.waits[grant].arrival });
            self.give_back(grant);
        }
        self.settle();
    }
}
