//! Once warm, waiting costs no allocation.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use heirlock::local::graph::{Acquired, Effects, Graph, Kind, LockSpec, Mode, Request, WorkerSpec};

struct Counting;

thread_local! {
    // Of this thread alone: the runner's own may allocate at any time.
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: all is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that ends may have none any more.
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: as of the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as of the caller.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_warm_graph_allocates_nothing() {
    let (mut graph, mut effects) = (Graph::default(), Effects::default());
    let locks = [Kind::Mutex, Kind::RwLock].map(|kind| graph.add_lock(LockSpec::new(kind)));
    let mut round = || {
        // A holder of one lock waits for the other, is boosted and lowered; one worker comes and goes.
        let workers = [1, 2, 3].map(|base| graph.add_worker(&WorkerSpec { base, deadline: Some(9), parent: None, sequential: true }));
        let mut acquire = |worker: usize, lock: usize, mode| {
            effects.clear();
            graph.acquire(&Request::new(workers[worker], locks[lock], mode), &mut effects)
        };
        acquire(0, 0, Mode::Exclusive);
        acquire(1, 1, Mode::Shared);
        let Acquired::Queued(first) = acquire(1, 0, Mode::Exclusive) else { panic!() };
        let Acquired::Queued(second) = acquire(2, 1, Mode::Exclusive) else { panic!() };
        graph.set_base(workers[2], 7, &mut effects);
        graph.set_base(workers[2], 3, &mut effects);
        graph.release(workers[0], locks[0], &mut effects);
        graph.take(first, &mut effects);
        graph.cancel(second, &mut effects);
        for worker in workers {
            graph.remove_worker(worker, &mut effects);
        }
    };
    for _ in 0..10 {
        round();
    }
    let before = COUNT.get();
    for _ in 0..1000 {
        round();
    }
    let allocations = COUNT.get() - before;
    println!("allocations in 1000 warm rounds of 4 acquires: {allocations}");
    assert_eq!(allocations, 0);
}
