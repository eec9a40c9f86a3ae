//! What operators see.

mod snapshot;

pub use snapshot::{Edge, Holder, Lock, Snapshot, Waiter, WorkerView};
