//! What an event does to the reference's lists: workers and locks that go, holds and waits that begin and end, grants, and cycles that are resolved.

use std::collections::BTreeSet;

use heirlock::local::graph::{DeadlockPolicy, Kind, Mode};

use super::view::Soft;
use super::{Cycle, Hold, Id, Naive, Reply, Wait};

impl Naive {
    pub(crate) fn remove_worker(&mut self, worker: Id) -> Reply {
        let gone: Vec<Id> = self.waits.iter().filter(|(_, wait)| wait.worker == worker).map(|(id, _)| *id).collect();
        for wait in gone {
            self.did.removed.insert(wait);
            if self.waits[&wait].granted {
                self.give_back(wait);
            } else {
                self.waits.remove(&wait);
            }
        }
        while let Some(at) = self.holds.iter().position(|hold| hold.worker == worker) {
            let hold = self.drop_hold(at);
            let free = &mut self.locks.get_mut(&hold.lock).unwrap().free;
            *free = free.saturating_add(u64::from(hold.depth));
        }
        let removed = self.workers.remove(&worker).unwrap();
        for fork in self.workers.values_mut().filter(|fork| fork.parent == Some(worker)) {
            fork.parent = removed.parent;
            fork.base = fork.base.max(removed.base);
        }
        for lock in self.locks.keys().copied().collect::<Vec<_>>() {
            self.recount(lock);
        }
        Reply::Done(true)
    }

    pub(crate) fn remove_lock(&mut self, lock: Id) -> Reply {
        let gone: Vec<Id> = self.waits.iter().filter(|(_, wait)| wait.lock == lock).map(|(id, _)| *id).collect();
        for wait in self.queue(lock).into_iter().chain(gone) {
            if self.waits.contains_key(&wait) {
                self.did.removed.insert(wait);
                self.end(wait);
            }
        }
        self.holds.retain(|hold| hold.lock != lock);
        self.locks.remove(&lock);
        Reply::Done(true)
    }

    pub(crate) fn mode(&self, lock: Id, mode: Mode) -> Mode {
        match self.locks[&lock].spec.kind {
            Kind::RwLock => mode,
            Kind::Semaphore => Mode::Shared,
            _ => Mode::Exclusive,
        }
    }

    pub(crate) fn add_hold(&mut self, worker: Id, lock: Id, mode: Mode, depth: u32) {
        match self.find(worker, lock) {
            Some(at) => {
                let hold = &mut self.holds[at];
                hold.depth = hold.depth.saturating_add(depth);
                if mode != Mode::Shared {
                    hold.mode = mode;
                }
            }
            None => self.holds.push(Hold { worker, lock, mode, depth }),
        }
        self.may_close(worker);
    }

    /// What the worker waits for, or what others wait for that it holds, has changed: a cycle over it may be closed, or be of another kind.
    pub(crate) fn may_close(&mut self, worker: Id) {
        if !self.pending(worker).is_empty() || self.workers.values().any(|fork| fork.parent == Some(worker)) {
            self.closers.push(worker);
        }
    }

    pub(crate) fn grant(&mut self, wait: Id) {
        let Wait { lock, upgrades, .. } = self.waits[&wait];
        if !upgrades && self.locks[&lock].oldest.is_some_and(|oldest| oldest != wait) {
            self.locks.get_mut(&lock).unwrap().bypassed += 1;
        }
        let granted = self.waits.get_mut(&wait).unwrap();
        granted.granted = true;
        self.turns += 1;
        granted.turn = self.turns;
        let Wait { worker, mode, depth, .. } = granted.clone();
        self.did.granted.push(wait);
        self.did.doubts |= self.waits[&wait].in_doubt;
        self.recount(lock);
        if upgrades {
            return self.harden(worker, lock);
        }
        self.have(worker, lock, mode, depth);
        if !self.has_holders(lock) && self.pending(worker).len() == 1 {
            self.doubtful.push(worker);
        }
    }

