//! The end of a pool: nothing is lost.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::polls::pause;
use crate::common::pools::{Counted, Log, Plug, pool, runtime, worker};
use heirlock::Worker;
use heirlock::local::Event;
use heirlock::pool::{Handle, JoinHandle};

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

/// Ten thousand are under way when the pool ends, in each way: all end, and none that was cancelled is not counted.
#[test]
fn none_of_ten_thousand_is_lost() {
    const TASKS: usize = 10_000;
    let runtime = runtime();
    for threads in [1, 2, 8] {
        for way in ["drain", "cancel", "drain for a while", "drop"] {
            let pool = pool(&runtime, threads);
            let gone = Arc::new(AtomicUsize::new(0));
            let tasks: Vec<_> = (0..TASKS)
                .map(|number| {
                    let counted = Counted(Arc::clone(&gone));
                    let priority = i32::try_from(number % 20).unwrap();
                    pool.spawn(worker("task", priority), async move {
                        let _counted = counted;
                        for turn in 0..number % 9 {
                            if (number + turn) % 3 == 0 {
                                tokio::time::sleep(ms(number as u64 % 7)).await;
                            } else {
                                pause().await;
                            }
                        }
                        if number % 50 == 0 {
                            // Without the noise of a report.
                            std::panic::resume_unwind(Box::new(number));
                        }
                    })
                })
                .collect();
            let said = match way {
                "drain" => Some(pool.drain().blocking().unwrap()),
                "cancel" => Some(pool.cancel().blocking().unwrap()),
                "drop" => {
                    drop(pool);
                    None
                }
                _ => Some(pool.drain().timeout(ms(5)).blocking().unwrap()),
            };
            let (mut cancelled, mut panicked) = (0, 0);
            for task in tasks {
                match task.blocking() {
                    Ok(()) => {}
                    Err(error) if error.is_cancelled() => cancelled += 1,
                    Err(error) => panicked += usize::from(error.is_panicked()),
                }
            }
            assert_eq!(gone.load(Ordering::SeqCst), TASKS, "{way} of {threads}");
            assert!(said.is_none_or(|said| said == cancelled), "{way} of {threads}: {said:?} but {cancelled}");
            assert!(way != "drain" || (cancelled, panicked) == (0, TASKS / 50), "{cancelled}, {panicked}");
        }
    }
}

/// The deadline of who drains is for its locks.
#[test]
fn a_deadline_of_who_drains_cuts_nothing_short() {
    let runtime = runtime();
    for limit in [None, Some(Duration::from_secs(60))] {
        let pool = pool(&runtime, 1);
        let task = pool.spawn(Worker::new("task"), async {
            tokio::time::sleep(ms(100)).await;
            7
        });
        let drains = Worker::new("drains").deadline(Instant::now() + ms(5));
        let shutdown = match limit {
            Some(limit) => pool.drain().timeout(limit),
            None => pool.drain(),
        };
        assert_eq!(runtime.block_on(drains.run(shutdown.into_future())).unwrap(), 0);
        assert_eq!(task.blocking().unwrap(), 7);
    }
}

/// What a thread of the pool spawns when it ends comes too late, and is told so.
#[test]
fn a_thread_that_ends_spawns_nothing() {
    struct Late(Handle, std::sync::mpsc::Sender<JoinHandle<()>>);
    impl Drop for Late {
        fn drop(&mut self) {
            let _ = self.1.send(self.0.spawn(Worker::new("late"), async {}));
        }
    }
    thread_local! { static LATE: RefCell<Option<Late>> = const { RefCell::new(None) }; }
    let runtime = runtime();
    let pool = pool(&runtime, 1);
    let ((sender, lates), handle) = (std::sync::mpsc::channel(), pool.handle().clone());
    pool.spawn(Worker::new("task"), async move { LATE.set(Some(Late(handle, sender))) }).blocking().unwrap();
    pool.drain().blocking().unwrap();
    assert!(lates.recv().unwrap().blocking().unwrap_err().is_closed());
}
