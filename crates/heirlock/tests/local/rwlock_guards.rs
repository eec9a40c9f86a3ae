//! Guards of readers and writers: other threads, other workers, poison, parts of a value.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::local::{assert_idle, domain, ms, shared, worker};
use crate::common::polls::{Hand, assert_says, everywhere, pause};
use heirlock::local::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

#[test]
fn case_f11_guard_across_threads() {
    everywhere(|| async {
        let (domain, _, lock) = shared();
        let lock = Arc::new(lock);
        let (low, mid, high) = (worker("low", 1), worker("mid", 5), worker("high", 8));
        let owned = Hand::by(&low, lock.read_owned()).ready().unwrap();
        let mut writes = Hand::by(&high, lock.write()).waiting();
        assert_eq!(low.effective_priority(), 8);
        std::thread::spawn(move || drop(owned)).join().unwrap();
        assert_eq!((low.effective_priority(), writes.wakes()), (1, 1));
        drop(writes.ready().unwrap());
        drop(writes);
        // Two of them, one of whom goes.
        let owned = [&low, &mid].map(|reader| Hand::by(reader, lock.read_owned()).ready().unwrap());
        let mut writes = Hand::by(&high, lock.write_owned()).waiting();
        assert_eq!((low.effective_priority(), mid.effective_priority()), (8, 8));
        let [first, second] = owned;
        std::thread::spawn(move || drop(first)).join().unwrap();
        assert_eq!((low.effective_priority(), mid.effective_priority(), writes.wakes()), (1, 8, 0));
        std::thread::spawn(move || drop(second)).join().unwrap();
        *writes.ready().unwrap() += 1;
        drop(writes);
        assert_idle(&domain);
    });
}

/// After a transfer the heir inherits, is named, and may not ask to write: whether the graph knows of the reader, by its place or without one, or does
/// not.
#[test]
fn case_f11_transfer_of_a_read() {
    let (domain, _, lock) = shared();
    let lock = Arc::new(lock);
    let (giver, heir, urgent) = (worker("giver", 1), worker("heir", 2), worker("urgent", 9));
    for waits_first in [false, true] {
        for others in [0, 1, 20] {
            let beside: Vec<_> = (0..others).map(|_| Hand::by(&worker("beside", 0), lock.read()).ready().unwrap()).collect();
            let guard = Hand::by(&giver, lock.read_owned()).ready().unwrap();
            let early = waits_first.then(|| Hand::by(&urgent, lock.write()).waiting());
            assert_eq!(giver.effective_priority(), if waits_first { 9 } else { 1 });
            guard.transfer_to(&heir);
            // To who has it already nothing changes.
            guard.transfer_to(&heir);
            let mut writes = early.unwrap_or_else(|| Hand::by(&urgent, lock.write()).waiting());
            assert_eq!((giver.effective_priority(), heir.effective_priority()), (1, 9));
            let error = Hand::by(&heir, lock.write()).ready().unwrap_err();
            assert!(error.is_deadlock() && error.to_string().contains("\"heir\""), "{error}");
            // The heir reads, the giver does not.
            drop(Hand::by(&heir, lock.read()).ready().unwrap());
            drop(Hand::by(&giver, lock.read()).waiting());
            drop(beside);
            assert_eq!(writes.wakes(), 0);
            drop(guard);
            assert_eq!((heir.effective_priority(), *writes.ready().unwrap()), (2, 0));
            drop(writes);
            assert_idle(&domain);
        }
    }
}

/// The heir waits for the lock: to write, which is over then, or to read behind a writer, who is not before it any more.
#[test]
fn case_f11_transfer_to_who_waits() {
    let (domain, _, lock) = shared();
    let (giver, heir) = (worker("giver", 1), worker("heir", 2));
    let guard = Hand::by(&giver, lock.read()).ready().unwrap();
    let mut waits = Hand::by(&heir, lock.write()).waiting();
    guard.transfer_to(&heir);
    assert!(waits.ready().unwrap_err().is_deadlock());
    drop((waits, guard));
    assert_idle(&domain);
    let guard = Hand::by(&giver, lock.read()).ready().unwrap();
    let mut writes = Hand::by(&worker("writes", 9), lock.write()).waiting();
    let mut waits = Hand::by(&heir, lock.read()).waiting();
    guard.transfer_to(&heir);
    let inner = waits.ready().unwrap();
    drop(guard);
    assert_eq!((heir.effective_priority(), writes.wakes()), (9, 0));
    drop(inner);
    drop(writes.ready().unwrap());
    drop((waits, writes));
    assert!(!lock.is_locked());
    assert_idle(&domain);
}

#[test]
fn case_f11_transfer_of_a_write() {
    let (domain, _, lock) = shared();
    let (giver, heir, reader) = (worker("giver", 1), worker("heir", 2), worker("reader", 9));
    for waits_first in [false, true] {
        let guard = Hand::by(&giver, lock.write()).ready().unwrap();
        let early = waits_first.then(|| Hand::by(&reader, lock.read()).waiting());
        guard.transfer_to(&heir);
        let mut reads = early.unwrap_or_else(|| Hand::by(&reader, lock.read()).waiting());
        assert_eq!((giver.effective_priority(), heir.effective_priority()), (1, 9));
        assert!(Hand::by(&heir, lock.read()).ready().unwrap_err().is_deadlock());
        drop(guard);
        drop(reads.ready().unwrap());
        drop(reads);
        assert_idle(&domain);
    }
}

