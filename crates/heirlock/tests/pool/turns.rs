//! Whose turn it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::polls::{Hand, pause};
use crate::common::pools::{Log, Plug, pool, runtime, worker};
use heirlock::local::Mutex;
use heirlock::pool::{JoinHandle, Pool};
use heirlock::{Result, Worker};

/// Says its name when it is polled.
fn names(pool: &Pool, worker: &Worker, log: &Log) -> JoinHandle<()> {
    let (name, log) = (worker.name().to_owned(), log.clone());
    pool.spawn(worker.clone(), async move { log.say(name) })
}

fn end(tasks: impl IntoIterator<Item = JoinHandle<()>>) {
    tasks.into_iter().for_each(|task| task.blocking().unwrap());
}

#[test]
fn the_most_urgent_first_and_equals_by_turn() {
    let runtime = runtime();
    let pool = pool(&runtime, 1);
    let (log, plug) = (Log::default(), Plug::new(&pool));
    let workers = [("b1", 0), ("a1", 7), ("last", i32::MIN), ("b2", 0), ("a2", 7), ("first", i32::MAX), ("c", -1)];
    let tasks = workers.map(|(name, priority)| names(&pool, &worker(name, priority), &log));
    plug.pull().unwrap();
    end(tasks);
    assert_eq!(log.said(), ["first", "a1", "a2", "b1", "b2", "c", "last"]);
}

/// A task that is always ready does not keep its equals from being polled, and they it not.
#[test]
fn equals_take_turns() {
    let runtime = runtime();
    let pool = pool(&runtime, 1);
    let (log, plug) = (Log::default(), Plug::new(&pool));
    let greedy = |name: &'static str| {
        let log = log.clone();
        pool.spawn(Worker::new(name), async move {
            for _ in 0..3 {
                log.say(name);
                pause().await;
            }
        })
    };
    let tasks = [greedy("a"), greedy("b"), greedy("c")];
    plug.pull().unwrap();
    end(tasks);
    assert_eq!(log.said(), ["a", "b", "c", "a", "b", "c", "a", "b", "c"]);
}

#[test]
fn a_base_priority_that_changes_moves_a_ready_task() {
    let runtime = runtime();
    let pool = pool(&runtime, 1);
    let (log, plug) = (Log::default(), Plug::new(&pool));
    let workers = [("a", 1), ("b", 2), ("c", 3), ("d", 2)].map(|(name, priority)| worker(name, priority));
    let tasks = workers.each_ref().map(|worker| names(&pool, worker, &log));
    workers[0].set_priority(9);
    workers[2].set_priority(0);
    // There and back again: it has not lost its place among its equals.
    workers[1].set_priority(-5);
    workers[1].set_priority(2);
    plug.pull().unwrap();
    end(tasks);
    assert_eq!(log.said(), ["a", "b", "d", "c"]);
}

/// A boost moves a ready task at once, and back; whether the worker holds the lock itself, or a fork that its task polls does.
#[test]
fn a_boost_moves_a_ready_task() {
    for forked in [false, true] {
        let runtime = runtime();
        let pool = pool(&runtime, 1);
        let (log, plug) = (Log::default(), Plug::new(&pool));
        let (low, lock) = (worker("low", 1), Mutex::new(()));
        let tasks = [names(&pool, &low, &log), names(&pool, &worker("medium", 5), &log)];
        // Begun after the task is there, as forks are.
        let holder = if forked { low.fork("arm").fork("arm of the arm") } else { low.clone() };
        let guard = holder.scope(|| lock.try_lock()).unwrap();
        let high = worker("high", 10);
        drop(Hand::by(&high, lock.lock()).waiting());
        let again = names(&pool, &worker("medium too", 5), &log);
        let waiting = Hand::by(&high, lock.lock()).waiting();
        plug.pull().unwrap();
        end(tasks);
        end([again]);
        assert_eq!(log.said(), ["low", "medium", "medium too"], "forked: {forked}");
        drop((waiting, guard));

        // And back, after the wait is given up.
        let (log, plug) = (Log::default(), Plug::new(&pool));
        let guard = holder.scope(|| lock.try_lock()).unwrap();
        let tasks = [names(&pool, &low, &log), names(&pool, &worker("medium", 5), &log)];
        let waiting = Hand::by(&high, lock.lock()).waiting();
        drop(waiting);
        plug.pull().unwrap();
        end(tasks);
        assert_eq!(log.said(), ["medium", "low"], "forked: {forked}");
        drop(guard);
    }
}

/// A boost that is there already when the task is spawned.
#[test]
fn a_boosted_worker_is_spawned_boosted() {
    let runtime = runtime();
    let pool = pool(&runtime, 1);
    let (log, plug) = (Log::default(), Plug::new(&pool));
    let (low, lock) = (worker("low", 1), Mutex::new(()));
    let guard = low.scope(|| lock.try_lock()).unwrap();
    let waiting = Hand::by(&worker("high", 10), lock.lock()).waiting();
    let tasks = [names(&pool, &worker("medium", 5), &log), names(&pool, &low, &log)];
    plug.pull().unwrap();
    end(tasks);
    assert_eq!(log.said(), ["low", "medium"]);
    drop((waiting, guard));
}

