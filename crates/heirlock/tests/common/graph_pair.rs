//! A graph and the naive reference: both get the same random events and must agree after each.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use heirlock::local::graph::{
    self, DeadlockPolicy, Graph, Kind, Left, LockKey, LockSpec, Mode, Order, Released, WaitKey, WorkerKey, WorkerSpec,
};

use super::graph_naive::{Hold, Id, Naive, Reply};
use super::random::Random;

#[path = "graph_pair_acquire.rs"]
mod acquire;
#[path = "graph_pair_compare.rs"]
mod compare;
#[path = "graph_pair_permits.rs"]
mod permits;
#[path = "graph_pair_upgrade.rs"]
mod upgrade;

/// What a history has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flavour {
    pub(crate) policy: DeadlockPolicy,
    workers: u64,
    locks: u64,
    /// Of a hundred: locks with readers; forks, bare tasks, calls with a deadline, acquires by one who waits already, takes of grants at once.
    readers: u64,
    forks: u64,
    bare: u64,
    deadlines: u64,
    several: u64,
    takes: u64,
}

/// The graph, the reference, and the names between them.
pub(crate) struct Pair {
    random: Random,
    pub(crate) flavour: Flavour,
    graph: Graph,
    naive: Naive,
    workers: Vec<Id>,
    locks: Vec<Id>,
    keys: BTreeMap<Id, WaitKey>,
    names: BTreeMap<WaitKey, Id>,
    next_wait: Id,
    /// Waits that lost their places, with whose they were; whether they were to upgrade.
    displaced: Vec<(Id, Id, bool, u64)>,
    /// Given up for a condition.
    parted: Vec<(Id, Id, u32)>,
    asked: BTreeMap<Id, (Id, Id, bool)>,
    now: u64,
    pub(crate) log: Vec<String>,
    pub(crate) tally: BTreeMap<&'static str, usize>,
}

impl Pair {
    pub(crate) fn new(mut random: Random) -> Pair {
        let policy = [DeadlockPolicy::Closer, DeadlockPolicy::Closer, DeadlockPolicy::LowestPriority, DeadlockPolicy::ErrSuspected];
        let mut flavour = Flavour {
            policy: policy[random.index(4)],
            workers: random.within(2, 9),
            locks: random.within(1, 6),
            readers: random.pick(&[20, 20, 95]),
            forks: random.pick(&[0, 0, 30, 60]),
            bare: random.pick(&[0, 0, 30, 100]),
            deadlines: random.pick(&[0, 30, 60]),
            several: random.pick(&[0, 5, 40, 90]),
            takes: random.pick(&[50, 90, 100]),
        };
        if random.chance(30) {
            // Readers who wait for each other, and are not in their own way.
            (flavour.workers, flavour.locks, flavour.readers, flavour.forks, flavour.several) = (8, random.within(2, 4), 100, 0, 0);
        }
        let naive = Naive::new(flavour.policy);
        let graph = Graph::new(flavour.policy);
        Pair {
            random,
            flavour,
            graph,
            naive,
            workers: Vec::new(),
            locks: Vec::new(),
            keys: BTreeMap::new(),
            names: BTreeMap::new(),
            next_wait: 1,
            displaced: Vec::new(),
            parted: Vec::new(),
            asked: BTreeMap::new(),
            now: 0,
            log: Vec::new(),
            tally: BTreeMap::new(),
        }
    }

