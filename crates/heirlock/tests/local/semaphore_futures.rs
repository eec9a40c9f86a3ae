//! Waits for permits that are abandoned, cancelled, forgotten: cases by number, of semaphores that are tracked and such that are not.
//! Who asks is in `semaphore_workers.rs`; `cases.rs` has the table.

use std::mem::forget;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use crate::common::local::{assert_idle, domain, end_doubt, ms, permits, worker};
use crate::common::polls::{Hand, everywhere, once, pause};
use crate::common::random::{Random, seed};
use heirlock::Worker;
use heirlock::local::{Domain, Semaphore};

#[test]
fn case_f01_abandoned_future_a() {
    everywhere(|| async {
        for tracked in [false, true] {
            let (domain, clock, semaphore) = permits(2, tracked);
            // It was granted as many as its task then asks for, or more, or less: what is not the same it may still want.
            for (kept, wanted) in [(1, 1), (2, 1), (1, 2), (2, 2)] {
                let held = Hand::by(&worker("holder", 0), semaphore.acquire_many(2)).ready().unwrap();
                let mut abandoned = semaphore.acquire_many(kept);
                assert!(once(&mut abandoned).await.is_pending());
                drop(held);
                assert_eq!(semaphore.free_permits(), 2 - kept);
                let mut asks = semaphore.acquire_many(wanted);
                let permit = match once(&mut asks).await {
                    Poll::Ready(permit) => permit.unwrap(),
                    Poll::Pending => {
                        assert_ne!(kept, wanted);
                        end_doubt(&domain, &clock);
                        asks.await.unwrap()
                    }
                };
                assert_eq!((permit.permits(), semaphore.free_permits()), (wanted, 2 - wanted));
                drop(permit);
                // It was displaced, and is as good as new.
                assert_eq!(abandoned.await.unwrap().permits(), kept);
                assert_eq!(semaphore.free_permits(), 2);
            }
            assert_idle(&domain);
        }
    });
}

#[test]
fn case_f02_abandoned_future_b() {
    everywhere(|| async {
        for tracked in [false, true] {
            let (domain, clock, semaphore) = permits(2, tracked);
            for (abandoned, polled) in [(1, 1), (2, 1), (1, 2), (2, 2)] {
                let held = Hand::by(&worker("holder", 0), semaphore.acquire_many(2)).ready().unwrap();
                let (mut f1, mut f2) = (semaphore.acquire_many(abandoned), semaphore.acquire_many(polled));
                assert!(once(&mut f1).await.is_pending() && once(&mut f2).await.is_pending());
                drop(held);
                let served = once(&mut f2).await;
                assert_eq!(served.is_ready(), abandoned == polled);
                if served.is_pending() {
                    end_doubt(&domain, &clock);
                    drop(f2.await.unwrap());
                }
                drop(served);
                // Nobody waits for long because of f1: what both were granted may still be wanted.
                let mut other = Hand::by(&worker("other", 0), semaphore.acquire_many(2));
                if let Poll::Ready(permit) = other.poll() {
                    drop(permit.unwrap());
                } else {
                    assert_eq!((abandoned, polled), (1, 1));
                    end_doubt(&domain, &clock);
                    assert!(other.poll().is_pending());
                    other.woken(2);
                    drop(other.ready().unwrap());
                }
                drop(f1);
                assert_idle(&domain);
            }
        }
    });
}

#[test]
fn case_f03_select_in_a_loop() {
    everywhere(|| async {
        for tracked in [false, true] {
            // Its time passes: what the first was granted is more than the other asks for, and may yet be wanted.
            let domain = Domain::builder().build();
            let semaphore = Semaphore::new(2).in_domain(&domain);
            let semaphore = if tracked { semaphore.tracked() } else { semaphore };
            let mut held = Some(Hand::by(&worker("holder", 0), semaphore.acquire()).ready().unwrap());
            let mut f1 = semaphore.acquire_many(2);
            for round in 0.. {
                if let Poll::Ready(first) = once(&mut f1).await {
                    drop(first.unwrap());
                    assert_eq!(round, 1);
                    break;
                }
                // As the arm of `select!` that was ready.
                held = None;
                drop(semaphore.acquire().await.unwrap());
            }
            assert!(held.is_none());
            assert_idle(&domain);
        }
    });
}

