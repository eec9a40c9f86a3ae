//! Semaphores: what may be added and taken away, when it is over. Who is next is in `semaphore_order.rs`, the numbered cases of waits in
//! `semaphore_futures.rs` and `_workers.rs`, what holders inherit in `semaphore_tracked.rs`; one permit as a mutex in `futures.rs`.

use std::panic::catch_unwind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::local::{assert_idle, domain, ms, permits, worker};
use crate::common::polls::{Hand, everywhere};
use heirlock::local::{Order, OwnedSemaphorePermit, Semaphore};

#[test]
fn permits_are_added_to_an_unbounded_one() {
    for tracked in [false, true] {
        let (domain, _) = domain();
        let jobs = Semaphore::unbounded_named("jobs", 0).in_domain(&domain);
        let jobs = if tracked { jobs.tracked() } else { jobs };
        assert!(jobs.try_acquire().unwrap_err().is_would_block());
        let mut waits = [2, 1, 1].map(|permits| Hand::by(&worker("w", 0), jobs.acquire_many(permits)).waiting());
        jobs.release(1).unwrap();
        assert_eq!((waits.each_ref().map(Hand::wakes), jobs.free_permits()), ([0, 0, 0], 1));
        jobs.release(2).unwrap();
        assert_eq!((waits.each_ref().map(Hand::wakes), jobs.free_permits()), ([1, 1, 0], 0));
        jobs.release(0).unwrap();
        assert_eq!(waits[2].wakes(), 0);
        for (wait, permits) in waits.iter_mut().zip([2, 1]) {
            assert_eq!(wait.ready().unwrap().permits(), permits);
        }
        drop(waits[2].ready().unwrap());
        drop(waits);
        assert_eq!(jobs.free_permits(), 3);
        // As many as can be counted, and not one more.
        jobs.release(u32::MAX - 3).unwrap();
        let error = jobs.release(1).unwrap_err();
        assert!(error.is_overflow());
        assert_eq!(error.to_string(), "semaphore \"jobs\" would have more permits than can be counted, which are 4294967295");
        assert_eq!(jobs.free_permits(), u32::MAX);
        let all = jobs.try_acquire_many(u32::MAX).unwrap();
        let mut last = Hand::by(&worker("w", 0), jobs.acquire_many(u32::MAX)).waiting();
        assert!(jobs.release(1).unwrap_err().is_overflow());
        drop(all);
        last.ready().unwrap().forget();
        drop(last);
        assert_eq!(jobs.free_permits(), 0);
        jobs.release(1).unwrap();
        assert_eq!(jobs.free_permits(), 1);
        assert_idle(&domain);
    }
}

#[test]
fn what_is_forgotten_can_be_added_again() {
    for tracked in [false, true] {
        let (domain, _, semaphore) = permits(3, tracked);
        assert_eq!(
            semaphore.release(1).unwrap_err().to_string(),
            "semaphore \"pool\" would have more permits than the 3 that it was made with: only forgotten ones can be added again"
        );
        let mut held = semaphore.try_acquire_many(3).unwrap();
        held.split(1).unwrap().forget();
        assert!(semaphore.release(2).unwrap_err().is_overflow());
        let mut waits = [(); 2].map(|()| Hand::by(&worker("w", 0), semaphore.acquire()).waiting());
        semaphore.release(1).unwrap();
        assert_eq!(waits.each_ref().map(Hand::wakes), [1, 0]);
        assert!(semaphore.release(1).unwrap_err().is_overflow());
        // Those that are left while others wait.
        held.forget();
        assert_eq!(waits[1].wakes(), 0);
        semaphore.release(2).unwrap();
        assert_eq!((waits[1].wakes(), semaphore.free_permits()), (1, 1));
        let permits = waits.each_mut().map(|wait| wait.ready().unwrap());
        assert!(semaphore.release(1).unwrap_err().is_overflow());
        drop(permits);
        drop(waits);
        assert_eq!(semaphore.free_permits(), 3);
        assert_idle(&domain);
    }
}

