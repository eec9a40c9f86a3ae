//! What follows from the reference's lists: urgencies, queues, and who waits for whom.

use std::collections::{BTreeMap, BTreeSet};

use heirlock::local::graph::{Kind, Mode, NEVER, Order, Urgency};

use super::{Hold, Id, Naive, Wait};

impl Naive {
    // What follows.

    pub(crate) fn compute(&mut self) {
        for worker in self.workers.values_mut() {
            worker.inherited = Urgency::NONE;
        }
        loop {
            let mut changed = false;
            for id in self.workers.keys().copied().collect::<Vec<_>>() {
                let mut inherited = self.workers[&id].parent.map_or(Urgency::NONE, |parent| self.effective(parent));
                for wait in self.waits.values().filter(|wait| !wait.granted && wait.worker != id && self.find(id, wait.lock).is_some()) {
                    inherited = inherited.join(self.urgency(wait));
                }
                let entry = self.workers.get_mut(&id).unwrap();
                changed |= entry.inherited != inherited;
                entry.inherited = inherited;
            }
            if !changed {
                return;
            }
        }
    }

    pub(crate) fn urgency(&self, wait: &Wait) -> Urgency {
        let worker = &self.workers[&wait.worker];
        Urgency { priority: wait.priority.unwrap_or(worker.base), deadline: wait.deadline }.join(worker.inherited)
    }

    pub(crate) fn effective(&self, worker: Id) -> Urgency {
        let deadline = self.pending(worker).into_iter().map(|wait| self.waits[&wait].deadline).min().unwrap_or(NEVER);
        Urgency { priority: self.workers[&worker].base, deadline }.join(self.workers[&worker].inherited)
    }

    pub(crate) fn effectives(&self) -> BTreeMap<Id, Urgency> {
        self.workers.keys().map(|worker| (*worker, self.effective(*worker))).collect()
    }

    pub(crate) fn queued(&self, lock: Id) -> Vec<Id> {
        self.waits.iter().filter(|(_, wait)| !wait.granted && wait.lock == lock).map(|(id, _)| *id).collect()
    }

    pub(crate) fn queue(&self, lock: Id) -> Vec<Id> {
        let entry = &self.locks[&lock];
        let overdue = entry.oldest.filter(|_| entry.spec.bypass.is_some_and(|limit| entry.bypassed >= limit.get()));
        let mut queue = self.queued(lock);
        queue.sort_by_key(|id| {
            let wait = &self.waits[id];
            let Urgency { priority, deadline } = self.urgency(wait);
            let (priority, deadline) = (-i64::from(priority), i128::from(deadline));
            let (first, second) = match entry.spec.order {
                Order::Priority => (i128::from(priority), deadline),
                Order::Deadline => (deadline, i128::from(priority)),
                Order::Fifo => (0, 0),
            };
            (!wait.upgrades, overdue != Some(*id), first, second, wait.arrival)
        });
        queue
    }

    pub(crate) fn pending(&self, worker: Id) -> Vec<Id> {
        self.waits.iter().filter(|(_, wait)| !wait.granted && wait.worker == worker).map(|(id, _)| *id).collect()
    }

    pub(crate) fn untaken(&self, worker: Id, lock: Id) -> Option<Id> {
        // Which of several grants of one reader is taken does not matter to it; the graph takes the last.
        let mine = |wait: &Wait| wait.granted && wait.worker == worker && wait.lock == lock;
        self.waits.iter().filter(|(_, wait)| mine(wait)).max_by_key(|(_, wait)| wait.turn).map(|(id, _)| *id)
    }

    pub(crate) fn find(&self, worker: Id, lock: Id) -> Option<usize> {
        self.holds.iter().position(|hold| hold.worker == worker && hold.lock == lock)
    }

    pub(crate) fn depth(&self, worker: Id, lock: Id) -> u32 {
        self.find(worker, lock).map_or(0, |at| self.holds[at].depth)
    }

    pub(crate) fn beside(&self, lock: Id, mode: Mode) -> bool {
        self.holds.iter().filter(|hold| hold.lock == lock).all(|hold| compatible(hold.mode, mode))
    }

    pub(crate) fn fits(&self, wait: Id) -> bool {
        let Wait { worker, lock, mode, upgrades, depth, .. } = self.waits[&wait];
        if upgrades { self.is_alone(worker, lock) } else { self.admits(lock, mode, depth) }
    }

