//! Upgradable readers in the graph: who is beside whom, upgrades and downgrades; one rule each.

use std::num::NonZeroU32;

use crate::common::graph_sentences::World;
use crate::common::graph_upgrade_sentences::{S, U, X};
use heirlock::local::graph::{Acquired, Counts, Displaced, Kind, Left, LockSpec, Order, Released, Request, State};

#[test]
fn it_is_beside_readers_but_no_writer_and_no_other() {
    for (held, wanted, beside) in [(S, U, true), (U, S, true), (U, U, false), (U, X, false), (X, U, false)] {
        let mut world = World::default();
        let lock = world.rwlock();
        let [one, two] = [1, 2].map(|base| world.worker(base));
        world.has(one, lock, held);
        let tried = world.graph.try_acquire(&Request::new(two, lock, wanted), &mut world.effects);
        assert_eq!(tried, beside.then_some(Acquired::Held(1)), "{held:?} {wanted:?}");
        world.release(two, lock);
        assert_eq!(world.ask(two, lock, wanted) == Acquired::Held(1), beside, "{held:?} {wanted:?}");
        assert!(world.graph.is_sound());
    }
}

#[test]
fn anywhere_else_it_means_exclusive() {
    let mut world = World::default();
    let (mutex, semaphore) = (world.lock(Kind::Mutex), world.graph.add_lock(LockSpec { permits: 1, ..LockSpec::new(Kind::Semaphore) }));
    let worker = world.worker(1);
    world.has(worker, mutex, U);
    assert_eq!(world.held(worker, mutex), Some((X, 1)));
    assert_eq!(world.ask(worker, semaphore, U), Acquired::Held(0));
    for lock in [mutex, semaphore] {
        assert_eq!(world.upgrade(worker, lock), None);
        assert_eq!(world.graph.try_upgrade(worker, lock, &mut world.effects), None);
        assert!(!world.downgrade(worker, lock, S));
    }
    assert_eq!(world.release_mode(worker, mutex, U), Released::Freed);
}

#[test]
fn who_is_alone_is_upgraded_at_once() {
    let mut world = World::default();
    let lock = world.rwlock();
    let [one, two] = [1, 2].map(|base| world.worker(base));
    world.has(one, lock, U);
    assert_eq!(world.upgrade(one, lock), Some(Acquired::Held(1)));
    assert_eq!(world.held(one, lock), Some((X, 1)));
    // It is exclusive already.
    assert_eq!(world.upgrade(one, lock), Some(Acquired::Held(1)));
    assert_eq!(world.graph.try_acquire(&Request::new(two, lock, S), &mut world.effects), None);
    assert!(world.downgrade(one, lock, U));
    assert_eq!(world.graph.try_upgrade(one, lock, &mut world.effects), Some(Acquired::Held(1)));
    assert_eq!(world.release(one, lock), Released::Freed);
}

#[test]
fn it_waits_for_the_last_other_reader_and_boosts_them_all() {
    let mut world = World::default();
    let lock = world.rwlock();
    let [high, one, two] = [9, 1, 2].map(|base| world.worker(base));
    world.has(one, lock, S);
    world.has(high, lock, U);
    world.has(two, lock, S);
    assert_eq!(world.graph.try_upgrade(high, lock, &mut world.effects), None);
    let wait = world.waits_to_upgrade(high, lock);
    assert_eq!([high, one, two].map(|worker| world.eff(worker)), [9; 3]);
    world.release(one, lock);
    assert_eq!((world.effects.granted.len(), world.eff(one)), (0, 1));
    world.release(two, lock);
    assert_eq!((world.effects.granted.as_slice(), world.eff(two)), (&[wait][..], 2));
    assert_eq!(world.held(high, lock), Some((X, 1)));
    assert!(world.graph.take(wait, &mut world.effects));
    assert_eq!(world.release(high, lock), Released::Freed);
    assert_eq!(world.graph.counts(), Counts { workers: 3, locks: 1, waits: 0, holds: 0 });
}

#[test]
fn an_upgrade_inherits_and_passes_it_on() {
    let mut world = World::default();
    let (lock, mutex) = (world.rwlock(), world.lock(Kind::Mutex));
    let [upgrader, reader, high] = [1, 1, 9].map(|base| world.worker(base));
    world.has(upgrader, lock, U);
    world.has(reader, lock, S);
    world.hold(upgrader, mutex);
    world.waits_to_upgrade(upgrader, lock);
    let wait = world.wait(high, mutex);
    assert_eq!((world.eff(upgrader), world.eff(reader)), (9, 9));
    world.graph.cancel(wait, &mut world.effects);
    assert_eq!((world.eff(upgrader), world.eff(reader)), (1, 1));
}

