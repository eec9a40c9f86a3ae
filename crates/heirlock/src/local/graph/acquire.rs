//! Acquiring.

use super::Graph;
use super::effects::{Acquired, Effects, On, Request, Step};
use super::lock::{Kind, Mode};
use super::records::{LockKey, State, Wait, WaitKey, WorkerKey};
use super::search::Ways;
use super::slab::{Link, NIL};
use super::urgency::{NEVER, Urgency};

impl Graph {
    /// Acquires, or queues.
    ///
    /// A worker that has an untaken grant of just this takes that; what becomes of its other waits on the lock says [`take`](Graph::take). A grant of
    /// another mode, or of another number of permits, comes in doubt; of a read-write lock a sequential worker gives it back first. Of a condition it
    /// takes an untaken notification, and holds nothing: 0 levels; so it is
    /// with the permits of a semaphore that is not tracked. Whoever holds permits and acquires more queues for them like anybody.
    ///
    /// A reader that asks to write, and who is upgradable and asks to be so again or to write, would wait for itself: if it is sequential, that is
    /// refused at once.
    ///
    /// # Panics
    /// If the worker or the lock is unknown.
    pub fn acquire(&mut self, request: &Request, effects: &mut Effects) -> Acquired {
        let (worker, lock) = self.both(request.worker, request.lock);
        let mode = self.mode_of(lock, request.mode);
        if let Some(acquired) = self.reenter(worker, lock, mode, request.depth, effects) {
            return acquired;
        }
        if mode != Mode::Shared && self.workers[worker].sequential && self.find_hold(worker, lock).is_some_and(|hold| self.bars(hold, mode))
        {
            self.finish(effects);
            return refused(request, mode);
        }
        let wait = self.plan(worker, lock, mode, request);
        if self.locks[lock].admits(mode, wait.depth) && self.locks[lock].queue.leads(wait.urgency, wait.arrival) {
            self.locks[lock].queue.passed(NIL);
            return self.hold_now(worker, lock, request, mode, effects);
        }
        self.queue_up(wait, effects)
    }

    /// The wait, if it comes to that.
    #[inline]
    pub(super) fn plan(&mut self, worker: u32, lock: u32, mode: Mode, request: &Request) -> Wait {
        let entry = &self.workers[worker];
        let deadline = entry.deadline.min(request.deadline.unwrap_or(NEVER));
        let urgency = Urgency { priority: request.priority.unwrap_or(entry.base), deadline }.join(entry.inherited);
        let arrival = request.arrival.unwrap_or(self.arrivals);
        self.arrivals = self.arrivals.max(arrival + 1);
        Wait {
            worker,
            lock,
            mode,
            upgrades: false,
            depth: request.depth,
            priority: request.priority,
            deadline,
            expires: request.expires.unwrap_or(NEVER),
            arrival,
            urgency,
            state: State::Queued,
            in_doubt: false,
            origin: request.origin,
            places: [0; 4],
            link: [Link::NONE; 2],
        }
    }

    #[inline]
    pub(super) fn queue_up(&mut self, wait: Wait, effects: &mut Effects) -> Acquired {
        self.stamp(wait.lock, wait.origin.at);
        let own = self.waits.insert(wait);
        self.enqueue(own);
        self.close(own, effects)
    }

    /// A wait was queued: what comes of that.
    fn close(&mut self, own: u32, effects: &mut Effects) -> Acquired {
        let (worker, lock) = (self.waits[own].worker, self.waits[own].lock);
        let key = WaitKey(self.waits.id(own));
        self.settle();
        if self.is_settled() && !self.is_waited_for(worker) {
            // Nothing became grantable, and no way leads back to who waits.
            self.finish(effects);
            return Acquired::Queued(key);
        }
        if !self.stirred.is_empty() {
            self.cyclic = self.cyclic || self.find_cycle(worker, Ways::Boosts, false).is_some();
            self.promote(effects);
        }
        let refused = self.resolve(worker, Some(key), effects);
        self.follow(effects);
        let ended = effects.ended.iter().rposition(|(wait, _)| *wait == key).map(|at| effects.ended.remove(at).1);
        let acquired = if let Some(cycle) = refused.or(ended) {
            Acquired::Deadlock(cycle)
        } else if let Some(at) = effects.granted.iter().rposition(|wait| *wait == key) {
            effects.granted.remove(at);
            self.strike(own);
            self.take_note(worker, lock, effects);
            Acquired::Held(self.depth_of(worker, lock))
        } else {
            // It may have expired before its turn came; that is told as of any other.
            Acquired::Queued(key)
        };
        self.finish(effects);
        acquired
    }

