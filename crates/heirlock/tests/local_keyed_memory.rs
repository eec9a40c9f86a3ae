//! Keys that come and go leave no memory behind.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use heirlock::local::KeyedLock;

struct Counting;

thread_local! {
    /// What this thread has and has not given back: bytes, and blocks. What the test's runner does meanwhile does not count.
    static IN_USE: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

fn count(layout: Layout, sign: isize) {
    let (bytes, blocks) = IN_USE.get();
    IN_USE.set((bytes + sign * layout.size().cast_signed(), blocks + sign));
}

// SAFETY: all is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout, 1);
        // SAFETY: as of the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(layout, -1);
        // SAFETY: as of the caller.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What is kept for the next keys, all shards together: bounded, however many there were. So much at most, in a block for each shard.
const KEPT: (isize, isize) = (16 * 1024, 32);

/// Each key locked and released once; then so many held at once; then all in turn again.
#[test]
fn memory_is_back_to_where_it_was() {
    let (each, at_once) = if cfg!(miri) { (500, 100) } else { (1_000_000_u64, 100_000) };
    let keyed = KeyedLock::named("users").label(|id: &u64| id.to_string());
    // The hasher and this thread are set up once.
    drop(pollster::block_on(keyed.lock(0)).unwrap());
    let before = IN_USE.get();
    let check = |what: &str| {
        let now = IN_USE.get();
        let more = (now.0 - before.0, now.1 - before.1);
        println!("after {what}: {} bytes in {} blocks more than before", more.0, more.1);
        assert!(more.0 <= KEPT.0 && more.1 <= KEPT.1, "{what}: {more:?}");
        assert!(keyed.is_empty());
    };
    let touch_all = || (0..each).for_each(|id| drop(pollster::block_on(keyed.lock(id)).unwrap()));
    touch_all();
    check("each once");
    // From the first to the last, the other way round, and mixed up.
    for round in 0..3 {
        let mut guards: Vec<_> = (0..at_once).map(|id| keyed.try_lock(id).unwrap()).collect();
        assert_eq!(keyed.len(), guards.len());
        match round {
            0 => {}
            1 => guards.reverse(),
            _ => guards.sort_by_key(|guard| guard.key().wrapping_mul(0x9E37_79B9_7F4A_7C15)),
        }
        drop(guards);
        check("many at once");
    }
    touch_all();
    check("each once again");
}