#[test]
fn it_is_before_all_others_however_urgent() {
    for order in [Order::Priority, Order::Deadline, Order::Fifo] {
        let mut world = World::default();
        let lock = world.graph.add_lock(LockSpec { order, bypass: NonZeroU32::new(1), ..LockSpec::new(Kind::RwLock) });
        let [reader, upgrader, top, other] = [1, i32::MIN, i32::MAX, 5].map(|base| world.worker(base));
        world.has(reader, lock, S);
        world.has(upgrader, lock, U);
        let request = Request { deadline: Some(0), ..Request::new(top, lock, X) };
        let Acquired::Queued(writer) = world.graph.acquire(&request, &mut world.effects) else { panic!() };
        let upgrade = world.waits_to_upgrade(upgrader, lock);
        // A reader that comes now is behind it, too.
        let behind = world.wait_as(other, lock, S);
        assert_eq!(world.graph.queue(lock)[0], upgrade, "{order:?}");
        // Its own urgency is what it gives, not its place.
        assert_eq!((world.eff(reader), world.graph.effective_deadline(reader)), (i32::MAX, Some(0)));
        world.graph.cancel(writer, &mut world.effects);
        assert_eq!((world.eff(reader), world.graph.effective_deadline(reader)), (5, None));
        world.graph.cancel(behind, &mut world.effects);
        assert_eq!(world.eff(reader), 1);
        world.graph.set_base(upgrader, 7, &mut world.effects);
        assert_eq!(world.eff(reader), 7);
        world.release(reader, lock);
        assert_eq!(world.effects.granted, [upgrade]);
    }
}

#[test]
fn it_goes_before_who_is_overdue() {
    let mut world = World::default();
    let lock = world.graph.add_lock(LockSpec { bypass: NonZeroU32::new(1), ..LockSpec::new(Kind::RwLock) });
    let [upgrader, old, joins, high] = [1, 0, 9, 9].map(|base| world.worker(base));
    world.has(upgrader, lock, U);
    let old = world.wait_as(old, lock, X);
    world.has(joins, lock, S);
    let high = world.wait_as(high, lock, X);
    let upgrade = world.waits_to_upgrade(upgrader, lock);
    assert_eq!(world.graph.queue(lock), [upgrade, old, high]);
    world.release(joins, lock);
    assert_eq!(world.effects.granted, [upgrade]);
}

#[test]
fn it_counts_as_no_grant_to_another() {
    let mut world = World::default();
    let lock = world.graph.add_lock(LockSpec { bypass: NonZeroU32::new(1), ..LockSpec::new(Kind::RwLock) });
    let [upgrader, reader, old, high] = [1, 1, 0, 9].map(|base| world.worker(base));
    world.has(upgrader, lock, U);
    world.has(reader, lock, S);
    let old = world.wait_as(old, lock, X);
    let upgrade = world.waits_to_upgrade(upgrader, lock);
    world.release(reader, lock);
    assert_eq!(world.effects.granted, [upgrade]);
    let high = world.wait_as(high, lock, X);
    // The upgrade did not pass the old one, so that is not overdue.
    assert_eq!(world.graph.queue(lock), [high, old]);
    assert!(world.graph.take(upgrade, &mut world.effects) && world.downgrade(upgrader, lock, U));
    world.release(upgrader, lock);
    assert_eq!(world.effects.granted, [high]);
    assert_eq!(world.graph.queue(lock), [old]);
}

#[test]
fn what_ends_an_upgrade_leaves_it_upgradable_and_lets_in_who_waited_behind() {
    for way in ["cancel", "expire", "pass by"] {
        let mut world = World::default();
        let lock = world.rwlock();
        let [upgrader, reader, late] = [1, 1, 5].map(|base| world.worker(base));
        world.has(upgrader, lock, U);
        world.has(reader, lock, S);
        let request = Request { expires: Some(100), ..Request::new(upgrader, lock, X) };
        let Some(Acquired::Queued(upgrade)) = world.graph.upgrade(&request, &mut world.effects) else { panic!() };
        let behind = world.wait_as(late, lock, S);
        world.effects.clear();
        match way {
            "cancel" => assert_eq!(world.graph.cancel(upgrade, &mut world.effects), Left::Queued),
            "expire" => assert_eq!(world.graph.expire(upgrade, &mut world.effects), Left::Queued),
            _ => {
                world.graph.advance(100);
                world.release(reader, lock);
                assert_eq!(world.effects.expired, [upgrade]);
            }
        }
        assert_eq!(world.effects.granted, [behind], "{way}");
        assert_eq!(world.held(upgrader, lock), Some((U, 1)));
        assert!(world.graph.is_sound());
    }
}

