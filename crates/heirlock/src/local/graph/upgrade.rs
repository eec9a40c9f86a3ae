//! Upgradable holders: the one reader beside others that may become the writer.
//!
//! A worker has one hold of a lock, whatever it holds: whoever asks who holds, or whom a wait is in the way of, asks once. Its mode is that of its
//! strongest level, its depth counts all. So an upgradable hold of three levels is one upgradable and two of a reader, in whatever order they came
//! and go; who gives one up says which ([`Graph::release_mode`]).
//!
//! An upgrade is a wait whose worker holds already. Granted, the hold is exclusive; given back, it is upgradable as before. Readers that the worker
//! itself has are in its way like those of others, or it would write what it still reads.

use super::Graph;
use super::acquire::refused;
use super::effects::{Acquired, Displaced, Effects, Released, Request};
use super::lock::{Kind, Mode};
use super::records::{Hold, LockKey, OF_LOCK, Wait, WaitKey, WorkerKey};
use super::slab::NIL;

impl Graph {
    /// Makes an upgradable hold exclusive: at once if nobody else holds, else when the last other reader has gone. It waits before all who are
    /// queued, whatever its urgency: of those whom it keeps out only readers could be granted anything before it, and they came later.
    ///
    /// An untaken grant of an earlier upgrade is taken; an earlier one that still waits loses its place, as do all other grants of the lock that the
    /// worker has not taken. Who has read levels of its own beside the upgradable one waits for itself, which is refused at once if it is
    /// sequential. The mode and the depth of the request do not matter. None if the worker holds the lock neither upgradable nor exclusively.
    ///
    /// # Panics
    /// If the worker or the lock is unknown.
    pub fn upgrade(&mut self, request: &Request, effects: &mut Effects) -> Option<Acquired> {
        let (worker, lock) = self.both(request.worker, request.lock);
        let hold = match self.upgradable(worker, lock, effects) {
            Ok(hold) => hold,
            Err(acquired) => return acquired,
        };
        self.end_upgrade(worker, lock, effects);
        if self.is_alone(worker, lock) {
            return Some(self.upgrade_now(worker, lock, effects));
        }
        if self.workers[worker].sequential && self.holds[hold].depth > 1 {
            self.finish(effects);
            return Some(refused(request, Mode::Exclusive));
        }
        let wait = self.plan(worker, lock, Mode::Exclusive, request);
        Some(self.queue_up(Wait { upgrades: true, depth: 1, ..wait }, effects))
    }

    /// Makes an upgradable hold exclusive if that needs no wait; it passes who waits, like any upgrade. None if it does, or if the worker holds the
    /// lock neither upgradable nor exclusively.
    ///
    /// # Panics
    /// If the worker or the lock is unknown.
    pub fn try_upgrade(&mut self, worker: WorkerKey, lock: LockKey, effects: &mut Effects) -> Option<Acquired> {
        let (worker, lock) = self.both(worker, lock);
        if let Err(acquired) = self.upgradable(worker, lock, effects) {
            return acquired;
        }
        if self.is_alone(worker, lock) {
            return Some(self.upgrade_now(worker, lock, effects));
        }
        self.finish(effects);
        None
    }

    /// Holds less strongly from now on: who was exclusive is upgradable or a reader, who was upgradable is a reader. All levels stay; of several
    /// exclusive ones, one becomes upgradable. Who can hold beside it now is granted that. An upgrade of the worker that waits loses its place.
    /// False if it does not hold the lock in a stronger mode than this.
    pub fn downgrade(&mut self, worker: WorkerKey, lock: LockKey, to: Mode, effects: &mut Effects) -> bool {
        let (Some(worker), Some(lock)) = (self.workers.slot(worker.0), self.locks.slot(lock.0)) else { return false };
        let hold = self.find_hold(worker, lock).filter(|_| self.locks[lock].spec.kind == Kind::RwLock);
        let Some(hold) = hold.filter(|hold| to.is_weaker(self.holds[*hold].mode)) else { return false };
        let noted = self.note(worker, lock, self.holds[hold].mode);
        self.end_upgrade(worker, lock, effects);
        self.soften(hold, to);
        if noted {
            self.take_note(worker, lock, effects);
        }
        self.finish(effects);
        true
    }

