//! Locks for asynchronous workers. Beyond one process: leases with renewal, priorities, fences and a clear word when one is lost. Within one: locks
//! whose holder inherits the priority of whoever waits, and whose deadlocks are errors.
//!
//! You do not need this crate for a value that equally urgent tasks of one process share for microseconds (`tokio::sync::Mutex`), for a counter (an
//! atomic), or for two scripts that only must not overlap (`flock`).
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
//! ```
//! use heirlock::{Worker, local::Mutex};
//! use std::time::Duration;
//! static DEVICE: Mutex<Vec<u8>> = Mutex::named("device", Vec::new());
//! # pollster::block_on(async {
//! // While the alarm waits, whoever holds the device counts as 10.
//! let write = async || DEVICE.lock().timeout(Duration::from_millis(50)).await.map(|mut device| device.push(7));
//! Worker::new("alarm").priority(10).run(write()).await?;
//! # Ok::<(), heirlock::Error>(()) }).unwrap();
//! ```
//!
//! # Where to look
//! - [`Locks`], [`Lease`] and [`lease::Acquire`]: what a user calls.
//! - [`lease::FencedCell`], [`lease::Fences`], [`lease::fence_sql`] and [`lease::fence_lua`]: how what is guarded refuses a holder that is too late.
//! - [`local`]: locks within one process, with inheritance and deadlock errors.
//! - `pool`: an executor that polls its tasks by what they inherit (feature `tokio`).
//! - [`store`]: the engines. `memory:` stays within a process, `sqlite:` is shared by all processes of a machine (feature `sqlite`), `redis:` by all
//!   machines that reach the server (feature `redis`).
//! - [`lease::ledger`]: the rules, as a pure state machine; [`lease::Store`]: what an engine must do.
//! - [`Worker`]: gives a line of work its name, priority and deadline, and its arms forks.
//! - [`observe`]: who holds and who waits, in the shape that all faces share.
//!
//! # Features
//! `tokio` (default): `spawn`, the pool, and local locks know which task is running. `sqlite`: the embedded store. `redis`: leases on a server, for many
//! machines. `conformance`: the suite that a store must pass. Neither leases nor local locks need a runtime.

pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod connect;
mod error;
mod heap;
pub mod lease;
pub mod local;
pub mod observe;
#[cfg(feature = "tokio")]
pub mod pool;
mod process;
#[cfg(test)]
#[path = "../tests/common/random.rs"]
#[allow(dead_code)] // Not all of it is used with each set of features.
mod random;
pub mod store;
mod sync;
mod worker;

#[cfg(feature = "sqlite")]
pub use connect::sqlite_path;
pub use connect::{open_store, redact};
pub use error::{Error, Kind, Result};
pub use lease::{Lease, Locks, LostReason, Released};
#[cfg(feature = "tokio")]
pub use worker::spawn;
pub use worker::{Run, WeakWorker, Worker, WorkerId};

/// The examples of the guides are run with the others.
#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../../../docs/local.md")]
#[doc = include_str!("../../../docs/deadlocks.md")]
#[doc = include_str!("../../../docs/contention.md")]
#[doc = include_str!("../../../docs/leases.md")]
struct Guides;

#[cfg(all(doctest, feature = "tokio", feature = "sqlite"))]
#[doc = include_str!("../../../docs/fences.md")]
struct GuideToFences;
