//! The reference's upgradable readers.

use heirlock::local::graph::{Kind, Mode};

use super::{Ask, Hold, Id, Naive, Reply};

impl Naive {
    pub(crate) fn upgrade(&mut self, ask: Ask) -> Reply {
        let Ask { wait, worker, lock, .. } = ask;
        self.asks = Some(wait);
        let at = match self.upgradable(worker, lock) {
            Ok(at) => at,
            Err(reply) => return reply,
        };
        let reads_too = self.holds[at].depth > 1;
        self.end_upgrade(worker, lock);
        if self.is_alone(worker, lock) {
            self.harden(worker, lock);
            return Reply::Held(1);
        }
        if reads_too && self.workers[&worker].sequential {
            return self.refuse(worker, lock);
        }
        self.begin(ask, Mode::Exclusive, true);
        self.close(ask)
    }

    pub(crate) fn try_upgrade(&mut self, worker: Id, lock: Id) -> Reply {
        match self.upgradable(worker, lock) {
            Err(reply) => reply,
            Ok(_) if self.is_alone(worker, lock) => {
                self.harden(worker, lock);
                Reply::Held(1)
            }
            Ok(_) => Reply::No,
        }
    }

    fn upgradable(&mut self, worker: Id, lock: Id) -> Result<usize, Reply> {
        if self.kind(lock) != Kind::RwLock {
            return Err(Reply::No);
        }
        let noted = self.note(worker, lock, Mode::Upgradable);
        while let Some(grant) = self.untaken(worker, lock) {
            self.did.displaced.insert(grant, self.waits[&grant].arrival);
            if self.waits[&grant].upgrades {
                self.waits.remove(&grant);
                self.take_note(worker, lock);
                return Err(Reply::Held(self.depth(worker, lock)));
            }
            self.give_back(grant);
            self.promote();
        }
        if noted {
            self.take_note(worker, lock);
        }
        match self.find(worker, lock).map(|at| (at, self.holds[at].mode)) {
            Some((at, Mode::Upgradable)) => Ok(at),
            Some((at, Mode::Exclusive)) => Err(Reply::Held(self.holds[at].depth)),
            _ => Err(Reply::No),
        }
    }

    pub(crate) fn downgrade(&mut self, worker: Id, lock: Id, to: Mode) -> Reply {
        let Some(at) = self.find(worker, lock).filter(|_| self.kind(lock) == Kind::RwLock) else { return Reply::Done(false) };
        let from = self.holds[at].mode;
        if !matches!((from, to), (Mode::Exclusive, Mode::Upgradable | Mode::Shared) | (Mode::Upgradable, Mode::Shared)) {
            return Reply::Done(false);
        }
        let noted = self.note(worker, lock, from);
        self.end_upgrade(worker, lock);
        self.soften(at, to);
        if noted {
            self.take_note(worker, lock);
        }
        Reply::Done(true)
    }

    pub(crate) fn transfer_upgradable(&mut self, lock: Id, from: Id, to: Id) -> Reply {
        let Some(at) = self.find(from, lock).filter(|at| self.holds[*at].mode == Mode::Upgradable) else { return Reply::Done(false) };
        if from == to || self.depth(to, lock) == u32::MAX {
            return Reply::Done(from == to);
        }
        self.note(from, lock, Mode::Upgradable);
        self.end_upgrade(from, lock);
        if self.holds[at].depth == 1 {
            self.drop_hold(at);
        } else {
            self.holds[at].depth -= 1;
            self.soften(at, Mode::Shared);
        }
        self.add_hold(to, lock, Mode::Upgradable, 1);
        Reply::Done(true)
    }

