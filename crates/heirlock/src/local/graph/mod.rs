//! The wait-for graph of a domain: who holds, who waits, who is boosted by whom, and which waits can never end.
//!
//! Plain data. Events go in: an acquire, a release, a change of a priority. What they do to others comes out, as [`Effects`]. No clock, no
//! wakers, no locks: instants are opaque numbers, and whoever keeps a graph serialises the events.
//!
//! # The model
//! - A *worker* has a base priority and perhaps a parent, whose *fork* it then is. An anonymous acquire is a worker of its own that lives as long
//!   as that acquire and its hold; it is not sequential.
//! - A *lock* has holders, and a queue in the order of its [`Order`].
//! - One of the readers of a lock may be *upgradable*: others read beside it, and it may wait to hold alone what it holds. Such an *upgrade* is
//!   before all who wait; given back or given up, it leaves its worker upgradable as before.
//! - A *semaphore* has permits. Who waits for some is granted them in the order of the queue, and nobody passes a large request because a small one
//!   would do. Tracked, those who have permits hold it, and inherit; but whoever likes may add some, so no cycle through it is certain. Untracked,
//!   nobody holds it.
//! - A *condition* is a lock that nobody holds. Its waits are granted by notifications, and stand in nobody's way.
//! - A *wait* is queued, then granted: from then on its worker holds the lock, whether it knows or not. When it takes note, the wait is no more.
//! - Ids are never used twice: an event that names something which has gone does nothing, and says so.
//!
//! # What is inherited
//! The urgency of a wait is its call's priority, else its worker's base, and its deadline, joined with what its worker inherits. A worker
//! inherits the urgency of all waits, its own apart, on all locks that it holds, and the effective urgency of its parent. The values are the
//! least that satisfy this, after every event. `propagate.rs` does it; the idea is that of the Linux rt_mutex (`kernel/locking/rtmutex.c`), with
//! all waiters counted instead of the top one, and without a limit to the length of a chain.
//!
//! # An event
//! 1. It changes holds and waits, and all values follow.
//! 2. Whatever became grantable is granted, one at a time, in order of lock id, and all values follow each grant.
//! 3. Cycles through the closing worker are looked for: first the one that acquired, then those that were granted something. A certain one (each
//!    worker sequential with one pending wait) ends a wait, which may make other waits grantable. One that passes a reader kept out only by
//!    writers before it lets that reader in. Any other is suspected, and stands.

mod acquire;
mod condition;
mod edges;
mod effects;
mod events;
mod grant;
mod lock;
mod pass;
mod permits;
mod propagate;
mod queue;
mod records;
mod search;
mod siblings;
pub(super) mod slab;
mod upgrade;
mod urgency;
mod view;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

pub use effects::{Acquired, Cycle, DeadlockPolicy, Displaced, Effects, Left, On, Released, Request, Step};
pub use lock::{Kind, LockSpec, Mode};
pub use records::{LockKey, Origin, State, WaitKey, WorkerKey, WorkerSpec};
pub use urgency::{NEVER, Order, Urgency};
pub use view::{Counts, Holding, WaitView};

use lock::Lock;
use records::{Hold, Wait, Worker};
use search::Room;
use slab::Slab;

/// The graph of one domain.
///
/// ```
/// use heirlock::local::graph::{Acquired, Effects, Graph, Kind, LockSpec, Mode, Request, WorkerSpec};
///
/// let (mut graph, mut effects) = (Graph::default(), Effects::default());
/// let [low, high] = [1, 9].map(|base| graph.add_worker(&WorkerSpec { base, deadline: None, parent: None, sequential: true }));
/// let lock = graph.add_lock(LockSpec::new(Kind::Mutex));
/// assert_eq!(graph.acquire(&Request::new(low, lock, Mode::Exclusive), &mut effects), Acquired::Held(1));
/// let Acquired::Queued(wait) = graph.acquire(&Request::new(high, lock, Mode::Exclusive), &mut effects) else { panic!() };
/// assert_eq!(graph.effective_priority(low), Some(9));
///
/// effects.clear();
/// graph.release(low, lock, &mut effects);
/// assert_eq!((effects.granted.as_slice(), effects.changed.as_slice()), (&[wait][..], &[low][..]));
/// assert!(graph.take(wait, &mut effects));
/// ```
#[derive(Debug)]
pub struct Graph {
    workers: Slab<Worker>,
    locks: Slab<Lock>,
    waits: Slab<Wait>,
    holds: Slab<Hold>,
    policy: DeadlockPolicy,
    arrivals: u64,
    now: u64,
    /// Whether several workers may stand that wait for each other in a circle. True too often costs time, false too often leaves phantom boosts.
    cyclic: bool,
    /// How many waits there are that may be kept out by their places only.
    soft_waits: usize,
    /// How many edges have gone since that was last looked at.
    removals: usize,
    // What is left to do in the running event; empty between events.
    /// Workers whose inheritance is to be brought up to date.
    due: VecDeque<u32>,
    /// Workers that lost something which they may have inherited, while cycles may stand.
    fell: Vec<u32>,
    /// Locks to be looked at for a grant, by id.
    stirred: BinaryHeap<Reverse<(u64, u32)>>,
    /// Workers whose waits may have come to be on a cycle, or on another kind of one, otherwise than by their acquiring: they were granted something
    /// while they wait, or what they wait for is held in another way.
    grantees: Vec<u32>,
    /// Workers that have one wait left.
    doubtful: Vec<u32>,
    /// Workers whose effective priority was changed.
    touched: Vec<u32>,
    room: Room,
}

impl Default for Graph {
    fn default() -> Graph {
        Graph::new(DeadlockPolicy::Closer)
    }
}

impl Graph {
    /// A graph of nothing.
    pub fn new(policy: DeadlockPolicy) -> Graph {
        Graph {
            workers: Slab::new(),
            locks: Slab::new(),
            waits: Slab::new(),
            holds: Slab::new(),
            policy,
            arrivals: 0,
            now: 0,
            cyclic: false,
            soft_waits: 0,
            removals: 0,
            due: VecDeque::new(),
            fell: Vec::new(),
            stirred: BinaryHeap::new(),
            grantees: Vec::new(),
            doubtful: Vec::new(),
            touched: Vec::new(),
            room: Room::default(),
        }
    }
}
