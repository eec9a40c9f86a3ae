//! What events ask for and what comes of them.

use super::lock::Mode;
use super::records::{LockKey, Origin, WaitKey, WorkerKey};

/// An acquire.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Who acquires.
    pub worker: WorkerKey,
    /// What.
    pub lock: LockKey,
    /// How; an upgrade is exclusive.
    pub mode: Mode,
    /// Levels at once: more than 1 when a condition gives back what its waiter had. Of a semaphore, permits at once; none are had at once.
    pub depth: u32,
    /// Stands in for the worker's base for this wait.
    pub priority: Option<i32>,
    /// For ordering; the nearest of this and the worker's counts.
    pub deadline: Option<u64>,
    /// From when on a hand-over passes it by (see [`Graph::advance`](super::Graph::advance)); orders nothing.
    pub expires: Option<u64>,
    /// The arrival number of a wait that lost its place and is now queued again.
    pub arrival: Option<u64>,
    /// Where and when it waits.
    pub origin: Origin,
}

impl Request {
    /// One level, with nothing special about it.
    pub fn new(worker: WorkerKey, lock: LockKey, mode: Mode) -> Request {
        Request { worker, lock, mode, depth: 1, priority: None, deadline: None, expires: None, arrival: None, origin: Origin::UNKNOWN }
    }
}

/// What came of an acquire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The worker holds the lock, now so many levels deep; 0 where there is nothing to hold: it was notified, or has its permits.
    Held(u32),
    /// It waits.
    Queued(WaitKey),
    /// It would have waited for ever; it does not wait, and keeps what it holds.
    Deadlock(Cycle),
    /// It holds as many levels as can be counted, or would if it got all the permits that it asks for.
    Overflow,
}

/// What came of giving up levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// So many levels remain.
    Kept(u32),
    /// It holds the lock no more.
    Freed,
    /// It did not hold the lock.
    NotHeld,
}

/// What came of ending a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// It was in the queue.
    Queued,
    /// It had been granted; the grant went on to the next.
    Granted,
    /// There was no such wait (any more).
    Gone,
}

/// Workers that wait for each other: each for the one after it, the last for the first.
pub type Cycle = Vec<Step>;

/// One worker on a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Who waits.
    pub worker: WorkerKey,
    /// For what.
    pub on: On,
}

/// What a worker on a cycle waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// A lock that the next worker holds, or waits to write.
    Lock {
        /// Which lock.
        lock: LockKey,
        /// How it wants it.
        mode: Mode,
        /// The wait; none if it never came to be (a reader that asks to write).
        wait: Option<WaitKey>,
        /// Where it waits, and since when.
        origin: Origin,
    },
    /// The next worker, its fork.
    Fork,
}

/// A wait that lost its place or its untaken grant. Whoever still wants the lock acquires again with the arrival number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Displaced {
    /// The wait, which exists no more.
    pub wait: WaitKey,
    /// Its arrival number.
    pub arrival: u64,
}

/// What an event did to others than who caused it. Events add to it; whoever passes it clears it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Waits that were granted, in that order: their futures are to be woken and to [`take`](super::Graph::take) their grants.
    pub granted: Vec<WaitKey>,
    /// Waits that ended with a deadlock, closed by a grant or become certain.
    pub ended: Vec<(WaitKey, Cycle)>,
    /// Waits whose time was over when their turn came.
    pub expired: Vec<WaitKey>,
    /// Waits that lost their grants to another wait of the same worker or to the next waiter, or their places because they have nothing to wait for in a
    /// queue.
    pub displaced: Vec<Displaced>,
    /// Waits that ended because their lock or their worker went.
    pub removed: Vec<WaitKey>,
    /// Waits that ended because nobody needs to wait for their lock any more; see [`Graph::dismiss`](super::Graph::dismiss).
    pub dismissed: Vec<WaitKey>,
    /// Cycles that were found and are not certain; they stand.
    pub suspected: Vec<Cycle>,
    /// Workers whose effective priority is another than before the event.
    pub changed: Vec<WorkerKey>,
    /// Whether an untaken grant has come in doubt, or one in doubt was granted: see [`WaitView::in_doubt`](super::WaitView::in_doubt).
    pub doubts: bool,
}

impl Effects {
    /// Forgets everything, and keeps the room.
    pub fn clear(&mut self) {
        self.granted.clear();
        self.ended.clear();
        self.expired.clear();
        self.displaced.clear();
        self.removed.clear();
        self.dismissed.clear();
        self.suspected.clear();
        self.changed.clear();
        self.doubts = false;
    }

    /// Whether nothing happened to others.
    pub fn is_empty(&self) -> bool {
        let Effects { granted, ended, expired, displaced, removed, dismissed, suspected, changed, doubts } = self;
        granted.is_empty()
            && ended.is_empty()
            && expired.is_empty()
            && displaced.is_empty()
            && removed.is_empty()
            && dismissed.is_empty()
            && suspected.is_empty()
            && changed.is_empty()
            && !doubts
    }
}

/// What to do about a cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeadlockPolicy {
    /// A certain one ends the wait that closed it.
    #[default]
    Closer,
    /// A certain one ends the wait of the worker with the lowest base priority; of equals, the closer's.
    LowestPriority,
    /// As `Closer`, and a suspected one counts as certain.
    ErrSuspected,
}
