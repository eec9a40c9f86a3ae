//! Holders of a read-write lock that change how they hold it: upgradable readers, upgrades, downgrades.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use crate::common::local::{assert_idle, domain, ms, worker};
use crate::common::polls::{Hand, assert_says, everywhere, in_tasks};
use heirlock::Worker;
use heirlock::local::{Domain, OwnedRwLockReadGuard, OwnedRwLockUpgradableGuard, RwLock, RwLockUpgradableGuard, RwLockWriteGuard};

fn lock() -> (Domain, RwLock<u32>) {
    let (domain, _) = domain();
    let lock = RwLock::named("table", 1).in_domain(&domain);
    (domain, lock)
}

#[test]
fn an_upgrade_waits_for_the_readers_and_boosts_them() {
    everywhere(|| async {
        let (domain, lock) = lock();
        let (low, high) = (worker("low", 1), worker("high", 7));
        let reader = Hand::by(&low, lock.read()).ready().unwrap();
        let mut guard = Hand::by(&high, lock.upgradable()).ready().unwrap();
        assert_eq!((*guard, *reader, low.effective_priority()), (1, 1, 1));
        let mut upgrade = Hand::by(&high, guard.upgrade()).waiting();
        assert_eq!(low.effective_priority(), 7);
        // From now on nobody comes in, however urgent.
        let mut late = Hand::by(&worker("late", 99), lock.read()).waiting();
        drop(reader);
        assert_eq!((low.effective_priority(), upgrade.wakes(), late.wakes()), (1, 1, 0));
        let mut upgraded = upgrade.ready().unwrap();
        *upgraded += 1;
        assert_eq!(high.effective_priority(), 99);
        drop(upgraded);
        drop(upgrade);
        // Upgradable again, so readers come in beside it.
        assert_eq!((late.wakes(), high.effective_priority()), (1, 7));
        assert_eq!((*late.ready().unwrap(), *guard), (2, 2));
        drop(guard);
        assert!(!lock.is_locked());
        assert_idle(&domain);
    });
}

#[test]
fn of_two_who_would_upgrade_the_second_waits_from_the_beginning() {
    let (domain, lock) = lock();
    let mut first = Hand::by(&worker("first", 0), lock.upgradable()).ready().unwrap();
    let (other, reader) = (worker("second", 3), worker("reader", 9));
    let mut second = Hand::by(&other, lock.upgradable()).waiting();
    assert!(lock.try_upgradable().unwrap_err().is_would_block());
    // A more urgent reader is not kept out by it.
    let read = Hand::by(&reader, lock.read()).ready().unwrap();
    assert!(first.try_upgrade().unwrap_err().is_would_block());
    drop(read);
    *first.try_upgrade().unwrap() = 5;
    drop(first);
    assert_eq!(*second.ready().unwrap(), 5);
    assert_idle(&domain);
}

/// Two who only read and would write both wait for each other: neither can say so, as `upgradable` is the way.
#[test]
fn case_f14_upgrade_by_two_readers() {
    let (domain, lock) = lock();
    let workers = [worker("first", 1), worker("second", 2)];
    let reads = workers.each_ref().map(|worker| Hand::by(worker, lock.read()).ready().unwrap());
    for worker in &workers {
        let error = Hand::by(worker, lock.write()).ready().unwrap_err();
        assert!(error.is_deadlock());
        assert_says(
            &error.to_string(),
            &["deadlock: worker", "waits for lock \"table\"", "which it holds itself shared", "acquire it upgradable()"],
        );
        let mut upgradable = Hand::by(worker, lock.upgradable()).ready();
        // It may read once more; what it cannot do is write beside what it still reads.
        if let Ok(guard) = &mut upgradable {
            assert!(Hand::by(worker, guard.upgrade()).ready().unwrap_err().is_deadlock());
        }
    }
    assert_eq!(reads.each_ref().map(|read| **read), [1, 1]);
    drop(reads);
    assert!(!lock.is_locked());
    assert_idle(&domain);
}

#[test]
fn who_is_upgradable_and_asks_to_write_is_refused_and_keeps_what_it_has() {
    let (domain, lock) = lock();
    let worker = worker("w", 0);
    let guard = Hand::by(&worker, lock.upgradable()).ready().unwrap();
    assert!(Hand::by(&worker, lock.write()).ready().unwrap_err().is_deadlock());
    assert!(Hand::by(&worker, lock.upgradable()).ready().unwrap_err().is_deadlock());
    // Reading is another level, which may outlive the first.
    let read = Hand::by(&worker, lock.read()).ready().unwrap();
    drop(guard);
    let mut writer = Hand::by(&crate::common::local::worker("writer", 5), lock.write()).waiting();
    assert_eq!((*read, worker.effective_priority()), (1, 5));
    drop(read);
    drop(writer.ready().unwrap());
    assert_idle(&domain);
}