/// A writer that panics, or leaves its work, poisons; a reader does not. Who reads is told as who writes.
#[test]
fn case_f12_poison() {
    static LOCK: RwLock<u8> = RwLock::named("state", 1).poisoning();
    let culprit = worker("culprit", 0);
    let told = |error: heirlock::Error, parts: &[&str]| {
        assert!(error.is_poisoned());
        assert_says(&error.to_string(), parts);
    };
    for waited_for in [false, true] {
        let panics = |reads: bool| {
            let mut waits = None;
            let unwound = catch_unwind(AssertUnwindSafe(|| {
                let guards = culprit.scope(|| if reads { (LOCK.read_blocking().ok(), None) } else { (None, LOCK.write_blocking().ok()) });
                assert!(guards.0.is_some() || guards.1.is_some());
                waits = waited_for.then(|| Hand::by(&worker("next", 3), LOCK.write()).waiting());
                panic!("on purpose")
            }));
            assert!(unwound.is_err());
            waits.map(|mut waits| waits.ready().map(drop))
        };
        if let Some(next) = panics(true) {
            next.unwrap();
        }
        assert!(!LOCK.is_poisoned() && !LOCK.is_locked());
        let parts = [r#"lock "state" is poisoned: worker "culprit""#, file!(), "panicked while it held it"];
        if let Some(next) = panics(false) {
            told(next.unwrap_err(), &parts);
        }
        told(LOCK.try_read().map(drop).unwrap_err(), &parts);
        told(LOCK.try_write().map(drop).unwrap_err(), &parts);
        told(pollster::block_on(LOCK.read()).map(drop).unwrap_err(), &parts);
        told(LOCK.read_blocking().map(drop).unwrap_err(), &parts);
        told(pollster::block_on(LOCK.with(async |_| ())).unwrap_err(), &parts);
        assert!(!LOCK.is_locked());
        // Who would know all the same, beside others who would.
        let both = [(); 2].map(|()| LOCK.read().even_poisoned().blocking().unwrap());
        assert_eq!((*both[0], *both[1]), (1, 1));
        let mut waits = Hand::by(&worker("next", 3), LOCK.write()).waiting();
        drop(both);
        told(waits.ready().map(drop).unwrap_err(), &parts);
        LOCK.clear_poison();
        // Work that is dropped unfinished, also while others wait to read.
        let work = Hand::by(&culprit, LOCK.with(async |_| pause().await)).waiting();
        let mut waits = [(); 2].map(|()| Hand::by(&worker("next", 3), LOCK.read()).waiting());
        drop(work);
        for waits in &mut waits {
            told(waits.ready().map(drop).unwrap_err(), &["culprit", "dropped its work unfinished"]);
        }
        assert!(!LOCK.is_locked());
        LOCK.clear_poison();
        assert_eq!(pollster::block_on(LOCK.with(async |value| *value)).unwrap(), 1);
    }
    // Nor does anything where nobody asked for it.
    let plain = RwLock::new(2);
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _guard = plain.try_write().unwrap();
        panic!("on purpose")
    }));
    assert!(unwound.is_err() && !plain.is_poisoned());
    assert_eq!(*plain.try_read().unwrap(), 2);
}

#[test]
fn parts_of_a_value() {
    let lock = RwLock::new((1, String::from("one")));
    let (name, number) =
        (RwLockReadGuard::map(lock.try_read().unwrap(), |pair| &pair.1), RwLockReadGuard::map(lock.try_read().unwrap(), |pair| &pair.0));
    assert_eq!((&**name, *number, format!("{name} {number:?}").as_str()), ("one", 1, "one 1"));
    let letters = RwLockReadGuard::map(name, String::as_bytes);
    let letters = RwLockReadGuard::filter_map(letters, |letters| letters.get(3)).unwrap_err();
    let last = RwLockReadGuard::filter_map(letters, <[u8]>::last).unwrap();
    drop(number);
    assert_eq!(*last, b'e');
    assert!(lock.try_write().unwrap_err().is_would_block());
    // A part is as much a hold as the whole, whoever has it.
    let heir = worker("heir", 0);
    last.transfer_to(&heir);
    assert!(Hand::by(&heir, lock.write()).ready().unwrap_err().is_deadlock());
    drop(last);
    let mut text = RwLockWriteGuard::map(lock.try_write().unwrap(), |pair| pair.1.as_mut_str());
    text.make_ascii_uppercase();
    assert_eq!((&*text, lock.is_locked()), ("ONE", true));
    drop(text);
    let whole = RwLockWriteGuard::filter_map(lock.try_write().unwrap(), |_| None::<&mut u8>).unwrap_err();
    let mut number = RwLockWriteGuard::filter_map(whole, |pair| Some(&mut pair.0)).unwrap();
    *number += 1;
    drop(number);
    assert_eq!(lock.into_inner(), (2, "ONE".into()));
}

