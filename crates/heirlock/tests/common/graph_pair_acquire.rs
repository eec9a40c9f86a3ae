//! How both acquire.

use heirlock::local::graph::{self, Acquired, LockKey, Origin, Request, WaitKey, WorkerKey};

use super::Pair;
use crate::common::graph_naive::{Ask, Id, Reply};

impl Pair {
    pub(crate) fn acquire(&mut self, worker: Id, lock: Id) {
        if !self.naive.pending(worker).is_empty() && !self.random.chance(self.flavour.several) {
            return;
        }
        let mut ask = Ask {
            wait: self.next_wait,
            worker,
            lock,
            mode: self.mode(),
            depth: self.levels(lock),
            priority: if self.random.chance(20) { Some(self.priority()) } else { None },
            deadline: self.deadline(),
            expires: if self.random.chance(10) { Some(self.now + self.random.within(0, 8)) } else { None },
            arrival: None,
        };
        let again = self.displaced.pop().filter(|(worker, lock, ..)| self.workers.contains(worker) && self.locks.contains(lock));
        let parted = self.parted.pop().filter(|(worker, lock, _)| self.workers.contains(worker) && self.locks.contains(lock));
        if let Some((worker, lock, true, arrival)) = again {
            return self.upgrade(worker, lock, Some(arrival));
        }
        if let Some((worker, lock, _, arrival)) = again {
            (ask.worker, ask.lock, ask.arrival, ask.depth) = (worker, lock, Some(arrival), self.levels(lock));
        } else if let Some((worker, lock, depth)) = parted {
            (ask.worker, ask.lock, ask.depth) = (worker, lock, depth);
        }
        self.ask(ask);
    }

    pub(crate) fn ask(&mut self, ask: Ask) {
        self.next_wait += 1;
        self.asked.insert(ask.wait, (ask.worker, ask.lock, false));
        let request = request(ask);
        self.event(
            &format!("{ask:?}"),
            |graph, effects, names| acquired(graph.acquire(&request, effects), ask.wait, names),
            |naive| naive.acquire(ask),
        );
    }

    pub(crate) fn try_acquire(&mut self, worker: Id, lock: Id) {
        let (mode, depth) = (self.mode(), self.levels(lock));
        let (w, l) = (WorkerKey::from_number(worker), LockKey::from_number(lock));
        self.event(
            &format!("{worker} tries {lock} {mode:?} {depth}"),
            |graph, effects, _| {
                let reply = match graph.try_acquire(&Request { depth, ..Request::new(w, l, mode) }, effects) {
                    None => Reply::No,
                    Some(Acquired::Held(depth)) => Reply::Held(depth),
                    Some(Acquired::Overflow) => Reply::Overflow,
                    Some(other) => panic!("{other:?}"),
                };
                (reply, None)
            },
            |naive| naive.try_acquire(worker, lock, mode, depth),
        );
    }
}

pub(crate) fn request(ask: Ask) -> Request {
    let Ask { mode, depth, priority, deadline, expires, arrival, .. } = ask;
    let (worker, lock) = (WorkerKey::from_number(ask.worker), LockKey::from_number(ask.lock));
    Request { worker, lock, mode, depth, priority, deadline, expires, arrival, origin: Origin::UNKNOWN }
}

pub(crate) fn acquired(acquired: Acquired, wait: Id, names: &mut Vec<(WaitKey, Id)>) -> (Reply, Option<graph::Cycle>) {
    match acquired {
        Acquired::Held(depth) => (Reply::Held(depth), None),
        Acquired::Queued(key) => {
            names.push((key, wait));
            (Reply::Queued, None)
        }
        Acquired::Deadlock(cycle) => (Reply::Deadlock, Some(cycle)),
        Acquired::Overflow => (Reply::Overflow, None),
    }
}