    pub(crate) fn release_mode(&mut self, worker: Id, lock: Id, mode: Mode) -> Reply {
        let mode = self.mode(lock, mode);
        let Some(at) = self.find(worker, lock) else { return Reply::NotHeld };
        let Hold { mode: held, depth, .. } = self.holds[at];
        if held != Mode::Upgradable {
            return if held == mode { self.release(worker, lock, 1) } else { Reply::NotHeld };
        }
        let reads = depth - 1;
        let mut noted = false;
        match mode {
            Mode::Exclusive => return Reply::NotHeld,
            Mode::Upgradable => {
                self.end_upgrade(worker, lock);
                noted = self.note(worker, lock, mode);
            }
            Mode::Shared if reads == 0 => return Reply::NotHeld,
            Mode::Shared => {
                let told = self.told(worker, lock, mode);
                let untaken: u32 = told.iter().map(|grant| self.waits[grant].depth).sum();
                if untaken >= reads {
                    // The last that was granted.
                    let last = told.into_iter().max_by_key(|grant| self.waits[grant].turn);
                    noted = last.is_some_and(|last| self.waits.remove(&last).is_some());
                }
            }
        }
        self.holds[at].depth -= 1;
        if self.holds[at].depth == 0 {
            self.drop_hold(at);
            return Reply::Freed;
        }
        if mode == Mode::Upgradable {
            self.soften(at, Mode::Shared);
        }
        if noted {
            self.take_note(worker, lock);
        }
        Reply::Kept(depth - 1)
    }

    /// Whether nobody but the worker holds it, and that once.
    pub(crate) fn is_alone(&self, worker: Id, lock: Id) -> bool {
        self.holds.iter().filter(|hold| hold.lock == lock).all(|hold| hold.worker == worker && hold.depth == 1)
    }

    pub(crate) fn harden(&mut self, worker: Id, lock: Id) {
        let at = self.find(worker, lock).unwrap();
        self.holds[at].mode = Mode::Exclusive;
        self.may_close(worker);
    }

    pub(crate) fn soften(&mut self, at: usize, to: Mode) {
        self.holds[at].mode = to;
        let Hold { worker, lock, .. } = self.holds[at];
        self.locks.get_mut(&lock).unwrap().loosened = to == Mode::Shared;
        self.may_close(worker);
    }

    pub(crate) fn drop_hold(&mut self, at: usize) -> Hold {
        let hold = self.holds.remove(at);
        if hold.mode != Mode::Shared && self.holds.iter().any(|other| other.lock == hold.lock) {
            self.locks.get_mut(&hold.lock).unwrap().loosened = true;
        }
        hold
    }

    /// The first of the queue cannot be granted. If who was upgradable has become a reader or left some, those who would be so wait for the readers
    /// now.
    pub(crate) fn review(&mut self, lock: Id) {
        if !std::mem::take(&mut self.locks.get_mut(&lock).unwrap().loosened) || !self.beside(lock, Mode::Upgradable) {
            return;
        }
        let mut waits = self.queued(lock);
        waits.retain(|wait| self.waits[wait].mode == Mode::Upgradable);
        waits.sort_by_key(|wait| self.waits[wait].arrival);
        for wait in waits {
            let worker = self.waits[&wait].worker;
            self.closers.push(worker);
            self.reviewed.push(worker);
        }
    }

    pub(crate) fn upgrade_of(&self, worker: Id, lock: Id) -> Option<Id> {
        self.pending(worker).into_iter().find(|wait| self.waits[wait].upgrades && self.waits[wait].lock == lock)
    }

    pub(crate) fn end_upgrade(&mut self, worker: Id, lock: Id) {
        if let Some(wait) = self.upgrade_of(worker, lock) {
            self.did.displaced.insert(wait, self.waits[&wait].arrival);
            self.end(wait);
        }
    }

    /// Grants in this mode of which the worker has not taken note.
    fn told(&self, worker: Id, lock: Id, mode: Mode) -> Vec<Id> {
        let told = self.waits.iter().filter(|(_, wait)| wait.granted && (wait.worker, wait.lock, wait.mode) == (worker, lock, mode));
        told.map(|(id, _)| *id).collect()
    }

    /// It has taken note of them now. Whether there were any.
    fn note(&mut self, worker: Id, lock: Id, mode: Mode) -> bool {
        let told = self.told(worker, lock, mode);
        self.waits.retain(|id, _| !told.contains(id));
        !told.is_empty()
    }
}
