//! Resources that check fences: values in memory, tables in SQL, keys of Redis. One program, a module for each subject.
// Helpers are test code, though not within a test.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/random.rs"]
#[allow(dead_code)]
mod random;

mod cell;
mod lua;
mod naive;
mod postgres;
mod rule;
#[cfg(feature = "sqlite")]
mod sqlite;