#[test]
fn a_granted_upgrade_that_is_given_back_leaves_it_upgradable() {
    for way in ["cancel", "take over", "read", "dismiss"] {
        let mut world = World::default();
        let lock = world.rwlock();
        let [upgrader, reader, late] = [1, 1, 5].map(|base| world.worker(base));
        world.has(upgrader, lock, U);
        world.has(reader, lock, S);
        let upgrade = world.waits_to_upgrade(upgrader, lock);
        let behind = world.wait_as(late, lock, S);
        world.release(reader, lock);
        assert_eq!(world.effects.granted, [upgrade]);
        world.effects.clear();
        match way {
            "cancel" => assert_eq!(world.graph.cancel(upgrade, &mut world.effects), Left::Granted),
            "take over" => assert!(world.graph.take_over(upgrade, &mut world.effects).is_some()),
            // It asks for something else, so it was no upgrade that it wanted.
            "read" => assert_eq!(world.ask(upgrader, lock, S), Acquired::Held(2)),
            _ => assert!(world.graph.dismiss(lock, &mut world.effects)),
        }
        let granted = if way == "dismiss" { vec![] } else { vec![behind] };
        assert_eq!(world.effects.granted, granted, "{way}");
        assert_eq!(world.held(upgrader, lock), Some((U, if way == "read" { 2 } else { 1 })));
        assert!(world.graph.is_sound());
    }
}

#[test]
fn an_untaken_upgrade_belongs_to_its_worker_and_to_an_upgrade() {
    let mut world = World::default();
    let lock = world.rwlock();
    let [upgrader, reader] = [1, 1].map(|base| world.worker(base));
    world.has(upgrader, lock, U);
    world.has(reader, lock, S);
    let first = world.waits_to_upgrade(upgrader, lock);
    // A second takes the place of the first.
    let second = world.waits_to_upgrade(upgrader, lock);
    assert_eq!(world.effects.displaced, [Displaced { wait: first, arrival: 2 }]);
    world.release(reader, lock);
    assert_eq!(world.effects.granted, [second]);
    // To write is something else: for that it gives the grant back, and who is upgradable may not ask.
    assert!(matches!(world.ask(upgrader, lock, X), Acquired::Deadlock(_)));
    assert_eq!(world.effects.displaced, [Displaced { wait: second, arrival: 3 }]);
    assert_eq!(world.held(upgrader, lock), Some((U, 1)));
    world.has(reader, lock, S);
    let third = world.waits_to_upgrade(upgrader, lock);
    world.release(reader, lock);
    assert_eq!(world.upgrade(upgrader, lock), Some(Acquired::Held(1)));
    assert_eq!(world.effects.displaced, [Displaced { wait: third, arrival: 5 }]);
    assert_eq!(world.release(upgrader, lock), Released::Freed);
}

#[test]
fn downgrading_lets_in_who_may_be_beside_it_now() {
    for (from, to, readers, other) in [(X, U, true, false), (X, S, true, true), (U, S, false, true)] {
        let mut world = World::default();
        let lock = world.rwlock();
        let [holder, one, two] = [1, 5, 5].map(|base| world.worker(base));
        world.has(holder, lock, from);
        let reading = if readers { world.wait_as(one, lock, S) } else { world.wait_as(one, lock, U) };
        let upgradable = world.wait_as(two, lock, U);
        assert!(world.downgrade(holder, lock, to));
        assert_eq!(world.held(holder, lock), Some((to, 1)));
        let granted = if readers && other { vec![reading, upgradable] } else { vec![reading] };
        assert_eq!(world.effects.granted, granted, "{from:?} {to:?}");
        assert!(!world.downgrade(holder, lock, X) && !world.downgrade(holder, lock, to));
    }
}

#[test]
fn who_reads_beside_its_upgradable_hold_gives_up_either_first() {
    for reads_first in [true, false] {
        for gives_reads_first in [true, false] {
            let mut world = World::default();
            let lock = world.rwlock();
            let [one, other] = [1, 2].map(|base| world.worker(base));
            for mode in if reads_first { [S, U, S] } else { [U, S, S] } {
                world.has(one, lock, mode);
            }
            assert_eq!(world.held(one, lock), Some((U, 3)));
            let wait = world.wait_as(other, lock, U);
            assert_eq!(world.release_mode(one, lock, X), Released::NotHeld);
            if gives_reads_first {
                assert_eq!(world.release_mode(one, lock, S), Released::Kept(2));
                assert_eq!(world.release_mode(one, lock, S), Released::Kept(1));
                // It has no more to read.
                assert_eq!(world.release_mode(one, lock, S), Released::NotHeld);
                assert_eq!(world.held(one, lock), Some((U, 1)));
                assert_eq!(world.release_mode(one, lock, U), Released::Freed);
                assert_eq!(world.effects.granted, [wait]);
            } else {
                assert_eq!(world.release_mode(one, lock, U), Released::Kept(2));
                assert_eq!(world.effects.granted, [wait]);
                assert_eq!(world.held(one, lock), Some((S, 2)));
                assert_eq!(world.release_mode(one, lock, U), Released::NotHeld);
                assert_eq!(world.release_mode(one, lock, S), Released::Kept(1));
                assert_eq!(world.release_mode(one, lock, S), Released::Freed);
            }
            assert!(world.graph.is_sound());
        }
    }
}

