//! One event for both, and everything that can be seen compared after it.

use heirlock::local::graph::{self, Effects, Graph, LockKey, On, WaitKey, WorkerKey};

use super::Pair;
use crate::common::graph_naive::{Cycle, Did, Hold, Id, Naive, Reply};

impl Pair {
    pub(crate) fn event(
        &mut self,
        what: &str,
        act: impl FnOnce(&mut Graph, &mut Effects, &mut Vec<(WaitKey, Id)>) -> (Reply, Option<graph::Cycle>),
        expect: impl FnOnce(&mut Naive) -> Reply,
    ) {
        self.log.push(what.to_owned());
        let (mut effects, mut names) = (Effects::default(), Vec::new());
        let (reply, refused) = act(&mut self.graph, &mut effects, &mut names);
        for (key, name) in names {
            self.keys.insert(name, key);
            self.names.insert(key, name);
        }
        let name = |key: &WaitKey| self.names[key];
        let did = Did {
            granted: effects.granted.iter().map(name).collect(),
            ended: effects.ended.iter().map(|(wait, cycle)| (name(wait), self.numbers(cycle))).collect(),
            expired: effects.expired.iter().map(name).collect(),
            displaced: effects.displaced.iter().map(|displaced| (name(&displaced.wait), displaced.arrival)).collect(),
            removed: effects.removed.iter().map(name).collect(),
            dismissed: effects.dismissed.iter().map(name).collect(),
            suspected: effects.suspected.iter().map(|cycle| cycle[0].worker.get()).collect(),
            changed: effects.changed.iter().map(|worker| worker.get()).collect(),
            doubts: effects.doubts,
            refused: refused.as_ref().map(|cycle| self.numbers(cycle)),
        };
        let held = matches!(reply, Reply::Held(_));
        let (expected, expected_did) = self.naive.event(&did, held, expect);
        assert_eq!((&reply, &did), (&expected, &expected_did), "the graph's answer is left, the reference's right");
        for (wait, arrival) in &did.displaced {
            let (worker, lock, upgrades) = self.asked[wait];
            self.displaced.push((worker, lock, upgrades, *arrival));
        }
        let waits = self.naive.waits();
        let of_condition = |wait: &&Id| waits.get(wait).is_some_and(|wait| self.naive.is_condition(wait.1));
        let of_semaphore = |wait: &&Id| waits.get(wait).is_some_and(|wait| self.naive.free(wait.1).is_some());
        for (name, many) in [
            ("granted", did.granted.len()),
            ("refused", did.refused.iter().len()),
            ("ended", did.ended.len()),
            ("expired", did.expired.len()),
            ("displaced", did.displaced.len()),
            ("in doubt", usize::from(did.doubts)),
            ("claimed", usize::from(what.starts_with("claim") && reply == Reply::Done(true))),
            ("removed", did.removed.len()),
            ("dismissed", did.dismissed.len()),
            ("notified", usize::from(what.starts_with("notify") && reply == Reply::Done(true))),
            ("passed on", if what.starts_with("notify") { 0 } else { did.granted.iter().filter(of_condition).count() }),
            ("permits granted", did.granted.iter().filter(of_semaphore).count()),
            ("suspected", did.suspected.len()),
            ("changed", did.changed.len()),
            ("let in", self.naive.let_in),
            ("let in to be upgradable", self.naive.let_in_upgradable),
            ("let in when the upgradable went", self.naive.let_in_late),
            ("upgrades granted", did.granted.iter().filter(|wait| self.asked[wait].2).count()),
            ("upgrades refused", usize::from(what.starts_with("upgrade") && reply == Reply::Deadlock)),
            ("downgraded", usize::from(what.starts_with("downgrade") && reply == Reply::Done(true))),
        ] {
            *self.tally.entry(name).or_default() += many;
        }
        self.compare();
    }

    fn numbers(&self, cycle: &graph::Cycle) -> Cycle {
        let number = |step: &graph::Step| match step.on {
            // The wait that was refused never had a name.
            On::Lock { lock, wait, .. } => {
                (step.worker.get(), lock.get(), wait.map_or(0, |wait| self.names.get(&wait).copied().unwrap_or(self.next_wait - 1)))
            }
            On::Fork => (step.worker.get(), 0, 0),
        };
        cycle.iter().map(number).collect()
    }

    pub(crate) fn compare(&mut self) {
        for (worker, expected) in self.naive.effectives() {
            let key = WorkerKey::from_number(worker);
            assert_eq!(self.graph.effective_priority(key), Some(expected.priority), "priority of {worker}");
            assert_eq!(self.graph.effective_deadline(key).unwrap_or(graph::NEVER), expected.deadline, "deadline of {worker}");
        }
        let mut holds = 0;
        for lock in &self.locks {
            let key = LockKey::from_number(*lock);
            let queue: Vec<Id> = self.graph.queue(key).iter().map(|wait| self.names[wait]).collect();
            assert_eq!(queue, self.naive.queue(*lock), "queue of {lock}");
            assert_eq!(self.graph.free(key), self.naive.free(*lock), "free permits of {lock}");
            let mut expected = self.naive.holds().iter().filter(|hold| hold.lock == *lock).collect::<Vec<_>>();
            expected.sort_by_key(|hold| hold.worker);
            let mut holders = self.graph.holders(key);
            holders.sort_by_key(|hold| hold.worker);
            holds += holders.len();
            let holders: Vec<Hold> = holders
                .into_iter()
                .map(|hold| Hold { worker: hold.worker.get(), lock: hold.lock.get(), mode: hold.mode, depth: hold.depth })
                .collect();
            assert_eq!(holders.iter().collect::<Vec<_>>(), expected, "holders of {lock}");
        }
        let waits = self.naive.waits();
        for (wait, (worker, lock, granted, urgency)) in &waits {
            let view = self.graph.wait(self.keys[wait]).unwrap_or_else(|| panic!("{wait} is unknown"));
            assert_eq!((view.worker.get(), view.lock.get(), view.state == graph::State::Granted), (*worker, *lock, *granted));
            assert_eq!(view.in_doubt, self.naive.in_doubt(*wait), "doubt of {wait}");
            assert!(urgency.is_none_or(|urgency| urgency == view.urgency), "urgency of {wait}");
        }
        let counts = self.graph.counts();
        assert_eq!((counts.workers, counts.locks), (self.workers.len(), self.locks.len()));
        assert_eq!((counts.waits, counts.holds), (waits.len(), holds));
        assert!(self.graph.is_sound());
        let suspected = self.graph.suspected(3);
        assert_eq!(!suspected.is_empty(), self.naive.suspected(), "{suspected:?}");
    }

    pub(crate) fn show(&self) {
        for (worker, expected) in self.naive.effectives() {
            let key = WorkerKey::from_number(worker);
            let (priority, deadline) = (self.graph.effective_priority(key), self.graph.effective_deadline(key));
            println!("worker {worker}: {priority:?} {deadline:?}, expected {expected:?}");
        }
        println!("{:#?}\n{:#?}", self.naive.waits(), self.naive.holds());
    }
}