    pub(crate) fn admits(&self, lock: Id, mode: Mode, depth: u32) -> bool {
        match self.kind(lock) {
            Kind::Semaphore => self.locks[&lock].free >= u64::from(depth),
            kind if kind.is_condition() => self.locks[&lock].owed > 0,
            _ => self.beside(lock, mode),
        }
    }

    /// Whether only its place in the queue keeps a wait from holding beside those who hold.
    pub(crate) fn is_kept_out(&self, wait: Id) -> bool {
        let Wait { lock, mode, .. } = self.waits[&wait];
        self.kind(lock) != Kind::Semaphore && mode != Mode::Exclusive && self.beside(lock, mode)
    }

    // Cycles.

    pub(crate) fn sound(&self, worker: Id) -> bool {
        self.workers[&worker].sequential && self.pending(worker).len() == 1
    }

    /// Whom a wait waits for.
    pub(crate) fn ways(&self, wait: Id, soft: Soft) -> BTreeSet<Id> {
        let Wait { worker, lock, mode, upgrades, .. } = self.waits[&wait];
        let kept_out = self.is_kept_out(wait);
        if kept_out && soft == Soft::None {
            return BTreeSet::new();
        }
        let others = |other: &&Wait| other.granted && other.worker == worker && other.lock == lock;
        let untaken: u32 = self.waits.values().filter(others).map(|other| other.depth).sum();
        let told_upgradable = self.waits.values().filter(others).any(|other| other.mode == Mode::Upgradable);
        let bars = |hold: &&Hold| {
            if hold.lock != lock || (mode == Mode::Upgradable && !kept_out && hold.mode == Mode::Shared) {
                return false;
            }
            match hold.mode {
                _ if hold.worker != worker => true,
                // What it has of its own, and knows of; its upgradable level is not in its way.
                _ if upgrades => untaken + 1 < hold.depth,
                Mode::Upgradable if mode == Mode::Upgradable => !told_upgradable,
                _ => untaken < hold.depth,
            }
        };
        self.holds.iter().filter(bars).map(|hold| hold.worker).collect()
    }

    /// All whom the worker waits for, directly or not.
    pub(crate) fn reach(&self, from: Id, certain: bool, soft: Soft, forks: bool) -> BTreeSet<Id> {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(worker) = open.pop() {
            if certain && !self.sound(worker) {
                continue;
            }
            for wait in self.pending(worker) {
                if !certain || self.locks[&self.waits[&wait].lock].spec.owned {
                    open.extend(self.ways(wait, soft).into_iter().filter(|to| reached.insert(*to)));
                }
            }
            if forks {
                let mine = self.workers.iter().filter(|(_, fork)| fork.parent == Some(worker)).map(|(id, _)| *id);
                open.extend(mine.filter(|to| reached.insert(*to)));
            }
        }
        reached
    }

    pub(crate) fn closes(&self, worker: Id, certain: bool, soft: Soft) -> bool {
        self.reach(worker, certain, soft, false).contains(&worker)
    }

    pub(crate) fn closes_over_forks(&self, worker: Id) -> bool {
        self.reach(worker, false, Soft::Any, true).contains(&worker)
    }

    pub(crate) fn suspected(&self) -> bool {
        self.workers.keys().any(|worker| self.closes_over_forks(*worker))
    }

    /// Readers that only writers before them keep out, on cycles through the worker; on certain ones if there are any.
    pub(crate) fn kept_out(&self, worker: Id) -> BTreeSet<Id> {
        for certain in [true, false] {
            let mut from = self.reach(worker, certain, Soft::Any, false);
            from.insert(worker);
            let readers = from.iter().filter(|reader| !certain || self.sound(**reader)).flat_map(|reader| self.pending(*reader));
            let readers = readers.filter(|wait| {
                let lock = self.waits[wait].lock;
                let back = |to: &Id| {
                    (*to == worker && (!certain || self.sound(worker))) || self.reach(*to, certain, Soft::Any, false).contains(&worker)
                };
                self.is_kept_out(*wait) && (!certain || self.locks[&lock].spec.owned) && self.ways(*wait, Soft::Any).iter().any(back)
            });
            let readers: BTreeSet<Id> = readers.collect();
            if !readers.is_empty() {
                return readers;
            }
        }
        BTreeSet::new()
    }
}

/// Whether a reader that only writers before it keep out waits for the readers inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Soft {
    None,
    Any,
}

/// Whether two workers may hold so at once.
fn compatible(one: Mode, other: Mode) -> bool {
    [one, other].contains(&Mode::Shared) && ![one, other].contains(&Mode::Exclusive)
}