/// Two of different tasks keep what they were granted, and are polled no more; who is behind them needs it all.
#[test]
fn case_f04_abandoned_by_other_tasks() {
    everywhere(|| async {
        for tracked in [false, true] {
            let (domain, clock, semaphore) = permits(3, tracked);
            let held = Hand::by(&worker("holder", 0), semaphore.acquire_many(3)).ready().unwrap();
            let mut kept = [2, 1].map(|permits| Hand::by(&worker("idle", 0), semaphore.acquire_many(permits)).waiting());
            let mut next = Hand::by(&worker("next", 0), semaphore.acquire_many(3)).waiting();
            drop(held);
            for span in [Duration::ZERO, domain.stall_time().checked_sub(ms(1)).unwrap()] {
                clock.advance(span);
                domain.expire();
                assert!(next.poll().is_pending());
            }
            assert_eq!((next.wakes(), semaphore.free_permits()), (0, 0));
            // It takes no longer than it must.
            clock.advance(ms(1));
            domain.expire();
            next.woken(1);
            assert!(next.poll().is_pending());
            next.woken(2);
            let permits = next.ready().unwrap();
            assert_eq!(permits.permits(), 3);
            // They believe nothing: they wait again, before who came after them.
            let mut later = Hand::by(&worker("later", 0), semaphore.acquire()).waiting();
            assert!(kept.iter_mut().all(|wait| wait.poll().is_pending()));
            drop(permits);
            assert_eq!(kept.each_mut().map(|wait| wait.ready().unwrap().permits()), [2, 1]);
            drop(later.ready().unwrap());
            drop((kept, next, later));
            assert_eq!(semaphore.free_permits(), 3);
            assert_idle(&domain);
        }
    });
}

/// One of two goes before the next comes for the permits: it has the other's all the same.
#[test]
fn case_f04_one_of_two_goes() {
    for tracked in [false, true] {
        for gone in [0, 1] {
            let (domain, clock, semaphore) = permits(2, tracked);
            let held = semaphore.try_acquire_many(2).unwrap();
            let mut kept = [(); 2].map(|()| Some(Hand::by(&worker("idle", 0), semaphore.acquire()).waiting()));
            let mut next = Hand::by(&worker("next", 0), semaphore.acquire_many(2)).waiting();
            drop(held);
            domain.expire();
            clock.advance(domain.stall_time());
            domain.expire();
            next.woken(1);
            kept[gone] = None;
            assert!(next.poll().is_pending());
            next.woken(2);
            drop(next.ready().unwrap());
            drop((kept, next));
            assert_idle(&domain);
        }
    }
}

struct Storm {
    semaphore: Semaphore,
    out: AtomicU32,
    held: AtomicU64,
    timed_out: AtomicU64,
}

