//! The texts of the cases over real locks: explicit workers, futures polled by hand, a domain whose clock moves only when something expires.
//!
//! What a text calls granted is seen by wakes, what it says of owners and queues by the domain's snapshot and by what the lock lets in, cycles by
//! the order of the names in an error's text.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use super::case_text::{Call, Names, Outcome, Snapshot, Stage};
use super::polls::Hand;
use heirlock::clock::{Clock, ManualClock, Moment};
use heirlock::local::graph::{Kind, LockSpec};
use heirlock::local::{Domain, Mutex, OwnedMutexGuard, OwnedRLockGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RLock, RwLock};
use heirlock::{Result, Worker};

/// What a text leaves open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// Whether the domain tracks its holds, and so knows of every one.
    pub(crate) tracked: bool,
    /// Whether a grant is taken at once, or only when its worker does something with the lock.
    pub(crate) prompt: bool,
    /// What stands in for every mutex.
    pub(crate) mutex: StandIn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StandIn {
    Itself,
    Reentrant,
    /// A read-write lock that is only written.
    Written,
}

#[allow(clippy::enum_variant_names)] // As the types are called.
enum Lock {
    Mutex(Arc<Mutex<()>>),
    RLock(Arc<RLock<()>>),
    RwLock(Arc<RwLock<()>>),
}

/// Dropped when its level ends.
#[expect(dead_code, reason = "it is the guard's life that counts")]
enum Guard {
    Mutex(OwnedMutexGuard<()>),
    RLock(OwnedRLockGuard<()>),
    Read(OwnedRwLockReadGuard<()>),
    Write(OwnedRwLockWriteGuard<()>),
}

impl Lock {
    fn is_locked(&self) -> bool {
        match self {
            Lock::Mutex(lock) => lock.is_locked(),
            Lock::RLock(lock) => lock.is_locked(),
            Lock::RwLock(lock) => lock.is_locked(),
        }
    }
}

struct Waiting {
    worker: String,
    lock: String,
    /// Before the locks and workers go, and never polled again once it is ready.
    hand: Hand<'static, Result<Guard>>,
    /// As of the last event.
    wakes: usize,
}

pub(crate) struct Locks {
    manner: Manner,
    domain: Domain,
    clock: ManualClock,
    /// The texts' deadlines are milliseconds after this, far from now; 0 is a moment in the past.
    start: (Moment, Instant),
    waits: BTreeMap<String, Waiting>,
    /// By lock and worker, a guard for each level.
    guards: BTreeMap<(String, String), Vec<Guard>>,
    /// By wait, what was granted and taken.
    taken: BTreeMap<String, (String, String)>,
    made: BTreeMap<String, Lock>,
    workers: BTreeMap<String, Worker>,
    /// When waits expire, after the start.
    expiries: BTreeMap<String, Duration>,
}

impl Locks {
    pub(crate) fn new(manner: Manner) -> Locks {
        let clock = ManualClock::new();
        // Nothing is taken over here.
        let builder = Domain::builder().clock(clock.clone()).stall_time(Duration::from_secs(86_400));
        let domain = if manner.tracked { builder.warn_after(Duration::from_secs(86_400)) } else { builder }.build();
        let start = (clock.now(), Instant::now());
        Locks {
            manner,
            domain,
            clock,
            start,
            waits: BTreeMap::new(),
            guards: BTreeMap::new(),
            taken: BTreeMap::new(),
            made: BTreeMap::new(),
            workers: BTreeMap::new(),
            expiries: BTreeMap::new(),
        }
    }

    /// All give up: nothing is left of them.
    pub(crate) fn end(&mut self) {
        self.waits.clear();
        self.guards.clear();
        for lock in self.made.values() {
            assert!(!lock.is_locked());
        }
        assert_eq!(self.domain.records(), [0; 7]);
        self.made.clear();
        self.workers.clear();
    }

