//! The end of a pool: nothing is lost.

use std::sync::Arc;
use std::time::Duration;

use crate::common::polls::pause;
use crate::common::pools::{Log, Plug, pool, runtime, worker};
use heirlock::Worker;
use heirlock::local::Event;
use heirlock::pool::Handle;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn drain_waits_for_tasks_and_what_they_spawn() {
    let runtime = runtime();
    for threads in [1, 2] {
        let pool = pool(&runtime, threads);
        let (log, go) = (Log::default(), Arc::new(Event::new()));
        let outer = pool.spawn(Worker::new("outer"), {
            let (log, go) = (log.clone(), Arc::clone(&go));
            async move {
                go.wait().await.unwrap();
                let inner = log.clone();
                let spawned = Handle::current().unwrap().spawn(Worker::new("inner"), async move {
                    pause().await;
                    inner.say("inner");
                });
                log.say("outer");
                (spawned,)
            }
        });
        let handle = pool.handle().clone();
        let shutdown = pool.drain();
        // From elsewhere it takes none any more.
        let late = handle.spawn(Worker::new("late"), async {});
        assert!(late.is_finished());
        let error = late.blocking().unwrap_err();
        assert!(error.is_closed());
        assert_eq!(error.to_string(), "task \"late\" was not begun: the pool \"pool\" is shut down and takes no more");
        go.set();
        assert_eq!(shutdown.blocking().unwrap(), 0);
        outer.blocking().unwrap().0.blocking().unwrap();
        let mut said = log.said();
        said.sort();
        assert_eq!(said, ["inner", "outer"]);
    }
}

#[test]
fn cancel_drops_what_waits_and_what_is_ready() {
    let runtime = runtime();
    for threads in [1, 2] {
        let pool = pool(&runtime, threads);
        let waits = pool.spawn(Worker::new("waits"), std::future::pending::<()>());
        let plugs: Vec<Plug> = (0..threads).map(|_| Plug::new(&pool)).collect();
        let ready = pool.spawn(worker("ready", 9), async { panic!("it is never polled") });
        let handle = pool.handle().clone();
        let shutdown = pool.cancel();
        // What is being polled is let to the end of its poll.
        for plug in plugs {
            plug.pull().unwrap();
        }
        assert_eq!(shutdown.blocking().unwrap(), 2);
        for cancelled in [waits, ready] {
            assert!(cancelled.blocking().unwrap_err().is_cancelled());
        }
        assert!(handle.spawn(Worker::new("late"), async {}).blocking().unwrap_err().is_closed());
    }
}

#[test]
fn drain_cancels_what_is_left_in_the_end() {
    let runtime = runtime();
    let pool = pool(&runtime, 2);
    let (endless, brief) =
        (pool.spawn(Worker::new("endless"), std::future::pending::<()>()), pool.spawn(Worker::new("brief"), async { 7 }));
    assert_eq!(runtime.block_on(async { pool.drain().timeout(ms(20)).await }).unwrap(), 1);
    assert!(endless.blocking().unwrap_err().is_cancelled());
    assert_eq!(brief.blocking().unwrap(), 7);
}

/// A shutdown that is not waited for goes on by itself.
#[test]
fn a_drain_that_is_dropped_still_drains() {
    let runtime = runtime();
    let pool = pool(&runtime, 1);
    let go = Arc::new(Event::new());
    let task = pool.spawn(Worker::new("task"), {
        let go = Arc::clone(&go);
        async move { go.wait().await.map(|()| 7) }
    });
    drop(pool.drain());
    go.set();
    assert_eq!(task.blocking().unwrap().unwrap(), 7);
}

#[test]
fn a_dropped_pool_cancels_and_does_not_wait() {
    let runtime = runtime();
    let pool = pool(&runtime, 1);
    let plug = Plug::new(&pool);
    let task = pool.spawn(Worker::new("task"), async {});
    // If it waited, it would do so for ever.
    drop(pool);
    plug.pull().unwrap();
    assert!(task.blocking().unwrap_err().is_cancelled());
}

/// Aborted before the shutdown or by it, a task is counted once; and one that ended of itself never.
#[test]
fn only_what_the_end_cancels_is_counted() {
    let runtime = runtime();
    let pool = pool(&runtime, 1);
    let early = pool.spawn(Worker::new("early"), std::future::pending::<()>());
    early.abort();
    assert!(early.blocking().unwrap_err().is_cancelled());
    pool.spawn(Worker::new("ended"), async {}).blocking().unwrap();
    drop(pool.spawn(Worker::new("left"), std::future::pending::<()>()));
    assert_eq!(pool.cancel().blocking().unwrap(), 1);
}

#[test]
fn an_empty_pool_ends_at_once() {
    let runtime = runtime();
    assert_eq!(pool(&runtime, 8).drain().blocking().unwrap(), 0);
    assert_eq!(pool(&runtime, 8).cancel().blocking().unwrap(), 0);
}
