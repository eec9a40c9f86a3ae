//! Conditions: what no case with a number says, and what is done wrong with them.

use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use crate::common::local::{assert_idle, ms, pair};
use crate::common::polls::{Hand, everywhere};
use heirlock::Worker;
use heirlock::local::{Condvar, Domain, Mutex, OwnedMutexGuard, RLock, Wakeup};

#[test]
fn nothing_happens_before_the_first_poll() {
    let (domain, _, lock, changed) = pair();
    let waiting = changed.wait(lock.try_lock().unwrap()).priority(3).timeout(ms(5));
    assert!(lock.is_locked() && !changed.notify_one());
    assert_eq!(format!("{waiting:?}"), r#"Waiting { condvar: Some("changed"), stage: "holding", .. }"#);
    drop(waiting);
    assert!(!lock.is_locked());
    assert_eq!((changed.notify_all(), changed.name()), (0, Some("changed")));
    assert_eq!(format!("{changed:?} {:?}", Condvar::default()), r#"Condvar { name: Some("changed"), .. } Condvar { name: None, .. }"#);
    assert_idle(&domain);
}

#[test]
fn the_closure_has_the_first_word_and_the_last() {
    everywhere(|| async {
        let (domain, clock, lock, changed) = pair();
        let (holder, waiter) = (Worker::new("holder"), Worker::new("waiter"));
        // It may change what it is given.
        let mut guard = Hand::by(
            &waiter,
            changed.wait_while(lock.try_lock().unwrap(), |state| {
                *state += 1;
                *state < 1
            }),
        )
        .ready()
        .unwrap();
        assert_eq!(*guard, 1);
        *guard = 0;
        let mut waits = Hand::by(&waiter, changed.wait_while(guard, |state| *state == 0)).waiting();
        // In vain, and once more.
        for _ in 0..3 {
            assert_eq!(changed.notify_all(), 1);
            assert!(waits.poll().is_pending() && !lock.is_locked());
        }
        *Hand::by(&holder, lock.lock()).ready().unwrap() = 5;
        changed.notify_one();
        assert_eq!(*waits.ready().unwrap(), 5);
        // The time is that of all rounds together.
        let mut waits = Hand::by(&waiter, changed.wait_while(lock.try_lock().unwrap(), |state| *state == 5).timeout(ms(100))).waiting();
        for _ in 0..3 {
            clock.advance(ms(30));
            assert!(changed.notify_one() && waits.poll().is_pending());
        }
        let woken = waits.wakes();
        clock.advance(ms(10));
        while waits.wakes() == woken {
            std::thread::yield_now();
        }
        let (guard, wakeup) = waits.ready().unwrap();
        assert_eq!((*guard, wakeup), (5, Wakeup::TimedOut));
        drop(guard);
        // It was over, but what was waited for has come.
        let mut waits = Hand::by(&waiter, changed.wait_while(lock.try_lock().unwrap(), |state| *state == 5).timeout(ms(100))).waiting();
        *Hand::by(&holder, lock.lock()).ready().unwrap() = 6;
        clock.advance(ms(100));
        while waits.wakes() == 0 {
            std::thread::yield_now();
        }
        let (guard, wakeup) = waits.ready().unwrap();
        assert_eq!((*guard, wakeup), (6, Wakeup::Notified));
        drop(guard);
        drop(waits);
        assert_idle(&domain);
    });
}

#[test]
fn a_closure_that_panics() {
    let (domain, _, lock, changed) = pair();
    let [first, second] = ["first", "second"].map(Worker::new);
    let mut calls = 0;
    let mut panics = Hand::by(
        &first,
        changed.wait_while(lock.try_lock().unwrap(), move |_| {
            calls += 1;
            assert_eq!(calls, 1, "on purpose");
            true
        }),
    )
    .waiting();
    let mut next = Hand::by(&second, changed.wait(lock.try_lock().unwrap())).waiting();
    assert!(changed.notify_one());
    assert!(catch_unwind(AssertUnwindSafe(|| panics.poll())).is_err());
    assert!(!lock.is_locked());
    drop(panics);
    // It has not come back with the notification, so the next has it.
    drop(next.ready().unwrap());
    drop(next);
    assert_idle(&domain);
}

/// The deadline of the worker is also that of the wait for the lock; one of the call is not.
#[test]
fn a_deadline_while_the_lock_is_held() {
    let (domain, clock, lock, changed) = pair();
    let late = Worker::new("late").deadline(Instant::now() + Duration::from_secs(3600));
    let (next, holder) = (Worker::new("next"), Worker::new("holder"));
    let mut plain = Hand::by(&late, changed.wait(lock.try_lock().unwrap()).priority(1)).waiting();
    let mut other = Hand::by(&next, changed.wait(lock.try_lock().unwrap())).waiting();
    let guard = Hand::by(&holder, lock.lock()).ready().unwrap();
    assert!(changed.notify_one() && plain.poll().is_pending());
    clock.advance(Duration::from_secs(3601));
    while plain.wakes() < 2 {
        std::thread::yield_now();
    }
    assert!(plain.ready().unwrap_err().is_timeout());
    assert_eq!(other.wakes(), 1);
    drop(guard);
    drop(other.ready().unwrap());
    let late = Worker::new("late").deadline(Instant::now() + Duration::from_secs(3600));
    let mut timed = Hand::by(&late, changed.wait(lock.try_lock().unwrap()).timeout(ms(5))).waiting();
    let guard = Hand::by(&holder, lock.lock()).ready().unwrap();
    clock.advance(ms(5));
    while timed.wakes() == 0 {
        std::thread::yield_now();
    }
    assert!(timed.poll().is_pending());
    clock.advance(Duration::from_secs(7200));
    drop(guard);
    assert_eq!(timed.ready().unwrap().1, Wakeup::TimedOut);
    drop((plain, other, timed));
    assert_idle(&domain);
}

#[test]
fn with_an_rlock_the_closure_sees_what_is_shared() {
    everywhere(|| async {
        let domain = Domain::builder().build();
        let (lock, changed) = (RLock::new(AtomicU32::new(0)).in_domain(&domain), Condvar::new().in_domain(&domain));
        let (t, other) = (Worker::new("t"), Worker::new("other"));
        let mut outer = Hand::by(&t, lock.lock()).ready().unwrap();
        outer.merge(outer.again().unwrap());
        let mut waits = Hand::by(&t, changed.wait_while(outer, |state| state.load(Ordering::Relaxed) == 0)).waiting();
        Hand::by(&other, lock.lock()).ready().unwrap().store(1, Ordering::Relaxed);
        changed.notify_all();
        drop(waits.ready().unwrap());
        assert!(!lock.is_locked());
        assert_idle(&domain);
    });
}

/// More levels than a lock's word has room for come back, too, whether the lock is free by then or not.
#[test]
fn two_hundred_thousand_levels_come_back() {
    let domain = Domain::builder().build();
    let (lock, changed) = (RLock::new(()).in_domain(&domain), Condvar::new().in_domain(&domain));
    let (t, other) = (Worker::new("t"), Worker::new("other"));
    let mut guard = Hand::by(&t, lock.lock()).ready().unwrap();
    for _ in 0..200_000 {
        guard.merge(guard.again().unwrap());
    }
    let mut held = None;
    for contended in [false, true] {
        let mut waits = Hand::by(&t, changed.wait(guard)).waiting();
        assert!(!lock.is_locked() && changed.notify_one());
        if contended {
            held = Some(Hand::by(&other, lock.lock()).ready().unwrap());
            assert!(waits.poll().is_pending());
        }
        drop(held.take());
        guard = waits.ready().unwrap();
    }
    let again = guard.again().unwrap();
    drop(guard);
    assert!(lock.is_locked());
    drop(again);
    assert!(!lock.is_locked());
    assert_idle(&domain);
}

/// A worker that waits for its lock with two levels and has been granted it by another future with one has two.
#[test]
fn a_grant_to_another_future_of_the_worker_is_as_deep_as_it_must_be() {
    let domain = Domain::builder().build();
    let (lock, changed) = (RLock::new(()).in_domain(&domain), Condvar::new().in_domain(&domain));
    let (t, other) = (Worker::new("t"), Worker::new("other"));
    let mut guard = Hand::by(&t, lock.lock()).ready().unwrap();
    guard.merge(guard.again().unwrap());
    let waits = Hand::by(&t, changed.wait(guard)).waiting();
    let held = Hand::by(&other, lock.lock()).ready().unwrap();
    let plain = Hand::by(&t, lock.lock()).waiting();
    assert!(changed.notify_one());
    let mut waits = waits.waiting();
    drop(held);
    assert_eq!(plain.wakes(), 1);
    let guard = waits.ready().unwrap();
    let again = Hand::by(&t, lock.lock()).ready().unwrap();
    drop(guard);
    assert!(lock.is_locked());
    drop(again);
    assert!(!lock.is_locked());
    drop((plain, waits));
    assert_idle(&domain);
}

/// Locks of several domains wait for a condition of yet another.
#[test]
fn domains_may_differ() {
    everywhere(|| async {
        let domains = [(); 3].map(|()| Domain::builder().build());
        let changed = Condvar::new().in_domain(&domains[0]);
        let locks = [1, 2].map(|at| Mutex::new(at).in_domain(&domains[at]));
        let mut all = locks.each_ref().map(|lock| Hand::by(&Worker::new("w"), changed.wait(lock.try_lock().unwrap())).waiting());
        assert!(locks.iter().all(|lock| !lock.is_locked()));
        assert_eq!(changed.notify_all(), 2);
        for wait in &mut all {
            drop(wait.ready().unwrap());
        }
        drop(all);
        for domain in &domains {
            assert_idle(domain);
        }
    });
}

/// When it is woken, it notifies the next.
struct Notifies(Arc<Condvar>, AtomicUsize);

impl Wake for Notifies {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(usize::from(self.0.notify_one()), Ordering::Relaxed);
    }
}

#[test]
fn notified_from_a_waker() {
    let (domain, _, lock, changed) = pair();
    let changed = Arc::new(changed);
    let notifies = Arc::new(Notifies(Arc::clone(&changed), AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&notifies));
    let workers: Vec<Worker> = (0..10).map(|_| Worker::new("w")).collect();
    let mut all = Vec::new();
    for worker in &workers {
        let mut wait = worker.run(changed.wait(lock.try_lock().unwrap()));
        assert!(Pin::new(&mut wait).poll(&mut Context::from_waker(&waker)).is_pending());
        all.push(wait);
    }
    assert!(changed.notify_one());
    assert_eq!(notifies.1.load(Ordering::Relaxed), 9);
    for wait in &mut all {
        assert!(Pin::new(wait).poll(&mut Context::from_waker(&waker)).is_ready());
    }
    drop(all);
    assert_idle(&domain);
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("on purpose");
    }
}

