//! What a domain says to the log: long holds, cycles that may be deadlocks, locks taken in both orders.

use std::panic::Location;
use std::time::Duration;

use crate::common::local::ms;
use crate::common::polls::{Hand, everywhere, once};
use crate::common::traced::{self, listen, said, unique};
use heirlock::Worker;
use heirlock::clock::ManualClock;
use heirlock::local::{Condvar, Domain, Mutex, OnceCell, RLock, RwLock, Semaphore};

/// Waits until that has been said, while the clock goes on by so much at a time.
#[track_caller]
fn hears(part: &str, clock: &ManualClock, step: Duration) -> String {
    traced::hears(part, || clock.advance(step))
}

#[track_caller]
fn line() -> String {
    let here = Location::caller();
    format!("{}:{}", here.file(), here.line())
}

#[test]
fn a_long_hold_is_told_of_when_it_is_released() {
    listen();
    everywhere(|| async {
        let clock = ManualClock::new();
        let domain = Domain::builder().clock(clock.clone()).warn_after(ms(100)).build();
        let (short, long) = (unique("short"), unique("long"));
        let (brief, slow) = (Mutex::named(short, ()).in_domain(&domain), Mutex::named(long, ()).in_domain(&domain));
        let guards = Worker::new("sluggard").scope(|| (brief.try_lock().unwrap(), slow.try_lock().unwrap()));
        let acquired = line();
        clock.advance(ms(99));
        drop(guards.0);
        clock.advance(ms(151));
        drop(guards.1);
        let lines = said(long);
        let line = &acquired[..acquired.rfind(':').unwrap()];
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].starts_with(&format!("a lock was held for long lock=lock \"{long}\" worker=worker \"sluggard\" site={line}:")),
            "{lines:?}"
        );
        assert!(lines[0].ends_with("held_ms=250"), "{lines:?}");
        assert!(said(short).is_empty(), "not as long as that");
    });
}

#[test]
fn a_long_hold_is_told_of_while_it_stands_if_somebody_waits() {
    listen();
    everywhere(|| async {
        let clock = ManualClock::new();
        let domain = Domain::builder().clock(clock.clone()).warn_after(ms(100)).build();
        let (alone, wanted) = (unique("alone"), unique("wanted"));
        let (quiet, busy) = (Mutex::named(alone, ()).in_domain(&domain), Mutex::named(wanted, ()).in_domain(&domain));
        let guards = Worker::new("sluggard").scope(|| (quiet.try_lock().unwrap(), busy.try_lock().unwrap()));
        let next = Worker::new("next");
        let mut waits = Box::pin(next.run(busy.lock()));
        assert!(once(&mut waits).await.is_pending());
        // Enough of it, so that it is told in time or never.
        let line = hears(wanted, &clock, ms(100));
        assert!(line.starts_with("a lock is held for long, and others wait for it") && line.ends_with("waiting=1"), "{line}");
        assert!(line.contains("worker=worker \"sluggard\""), "{line}");
        // The next holder starts anew, and is told of if somebody waits for it.
        drop(guards.1);
        let guard = waits.await.unwrap();
        let third = Worker::new("third");
        let mut waits = Box::pin(third.run(busy.lock()));
        assert!(once(&mut waits).await.is_pending());
        let name = format!("lock \"{wanted}\" worker=worker \"next\"");
        let line = hears(&name, &clock, ms(100));
        assert!(line.starts_with("a lock is held for long"), "{line}");
        drop(guard);
        drop(waits.await.unwrap());
        let of_first: Vec<_> = said(wanted).into_iter().filter(|line| line.contains("sluggard")).collect();
        assert_eq!(of_first.len(), 2, "once while it was held, once at its release: {of_first:?}");
        assert!(said(alone).is_empty(), "nobody waits for it");
        drop(guards.0);
        assert_eq!(domain.records(), [0; 7]);
    });
}

#[test]
fn a_hold_that_is_wanted_in_a_row_is_told_of_again() {
    listen();
    let clock = ManualClock::new();
    let domain = Domain::builder().clock(clock.clone()).warn_after(ms(100)).build();
    let name = unique("row");
    let lock = Mutex::named(name, ()).in_domain(&domain);
    let [first, second, third] = ["first", "second", "third"].map(Worker::new);
    let guard = first.scope(|| lock.try_lock().unwrap());
    let mut waits = [Hand::by(&second, lock.lock()).waiting(), Hand::by(&third, lock.lock()).waiting()];
    hears(&format!("{name}\" worker=worker \"first\""), &clock, ms(100));
    // Nobody queues from here on: the hand-over itself must set the next look.
    drop(guard);
    let guard = waits[0].ready().unwrap();
    let line = hears(&format!("{name}\" worker=worker \"second\""), &clock, ms(100));
    assert!(line.ends_with("waiting=1"), "{line}");
    drop(guard);
    drop(waits);
}

