//! Conditions: the cases that concern them, by number.
//!
//! `cases.rs` has the table of them all. F01 to F05, F13, F15 and F17 are in `condvar_futures.rs`.
//!
//! Cases of holders do not apply, for nobody holds a condition: that it boosts nobody, and is in no verdict, is asserted in P15 and F09.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::local::{assert_idle, ms, pair, worker};
use crate::common::polls::{Hand, assert_says, everywhere, pause};

use heirlock::Worker;
use heirlock::local::{Condvar, Domain, Mutex, MutexGuard, Order, RLock, Wakeup};

/// A wait of this worker, polled once.
fn waits<'a>(worker: &'a Worker, lock: &'a Mutex<u32>, changed: &'a Condvar) -> Hand<'a, heirlock::Result<MutexGuard<'a, u32>>> {
    Hand::by(worker, changed.wait(Hand::by(worker, lock.lock()).ready().unwrap())).waiting()
}

#[test]
fn case_p10_expiry_against_notification() {
    everywhere(|| async {
        for (notify_at, outcome) in [(100, Wakeup::TimedOut), (99, Wakeup::Notified)] {
            let (domain, clock, lock, changed) = pair();
            let guard = Hand::by(&worker("w", 1), lock.lock()).ready().unwrap();
            let mut waits = Hand::by(&worker("w", 1), changed.wait(guard).timeout(ms(100))).waiting();
            clock.advance(ms(notify_at));
            assert_eq!(changed.notify_one(), outcome == Wakeup::Notified);
            clock.advance(ms(150 - notify_at));
            assert_eq!(waits.ready().unwrap().1, outcome);
            assert!(!lock.is_locked());
            assert_idle(&domain);
        }
    });
}

#[test]
fn case_p15_condition() {
    everywhere(|| async {
        let domain = Domain::builder().build();
        let (lock, changed) = (RLock::named("tree", 7).in_domain(&domain), Condvar::new().in_domain(&domain));
        let (t, next, low) = (worker("t", 10), worker("next", 1), worker("low", 5));
        let [mut outer, inner, other] = [(); 3].map(|()| Hand::by(&t, lock.lock()).ready().unwrap());
        // Other guards of it live: nothing happens but that this one goes.
        for _ in 0..2 {
            let error = Hand::by(&t, changed.wait(outer.again().unwrap())).ready().unwrap_err();
            assert!(error.is_invalid());
            assert!(error.to_string().starts_with("the holder of lock \"tree\" has other guards of it"), "{error}");
            assert!(lock.is_locked() && !changed.notify_one());
        }
        // The same once the graph knows of the hold.
        let behind = Hand::by(&low, lock.lock()).waiting();
        assert!(Hand::by(&t, changed.wait(other)).ready().unwrap_err().is_invalid());
        assert_eq!(behind.wakes(), 0);
        drop(behind);
        outer.merge(inner);
        let waits = Hand::by(&t, changed.wait(outer)).waiting();
        // Every level was released, and who waits for a condition boosts nobody.
        let guard = Hand::by(&next, lock.lock()).ready().unwrap();
        assert_eq!(next.effective_priority(), 1);
        let mut low_waits = Hand::by(&low, lock.lock()).waiting();
        assert!(changed.notify_one());
        assert_eq!((waits.wakes(), next.effective_priority()), (1, 5));
        // It queues with its own priority, before who came earlier.
        let mut waits = waits.waiting();
        assert_eq!(next.effective_priority(), 10);
        drop(guard);
        assert_eq!((waits.wakes(), low_waits.wakes()), (2, 0));
        let guard = waits.ready().unwrap();
        // Two levels again: without this guard's, one is left.
        let again = Hand::by(&t, lock.lock()).ready().unwrap();
        drop(guard);
        assert!(low_waits.poll().is_pending());
        drop(again);
        drop(low_waits.ready().unwrap());
        assert!(!lock.is_locked());
        assert_idle(&domain);
    });
}