#[test]
fn who_becomes_more_urgent_than_who_would_be_upgradable_reads() {
    let mut world = World::default();
    let lock = world.rwlock();
    let [first, next, reader] = [1, 9, 5].map(|base| world.worker(base));
    world.has(first, lock, U);
    world.wait_as(next, lock, U);
    // The order of the queue is strict: it is behind, though it could read.
    let wait = world.wait_as(reader, lock, S);
    world.graph.set_base(reader, 10, &mut world.effects);
    assert_eq!(world.effects.granted, [wait]);
}

#[test]
fn an_upgrade_loses_its_place_with_what_it_would_upgrade() {
    for way in ["release", "release mode", "transfer", "downgrade"] {
        let mut world = World::default();
        let lock = world.rwlock();
        let [upgrader, reader, other] = [1, 1, 5].map(|base| world.worker(base));
        world.has(upgrader, lock, U);
        world.has(reader, lock, S);
        let upgrade = world.waits_to_upgrade(upgrader, lock);
        world.effects.clear();
        match way {
            "release" => assert_eq!(world.release(upgrader, lock), Released::Freed),
            "release mode" => assert_eq!(world.release_mode(upgrader, lock, U), Released::Freed),
            "transfer" => assert!(world.graph.transfer(lock, upgrader, other, &mut world.effects)),
            _ => assert!(world.downgrade(upgrader, lock, S)),
        }
        assert_eq!(world.effects.displaced, [Displaced { wait: upgrade, arrival: 2 }], "{way}");
        assert_eq!(world.graph.waiting(lock), 0);
        let left = if way == "downgrade" { Some((S, 1)) } else { None };
        assert_eq!((world.held(upgrader, lock), world.upgrade(upgrader, lock)), (left, None));
    }
}

#[test]
fn an_upgradable_hold_can_change_hands() {
    let mut world = World::default();
    let lock = world.rwlock();
    let [giver, getter] = [1, 2].map(|base| world.worker(base));
    world.has(giver, lock, U);
    world.has(giver, lock, S);
    world.has(getter, lock, S);
    assert!(world.graph.transfer(lock, giver, getter, &mut world.effects));
    assert_eq!((world.held(giver, lock), world.held(getter, lock)), (None, Some((U, 3))));
    // What was taken without the graph is known as it was.
    let other = world.rwlock();
    assert!(world.graph.hold(giver, other, S, 1, &mut world.effects) && world.graph.hold(getter, other, U, 2, &mut world.effects));
    assert_eq!((world.held(giver, other), world.held(getter, other)), (Some((S, 1)), Some((U, 2))));
    assert!(world.graph.hold(giver, other, S, 1, &mut world.effects) && world.graph.is_sound());
}

#[test]
fn a_removed_worker_leaves_no_upgrade() {
    let mut world = World::default();
    let lock = world.rwlock();
    let [upgrader, reader, late] = [1, 1, 5].map(|base| world.worker(base));
    world.has(upgrader, lock, U);
    world.has(reader, lock, S);
    let upgrade = world.waits_to_upgrade(upgrader, lock);
    let behind = world.wait_as(late, lock, U);
    world.effects.clear();
    assert!(world.graph.remove_worker(upgrader, &mut world.effects));
    assert_eq!((world.effects.removed.as_slice(), world.effects.granted.as_slice()), (&[upgrade][..], &[behind][..]));
    // Granted and not taken, too.
    let upgrade = world.waits_to_upgrade(late, lock);
    world.release(reader, lock);
    assert_eq!(world.graph.wait(upgrade).unwrap().state, State::Granted);
    world.effects.clear();
    assert!(world.graph.remove_worker(late, &mut world.effects));
    assert_eq!((world.effects.removed.as_slice(), world.owners(lock).len()), (&[upgrade][..], 0));
    assert!(world.graph.is_sound());
}