#[test]
fn parts_of_permits() {
    for tracked in [false, true] {
        let (domain, _, semaphore) = permits(5, tracked);
        let semaphore = Arc::new(semaphore);
        let owner = worker("owner", 0);
        let mut all = Hand::by(&owner, semaphore.acquire_many_owned(5)).ready().unwrap();
        assert!(all.split(0).is_none() && all.split(5).is_none() && all.split(6).is_none());
        let (two, one) = (all.split(2).unwrap(), all.split(1).unwrap());
        assert_eq!([&all, &two, &one].map(OwnedSemaphorePermit::permits), [2, 2, 1]);
        let mut waits = Hand::by(&worker("w", 0), semaphore.acquire_many(3)).waiting();
        std::thread::spawn(move || drop(two)).join().unwrap();
        assert_eq!((waits.wakes(), semaphore.free_permits()), (0, 2));
        all.merge(one);
        assert_eq!((all.permits(), waits.wakes()), (3, 0));
        drop(all.split(1));
        let mut three = waits.ready().unwrap();
        assert_eq!(
            format!("{all:?} {three:?}"),
            "OwnedSemaphorePermit { semaphore: Some(\"pool\"), permits: 2 } SemaphorePermit { semaphore: \
            Some(\"pool\"), permits: 3 }"
        );
        drop(all);
        three.merge(semaphore.try_acquire_many(2).unwrap());
        assert_eq!((three.permits(), semaphore.free_permits()), (5, 0));
        drop(three);
        drop(waits);
        assert_eq!(semaphore.free_permits(), 5);
        assert_idle(&domain);
    }
}

/// Nothing of either is lost then.
#[test]
fn permits_of_two_semaphores_are_not_merged() {
    let [one, other] = [(); 2].map(|()| Arc::new(Semaphore::new(2)));
    let unwound = catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut permit = one.try_acquire().unwrap();
        permit.merge(other.try_acquire().unwrap());
    }));
    assert!(unwound.is_err());
    let unwound = catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut permit = pollster::block_on(one.acquire_owned()).unwrap();
        permit.merge(pollster::block_on(other.acquire_owned()).unwrap());
    }));
    assert!(unwound.is_err());
    assert_eq!((one.free_permits(), other.free_permits()), (2, 2));
}

#[test]
fn closed_while_waited_for() {
    everywhere(|| async {
        for tracked in [false, true] {
            let (domain, clock, semaphore) = permits(3, tracked);
            let (holder, granted) = (worker("holder", 1), worker("granted", 2));
            let mut held = Hand::by(&holder, semaphore.acquire_many(3)).ready().unwrap();
            let mut untaken = Hand::by(&granted, semaphore.acquire()).waiting();
            let mut waits = [1, 2, 3].map(|permits| Hand::by(&worker("w", 9), semaphore.acquire_many(permits).timeout(ms(50))).waiting());
            let gone = Hand::by(&worker("gone", 0), semaphore.acquire()).waiting();
            // One was granted a permit, and has not come for it.
            granted.set_priority(20);
            drop(held.split(1));
            assert_eq!(untaken.wakes(), 1);
            semaphore.close();
            assert!(semaphore.is_closed());
            for wait in &mut waits {
                assert_eq!(wait.wakes(), 1);
                let error = wait.ready().map(drop).unwrap_err();
                assert!(error.is_closed());
                assert_eq!(error.to_string(), "semaphore \"pool\" is closed");
            }
            assert!(untaken.ready().unwrap_err().is_closed());
            assert_eq!((holder.effective_priority(), semaphore.free_permits(), held.permits()), (1, 1, 2));
            // Whoever comes is told at once.
            assert!(semaphore.acquire().await.unwrap_err().is_closed());
            assert!(semaphore.acquire_many(3).timeout(Duration::ZERO).await.unwrap_err().is_closed());
            assert!(semaphore.try_acquire().unwrap_err().is_closed());
            assert!(semaphore.acquire_blocking().unwrap_err().is_closed());
            assert!(semaphore.acquire_many(4).await.unwrap_err().is_invalid());
            // What is out is still given back, and forgotten ones may be added: nobody has them.
            held.split(1).unwrap().forget();
            semaphore.release(1).unwrap();
            drop(held);
            semaphore.close();
            assert_eq!((semaphore.free_permits(), semaphore.is_closed()), (3, true));
            clock.advance(ms(50));
            drop((gone, waits, untaken));
            assert_idle(&domain);
        }
    });
}

/// A wait that was displaced before, and comes back after.
#[test]
fn closed_while_displaced() {
    for tracked in [false, true] {
        let (domain, _, semaphore) = permits(1, tracked);
        let twice = worker("twice", 0);
        let held = semaphore.try_acquire().unwrap();
        let [mut first, mut second] = [(); 2].map(|()| Hand::by(&twice, semaphore.acquire()).waiting());
        drop(held);
        drop(second.ready().unwrap());
        semaphore.close();
        assert!(first.ready().unwrap_err().is_closed());
        drop((first, second));
        assert_eq!(semaphore.free_permits(), 1);
        assert_idle(&domain);
    }
}