#[test]
fn case_p16_p18_p19_order_of_notifications() {
    let (domain, _, lock, changed) = pair();
    let workers = [0, i32::MIN, i32::MAX, 0].map(|priority| worker("w", priority));
    let mut all: Vec<_> = workers.iter().map(|worker| waits(worker, &lock, &changed)).collect();
    for next in [2, 0, 3, 1] {
        assert!(changed.notify_one());
        assert_eq!(all[next].wakes(), 1);
        drop(all[next].ready().unwrap());
    }
    assert!(!changed.notify_one());
    drop(all);
    // The call's priority stands in for the base.
    let mut first = Hand::by(&workers[2], changed.wait(lock.try_lock().unwrap()).priority(3)).waiting();
    let mut second = Hand::by(&workers[0], changed.wait(lock.try_lock().unwrap()).priority(4)).waiting();
    changed.notify_one();
    assert_eq!((first.wakes(), second.wakes()), (0, 1));
    assert_eq!(changed.notify_all(), 1);
    drop((first.ready().unwrap(), second.poll().is_pending()));
    drop((first, second));
    // By deadline, in turn, and with a limit to being passed by.
    let start = Instant::now() + Duration::from_secs(3600);
    let by_deadline = Condvar::new().in_domain(&domain).order(Order::Deadline);
    let all = [200, 100].map(|at| Hand::new(by_deadline.wait(lock.try_lock().unwrap()).deadline(start + ms(at))).waiting());
    by_deadline.notify_one();
    assert_eq!(all.each_ref().map(Hand::wakes), [0, 1]);
    drop(all);
    let fifo = Condvar::new().in_domain(&domain).order(Order::Fifo);
    let all = [1, 9].map(|priority| Hand::new(fifo.wait(lock.try_lock().unwrap()).priority(priority)).waiting());
    fifo.notify_one();
    assert_eq!(all.each_ref().map(Hand::wakes), [1, 0]);
    drop(all);
    let limited = Condvar::new().in_domain(&domain).bypass_limit(2);
    let all = [0, 9, 9, 9].map(|priority| Hand::new(limited.wait(lock.try_lock().unwrap()).priority(priority)).waiting());
    for _ in 0..3 {
        limited.notify_one();
    }
    assert_eq!(all.each_ref().map(Hand::wakes), [1, 1, 1, 0]);
    drop(all);
    assert_idle(&domain);
}

#[test]
fn case_p20_no_time_to_wait() {
    everywhere(|| async {
        let (_, _, lock, changed) = pair();
        let (t, next) = (worker("t", 1), worker("next", 1));
        let guard = Hand::by(&t, lock.lock()).ready().unwrap();
        let mut next_waits = Hand::by(&next, lock.lock()).waiting();
        // Others have their turn all the same.
        let mut none = Hand::by(&t, changed.wait(guard).timeout(Duration::ZERO)).waiting();
        assert!(!changed.notify_one());
        drop(next_waits.ready().unwrap());
        let (guard, wakeup) = none.ready().unwrap();
        assert_eq!((*guard, wakeup), (0, Wakeup::TimedOut));
        drop(guard);
        // Of the worker's own deadline: without the lock.
        let late = worker("late", 1).deadline(Instant::now());
        assert!(Hand::by(&late, changed.wait(lock.try_lock().unwrap())).ready().unwrap_err().is_timeout());
        assert!(!lock.is_locked());
        let (_guard, wakeup) = Hand::by(&late, changed.wait(lock.try_lock().unwrap()).timeout(ms(10))).ready().unwrap();
        assert_eq!(wakeup, Wakeup::TimedOut);
    });
}

#[test]
fn case_f06_join_arms() {
    async fn arms() -> [heirlock::Result<()>; 2] {
        let (_, _, lock, changed) = pair();
        let arm = async || {
            let mut guard = changed.wait_while(lock.lock().await?, |state| *state == 0).await?;
            pause().await;
            *guard += 1;
            Ok(())
        };
        let (first, second, ()) = tokio::join!(arm(), arm(), async {
            *lock.lock().await.unwrap() = 1;
            assert!(changed.notify_one());
        });
        [first, second]
    }
    // One notification, and both arms look: they are one worker, where tasks are known.
    #[cfg(feature = "tokio")]
    crate::common::polls::in_tasks(|| async { assert!(arms().await.iter().all(heirlock::Result::is_ok)) });
    // One line of work cannot wait for itself.
    let arms = pollster::block_on(Worker::new("w").run(arms()));
    assert_eq!(arms.iter().filter(|arm| arm.is_ok()).count(), 1);
    assert!(arms.into_iter().find_map(Result::err).unwrap().is_deadlock());
}

#[test]
fn case_f08_outside_a_task() {
    let (domain, _, lock, changed) = pair();
    std::thread::scope(|scope| {
        let waiter = scope
            .spawn(|| pollster::block_on(async { *changed.wait_while(lock.lock().await.unwrap(), |state| *state == 0).await.unwrap() }));
        *lock.lock_blocking().unwrap() = 5;
        changed.notify_all();
        assert_eq!(waiter.join().unwrap(), 5);
    });
    assert_idle(&domain);
}

