//! The conformance suite over the memory store.
#![cfg(feature = "conformance")]
#![allow(missing_docs)]

use heirlock::conformance;
use heirlock::store::MemoryStore;

heirlock::conformance_tests!(in_process: MemoryStore::new());

/// No other process reaches a memory store, so it cannot run the cases about processes as they are stated.
const OMITTED: [u32; 6] = [1, 2, 3, 19, 20, 26];

#[test]
fn the_omitted_cases_are_known() {
    assert_eq!(conformance::omitted(&MemoryStore::new()), OMITTED);
}
