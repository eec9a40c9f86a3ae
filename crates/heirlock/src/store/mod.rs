//! The engines that keep leases. None of them uses another.

mod faulty;
mod memory;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use faulty::{Counts, Fault, Faulty, Point};
pub use memory::MemoryStore;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;
