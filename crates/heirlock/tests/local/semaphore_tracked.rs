//! Semaphores whose holders are known: what they inherit, what they pass on, and what is said of them.

use std::sync::Arc;

use crate::common::local::{assert_idle, domain, holders, ms, permits, worker};
use crate::common::polls::{Hand, assert_says, everywhere};
use heirlock::Worker;
use heirlock::clock::ManualClock;
use heirlock::local::{Domain, Mutex, RwLock, Semaphore, lock_all};

#[test]
fn all_holders_inherit() {
    everywhere(|| async {
        let (domain, clock, pool) = permits(3, true);
        let (one, two, high) = (worker("one", 1), worker("two", 2), worker("high", 9));
        let mut first = Hand::by(&one, pool.acquire_many(2)).ready().unwrap();
        let second = Hand::by(&two, pool.acquire()).ready().unwrap();
        let mut waits = Hand::by(&high, pool.acquire_many(2)).waiting();
        assert_eq!((one.effective_priority(), two.effective_priority()), (9, 9));
        clock.advance(ms(40));
        let snapshot = domain.snapshot();
        let lock = &snapshot.locks[0];
        assert_eq!((&*lock.name, lock.kind, lock.unknown_releaser, lock.queue.len()), ("pool", "semaphore", true, 1));
        assert_eq!(holders(&domain), ["one", "two"]);
        assert!(lock.holders.iter().all(|holder| holder.effective == 9 && holder.since_ms == 40), "{snapshot}");
        // As long as it has any.
        drop(first.split(1));
        assert_eq!((one.effective_priority(), waits.wakes()), (9, 0));
        drop(second);
        assert_eq!([&one, &two].map(Worker::effective_priority), [1, 2]);
        assert_eq!(waits.ready().unwrap().permits(), 2);
        drop((first, waits));
        assert_idle(&domain);
    });
}

/// Through a mutex that a holder waits for, and through the permits that the mutex' holder waits for.
#[test]
fn inheritance_is_passed_on() {
    let (domain, _, pool) = permits(2, true);
    let (outer, inner) = (Mutex::new(()).in_domain(&domain), Mutex::new(()).in_domain(&domain));
    let [last, mid, first, beside] = ["last", "mid", "first", "beside"].map(|name| worker(name, 1));
    let held = Hand::by(&last, inner.lock()).ready().unwrap();
    let mid_permit = Hand::by(&mid, pool.acquire()).ready().unwrap();
    let beside_permit = Hand::by(&beside, pool.acquire()).ready().unwrap();
    let mut mid_waits = Hand::by(&mid, inner.lock()).waiting();
    let first_held = Hand::by(&first, outer.lock()).ready().unwrap();
    let mut first_waits = Hand::by(&first, pool.acquire()).waiting();
    let high = Hand::by(&worker("high", 9), outer.lock()).waiting();
    assert_eq!([&last, &mid, &first, &beside].map(Worker::effective_priority), [9; 4]);
    drop(high);
    assert_eq!([&last, &mid, &first, &beside].map(Worker::effective_priority), [1; 4]);
    drop(held);
    drop(mid_waits.ready().unwrap());
    drop((mid_permit, beside_permit));
    drop(first_waits.ready().unwrap());
    drop((first_held, mid_waits, first_waits));
    assert_idle(&domain);
}

