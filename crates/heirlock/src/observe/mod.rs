//! What operators see.

mod dot;
mod leases;
mod snapshot;
mod text;

pub use snapshot::{Edge, Holder, Lock, Party, Snapshot, Waiter, WorkerView};
#[doc(hidden)]
pub use text::{align, span};
