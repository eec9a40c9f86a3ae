//! What a domain keeps under its one mutex: the graph, and who is behind its ids.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::task::Waker;
use std::time::Duration;

use super::graph::{Acquired, Cycle, Effects, Graph, Left, LockKey, Mode, On, Step, WaitKey, WorkerKey, WorkerSpec};
use super::hash::IdMap;
use super::identity::Owner;
use crate::clock::{Clock, Moment};

pub(super) struct Core {
    pub(super) graph: Graph,
    /// What the running event has done so far; empty between events.
    pub(super) effects: Effects,
    /// Who takes part now: whoever holds or waits by the graph's account.
    parties: IdMap<WorkerKey, Owner>,
    by_number: IdMap<u64, WorkerKey>,
    /// The names of the locks that were ever contended.
    locks: IdMap<LockKey, Option<&'static str>>,
    /// What futures wait, or have yet to be told how it ended. A future that is leaked after its end leaks this, too.
    waiters: IdMap<WaitKey, Waiter>,
    /// When which wait expires.
    deadlines: BTreeSet<(Moment, WaitKey)>,
    /// Whether the timer thread has this domain on its list.
    timed: bool,
    /// Whether the running event has made something due earlier than the timer knows.
    ring: bool,
    watch: Watch,
    /// Grants that nobody has taken for too long, by lock: whoever comes next may take them over.
    stalled: IdMap<LockKey, WaitKey>,
    stall_time: Duration,
    /// Workers that may have nothing left in the graph.
    leaving: Vec<WorkerKey>,
    trust_tasks: bool,
}

/// The domain's side of a waiting future.
struct Waiter {
    worker: WorkerKey,
    /// Taken when it is woken.
    waker: Option<Waker>,
    expires: Option<Moment>,
    fate: Fate,
    /// When the watch first saw it granted and not taken.
    untaken: Option<Moment>,
}

/// The watch over grants that nobody takes. It is set by a grant and looks at least once each half `stall_time` while there are any, so that a
/// hand-over reads no clock, and rings for the timer once in that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watch {
    Off,
    Asked,
    Next(Moment),
}

/// What has become of a wait.
#[derive(Debug)]
pub(super) enum Fate {
    Queued,
    Granted,
    /// It lost its place; it may queue again with its old arrival number.
    Displaced(u64),
    TimedOut,
    /// It would never have ended: the cycle, in words.
    Deadlock(String),
}

/// Wakers to be called when the mutex has been released: a waker is foreign code, which may come back here.
#[derive(Default)]
pub(super) struct Wakes {
    /// Most events wake one, and that one costs no allocation.
    first: Option<Waker>,
    more: Vec<Waker>,
}

impl Wakes {
    fn push(&mut self, waker: Option<Waker>) {
        match waker {
            Some(waker) if self.first.is_none() => self.first = Some(waker),
            Some(waker) => self.more.push(waker),
            None => {}
        }
    }
}

impl Drop for Wakes {
    /// Here rather than in a method, so that the rest is woken although one waker panics.
    fn drop(&mut self) {
        while let Some(waker) = self.first.take().or_else(|| self.more.pop()) {
            let mut rest = Wakes { first: None, more: std::mem::take(&mut self.more) };
            waker.wake();
            self.more = std::mem::take(&mut rest.more);
        }
    }
}

impl Core {
    pub(super) fn new(graph: Graph, trust_tasks: bool, stall_time: Duration) -> Core {
        Core {
            graph,
            effects: Effects::default(),
            parties: IdMap::default(),
            by_number: IdMap::default(),
            locks: IdMap::default(),
            waiters: IdMap::default(),
            deadlines: BTreeSet::new(),
            timed: false,
            ring: false,
            watch: Watch::Off,
            stalled: IdMap::default(),
            stall_time,
            leaving: Vec::new(),
            trust_tasks,
        }
    }

