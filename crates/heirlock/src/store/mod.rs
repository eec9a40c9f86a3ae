//! The engines that keep leases.

mod faulty;
mod memory;

pub use faulty::{Counts, Fault, Faulty, Point};
pub use memory::MemoryStore;