    /// Acquires without waiting, or not at all. Nobody passes those who wait.
    ///
    /// # Panics
    /// If the worker or the lock is unknown.
    pub fn try_acquire(&mut self, request: &Request, effects: &mut Effects) -> Option<Acquired> {
        let (worker, lock) = self.both(request.worker, request.lock);
        let mode = self.mode_of(lock, request.mode);
        let entered = self.reenter(worker, lock, mode, request.depth, effects);
        if entered.is_some() {
            return entered;
        }
        if self.locks[lock].admits(mode, request.depth) && self.locks[lock].queue.is_empty() {
            return Some(self.hold_now(worker, lock, request, mode, effects));
        }
        self.finish(effects);
        None
    }

    /// What the worker may have because of what it has: its untaken grant, or a further level. Of permits, none or too many to be counted.
    fn reenter(&mut self, worker: u32, lock: u32, mode: Mode, depth: u32, effects: &mut Effects) -> Option<Acquired> {
        let is_semaphore = self.locks[lock].is_semaphore();
        if is_semaphore && depth == 0 {
            return Some(Acquired::Held(self.depth_of(worker, lock)));
        }
        if let Some(grant) = self.find_fitting(worker, lock, mode, depth) {
            self.take_as(grant, depth, effects);
            let depth = self.depth_of(worker, lock);
            self.finish(effects);
            return Some(Acquired::Held(depth));
        }
        if self.workers[worker].sequential && self.locks[lock].spec.kind == Kind::RwLock {
            // It is one line of work, which waits for nothing else while it asks for this.
            self.give_back_all(worker, lock, effects);
        } else {
            self.doubt_grants(worker, lock, effects);
        }
        if is_semaphore {
            if self.countable(worker, lock, depth) {
                return None;
            }
            self.finish(effects);
            return Some(Acquired::Overflow);
        }
        let hold = self.enters(worker, lock, mode)?;
        let levels = self.holds[hold].depth.checked_add(depth);
        self.deepen(hold, levels.unwrap_or(self.holds[hold].depth));
        self.finish(effects);
        Some(levels.map_or(Acquired::Overflow, Acquired::Held))
    }

    /// The worker's hold of the lock, if it may enter it again in this mode.
    pub(super) fn enters(&self, worker: u32, lock: u32, mode: Mode) -> Option<u32> {
        match self.locks[lock].spec.kind {
            Kind::RLock => self.find_hold(worker, lock),
            Kind::RwLock if mode == Mode::Shared => self.find_hold(worker, lock).filter(|hold| self.holds[*hold].mode != Mode::Exclusive),
            _ => None,
        }
    }

    fn hold_now(&mut self, worker: u32, lock: u32, request: &Request, mode: Mode, effects: &mut Effects) -> Acquired {
        let entry = &mut self.locks[lock];
        if entry.is_counted() {
            entry.free -= entry.price(request.depth);
        }
        if entry.is_held() {
            if request.origin.at != NEVER {
                // Of holders before this one nobody will ask any more.
                self.stamp(lock, request.origin.at);
            }
            let hold = self.add_hold(worker, lock, mode, request.depth);
            self.found(hold, request.origin);
            self.holds_more(worker);
        }
        self.stir(lock);
        let depth = self.depth_of(worker, lock);
        self.finish(effects);
        Acquired::Held(depth)
    }

    /// Whether who holds so would wait for itself, in a way that only it could end: a reader that asks to write, who is upgradable and asks to be.
    fn bars(&self, hold: u32, mode: Mode) -> bool {
        match self.holds[hold].mode {
            Mode::Shared => mode == Mode::Exclusive,
            Mode::Upgradable => mode != Mode::Shared,
            Mode::Exclusive => false,
        }
    }

    pub(super) fn depth_of(&self, worker: u32, lock: u32) -> u32 {
        self.find_hold(worker, lock).map_or(0, |hold| self.holds[hold].depth)
    }

    pub(super) fn both(&self, worker: WorkerKey, lock: LockKey) -> (u32, u32) {
        match (self.workers.slot(worker.0), self.locks.slot(lock.0)) {
            (Some(worker), Some(lock)) => (worker, lock),
            _ => panic!("{worker:?} or {lock:?} is unknown to the graph"),
        }
    }
}

/// Its own hold is in its way: it does not even queue.
pub(super) fn refused(request: &Request, mode: Mode) -> Acquired {
    let on = On::Lock { lock: request.lock, mode, wait: None, origin: request.origin };
    Acquired::Deadlock(vec![Step { worker: request.worker, on }])
}
