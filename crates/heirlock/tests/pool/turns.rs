//! Whose turn it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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

/// As many are polled at a time as there are threads, and no more.
#[test]
fn each_thread_polls_one() -> Result<()> {
    let runtime = runtime();
    let pool = pool(&runtime, 2);
    let plugs = [Plug::new(&pool), Plug::new(&pool)];
    let (log, [first, second]) = (Log::default(), plugs);
    let third = names(&pool, &worker("third", i32::MAX), &log);
    assert!(!third.is_finished());
    first.pull()?;
    third.blocking()?;
    second.pull()
}