/// Giving up the lock wakes who waits for that. If that panics, the lock is given up all the same, and once.
#[test]
fn a_waker_that_panics_while_the_lock_is_given_up() {
    let (domain, _, lock, changed) = pair();
    let workers = ["first", "second", "third"].map(Worker::new);
    let mut queued = workers[0].run(lock.lock());
    let guard = Hand::by(&workers[1], lock.lock()).ready().unwrap();
    let waker = Waker::from(Arc::new(Panics));
    assert!(Pin::new(&mut queued).poll(&mut Context::from_waker(&waker)).is_pending());
    let mut waits = Hand::by(&workers[1], changed.wait(guard));
    // It waits: the panic is not its own.
    assert!(waits.poll().is_pending());
    let Poll::Ready(guard) = Pin::new(&mut queued).poll(&mut Context::from_waker(Waker::noop())) else { panic!("it was granted") };
    drop(guard.unwrap());
    assert!(!lock.is_locked());
    let third = Hand::by(&workers[2], lock.lock()).ready().unwrap();
    assert!(changed.notify_one() && waits.poll().is_pending());
    drop(third);
    drop(waits.ready().unwrap());
    assert!(!lock.is_locked());
    drop((queued, waits));
    assert_idle(&domain);
}

/// Whose waker has a guard of the same domain, dropped with the wait.
struct Releases(StdMutex<Option<OwnedMutexGuard<()>>>);