#[test]
fn bad_input() {
    for tracked in [false, true] {
        let (domain, _, semaphore) = permits(3, tracked);
        let held = semaphore.try_acquire_many(3).unwrap();
        let waits = Hand::by(&worker("w", 9), semaphore.acquire()).waiting();
        // At once, also while others wait, and nobody is in their way.
        let none = Hand::new(semaphore.acquire_many(0)).ready().unwrap_err();
        assert!(none.is_invalid());
        assert_eq!(none.to_string(), "0 permits of semaphore \"pool\" were asked for: ask for at least 1");
        let many = Hand::new(semaphore.acquire_many(4)).ready().unwrap_err();
        assert!(many.is_invalid());
        assert_eq!(many.to_string(), "4 permits of semaphore \"pool\" were asked for, which has 3 in all: nobody would ever get them");
        assert!(semaphore.try_acquire_many(0).unwrap_err().is_invalid() && semaphore.try_acquire_many(4).unwrap_err().is_invalid());
        assert!(Hand::new(semaphore.acquire_many(u32::MAX).timeout(Duration::ZERO)).ready().unwrap_err().is_invalid());
        assert!(semaphore.acquire_many(4).blocking().unwrap_err().is_invalid());
        let past = Instant::now().checked_sub(ms(1)).unwrap();
        assert!(Hand::new(semaphore.acquire().deadline(past)).ready().unwrap_err().is_timeout());
        drop((held, waits));
        // Free ones are taken whatever the deadline.
        drop(Hand::new(semaphore.acquire_many(3).deadline(past)).ready().unwrap());
        assert!(semaphore.try_acquire_many(0).unwrap_err().is_invalid() && semaphore.try_acquire_many(4).unwrap_err().is_invalid());
        assert_eq!(semaphore.free_permits(), 3);
        assert_idle(&domain);
    }
    for none in [|| Semaphore::new(0), || Semaphore::named("none", 0)] {
        let panic = catch_unwind(none).unwrap_err();
        let text = panic.downcast_ref::<&str>().unwrap();
        assert_eq!(
            *text,
            "a semaphore that never has a permit lets nobody in: give it at least 1, or make it unbounded and add permits later"
        );
    }
}

#[test]
fn nothing_happens_before_the_first_poll() {
    let (domain, _, semaphore) = permits(1, true);
    let held = semaphore.try_acquire().unwrap();
    let before = domain.records();
    drop(semaphore.acquire().timeout(ms(1)).priority(9));
    assert_eq!(domain.records(), before);
    drop(held);
    let unpolled = semaphore.acquire();
    assert_eq!(semaphore.free_permits(), 1);
    drop(unpolled);
    assert_idle(&domain);
}

/// A wait that ended long ago is dropped while somebody has a permit of which the graph knows nothing.
#[test]
fn the_end_of_an_old_wait_changes_nothing() {
    let (domain, clock, semaphore) = permits(2, false);
    let held = semaphore.try_acquire_many(2).unwrap();
    let late = Hand::new(semaphore.acquire().timeout(ms(5))).waiting();
    clock.advance(ms(5));
    drop(held);
    let held = semaphore.try_acquire().unwrap();
    drop(late);
    assert_eq!(semaphore.free_permits(), 1);
    drop(held);
    assert_eq!(semaphore.free_permits(), 2);
    assert_idle(&domain);
}

#[test]
fn a_static_semaphore() {
    static CALLS: Semaphore = Semaphore::named("calls", 2).order(Order::Fifo).bypass_limit(4);
    static JOBS: Semaphore = Semaphore::unbounded(0);
    let workers: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(|| {
                for _ in 0..50 {
                    drop(CALLS.acquire_blocking().unwrap());
                    JOBS.release(1).unwrap();
                }
            })
        })
        .collect();
    JOBS.acquire_many(200).blocking().unwrap().forget();
    for worker in workers {
        worker.join().unwrap();
    }
    assert_eq!((CALLS.free_permits(), JOBS.free_permits(), CALLS.name(), JOBS.name()), (2, 0, Some("calls"), None));
    let text = format!("{CALLS:?} {JOBS:?}");
    assert_eq!(
        text,
        "Semaphore { name: Some(\"calls\"), free: 2, of: 2, closed: false, .. } Semaphore { name: None, free: 0, closed: false, .. }"
    );
}
