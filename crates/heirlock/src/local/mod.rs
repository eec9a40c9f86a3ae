//! Locks within one process: what waits for what, who is boosted by whom, and what can never end.

#[doc(hidden)]
pub mod graph;
