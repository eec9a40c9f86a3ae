//! Once warm, neither an acquire nor a wait costs an allocation.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use heirlock::Worker;
use heirlock::local::{Domain, KeyedLock, Mutex, lock_all};

struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: all is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
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
fn a_warm_wait_allocates_nothing() {
    // The watch over untaken grants is set once.
    let domain = Domain::builder().stall_time(std::time::Duration::from_secs(3600)).build();
    let lock = Mutex::new(()).in_domain(&domain);
    let workers = [1, 2, 3].map(|base| Worker::new("w").priority(base));
    let mut cx = Context::from_waker(Waker::noop());
    let mut round = || {
        let guard = lock.try_lock().unwrap();
        let [mut first, second, third] = workers.each_ref().map(|worker| worker.run(lock.lock()));
        assert!(pin!(&mut first).poll(&mut cx).is_pending());
        {
            let (mut second, mut third) = (pin!(second), pin!(third));
            assert!(second.as_mut().poll(&mut cx).is_pending() && third.as_mut().poll(&mut cx).is_pending());
            drop(guard);
            assert!(third.as_mut().poll(&mut cx).is_ready());
        }
        assert!(pin!(&mut first).poll(&mut cx).is_ready());
    };
    for _ in 0..100 {
        round();
    }
    let before = COUNT.get();
    for _ in 0..1000 {
        round();
    }
    assert_eq!(COUNT.get() - before, 0);
    assert!(!lock.is_locked());
}

#[test]
fn several_locks_allocate_nothing() {
    let domain = Domain::builder().stall_time(std::time::Duration::from_secs(3600)).build();
    let locks = [1, 2, 3].map(|value| Mutex::new(value).in_domain(&domain));
    let [holder, caller] = ["holder", "caller"].map(Worker::new);
    let mut cx = Context::from_waker(Waker::noop());
    let mut round = || {
        let guard = holder.scope(|| locks[1].try_lock()).unwrap();
        let mut all = pin!(caller.run(lock_all((locks[2].lock(), locks[1].lock(), locks[0].lock()))));
        assert!(all.as_mut().poll(&mut cx).is_pending());
        drop(guard);
        assert!(all.as_mut().poll(&mut cx).is_ready());
        // One that is dropped while it waits.
        let _guard = locks[2].try_lock().unwrap();
        assert!(pin!(caller.run(lock_all(locks.each_ref().map(Mutex::lock)))).poll(&mut cx).is_pending());
    };
    for _ in 0..100 {
        round();
    }
    let before = COUNT.get();
    for _ in 0..1000 {
        round();
    }
    assert_eq!(COUNT.get() - before, 0);
}

/// A key that nobody uses costs its entry; one that is in use nothing.
#[test]
fn a_key_allocates_its_entry() {
    let keyed = KeyedLock::new();
    let count = |work: &dyn Fn()| {
        work();
        let before = COUNT.get();
        (0..1000).for_each(|_| work());
        COUNT.get() - before
    };
    assert_eq!(count(&|| drop(keyed.try_lock(7).unwrap())), 1000);
    let _guard = keyed.try_lock(7).unwrap();
    assert_eq!(count(&|| drop(keyed.lock(7))), 0);
    assert_eq!(count(&|| assert!(pin!(keyed.lock(7)).poll(&mut Context::from_waker(Waker::noop())).is_pending())), 0);
}
