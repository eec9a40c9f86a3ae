//! The conformance suite over the memory store.
#![cfg(feature = "conformance")]
#![allow(missing_docs)]

#[path = "common/threaded.rs"]
mod threaded;

use heirlock::conformance;
use heirlock::store::MemoryStore;

heirlock::conformance_tests!(in_process: MemoryStore::new());

/// Those who are next in turn ask from the store's own thread.
mod from_its_own_thread {
    heirlock::conformance_tests!(in_process: crate::threaded::Threaded(heirlock::store::MemoryStore::new()));
}

/// No other process reaches a memory store, so it cannot run the cases about processes as they are stated.
const OMITTED: [u32; 6] = [1, 2, 3, 19, 20, 26];

#[test]
fn the_omitted_cases_are_known() {
    assert_eq!(conformance::omitted(&MemoryStore::new()), OMITTED);
}