    pub(crate) fn step(&mut self) {
        let random = &mut self.random;
        if self.workers.is_empty() || (self.workers.len() as u64) < self.flavour.workers && random.chance(30) {
            return self.add_worker();
        }
        if self.locks.is_empty() || (self.locks.len() as u64) < self.flavour.locks && random.chance(30) {
            return self.add_lock();
        }
        let (worker, lock) = (self.workers[random.index(self.workers.len())], self.locks[random.index(self.locks.len())]);
        match random.within(0, 100) {
            0..38 => self.acquire(worker, lock),
            38..43 => self.try_acquire(worker, lock),
            43..50 => self.end_wait(true),
            50..57 => self.end_wait(false),
            57..75 => self.release(),
            75..82 => self.take(),
            82..83 => self.take_over(),
            83..84 if random.chance(50) => self.claim(),
            83..84 => self.revoke(),
            84..85 => self.dismiss(lock),
            85..91 => self.set_base(worker),
            91..93 => self.transfer(worker),
            93..95 => self.import(worker, lock),
            95..96 => self.part(),
            96..98 => {
                self.now += random.within(0, 20);
                self.graph.advance(self.now);
                self.naive.advance(self.now);
            }
            98 if random.chance(50) => self.set_deadline(worker),
            98 => self.remove_worker(worker),
            _ => self.remove_lock(lock),
        }
        self.step_permits();
        self.step_upgrade();
        let conditions: Vec<Id> = self.locks.iter().copied().filter(|lock| self.naive.is_condition(*lock)).collect();
        if !conditions.is_empty() && self.random.chance(10) {
            let condition = self.random.pick(&conditions);
            self.notify(condition);
            match self.random.within(0, 8) {
                0 => self.end_wait(true),
                1 => self.take_over(),
                _ => {}
            }
        }
        if self.random.chance(30) {
            self.claim();
        }
        if !self.naive.waits().is_empty() && self.random.chance(self.flavour.takes) {
            self.take();
        }
    }

    fn priority(&mut self) -> i32 {
        match self.random.within(0, 20) {
            0 => i32::MIN,
            1 => i32::MAX,
            _ => i32::try_from(self.random.within(0, 6)).unwrap(),
        }
    }

    fn deadline(&mut self) -> Option<u64> {
        let some = self.random.chance(self.flavour.deadlines);
        some.then(|| self.random.within(0, 10) * 10)
    }

    fn mode(&mut self) -> Mode {
        self.random.pick(&[Mode::Shared, Mode::Shared, Mode::Exclusive, Mode::Exclusive, Mode::Upgradable])
    }

    fn add_worker(&mut self) {
        let fork = !self.workers.is_empty() && self.random.chance(self.flavour.forks);
        let parent = fork.then(|| self.workers[self.random.index(self.workers.len())]);
        let base = if fork && self.random.chance(50) { i32::MIN } else { self.priority() };
        let deadline = if self.random.chance(20) { self.deadline() } else { None };
        let sequential = !self.random.chance(self.flavour.bare);
        self.new_worker(base, deadline, parent, sequential);
    }

    pub(crate) fn new_worker(&mut self, base: i32, deadline: Option<u64>, parent: Option<Id>, sequential: bool) -> Id {
        let spec = WorkerSpec { base, deadline, parent: parent.map(WorkerKey::from_number), sequential };
        let key = self.graph.add_worker(&spec).get();
        self.log.push(format!("worker {key}: {spec:?}"));
        self.naive.add_worker(key, base, deadline, parent, sequential);
        self.workers.push(key);
        self.compare();
        key
    }

    fn add_lock(&mut self) {
        let kind = match self.random.within(0, 5) {
            _ if self.random.chance(self.flavour.readers) => Kind::RwLock,
            0 => self.random.pick(&[Kind::Mutex, Kind::Mutex, Kind::Promise, Kind::Once]),
            1 => Kind::RLock,
            2 => self.random.pick(&[Kind::Condition, Kind::Condition, Kind::Event, Kind::Barrier]),
            _ => Kind::Semaphore,
        };
        let order = self.random.pick(&[Order::Priority, Order::Priority, Order::Deadline, Order::Fifo]);
        let bypass = if self.random.chance(40) { NonZeroU32::new(u32::try_from(self.random.within(1, 4)).unwrap()) } else { None };
        let owned = LockSpec::new(kind).owned && !self.random.chance(8);
        let (permits, tracked) = (self.random.within(0, 4), self.random.chance(60));
        self.new_lock(LockSpec { kind, order, bypass, owned, permits, tracked });
    }

    pub(crate) fn new_lock(&mut self, spec: LockSpec) -> Id {
        let key = self.graph.add_lock(spec).get();
        self.log.push(format!("lock {key}: {spec:?}"));
        self.naive.add_lock(key, spec);
        self.locks.push(key);
        self.compare();
        key
    }

    /// Some wait, if there is one.
    fn some_wait(&mut self, granted: Option<bool>) -> Option<Id> {
        let waits: Vec<Id> =
            self.naive.waits().iter().filter(|(_, wait)| granted.is_none_or(|granted| wait.2 == granted)).map(|(id, _)| *id).collect();
        (!waits.is_empty()).then(|| waits[self.random.index(waits.len())])
    }

