//! The locks of one process beside those of std, parking_lot, tokio and async-lock.
//!
//! `cargo bench --bench local -- WORD...` measures only the groups whose names contain one of the words, and writes no files.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/by.rs"]
mod by;
#[path = "../common/mod.rs"]
mod common;

mod awaited;
mod compare;
mod contended;
mod counting;
mod keyed;
mod limits;
mod locks;
mod shared;
mod timeouts;
mod uncontended;
mod waits;

use common::Report;

type Group = (&'static str, fn(&mut Report));

const GROUPS: [Group; 17] = [
    // Before others have made the allocator keep what these would use.
    ("memory", keyed::memory),
    ("uncontended", uncontended::mutex),
    ("reentrant", uncontended::reentrant),
    ("deadline", uncontended::deadline),
    ("rwlock", shared::rwlock),
    ("semaphore", shared::semaphore),
    ("yielding", contended::yielding),
    ("ready", contended::ready),
    ("independent", limits::independent),
    ("limit", limits::domain),
    ("timeouts", timeouts::timeouts),
    ("waits", waits::waits),
    ("event", awaited::event),
    ("promise", awaited::promise),
    ("barrier", awaited::barrier),
    ("once", awaited::once),
    ("keyed", keyed::keyed),
];

fn main() {
    // Cargo adds an option of its own.
    let words: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let mut report = Report::new("local");
    for (name, group) in GROUPS {
        if words.is_empty() || words.iter().any(|word| name.contains(word.as_str())) {
            group(&mut report);
        }
    }
    if words.is_empty() {
        report.finish();
    }
}