/// Waiting for a condition closes no cycle; the wait for the lock that follows does.
#[test]
fn case_f09_verdicts_are_of_the_lock_only() {
    everywhere(|| async {
        let (domain, _, lock, changed) = pair();
        let other = Mutex::named("other", ()).in_domain(&domain);
        let (t1, t2) = (worker("t1", 1), worker("t2", 2));
        let held = Hand::by(&t1, other.lock()).ready().unwrap();
        let mut t1_waits = waits(&t1, &lock, &changed);
        let guard = Hand::by(&t2, lock.lock()).ready().unwrap();
        let mut t2_waits = Hand::by(&t2, other.lock()).waiting();
        assert_eq!(t1.effective_priority(), 2);
        let mut third = waits_on(&domain, &changed);
        assert!(changed.notify_one());
        // The notification that ended so is not lost.
        let error = t1_waits.ready().unwrap_err();
        assert!(error.is_deadlock());
        let ways = [
            r#"deadlock: worker "t1" waits for lock "state""#,
            r#"held by worker "t2""#,
            r#"which waits for lock "other""#,
            r#"held by worker "t1""#,
        ];
        assert_says(&error.to_string(), &ways);
        third.ready().unwrap();
        drop(held);
        drop(t2_waits.ready().unwrap());
        drop(guard);
        drop((third, t1_waits));
        assert!(!lock.is_locked());
        assert_idle(&domain);
    });
}

/// A wait for the condition with a lock of its own.
fn waits_on<'a>(domain: &Domain, changed: &'a Condvar) -> Hand<'a, heirlock::Result<()>> {
    let lock = Mutex::new(()).in_domain(domain);
    Hand::new(async move { changed.wait(lock.lock().await?).priority(-1).await.map(drop) }).waiting()
}

#[test]
fn case_f10_blocking_inside_a_runtime() {
    everywhere(|| async {
        let (lock, changed) = (Arc::new(Mutex::new(1)), Arc::new(Condvar::named("changed")));
        if cfg!(feature = "tokio") && tokio::runtime::Handle::try_current().is_ok() {
            let error = changed.wait(lock.try_lock().unwrap()).blocking().unwrap_err();
            assert!(error.is_would_block());
            assert!(error.to_string().starts_with("waiting for condition \"changed\" here would block"), "{error}");
            assert!(!lock.is_locked());
        }
        // What needs no wait is no trouble.
        let guard = changed.wait_while(lock.try_lock().unwrap(), |state| *state == 0).blocking().unwrap();
        let (guard, wakeup) = changed.wait_while(guard, |state| *state == 0).timeout(ms(1)).blocking().unwrap();
        assert_eq!((*guard, wakeup), (1, Wakeup::Notified));
        drop(guard);
        let waiter = std::thread::spawn({
            let (lock, changed) = (Arc::clone(&lock), Arc::clone(&changed));
            move || *changed.wait_while(lock.lock_blocking().unwrap(), |state| *state == 1).blocking().unwrap()
        });
        *lock.lock().await.unwrap() = 2;
        changed.notify_all();
        assert_eq!(waiter.join().unwrap(), 2);
    });
}

#[test]
fn case_f11_guard_across_threads() {
    let (domain, _, lock, changed) = pair();
    let owner = worker("owner", 3);
    let guard = Hand::by(&owner, lock.lock()).ready().unwrap();
    let waiting = changed.wait(guard);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Whoever polls it waits, and holds the lock then.
            let mut waiting = Hand::by(&worker("heir", 4), waiting).waiting();
            assert!(!lock.is_locked() && changed.notify_one());
            drop(waiting.ready().unwrap());
        });
    });
    assert!(!lock.is_locked());
    assert_idle(&domain);
}

#[test]
fn case_f12_poisoned_meanwhile() {
    everywhere(|| async {
        let domain = Domain::builder().build();
        let (lock, changed) = (Mutex::new(0).in_domain(&domain).poisoning(), Condvar::new().in_domain(&domain));
        let [first, second, third] = ["first", "second", "third"].map(Worker::new);
        let mut told = Hand::by(&first, changed.wait(lock.try_lock().unwrap())).waiting();
        let mut next = Hand::by(&second, changed.wait(lock.try_lock().unwrap()).even_poisoned()).waiting();
        let mut last = Hand::by(&third, changed.wait(lock.try_lock().unwrap()).timeout(ms(60_000))).waiting();
        std::thread::scope(|scope| {
            let broken = scope.spawn(|| {
                let _guard = lock.lock_blocking().unwrap();
                assert!(changed.notify_one());
                panic!("on purpose");
            });
            assert!(broken.join().is_err());
        });
        assert!(told.ready().unwrap_err().is_poisoned());
        assert!(!lock.is_locked());
        // It did not come back with it, so the next has it.
        assert_eq!(next.wakes(), 1);
        drop(next.ready().unwrap());
        lock.clear_poison();
        assert!(changed.notify_one());
        assert_eq!(last.ready().unwrap().1, Wakeup::Notified);
        assert_idle(&domain);
    });
}