    fn end_wait(&mut self, cancel: bool) {
        let Some(wait) = self.some_wait(None) else { return };
        let key = self.keys[&wait];
        self.event(
            &format!("{} {wait}", if cancel { "cancel" } else { "expire" }),
            |graph, effects, _| {
                let left = if cancel { graph.cancel(key, effects) } else { graph.expire(key, effects) };
                let reply = match left {
                    Left::Queued => Reply::WasQueued,
                    Left::Granted => Reply::WasGranted,
                    Left::Gone => Reply::Gone,
                };
                (reply, None)
            },
            |naive| if cancel { naive.cancel(wait) } else { naive.expire(wait) },
        );
    }

    fn some_hold(&mut self) -> Option<Hold> {
        let holds = self.naive.holds();
        (!holds.is_empty()).then(|| holds[self.random.index(holds.len())].clone())
    }

    fn release(&mut self) {
        let Some(Hold { worker, lock, .. }) = self.some_hold() else { return };
        let levels = self.levels(lock);
        self.release_levels(worker, lock, levels);
    }

    pub(crate) fn release_levels(&mut self, worker: Id, lock: Id, levels: u32) {
        let (w, l) = (WorkerKey::from_number(worker), LockKey::from_number(lock));
        self.event(
            &format!("{worker} releases {lock} {levels}"),
            |graph, effects, _| (replied(graph.release_levels(w, l, levels, effects)), None),
            |naive| naive.release(worker, lock, levels),
        );
    }

    /// Gives up all levels, as for a condition; a later acquire asks for as many.
    fn part(&mut self) {
        let Some(Hold { worker, lock, depth, .. }) = self.some_hold() else { return };
        let (w, l) = (WorkerKey::from_number(worker), LockKey::from_number(lock));
        self.parted.push((worker, lock, depth));
        self.event(
            &format!("{worker} parts from {lock}"),
            |graph, effects, _| {
                assert_eq!(graph.release_all(w, l, effects), Some(depth));
                (Reply::Freed, None)
            },
            |naive| naive.release(worker, lock, depth),
        );
    }

    fn take(&mut self) {
        let Some(wait) = self.some_wait(Some(true)) else { return };
        let key = self.keys[&wait];
        self.event(&format!("take {wait}"), |graph, effects, _| (Reply::Done(graph.take(key, effects)), None), |naive| naive.take(wait));
    }

    /// A future that waits is polled.
    fn claim(&mut self) {
        // Most of them beside what another was granted.
        let waits = self.naive.waits();
        let granted = |worker, lock| waits.values().any(|wait| wait.2 && (wait.0, wait.1) == (worker, lock));
        let beside: Vec<Id> = waits.iter().filter(|(_, wait)| !wait.2 && granted(wait.0, wait.1)).map(|(id, _)| *id).collect();
        let wait = if beside.is_empty() || self.random.chance(10) { self.some_wait(Some(false)) } else { Some(self.random.pick(&beside)) };
        let Some(wait) = wait else { return };
        let key = self.keys[&wait];
        let before = self.graph.wait(key).filter(|view| self.naive.has_holders(view.lock.get()));
        let noted = before.map(|view| self.noted(view.worker, view.lock));
        self.event(&format!("claim {wait}"), |graph, effects, _| (Reply::Done(graph.claim(key, effects)), None), |naive| naive.claim(wait));
        // Who has it has exactly so much more, whatever else is so: a guard is made of it.
        if let (Some(view), Some(noted), None) = (before, noted, self.graph.wait(key)) {
            assert_eq!(self.noted(view.worker, view.lock), noted + u64::from(view.depth), "levels that {wait} has, beside those before");
        }
    }

    /// How many levels the worker has taken note of: what its guards are of.
    fn noted(&self, worker: WorkerKey, lock: LockKey) -> u64 {
        let depth = self.graph.holders(lock).iter().find(|hold| hold.worker == worker).map_or(0, |hold| u64::from(hold.depth));
        let grants = self.keys.values().filter_map(|wait| self.graph.wait(*wait));
        let mine =
            grants.filter(|wait| wait.state == graph::State::Granted && !wait.upgrades && (wait.worker, wait.lock) == (worker, lock));
        depth - mine.map(|wait| u64::from(wait.depth)).sum::<u64>()
    }

