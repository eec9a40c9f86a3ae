//! Semaphores: who is next, and who is in whose way.

use std::panic::catch_unwind;
use std::time::{Duration, Instant};

use crate::common::local::{assert_idle, ms, permits, worker};
use crate::common::polls::{Hand, everywhere};
use heirlock::local::{Domain, Order, Semaphore};

/// Served by priority, then deadline, then arrival; in a line, by arrival alone.
#[test]
fn case_p16_priority_deadline_arrival() {
    let start = Instant::now() + Duration::from_secs(3600);
    for (order, served) in [(Order::Priority, [3, 2, 1, 0, 4]), (Order::Fifo, [0, 1, 2, 3, 4]), (Order::Deadline, [2, 1, 3, 0, 4])] {
        for tracked in [false, true] {
            let (domain, _, semaphore) = permits(1, tracked);
            let semaphore = semaphore.order(order);
            let mut permit = Some(semaphore.try_acquire().unwrap());
            let wait = |priority, deadline: Option<u64>| {
                let acquire = semaphore.acquire().priority(priority);
                let acquire = if let Some(at) = deadline { acquire.deadline(start + ms(at)) } else { acquire };
                Hand::by(&worker("w", 0), acquire).waiting()
            };
            let mut waits = [wait(20, None), wait(20, Some(200)), wait(20, Some(100)), wait(30, None), wait(20, None)];
            for (turn, next) in served.into_iter().enumerate() {
                drop(permit.take());
                assert_eq!(waits.iter().map(Hand::wakes).sum::<usize>(), turn + 1);
                permit = Some(waits[next].ready().unwrap());
            }
            drop((permit, waits));
            assert_eq!(semaphore.free_permits(), 1);
            assert_idle(&domain);
        }
    }
}

#[test]
fn nobody_passes_a_large_request() {
    for tracked in [false, true] {
        let (domain, _, semaphore) = permits(4, tracked);
        let mut held = semaphore.try_acquire_many(3).unwrap();
        let mut large = Hand::by(&worker("large", 5), semaphore.acquire_many(3)).waiting();
        // One is free, and there it stays.
        let mut small = Hand::by(&worker("small", 1), semaphore.acquire()).waiting();
        assert!(semaphore.try_acquire().unwrap_err().is_would_block());
        assert!(Hand::by(&worker("hasty", 9), semaphore.acquire_many(2).timeout(Duration::ZERO)).ready().unwrap_err().is_timeout());
        drop(held.split(1));
        assert_eq!((semaphore.free_permits(), large.wakes(), small.wakes()), (2, 0, 0));
        // Who is more urgent is before it.
        drop(Hand::by(&worker("urgent", 9), semaphore.acquire_many(2)).ready().unwrap());
        drop(held.split(1));
        assert_eq!((large.wakes(), small.wakes(), semaphore.free_permits()), (1, 0, 0));
        let large_permits = large.ready().unwrap();
        assert_eq!(large_permits.permits(), 3);
        drop(held);
        drop(small.ready().unwrap());
        drop(large_permits);
        assert_eq!(semaphore.free_permits(), 4);
        drop((large, small));
        assert_idle(&domain);
    }
}

/// When the large request goes, or comes to be less urgent, those behind it are let in: as many as there are permits for.
#[test]
fn what_a_large_request_kept_out() {
    for tracked in [false, true] {
        let (domain, clock, semaphore) = permits(3, tracked);
        for how in ["dropped", "expired", "less urgent"] {
            let held = semaphore.try_acquire().unwrap();
            let large_worker = worker("large", 5);
            let mut large = Some(Hand::by(&large_worker, semaphore.acquire_many(3).timeout(ms(10))).waiting());
            let mut small = [0, 1, 2].map(|at| Hand::by(&worker("small", 1 - at), semaphore.acquire()).waiting());
            match how {
                "dropped" => large = None,
                "expired" => {
                    clock.advance(ms(10));
                    domain.expire();
                }
                _ => large_worker.set_priority(-1),
            }
            for small in &small[..2] {
                small.woken(1);
            }
            assert_eq!(small[2].wakes(), 0, "{how}");
            let guards = [0, 1].map(|at: usize| small[at].ready().unwrap());
            drop((guards, held, large));
            drop(small[2].ready().unwrap());
            drop(small);
            assert_eq!(semaphore.free_permits(), 3);
            assert_idle(&domain);
        }
    }
}

