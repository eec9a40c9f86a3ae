//! Permits, and who asks for them: arms of one task, threads; cases by number.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;

use crate::common::local::{assert_idle, ms, permits, worker};
use crate::common::polls::{Hand, everywhere, in_tasks, once, pause};

/// Arms of one task, or of one worker, have their permits together if there are enough, and one after the other if not.
#[test]
fn case_f06_join_arms() {
    everywhere(|| async {
        for tracked in [false, true] {
            for (count, both) in [(1, false), (2, true), (3, true)] {
                let (domain, _, semaphore) = permits(count, tracked);
                let (inside, most) = (AtomicU32::new(0), AtomicU32::new(0));
                let held = Hand::by(&worker("holder", 0), semaphore.acquire_many(count)).ready().unwrap();
                let arm = async || {
                    let permit = semaphore.acquire().await.unwrap();
                    most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    while both && most.load(Ordering::SeqCst) < 2 {
                        pause().await;
                    }
                    pause().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(permit);
                };
                let release = async {
                    pause().await;
                    drop(held);
                };
                tokio::join!(arm(), arm(), release);
                assert_eq!((most.load(Ordering::SeqCst), semaphore.free_permits()), (if both { 2 } else { 1 }, count));
                assert_idle(&domain);
            }
        }
    });
}

/// Arms that want different numbers: each in the end has its own.
#[test]
fn case_f06_arms_that_want_more_and_less() {
    everywhere(|| async {
        for tracked in [false, true] {
            let (domain, _, semaphore) = permits(3, tracked);
            let held = Hand::by(&worker("holder", 0), semaphore.acquire_many(3)).ready().unwrap();
            let arm = async |permits| {
                let permit = semaphore.acquire_many(permits).await.unwrap();
                pause().await;
                permit.permits()
            };
            let release = async {
                pause().await;
                drop(held);
            };
            let (one, three, two, ()) = tokio::join!(arm(1), arm(3), arm(2), release);
            assert_eq!(([one, three, two], semaphore.free_permits()), ([1, 3, 2], 3));
            assert_idle(&domain);
        }
    });
}

#[test]
fn case_f08_outside_a_task() {
    for tracked in [false, true] {
        let (domain, clock, semaphore) = permits(3, tracked);
        let twice = async || {
            let _first = semaphore.acquire_many(2).await?;
            drop(semaphore.acquire().await?);
            let mut second = semaphore.acquire_many(2).timeout(ms(10));
            if let Poll::Ready(result) = once(&mut second).await {
                return result.map(drop);
            }
            clock.advance(ms(10));
            second.await.map(drop)
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        // Somebody else may add a permit, so not even a worker waits for itself for certain.
        assert!(pollster::block_on(twice()).unwrap_err().is_timeout());
        assert!(runtime.block_on(twice()).unwrap_err().is_timeout());
        let error = pollster::block_on(worker("main", 0).run(twice())).unwrap_err();
        assert_eq!(error.to_string(), "semaphore \"pool\" had too few free permits all the time");
        assert_eq!(semaphore.free_permits(), 3);
        assert_idle(&domain);
    }
}

#[test]
fn case_f10_blocking_inside_a_runtime() {
    everywhere(|| async {
        for tracked in [false, true] {
            let (domain, _, semaphore) = permits(3, tracked);
            let semaphore = Arc::new(semaphore);
            let held = semaphore.acquire_many(2).blocking().unwrap();
            drop(semaphore.acquire_blocking().unwrap());
            let others = std::thread::spawn({
                let semaphore = Arc::clone(&semaphore);
                move || semaphore.acquire_many(2).blocking().unwrap().permits()
            });
            if cfg!(feature = "tokio") && tokio::runtime::Handle::try_current().is_ok() {
                let error = semaphore.acquire_many(2).blocking().unwrap_err();
                assert!(error.is_would_block());
                let begin = "semaphore \"pool\" has too few free permits, and waiting for it here would block";
                assert!(error.to_string().starts_with(begin), "{error}");
            }
            drop(held);
            assert_eq!(others.join().unwrap(), 2);
            assert_eq!(semaphore.free_permits(), 3);
            assert_idle(&domain);
        }
    });
}

#[test]
fn case_f17_bare_arms() {
    in_tasks(|| async {
        for tracked in [false, true] {
            let (domain, _, semaphore) = permits(3, tracked);
            let (semaphore, out) = (Arc::new(semaphore), Arc::new(AtomicU32::new(0)));
            let mut arms: Vec<_> = (0..100)
                .map(|at| {
                    let (semaphore, out) = (Arc::clone(&semaphore), Arc::clone(&out));
                    Box::pin(async move {
                        let permit = semaphore.acquire_many(at % 3 + 1).await.unwrap();
                        assert!(out.fetch_add(permit.permits(), Ordering::SeqCst) + permit.permits() <= 3);
                        pause().await;
                        out.fetch_sub(permit.permits(), Ordering::SeqCst);
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
            assert_eq!((semaphore.free_permits(), out.load(Ordering::SeqCst)), (3, 0));
            assert_idle(&domain);
        }
    });
}