    /// Its own worker's other call wants what it was granted.
    fn revoke(&mut self) {
        let Some(wait) = self.some_wait(Some(true)) else { return };
        let key = self.keys[&wait];
        self.event(
            &format!("revoke {wait}"),
            |graph, effects, _| (Reply::Done(graph.revoke(key, effects)), None),
            |naive| naive.revoke(wait),
        );
    }

    fn take_over(&mut self) {
        let Some(wait) = self.some_wait(Some(true)) else { return };
        let key = self.keys[&wait];
        self.event(
            &format!("take over {wait}"),
            |graph, effects, _| (Reply::Done(graph.take_over(key, effects).is_some()), None),
            |naive| naive.take_over(wait),
        );
    }

    fn notify(&mut self, condition: Id) {
        self.event(
            &format!("notify {condition}"),
            |graph, effects, _| (Reply::Done(graph.notify(LockKey::from_number(condition), effects)), None),
            |naive| naive.notify(condition),
        );
    }

    fn dismiss(&mut self, lock: Id) {
        self.event(
            &format!("dismiss {lock}"),
            |graph, effects, _| (Reply::Done(graph.dismiss(LockKey::from_number(lock), effects)), None),
            |naive| naive.dismiss(lock),
        );
    }

    fn set_base(&mut self, worker: Id) {
        let base = self.priority();
        self.event(
            &format!("base {worker} {base}"),
            |graph, effects, _| (Reply::Done(graph.set_base(WorkerKey::from_number(worker), base, effects)), None),
            |naive| naive.set_base(worker, base),
        );
    }

    fn set_deadline(&mut self, worker: Id) {
        let deadline = self.deadline();
        self.graph.set_deadline(WorkerKey::from_number(worker), deadline);
        self.naive.set_deadline(worker, deadline);
        self.log.push(format!("deadline {worker} {deadline:?}"));
    }

    fn transfer(&mut self, to: Id) {
        let Some(Hold { worker: from, lock, .. }) = self.some_hold() else { return };
        let (f, t, l) = (WorkerKey::from_number(from), WorkerKey::from_number(to), LockKey::from_number(lock));
        self.event(
            &format!("transfer {lock} from {from} to {to}"),
            |graph, effects, _| (Reply::Done(graph.transfer(l, f, t, effects)), None),
            |naive| naive.transfer(lock, from, to),
        );
    }

    /// A hold becomes known that was taken without the graph.
    fn import(&mut self, worker: Id, lock: Id) {
        let mode = self.mode();
        if !self.naive.beside(lock, self.naive.mode(lock, mode)) {
            return;
        }
        let depth = u32::try_from(self.random.within(1, 3)).unwrap();
        let (w, l) = (WorkerKey::from_number(worker), LockKey::from_number(lock));
        self.event(
            &format!("{worker} holds {lock} {mode:?} {depth}"),
            |graph, effects, _| (Reply::Done(graph.hold(w, l, mode, depth, effects)), None),
            |naive| naive.hold(worker, lock, mode, depth),
        );
    }

    fn remove_worker(&mut self, worker: Id) {
        self.workers.retain(|other| *other != worker);
        self.event(
            &format!("remove worker {worker}"),
            |graph, effects, _| (Reply::Done(graph.remove_worker(WorkerKey::from_number(worker), effects)), None),
            |naive| naive.remove_worker(worker),
        );
    }

    fn remove_lock(&mut self, lock: Id) {
        self.locks.retain(|other| *other != lock);
        self.event(
            &format!("remove lock {lock}"),
            |graph, effects, _| (Reply::Done(graph.remove_lock(LockKey::from_number(lock), effects)), None),
            |naive| naive.remove_lock(lock),
        );
    }

    /// Removes everything in some order: nothing may be left.
    pub(crate) fn clear(&mut self) {
        while !self.workers.is_empty() || !self.locks.is_empty() {
            if !self.workers.is_empty() && (self.locks.is_empty() || self.random.chance(50)) {
                let worker = self.workers[self.random.index(self.workers.len())];
                self.remove_worker(worker);
            } else {
                let lock = self.locks[self.random.index(self.locks.len())];
                self.remove_lock(lock);
            }
        }
        assert_eq!(self.graph.counts(), graph::Counts::default());
    }
}

fn replied(released: Released) -> Reply {
    match released {
        Released::Kept(depth) => Reply::Kept(depth),
        Released::Freed => Reply::Freed,
        Released::NotHeld => Reply::NotHeld,
    }
}
