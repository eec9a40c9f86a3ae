//! Models of the local locks: every order of a few threads.
#![cfg(heirlock_loom)]
#![allow(missing_docs)]
#![allow(clippy::unwrap_used)]

#[path = "../common"]
mod common {
    pub(crate) mod loom_world;
}

mod awaited;
mod conditions;
mod keyed;
mod local;
mod promises;
mod rwlock;
mod semaphore;
mod tickets;
