//! What the graph keeps beside locks: workers, waits, holds.

use std::panic::Location;

use super::lock::Mode;
use super::slab::{Link, Linked, NIL};
use super::urgency::{NEVER, Urgency};

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
    /// How many levels, or permits, they are for.
    pub(super) wanted: u64,
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
            wanted: 0,
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
    /// Whether its worker has been served by another future for the lock since this one was last polled, so that it may be polled no more.
    pub(super) in_doubt: bool,
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