    /// It has what it was granted.
    pub(crate) fn have(&mut self, worker: Id, lock: Id, mode: Mode, depth: u32) {
        let entry = self.locks.get_mut(&lock).unwrap();
        if entry.spec.kind == Kind::Semaphore {
            entry.free -= u64::from(depth);
        } else if entry.spec.kind.is_condition() {
            entry.owed -= 1;
        }
        if self.has_holders(lock) {
            self.add_hold(worker, lock, mode, depth);
        }
    }

    /// A queued wait is no more.
    pub(crate) fn end(&mut self, wait: Id) {
        let Wait { worker, lock, granted, .. } = self.waits.remove(&wait).unwrap();
        self.recount(lock);
        if !granted && self.pending(worker).len() == 1 {
            self.doubtful.push(worker);
        }
    }

    pub(crate) fn give_back(&mut self, wait: Id) {
        let Wait { worker, lock, depth, mode, upgrades, .. } = self.waits.remove(&wait).unwrap();
        if self.is_condition(lock) {
            return self.owe(lock);
        }
        if self.kind(lock) == Kind::Semaphore {
            self.free_up(lock, depth);
        }
        if !self.has_holders(lock) {
            return;
        }
        let at = self.find(worker, lock).unwrap();
        if upgrades {
            return self.soften(at, Mode::Upgradable);
        }
        self.holds[at].depth -= depth;
        if self.holds[at].depth == 0 {
            self.drop_hold(at);
        } else if mode == Mode::Upgradable {
            self.soften(at, Mode::Shared);
        }
    }

    /// The worker has something of the lock that it knows of. Its other futures stay where they are, in doubt, unless they would have no place in the
    /// queue if they were polled now.
    pub(crate) fn take_note(&mut self, worker: Id, lock: Id) {
        self.doubt(self.untaken_of(worker, lock));
        let kind = self.kind(lock);
        let mut stays = false;
        for other in self.pending(worker) {
            let Wait { lock: of, mode, arrival, .. } = self.waits[&other];
            if of != lock {
                continue;
            }
            let asks_again = match kind {
                Kind::RLock => true,
                Kind::Semaphore | Kind::Condition | Kind::Event | Kind::Barrier => false,
                _ => self.workers[&worker].sequential || self.enters(worker, lock, mode).is_some(),
            };
            if asks_again {
                self.did.displaced.insert(other, arrival);
                self.end(other);
            } else {
                self.waits.get_mut(&other).unwrap().in_doubt = true;
                stays = true;
            }
        }
        if stays && self.has_holders(lock) {
            self.closers.push(worker);
        }
    }

    /// What the worker was granted of the lock and has not taken.
    pub(crate) fn untaken_of(&self, worker: Id, lock: Id) -> Vec<Id> {
        self.waits.iter().filter(|(_, wait)| wait.granted && (wait.worker, wait.lock) == (worker, lock)).map(|(id, _)| *id).collect()
    }

    pub(crate) fn doubt(&mut self, grants: Vec<Id>) {
        for grant in grants {
            let wait = self.waits.get_mut(&grant).unwrap();
            self.did.doubts |= !wait.in_doubt;
            wait.in_doubt = true;
        }
    }

    /// The condition's next waiter is to be notified.
    pub(crate) fn owe(&mut self, lock: Id) {
        self.locks.get_mut(&lock).unwrap().owed += 1;
    }

    pub(crate) fn recount(&mut self, lock: Id) {
        let oldest = self.queued(lock).into_iter().filter(|wait| !self.waits[wait].upgrades).min_by_key(|wait| self.waits[wait].arrival);
        let Some(entry) = self.locks.get_mut(&lock) else { return };
        if entry.spec.bypass.is_some() && entry.oldest != oldest {
            (entry.oldest, entry.bypassed) = (oldest, 0);
        }
    }

