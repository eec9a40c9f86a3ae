//! Locks within one process: what waits for what, who is boosted by whom, and what can never end.
//!
//! - [`Mutex`]: one holder at a time. Acquiring is a future with a priority, a deadline and a timeout.
//! - [`RLock`]: the same, and its holder may enter again.
//! - [`RwLock`]: many readers, or one writer.
//! - [`Semaphore`]: as many at once as there are permits.
//! - [`Condvar`]: waits, with a guard of either given up, until somebody notifies it.
//! - [`OnceCell`]: a value that is made once, by the first who needs it, while the others wait.
//! - [`Event`]: waits until it is set, as long as it is not.
//! - [`Promise`]: one result that many await. Whoever is to give it is boosted by them.
//! - [`Barrier`]: so many wait until all of them have come.
//! - [`KeyedLock`]: a lock for each key, kept only while somebody holds it or waits for it.
//! - [`lock_all`]: several of these at once, in whatever order they are named.
//! - [`Domain`]: the locks that are looked at together for inheritance and deadlocks; there is a global one. It has the policy, the clock, the
//!   [snapshot](Domain::snapshot), warnings of long holds, and the check of the order in which locks are taken.
//!
//! Waits are served by priority, then deadline, then arrival, unless a lock's [`Order`] says otherwise; a wait is a future with options, as
//! [`Acquire`] has them; whoever is one line of work says so by a [`Worker`](crate::Worker). None of this needs a runtime. The guide `docs/local.md`
//! of the repository says how inheritance works, who the worker is, and what differs from other locks.

mod acquire;
mod all;
mod awaiting;
mod barrier;
mod condvar;
mod core;
mod domain;
mod event;
#[doc(hidden)]
pub mod graph;
mod guard;
pub(crate) mod hash;
pub(crate) mod identity;
mod keyed;
mod mutex;
mod name;
#[doc(hidden)]
pub mod nesting;
mod once;
mod owned;
mod poison;
mod promise;
mod raw;
mod rlock;
mod rwlock;
mod semaphore;
mod slots;
pub(crate) mod sync;
#[doc(hidden)]
pub mod tickets;
mod timer;
mod wait;

pub use acquire::{Acquire, Exclusive, Lockable, Way};
pub use all::{Acquires, LockAll, lock_all};
pub use awaiting::{Await, Awaitable};
pub use barrier::{Arrival, Barrier};
pub use condvar::{Condvar, TimedWaiting, Waiting, Wakeup};
pub use domain::{Builder, Domain};
pub(crate) use domain::{effective_priority, rebase};
pub use event::Event;
pub use graph::{DeadlockPolicy, Order};
pub use guard::{Part, Waitable, Whole};
pub use keyed::{AcquireKeyed, AcquireKeyedOwned, KeyedGuard, KeyedLock, OwnedKeyedGuard};
pub use mutex::{MappedMutexGuard, Mutex, MutexGuard};
pub use once::{Initialise, OnceCell};
pub use owned::{AcquireOwned, OwnedMutexGuard, OwnedRLockGuard};
pub use promise::{Producer, Promise};
pub use rlock::{MappedRLockGuard, RLock, RLockGuard};
pub use rwlock::{
    MappedRwLockReadGuard, MappedRwLockWriteGuard, OwnedMappedRwLockReadGuard, OwnedMappedRwLockWriteGuard, OwnedRwLockReadGuard,
    OwnedRwLockUpgradableGuard, OwnedRwLockWriteGuard, Read, RwLock, RwLockReadGuard, RwLockUpgradableGuard, RwLockWriteGuard, Upgradable,
    Upgrade, UpgradedGuard,
};
pub use semaphore::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
