//! Re-entrant locks: the cases that concern them, by number.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::polls::{Hand, everywhere, once, pause};
use heirlock::Worker;
use heirlock::local::{Domain, RLock};

#[test]
fn case_p08_re_entrancy() {
    let domain = Domain::builder().build();
    let lock = RLock::new(5).in_domain(&domain);
    let (t, h) = (Worker::new("t").priority(10), Worker::new("h").priority(50));
    let first = Hand::by(&t, lock.lock()).ready().unwrap();
    let rest = [Hand::by(&t, lock.lock()).ready().unwrap(), t.scope(|| lock.try_lock().unwrap())];
    let mut waits = Hand::by(&h, lock.lock()).waiting();
    assert_eq!(t.effective_priority(), 50);
    // Also once the graph knows, and whatever the deadline.
    let over = lock.lock().deadline(Instant::now()).timeout(Duration::ZERO);
    drop(Hand::by(&t, over).ready().unwrap());
    assert_eq!(*first, 5);
    drop(first);
    for guard in rest {
        assert_eq!((t.effective_priority(), waits.wakes()), (50, 0));
        drop(guard);
    }
    assert_eq!((t.effective_priority(), waits.wakes()), (10, 1));
    drop(waits.ready().unwrap());
    assert!(!lock.is_locked());
    assert_eq!(domain.records(), [0; 7]);
}

#[test]
fn case_p08_by_a_thread() {
    let lock = RLock::new(());
    let (first, second) = (lock.lock_blocking().unwrap(), lock.lock_blocking().unwrap());
    std::thread::scope(|scope| {
        let other = scope.spawn(|| drop(lock.lock_blocking().unwrap()));
        // The second goes on another thread than it came on.
        scope.spawn(move || drop(second));
        drop(first);
        other.join().unwrap();
    });
    assert!(!lock.is_locked());
}

#[cfg(feature = "tokio")]
#[test]
fn case_f06_bare_arms_need_workers() {
    crate::common::polls::in_tasks(|| async {
        let lock = RLock::named("tree", ());
        let guard = lock.lock().await.unwrap();
        let error = lock.lock().await.unwrap_err();
        assert!(error.is_needs_worker());
        assert!(error.to_string().starts_with("lock \"tree\" is held by this task"), "{error}");
        // Also once the graph knows of it.
        let other = Hand::by(&Worker::new("other"), lock.lock()).waiting();
        assert!(lock.lock().await.unwrap_err().is_needs_worker());
        assert!(lock.try_lock().unwrap_err().is_needs_worker());
        drop(other);
        drop(guard);
        assert!(!lock.is_locked());
        // Nor are tasks let in because they share a thread.
        let guard = lock.lock_blocking().unwrap();
        assert!(lock.lock_blocking().unwrap_err().is_would_block());
        assert!(lock.lock().await.unwrap_err().is_needs_worker());
        drop(guard);

        let trusting = Domain::builder().trust_tasks(true).build();
        let lock = RLock::new(()).in_domain(&trusting);
        let (first, second) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
        drop(first);
        assert!(lock.is_locked());
        drop(second);
        assert!(!lock.is_locked());
    });
}

/// More levels than the word has room for.
#[test]
fn a_hundred_and_fifty_thousand_levels() {
    let domain = Domain::builder().build();
    let (lock, worker) = (RLock::new(()).in_domain(&domain), Worker::new("deep"));
    let guards: Vec<_> = worker.scope(|| (0..150_000).map(|_| lock.try_lock().unwrap()).collect());
    let mut waits = Hand::new(lock.lock()).waiting();
    drop(guards);
    drop(waits.ready().unwrap());
    assert!(!lock.is_locked());
    assert_eq!(domain.records(), [0; 7]);
}

/// One owner's levels come and go on several threads while others contend.
#[test]
fn levels_on_several_threads() {
    let domain = Domain::builder().build();
    let lock = Arc::new(RLock::new(AtomicU64::new(0)).in_domain(&domain));
    std::thread::scope(|scope| {
        for at in 0..3_u64 {
            let lock = &lock;
            scope.spawn(move || {
                let worker = Worker::new("w").priority(i32::try_from(at).unwrap());
                for _ in 0..500 {
                    worker.scope(|| {
                        let outer = lock.lock_blocking().unwrap();
                        let before = outer.load(Ordering::Relaxed);
                        let inner = lock.lock_blocking().unwrap();
                        std::thread::scope(|scope| {
                            if before.is_multiple_of(50) {
                                scope.spawn(move || drop(inner));
                            } else {
                                drop(inner);
                            }
                            outer.store(before + 1, Ordering::Relaxed);
                            drop(outer);
                        });
                    });
                }
            });
        }
    });
    assert_eq!(lock.try_lock().unwrap().load(Ordering::Relaxed), 1500);
    assert_eq!(domain.records(), [0; 7]);
}

/// Arms that would enter beside each other take turns when each has its fork; bare, they are refused (F06).
#[test]
fn case_f17_arms_with_forks() {
    everywhere(|| async {
        let domain = Domain::builder().build();
        let (lock, whole) = (RLock::new(AtomicU64::new(0)).in_domain(&domain), Worker::new("whole"));
        let arm = async |at: u64| {
            let guard = lock.lock().await.unwrap();
            assert_eq!(guard.swap(at, Ordering::Relaxed), 0);
            pause().await;
            assert_eq!(guard.swap(0, Ordering::Relaxed), at);
        };
        let mut arms: Vec<_> = (1..=100).map(|at| Box::pin(whole.fork(format!("arm {at}")).run(arm(at)))).collect();
        while !arms.is_empty() {
            let mut left = Vec::new();
            for mut arm in arms {
                if once(&mut arm).await.is_pending() {
                    left.push(arm);
                }
            }
            arms = left;
            pause().await;
        }
        drop(arms);
        assert!(!lock.is_locked());
        assert_eq!(domain.records(), [0; 7]);
    });
}