/// Anonymous acquires and bare tasks may have other arms: what looks like a deadlock is told of when it lasts.
#[test]
fn a_suspected_cycle_is_told_of_once_it_has_stood_for_stall_time() {
    listen();
    let clock = ManualClock::new();
    let domain = Domain::builder().clock(clock.clone()).stall_time(ms(1000)).build();
    // A worker that waits for two locks at once is on no certain cycle.
    let circle = |names: [&'static str; 3]| names.map(|name| Mutex::named(name, ()).in_domain(&domain));
    let (gone, stays) = ([unique("gone"), unique("gone"), unique("gone")], [unique("stays"), unique("stays"), unique("stays")]);
    let (gone_locks, stays_locks) = (circle(gone), circle(stays));
    let close = |locks: &'static [Mutex<()>; 3]| {
        let (one, other) = (Worker::new("one"), Worker::new("other"));
        let guards =
            (one.scope(|| locks[0].try_lock().unwrap()), other.scope(|| [locks[1].try_lock().unwrap(), locks[2].try_lock().unwrap()]));
        let waits = [
            Hand::by(&one, locks[1].lock()).waiting(),
            Hand::by(&one, locks[2].lock()).waiting(),
            Hand::by(&other, locks[0].lock()).waiting(),
        ];
        (guards, waits)
    };
    let (gone_locks, stays_locks): (&'static _, &'static _) = (Box::leak(Box::new(gone_locks)), Box::leak(Box::new(stays_locks)));
    let first = close(gone_locks);
    assert!(!domain.snapshot().suspected.is_empty());
    drop(first);
    let second = close(stays_locks);
    let line = hears(stays[0], &clock, ms(500));
    assert!(line.starts_with("these workers wait for each other, which may be a deadlock cycle=worker"), "{line}");
    assert!(line.contains("(at ") && line.contains("local/warnings.rs:"), "{line}");
    // Much later: nothing is told twice, and what was gone, never. The last of a third cycle is heard after all of that.
    let third_names = [unique("third"), unique("third"), unique("third")];
    let third_locks: &'static _ = Box::leak(Box::new(circle(third_names)));
    let third = close(third_locks);
    hears(third_names[0], &clock, ms(500));
    let cycles = said(stays[0]).len();
    assert!(said(gone[0]).is_empty() && said(gone[1]).is_empty());
    drop(third);
    let fourth_names = [unique("fourth"), unique("fourth"), unique("fourth")];
    let fourth = close(Box::leak(Box::new(circle(fourth_names))));
    hears(fourth_names[0], &clock, ms(500));
    assert_eq!(said(stays[0]).len(), cycles, "once each cycle");
    drop(fourth);
    drop(second);
    assert!(domain.snapshot().suspected.is_empty());
    assert_eq!(domain.records(), [0; 7]);
}

#[test]
fn both_orders_are_told_of_before_they_deadlock() {
    listen();
    everywhere(|| async {
        let domain = Domain::builder().check_order(true).build();
        let (db, cache) = (unique("db"), unique("cache"));
        let (one, other) = (Mutex::named(db, ()).in_domain(&domain), Mutex::named(cache, ()).in_domain(&domain));
        let (import, sweep) = (Worker::new("import"), Worker::new("sweep"));
        let nested = async |outer: &Mutex<()>, inner: &Mutex<()>| {
            let _outer = outer.lock().await.unwrap();
            drop(inner.lock().await.unwrap());
        };
        import.run(nested(&one, &other)).await;
        // Without waiting, nothing can deadlock.
        sweep.run(async { drop((other.lock().await.unwrap(), one.try_lock().unwrap())) }).await;
        assert!(said(db).is_empty() && domain.snapshot().inversions.is_empty());
        for _ in 0..3 {
            sweep.run(nested(&other, &one)).await;
            import.run(nested(&one, &other)).await;
        }
        let lines = said(db);
        assert_eq!(lines.len(), 1, "{lines:?}");
        let inversions = domain.snapshot().inversions;
        assert_eq!(inversions.len(), 1);
        assert!(lines[0].ends_with(&inversions[0]), "{lines:?}");
        let start = format!("worker \"sweep\" wanted lock \"{db}\" at ");
        let before = format!("but before worker \"import\" wanted lock \"{cache}\" at ");
        assert!(inversions[0].starts_with(&start) && inversions[0].contains(&before), "{inversions:?}");
        assert_eq!(inversions[0].matches("local/warnings.rs:").count(), 4, "{inversions:?}");
        assert_eq!(domain.records(), [0; 7]);
    });
}

