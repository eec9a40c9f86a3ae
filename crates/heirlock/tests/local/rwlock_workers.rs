//! Readers, and who they are: arms of one task, forks, threads; cases by number.

use std::future::Future;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::common::inside::Inside;
use crate::common::local::{assert_idle, ms, shared, worker};
use crate::common::polls::{Hand, assert_says, everywhere, in_tasks, once, pause};
use heirlock::Worker;
use heirlock::clock::ManualClock;

#[test]
fn case_p20_zero_timeout() {
    everywhere(|| async {
        let (domain, _, lock) = shared();
        let (holder, other) = (worker("holder", 1), worker("other", 9));
        drop(Hand::by(&other, lock.read().timeout(Duration::ZERO)).ready().unwrap());
        drop(Hand::by(&other, lock.write().timeout(Duration::ZERO)).ready().unwrap());
        // Readers keep out who writes, and nobody else.
        let guard = Hand::by(&holder, lock.read()).ready().unwrap();
        for _ in 0..2 {
            assert!(Hand::by(&other, lock.write().timeout(Duration::ZERO)).ready().unwrap_err().is_timeout());
            assert!(Hand::by(&other, lock.write().deadline(Instant::now())).ready().unwrap_err().is_timeout());
            drop(Hand::by(&other, lock.read().timeout(Duration::ZERO)).ready().unwrap());
            assert_eq!(holder.effective_priority(), 1);
            assert_idle(&domain);
        }
        drop(guard);
        let guard = Hand::by(&holder, lock.write()).ready().unwrap();
        assert!(Hand::by(&other, lock.read().timeout(Duration::ZERO)).ready().unwrap_err().is_timeout());
        assert!(Hand::by(&other, lock.read().deadline(Instant::now())).ready().unwrap_err().is_timeout());
        assert_eq!(holder.effective_priority(), 1);
        // With somebody queued, whose untaken grant it is then.
        let kept = Hand::by(&other, lock.read()).waiting();
        assert!(Hand::by(&worker("third", 99), lock.read().timeout(Duration::ZERO)).ready().unwrap_err().is_timeout());
        assert_eq!(holder.effective_priority(), 9);
        drop(guard);
        drop(Hand::by(&other, lock.read().timeout(Duration::ZERO)).ready().unwrap());
        drop(kept);
        assert!(!lock.is_locked());
        assert_idle(&domain);
    });
}

/// Arms of one bare task, or of one worker, that read are inside together.
#[test]
fn case_f06_join_arms_that_read() {
    everywhere(|| async {
        let (domain, _, lock) = shared();
        let inside = Inside::default();
        let guard = Hand::by(&worker("holder", 0), lock.write()).ready().unwrap();
        let arm = async || {
            let guard = lock.read().await.unwrap();
            inside.enter(false);
            while inside.readers() < 2 {
                pause().await;
            }
            drop(guard);
        };
        let release = async {
            pause().await;
            drop(guard);
        };
        tokio::join!(arm(), arm(), release);
        assert_idle(&domain);
    });
}

