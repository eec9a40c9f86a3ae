//! Locks for asynchronous workers that share something beyond one process: leases with renewal, priorities, fences and a clear word when one is
//! lost.
//!
//! You do not need this crate for a value that the tasks of one process share for microseconds (`tokio::sync::Mutex`), for a counter (an atomic), or
//! for two scripts that only must not overlap (`flock`).
//!
//! ```
//! use heirlock::{Locks, Released};
//! use std::time::Duration;
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> heirlock::Result<()> {
//! let locks = Locks::connect("memory:").await?;
//! let lease = locks.lock("nightly").priority(10).timeout(Duration::from_secs(60)).await?;
//! let sum = lease.run(async { 40 + 2 }).await?;
//! assert_eq!(lease.release().await?, Released::InTime);
//! # assert_eq!(sum, 42);
//! # Ok(()) }
//! ```
//!
//! # Where to look
//! - [`Locks`], [`Lease`] and [`lease::Acquire`]: what a user calls.
//! - [`local`]: locks within one process, with inheritance and deadlock errors.
//! - [`store`]: the engines. `sqlite:` is shared by all processes of a machine (feature `sqlite`), `memory:` stays within one.
//! - [`lease::ledger`]: the rules, as a pure state machine; [`lease::Store`]: what an engine must do.
//! - [`Worker`]: gives a line of work its name, priority and deadline.
//! - [`observe`]: who holds and who waits, in the shape that all faces share.
//!
//! # Features
//! `tokio` (default): `spawn`. `sqlite`: the embedded store. `conformance`: the suite that a store must pass. Leases themselves need no runtime.

pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod connect;
mod error;
pub mod lease;
pub mod local;
pub mod observe;
mod process;
pub mod store;
mod sync;
mod worker;

pub use connect::redact;
pub use error::{Error, Kind, Result};
pub use lease::{Lease, Locks, LostReason, Released};
#[cfg(feature = "tokio")]
pub use worker::spawn;
pub use worker::{Run, WeakWorker, Worker, WorkerId};

/// The examples of the guides are run with the others.
#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../../../docs/local.md")]
struct Guides;