impl Wake for Releases {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().unwrap().take());
    }
}

#[test]
fn a_guard_within_a_waker() {
    let (domain, _, lock, changed) = pair();
    let other = Arc::new(Mutex::new(()).in_domain(&domain));
    for notified in [true, false] {
        let waker = Waker::from(Arc::new(Releases(StdMutex::new(Some(pollster::block_on(other.lock_owned()).unwrap())))));
        let mut waits = changed.wait(lock.try_lock().unwrap());
        assert!(Pin::new(&mut waits).poll(&mut Context::from_waker(&waker)).is_pending());
        drop(waker);
        assert!(other.is_locked());
        assert!(!notified || changed.notify_one());
        drop(waits);
        assert!(!other.is_locked());
    }
    assert_idle(&domain);
}

#[test]
fn polled_after_its_end() {
    let (_, _, lock, changed) = pair();
    let mut waits = changed.wait_while(lock.try_lock().unwrap(), |_| false);
    let mut cx = Context::from_waker(Waker::noop());
    assert!(Pin::new(&mut waits).poll(&mut cx).is_ready());
    assert!(catch_unwind(AssertUnwindSafe(|| Pin::new(&mut waits).poll(&mut cx).is_ready())).is_err());
}

/// A queue with little room, between threads and tasks: everything arrives, once.
#[test]
fn producers_and_consumers() {
    const EACH: u32 = if cfg!(miri) { 20 } else { 2000 };
    const ROOM: usize = 3;
    let domain = Domain::builder().build();
    let shared = Arc::new((Mutex::new(VecDeque::new()).in_domain(&domain), [(); 2].map(|()| Condvar::new().in_domain(&domain))));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let consumers: Vec<_> = (0..4)
        .map(|_| {
            let shared = Arc::clone(&shared);
            runtime.spawn(Worker::new("consumer").run(async move {
                let (queue, [filled, emptied]) = &*shared;
                let mut sum = 0_u64;
                for _ in 0..EACH {
                    let mut queue = filled.wait_while(queue.lock().await.unwrap(), |queue| queue.is_empty()).await.unwrap();
                    sum += u64::from(queue.pop_front().unwrap());
                    drop(queue);
                    emptied.notify_one();
                }
                sum
            }))
        })
        .collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (queue, [filled, emptied]) = &*shared;
            scope.spawn(move || {
                for at in 1..=EACH {
                    let mut queue = emptied.wait_while(queue.lock_blocking().unwrap(), |queue| queue.len() == ROOM).blocking().unwrap();
                    queue.push_back(at);
                    drop(queue);
                    filled.notify_one();
                }
            });
        }
    });
    let sum: u64 = consumers.into_iter().map(|consumer| runtime.block_on(consumer).unwrap()).sum();
    assert_eq!(sum, 4 * u64::from(EACH) * u64::from(EACH + 1) / 2);
    assert!(shared.0.try_lock().unwrap().is_empty());
    assert_idle(&domain);
}
