//! Models of the local locks: random orders of chains of locks, and of many at once.
#![cfg(heirlock_shuttle)]
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common"]
mod common {
    pub(crate) mod random;
    pub(crate) mod shuttle_book;
}

mod all;
mod local;
