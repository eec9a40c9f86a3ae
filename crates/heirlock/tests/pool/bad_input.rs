//! What one should not do: it is refused in words, or traced, or does no harm.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::common::pools::{builder, pool, runtime, worker};
use crate::common::traced::{hears, listen, said, unique};
use heirlock::Worker;
use heirlock::local::Mutex;
use heirlock::pool::{Handle, Pool};

#[test]
fn a_pool_needs_threads_and_a_runtime() {
    let error = Pool::builder().threads(1).build().unwrap_err();
    assert!(error.is_invalid());
    let text = error.to_string();
    assert!(text.contains("build it within one, or give it one with runtime(handle)"), "{text}");
    let error = builder(&runtime()).threads(0).build().unwrap_err();
    assert!(error.is_invalid() && error.to_string().contains("threads(1)"), "{error}");
    let runtime = runtime();
    let error = builder(&runtime).threads(usize::MAX).build().unwrap_err();
    assert!(error.is_invalid() && error.to_string().contains("at most 4096"), "{error}");
    let error = builder(&runtime).name("a\0b").build().unwrap_err();
    assert!(error.is_invalid() && error.to_string().contains("without"), "{error}");
    let pool = {
        let _context = runtime.enter();
        Pool::builder().build().unwrap()
    };
    assert_eq!(pool.spawn(Worker::new("task"), async { 7 }).blocking().unwrap(), 7);
}

/// The pool is dropped by one of its tasks, which is its last owner: all are cancelled, it too at its next await, and its threads end.
#[test]
fn dropped_from_inside() {
    let runtime = runtime();
    for threads in [1, 2] {
        let pool = pool(&runtime, threads);
        let handle = pool.handle().clone();
        let other = pool.spawn(Worker::new("other"), std::future::pending::<()>());
        let suicide = handle.spawn(Worker::new("suicide"), async move {
            drop(pool);
            let late = Handle::current().unwrap().spawn(Worker::new("late"), async {});
            assert!(late.await.unwrap_err().is_closed());
            std::future::pending::<()>().await;
        });
        assert!(other.blocking().unwrap_err().is_cancelled());
        assert!(suicide.blocking().unwrap_err().is_cancelled());
    }
}

/// A task that waits for the end of its own pool would wait for ever, and is told.
#[test]
fn ended_from_inside() {
    let runtime = runtime();
    for cancels in [false, true] {
        let pool = pool(&runtime, 1);
        let handle = pool.handle().clone();
        let task = handle.spawn(Worker::new("task"), async move { if cancels { pool.cancel().await } else { pool.drain().await } });
        let error = task.blocking().unwrap().unwrap_err();
        assert!(error.is_deadlock(), "{error}");
        assert!(error.to_string().contains("cannot wait for the pool's end"), "{error}");
    }
}

/// Where it might drive the very task that it waits for, a thread is not blocked.
#[test]
fn blocking_in_a_runtime_is_refused() {
    let current = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    current.block_on(async {
        let pool = Pool::builder().threads(1).build().unwrap();
        let task = pool.spawn(Worker::new("task"), tokio::time::sleep(Duration::from_millis(10)));
        let error = task.blocking().unwrap_err();
        assert!(error.is_would_block() && error.to_string().contains("await it instead"), "{error}");
        let ended = pool.spawn(Worker::new("ended"), async { 7 });
        while !ended.is_finished() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(ended.blocking().unwrap(), 7);
        drop(pool.spawn(Worker::new("task"), tokio::time::sleep(Duration::from_millis(10))));
        let error = pool.drain().blocking().unwrap_err();
        assert!(error.is_would_block(), "{error}");
    });
}

/// A shutdown that was begun elsewhere and is waited for by a task of the pool, too.
#[test]
fn a_shutdown_that_is_moved_into_the_pool() {
    let runtime = runtime();
    let pool = pool(&runtime, 1);
    let handle = pool.handle().clone();
    let (give, given) = mpsc::channel::<<heirlock::pool::Shutdown as IntoFuture>::IntoFuture>();
    let task = handle.spawn(Worker::new("task"), async move {
        let shutdown = given.recv().unwrap();
        shutdown.await
    });
    let mut shutdown = pool.drain().into_future();
    assert!(shutdown.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_pending());
    give.send(shutdown).unwrap();
    assert!(task.blocking().unwrap().unwrap_err().is_deadlock());
}

