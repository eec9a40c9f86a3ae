//! The engines that keep leases. None of them uses another.

#[cfg(all(test, any(feature = "redis", feature = "sqlite")))]
use crate::lease;

mod faulty;
mod memory;
// Replayed by every store that does not run the ledger itself.
#[cfg(all(test, any(feature = "redis", feature = "sqlite")))]
#[path = "../../tests/common/ledger_vectors.rs"]
mod ledger_vectors;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use faulty::{Counts, Fault, Faulty, Point};
pub use memory::MemoryStore;
#[cfg(feature = "redis")]
pub use redis::RedisStore;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;