#[test]
fn case_p18_starvation_bound() {
    let limited = Domain::builder().bypass_limit(8).build();
    let semaphores =
        [Semaphore::new(2).bypass_limit(8), Semaphore::new(2).in_domain(&limited), Semaphore::new(2).bypass_limit(8).tracked()];
    for semaphore in semaphores {
        let mut permits = semaphore.try_acquire_many(2).unwrap();
        // It wants both.
        let mut patient = Hand::by(&worker("patient", 0), semaphore.acquire_many(2)).waiting();
        let busy = worker("busy", 10);
        let mut held = permits.split(1);
        for grants in 1..=8 {
            let mut next = Hand::by(&busy, semaphore.acquire()).waiting();
            drop(held.take());
            assert_eq!((next.wakes(), patient.wakes()), (1, 0), "{grants}");
            held = Some(next.ready().unwrap());
        }
        let mut late = Hand::by(&busy, semaphore.acquire()).waiting();
        drop(held);
        assert_eq!((late.wakes(), patient.wakes()), (0, 0));
        drop(permits);
        assert_eq!((late.wakes(), patient.wakes()), (0, 1));
        drop(patient.ready().unwrap());
        drop(late.ready().unwrap());
    }
    assert!(catch_unwind(|| Semaphore::new(1).bypass_limit(0)).is_err());
}

#[test]
fn case_p20_zero_timeout() {
    everywhere(|| async {
        for tracked in [false, true] {
            let (domain, _, semaphore) = permits(3, tracked);
            let (holder, other) = (worker("holder", 1), worker("other", 9));
            let none = Duration::ZERO;
            drop(Hand::by(&other, semaphore.acquire_many(3).timeout(none)).ready().unwrap());
            let permit = Hand::by(&holder, semaphore.acquire_many(2)).ready().unwrap();
            for _ in 0..2 {
                assert!(Hand::by(&other, semaphore.acquire_many(2).timeout(none)).ready().unwrap_err().is_timeout());
                assert!(Hand::by(&other, semaphore.acquire_many(2).deadline(Instant::now())).ready().unwrap_err().is_timeout());
                drop(Hand::by(&other, semaphore.acquire().timeout(none)).ready().unwrap());
                assert_eq!((holder.effective_priority(), semaphore.free_permits()), (1, 1));
            }
            // Nor with somebody queued, whose untaken grant it is then; not that of another number.
            let kept = Hand::by(&other, semaphore.acquire_many(2)).waiting();
            assert!(Hand::by(&worker("third", 99), semaphore.acquire().timeout(none)).ready().unwrap_err().is_timeout());
            assert_eq!(holder.effective_priority(), if tracked { 9 } else { 1 });
            drop(permit);
            assert_eq!(semaphore.free_permits(), 1);
            assert_eq!(Hand::by(&other, semaphore.acquire_many(2).timeout(none)).ready().unwrap().permits(), 2);
            drop(kept);
            assert_eq!(semaphore.free_permits(), 3);
            assert_idle(&domain);
        }
    });
}

#[test]
fn extreme_priorities() {
    for tracked in [false, true] {
        let (domain, _, semaphore) = permits(1, tracked);
        let holder = worker("holder", i32::MIN);
        let mut permit = Some(Hand::by(&holder, semaphore.acquire()).ready().unwrap());
        let mut waits = [0, i32::MIN, i32::MAX, -1].map(|at| Hand::new(semaphore.acquire().priority(at)).waiting());
        assert_eq!(holder.effective_priority(), if tracked { i32::MAX } else { i32::MIN });
        for next in [2, 0, 3, 1] {
            drop(permit.take());
            permit = Some(waits[next].ready().unwrap());
        }
        drop((permit, waits));
        assert_idle(&domain);
    }
}

#[test]
fn a_hundred_thousand_waiters() {
    const MANY: usize = if cfg!(miri) { 100 } else { 100_000 };
    for tracked in [false, true] {
        let (domain, _, semaphore) = permits(4, tracked);
        let held = semaphore.try_acquire_many(4).unwrap();
        let wait = |at: usize| Hand::new(semaphore.acquire_many(u32::try_from(at % 4).unwrap() + 1).timeout(Duration::from_secs(3600)));
        let mut waits: Vec<_> = (0..MANY).map(|at| wait(at).waiting()).collect();
        drop(held);
        // From the middle, from the end, and those that are served.
        let rest = waits.split_off(MANY / 2);
        drop(waits.split_off(MANY / 4));
        for mut wait in waits {
            drop(wait.ready().unwrap());
        }
        drop(rest);
        assert_eq!(semaphore.free_permits(), 4);
        assert_idle(&domain);
    }
}