#[test]
fn blocking_in_a_task_is_refused_where_it_can_be() {
    let runtime = runtime();
    let pool = pool(&runtime, 1);
    let lock = Arc::new(Mutex::named("config", ()));
    let guard = lock.try_lock().unwrap();
    let task = pool.spawn(Worker::new("blocks"), {
        let lock = Arc::clone(&lock);
        async move {
            let lock_blocked = lock.lock_blocking().map(drop).unwrap_err();
            let other = Handle::current().unwrap().spawn(Worker::new("other"), async {});
            (lock_blocked, other.blocking().unwrap_err())
        }
    });
    let (lock_blocked, join_blocked) = task.blocking().unwrap();
    assert!(lock_blocked.is_would_block() && lock_blocked.to_string().contains("await it instead"), "{lock_blocked}");
    assert!(join_blocked.is_deadlock() && join_blocked.to_string().contains("await the handle instead"), "{join_blocked}");
    drop(guard);
}

/// It is traced while it lasts, once, with the names by which it is found.
#[test]
fn a_task_that_never_yields_is_traced() {
    listen();
    let runtime = runtime();
    let (name, calm) = (unique("busy"), unique("calm"));
    let pool = builder(&runtime).threads(1).name("kitchen").warn_after(Duration::from_millis(5)).build().unwrap();
    let (go, goes) = mpsc::channel::<()>();
    let busy = pool.spawn(Worker::new(name), async move { goes.recv().is_ok() });
    let line = hears(name, || {});
    assert!(line.starts_with("a task has been polled for 5ms and longer without yielding"), "{line}");
    assert!(line.contains("spawn_blocking") && line.contains("pool=\"kitchen\""), "{line}");
    go.send(()).unwrap();
    assert!(busy.blocking().unwrap());
    // A second one is traced, too; one that yields is not.
    let (go, goes) = mpsc::channel::<()>();
    let again = unique("busy");
    let busy = pool.spawn(Worker::new(again), async move { goes.recv().is_ok() });
    hears(again, || {});
    go.send(()).unwrap();
    assert!(busy.blocking().unwrap());
    drop(pool);
    // Two spans long, but polled for none of them, however busy the machine is.
    let pool = builder(&runtime).threads(1).warn_after(Duration::from_millis(200)).build().unwrap();
    pool.spawn(Worker::new(calm), async { tokio::time::sleep(Duration::from_millis(450)).await }).blocking().unwrap();
    drop(pool);
    assert_eq!((said(name).len(), said(again).len(), said(calm).len()), (1, 1, 0));
}

/// A hook that panics, on whatever thread: the change stands, the pool hears of it, and nobody else does.
#[test]
fn a_panic_in_a_priority_callback() {
    listen();
    let runtime = runtime();
    let pool = pool(&runtime, 1);
    let (name, calls, lock) = (unique("hooked"), Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(())));
    let low = worker(name, 1);
    low.on_priority_change({
        let calls = Arc::clone(&calls);
        move || {
            calls.fetch_add(1, Ordering::SeqCst);
            panic!("on purpose");
        }
    });
    low.set_priority(2);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    hears(&format!("worker={name:?}"), || {});
    let (held, holds) = mpsc::channel();
    let (go, goes) = mpsc::channel::<()>();
    let task = pool.spawn(low.clone(), {
        let lock = Arc::clone(&lock);
        async move {
            let guard = lock.lock().await.unwrap();
            held.send(()).unwrap();
            goes.recv().unwrap();
            drop(guard);
            7
        }
    });
    holds.recv().unwrap();
    let high = std::thread::spawn({
        let lock = Arc::clone(&lock);
        move || worker("high", 10).scope(|| lock.lock_blocking().map(drop))
    });
    while low.effective_priority() < 10 {
        std::thread::yield_now();
    }
    go.send(()).unwrap();
    assert_eq!(task.blocking().unwrap(), 7);
    high.join().unwrap().unwrap();
    assert!(calls.load(Ordering::SeqCst) >= 3);
    assert_eq!(pool.drain().blocking().unwrap(), 0);
}
