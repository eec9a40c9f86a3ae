//! Models of the local locks: random orders of chains of locks, and of many at once.
#![cfg(heirlock_shuttle)]
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common"]
mod common {
    #[allow(dead_code, reason = "of random numbers a model needs the seed alone")]
    pub(crate) mod random;
    pub(crate) mod shuttle_book;
}

mod all;
mod local;

/// One test after another, of either module: the tables of workers and domains are the process's, and a worker that goes looks into every domain,
/// that of another model, too.
static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
