//! The engines that keep leases. None of them uses another.

mod faulty;
mod memory;
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