/// Of one bare task one arm reads and one writes: one after the other. One line of work waits for itself. Forks are several.
#[test]
fn case_f06_join_arms_that_read_and_write() {
    async fn arms(worker: Option<Worker>, writes_first: bool) -> [heirlock::Result<()>; 2] {
        let (domain, _, lock) = shared();
        let inside = Inside::default();
        let read = async {
            let guard = lock.read().await?;
            inside.enter(false);
            pause().await;
            inside.leave(false);
            drop(guard);
            Ok(())
        };
        let write = async {
            let guard = lock.write().await?;
            inside.enter(true);
            pause().await;
            inside.leave(true);
            drop(guard);
            Ok(())
        };
        let (read, write) = match worker {
            Some(worker) if writes_first => {
                let (write, read) = tokio::join!(worker.fork("write").run(write), worker.fork("read").run(read));
                (read, write)
            }
            Some(worker) => tokio::join!(worker.fork("read").run(read), worker.fork("write").run(write)),
            None if writes_first => {
                let (write, read) = tokio::join!(write, read);
                (read, write)
            }
            None => tokio::join!(read, write),
        };
        assert!(!lock.is_locked());
        assert_idle(&domain);
        [read, write]
    }
    for writes_first in [false, true] {
        in_tasks(move || async move {
            for result in arms(None, writes_first).await {
                result.unwrap();
            }
        });
        everywhere(move || async move {
            for result in arms(Some(worker("whole", 0)), writes_first).await {
                result.unwrap();
            }
        });
        // Whoever is second is told.
        let [read, write] = pollster::block_on(worker("w", 0).run(arms(None, writes_first)));
        let (first, second) = if writes_first { (write, read) } else { (read, write) };
        first.unwrap();
        let error = second.unwrap_err();
        assert!(error.is_deadlock());
        let cure = if writes_first { "give each arm a fork" } else { "upgradable()" };
        assert_says(&error.to_string(), &[r#"deadlock: worker "w" waits for lock "table""#, ", which it holds itself", cure]);
    }
}

/// Polls it, and ten milliseconds later waits for its end.
async fn ends<F: Future + Unpin>(mut wait: F, clock: &ManualClock) -> F::Output {
    if let Poll::Ready(ended) = once(&mut wait).await {
        return ended;
    }
    clock.advance(ms(10));
    wait.await
}

#[test]
fn case_f08_outside_a_task() {
    let (domain, clock, lock) = shared();
    let upgrades = || async {
        let _guard = lock.read().await?;
        drop(lock.read().await?);
        ends(lock.write().timeout(ms(10)), &clock).await.map(drop)
    };
    let reads_its_own = || async {
        let _guard = lock.write().await?;
        ends(lock.read().timeout(ms(10)), &clock).await.map(drop)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for upgrade in [true, false] {
        let twice = async || if upgrade { upgrades().await } else { reads_its_own().await };
        assert!(pollster::block_on(twice()).unwrap_err().is_timeout());
        assert!(runtime.block_on(twice()).unwrap_err().is_timeout());
        assert!(pollster::block_on(worker("main", 0).run(twice())).unwrap_err().is_deadlock());
        assert!(!lock.is_locked());
        assert_idle(&domain);
    }
}

#[test]
fn case_f10_blocking_inside_a_runtime() {
    everywhere(|| async {
        let (domain, _, lock) = shared();
        let lock = Arc::new(lock);
        let guard = lock.read_blocking().unwrap();
        // What is read can be read here, too; what is held cannot be waited for.
        drop(lock.read_blocking().unwrap());
        let writes = std::thread::spawn({
            let lock = Arc::clone(&lock);
            move || *lock.write_blocking().unwrap() += 1
        });
        if cfg!(feature = "tokio") && tokio::runtime::Handle::try_current().is_ok() {
            let error = lock.write_blocking().unwrap_err();
            assert!(error.is_would_block());
            assert!(error.to_string().starts_with("lock \"table\" is held, and waiting for it here would block"), "{error}");
        }
        drop(guard);
        writes.join().unwrap();
        let guard = lock.write_blocking().unwrap();
        if cfg!(feature = "tokio") && tokio::runtime::Handle::try_current().is_ok() {
            assert!(lock.read_blocking().unwrap_err().is_would_block());
        }
        assert_eq!(*guard, 1);
        drop(guard);
        assert_idle(&domain);
    });
}

#[test]
fn case_f14_recursive_read() {
    everywhere(|| async {
        let (domain, _, lock) = shared();
        let outer = lock.read().await.unwrap();
        let mut writes = Hand::by(&worker("writes", 99), lock.write()).waiting();
        if Worker::current().is_some() || cfg!(feature = "tokio") {
            // Whatever it is asked with, and however often.
            let inner = (lock.read().await.unwrap(), lock.try_read().unwrap(), lock.read().timeout(Duration::ZERO).await.unwrap());
            assert!(Hand::by(&worker("other", 0), lock.read()).poll().is_pending());
            drop(outer);
            assert_eq!((*inner.0, writes.wakes()), (0, 0));
        } else {
            drop(outer);
        }
        *writes.ready().unwrap() += 1;
        drop(writes);
        assert_idle(&domain);
    });
    // A thread is one line of work, too.
    let (domain, _, lock) = shared();
    let outer = lock.read_blocking().unwrap();
    let mut writes = Hand::by(&worker("writes", 99), lock.write()).waiting();
    let inner = lock.read_blocking().unwrap();
    drop(outer);
    assert_eq!(writes.wakes(), 0);
    drop(inner);
    drop(writes.ready().unwrap());
    drop(writes);
    assert_idle(&domain);
}

#[test]
fn case_f14_upgrade() {
    let (domain, clock, lock) = shared();
    let reader = worker("reader", 3);
    for others in [false, true] {
        let guard = Hand::by(&reader, lock.read()).ready().unwrap();
        let mut waits = others.then(|| Hand::by(&worker("writes", 9), lock.write()).waiting());
        let error = Hand::by(&reader, lock.write()).ready().unwrap_err();
        assert!(error.is_deadlock());
        assert_says(&error.to_string(), &[r#"worker "reader" waits for lock "table""#, "which it holds itself shared"]);
        // It keeps what it has, and nothing is left of what it asked.
        assert_eq!((*guard, reader.effective_priority()), (0, if others { 9 } else { 3 }));
        drop(Hand::by(&reader, lock.read()).ready().unwrap());
        drop(guard);
        if let Some(waits) = &mut waits {
            drop(waits.ready().unwrap());
        }
        drop(waits);
        assert_idle(&domain);
    }
    // Who is nobody in particular waits, as long as it says.
    let guard = pollster::block_on(lock.read()).unwrap();
    let mut late = Hand::new(lock.write().timeout(ms(10))).waiting();
    clock.advance(ms(10));
    domain.expire();
    assert!(late.ready().unwrap_err().is_timeout());
    drop(guard);
    drop(late);
    assert_idle(&domain);
}

/// An arm of a bare task may be waiting for another, which gives the lock up: that is only suspected.
#[cfg(feature = "tokio")]
#[test]
fn case_f14_upgrade_by_a_bare_task() {
    in_tasks(|| async {
        let (domain, _, lock) = shared();
        let guard = lock.read().await.unwrap();
        let mut writes = lock.write();
        assert!(once(&mut writes).await.is_pending());
        let suspected = domain.snapshot().suspected;
        assert_eq!(suspected.len(), 1);
        assert_says(&suspected[0][0], &["task ", r#" waits for lock "table""#, "which it holds itself shared"]);
        drop(guard);
        *writes.await.unwrap() += 1;
        assert_idle(&domain);
    });
}

#[test]
fn case_f17_bare_arms() {
    in_tasks(|| async {
        let (domain, _, lock) = shared();
        let (lock, inside) = (Arc::new(lock), Arc::new(Inside::default()));
        let mut arms: Vec<_> = (0..100)
            .map(|at| {
                let (lock, inside) = (Arc::clone(&lock), Arc::clone(&inside));
                Box::pin(async move {
                    if at % 3 == 0 {
                        let mut guard = lock.write().await.unwrap();
                        inside.enter(true);
                        let before = *guard;
                        pause().await;
                        *guard = before + 1;
                        inside.leave(true);
                    } else {
                        let guard = lock.read().await.unwrap();
                        inside.enter(false);
                        let before = *guard;
                        pause().await;
                        assert_eq!(*guard, before);
                        inside.leave(false);
                    }
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
        assert_eq!(*lock.read().await.unwrap(), 34);
        assert_idle(&domain);
    });
}