#[test]
fn owned_guards_outlive_their_lock() {
    let lock = Arc::new(RwLock::new(vec![1]));
    let mut guard = pollster::block_on(lock.write_owned()).unwrap();
    guard.push(2);
    assert!(lock.read_owned().timeout(ms(0)).blocking().unwrap_err().is_timeout());
    drop(guard);
    let guards = [(); 2].map(|()| lock.read_owned().blocking().unwrap());
    drop(lock);
    let [first, second] = guards;
    assert_eq!(format!("{first:?} {second:?}"), "[1, 2] [1, 2]");
    std::thread::spawn(move || drop(first)).join().unwrap();
    assert_eq!(*second, [1, 2]);
}

#[test]
fn parts_of_a_value_that_outlive_their_lock() {
    let (domain, _) = domain();
    let lock = Arc::new(RwLock::new((1, String::from("one"))).in_domain(&domain));
    let name = OwnedRwLockReadGuard::map(lock.try_read_owned().unwrap(), |pair| pair.1.as_str());
    let number = OwnedRwLockReadGuard::filter_map(lock.try_read_owned().unwrap(), |pair| Some(&pair.0)).unwrap();
    assert_eq!((&*name, *number, format!("{name:?}").as_str()), ("one", 1, "\"one\""));
    assert!(lock.try_write_owned().unwrap_err().is_would_block());
    drop(number);
    let letters = OwnedRwLockReadGuard::map(name, str::as_bytes);
    let letters = OwnedRwLockReadGuard::filter_map(letters, |letters| letters.get(3)).unwrap_err();
    // A part is as much a hold as the whole, whoever has it.
    let heir = worker("heir", 0);
    letters.transfer_to(&heir);
    assert!(Hand::by(&heir, lock.write()).ready().unwrap_err().is_deadlock());
    drop(letters);
    let mut text = OwnedRwLockWriteGuard::map(lock.try_write_owned().unwrap(), |pair| pair.1.as_mut_str());
    text.make_ascii_uppercase();
    assert_eq!((&*text, lock.is_locked()), ("ONE", true));
    drop(text);
    let whole = OwnedRwLockWriteGuard::filter_map(lock.try_write_owned().unwrap(), |_| None::<&mut u8>).unwrap_err();
    let mut number = OwnedRwLockWriteGuard::filter_map(whole, |pair| Some(&mut pair.0)).unwrap();
    *number += 1;
    drop(lock);
    // The last one drops the value.
    let number = std::thread::spawn(move || *number).join().unwrap();
    assert_eq!(number, 2);
    assert_idle(&domain);
}

/// A value of no known size, of which a part is given, and a lock that ends with its last guard: everything is dropped once.
#[test]
fn an_owned_part_of_what_has_no_size() {
    struct Told(Arc<AtomicUsize>);
    impl Drop for Told {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let drops = Arc::new(AtomicUsize::new(0));
    let list: Arc<RwLock<[Told]>> = Arc::new(RwLock::new([0; 3].map(|_| Told(Arc::clone(&drops)))));
    let mut first = OwnedRwLockWriteGuard::map(list.try_write_owned().unwrap(), |list| &mut list[0]);
    *first = Told(Arc::clone(&drops));
    assert_eq!(drops.load(Ordering::Relaxed), 1);
    drop(first);
    let guard = OwnedRwLockWriteGuard::downgrade(list.try_write_owned().unwrap());
    let third = OwnedRwLockReadGuard::map(guard, |list| &list[2]);
    drop(list);
    assert_eq!((drops.load(Ordering::Relaxed), Arc::strong_count(&third.0)), (1, 4));
    drop(third);
    assert_eq!(drops.load(Ordering::Relaxed), 4);
}

#[test]
fn owned_guards_hold_in_other_ways() {
    let (domain, _, lock) = shared();
    let lock = Arc::new(lock);
    let (low, high) = (worker("low", 1), worker("high", 8));
    let mut guard = low.scope(|| lock.try_write_owned()).unwrap();
    *guard = 3;
    let mut reads = Hand::by(&high, lock.read_owned()).waiting();
    let guard = OwnedRwLockWriteGuard::downgrade(guard);
    assert_eq!((*guard, *reads.ready().unwrap(), reads.wakes()), (3, 3, 1));
    drop((guard, reads));
    let mut writes = low.scope(|| lock.try_write_owned()).map(OwnedRwLockWriteGuard::downgrade_to_upgradable).unwrap();
    let reader = high.scope(|| lock.try_read_owned()).unwrap();
    assert!(high.scope(|| lock.try_upgradable_owned()).unwrap_err().is_would_block());
    assert!(writes.try_upgrade().is_err());
    drop(reader);
    *writes.try_upgrade().unwrap() += 1;
    drop(writes);
    assert_eq!(*lock.try_upgradable_owned().unwrap(), 4);
    assert_idle(&domain);
}