    /// Gives the upgradable level of a hold to another worker; what else it has it keeps, as a reader. An upgrade of it that waits loses its place. False
    /// if it is not upgradable, or if the other would hold more levels than can be counted.
    pub fn transfer_upgradable(&mut self, lock: LockKey, from: WorkerKey, to: WorkerKey, effects: &mut Effects) -> bool {
        let (Some(from), Some(to)) = (self.workers.slot(from.0), self.workers.slot(to.0)) else { return false };
        let Some(lock) = self.locks.slot(lock.0) else { return false };
        let Some(hold) = self.find_hold(from, lock).filter(|hold| self.holds[*hold].mode == Mode::Upgradable) else { return false };
        if self.depth_of(to, lock) == u32::MAX {
            return false;
        }
        if from == to {
            return true;
        }
        self.note(from, lock, Mode::Upgradable);
        self.end_upgrade(from, lock, effects);
        let Hold { depth, origin, .. } = self.holds[hold];
        if depth == 1 {
            self.drop_hold(hold);
        } else {
            self.holds[hold].depth = depth - 1;
            self.soften(hold, Mode::Shared);
        }
        self.settle();
        // Nothing was granted in between.
        let hold = self.add_hold(to, lock, Mode::Upgradable, 1);
        self.found(hold, origin);
        self.holds_more(to);
        self.finish(effects);
        true
    }

    /// Gives up one level of this mode, where a hold may have levels of two: who is upgradable may read beside that. When the upgradable level goes,
    /// what remains is a reader's, and an upgrade that waits loses its place.
    pub fn release_mode(&mut self, worker: WorkerKey, lock: LockKey, mode: Mode, effects: &mut Effects) -> Released {
        let (Some(slot), Some(of)) = (self.workers.slot(worker.0), self.locks.slot(lock.0)) else { return Released::NotHeld };
        let Some(hold) = self.find_hold(slot, of) else { return Released::NotHeld };
        let (strongest, depth, mode) = (self.holds[hold].mode, self.holds[hold].depth, self.mode_of(of, mode));
        let noted = match (strongest, mode) {
            (Mode::Upgradable, Mode::Upgradable) => {
                self.end_upgrade(slot, of, effects);
                self.note(slot, of, mode)
            }
            // If all its reads but so many are not taken, it has taken note of one.
            (Mode::Upgradable, Mode::Shared) if depth > 1 => depth - 1 <= self.untaken_reads(slot, of) && self.note_last(slot, of, mode),
            _ if strongest == mode => return self.release(worker, lock, effects),
            _ => return Released::NotHeld,
        };
        let left = self.lower(hold, 1);
        if left > 0 && mode == Mode::Upgradable {
            self.soften(hold, Mode::Shared);
        }
        if noted && left > 0 {
            self.take_note(slot, of, effects);
        }
        self.finish(effects);
        if left == 0 { Released::Freed } else { Released::Kept(left) }
    }

    /// The upgradable hold of who would upgrade it; if there is none, what is to be said.
    fn upgradable(&mut self, worker: u32, lock: u32, effects: &mut Effects) -> Result<u32, Option<Acquired>> {
        if self.locks[lock].spec.kind != Kind::RwLock {
            return Err(None);
        }
        // Who upgrades what it was granted has taken note.
        let noted = self.note(worker, lock, Mode::Upgradable);
        while let Some(grant) = self.find_untaken(worker, lock) {
            let Wait { arrival, upgrades, .. } = self.waits[grant];
            effects.displaced.push(Displaced { wait: WaitKey(self.waits.id(grant)), arrival });
            if upgrades {
                self.strike(grant);
                self.take_note(worker, lock, effects);
                return Err(Some(self.has(worker, lock, effects)));
            }
            self.give_back(grant);
            self.promote(effects);
        }
        if noted {
            self.take_note(worker, lock, effects);
        }
        match self.find_hold(worker, lock).map(|hold| (self.holds[hold].mode, hold)) {
            Some((Mode::Upgradable, hold)) => Ok(hold),
            Some((Mode::Exclusive, _)) => Err(Some(self.has(worker, lock, effects))),
            Some((Mode::Shared, _)) | None => {
                self.finish(effects);
                Err(None)
            }
        }
    }

    fn upgrade_now(&mut self, worker: u32, lock: u32, effects: &mut Effects) -> Acquired {
        self.harden(worker, lock);
        self.has(worker, lock, effects)
    }

