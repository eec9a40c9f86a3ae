//! Mutexes: the cases that concern them, by number.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::local::{assert_idle, domain, ms, worker};
use crate::common::polls::{Hand, everywhere, in_tasks, once, pause};
use heirlock::Worker;
use heirlock::local::{Domain, Mutex};

#[test]
fn case_p09_deadlock() {
    let (domain, _) = domain();
    let (a, b) = (Mutex::named("a", ()).in_domain(&domain), Mutex::named("b", ()).in_domain(&domain));
    let (t1, t2, t3) = (worker("t1", 20), worker("t2", 10), worker("t3", 0));
    let (_held_a, held_b) = (Hand::by(&t1, a.lock()).ready().unwrap(), Hand::by(&t2, b.lock()).ready().unwrap());
    let mut t1_waits = Hand::by(&t1, b.lock()).waiting();
    assert_eq!(t2.effective_priority(), 20);
    let error = Hand::by(&t2, a.lock()).ready().unwrap_err();
    assert!(error.is_deadlock());
    // The exact text, with its lines and times, is tested in snapshot.rs.
    let text = error.to_string();
    let places =
        [r#"deadlock: worker "t2" waits for lock "a""#, r#"held by worker "t1""#, r#"waits for lock "b""#, r#"held by worker "t2""#];
    let places = places.map(|part| text.find(part).unwrap_or_else(|| panic!("no {part} in {text}")));
    assert!(places.is_sorted(), "{text}");
    assert_eq!(t2.effective_priority(), 20);
    drop(Hand::by(&t3, a.lock()).waiting());
    drop(held_b);
    drop(t1_waits.ready().unwrap());
    assert_eq!(t2.effective_priority(), 10);
}

#[test]
fn case_p11_cancel_after_grant() {
    let (domain, _) = domain();
    let lock = Mutex::new(()).in_domain(&domain);
    let (a, b, c, d) = (worker("a", 0), worker("b", 5), worker("c", 5), worker("d", 3));
    let guard = Hand::by(&a, lock.lock()).ready().unwrap();
    let b_waits = Hand::by(&b, lock.lock()).waiting();
    let mut c_waits = Hand::by(&c, lock.lock()).waiting();
    let d_waits = Hand::by(&d, lock.lock().priority(40)).waiting();
    assert_eq!(a.effective_priority(), 40);
    drop(d_waits);
    assert_eq!(a.effective_priority(), 5);
    drop(guard);
    assert!(lock.is_locked());
    assert_eq!((b_waits.wakes(), c_waits.wakes()), (1, 0));
    let e_waits = Hand::by(&d, lock.lock().priority(60)).waiting();
    assert_eq!(b.effective_priority(), 60);
    drop(e_waits);
    drop(b_waits);
    assert!(lock.is_locked());
    assert_eq!((b.effective_priority(), c_waits.wakes()), (5, 1));
    drop(c_waits.ready().unwrap());
    assert!(!lock.is_locked());
    assert_idle(&domain);
}

/// Never false while the lock goes from one to the next, however often it is looked at.
#[test]
fn case_p11_never_free_in_between() {
    let (domain, _) = domain();
    let lock = Arc::new(Mutex::new(()).in_domain(&domain));
    let first = pollster::block_on(lock.lock()).unwrap();
    let (looks, last) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let looker = std::thread::spawn({
        let (lock, looks, last) = (Arc::clone(&lock), Arc::clone(&looks), Arc::clone(&last));
        move || {
            while !last.load(Ordering::SeqCst) {
                assert!(lock.is_locked());
                looks.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    while looks.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    let mut waits: Vec<_> = (0..500).map(|_| Hand::new(lock.lock()).waiting()).collect();
    let mut end = waits.pop().unwrap();
    drop(first);
    for wait in waits {
        assert_eq!(wait.wakes(), 1);
        drop(wait);
    }
    let guard = end.ready().unwrap();
    last.store(true, Ordering::SeqCst);
    looker.join().unwrap();
    drop(guard);
}

#[test]
fn case_p16_earliest_deadline_among_equals() {
    let (domain, _) = domain();
    let lock = Mutex::new(()).in_domain(&domain);
    let start = Instant::now() + Duration::from_secs(3600);
    let mut guard = Some(Hand::by(&worker("t", 0), lock.lock()).ready().unwrap());
    let workers: Vec<Worker> = (1..=4).map(|at| worker(format!("w{at}"), 20)).collect();
    let [w1, w2, w3, w4] = &workers[..] else { unreachable!() };
    let mut waits = [
        Hand::by(w1, lock.lock().deadline(start + ms(200))).waiting(),
        Hand::by(w2, lock.lock().deadline(start + ms(100))).waiting(),
        Hand::by(w3, lock.lock()).waiting(),
        Hand::by(w4, lock.lock().timeout(ms(50))).waiting(),
    ];
    for next in [1, 0, 2, 3] {
        drop(guard.take());
        let woken: Vec<usize> = waits.iter().map(Hand::wakes).collect();
        assert_eq!(woken[next], 1, "{woken:?}");
        guard = Some(waits[next].ready().unwrap());
    }
}

/// In one arm a bare task holds the lock, in another it waits for it.
#[cfg(feature = "tokio")]
#[test]
fn case_p21_self_wait_leaves_nothing_behind() {
    in_tasks(|| async {
        let (domain, _) = domain();
        let lock = Mutex::new(()).in_domain(&domain);
        let effective = || domain.snapshot().locks[0].holders[0].effective;
        let guard = lock.lock().await.unwrap();
        let mut again = lock.lock();
        assert!(once(&mut again).await.is_pending());
        assert_eq!(domain.snapshot().suspected.len(), 1);
        let high = Hand::by(&worker("h", 50), lock.lock()).waiting();
        assert_eq!(effective(), 50);
        drop(high);
        assert_eq!(effective(), 0);
        drop(guard);
        drop(again.await.unwrap());
        assert_idle(&domain);
    });
}

#[test]
fn case_p25_forks() {
    let (domain, _) = domain();
    let [l, of_parent, shared] = [(); 3].map(|()| Mutex::new(()).in_domain(&domain));
    let (parent, high) = (worker("p", 10), worker("h", 50));
    let (a, b) = (parent.fork("a"), parent.fork("b"));
    assert_eq!((a.base_priority(), a.effective_priority()), (10, 10));
    let held = (Hand::by(&a, l.lock()).ready().unwrap(), Hand::by(&parent, of_parent.lock()).ready().unwrap());
    let high_waits = Hand::by(&high, of_parent.lock()).waiting();
    assert_eq!([&parent, &a, &b].map(Worker::effective_priority), [50; 3]);
    let of_a = Hand::by(&a, shared.lock()).ready().unwrap();
    let mut b_waits = Hand::by(&b, shared.lock()).waiting();
    drop(of_a);
    drop(b_waits.ready().unwrap());
    drop(high_waits);
    assert_eq!([&parent, &a, &b].map(Worker::effective_priority), [10; 3]);
    parent.set_priority(12);
    assert_eq!([&parent, &a, &b].map(Worker::effective_priority), [12; 3]);
    drop(held);
    assert_idle(&domain);
}

#[test]
fn case_f06_join_arms() {
    async fn arms() -> ([heirlock::Result<()>; 2], i32) {
        let domain = Domain::builder().build();
        let lock = Mutex::named("shared", 0).in_domain(&domain);
        let arm = || async {
            let mut guard = lock.lock().await?;
            pause().await;
            *guard += 1;
            Ok(())
        };
        let (first, second) = tokio::join!(arm(), arm());
        let sum = *lock.lock().await.unwrap();
        ([first, second], sum)
    }
    in_tasks(|| async move {
        let ([first, second], sum) = arms().await;
        assert!(first.is_ok() && second.is_ok());
        assert_eq!(sum, 2);
    });
    let ([first, second], sum) = pollster::block_on(Worker::new("w").run(arms()));
    assert!(first.is_ok());
    let error = second.unwrap_err();
    assert!(error.is_deadlock());
    let text = error.to_string();
    assert!(
        text.starts_with(r#"deadlock: worker "w" waits for lock "shared" (at "#) && text.contains(", which it holds itself (from "),
        "{text}"
    );
    assert!(text.ends_with(r#"give each arm a fork of the worker: worker.fork("arm")"#), "{text}");
    assert_eq!(sum, 1);
    everywhere(|| async {
        let domain = Domain::builder().build();
        let (lock, whole) = (Mutex::new(0).in_domain(&domain), Worker::new("whole"));
        let arm = async || {
            let mut guard = lock.lock().await.unwrap();
            pause().await;
            *guard += 1;
        };
        let (first, second) = (whole.fork("first"), whole.fork("second"));
        tokio::join!(first.run(arm()), second.run(arm()));
        assert_eq!(*lock.try_lock().unwrap(), 2);
        assert_idle(&domain);
    });
}

#[test]
fn case_f17_bare_arms() {
    in_tasks(|| async {
        let domain = Domain::builder().build();
        let lock = Arc::new(Mutex::new(0_u64).in_domain(&domain));
        let mut arms: Vec<_> = (0..100)
            .map(|_| {
                let lock = Arc::clone(&lock);
                Box::pin(async move {
                    let mut guard = lock.lock().await.unwrap();
                    let before = *guard;
                    pause().await;
                    *guard = before + 1;
                })
            })
            .collect();
        // As `buffer_unordered` does, all arms in one task.
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
        assert_eq!(*lock.lock().await.unwrap(), 100);
        assert_eq!(domain.records(), [0; 7]);
    });
}
