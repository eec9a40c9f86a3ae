//! What befalls upgradable readers.

use heirlock::local::graph::{Acquired, Kind, LockKey, LockSpec, Mode, WorkerKey};

use super::acquire::{acquired, request};
use super::{Pair, replied};
use crate::common::graph_naive::{Ask, Hold, Id, Reply};

impl Pair {
    pub(crate) fn step_upgrade(&mut self) {
        if self.random.within(0, 2000) == 0 {
            return self.scene();
        }
        let holds = self.naive.holds().iter().filter(|hold| self.naive.kind(hold.lock) == Kind::RwLock);
        let (mut upgradable, mut holds): (Vec<Hold>, Vec<Hold>) = holds.cloned().partition(|hold| hold.mode == Mode::Upgradable);
        if self.random.chance(10) {
            // Whoever holds otherwise is told so.
            std::mem::swap(&mut upgradable, &mut holds);
        }
        if upgradable.is_empty() || !self.random.chance(15) {
            return;
        }
        let Hold { worker, lock, .. } = upgradable[self.random.index(upgradable.len())];
        match self.random.within(0, 10) {
            0..5 => self.upgrade(worker, lock, None),
            5 if self.random.chance(50) => self.try_upgrade(worker, lock),
            5 => self.transfer_upgradable(lock, worker),
            6 => {
                let to = self.mode();
                self.downgrade_to(worker, lock, to);
            }
            _ => {
                let mode = self.mode();
                self.release_as(worker, lock, mode);
            }
        }
    }

    /// What chance alone brings too rarely: a reader waits for who would be upgradable, and would be let in but for who is; and that one goes.
    fn scene(&mut self) {
        let [lock, key] = [Kind::RwLock, Kind::Mutex].map(|kind| self.new_lock(LockSpec::new(kind)));
        let [first, reader, next, writer] = [(); 4].map(|()| {
            let sequential = !self.random.chance(self.flavour.bare);
            self.new_worker(1, None, None, sequential)
        });
        let asks = [
            (first, lock, Mode::Upgradable),
            (reader, lock, Mode::Shared),
            (next, key, Mode::Exclusive),
            // The reader passes on the writer's urgency, which is before it by its arrival only.
            (writer, lock, Mode::Exclusive),
            (next, lock, Mode::Upgradable),
            (reader, key, Mode::Exclusive),
        ];
        for (worker, lock, mode) in asks {
            let wait = self.next_wait;
            self.ask(Ask { wait, worker, lock, mode, depth: 1, priority: None, deadline: None, expires: None, arrival: None });
        }
        match self.random.within(0, 4) {
            0 => self.remove_worker(first),
            1 => self.downgrade_to(first, lock, Mode::Shared),
            2 => self.release_as(first, lock, Mode::Upgradable),
            _ => self.release_levels(first, lock, 1),
        }
    }

    pub(crate) fn upgrade(&mut self, worker: Id, lock: Id, arrival: Option<u64>) {
        let ask = Ask {
            wait: self.next_wait,
            worker,
            lock,
            mode: self.mode(),
            depth: 1,
            priority: if self.random.chance(20) { Some(self.priority()) } else { None },
            deadline: self.deadline(),
            expires: if self.random.chance(10) { Some(self.now + self.random.within(0, 8)) } else { None },
            arrival,
        };
        self.next_wait += 1;
        self.asked.insert(ask.wait, (worker, lock, true));
        let request = request(ask);
        self.event(
            &format!("upgrade {ask:?}"),
            |graph, effects, names| {
                graph.upgrade(&request, effects).map_or((Reply::No, None), |upgraded| acquired(upgraded, ask.wait, names))
            },
            |naive| naive.upgrade(ask),
        );
    }

    fn try_upgrade(&mut self, worker: Id, lock: Id) {
        let (w, l) = (WorkerKey::from_number(worker), LockKey::from_number(lock));
        self.event(
            &format!("{worker} tries to upgrade {lock}"),
            |graph, effects, _| match graph.try_upgrade(w, l, effects) {
                None => (Reply::No, None),
                Some(Acquired::Held(depth)) => (Reply::Held(depth), None),
                Some(other) => panic!("{other:?}"),
            },
            |naive| naive.try_upgrade(worker, lock),
        );
    }

    fn downgrade_to(&mut self, worker: Id, lock: Id, to: Mode) {
        let (w, l) = (WorkerKey::from_number(worker), LockKey::from_number(lock));
        self.event(
            &format!("downgrade {lock} of {worker} to {to:?}"),
            |graph, effects, _| (Reply::Done(graph.downgrade(w, l, to, effects)), None),
            |naive| naive.downgrade(worker, lock, to),
        );
    }

    fn transfer_upgradable(&mut self, lock: Id, from: Id) {
        let to = self.workers[self.random.index(self.workers.len())];
        let (l, f, t) = (LockKey::from_number(lock), WorkerKey::from_number(from), WorkerKey::from_number(to));
        self.event(
            &format!("what is upgradable of {lock} goes from {from} to {to}"),
            |graph, effects, _| (Reply::Done(graph.transfer_upgradable(l, f, t, effects)), None),
            |naive| naive.transfer_upgradable(lock, from, to),
        );
    }

    fn release_as(&mut self, worker: Id, lock: Id, mode: Mode) {
        let (w, l) = (WorkerKey::from_number(worker), LockKey::from_number(lock));
        self.event(
            &format!("{worker} releases {lock} {mode:?}"),
            |graph, effects, _| (replied(graph.release_mode(w, l, mode, effects)), None),
            |naive| naive.release_mode(worker, lock, mode),
        );
    }
}