    fn has(&mut self, worker: u32, lock: u32, effects: &mut Effects) -> Acquired {
        let depth = self.depth_of(worker, lock);
        self.finish(effects);
        Acquired::Held(depth)
    }

    /// Whether nobody holds the lock but this worker, and that only once: what an upgrade waits for.
    pub(super) fn is_alone(&self, worker: u32, lock: u32) -> bool {
        let hold = self.locks[lock].holds;
        hold != NIL && self.holds[hold].worker == worker && self.holds[hold].depth == 1 && self.holds[hold].link[OF_LOCK].next == NIL
    }

    /// The worker, who is alone, holds exclusively: who was kept out by a place in the queue waits for it.
    pub(super) fn harden(&mut self, worker: u32, lock: u32) {
        if let Some(hold) = self.find_hold(worker, lock) {
            self.holds[hold].mode = Mode::Exclusive;
            self.locks[lock].mode = Mode::Exclusive;
            self.holds_more(worker);
        }
    }

    /// The hold, which is the strongest of its lock, is less strong. What waited for its worker may be kept out by its place only, so that a cycle
    /// over it can be resolved.
    pub(super) fn soften(&mut self, hold: u32, to: Mode) {
        let Hold { worker, lock, .. } = self.holds[hold];
        self.holds[hold].mode = to;
        let entry = &mut self.locks[lock];
        entry.mode = to;
        entry.loosened = to == Mode::Shared && !entry.queue.is_empty();
        let entry = &self.workers[worker];
        if entry.pending > 0 || entry.forks != NIL {
            self.grantees.push(worker);
        }
        self.stir(lock);
    }

    /// The first of a loosened lock's queue can still not be granted. Who would be upgradable waits for the readers now, too, because of a writer
    /// before it; and nobody has looked whether these wait for it.
    pub(super) fn review(&mut self, lock: u32) {
        let entry = &self.locks[lock];
        if !entry.admits(Mode::Upgradable, 1) {
            return;
        }
        let waits = entry.queue.slots(&self.waits).filter(|slot| self.waits[*slot].mode == Mode::Upgradable);
        let mut waits: Vec<u32> = waits.collect();
        waits.sort_unstable_by_key(|slot| self.waits[*slot].arrival);
        self.grantees.extend(waits.into_iter().map(|slot| self.waits[slot].worker));
    }

    /// The upgrade of the worker that waits.
    pub(super) fn find_upgrade(&self, worker: u32, lock: u32) -> Option<u32> {
        let mut wait = self.workers[worker].waits;
        while wait != NIL && !(self.waits[wait].lock == lock && self.waits[wait].upgrades) {
            wait = self.waits[wait].link[0].next;
        }
        (wait != NIL).then_some(wait)
    }

    /// What the worker would upgrade goes, or another upgrade comes: the one that waits loses its place.
    pub(super) fn end_upgrade(&mut self, worker: u32, lock: u32, effects: &mut Effects) {
        if let Some(wait) = self.find_upgrade(worker, lock) {
            let arrival = self.waits[wait].arrival;
            effects.displaced.push(Displaced { wait: self.end(wait), arrival });
        }
    }

    /// Strikes the worker's grants of this mode off the untaken: it has taken note of them. Whether there were any.
    fn note(&mut self, worker: u32, lock: u32, mode: Mode) -> bool {
        let mut noted = false;
        while self.note_last(worker, lock, mode) {
            noted = true;
        }
        noted
    }

    /// The last of them.
    fn note_last(&mut self, worker: u32, lock: u32, mode: Mode) -> bool {
        let grant = self.find_untaken_mode(worker, lock, mode);
        grant.map(|grant| self.strike(grant)).is_some()
    }

    /// A grant of the lock in this mode that the worker has not taken note of.
    pub(super) fn find_untaken_mode(&self, worker: u32, lock: u32, mode: Mode) -> Option<u32> {
        self.untaken_of(worker, lock).find(|slot| self.waits[*slot].mode == mode)
    }

    /// How many levels it was granted as a reader and has not taken note of.
    fn untaken_reads(&self, worker: u32, lock: u32) -> u32 {
        let reads = self.untaken_of(worker, lock).filter(|slot| self.waits[*slot].mode == Mode::Shared);
        reads.fold(0, |levels, slot| levels.saturating_add(self.waits[slot].depth))
    }
}
