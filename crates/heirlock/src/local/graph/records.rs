//! What the graph keeps: workers, locks, waits, holds.

use std::num::NonZeroU32;

use super::heap::Heap;
use super::slab::{Link, Linked, NIL, Slab};
use super::urgency::{NEVER, Order, Rank, Urgency, descending, priority_of};

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
    /// One writer or many readers; a reader may enter again.
    RwLock,
}

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Beside nobody.
    Exclusive,
    /// Beside other readers of a [`Kind::RwLock`]; everywhere else it means exclusive.
    Shared,
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
}

impl LockSpec {
    /// A lock of this kind: by priority, without a bypass limit, released by its holders.
    pub fn new(kind: Kind) -> LockSpec {
        LockSpec { kind, order: Order::Priority, bypass: None, owned: true }
    }
}

/// Where a wait stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// In the queue.
    Queued,
    /// Its worker holds the lock because of it, and has not yet taken note.
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

    pub(super) fn own(&self) -> Urgency {
        Urgency { priority: self.base, deadline: self.own_deadline }
    }
}

impl Linked<1> for Worker {
    fn links(&mut self) -> &mut [Link; 1] {
        &mut self.link
    }
}

/// The queues that a wait is in: `Wait::places` is indexed by these.
pub(super) const SERVE: usize = 0;
pub(super) const PRIORITY: usize = 1;
pub(super) const DEADLINE: usize = 2;
pub(super) const ARRIVAL: usize = 3;

#[derive(Debug)]
pub(super) struct Wait {
    pub(super) worker: u32,
    pub(super) lock: u32,
    pub(super) mode: Mode,
    /// At which depth it will hold.
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
    pub(super) places: [usize; 4],
    pub(super) link: [Link; 1],
}

impl Linked<1> for Wait {
    fn links(&mut self) -> &mut [Link; 1] {
        &mut self.link
    }
}

/// The lists that a hold is in.
pub(super) const OF_WORKER: usize = 0;
pub(super) const OF_LOCK: usize = 1;

#[derive(Debug)]
pub(super) struct Hold {
    pub(super) worker: u32,
    pub(super) lock: u32,
    pub(super) mode: Mode,
    pub(super) depth: u32,
    pub(super) link: [Link; 2],
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
    /// How its holders hold it.
    pub(super) mode: Mode,
    pub(super) queue: Queue,
    /// Whether it is among the locks to be looked at for a grant.
    pub(super) stirred: bool,
}

impl Lock {
    pub(super) fn new(spec: LockSpec) -> Lock {
        Lock { spec, holds: NIL, mode: Mode::Exclusive, queue: Queue::new(spec.order, spec.bypass), stirred: false }
    }

    /// Whether nobody could hold it beside its holders.
    pub(super) fn closed(&self) -> bool {
        self.holds != NIL && self.mode == Mode::Exclusive
    }
}

/// The waits of one lock: in the order in which they are served, and where that does not tell, the most urgent in each respect and the oldest.
#[derive(Debug)]
pub(super) struct Queue {
    order: Order,
    limit: Option<NonZeroU32>,
    serve: Heap<Rank>,
    /// Where the order is not by priority.
    by_priority: Heap<u64>,
    /// Where the order is not by deadline; only waits that have one.
    by_deadline: Heap<u64>,
    /// Where there is a bypass limit.
    by_arrival: Heap<u64>,
    /// The oldest, and how many others were granted since it is.
    oldest: u32,
    bypassed: u32,
}

