//! What the graph keeps: workers, locks, waits, holds.

use std::num::NonZeroU32;
use std::panic::Location;

use super::queue::Queue;
use super::slab::{Link, Linked, NIL};
use super::urgency::{NEVER, Order, Urgency};

macro_rules! key {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub(super) u64);

        impl $name {
            /// As a number; never 0.
            pub fn get(self) -> u64 {
                self.0
            }

            /// The key that was this number.
            pub fn from_number(number: u64) -> $name {
                $name(number)
            }
        }
    };
}

key! {
    /// A worker's id in one graph: never used twice.
    WorkerKey
}
key! {
    /// A lock's id in one graph: never used twice.
    LockKey
}
key! {
    /// The id of one wait in one graph: never used twice.
    WaitKey
}

/// What a new worker is.
#[derive(Clone, Copy, Debug)]
pub struct WorkerSpec {
    /// The base priority. A fork that only inherits has `i32::MIN`.
    pub base: i32,
    /// The deadline of every wait that it begins.
    pub deadline: Option<u64>,
    /// Whose fork it is.
    pub parent: Option<WorkerKey>,
    /// Whether it is one line of work, so that a cycle through its only pending wait is a deadlock for certain. A bare task is not; nor is the
    /// worker that is made for one anonymous acquire.
    pub sequential: bool,
}

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

/// Where and when something began: for whoever looks, not for the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The source line.
    pub site: Option<&'static Location<'static>>,
    /// The instant; [`NEVER`] if it is not known.
    pub at: u64,
}

impl Origin {
    /// Nothing is known.
    pub const UNKNOWN: Origin = Origin { site: None, at: NEVER };
}

/// Where a wait stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// In the queue.
    Queued,
    /// Its worker holds the lock because of it, or was notified by a condition, and has not yet taken note.
    Granted,
}

#[derive(Debug)]
pub(super) struct Worker {
    pub(super) base: i32,
    pub(super) deadline: u64,
    pub(super) sequential: bool,
    /// What the waits on its locks, and its parent, give it.
    pub(super) inherited: Urgency,
    /// The base and the earliest deadline of its pending waits, joined with what is inherited.
    pub(super) effective: Urgency,
    /// The earliest deadline of its pending waits, before anything is inherited.
    pub(super) own_deadline: u64,
    pub(super) parent: u32,
    pub(super) forks: u32,
    pub(super) holds: u32,
    /// Its queued waits, and how many.
    pub(super) waits: u32,
    pub(super) pending: u32,
    /// Its waits that were granted and not taken.
    pub(super) untaken: u32,
    pub(super) link: [Link; 1],
    pub(super) scratch: Scratch,
}

/// What an event notes on a worker while it runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scratch {
    pub(super) due: Due,
    /// What it is about to inherit, too.
    pub(super) raise: Urgency,
    /// Whether it is among those that start again from their base.
    pub(super) restarts: bool,
    /// The effective priority before the event, if that has been changed in it.
    pub(super) before: Option<i32>,
    /// The search that last came by; on a way that was not complete, and on one that was.
    pub(super) seen: [u64; 2],
}

/// What is to be done to bring a worker's inheritance up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    /// Join what it inherits with the raise.
    Raise,
    /// Compute it anew.
    All,
}

impl Worker {
    pub(super) fn new(spec: &WorkerSpec) -> Worker {
        Worker {
            base: spec.base,
            deadline: spec.deadline.unwrap_or(NEVER),
            sequential: spec.sequential,
            inherited: Urgency::NONE,
            effective: Urgency { priority: spec.base, deadline: NEVER },
            own_deadline: NEVER,
            parent: NIL,
            forks: NIL,
            holds: NIL,
            waits: NIL,
            pending: 0,
            untaken: NIL,
            link: [Link::NONE],
            scratch: Scratch { due: Due::Nothing, raise: Urgency::NONE, restarts: false, before: None, seen: [0; 2] },
        }
    }

    /// Whether nothing makes it inherit, and nobody inherits from it: a change of its urgency, if there is one, ends with it.
    pub(super) fn is_free(&self) -> bool {
        [self.parent, self.holds] == [NIL; 2] && self.is_last()
    }

    /// Whether it waits for one thing, and nobody inherits from it but by that.
    pub(super) fn waits_for_one(&self) -> bool {
        self.pending == 1 && self.forks == NIL && self.scratch.due == Due::Nothing
    }

    /// Whether a change of its urgency ends with it, and none is due yet.
    pub(super) fn is_last(&self) -> bool {
        [self.waits, self.forks] == [NIL; 2] && self.scratch.due == Due::Nothing
    }

    pub(super) fn own(&self) -> Urgency {
        Urgency { priority: self.base, deadline: self.own_deadline }
    }
}

impl Linked<1> for Worker {
    fn links(&mut self) -> &mut [Link; 1] {
        &mut self.link
    }
}

#[derive(Debug)]
pub(super) struct Wait {
    pub(super) worker: u32,
    pub(super) lock: u32,
    pub(super) mode: Mode,
    /// Whether it is that of an upgradable holder, who has what it wants of its hold when nobody else is left.
    pub(super) upgrades: bool,
    /// At which depth it will hold; how many permits it will take.
    pub(super) depth: u32,
    /// Stands in for the worker's base.
    pub(super) priority: Option<i32>,
    /// The nearest of the call's deadline and the worker's.
    pub(super) deadline: u64,
    /// When it is over.
    pub(super) expires: u64,
    /// Smaller came earlier; kept when the wait is re-keyed, revoked and queued again.
    pub(super) arrival: u64,
    pub(super) urgency: Urgency,
    pub(super) state: State,
    pub(super) origin: Origin,
    /// Where it is in the heaps of its queue.
    pub(super) places: [u32; 4],
    pub(super) link: [Link; 2],
}

impl Linked<2> for Wait {
    fn links(&mut self) -> &mut [Link; 2] {
        &mut self.link
    }
}

/// The lists that a hold is in, and a wait: in that of its lock once it was granted.
pub(super) const OF_WORKER: usize = 0;
pub(super) const OF_LOCK: usize = 1;

#[derive(Debug)]
pub(super) struct Hold {
    pub(super) worker: u32,
    pub(super) lock: u32,
    /// The strongest of its levels: of an upgradable hold one is that, and the others are a reader's.
    pub(super) mode: Mode,
    pub(super) depth: u32,
    pub(super) origin: Origin,
    pub(super) link: [Link; 2],
}

impl Hold {
    /// Whether it is alone in both its lists.
    pub(super) fn is_only(&self) -> bool {
        self.link.iter().all(|link| [link.prev, link.next] == [NIL; 2])
    }
}

impl Linked<2> for Hold {
    fn links(&mut self) -> &mut [Link; 2] {
        &mut self.link
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
        let (is_condition, is_semaphore) = (spec.kind.is_condition(), spec.kind == Kind::Semaphore);
        Lock {
            spec,
            holds: NIL,
            // Who is first of a semaphore's queue decides whether anybody can be granted something, as it does among readers.
            mode: if is_semaphore { Mode::Shared } else { Mode::Exclusive },
            queue,
            untaken: NIL,
            terms: match (is_condition || is_semaphore, spec.tracked) {
                (false, _) => Terms::Held,
                (true, true) if is_semaphore => Terms::Both,
                (true, _) => Terms::Counted,
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
