//! Locks within one process: what waits for what, who is boosted by whom, and what can never end.
//!
//! - [`Mutex`]: one holder at a time. Acquiring is a future with a priority, a deadline and a timeout.
//! - [`RLock`]: the same, and its holder may enter again.
//! - [`Domain`]: the locks that are looked at together for inheritance and deadlocks; there is a global one.

mod acquire;
mod core;
mod domain;
#[doc(hidden)]
pub mod graph;
mod hash;
mod identity;
mod mutex;
#[doc(hidden)]
pub mod nesting;
mod owned;
mod poison;
mod raw;
mod rlock;
mod slots;
mod timer;
mod wait;

pub use acquire::{Acquire, Lockable};
pub use domain::{Builder, Domain};
pub(crate) use domain::{effective_priority, rebase};
pub use graph::{DeadlockPolicy, Order};
pub use mutex::{Mutex, MutexGuard};
pub use owned::{AcquireOwned, OwnedMutexGuard, OwnedRLockGuard};
pub use rlock::{RLock, RLockGuard};