#[test]
fn an_upgrade_that_is_given_up_leaves_the_hold_as_it_was() {
    everywhere(|| async {
        let (domain, clock) = domain();
        let lock = RwLock::new(1).in_domain(&domain);
        let (low, high) = (worker("low", 1), worker("high", 7));
        let reader = Hand::by(&low, lock.read()).ready().unwrap();
        let mut guard = Hand::by(&high, lock.upgradable()).ready().unwrap();
        let upgrade = Hand::by(&high, guard.upgrade()).waiting();
        let mut late = Hand::by(&worker("late", 0), lock.read()).waiting();
        drop(upgrade);
        assert_eq!((low.effective_priority(), late.wakes()), (1, 1));
        drop(late.ready().unwrap());
        let mut upgrade = Hand::by(&high, guard.upgrade().timeout(ms(10))).waiting();
        clock.advance(ms(10));
        domain.expire();
        while upgrade.wakes() == 0 {
            std::thread::yield_now();
        }
        assert!(upgrade.ready().unwrap_err().is_timeout());
        drop(upgrade);
        assert!(Hand::by(&high, guard.upgrade().timeout(ms(0))).ready().unwrap_err().is_timeout());
        // Granted and dropped before it is polled.
        let upgrade = Hand::by(&high, guard.upgrade()).waiting();
        drop(reader);
        assert_eq!(upgrade.wakes(), 1);
        drop(upgrade);
        drop(Hand::by(&low, lock.read()).ready().unwrap());
        drop(guard);
        assert_idle(&domain);
    });
}

/// As P27: a place in the queue is no deadlock, whether a writer has it or an upgrade.
#[test]
fn case_p27_a_reader_is_let_in_past_an_upgrade() {
    let (domain, lock) = lock();
    let other = heirlock::local::Mutex::new(()).in_domain(&domain);
    let (reader, upgrader, third) = (worker("reader", 1), worker("upgrader", 2), worker("third", 3));
    let read = Hand::by(&reader, lock.read()).ready().unwrap();
    let held = Hand::by(&third, other.lock()).ready().unwrap();
    let mut guard = Hand::by(&upgrader, lock.upgradable()).ready().unwrap();
    let mut upgrade = Hand::by(&upgrader, guard.upgrade()).waiting();
    let mut third_reads = Hand::by(&third, lock.read()).waiting();
    // The reader waits for the third, which waits behind the upgrade, which waits for the reader.
    let mut reader_waits = Hand::by(&reader, other.lock()).waiting();
    assert_eq!((third_reads.wakes(), upgrade.wakes()), (1, 0));
    drop(third_reads.ready().unwrap());
    drop(held);
    drop(reader_waits.ready().unwrap());
    drop(read);
    drop(upgrade.ready().unwrap());
    drop(upgrade);
    drop(guard);
    assert_idle(&domain);
}

#[test]
fn a_writer_that_downgrades_lets_readers_in_and_no_writer() {
    everywhere(|| async {
        for waited_for in [false, true] {
            let (domain, lock) = lock();
            let writer = worker("writer", 0);
            let mut guard = Hand::by(&writer, lock.write()).ready().unwrap();
            *guard = 2;
            let next = waited_for.then(|| Hand::by(&worker("next", 4), lock.write()).waiting());
            let urgent = waited_for.then(|| Hand::by(&worker("urgent", 5), lock.read()).waiting());
            let guard = RwLockWriteGuard::downgrade(guard);
            assert_eq!(*guard, 2);
            if let (Some(mut next), Some(mut urgent)) = (next, urgent) {
                assert_eq!((urgent.wakes(), next.wakes(), writer.effective_priority()), (1, 0, 4));
                assert_eq!(*urgent.ready().unwrap(), 2);
                drop(guard);
                drop(next.ready().unwrap());
            } else {
                // By the short way: the graph knows nothing of it.
                assert_idle(&domain);
                assert_eq!(*lock.try_read().unwrap(), 2);
                assert!(lock.try_write().unwrap_err().is_would_block());
                drop(guard);
            }
            assert!(!lock.is_locked());
            assert_idle(&domain);
        }
    });
}

#[test]
fn a_writer_that_becomes_upgradable_and_a_reader() {
    let (domain, lock) = lock();
    let writer = worker("writer", 0);
    let guard = Hand::by(&writer, lock.write()).ready().unwrap();
    let mut guard = RwLockWriteGuard::downgrade_to_upgradable(guard);
    assert_eq!(*lock.try_read().unwrap(), 1);
    assert!(lock.try_upgradable().unwrap_err().is_would_block());
    *Hand::by(&writer, guard.upgrade()).ready().unwrap() = 3;
    let guard = RwLockUpgradableGuard::downgrade(guard);
    let other = lock.try_upgradable().unwrap();
    assert_eq!((*guard, *other), (3, 3));
    drop(other);
    assert!(lock.is_locked());
    drop(guard);
    assert!(!lock.is_locked());
    assert_idle(&domain);
}