/// A chain: who waits for a lock whose holder waits for another moves that one's holder, in whatever pools they are.
#[test]
fn a_chain_moves_its_end() {
    let runtime = runtime();
    let [pool, elsewhere] = [1, 1].map(|threads| pool(&runtime, threads));
    let locks = [Arc::new(Mutex::new(())), Arc::new(Mutex::new(()))];
    let (log, go) = (Log::default(), Arc::new(AtomicBool::new(false)));
    let low = worker("low", 1);
    let guard = Hand::by(&low, locks[0].lock_owned()).ready().unwrap();
    let between = elsewhere.spawn(worker("between", 2), {
        let locks = locks.clone();
        async move {
            let _outer = locks[1].lock_owned().await?;
            let _inner = locks[0].lock_owned().await?;
            Ok::<_, heirlock::Error>(())
        }
    });
    // It waits.
    while low.effective_priority() < 2 {
        std::thread::yield_now();
    }
    let plug = Plug::new(&pool);
    let task = pool.spawn(low.clone(), {
        let (log, go) = (log.clone(), Arc::clone(&go));
        async move {
            while !go.load(Ordering::SeqCst) {
                pause().await;
            }
            log.say("low");
            drop(guard);
        }
    });
    let medium = names(&pool, &worker("medium", 5), &log);
    let high = pool.spawn(worker("high", 10), {
        let lock = Arc::clone(&locks[1]);
        let (log, go) = (log.clone(), Arc::clone(&go));
        async move {
            go.store(true, Ordering::SeqCst);
            let _guard = lock.lock_owned().await?;
            log.say("high");
            Ok::<_, heirlock::Error>(())
        }
    });
    plug.pull().unwrap();
    between.blocking().unwrap().unwrap();
    high.blocking().unwrap().unwrap();
    end([task, medium]);
    let said = log.said();
    assert_eq!(said[0], "low", "{said:?}");
}

/// A fork counts for the task that polls it as long as it lives, and not if it ever had a task of its own.
#[test]
fn a_fork_counts_where_it_is_polled() {
    let runtime = runtime();
    let pool = pool(&runtime, 1);
    let (log, plug) = (Log::default(), Plug::new(&pool));
    let parents = ["with a fork", "whose fork has gone", "whose fork is a task", "whose fork's fork has gone"].map(|name| worker(name, 0));
    let mut tasks: Vec<_> = parents.iter().map(|parent| names(&pool, parent, &log)).collect();
    let _fork = parents[0].fork("fork").priority(50);
    drop(parents[1].fork("gone").priority(50));
    tasks.push(names(&pool, &parents[2].fork("fork as a task").priority(40), &log));
    let between = parents[3].fork("between");
    drop(between.fork("gone").priority(50));
    tasks.push(names(&pool, &worker("ten", 10), &log));
    plug.pull().unwrap();
    end(tasks);
    // Although the handles keep it, the fork that was a task is not polled with its parent.
    let rest = ["ten", "whose fork has gone", "whose fork is a task", "whose fork's fork has gone"];
    assert_eq!(log.said(), [&["with a fork", "fork as a task"][..], &rest].concat());
}

/// Whatever threads do when some become ready at once, looking, asleep or in between: each thread polls one.
#[test]
fn all_threads_are_woken() {
    const THREADS: usize = 4;
    let runtime = runtime();
    let pool = pool(&runtime, THREADS);
    for round in 0..1_000_usize {
        let (note, there, now) = (Arc::new(tokio::sync::Notify::new()), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let tasks: Vec<_> = (0..THREADS)
            .map(|_| {
                let (note, now) = (Arc::clone(&note), Arc::clone(&now));
                let there = Arc::clone(&there);
                pool.spawn(Worker::new("task"), async move {
                    let mut notified = std::pin::pin!(note.notified());
                    notified.as_mut().enable();
                    there.fetch_add(1, Ordering::SeqCst);
                    notified.await;
                    now.fetch_add(1, Ordering::SeqCst);
                    // Each keeps its thread until all are polled. What is not woken waits for ever.
                    let from = Instant::now();
                    while now.load(Ordering::SeqCst) < THREADS {
                        assert!(from.elapsed() < Duration::from_secs(30), "{now:?} of {THREADS} are polled, in round {round}");
                        std::thread::yield_now();
                    }
                })
            })
            .collect();
        // All wait, and some of the threads are asleep.
        while there.load(Ordering::SeqCst) < THREADS {
            std::thread::yield_now();
        }
        let last = pool.spawn(Worker::new("last"), async {});
        while !last.is_finished() {
            std::hint::spin_loop();
        }
        // Now one of them looks for more.
        for _ in 0..round % 100 {
            std::hint::spin_loop();
        }
        note.notify_waiters();
        end(tasks);
    }
}

/// As many are polled at a time as there are threads, and no more.
#[test]
fn each_thread_polls_one() -> Result<()> {
    let runtime = runtime();
    let pool = pool(&runtime, 2);
    let plugs = [Plug::new(&pool), Plug::new(&pool)];
    let (log, [first, second]) = (Log::default(), plugs);
    let third = names(&pool, &worker("third", i32::MAX), &log);
    // Nobody comes to poll it: there is no condition to wait for.
    std::thread::sleep(Duration::from_millis(20));
    assert!(!third.is_finished() && format!("{pool:?}").contains("ready: 1"));
    first.pull()?;
    third.blocking()?;
    second.pull()
}