    fn deadline(&self, deadline: u64) -> Instant {
        if deadline == 0 { self.start.1 } else { self.start.1 + Duration::from_secs(3600) + Duration::from_millis(deadline) }
    }

    /// Who holds the lock, by the snapshot; nobody says that of a hold for which nobody has had to wait.
    fn shown(&self, lock: &str) -> Option<Vec<String>> {
        let snapshot = self.domain.snapshot();
        let shown = snapshot.locks.iter().find(|shown| shown.name == lock)?;
        Some(shown.holders.iter().map(|holder| holder.party.worker.name.clone()).collect())
    }

    fn holders(&self, lock: &str) -> Vec<String> {
        let guards = self.guards.iter().filter(|((of, _), guards)| of == lock && !guards.is_empty());
        let by_guards: Vec<String> = guards.map(|((_, worker), _)| worker.clone()).collect();
        let shown = self.shown(lock);
        if self.manner.tracked {
            assert_eq!(shown.is_some(), self.made[lock].is_locked(), "all holds are known");
        }
        let holders = shown.unwrap_or_else(|| by_guards.clone());
        assert_eq!(self.made[lock].is_locked(), !holders.is_empty(), "{lock}");
        assert!(by_guards.iter().all(|holder| holders.contains(holder)), "{lock}: {holders:?}, but {by_guards:?} have guards");
        holders
    }

    fn is_held_by(&self, lock: &str, worker: &str) -> bool {
        self.holders(lock).iter().any(|holder| holder == worker)
    }

    /// What the event that is just over did to those who wait.
    fn outcome(&mut self, result: &'static str) -> Outcome {
        let mut outcome = Outcome { result, ..Outcome::default() };
        let names: Vec<String> = self.waits.keys().cloned().collect();
        for name in names {
            let wait = self.waits.get_mut(&name).unwrap();
            let told = wait.hand.wakes() - std::mem::replace(&mut wait.wakes, wait.hand.wakes());
            if told == 0 {
                continue;
            }
            assert_eq!(told, 1, "{name} is told once");
            let (worker, lock) = (wait.worker.clone(), wait.lock.clone());
            if self.is_held_by(&lock, &worker) {
                outcome.granted.push(name.clone());
                if self.manner.prompt {
                    self.take(&name);
                }
                continue;
            }
            // What it is told is that it ended.
            let error = self.waits.remove(&name).unwrap().hand.ready().err().expect("it holds nothing");
            assert!(error.is_deadlock(), "{error}");
            outcome.closed.push((name, cycle(&error.to_string())));
        }
        outcome
    }

    /// A wait that was granted becomes a guard.
    fn take(&mut self, wait: &str) {
        let Waiting { worker, lock, mut hand, .. } = self.waits.remove(wait).unwrap();
        let guard = hand.ready().unwrap();
        self.guards.entry((lock.clone(), worker.clone())).or_default().push(guard);
        self.taken.insert(wait.to_owned(), (lock, worker));
    }

    /// The worker takes what it was granted of this lock.
    fn notice(&mut self, worker: &str, lock: &str) {
        let granted = self.waits.iter().find(|(_, wait)| wait.worker == worker && wait.lock == lock && wait.hand.wakes() > 0);
        if let Some(name) = granted.map(|(name, _)| name.clone()) {
            self.take(&name);
        }
    }

    fn hand(&self, worker: &str, lock: &str, call: Call, wait: &str) -> Hand<'static, Result<Guard>> {
        // It expires at the moment that the text says, whenever it begins.
        let expires = self.expiries.get(wait).map(|expires| expires.saturating_sub(self.clock.now().since(self.start.0)));
        let timeout = expires.or(call.timeout.map(Duration::from_millis));
        let deadline = call.deadline.map(|deadline| self.deadline(deadline));
        macro_rules! hand {
            ($guard:ident, $acquire:expr) => {{
                let mut acquire = $acquire;
                if let Some(priority) = call.priority {
                    acquire = acquire.priority(priority);
                }
                if let Some(deadline) = deadline {
                    acquire = acquire.deadline(deadline);
                }
                if let Some(timeout) = timeout {
                    acquire = acquire.timeout(timeout);
                }
                Hand::by(&self.workers[worker], async move { acquire.await.map(Guard::$guard) })
            }};
        }
        match &self.made[lock] {
            Lock::Mutex(lock) => hand!(Mutex, lock.lock_owned()),
            Lock::RLock(lock) => hand!(RLock, lock.lock_owned()),
            Lock::RwLock(lock) if call.shared => hand!(Read, lock.read_owned()),
            Lock::RwLock(lock) => hand!(Write, lock.write_owned()),
        }
    }
}

