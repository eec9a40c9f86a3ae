//! The engines that keep leases. None of them uses another.

#[cfg(feature = "sqlite")]
pub mod sqlite;
