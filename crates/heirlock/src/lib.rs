//! One lock manager for asynchronous workers.

pub mod clock;
mod connect;
mod error;
pub mod lease;
pub mod observe;
pub mod store;
mod sync;
mod worker;

pub use connect::redact;
pub use error::{Error, Kind, Result};
pub use lease::{Lease, Locks, LostReason, Released};
#[cfg(feature = "tokio")]
pub use worker::spawn;
pub use worker::{Run, Worker, WorkerId};