impl Stage for Locks {
    const SHOWS_DEADLINES: bool = false;

    fn begin(&mut self, expiries: &[&str]) {
        self.end();
        *self = Locks::new(self.manner);
        self.expiries = (1..).map(Duration::from_secs).zip(expiries).map(|(after, wait)| ((*wait).to_owned(), after)).collect();
    }

    fn worker(&mut self, name: &str, base: Option<i32>, deadline: Option<u64>, parent: Option<&str>) -> Outcome {
        let worker = parent.map_or_else(|| Worker::new(name.to_owned()), |parent| self.workers[parent].fork(name.to_owned()));
        if let Some(base) = base {
            worker.set_priority(base);
        }
        worker.set_deadline(deadline.map(|deadline| self.deadline(deadline)));
        self.workers.insert(name.to_owned(), worker);
        self.outcome("ok")
    }

    fn lock(&mut self, name: &str, spec: LockSpec) -> Outcome {
        // A few bytes are leaked: names are for ever.
        let called: &'static str = name.to_owned().leak();
        macro_rules! lock {
            ($kind:ident) => {{
                let mut lock = $kind::named(called, ()).in_domain(&self.domain).order(spec.order);
                if let Some(limit) = spec.bypass {
                    lock = lock.bypass_limit(limit.get());
                }
                Lock::$kind(Arc::new(lock))
            }};
        }
        let lock = match spec.kind {
            Kind::Mutex if self.manner.mutex == StandIn::Itself => lock!(Mutex),
            Kind::Mutex if self.manner.mutex == StandIn::Written => lock!(RwLock),
            Kind::Mutex | Kind::RLock => lock!(RLock),
            Kind::RwLock => lock!(RwLock),
            kind => panic!("{name}: there is no {kind:?} yet"),
        };
        self.made.insert(name.to_owned(), lock);
        self.outcome("ok")
    }

    fn acquire(&mut self, worker: &str, lock: &str, wait: &str, call: Call) -> Outcome {
        self.notice(worker, lock);
        let mut hand = self.hand(worker, lock, call, wait);
        match hand.poll() {
            Poll::Ready(Ok(guard)) => {
                self.guards.entry((lock.to_owned(), worker.to_owned())).or_default().push(guard);
                self.outcome("held")
            }
            Poll::Ready(Err(error)) => {
                assert!(error.is_deadlock(), "{error}");
                Outcome { cycle: Some(cycle(&error.to_string())), ..self.outcome("deadlock") }
            }
            Poll::Pending => {
                let wakes = hand.wakes();
                assert_eq!(wakes, 0);
                let waiting = Waiting { worker: worker.to_owned(), lock: lock.to_owned(), hand, wakes };
                assert!(self.waits.insert(wait.to_owned(), waiting).is_none());
                self.outcome("queued")
            }
        }
    }

    fn try_acquire(&mut self, worker: &str, lock: &str, shared: bool) -> Outcome {
        let call = Call { timeout: Some(0), shared, ..Call::default() };
        match self.hand(worker, lock, call, "").ready() {
            Ok(guard) => {
                self.guards.entry((lock.to_owned(), worker.to_owned())).or_default().push(guard);
                self.outcome("held")
            }
            Err(error) => {
                assert!(error.is_timeout(), "{error}");
                self.outcome("no")
            }
        }
    }