    /// The graph's worker for this owner. An anonymous acquire is a worker of its own each time.
    pub(super) fn enlist(&mut self, owner: &Owner) -> WorkerKey {
        let number = owner.number();
        if let Some(worker) = self.by_number.get(&number) {
            return *worker;
        }
        // A fork's parent takes part as long as the fork does.
        let parent = owner.parent().map(|parent| self.enlist(&Owner::Worker(parent.clone())));
        let sequential = owner.is_sequential(self.trust_tasks);
        let worker = self.graph.add_worker(&WorkerSpec { base: owner.base(), deadline: None, parent, sequential });
        if !matches!(owner, Owner::Anonymous) {
            self.by_number.insert(number, worker);
        }
        self.parties.insert(worker, owner.clone());
        worker
    }

    /// The graph's worker for this owner, if it takes part now.
    pub(super) fn worker(&self, number: u64) -> Option<WorkerKey> {
        self.by_number.get(&number).copied()
    }

    pub(super) fn number_of(&self, worker: WorkerKey) -> Option<u64> {
        self.parties.get(&worker).map(Owner::number)
    }

    pub(super) fn trusts_tasks(&self) -> bool {
        self.trust_tasks
    }

    /// Whether this owner was granted the lock and has not taken it.
    pub(super) fn has_untaken(&self, number: u64, lock: LockKey) -> bool {
        self.worker(number).is_some_and(|worker| self.graph.has_untaken(worker, lock))
    }

    /// The worker may have nothing left here; that is looked at when the event is over.
    pub(super) fn leaves(&mut self, worker: WorkerKey) {
        self.leaving.push(worker);
    }

    pub(super) fn name_lock(&mut self, lock: LockKey, name: Option<&'static str>) {
        self.locks.insert(lock, name);
    }

    pub(super) fn forget_lock(&mut self, lock: LockKey) {
        if let Some(holder) = self.graph.holder(lock) {
            self.leaving.push(holder);
        }
        self.graph.remove_lock(lock, &mut self.effects);
        self.locks.remove(&lock);
        self.stalled.remove(&lock);
    }

    /// To be called before a hold ends: if the next in line may have expired, the graph must know the time. Nobody else pays for a clock.
    pub(super) fn note_time(&mut self, lock: LockKey, clock: &dyn Clock) {
        if self.graph.head_expires(lock) {
            self.graph.advance(clock.now().as_nanos());
        }
    }

    /// A future waits.
    pub(super) fn wait(&mut self, wait: WaitKey, worker: WorkerKey, waker: Waker, expires: Option<Moment>) {
        self.waiters.insert(wait, Waiter { worker, waker: Some(waker), expires, fate: Fate::Queued, untaken: None });
        if let Some(moment) = expires {
            self.deadlines.insert((moment, wait));
            self.ring |= !self.timed || self.deadlines.first() == Some(&(moment, wait));
        }
    }

    /// Whether the timer is to be told of this domain: that something is due, and if `Some(true)`, that it exists.
    pub(super) fn rings(&mut self) -> Option<bool> {
        std::mem::take(&mut self.ring).then(|| !std::mem::replace(&mut self.timed, true))
    }

    /// What has become of the wait. While it is queued, the waker is exchanged and the old one handed out, to be dropped elsewhere; any other
    /// fate is told once.
    ///
    /// A grant belongs to the worker: if another of its futures was granted the lock and has not been polled since, this one has it.
    pub(super) fn look(&mut self, wait: WaitKey, lock: LockKey, waker: &mut Option<Waker>) -> Fate {
        let Some(waiter) = self.waiters.get_mut(&wait) else {
            unreachable!("a wait is forgotten only when its fate was told or its lock has gone")
        };
        let fate = std::mem::replace(&mut waiter.fate, Fate::Queued);
        if matches!(fate, Fate::Granted) {
            self.stalled.remove(&lock);
            self.graph.take(wait, &mut self.effects);
        } else if matches!(fate, Fate::Queued) {
            let taken = self.graph.try_acquire(waiter.worker, lock, Mode::Exclusive, &mut self.effects);
            if !matches!(taken, Some(Acquired::Held(_))) {
                std::mem::swap(&mut waiter.waker, waker);
                return Fate::Queued;
            }
        }
        // The wait has left the queue, whichever of both it was.
        let waiter = self.waiters.remove(&wait);
        if let Some(moment) = waiter.as_ref().and_then(|waiter| waiter.expires) {
            self.deadlines.remove(&(moment, wait));
        }
        *waker = waiter.and_then(|waiter| waiter.waker);
        if matches!(fate, Fate::Queued) { Fate::Granted } else { fate }
    }