#[test]
fn case_f11_an_owned_one_goes_where_it_likes() {
    let (domain, lock) = lock();
    let lock = Arc::new(lock);
    let (low, high) = (worker("low", 1), worker("high", 8));
    let guard = Hand::by(&low, lock.upgradable_owned()).ready().unwrap();
    let mut waits = Hand::by(&high, lock.write()).waiting();
    assert_eq!(low.effective_priority(), 8);
    std::thread::spawn(move || {
        let mut guard = guard;
        *guard.upgrade().blocking().unwrap() = 4;
        let read = OwnedRwLockUpgradableGuard::downgrade(guard);
        assert_eq!(*read, 4);
    })
    .join()
    .unwrap();
    assert_eq!((low.effective_priority(), waits.wakes()), (1, 1));
    drop(waits.ready().unwrap());
    assert_idle(&domain);
}

#[test]
fn case_f12_a_panic_while_upgraded_poisons() {
    let (domain, _) = domain();
    let lock = RwLock::new(1).in_domain(&domain).poisoning();
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let mut guard = lock.try_upgradable().unwrap();
        let _upgraded = guard.try_upgrade().unwrap();
        panic!("on purpose");
    }));
    assert!(caught.is_err());
    assert!(lock.try_upgradable().unwrap_err().is_poisoned());
    assert!(!lock.is_locked());
    lock.clear_poison();
    let mut guard = lock.try_upgradable().unwrap();
    drop(guard.try_upgrade().unwrap());
    drop(guard);
    assert_idle(&domain);
}

#[test]
fn case_f15_forgotten() {
    let (domain, lock) = lock();
    let (reader, upgrader) = (worker("reader", 1), worker("upgrader", 2));
    let read = Hand::by(&reader, lock.read()).ready().unwrap();
    let mut guard = Hand::by(&upgrader, lock.upgradable()).ready().unwrap();
    std::mem::forget(Hand::by(&upgrader, guard.upgrade()).waiting());
    // Another upgrade takes its place.
    let mut again = Hand::by(&upgrader, guard.upgrade()).waiting();
    drop(read);
    *again.ready().unwrap() = 7;
    drop(again);
    assert_eq!(*guard, 7);
    std::mem::forget(guard);
    let snapshot = domain.snapshot().to_string();
    assert!(snapshot.contains("upgradable") && snapshot.contains("upgrader") && snapshot.contains("local/upgrade.rs"), "{snapshot}");
    drop(lock);
    // The forgotten future could still be told that it was displaced.
    assert_eq!(domain.records().iter().sum::<usize>(), 1);
}

#[test]
fn case_f11_transfer_of_an_upgradable_one() {
    everywhere(|| async {
        let (domain, lock) = lock();
        let lock = Arc::new(lock);
        let [first, heir, high] = [("first", 1), ("heir", 2), ("high", 8)].map(|(name, base)| worker(name, base));
        let priorities = || [&first, &heir].map(Worker::effective_priority);
        let guards: [Box<dyn Lent>; 2] = [
            Box::new(Hand::by(&first, lock.upgradable_owned()).ready().unwrap()),
            Box::new(Hand::by(&high, lock.read_owned()).ready().unwrap()),
        ];
        let [guard, other] = guards;
        let mut waits = Hand::by(&high, lock.upgradable()).waiting();
        assert_eq!(priorities(), [8, 2]);
        guard.lend(&heir);
        assert_eq!((priorities(), waits.wakes()), ([1, 8], 0));
        // From now on it is the other's own, and nobody's else.
        assert!(Hand::by(&heir, lock.upgradable()).ready().unwrap_err().is_deadlock());
        assert!(Hand::by(&first, lock.upgradable()).poll().is_pending());
        // To the same once more, and back, from another thread.
        guard.lend(&heir);
        std::thread::scope(|threads| drop(threads.spawn(|| guard.lend(&first))));
        assert_eq!(priorities(), [8, 2]);
        drop(guard);
        drop(other);
        drop(waits.ready().unwrap());
        drop(waits);
        assert!(!lock.is_locked());
        assert_idle(&domain);
    });
}

/// What can be transferred, whatever it is.
trait Lent: Send + Sync {
    fn lend(&self, to: &Worker);
}

impl Lent for OwnedRwLockUpgradableGuard<u32> {
    fn lend(&self, to: &Worker) {
        self.transfer_to(to);
    }
}

