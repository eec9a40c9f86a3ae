//! What befalls semaphores.

use heirlock::local::graph::{Kind, LockKey, WorkerKey};

use super::{Pair, replied};
use crate::common::graph_naive::{Hold, Id, Reply};

impl Pair {
    /// How many levels, or permits, at once.
    pub(crate) fn levels(&mut self, lock: Id) -> u32 {
        if self.naive.kind(lock) != Kind::Semaphore {
            return 1;
        }
        let (random, most) = (&mut self.random, u64::from(u32::MAX));
        let levels = if random.chance(1) { random.pick(&[0, most, most - 1]) } else { random.within(1, 4) };
        u32::try_from(levels).unwrap()
    }

    pub(crate) fn step_permits(&mut self) {
        let semaphores: Vec<Id> = self.locks.iter().copied().filter(|lock| self.naive.kind(*lock) == Kind::Semaphore).collect();
        if semaphores.is_empty() || !self.random.chance(25) {
            return;
        }
        let lock = self.random.pick(&semaphores);
        match self.random.within(0, 20) {
            // Where nobody holds, permits come back only so.
            0..12 if !self.naive.has_holders(lock) || self.random.chance(20) => {
                let many = self.random.within(0, 4);
                self.add_permits(lock, many);
            }
            12..14 => self.take_permits(lock),
            14..17 => self.forget(),
            17 if self.random.chance(20) => self.add_permits(lock, u64::MAX),
            18 if self.random.chance(50) => self.dismiss(lock),
            19 => {
                // Not all locks are semaphores.
                let lock = self.locks[self.random.index(self.locks.len())];
                self.add_permits(lock, 1);
            }
            _ => {}
        }
    }

    fn add_permits(&mut self, lock: Id, many: u64) {
        self.event(
            &format!("add {many} permits to {lock}"),
            |graph, effects, _| (Reply::Done(graph.add_permits(LockKey::from_number(lock), many, effects)), None),
            |naive| naive.add_permits(lock, many),
        );
    }

    fn take_permits(&mut self, lock: Id) {
        let many = self.random.within(0, 3);
        self.log.push(format!("take {many} permits from {lock}"));
        assert_eq!(self.graph.take_permits(LockKey::from_number(lock), many), self.naive.take_permits(lock, many));
        self.compare();
    }

    fn forget(&mut self) {
        let Some(Hold { worker, lock, .. }) = self.some_hold() else { return };
        let (w, l, permits) = (WorkerKey::from_number(worker), LockKey::from_number(lock), self.levels(lock));
        self.event(
            &format!("{worker} forgets {permits} of {lock}"),
            |graph, effects, _| (replied(graph.forget(w, l, permits, effects)), None),
            |naive| naive.forget(worker, lock, permits),
        );
    }
}