    fn cancel(&mut self, wait: &str) -> Outcome {
        let Some(waiting) = self.waits.remove(wait) else {
            // It was taken promptly: its one guard goes.
            let guards = self.guards.get_mut(&self.taken[wait]).unwrap();
            drop(guards.pop().unwrap());
            assert!(guards.is_empty());
            return self.outcome("forwarded");
        };
        let granted = self.is_held_by(&waiting.lock, &waiting.worker) && waiting.hand.wakes() > 0;
        drop(waiting.hand);
        if granted {
            assert!(!self.is_held_by(&waiting.lock, &waiting.worker));
        }
        self.outcome(if granted { "forwarded" } else { "cancelled" })
    }

    fn expire(&mut self, wait: &str) -> Outcome {
        let due = self.start.0 + self.expiries[wait];
        self.clock.advance(due.since(self.clock.now()));
        self.domain.expire();
        let mut waiting = self.waits.remove(wait).unwrap();
        // The timer may have come first, and calls the wakers after that: this one's is the last.
        while waiting.hand.wakes() == 0 {
            std::thread::yield_now();
        }
        assert!(waiting.hand.ready().err().expect("it expires").is_timeout());
        self.outcome("timeout")
    }

    fn release(&mut self, worker: &str, lock: &str) -> Outcome {
        self.notice(worker, lock);
        let levels = self.guards.get_mut(&(lock.to_owned(), worker.to_owned())).unwrap();
        drop(levels.pop().unwrap());
        let left = levels.len();
        // Unless it is granted the lock anew, by another of its waits.
        let again = self.waits.values().any(|wait| wait.worker == worker && wait.lock == lock && wait.hand.wakes() > 0);
        assert_eq!(self.is_held_by(lock, worker), left > 0 || again);
        self.outcome(if left > 0 { "kept" } else { "released" })
    }

    fn base(&mut self, worker: &str, base: i32) -> Outcome {
        self.workers[worker].set_priority(base);
        self.outcome("ok")
    }

    fn look(&mut self) -> Snapshot {
        let shown = self.domain.snapshot();
        let mut now = Snapshot { suspected: !shown.suspected.is_empty(), ..Snapshot::default() };
        now.eff = self.workers.iter().map(|(name, worker)| (name.clone(), worker.effective_priority())).collect();
        for lock in self.made.keys() {
            let holders = self.holders(lock).into_iter().map(|worker| {
                let depth = self.guards.get(&(lock.clone(), worker.clone())).map_or(0, Vec::len).max(1);
                (worker, ("x".to_owned(), u32::try_from(depth).unwrap()))
            });
            now.holders.insert(lock.clone(), holders.collect());
        }
        for lock in shown.locks {
            let waits = lock.queue.iter().map(|waiter| {
                let of = |wait: &&Waiting| wait.lock == lock.name && wait.worker == waiter.party.worker.name && wait.hand.wakes() == 0;
                let mut names = self.waits.iter().filter(|(_, wait)| of(wait)).map(|(name, _)| name.clone());
                let name = names.next().expect("who waits is known");
                assert_eq!(names.next(), None, "each worker waits once for a lock");
                name
            });
            now.queues.insert(lock.name.clone(), waits.collect());
        }
        now
    }
}

/// The names in the text of a deadlock: worker, lock, worker, lock ...
fn cycle(text: &str) -> Names {
    let mut names = Names::new();
    let mut rest = text;
    while let Some((at, kind)) = [" worker \"", " lock \""].iter().filter_map(|kind| Some((rest.find(kind)?, kind))).min() {
        let name = &rest[at + kind.len()..];
        let (name, after) = name.split_once('"').unwrap();
        names.push(name.to_owned());
        rest = after;
    }
    // Unless it waits for itself, the first is named again at the end.
    if names.len() > 2 {
        assert_eq!(names.pop().as_ref(), names.first(), "{text}");
    }
    names
}