impl Lent for OwnedRwLockReadGuard<u32> {
    fn lend(&self, to: &Worker) {
        self.transfer_to(to);
    }
}

/// Only the upgradable level goes: what its worker reads beside it is its own, and so is what the heir reads.
#[test]
fn case_f11_transfer_beside_reads() {
    let (domain, lock) = lock();
    let [first, heir, high] = [("first", 1), ("heir", 2), ("high", 8)].map(|(name, base)| worker(name, base));
    let reads = [&first, &first, &heir].map(|worker| worker.scope(|| lock.try_read()).unwrap());
    let mut guard = first.scope(|| lock.try_upgradable()).unwrap();
    // Nine places are too few for these.
    let more: Vec<_> = (0..8).map(|_| first.scope(|| lock.try_read()).unwrap()).collect();
    guard.transfer_to(&heir);
    let mut waits = Hand::by(&high, lock.write()).waiting();
    assert_eq!([&first, &heir].map(Worker::effective_priority), [8, 8]);
    let [one, two, its] = reads;
    drop((one, two, more));
    assert_eq!([&first, &heir].map(Worker::effective_priority), [1, 8]);
    // Its own read is in the heir's way now.
    assert!(Hand::by(&heir, guard.upgrade()).ready().unwrap_err().is_deadlock());
    drop(its);
    *Hand::by(&heir, guard.upgrade()).ready().unwrap() = 5;
    let guard = RwLockUpgradableGuard::downgrade(guard);
    assert_eq!((*guard, waits.wakes(), heir.effective_priority()), (5, 0, 8));
    drop(guard);
    assert_eq!(*waits.ready().unwrap(), 5);
    drop(waits);
    assert_idle(&domain);
}

/// Who waits for what becomes its own waits for itself; what was forgotten of an upgrade ends.
#[test]
fn case_f11_transfer_to_who_waits() {
    let (domain, lock) = lock();
    let [first, heir] = [("first", 1), ("heir", 2)].map(|(name, base)| worker(name, base));
    let mut guard = first.scope(|| lock.try_upgradable()).unwrap();
    std::mem::forget(Hand::by(&first, guard.upgrade()).ready().unwrap());
    let mut reads = Hand::new(lock.read()).waiting();
    let mut waits = Hand::by(&heir, lock.upgradable()).waiting();
    guard.transfer_to(&heir);
    assert!(waits.ready().unwrap_err().is_deadlock());
    assert_eq!((*reads.ready().unwrap(), *guard), (1, 1));
    drop((reads, waits));
    *guard.try_upgrade().unwrap() += 1;
    drop(guard);
    assert_eq!(lock.into_inner(), 2);
    assert_idle(&domain);
}

/// One that was polled and is then waited for on the thread goes on from there, also where that thread may not wait.
#[test]
fn an_upgrade_that_was_polled_and_then_blocks() {
    fn test() {
        let (domain, lock) = lock();
        let [reader, upgrader] = ["reader", "upgrader"].map(|name| worker(name, 0));
        let read = reader.scope(|| lock.try_read()).unwrap();
        let mut guard = upgrader.scope(|| lock.try_upgradable()).unwrap();
        let mut upgrade = guard.upgrade();
        assert!(upgrader.scope(|| Pin::new(&mut upgrade).poll(&mut Context::from_waker(Waker::noop()))).is_pending());
        drop(read);
        *upgrader.scope(|| upgrade.blocking()).unwrap() = 5;
        assert_eq!(*guard, 5);
        // Granted, untaken, and forgotten: the next one has it.
        let read = reader.scope(|| lock.try_read()).unwrap();
        std::mem::forget(Hand::by(&upgrader, guard.upgrade()).waiting());
        drop(read);
        *upgrader.scope(|| guard.upgrade().blocking()).unwrap() = 6;
        assert_eq!(*guard, 6);
        drop(guard);
        assert!(!lock.is_locked());
        // What the forgotten one could still be told.
        assert_eq!(domain.records(), [0, 0, 1, 0, 0, 0, 0]);
    }
    test();
    in_tasks(|| async { test() });
}

/// The same of an acquire.
#[test]
fn an_acquire_that_was_polled_and_then_blocks() {
    fn test() {
        let (domain, lock) = lock();
        let [first, second] = ["first", "second"].map(|name| worker(name, 0));
        let held = first.scope(|| lock.try_write()).unwrap();
        let mut acquire = lock.write();
        assert!(second.scope(|| Pin::new(&mut acquire).poll(&mut Context::from_waker(Waker::noop()))).is_pending());
        drop(held);
        drop(second.scope(|| acquire.blocking()).unwrap());
        assert!(!lock.is_locked());
        assert_idle(&domain);
    }
    test();
    in_tasks(|| async { test() });
}