impl Storm {
    /// Acquires once, and goes away at some point of it.
    async fn acquire(&self, random: &mut Random) {
        let permits = u32::try_from(random.within(1, 4)).unwrap();
        let mut wait = self.semaphore.acquire_many(permits).priority(i32::try_from(random.within(0, 50)).unwrap());
        if random.chance(30) {
            wait = wait.timeout(Duration::from_micros(random.within(0, 300)));
        }
        // Dropped before it is polled, while it is queued, or when it was granted and does not know yet.
        for _ in 0..random.pick(&[0, 1, 1, 2, 3, 5, 1000]) {
            match once(&mut wait).await {
                Poll::Pending => pause().await,
                Poll::Ready(Err(error)) => {
                    assert!(error.is_timeout(), "{error}");
                    self.timed_out.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                Poll::Ready(Ok(mut permit)) => {
                    let out = self.out.fetch_add(permits, Ordering::SeqCst) + permits;
                    assert!(out <= 3, "{out} are out");
                    self.held.fetch_add(1, Ordering::Relaxed);
                    for _ in 0..random.index(3) {
                        pause().await;
                    }
                    self.out.fetch_sub(permits, Ordering::SeqCst);
                    let part = permit.split(1);
                    if random.chance(20) {
                        permit.forget();
                        self.semaphore.release(permits - u32::from(part.is_some())).unwrap();
                    } else if let Some(part) = part.filter(|_| random.chance(50)) {
                        permit.merge(part);
                    }
                    return;
                }
            }
        }
    }
}

#[test]
fn case_f05_cancel_storm() {
    const EACH: u64 = if cfg!(miri) { 20 } else { 1250 };
    let seed = seed();
    println!("HEIRLOCK_SEED={seed}");
    for (tracked, explicit) in [(false, false), (false, true), (true, false), (true, true)] {
        let domain = Domain::builder().build();
        let semaphore = Semaphore::new(3).in_domain(&domain);
        let semaphore = if tracked { semaphore.tracked() } else { semaphore };
        let storm = Arc::new(Storm { semaphore, out: AtomicU32::new(0), held: AtomicU64::new(0), timed_out: AtomicU64::new(0) });
        let workers: Vec<Worker> = (0..8).map(|at| worker(format!("w{at}"), at)).collect();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let run = |(stream, worker): (u64, &Worker)| {
                let storm = Arc::clone(&storm);
                let work = async move {
                    let mut random = Random::new(seed, stream);
                    for _ in 0..EACH {
                        storm.acquire(&mut random).await;
                    }
                };
                if explicit { tokio::spawn(worker.run(work)) } else { tokio::spawn(work) }
            };
            let tasks: Vec<_> = (0..).zip(&workers).map(run).collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
        println!("{} had some, {} timed out", storm.held.load(Ordering::Relaxed), storm.timed_out.load(Ordering::Relaxed));
        assert!(storm.held.load(Ordering::Relaxed) > 0);
        assert_eq!(storm.semaphore.free_permits(), 3);
        assert!(storm.semaphore.release(1).unwrap_err().is_overflow());
        assert_eq!(storm.semaphore.try_acquire_many(3).unwrap().permits(), 3);
        assert_idle(&domain);
        assert!(workers.iter().all(|worker| worker.effective_priority() == worker.base_priority()));
    }
}

#[test]
fn case_f13_lost_wake_up() {
    everywhere(|| async {
        for tracked in [false, true] {
            let (domain, _, semaphore) = permits(3, tracked);
            let held = Hand::by(&worker("holder", 0), semaphore.acquire_many(3)).ready().unwrap();
            let wait = |permits| Hand::by(&worker("w", 0), semaphore.acquire_many(permits)).waiting();
            let (notified, mut next) = (wait(2), [wait(2), wait(1), wait(1)]);
            drop(held);
            // Nobody passes the second, though one is free.
            assert_eq!((notified.wakes(), next.each_ref().map(Hand::wakes)), (1, [0, 0, 0]));
            drop(notified);
            assert_eq!(next.each_ref().map(Hand::wakes), [1, 1, 0]);
            // One permit of two that come back, and both that were granted go on.
            let [first, second, third] = &mut next;
            drop(first.ready().unwrap());
            assert_eq!(third.wakes(), 1);
            drop((second.ready().unwrap(), third.ready().unwrap()));
            drop(next);
            assert_eq!(semaphore.free_permits(), 3);
            assert_idle(&domain);
        }
    });
}

#[test]
fn case_f15_forgotten() {
    for tracked in [false, true] {
        let (domain, clock) = domain();
        let [w1, w2, w3] = ["w1", "w2", "w3"].map(|name| worker(name, 0));
        let make = |name| {
            let semaphore = Semaphore::named(name, 2).in_domain(&domain);
            if tracked { semaphore.tracked() } else { semaphore }
        };
        // A queued one: it is granted a permit, and whoever is behind it takes that over.
        let semaphore = make("first");
        let held = Hand::by(&w1, semaphore.acquire_many(2)).ready().unwrap();
        forget(Hand::by(&w2, semaphore.acquire()).waiting());
        let mut waits = Hand::by(&w3, semaphore.acquire_many(2)).waiting();
        drop(held);
        for _ in 0..2 {
            clock.advance(domain.stall_time());
            domain.expire();
        }
        waits.woken(1);
        assert!(waits.poll().is_pending());
        drop(waits.ready().unwrap());
        drop(waits);
        assert_eq!(semaphore.free_permits(), 2);
        // A granted one, with nobody behind it; then the semaphore moves and drops.
        let held = Hand::by(&w1, semaphore.acquire_many(2)).ready().unwrap();
        forget(Hand::by(&w2, semaphore.acquire()).waiting());
        drop(held);
        assert_eq!(semaphore.free_permits(), 1);
        drop(Box::new(semaphore));
        // What the first could still be told, were it ever polled: leaked as it is.
        let leaked = [0, 0, 1, 0, 0, 0, 0];
        assert_eq!(domain.records(), leaked);
        // A permit: who needs them all can only time out; who is said to have it, is seen.
        let semaphore = make("leaked");
        let line = line!() + 1;
        forget(Hand::by(&w1, semaphore.acquire()).ready().unwrap());
        let mut late = Hand::by(&w2, semaphore.acquire_many(2).timeout(ms(500))).waiting();
        clock.advance(ms(500));
        domain.expire();
        let snapshot = domain.snapshot();
        if tracked {
            let holder = &snapshot.locks[0].holders[0];
            assert_eq!((&*holder.party.worker.name, holder.site.clone()), ("w1", Some(format!("{}:{line}", file!()))));
        } else {
            assert!(snapshot.locks.is_empty(), "{snapshot}");
        }
        assert!(late.ready().unwrap_err().is_timeout());
        drop(late);
        // The others go on.
        drop(Hand::by(&w3, semaphore.acquire()).ready().unwrap());
        drop(Box::new(semaphore));
        assert_eq!(domain.records(), leaked);
    }
}