/// Whoever likes may add a permit, so a circle through permits is no deadlock for certain: here somebody does.
#[test]
fn a_circle_through_permits_is_suspected() {
    everywhere(|| async {
        let (domain, _) = domain();
        let pool = Semaphore::unbounded_named("pool", 1).in_domain(&domain).tracked();
        let row = Mutex::named("row", ()).in_domain(&domain);
        let (one, two) = (worker("one", 1), worker("two", 2));
        let permit = Hand::by(&one, pool.acquire()).ready().unwrap();
        let held = Hand::by(&two, row.lock()).ready().unwrap();
        let mut two_waits = Hand::by(&two, pool.acquire()).waiting();
        let mut one_waits = Hand::by(&one, row.lock()).waiting();
        let snapshot = domain.snapshot();
        assert_eq!(snapshot.suspected.len(), 1, "{snapshot}");
        let mut cycle = snapshot.suspected[0].clone();
        cycle.sort();
        assert_says(&cycle[0], &[r#"worker "one" waits for lock "row""#, r#"held by worker "two""#]);
        assert_says(&cycle[1], &[r#"worker "two" waits for semaphore "pool""#, r#"held shared by worker "one""#]);
        let unknown = |name| snapshot.locks.iter().find(|lock| lock.name == name).unwrap().unknown_releaser;
        assert!(unknown("pool") && !unknown("row"));
        assert!(snapshot.to_string().contains("others than its holders may release it"), "{snapshot}");
        pool.release(1).unwrap();
        drop(two_waits.ready().unwrap());
        drop(held);
        drop(one_waits.ready().unwrap());
        drop((permit, one_waits, two_waits));
        assert_idle(&domain);
    });
}

/// Where holders are not known, nothing is even suspected, and nobody is boosted.
#[test]
fn a_circle_through_permits_that_are_not_tracked() {
    let (domain, clock, pool) = permits(1, false);
    let row = Mutex::named("row", ()).in_domain(&domain);
    let (one, two) = (worker("one", 1), worker("two", 2));
    let permit = Hand::by(&one, pool.acquire()).ready().unwrap();
    let held = Hand::by(&two, row.lock()).ready().unwrap();
    let mut two_waits = Hand::by(&two, pool.acquire().timeout(ms(10))).waiting();
    let mut one_waits = Hand::by(&one, row.lock()).waiting();
    let snapshot = domain.snapshot();
    let pool_lock = snapshot.locks.iter().find(|lock| lock.name == "pool").unwrap();
    assert_eq!((pool_lock.unknown_releaser, pool_lock.holders.len(), pool_lock.queue.len()), (true, 0, 1));
    assert!(snapshot.suspected.is_empty(), "{snapshot}");
    assert_eq!(one.effective_priority(), 1);
    clock.advance(ms(10));
    domain.expire();
    assert!(two_waits.ready().unwrap_err().is_timeout());
    drop(held);
    drop(one_waits.ready().unwrap());
    drop((permit, one_waits, two_waits));
    assert_idle(&domain);
}

#[test]
fn case_f11_permits_across_threads() {
    everywhere(|| async {
        let (domain, _, pool) = permits(2, true);
        let pool = Arc::new(pool);
        let (low, high) = (worker("low", 1), worker("high", 8));
        let permit = Hand::by(&low, pool.acquire_many_owned(2)).ready().unwrap();
        let mut waits = Hand::by(&high, pool.acquire_owned()).waiting();
        assert_eq!(low.effective_priority(), 8);
        std::thread::spawn(move || drop(permit)).join().unwrap();
        assert_eq!((low.effective_priority(), waits.wakes()), (1, 1));
        drop(waits.ready().unwrap());
        drop(waits);
        assert_idle(&domain);
    });
}

#[test]
fn case_f11_transfer() {
    let (domain, _, pool) = permits(3, true);
    for waits_first in [false, true] {
        let (giver, heir, urgent) = (worker("giver", 1), worker("heir", 2), worker("urgent", 9));
        let mut permits = Hand::by(&giver, pool.acquire_many(3)).ready().unwrap();
        let part = permits.split(1).unwrap();
        let early = waits_first.then(|| Hand::by(&urgent, pool.acquire_many(2)).waiting());
        permits.transfer_to(&heir);
        // To who has them already nothing changes.
        permits.transfer_to(&heir);
        let mut waits = early.unwrap_or_else(|| Hand::by(&urgent, pool.acquire_many(2)).waiting());
        // The giver has kept one.
        assert_eq!((giver.effective_priority(), heir.effective_priority()), (9, 9));
        assert_eq!(holders(&domain), ["giver", "heir"]);
        drop(part);
        assert_eq!((giver.effective_priority(), heir.effective_priority(), waits.wakes()), (1, 9, 0));
        drop(permits);
        assert_eq!((heir.effective_priority(), waits.ready().unwrap().permits()), (2, 2));
        drop(waits);
        assert_eq!(pool.free_permits(), 3);
        assert_idle(&domain);
    }
    // Where it is not known who has them, it does nothing.
    let (domain, _, pool) = permits(1, false);
    let permit = pool.try_acquire().unwrap();
    let heir = worker("heir", 2);
    permit.transfer_to(&heir);
    let waits = Hand::by(&worker("urgent", 9), pool.acquire()).waiting();
    assert_eq!(heir.effective_priority(), 2);
    drop((permit, waits));
    assert_idle(&domain);
}

/// The heir waits for permits: it goes on waiting, and is on a circle with itself.
#[test]
fn case_f11_transfer_to_who_waits() {
    let (domain, _, pool) = permits(2, true);
    let (giver, heir) = (worker("giver", 1), worker("heir", 2));
    let mut permits = Hand::by(&giver, pool.acquire_many(2)).ready().unwrap();
    let mut waits = Hand::by(&heir, pool.acquire()).waiting();
    permits.transfer_to(&heir);
    assert!(waits.poll().is_pending());
    assert_eq!(domain.snapshot().suspected.len(), 1);
    drop(permits.split(1));
    let more = waits.ready().unwrap();
    permits.merge(more);
    assert_eq!((permits.permits(), pool.free_permits()), (2, 0));
    drop((permits, waits));
    assert_idle(&domain);
}

/// What becomes a part of another's permits is that one's.
#[test]
fn merged_permits_have_one_holder() {
    let (domain, _, pool) = permits(4, true);
    let pool = Arc::new(pool);
    let (one, two, urgent) = (worker("one", 1), worker("two", 2), worker("urgent", 9));
    for owned in [false, true] {
        let waits = || Hand::by(&urgent, pool.acquire()).waiting();
        let check = |drop_all: &mut dyn FnMut()| {
            let mut waits = waits();
            assert_eq!((one.effective_priority(), two.effective_priority()), (9, 2));
            drop_all();
            assert_eq!((one.effective_priority(), waits.wakes()), (1, 1));
            drop(waits.ready().unwrap());
        };
        if owned {
            let mut first = Hand::by(&one, pool.acquire_many_owned(1)).ready().unwrap();
            first.merge(Hand::by(&two, pool.acquire_many_owned(3)).ready().unwrap());
            assert_eq!(first.permits(), 4);
            let mut first = Some(first);
            check(&mut || first = None);
        } else {
            let mut first = Hand::by(&one, pool.acquire()).ready().unwrap();
            let second = Hand::by(&two, pool.acquire_many(3)).ready().unwrap();
            // While somebody waits the boost moves.
            let early = waits();
            assert_eq!((one.effective_priority(), two.effective_priority()), (9, 9));
            first.merge(second);
            assert_eq!((one.effective_priority(), two.effective_priority()), (9, 2));
            drop(early);
            let mut first = Some(first);
            check(&mut || first = None);
        }
        assert_eq!(pool.free_permits(), 4);
        assert_idle(&domain);
    }
}

/// Who has some and forgets them holds nothing any more.
#[test]
fn forgotten_permits_boost_nobody() {
    let (domain, _, pool) = permits(3, true);
    let low = worker("low", 1);
    let mut permits = Hand::by(&low, pool.acquire_many(3)).ready().unwrap();
    let mut waits = Hand::by(&worker("high", 9), pool.acquire_many(2)).waiting();
    permits.split(1).unwrap().forget();
    assert_eq!(low.effective_priority(), 9);
    permits.forget();
    assert_eq!((low.effective_priority(), waits.wakes()), (1, 0));
    pool.release(3).unwrap();
    drop(waits.ready().unwrap());
    drop(waits);
    assert_idle(&domain);
}

/// In a domain that tracks its holds semaphores are tracked.
#[test]
fn a_domain_that_tracks_its_holds() {
    let clock = ManualClock::new();
    let domain = Domain::builder().clock(clock.clone()).warn_after(ms(3_600_000)).build();
    let semaphores = [Semaphore::named("pool", 2).in_domain(&domain), Semaphore::unbounded_named("pool", 0).in_domain(&domain)];
    semaphores[1].release(2).unwrap();
    for pool in &semaphores {
        let (low, high) = (worker("low", 1), worker("high", 9));
        let (permits, line) = (low.scope(|| pool.try_acquire_many(2)).unwrap(), line!());
        clock.advance(ms(70));
        let snapshot = domain.snapshot();
        let holder = &snapshot.locks[0].holders[0];
        assert_eq!((&*holder.party.worker.name, holder.since_ms), ("low", 70));
        assert_eq!(holder.site, Some(format!("{}:{line}", file!())));
        let mut waits = Hand::by(&high, pool.acquire()).waiting();
        assert_eq!(low.effective_priority(), 9);
        drop(permits);
        drop(waits.ready().unwrap());
        drop(waits);
        assert_eq!(pool.free_permits(), 2);
        assert_idle(&domain);
    }
}

/// Several locks at once, some of them permits: all or none, whatever the order in which they are named.
#[test]
fn permits_among_several_locks() {
    everywhere(|| async {
        for tracked in [false, true] {
            let (domain, _, pool) = permits(3, tracked);
            let (row, table) = (Mutex::named("row", 0).in_domain(&domain), RwLock::named("table", 0).in_domain(&domain));
            let (low, high) = (worker("low", 1), worker("high", 9));
            let (permits, read, guard) = low.run(lock_all((pool.acquire_many(2), table.read(), row.lock()))).await.unwrap();
            assert_eq!((permits.permits(), *read, *guard), (2, 0, 0));
            // Beside it there is room for one who reads and wants one permit, but not for more.
            let (one, beside) = high.run(lock_all((pool.acquire(), table.read()))).await.unwrap();
            assert!(high.run(lock_all((table.read(), pool.acquire())).timeout(ms(0))).await.unwrap_err().is_timeout());
            drop((one, beside));
            let mut waits = Hand::by(&high, lock_all((row.lock(), table.write(), pool.acquire_many(3)))).waiting();
            // It waits for one of them, whichever comes first.
            drop(permits);
            drop(read);
            drop(guard);
            while waits.wakes() > 0 {
                if let std::task::Poll::Ready(all) = waits.poll() {
                    let (mut guard, mut written, permits) = all.unwrap();
                    *guard += 1;
                    *written += 1;
                    assert_eq!((permits.permits(), pool.free_permits()), (3, 0));
                    break;
                }
            }
            assert_eq!((*row.try_lock().unwrap(), *table.try_read().unwrap(), pool.free_permits()), (1, 1, 3));
            // Twice the same cannot be had at once, nor what there is not.
            assert!(lock_all((pool.acquire(), row.lock(), pool.acquire())).await.unwrap_err().is_invalid());
            assert!(lock_all((row.lock(), pool.acquire_many(4))).await.unwrap_err().is_invalid());
            pool.close();
            assert!(lock_all((table.write(), row.lock(), pool.acquire())).await.unwrap_err().is_closed());
            assert!(!row.is_locked() && !table.is_locked());
            drop(waits);
            assert_idle(&domain);
        }
    });
}

/// In opposite orders, by many, without a deadlock.
#[test]
fn several_locks_in_every_order() {
    const EACH: u32 = if cfg!(miri) { 5 } else { 300 };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (domain, _) = domain();
    let pool = Semaphore::new(2).in_domain(&domain).tracked();
    let all = Arc::new((Mutex::new(0).in_domain(&domain), RwLock::new(0).in_domain(&domain), pool));
    runtime.block_on(async {
        let tasks: Vec<_> = (0..6)
            .map(|at: u32| {
                let all = Arc::clone(&all);
                let work = async move {
                    let (row, table, pool) = &*all;
                    for _ in 0..EACH {
                        match at % 3 {
                            0 => {
                                let (mut row, _table, _permit) = lock_all((row.lock(), table.read(), pool.acquire())).await.unwrap();
                                *row += 1;
                            }
                            1 => {
                                let (_permits, mut table, mut row) =
                                    lock_all((pool.acquire_many(2), table.write(), row.lock())).await.unwrap();
                                *row += 1;
                                *table += 1;
                            }
                            _ => {
                                let (mut table, _permit) = lock_all((table.write(), pool.acquire())).await.unwrap();
                                *table += 1;
                            }
                        }
                    }
                };
                tokio::spawn(worker("w", 0).run(work))
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert_eq!((*all.0.try_lock().unwrap(), *all.1.try_read().unwrap(), all.2.free_permits()), (4 * EACH, 4 * EACH, 2));
    assert_idle(&domain);
}

#[test]
fn a_static_one() {
    static POOL: Semaphore = Semaphore::named("static pool", 2).tracked();
    let (low, high) = (worker("low", 1), worker("high", 9));
    let permits = low.scope(|| POOL.try_acquire_many(2)).unwrap();
    let mut waits = Hand::by(&high, POOL.acquire()).waiting();
    assert_eq!((low.effective_priority(), POOL.free_permits()), (9, 0));
    drop(permits);
    assert_eq!((low.effective_priority(), waits.ready().unwrap().permits()), (1, 1));
}

/// One that was used before it is tracked: what was leaked of it holds nothing, and what was added, forgotten or closed stays so.
#[test]
fn tracked_after_use() {
    let (domain, _) = domain();
    let pool = Semaphore::unbounded_named("pool", 2).in_domain(&domain);
    pool.release(3).unwrap();
    pool.try_acquire().unwrap().forget();
    std::mem::forget(pool.try_acquire_many(4).unwrap());
    let (low, high) = (worker("low", 1), worker("high", 9));
    std::mem::forget(Hand::by(&worker("leaked", 5), pool.acquire()).waiting());
    let pool = pool.tracked();
    assert_eq!(pool.free_permits(), 4);
    let permits = low.scope(|| pool.try_acquire_many(4)).unwrap();
    let mut waits = Hand::by(&high, pool.acquire()).waiting();
    assert_eq!(low.effective_priority(), 9);
    let snapshot = domain.snapshot();
    assert_eq!((snapshot.locks.len(), snapshot.locks[0].queue.len()), (1, 1), "{snapshot}");
    drop(permits);
    drop(waits.ready().unwrap());
    drop(waits);
    assert_idle(&domain);
    pool.close();
    let pool = pool.tracked();
    assert!(pool.is_closed() && pool.try_acquire().unwrap_err().is_closed());
    assert_eq!(pool.free_permits(), 4);
}