    /// The future is dropped. The waker comes out, to be dropped elsewhere.
    pub(super) fn cancel(&mut self, wait: WaitKey) -> Option<Waker> {
        let waiter = self.waiters.remove(&wait)?;
        if let Some(moment) = waiter.expires {
            self.deadlines.remove(&(moment, wait));
        }
        self.graph.cancel(wait, &mut self.effects);
        self.leaving.push(waiter.worker);
        waiter.waker
    }

    /// Ends the waits whose time is over, and looks for grants that nobody takes. When to come again; `None` if there is no need, and the timer
    /// forgets the domain.
    pub(super) fn expire(&mut self, now: Moment, wakes: &mut Wakes) -> Option<Moment> {
        while let Some((moment, wait)) = self.deadlines.first().copied().filter(|(moment, _)| *moment <= now) {
            self.deadlines.remove(&(moment, wait));
            // One that was granted before this has its lock: whoever came first under this mutex decides.
            if self.graph.expire(wait, &mut self.effects) == Left::Queued {
                self.effects.expired.push(wait);
            }
        }
        self.look_round(now, wakes);
        let watch = if let Watch::Next(moment) = self.watch { Some(moment) } else { None };
        let next = [watch, self.deadlines.first().map(|(moment, _)| *moment)].into_iter().flatten().min();
        self.timed = next.is_some();
        next
    }

    /// Notes since when grants have not been taken. Of one that is older than `stall_time` all who wait behind it are told, as who is first of
    /// them may not be polled any more either; what they do, they do with the lock at hand.
    fn look_round(&mut self, now: Moment, wakes: &mut Wakes) {
        let asked = match self.watch {
            Watch::Off => return,
            Watch::Asked => true,
            Watch::Next(moment) if moment > now => return,
            Watch::Next(_) => false,
        };
        // Once asked it stays for a while, or each hand-over would ask anew.
        let half = now + self.stall_time / 2;
        let mut next = asked.then_some(half);
        let mut stalled = Vec::new();
        for (wait, waiter) in self.waiters.iter_mut().filter(|(_, waiter)| matches!(waiter.fate, Fate::Granted)) {
            let over = *waiter.untaken.get_or_insert(now) + self.stall_time;
            next = [next, Some(half), (over > now).then_some(over)].into_iter().flatten().min();
            if over <= now {
                stalled.push(*wait);
            }
        }
        for wait in stalled {
            let Some(lock) = self.graph.wait(wait).map(|view| view.lock) else { continue };
            self.stalled.insert(lock, wait);
            for behind in self.graph.queue(lock) {
                wakes.push(self.waiters.get_mut(&behind).and_then(|waiter| waiter.waker.take()));
            }
        }
        self.watch = next.map_or(Watch::Off, Watch::Next);
    }

    /// Takes the lock's grant away from who has not taken it for too long. Whether that was so.
    pub(super) fn take_over(&mut self, lock: LockKey) -> bool {
        if self.stalled.is_empty() {
            return false;
        }
        let Some(wait) = self.stalled.remove(&lock) else { return false };
        self.graph.take_over(wait, &mut self.effects).is_some()
    }

