//! What a domain keeps under its one mutex: the graph, and who is behind its ids.

mod picture;
mod report;
mod suspects;
mod tracking;
mod wakes;
mod watch;
mod words;

use std::collections::{BTreeSet, VecDeque};
use std::task::Waker;
use std::time::Duration;

pub(super) use tracking::Tracking;
pub(super) use wakes::Wakes;
pub(super) use watch::Due;

use self::report::Report;
use self::suspects::Suspects;
use self::watch::Watch;
use super::graph::{Effects, Graph, LockKey, Request, WaitKey, WorkerKey, WorkerSpec};
use super::hash::IdMap;
use super::identity::Owner;
use super::name::Name;
use super::slots::{Slots, slot};
use crate::Worker;
use crate::clock::{Clock, Moment};
use crate::heap::Heap;

pub struct Core {
    pub(super) graph: Graph,
    /// What the running event has done so far; empty between events.
    pub(super) effects: Effects,
    /// Who takes part now: whoever holds or waits by the graph's account.
    parties: Slots<WorkerKey, Owner>,
    by_number: IdMap<u64, WorkerKey>,
    /// The names of the locks that were ever contended.
    locks: Slots<LockKey, Name>,
    /// The futures that wait, or have yet to notice that they need not.
    waiters: Slots<WaitKey, Waiter>,
    /// Those whose wait has just ended, and whose slot another has taken before they are told: empty between events.
    replaced: IdMap<WaitKey, Waiter>,
    /// What has become of waits that the graph knows no more, for their futures to be told; of those that were dismissed, nothing. One that is leaked
    /// leaks this, too.
    ended: IdMap<WaitKey, (WorkerKey, Fate)>,
    /// When which wait expires.
    deadlines: Heap<Moment>,
    /// Whether the timer thread has this domain on its list.
    timed: bool,
    /// Whether the running event has made something due earlier than the timer knows.
    ring: bool,
    watch: Watch,
    /// Grants that nobody has taken for too long, by lock: whoever comes next may take them over.
    stalled: BTreeSet<(LockKey, WaitKey)>,
    stall_time: Duration,
    /// Workers that may have nothing left in the graph; and such of which some are kept a while.
    leaving: Vec<WorkerKey>,
    lingering: Vec<WorkerKey>,
    trust_tasks: bool,
    suspects: Suspects,
    /// The deadlocks found last, each worker on them in words.
    deadlocks: VecDeque<Vec<String>>,
    /// What is to be said of the running event.
    reports: Vec<Report>,
    /// Of a domain that tracks its holds, and when the running event began.
    tracking: Option<Box<Tracking>>,
    now: Option<Moment>,
}

/// The domain's side of a waiting future.
struct Waiter {
    worker: WorkerKey,
    /// Taken when it is woken.
    waker: Option<Waker>,
    expires: Option<Moment>,
    /// Where it is among the deadlines.
    place: u32,
    granted: bool,
    /// Whether it may take its grant without the mutex.
    offered: bool,
    /// When the watch first saw it granted and not taken; and in doubt, too.
    untaken: Option<Moment>,
    doubted: Option<Moment>,
}

/// What has become of a wait.
#[derive(Debug)]
pub enum Fate {
    Queued,
    /// Its worker holds the lock.
    Granted(WorkerKey),
    /// It lost its place; it may queue again with its old arrival number.
    Displaced(u64),
    TimedOut,
    /// Nobody needs to wait for the lock any more.
    Dismissed,
    /// It would never have ended: the cycle, in words.
    Deadlock(String),
}

impl Core {
    pub(super) fn new(graph: Graph, trust_tasks: bool, stall_time: Duration, tracking: Option<Box<Tracking>>) -> Core {
        Core {
            graph,
            effects: Effects::default(),
            parties: Slots::new(),
            by_number: IdMap::default(),
            locks: Slots::new(),
            waiters: Slots::new(),
            replaced: IdMap::default(),
            ended: IdMap::default(),
            deadlines: Heap::new(),
            timed: false,
            ring: false,
            watch: Watch::Off,
            stalled: BTreeSet::new(),
            stall_time,
            leaving: Vec::new(),
            lingering: Vec::new(),
            trust_tasks,
            suspects: Suspects::default(),
            deadlocks: VecDeque::new(),
            reports: Vec::new(),
            tracking,
            now: None,
        }
    }