    pub(crate) fn promote(&mut self) {
        loop {
            self.compute();
            let Some(wait) = self.next_grant() else { break };
            if self.waits[&wait].expires <= self.now {
                self.end(wait);
                self.did.expired.push(wait);
            } else {
                self.grant(wait);
            }
        }
        for lock in self.locks.values_mut() {
            // Nobody waits: it is not kept.
            lock.owed = 0;
        }
    }

    /// Of the lock with the smallest id that has one.
    fn next_grant(&mut self) -> Option<Id> {
        for lock in self.locks.keys().copied().collect::<Vec<_>>() {
            let first = self.queue(lock).first().copied();
            if first.is_some_and(|first| self.fits(first)) {
                return first;
            }
            self.review(lock);
        }
        None
    }

    /// The closer's cycles. The one for which its own wait was refused.
    pub(crate) fn resolve(&mut self, worker: Id, own: Option<Id>) -> Option<Cycle> {
        while self.workers.contains_key(&worker) && own.is_none_or(|own| self.waits.get(&own).is_some_and(|wait| !wait.granted)) {
            self.compute();
            if !self.closes(worker, false, Soft::Any) && !self.closes_over_forks(worker) {
                return None;
            }
            let certain = self.closes(worker, true, Soft::None);
            let readers = if certain { BTreeSet::new() } else { self.kept_out(worker) };
            if certain || (readers.is_empty() && self.policy == DeadlockPolicy::ErrSuspected) {
                let cycle = self.named(worker, certain);
                let mut victim = *cycle.iter().find(|step| step.1 != 0).unwrap();
                if self.policy == DeadlockPolicy::LowestPriority {
                    for step in &cycle {
                        if self.workers[&step.0].base < self.workers[&victim.0].base {
                            victim = *step;
                        }
                    }
                }
                let wait = victim.2;
                self.end(wait);
                self.promote();
                if own == Some(wait) {
                    return Some(cycle);
                }
                self.did.ended.push((wait, cycle));
            } else if readers.is_empty() {
                self.did.suspected.push(worker);
                return None;
            } else {
                // The graph does not tell of the acquire's own grant.
                let told = self.did.granted.iter().filter(|granted| Some(**granted) != self.asks).count();
                let next = self.hint.granted.get(told).copied().filter(|wait| readers.contains(wait));
                let next = next.or(own.filter(|own| self.held && readers.contains(own)));
                let next = next.unwrap_or_else(|| panic!("one of {readers:?} should be let in"));
                self.let_in += 1;
                self.let_in_upgradable += usize::from(self.waits[&next].mode == Mode::Upgradable);
                self.let_in_late += usize::from(self.reviewed.contains(&worker));
                self.grant(next);
                self.promote();
            }
        }
        None
    }

    /// A cycle through the worker that the graph named: it must be one.
    fn named(&self, worker: Id, certain: bool) -> Cycle {
        let used: Vec<&Cycle> = self.did.ended.iter().map(|ended| &ended.1).collect();
        let hints = self.hint.ended.iter().map(|ended| &ended.1).filter(|cycle| !used.contains(cycle)).chain(&self.hint.refused);
        let mut fitting = hints.filter(|cycle| cycle[0].0 == worker && self.is_cycle(cycle, certain));
        fitting.next().unwrap_or_else(|| panic!("no cycle through {worker} was named: {:?}", self.hint)).clone()
    }

    fn is_cycle(&self, cycle: &Cycle, certain: bool) -> bool {
        (0..cycle.len()).all(|at| {
            let ((worker, lock, wait), (next, _, _)) = (cycle[at], cycle[(at + 1) % cycle.len()]);
            if lock == 0 {
                return !certain && self.workers[&next].parent == Some(worker);
            }
            let soft = if certain { Soft::None } else { Soft::Any };
            let waits = self.waits.get(&wait).is_some_and(|wait| !wait.granted && (wait.worker, wait.lock) == (worker, lock));
            waits && (!certain || self.sound(worker)) && self.ways(wait, soft).contains(&next)
        })
    }

    // What is to be compared.
}