    /// The end of every event: whom it concerns is told, and whoever has nothing left here goes.
    pub(super) fn settle(&mut self, wakes: &mut Wakes) {
        let mut effects = std::mem::take(&mut self.effects);
        for wait in effects.granted.drain(..) {
            self.tell(wait, Fate::Granted, wakes);
        }
        for (wait, cycle) in effects.ended.drain(..) {
            let text = self.describe(&cycle);
            self.tell(wait, Fate::Deadlock(text), wakes);
        }
        for wait in effects.expired.drain(..) {
            self.tell(wait, Fate::TimedOut, wakes);
        }
        for displaced in effects.displaced.drain(..) {
            self.tell(displaced.wait, Fate::Displaced(displaced.arrival), wakes);
        }
        for wait in effects.removed.drain(..) {
            // Its lock has gone, so its future was leaked: nobody will ask.
            if let Some(waiter) = self.waiters.remove(&wait) {
                self.leaving.push(waiter.worker);
                wakes.push(waiter.waker);
                self.deadlines.retain(|(_, other)| *other != wait);
            }
        }
        while let Some(worker) = self.leaving.pop() {
            if self.graph.is_idle(worker) {
                self.graph.remove_worker(worker, &mut effects);
                if let Some(owner) = self.parties.remove(&worker) {
                    self.by_number.remove(&owner.number());
                    self.leaving.extend(owner.parent().and_then(|parent| self.worker(parent.id().get())));
                }
            }
        }
        effects.clear();
        self.effects = effects;
    }

    fn tell(&mut self, wait: WaitKey, fate: Fate, wakes: &mut Wakes) {
        let Some(waiter) = self.waiters.get_mut(&wait) else { return };
        if let Some(moment) = waiter.expires.take() {
            self.deadlines.remove(&(moment, wait));
        }
        if !matches!(fate, Fate::Granted) {
            self.leaving.push(waiter.worker);
        } else if self.watch == Watch::Off {
            self.watch = Watch::Asked;
            self.ring = true;
        }
        waiter.fate = fate;
        wakes.push(waiter.waker.take());
    }

    /// The cycle in words.
    pub(super) fn describe(&self, cycle: &Cycle) -> String {
        if let [Step { worker, on: On::Lock { lock, .. } }] = cycle.as_slice() {
            let mut text = format!("deadlock: {} waits for {}, which it holds itself", self.name(*worker), self.lock_name(*lock));
            if let Some(Owner::Worker(_)) = self.parties.get(worker) {
                text.push_str("; if that is another arm of join! or select!, give each arm a fork of the worker: worker.fork(\"arm\")");
            }
            return text;
        }
        let mut text = String::from("deadlock: ");
        for (at, step) in cycle.iter().enumerate() {
            let next = cycle.get(at + 1).unwrap_or(&cycle[0]);
            if at > 0 {
                text.push_str(", which ");
            } else {
                text.push_str(&self.name(step.worker));
                text.push(' ');
            }
            let _ = match step.on {
                On::Lock { lock, .. } => write!(text, "waits for {}, held by {}", self.lock_name(lock), self.name(next.worker)),
                On::Fork => write!(text, "waits for its fork {}", self.name(next.worker)),
            };
        }
        text
    }

    fn name(&self, worker: WorkerKey) -> String {
        self.parties.get(&worker).map_or_else(|| format!("worker {}", worker.get()), ToString::to_string)
    }

    fn lock_name(&self, lock: LockKey) -> String {
        match self.locks.get(&lock).copied().flatten() {
            Some(name) => format!("lock {name:?}"),
            None => format!("lock #{}", lock.get()),
        }
    }

    /// How many records of what comes and goes there are.
    pub(super) fn records(&self) -> [usize; 7] {
        let counts = self.graph.counts();
        let Core { parties, by_number, waiters, deadlines, .. } = self;
        [parties.len(), by_number.len(), waiters.len(), deadlines.len(), counts.workers, counts.waits, counts.holds]
    }
}