    /// An event begins; in a domain that tracks its holds, at this moment.
    pub(super) fn begin(&mut self, now: Option<Moment>) {
        self.now = now;
    }

    /// Whether the graph is told of all holds.
    pub(super) fn tracks(&self) -> bool {
        self.tracking.is_some()
    }

    /// The graph's worker for this owner. An anonymous acquire is a worker of its own each time.
    pub(super) fn enlist(&mut self, owner: &Owner) -> WorkerKey {
        let number = owner.number();
        if let Some(worker) = self.by_number.get(&number) {
            return *worker;
        }
        // A fork's parents take part as long as the fork does; the eldest comes first.
        let mut parents: Vec<Worker> = Vec::new();
        let mut parent = owner.parent().cloned();
        while let Some(worker) = parent.filter(|worker| self.worker(worker.id().get()).is_none()) {
            parent = worker.parent().cloned();
            parents.push(worker);
        }
        while let Some(worker) = parents.pop() {
            self.enlist_one(&Owner::Worker(worker));
        }
        self.enlist_one(owner)
    }

    /// The same for one whose parent, if there is one, takes part.
    fn enlist_one(&mut self, owner: &Owner) -> WorkerKey {
        let number = owner.number();
        let parent = owner.parent().and_then(|parent| self.worker(parent.id().get()));
        let sequential = owner.is_sequential(self.trust_tasks);
        if let Owner::Worker(worker) = owner {
            worker.takes_part();
        }
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

    /// The worker in this slot of the graph.
    pub(super) fn worker_at(&self, slot: u64) -> Option<WorkerKey> {
        self.parties.key_at(u32::try_from(slot).ok()?)
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
        match self.parties.get(&worker) {
            // Likely to be back soon, and nobody else's.
            Some(Owner::Task(_) | Owner::Thread(_)) => self.lingering.push(worker),
            _ => self.leaving.push(worker),
        }
        if self.lingering.len() >= LINGERING {
            self.leaving.append(&mut self.lingering);
        }
    }

    pub(super) fn name_lock(&mut self, lock: LockKey, name: Name) {
        self.locks.insert(lock, name);
    }

    pub(super) fn forget_lock(&mut self, lock: LockKey) {
        self.leaving.extend(self.graph.holding(lock).map(|hold| hold.worker));
        self.graph.remove_lock(lock, &mut self.effects);
        let name = self.locks.remove(&lock).and_then(|name| name.class);
        if let Some(tracking) = &mut self.tracking {
            tracking.forget(lock, name);
        }
        self.stalled.retain(|(other, _)| *other != lock);
    }

    /// To be called before a hold ends: if the next in line may have expired, the graph must know the time. Nobody else pays for a clock.
    pub(super) fn note_time(&mut self, lock: LockKey, clock: &dyn Clock) {
        if !self.deadlines.is_empty() && self.graph.head_expires(lock) {
            self.graph.advance(clock.now().as_nanos());
        }
    }

    /// A future waits.
    pub(super) fn wait(&mut self, wait: WaitKey, request: &Request, waker: Waker, expires: Option<Moment>) {
        if let Some(other) = self.waiters.at(slot(wait)).map(|(other, _)| other) {
            self.undue(other);
            self.replaced.extend(self.waiters.remove(&other).map(|waiter| (other, waiter)));
        }
        let waiter = Waiter {
            worker: request.worker,
            waker: Some(waker),
            expires,
            place: 0,
            granted: false,
            offered: false,
            untaken: None,
            doubted: None,
        };
        self.waiters.insert(wait, waiter);
        self.watch_holds(request.lock);
        if let Some(moment) = expires {
            let Core { deadlines, waiters, .. } = self;
            deadlines.insert(moment, slot(wait), |slot, place| moved(waiters, slot, place));
            self.ring |= !self.timed || self.deadlines.first() == Some((moment, slot(wait)));
        }
    }

    /// The wait has a deadline no more.
    fn undue(&mut self, wait: WaitKey) {
        let Core { deadlines, waiters, .. } = self;
        if let Some(waiter) = waiters.get_mut(&wait)
            && waiter.expires.take().is_some()
        {
            let place = waiter.place;
            deadlines.remove(place, |slot, place| moved(waiters, slot, place));
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
            // A wait is forgotten when its fate was told, when its lock has gone, or when it was dismissed, of which nothing is kept.
            return self.ended.remove(&wait).map_or(Fate::Dismissed, |(_, fate)| fate);
        };
        if waiter.granted {
            self.stalled.remove(&(lock, wait));
            self.graph.take(wait, &mut self.effects);
        } else if !self.graph.claim(wait, &mut self.effects) {
            std::mem::swap(&mut waiter.waker, waker);
            return Fate::Queued;
        }
        let worker = waiter.worker;
        self.undue(wait);
        if let Some(waiter) = self.waiters.remove(&wait) {
            // Who was notified by a condition may hold nothing.
            self.leaves(worker);
            *waker = waiter.waker;
        }
        Fate::Granted(worker)
    }

    /// The lock's grant, if there is an untaken one, may from now on be taken without the mutex: whether that is so. Not if anything else would have
    /// to be done then: other waits of the worker would lose their places, or it has not yet been told how they ended.
    pub(super) fn offer(&mut self, lock: LockKey) -> bool {
        // What this event has ended is not told yet.
        let tells = !self.effects.ended.is_empty() || !self.effects.expired.is_empty() || !self.effects.displaced.is_empty();
        if tells || self.ended.len() > FEW || self.tracks() {
            return false;
        }
        let Some((wait, true)) = self.graph.untaken(lock) else { return false };
        let Some(waiter) = self.waiters.get_mut(&wait) else { return false };
        if self.ended.values().any(|(worker, _)| *worker == waiter.worker) {
            return false;
        }
        waiter.offered = true;
        true
    }

    /// An event on the lock begins. If its grant was offered it either still is, or was taken.
    pub(super) fn note_offer(&mut self, lock: LockKey, still: bool) {
        let Some((wait, _)) = self.graph.untaken(lock) else { return };
        let Some(waiter) = self.waiters.get_mut(&wait) else { return };
        if !std::mem::take(&mut waiter.offered) || still {
            return;
        }
        self.undue(wait);
        self.waiters.remove(&wait);
        if !self.stalled.is_empty() {
            self.stalled.remove(&(lock, wait));
        }
        self.graph.take(wait, &mut self.effects);
    }

    /// The future is dropped. The waker comes out, to be dropped elsewhere.
    pub(super) fn cancel(&mut self, wait: WaitKey) -> Option<Waker> {
        self.undue(wait);
        let Some(waiter) = self.waiters.remove(&wait) else {
            let (worker, _) = self.ended.remove(&wait)?;
            self.leaves(worker);
            return None;
        };
        self.graph.cancel(wait, &mut self.effects);
        self.leaves(waiter.worker);
        waiter.waker
    }

    /// The end of every event: whom it concerns is told, and whoever has nothing left here goes.
    #[inline]
    pub(super) fn settle(&mut self, now: impl Fn() -> Moment, wakes: &mut Wakes) {
        if std::mem::take(&mut self.effects.doubts) {
            self.watch_doubts();
        }
        // Most events grant one wait, or do nothing to others.
        if let [wait] = self.effects.granted[..]
            && self.tracking.is_none()
        {
            self.effects.granted.clear();
            self.tell_granted(wait, wakes);
        }
        if !self.effects.is_empty() {
            self.settle_effects(now, wakes);
        }
        if !self.leaving.is_empty() {
            self.let_leave(wakes);
        }
    }

    fn settle_effects(&mut self, now: impl Fn() -> Moment, wakes: &mut Wakes) {
        let mut effects = std::mem::take(&mut self.effects);
        for wait in effects.granted.drain(..) {
            if let Some(view) = self.tracking.as_ref().and_then(|_| self.graph.wait(wait)) {
                self.began(view.worker, view.lock);
            }
            self.tell_granted(wait, wakes);
        }
        for (wait, cycle) in effects.ended.drain(..) {
            let text = self.verdict(&cycle, now());
            self.tell(wait, Fate::Deadlock(text), wakes);
        }
        if !effects.suspected.is_empty() {
            self.suspect();
        }
        for wait in effects.expired.drain(..) {
            self.tell(wait, Fate::TimedOut, wakes);
        }
        for wait in effects.dismissed.drain(..) {
            self.tell(wait, Fate::Dismissed, wakes);
        }
        for displaced in effects.displaced.drain(..) {
            self.tell(displaced.wait, Fate::Displaced(displaced.arrival), wakes);
        }
        for wait in effects.removed.drain(..) {
            // Its lock has gone, so its future was leaked: nobody will ask.
            self.undue(wait);
            if let Some(waiter) = self.waiters.remove(&wait).or_else(|| self.replaced.remove(&wait)) {
                self.leaving.push(waiter.worker);
                wakes.push(waiter.waker);
            }
        }
        for worker in effects.changed.drain(..) {
            if let Some(Owner::Worker(worker)) = self.parties.get(&worker)
                && worker.is_listened_to()
            {
                wakes.tell_change(worker);
            }
        }
        effects.clear();
        self.effects = effects;
    }

    /// Whoever has nothing left here goes.
    fn let_leave(&mut self, wakes: &mut Wakes) {
        while let Some(worker) = self.leaving.pop() {
            if self.graph.is_idle(worker) {
                // Nothing comes of that.
                self.graph.remove_worker(worker, &mut self.effects);
                if let Some(owner) = self.parties.remove(&worker) {
                    self.by_number.remove(&owner.number());
                    self.leaving.extend(owner.parent().and_then(|parent| self.worker(parent.id().get())));
                    wakes.bury(owner);
                }
            }
        }
        self.effects.clear();
    }

    fn tell(&mut self, wait: WaitKey, fate: Fate, wakes: &mut Wakes) {
        self.undue(wait);
        let Some(waiter) = self.waiters.remove(&wait).or_else(|| self.replaced.remove(&wait)) else { return };
        wakes.push(waiter.waker);
        self.leaves(waiter.worker);
        // Many may be dismissed at once.
        if !matches!(fate, Fate::Dismissed) {
            self.ended.insert(wait, (waiter.worker, fate));
        }
    }

    fn tell_granted(&mut self, wait: WaitKey, wakes: &mut Wakes) {
        self.undue(wait);
        if let Some(waiter) = self.waiters.get_mut(&wait) {
            waiter.granted = true;
            wakes.push(waiter.waker.take());
            if self.watch == Watch::Off {
                self.watch = Watch::Asked;
                self.ring = true;
            }
        }
    }

    /// How many records of what comes and goes there are.
    pub(super) fn records(&mut self, wakes: &mut Wakes) -> [usize; 7] {
        self.leaving.append(&mut self.lingering);
        self.let_leave(wakes);
        let counts = self.graph.counts();
        let Core { parties, by_number, waiters, ended, deadlines, .. } = self;
        [parties.len(), by_number.len(), waiters.len() + ended.len(), deadlines.len(), counts.workers, counts.waits, counts.holds]
    }
}

/// Of how many waits that have ended it is worth looking whose they were.
const FEW: usize = 8;

/// How many tasks and threads are kept that may have nothing left in the graph.
const LINGERING: usize = 64;

/// A deadline is at another place.
fn moved(waiters: &mut Slots<WaitKey, Waiter>, slot: u32, place: u32) {
    if let Some((_, waiter)) = waiters.at(slot) {
        waiter.place = place;
    }
}