/// The order counts also where a lock had to be waited for, and a hold counts that was handed over.
#[test]
fn orders_are_learned_of_locks_that_are_waited_for() {
    listen();
    let domain = Domain::builder().check_order(true).build();
    let (db, cache) = (unique("db"), unique("cache"));
    let (one, other) = (Mutex::named(db, ()).in_domain(&domain), Mutex::named(cache, ()).in_domain(&domain));
    let [holder, import, sweep] = ["holder", "import", "sweep"].map(Worker::new);
    let guard = holder.scope(|| one.try_lock().unwrap());
    let mut waits = Hand::by(&import, one.lock()).waiting();
    drop(guard);
    let granted = waits.ready().unwrap();
    drop(Hand::by(&import, other.lock()).ready().unwrap());
    drop(granted);
    let guards = (sweep.scope(|| other.try_lock().unwrap()), holder.scope(|| one.try_lock().unwrap()));
    let waits = Hand::by(&sweep, one.lock()).waiting();
    assert_eq!(domain.snapshot().inversions.len(), 1, "though it has not got the lock");
    // A guard that went to another worker is that worker's.
    drop(waits);
    guards.0.transfer_to(&holder);
    drop(guards);
    assert_eq!(domain.records(), [0; 7]);
}

/// A hold ends also where a condition gives it up, all levels of it, and where a cell has its value. Nobody nests in a condition.
#[test]
fn holds_that_conditions_and_cells_end_are_told_of() {
    listen();
    let clock = ManualClock::new();
    let domain = Domain::builder().clock(clock.clone()).warn_after(ms(100)).check_order(true).build();
    let (state, cell) = (unique("state"), unique("cell"));
    let (lock, changed) = (RLock::named(state, ()).in_domain(&domain), Condvar::named(unique("changed")).in_domain(&domain));
    let value = OnceCell::named(cell).in_domain(&domain);
    let [waiter, maker] = ["waiter", "maker"].map(Worker::new);
    let mut guard = waiter.scope(|| lock.try_lock().unwrap());
    guard.merge(waiter.scope(|| lock.try_lock().unwrap()));
    clock.advance(ms(150));
    let mut waits = Hand::by(&waiter, changed.wait(guard)).waiting();
    let lines = said(state);
    assert!(lines.len() == 1 && lines[0].contains("a lock was held for long") && lines[0].ends_with("held_ms=150"), "{lines:?}");
    assert!(!lock.is_locked());
    assert!(changed.notify_one());
    let guard = waits.ready().unwrap();
    clock.advance(ms(99));
    drop(guard);
    assert_eq!(said(state).len(), 1, "a new hold, and a short one");
    let mut making = Hand::by(&maker, value.get_or_init(async || clock.advance(ms(170))));
    making.ready().unwrap();
    drop(making);
    let lines = said(cell);
    assert!(lines.len() == 1 && lines[0].ends_with("held_ms=170"), "{lines:?}");
    assert!(domain.snapshot().inversions.is_empty());
    drop(waits);
    assert_eq!(domain.records(), [0; 7]);
}

/// Of permits when the last of them is given back, of readers each for itself.
#[test]
fn holds_of_permits_and_readers_are_told_of() {
    listen();
    let clock = ManualClock::new();
    let domain = Domain::builder().clock(clock.clone()).warn_after(ms(100)).build();
    let (pool, table) = (unique("pool"), unique("table"));
    let (permits, lock) = (Semaphore::named(pool, 3).in_domain(&domain), RwLock::named(table, ()).in_domain(&domain));
    let [one, two] = ["one", "two"].map(Worker::new);
    let mut held = one.scope(|| permits.try_acquire_many(3)).unwrap();
    let [first, second] = [&one, &two].map(|worker| worker.scope(|| lock.try_read()).unwrap());
    clock.advance(ms(150));
    drop(held.split(2));
    assert!(said(pool).is_empty(), "one is still held");
    drop(held);
    let lines = said(pool);
    assert!(lines.len() == 1 && lines[0].contains("worker=worker \"one\"") && lines[0].ends_with("held_ms=150"), "{lines:?}");
    drop(second);
    let lines = said(table);
    assert!(lines.len() == 1 && lines[0].contains("worker=worker \"two\"") && lines[0].ends_with("held_ms=150"), "{lines:?}");
    drop(first);
    assert_eq!(said(table).len(), 2);
    // Somebody waits: those who hold are told of while they do.
    let held = one.scope(|| permits.try_acquire()).unwrap();
    let waits = Hand::by(&two, permits.acquire_many(3)).waiting();
    let line = hears(&format!("a lock is held for long, and others wait for it lock=semaphore {pool:?}"), &clock, ms(100));
    assert!(line.contains("worker=worker \"one\"") && line.ends_with("waiting=1"), "{line}");
    drop((waits, held));
    assert_eq!(domain.records(), [0; 7]);
}
