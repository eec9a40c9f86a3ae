//! Once warm, neither an acquire nor a wait costs an allocation.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use heirlock::Worker;
use heirlock::local::{Acquire, AcquireOwned, Barrier, Domain, Event, KeyedLock, Mutex, Promise, Read, RwLock, Semaphore, lock_all};

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

/// A domain whose watch over untaken grants is set once.
fn domain() -> Domain {
    Domain::builder().stall_time(std::time::Duration::from_secs(3600)).build()
}

/// So many workers, one more urgent than the other.
fn workers<const N: usize>() -> [Worker; N] {
    std::array::from_fn(|at| Worker::new("w").priority(i32::try_from(at).unwrap()))
}

/// A hundred rounds to get warm; the others cost nothing.
#[track_caller]
fn assert_costs_nothing(mut round: impl FnMut()) {
    for _ in 0..100 {
        round();
    }
    let before = COUNT.get();
    for _ in 0..1000 {
        round();
    }
    assert_eq!(COUNT.get() - before, 0);
}

#[test]
fn a_warm_wait_allocates_nothing() {
    let lock = Mutex::new(()).in_domain(&domain());
    let workers = workers::<3>();
    let mut cx = Context::from_waker(Waker::noop());
    assert_costs_nothing(|| {
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
    });
    assert!(!lock.is_locked());
}

/// Neither does waiting for what is not acquired, nor its coming.
#[test]
fn a_warm_wait_for_what_comes_allocates_nothing() {
    let domain = domain();
    let (event, barrier) = (Event::named("event").in_domain(&domain), Barrier::named("barrier", 2).in_domain(&domain));
    let mut promises: Vec<Promise<u8>> = (0..1100).map(|_| Promise::named("promise").in_domain(&domain)).collect();
    let workers = workers::<3>();
    let mut cx = Context::from_waker(Waker::noop());
    // As long as somebody is in more of a hurry, the timer's thread is not told of anybody.
    let never = Event::new().in_domain(&domain);
    let mut hasty = pin!(never.wait().timeout(std::time::Duration::from_secs(3000)));
    assert!(hasty.as_mut().poll(&mut cx).is_pending());
    assert_costs_nothing(|| {
        let promise = promises.pop().unwrap();
        let producer = promise.producer(&workers[0]).unwrap();
        // Two wait, one of them with a timeout; one is dropped, and one goes on. What wakes several at once makes a list of them.
        macro_rules! waits {
            ($source:expr, $come:expr) => {{
                {
                    let dropped = pin!(workers[2].run($source.wait()));
                    assert!(dropped.poll(&mut cx).is_pending());
                }
                let mut first = pin!(workers[1].run($source.wait().timeout(std::time::Duration::from_secs(3600))));
                assert!(first.as_mut().poll(&mut cx).is_pending());
                $come;
                assert!(first.poll(&mut cx).is_ready());
            }};
        }
        waits!(event, assert_eq!(event.set(), 1));
        assert!(event.clear());
        waits!(barrier, assert!(pin!(barrier.wait()).poll(&mut cx).is_ready()));
        waits!(promise, producer.set(1).unwrap());
        assert_eq!(promise.into_inner(), Some(1));
    });
    assert_eq!(domain.records()[5..], [1, 0]);
}

/// More readers than there are places, a writer behind them, and a reader behind that. What wakes several at once makes a list of them: here each
/// wakes one.
#[test]
fn warm_readers_and_writers_allocate_nothing() {
    let lock = RwLock::new(()).in_domain(&domain());
    let [writer, reader, readers @ ..] = workers::<12>();
    let mut cx = Context::from_waker(Waker::noop());
    assert_costs_nothing(|| {
        let guards = readers.each_ref().map(|reader| reader.scope(|| lock.try_read()).unwrap());
        let mut write = pin!(writer.run(lock.write()));
        assert!(write.as_mut().poll(&mut cx).is_pending());
        let mut read = pin!(reader.run(lock.read().priority(-1)));
        assert!(read.as_mut().poll(&mut cx).is_pending());
        drop(guards);
        assert!(write.as_mut().poll(&mut cx).is_ready());
        assert!(read.as_mut().poll(&mut cx).is_ready());
    });
    assert!(!lock.is_locked());
}

#[test]
fn warm_waits_for_permits_allocate_nothing() {
    for tracked in [false, true] {
        let pool = Semaphore::new(4).in_domain(&domain());
        let pool = if tracked { pool.tracked() } else { pool };
        let workers = workers::<3>();
        let mut cx = Context::from_waker(Waker::noop());
        assert_costs_nothing(|| {
            let mut held = pool.try_acquire_many(4).unwrap();
            let mut waits = [(0, 2), (1, 3), (2, 1)].map(|(at, permits): (usize, u32)| workers[at].run(pool.acquire_many(permits)));
            assert!(waits.iter_mut().all(|wait| pin!(wait).poll(&mut cx).is_pending()));
            drop(held.split(2));
            let [first, second, third] = &mut waits;
            assert!(pin!(third).poll(&mut cx).is_ready());
            drop(held);
            assert!(pin!(second).poll(&mut cx).is_ready());
            assert!(pin!(first).poll(&mut cx).is_ready());
        });
        assert_eq!(pool.free_permits(), 4);
    }
}

/// They are moved and kept by the thousand.
#[test]
fn futures_are_small() {
    let sizes = [
        size_of::<Acquire<'_, Mutex<()>>>(),
        size_of::<Acquire<'_, RwLock<()>, Read>>(),
        size_of::<Acquire<'_, RwLock<()>>>(),
        size_of::<Acquire<'_, Semaphore>>(),
        size_of::<AcquireOwned<RwLock<()>, Read>>(),
        size_of::<AcquireOwned<Semaphore>>(),
    ];
    println!("bytes: {sizes:?}");
    assert!(sizes.iter().all(|size| *size <= 128), "{sizes:?}");
}

#[test]
fn several_locks_allocate_nothing() {
    let domain = domain();
    let locks = [1, 2, 3].map(|value| Mutex::new(value).in_domain(&domain));
    let [holder, caller] = ["holder", "caller"].map(Worker::new);
    let mut cx = Context::from_waker(Waker::noop());
    assert_costs_nothing(|| {
        let guard = holder.scope(|| locks[1].try_lock()).unwrap();
        let mut all = pin!(caller.run(lock_all((locks[2].lock(), locks[1].lock(), locks[0].lock()))));
        assert!(all.as_mut().poll(&mut cx).is_pending());
        drop(guard);
        assert!(all.as_mut().poll(&mut cx).is_ready());
        // One that is dropped while it waits.
        let _guard = locks[2].try_lock().unwrap();
        assert!(pin!(caller.run(lock_all(locks.each_ref().map(Mutex::lock)))).poll(&mut cx).is_pending());
    });
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
