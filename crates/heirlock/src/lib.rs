//! One lock manager for asynchronous workers.

pub mod clock;
mod error;
pub mod lease;
pub mod store;

pub use error::{Error, Kind, Result};
