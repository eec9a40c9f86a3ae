//! What a lock is: its rules, and what the graph keeps of it.

use std::num::NonZeroU32;

use super::queue::Queue;
use super::slab::NIL;
use super::urgency::Order;

/// The rules of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One holder, who waits for itself when it asks again.
    Mutex,
    /// One holder, who may enter again.
    RLock,
    /// One writer or many readers, one of whom may be upgradable; a reader may enter again.
    RwLock,
    /// As many at once as there are permits; see [`LockSpec::tracked`].
    Semaphore,
    /// As [`Kind::Mutex`]: whoever produces the result holds it.
    Promise,
    /// As [`Kind::Mutex`]: whoever initialises the value holds it.
    Once,
    /// Nobody holds it: who waits is granted it by [`Graph::notify`](super::Graph::notify) alone. Who will do that is unknown, so nobody is
    /// boosted by such a wait, and no cycle goes through it.
    Condition,
    /// As [`Kind::Condition`].
    Event,
    /// As [`Kind::Condition`].
    Barrier,
}

impl Kind {
    /// As operators see it.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Mutex => "mutex",
            Kind::RLock => "rlock",
            Kind::RwLock => "rwlock",
            Kind::Semaphore => "semaphore",
            Kind::Promise => "promise",
            Kind::Once => "once",
            Kind::Condition => "condition",
            Kind::Event => "event",
            Kind::Barrier => "barrier",
        }
    }

    /// As a sentence calls it.
    pub fn noun(self) -> &'static str {
        match self {
            Kind::Mutex | Kind::RLock | Kind::RwLock | Kind::Once => "lock",
            _ => self.word(),
        }
    }

    /// Whether it is a condition, whatever it is called: nobody holds it, and who waits is notified.
    pub const fn is_condition(self) -> bool {
        matches!(self, Kind::Condition | Kind::Event | Kind::Barrier)
    }
}

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Beside nobody.
    Exclusive,
    /// Beside readers of a [`Kind::RwLock`], but no other such: the one reader that may become a writer by
    /// [`Graph::upgrade`](super::Graph::upgrade). Everywhere else it means exclusive, or as permits are held.
    Upgradable,
    /// Beside other readers of a [`Kind::RwLock`], and how permits of a [`Kind::Semaphore`] are held; everywhere else it means exclusive.
    Shared,
}

impl Mode {
    /// How a lock is held that is held in both ways.
    pub(super) fn and(self, other: Mode) -> Mode {
        match (self, other) {
            (Mode::Exclusive, _) | (_, Mode::Exclusive) => Mode::Exclusive,
            (Mode::Upgradable, _) | (_, Mode::Upgradable) => Mode::Upgradable,
            (Mode::Shared, Mode::Shared) => Mode::Shared,
        }
    }

    /// Whether it is another, and keeps out less.
    pub(super) fn is_weaker(self, than: Mode) -> bool {
        self != than && self.and(than) == than
    }

    /// Whether one worker may hold in this way beside others who hold in that.
    pub(super) fn is_beside(self, other: Mode) -> bool {
        matches!((self, other), (Mode::Shared, Mode::Shared | Mode::Upgradable) | (Mode::Upgradable, Mode::Shared))
    }
}

/// What a new lock is.
#[derive(Clone, Copy, Debug)]
pub struct LockSpec {
    /// Its rules.
    pub kind: Kind,
    /// Who is next.
    pub order: Order,
    /// After so many grants to others since it became the oldest, the oldest waiter is next.
    pub bypass: Option<NonZeroU32>,
    /// Whether only its holders can release it. Where anybody may, holders are boosted, but no cycle through it is certain.
    pub owned: bool,
    /// Of a [`Kind::Semaphore`]: how many permits are free.
    pub permits: u64,
    /// Of a [`Kind::Semaphore`]: whether who was granted permits holds them, and inherits from who waits. Else they are only taken off the free
    /// ones, and who will give some back is unknown.
    pub tracked: bool,
}

impl LockSpec {
    /// A lock of this kind: by priority, without a bypass limit. Its holders release it; permits and notifications may come from anybody. A
    /// semaphore has no free permits and is not tracked.
    pub fn new(kind: Kind) -> LockSpec {
        let owned = !kind.is_condition() && kind != Kind::Semaphore;
        LockSpec { kind, order: Order::Priority, bypass: None, owned, permits: 0, tracked: false }
    }
}

#[derive(Debug)]
pub(super) struct Lock {
    pub(super) spec: LockSpec,
    pub(super) holds: u32,
    /// How its holders hold it: as the strongest of them does.
    pub(super) mode: Mode,
    pub(super) queue: Queue,
    /// The waits that were granted and not taken.
    pub(super) untaken: u32,
    terms: Terms,
    /// Permits; of a condition, notifications that are to go to the first of the queue. Those are not kept beyond an event, nor for an empty
    /// queue.
    pub(super) free: u64,
    /// Whether it is among the locks to be looked at for a grant.
    pub(super) stirred: bool,
    /// Whether who was upgradable, or wrote, reads on or has left readers behind: who waits to be upgradable may be kept out by its place alone.
    pub(super) loosened: bool,
}

/// What a grant comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Terms {
    /// A hold.
    Held,
    /// A part of what is free: nobody holds it.
    Counted,
    /// A part of what is free, which is held.
    Both,
}

impl Lock {
    pub(super) fn new(spec: LockSpec) -> Lock {
        let queue = Queue::new(spec.order, spec.bypass);
        let is_semaphore = spec.kind == Kind::Semaphore;
        Lock {
            spec,
            holds: NIL,
            // Who is first of a semaphore's queue decides whether anybody can be granted something, as it does among readers.
            mode: if is_semaphore { Mode::Shared } else { Mode::Exclusive },
            queue,
            untaken: NIL,
            terms: match spec.kind {
                Kind::Semaphore if spec.tracked => Terms::Both,
                Kind::Semaphore => Terms::Counted,
                kind if kind.is_condition() => Terms::Counted,
                _ => Terms::Held,
            },
            free: if is_semaphore { spec.permits } else { 0 },
            stirred: false,
            loosened: false,
        }
    }

    pub(super) fn is_condition(&self) -> bool {
        self.spec.kind.is_condition()
    }

    /// Whether who is granted it holds it.
    pub(super) fn is_held(&self) -> bool {
        self.terms != Terms::Counted
    }

    /// Whether a grant is paid for out of what is free.
    pub(super) fn is_counted(&self) -> bool {
        self.terms != Terms::Held
    }

    pub(super) fn is_semaphore(&self) -> bool {
        self.spec.kind == Kind::Semaphore
    }

    /// Whether nobody could be granted it now, whoever is first of the queue.
    pub(super) fn closed(&self) -> bool {
        if self.is_counted() { self.free == 0 } else { self.holds != NIL && self.mode == Mode::Exclusive }
    }

    /// Whether this mode, or so many permits, could be granted now.
    pub(super) fn admits(&self, mode: Mode, depth: u32) -> bool {
        if self.is_counted() { self.price(depth) <= self.free } else { self.holds == NIL || mode.is_beside(self.mode) }
    }

    /// Whether nothing but a place in the queue keeps this mode out. Permits are given in the order of the queue, whoever could have some past the
    /// first: that is no reason to bend it.
    pub(super) fn keeps_out(&self, mode: Mode) -> bool {
        !self.is_counted() && mode != Mode::Exclusive && self.admits(mode, 0)
    }

    /// What a grant takes off the free, and gives back.
    pub(super) fn price(&self, depth: u32) -> u64 {
        if self.is_condition() { 1 } else { u64::from(depth) }
    }
}
