//! How the reference acquires.

use heirlock::local::graph::{Kind, Mode, NEVER};

use super::{Ask, Id, Naive, Reply, Wait};

impl Naive {
    pub(crate) fn acquire(&mut self, ask: Ask) -> Reply {
        let Ask { wait, worker, lock, depth, .. } = ask;
        self.asks = Some(wait);
        let mode = self.mode(lock, ask.mode);
        if let Some(reply) = self.reenter(worker, lock, mode, depth) {
            return reply;
        }
        if self.workers[&worker].sequential && self.find(worker, lock).is_some_and(|at| bars(self.holds[at].mode, mode)) {
            return self.refuse(worker, lock);
        }
        self.begin(ask, mode, false);
        if self.queue(lock)[0] == wait && self.fits(wait) {
            // It never waits.
            self.waits.remove(&wait);
            if let Some(entry) = self.locks.get_mut(&lock).filter(|entry| entry.oldest.is_some()) {
                entry.bypassed += 1;
            }
            self.have(worker, lock, mode, depth);
            return Reply::Held(self.depth(worker, lock));
        }
        self.close(ask)
    }

    pub(crate) fn refuse(&mut self, worker: Id, lock: Id) -> Reply {
        self.did.refused = Some(vec![(worker, lock, 0)]);
        Reply::Deadlock
    }

    /// The wait begins.
    pub(crate) fn begin(&mut self, ask: Ask, mode: Mode, upgrades: bool) {
        let Ask { wait, worker, lock, priority, .. } = ask;
        let deadline = self.workers[&worker].deadline.min(ask.deadline.unwrap_or(NEVER));
        let arrival = ask.arrival.unwrap_or(self.arrivals);
        self.arrivals = self.arrivals.max(arrival + 1);
        let (depth, expires) = (if upgrades { 1 } else { ask.depth }, ask.expires.unwrap_or(NEVER));
        let new =
            Wait { worker, lock, mode, upgrades, depth, priority, deadline, expires, arrival, granted: false, in_doubt: false, turn: 0 };
        self.waits.insert(wait, new);
    }

    /// It waits: what comes of that.
    pub(crate) fn close(&mut self, ask: Ask) -> Reply {
        let Ask { wait, worker, lock, .. } = ask;
        self.recount(lock);
        self.promote();
        let refused = self.resolve(worker, Some(wait));
        self.finish();
        let ended = self.did.ended.iter().position(|(ended, _)| *ended == wait).map(|at| self.did.ended.remove(at).1);
        if let Some(cycle) = refused.or(ended) {
            self.did.refused = Some(cycle);
            return Reply::Deadlock;
        }
        if self.waits.get(&wait).is_none_or(|wait| !wait.granted) {
            return Reply::Queued;
        }
        self.did.granted.retain(|granted| *granted != wait);
        self.waits.remove(&wait);
        self.take_note(worker, lock);
        Reply::Held(self.depth(worker, lock))
    }

    pub(crate) fn try_acquire(&mut self, worker: Id, lock: Id, mode: Mode, depth: u32) -> Reply {
        let mode = self.mode(lock, mode);
        if let Some(reply) = self.reenter(worker, lock, mode, depth) {
            return reply;
        }
        if !self.queue(lock).is_empty() || !self.admits(lock, mode, depth) {
            return Reply::No;
        }
        self.have(worker, lock, mode, depth);
        Reply::Held(self.depth(worker, lock))
    }

    fn reenter(&mut self, worker: Id, lock: Id, mode: Mode, depth: u32) -> Option<Reply> {
        let is_semaphore = self.kind(lock) == Kind::Semaphore;
        if is_semaphore && depth == 0 {
            return Some(Reply::Held(self.depth(worker, lock)));
        }
        let mut grants = self.untaken_of(worker, lock);
        let fits = |wait: &Wait| wait.mode == mode && !wait.upgrades && (!is_semaphore || wait.depth == depth);
        if let Some(grant) = grants.iter().copied().filter(|grant| fits(&self.waits[grant])).max_by_key(|grant| self.waits[grant].turn) {
            self.did.displaced.insert(grant, self.waits[&grant].arrival);
            let granted = self.waits.remove(&grant).unwrap();
            if let Some(at) = self.find(worker, lock) {
                self.holds[at].depth = self.holds[at].depth - granted.depth + depth;
            }
            self.take_note(worker, lock);
            return Some(Reply::Held(self.depth(worker, lock)));
        }
        if self.workers[&worker].sequential && self.kind(lock) == Kind::RwLock {
            grants.sort_by_key(|grant| std::cmp::Reverse(self.waits[grant].turn));
            for grant in grants {
                self.did.displaced.insert(grant, self.waits[&grant].arrival);
                self.give_back(grant);
            }
            self.compute();
        } else {
            self.doubt(grants);
        }
        if is_semaphore && self.has_holders(lock) && self.permits_to_be(worker, lock) + u64::from(depth) > u64::from(u32::MAX) {
            return Some(Reply::Overflow);
        }
        self.enters(worker, lock, mode).map(|at| {
            let Some(depth) = self.holds[at].depth.checked_add(depth) else { return Reply::Overflow };
            self.holds[at].depth = depth;
            if self.upgrade_of(worker, lock).is_some() {
                self.closers.push(worker);
            }
            Reply::Held(depth)
        })
    }

    /// The worker's hold that it may enter again.
    pub(crate) fn enters(&self, worker: Id, lock: Id, mode: Mode) -> Option<usize> {
        let at = self.find(worker, lock)?;
        let enters = match self.locks[&lock].spec.kind {
            Kind::RLock => true,
            Kind::RwLock => mode == Mode::Shared && self.holds[at].mode != Mode::Exclusive,
            _ => false,
        };
        enters.then_some(at)
    }
}

/// Whether who holds so would wait for itself.
fn bars(held: Mode, wanted: Mode) -> bool {
    matches!((held, wanted), (Mode::Shared | Mode::Upgradable, Mode::Exclusive) | (Mode::Upgradable, Mode::Upgradable))
}
