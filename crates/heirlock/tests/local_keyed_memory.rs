//! Keys that come and go leave no memory behind.
//!
//! One test only: what another thread allocates would be counted, too.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use heirlock::local::KeyedLock;

struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);
static BLOCKS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        BLOCKS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as of the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        BLOCKS.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: as of the caller.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What is kept for the next keys, all shards together: bounded, however many there were.
const KEPT: usize = 16 * 1024;

/// Each key locked and released once; then so many held at once; then all in turn again.
#[test]
fn memory_is_back_to_where_it_was() {
    let (each, at_once) = if cfg!(miri) { (500, 100) } else { (1_000_000_u64, 100_000) };
    let keyed = KeyedLock::named("users").label(|id: &u64| id.to_string());
    // The clock, the hasher and this thread are set up once.
    drop(keyed.try_lock(0).unwrap());
    let now = || (BYTES.load(Ordering::Relaxed), BLOCKS.load(Ordering::Relaxed));
    let (bytes, blocks) = now();
    let check = |what: &str| {
        let (bytes_now, blocks_now) = now();
        let more = (bytes_now.saturating_sub(bytes), blocks_now.saturating_sub(blocks));
        println!("after {what}: {} bytes in {} blocks more than before", more.0, more.1);
        assert!(more.0 <= KEPT && more.1 <= 32, "{what}: {more:?}");
        assert!(keyed.is_empty());
    };
    let touch_all = || (0..each).for_each(|id| drop(pollster::block_on(keyed.lock(id)).unwrap()));
    touch_all();
    check("each once");
    // From the first to the last, the other way round, and mixed up.
    for round in 0..3 {
        let mut guards: Vec<_> = (0..at_once).map(|id| keyed.try_lock(id).unwrap()).collect();
        assert_eq!(keyed.len(), guards.len());
        assert!(now().0 - bytes > guards.len() * size_of::<u64>());
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