impl Queue {
    fn new(order: Order, limit: Option<NonZeroU32>) -> Queue {
        Queue {
            order,
            limit,
            serve: Heap::new(),
            by_priority: Heap::new(),
            by_deadline: Heap::new(),
            by_arrival: Heap::new(),
            oldest: NIL,
            bypassed: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.serve.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.serve.is_empty()
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        self.serve.items().iter().map(|item| item.1)
    }

    /// Who is next.
    pub(super) fn first(&self) -> Option<u32> {
        self.overdue().or_else(|| self.serve.first().map(|(_, slot)| slot))
    }

    /// The oldest, when enough others were granted before it.
    pub(super) fn overdue(&self) -> Option<u32> {
        (self.oldest != NIL && self.limit.is_some_and(|limit| self.bypassed >= limit.get())).then_some(self.oldest)
    }

    /// Whether a newcomer of this urgency would be next.
    pub(super) fn leads(&self, urgency: Urgency, arrival: u64) -> bool {
        self.overdue().is_none() && self.serve.first().is_none_or(|(rank, _)| self.order.rank(urgency, arrival) < rank)
    }

    /// The best of all waits in each respect, those of one worker apart.
    pub(super) fn best(&self, waits: &Slab<Wait>, not: u32) -> Urgency {
        let fits = |slot: u32| waits[slot].worker != not;
        if self.serve.is_empty() {
            return Urgency::NONE;
        }
        let priority = match self.order {
            Order::Priority => self.serve.first_where(fits).map(|(rank, _)| rank[0]),
            _ => self.by_priority.first_where(fits).map(|(key, _)| key),
        };
        let deadline = match self.order {
            Order::Deadline => self.serve.first_where(fits).map(|(rank, _)| rank[0]),
            _ => self.by_deadline.first_where(fits).map(|(key, _)| key),
        };
        Urgency { priority: priority.map_or(i32::MIN, priority_of), deadline: deadline.unwrap_or(NEVER) }
    }

    pub(super) fn insert(&mut self, waits: &mut Slab<Wait>, slot: u32) {
        let Wait { urgency, arrival, .. } = waits[slot];
        self.serve.insert(self.order.rank(urgency, arrival), slot, |slot, place| waits[slot].places[SERVE] = place);
        if self.order != Order::Priority {
            self.by_priority.insert(descending(urgency.priority), slot, |slot, place| waits[slot].places[PRIORITY] = place);
        }
        if self.order != Order::Deadline && urgency.deadline != NEVER {
            self.by_deadline.insert(urgency.deadline, slot, |slot, place| waits[slot].places[DEADLINE] = place);
        }
        if self.limit.is_some() {
            self.by_arrival.insert(arrival, slot, |slot, place| waits[slot].places[ARRIVAL] = place);
            self.recount();
        }
    }

    pub(super) fn remove(&mut self, waits: &mut Slab<Wait>, slot: u32) {
        let Wait { urgency, places, .. } = waits[slot];
        self.serve.remove(places[SERVE], |slot, place| waits[slot].places[SERVE] = place);
        if self.order != Order::Priority {
            self.by_priority.remove(places[PRIORITY], |slot, place| waits[slot].places[PRIORITY] = place);
        }
        if self.order != Order::Deadline && urgency.deadline != NEVER {
            self.by_deadline.remove(places[DEADLINE], |slot, place| waits[slot].places[DEADLINE] = place);
        }
        if self.limit.is_some() {
            self.by_arrival.remove(places[ARRIVAL], |slot, place| waits[slot].places[ARRIVAL] = place);
            self.recount();
        }
    }

    /// Changes the urgency of a wait; its place follows.
    pub(super) fn rekey(&mut self, waits: &mut Slab<Wait>, slot: u32, to: Urgency) {
        let Wait { urgency: from, arrival, places, .. } = waits[slot];
        waits[slot].urgency = to;
        if self.order != Order::Fifo {
            let rank = self.order.rank(to, arrival);
            self.serve.rekey(places[SERVE], rank, |slot, place| waits[slot].places[SERVE] = place);
        }
        if self.order != Order::Priority && from.priority != to.priority {
            let key = descending(to.priority);
            self.by_priority.rekey(places[PRIORITY], key, |slot, place| waits[slot].places[PRIORITY] = place);
        }
        if self.order != Order::Deadline && from.deadline != to.deadline {
            let moved = |slot: u32, place| waits[slot].places[DEADLINE] = place;
            match (from.deadline, to.deadline) {
                (NEVER, new) => self.by_deadline.insert(new, slot, moved),
                (_, NEVER) => self.by_deadline.remove(places[DEADLINE], moved),
                (_, new) => self.by_deadline.rekey(places[DEADLINE], new, moved),
            }
        }
    }

    /// Counts a grant to somebody who came later than the oldest; `NIL` is a reader that joined without queueing.
    pub(super) fn passed(&mut self, by: u32) {
        if self.oldest != NIL && self.oldest != by {
            self.bypassed = self.bypassed.saturating_add(1);
        }
    }

    fn recount(&mut self) {
        let oldest = self.by_arrival.first().map_or(NIL, |(_, slot)| slot);
        if oldest != self.oldest {
            self.oldest = oldest;
            self.bypassed = 0;
        }
    }
}
