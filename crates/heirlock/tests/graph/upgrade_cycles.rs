//! Upgradable readers in the graph: who waits for itself or in a circle, and who is let in; one rule each.

use crate::common::graph_sentences::World;
use crate::common::graph_upgrade_sentences::{S, U, X};
use heirlock::local::graph::{Acquired, DeadlockPolicy, Kind, On, Origin, Released};

#[test]
fn its_own_reads_are_in_its_way() {
    let mut world = World::default();
    let lock = world.rwlock();
    let (explicit, bare) = (world.worker(1), world.bare(1));
    world.has(explicit, lock, U);
    world.has(explicit, lock, S);
    assert_eq!(world.graph.try_upgrade(explicit, lock, &mut world.effects), None);
    let Some(Acquired::Deadlock(cycle)) = world.upgrade(explicit, lock) else { panic!() };
    assert_eq!(cycle[0].on, On::Lock { lock, mode: X, wait: None, origin: Origin::UNKNOWN });
    assert_eq!((cycle.len(), world.held(explicit, lock)), (1, Some((U, 2))));
    assert_eq!(world.release_mode(explicit, lock, S), Released::Kept(1));
    assert_eq!(world.upgrade(explicit, lock), Some(Acquired::Held(1)));
    world.release(explicit, lock);
    // A bare task may drop its read guard in another arm.
    world.has(bare, lock, U);
    world.has(bare, lock, S);
    let wait = world.waits_to_upgrade(bare, lock);
    assert_eq!((world.effects.suspected.len(), world.graph.suspected(1).len()), (1, 1));
    assert_eq!(world.release_mode(bare, lock, S), Released::Kept(1));
    assert_eq!(world.effects.granted, [wait]);
}

#[test]
fn who_reads_on_while_it_waits_to_upgrade_is_in_its_own_way() {
    let mut world = World::default();
    let lock = world.rwlock();
    let [upgrader, reader] = [1, 1].map(|base| world.worker(base));
    world.has(upgrader, lock, U);
    world.has(reader, lock, S);
    let upgrade = world.waits_to_upgrade(upgrader, lock);
    assert_eq!(world.ask(upgrader, lock, S), Acquired::Held(2));
    assert_eq!(world.effects.ended.iter().map(|(wait, cycle)| (*wait, cycle.len())).collect::<Vec<_>>(), [(upgrade, 1)]);
    assert_eq!(world.held(upgrader, lock), Some((U, 2)));
}

#[test]
fn an_explicit_one_that_asks_for_more_is_refused_and_a_bare_one_suspected() {
    for wanted in [U, X] {
        let mut world = World::default();
        let lock = world.rwlock();
        let (explicit, bare) = (world.worker(1), world.bare(1));
        world.has(explicit, lock, U);
        let Acquired::Deadlock(cycle) = world.ask(explicit, lock, wanted) else { panic!() };
        assert_eq!(cycle[0].on, On::Lock { lock, mode: wanted, wait: None, origin: Origin::UNKNOWN });
        assert_eq!((cycle.len(), world.graph.waiting(lock), world.held(explicit, lock)), (1, 0, Some((U, 1))));
        world.release(explicit, lock);
        world.has(bare, lock, U);
        world.wait_as(bare, lock, wanted);
        assert_eq!(world.effects.suspected.len(), 1);
    }
}

/// Nobody new waits: a cycle that stood has become one that can be resolved.
#[test]
fn who_is_kept_out_only_by_its_place_after_a_downgrade_is_let_in() {
    for to in [U, S] {
        let mut world = World::default();
        let (lock, mutex) = (world.rwlock(), world.lock(Kind::Mutex));
        let (holder, [writer, reader]) = (world.bare(1), [1, 1].map(|base| world.worker(base)));
        world.has(holder, lock, X);
        world.hold(reader, mutex);
        world.wait_as(writer, lock, X);
        let reading = world.wait_as(reader, lock, S);
        world.wait(holder, mutex);
        assert_eq!(world.effects.suspected.len(), 1);
        assert!(world.downgrade(holder, lock, to));
        assert_eq!((world.effects.granted.as_slice(), world.graph.suspected(1).len()), (&[reading][..], 0));
    }
}

#[test]
fn a_granted_upgrade_can_make_a_cycle_certain() {
    let mut world = World::default();
    let (lock, mutex) = (world.rwlock(), world.lock(Kind::Mutex));
    let [upgrader, reader, other] = [1, 1, 1].map(|base| world.worker(base));
    world.has(upgrader, lock, U);
    world.has(reader, lock, S);
    world.hold(other, mutex);
    let upgrade = world.waits_to_upgrade(upgrader, lock);
    world.wait_as(other, lock, U);
    // It waits for two things, so the other may be served before.
    let on_mutex = world.wait(upgrader, mutex);
    assert_eq!(world.effects.suspected.len(), 1);
    world.release(reader, lock);
    assert_eq!(world.effects.granted, [upgrade]);
    assert_eq!(world.effects.ended.iter().map(|ended| ended.0).collect::<Vec<_>>(), [on_mutex]);
}

/// Case P27, with an upgrade in the writer's place.
#[test]
fn a_reader_kept_out_by_an_upgrade_is_let_in() {
    let mut world = World::default();
    let (lock, mutex) = (world.rwlock(), world.lock(Kind::Mutex));
    let [upgrader, inside, late] = [1, 1, 1].map(|base| world.worker(base));
    world.has(upgrader, lock, U);
    world.has(inside, lock, S);
    world.hold(late, mutex);
    let upgrade = world.waits_to_upgrade(upgrader, lock);
    let behind = world.wait_as(late, lock, S);
    let on_mutex = world.wait(inside, mutex);
    assert_eq!(world.effects.granted, [behind]);
    assert!(world.effects.ended.is_empty() && world.effects.suspected.is_empty());
    world.release(late, mutex);
    assert_eq!(world.effects.granted, [on_mutex]);
    world.release(late, lock);
    world.release(inside, lock);
    assert_eq!(world.effects.granted, [upgrade]);
}

#[test]
fn a_reader_that_would_be_upgradable_is_let_in_past_a_writer() {
    let mut world = World::default();
    let lock = world.rwlock();
    let [reader, writer] = [1, 9].map(|base| world.worker(base));
    world.has(reader, lock, S);
    let wait = world.wait_as(writer, lock, X);
    // The writer waits for it, and it would wait for the writer.
    assert_eq!(world.ask(reader, lock, U), Acquired::Held(2));
    assert_eq!((world.held(reader, lock), world.graph.queue(lock)), (Some((U, 2)), vec![wait]));
}

/// A reader waits for who would be upgradable. That one waits for who is, and is no deadlock; when that goes, only a writer keeps it out.
#[test]
fn who_would_be_upgradable_is_let_in_when_who_is_goes() {
    for way in ["release", "downgrade", "remove", "release mode"] {
        let mut world = World::default();
        let (lock, mutex) = (world.rwlock(), world.lock(Kind::Mutex));
        let [first, reader, next, high, writer] = [1, 1, 1, 9, 2].map(|base| world.worker(base));
        world.has(first, lock, U);
        world.has(reader, lock, S);
        world.hold(next, mutex);
        // The reader passes on the writer's urgency, which is before it by its arrival only.
        let writing = world.wait_as(writer, lock, X);
        let upgradable = world.wait_as(next, lock, U);
        world.wait(reader, mutex);
        assert_eq!(world.graph.queue(lock), [writing, upgradable]);
        assert!(world.effects.suspected.is_empty() && world.graph.suspected(1).is_empty());
        // It boosts all who hold what it waits for, and what that boosts falls again though it went round.
        let gate = world.lock(Kind::Mutex);
        world.hold(next, gate);
        let wait = world.wait(high, gate);
        assert_eq!([first, reader, next].map(|worker| world.eff(worker)), [9; 3]);
        world.graph.cancel(wait, &mut world.effects);
        assert_eq!([first, reader, next].map(|worker| world.eff(worker)), [2, 2, 2]);
        world.effects.clear();
        match way {
            "release" => assert_eq!(world.release(first, lock), Released::Freed),
            "release mode" => assert_eq!(world.release_mode(first, lock, U), Released::Freed),
            "downgrade" => assert!(world.downgrade(first, lock, S)),
            _ => assert!(world.graph.remove_worker(first, &mut world.effects)),
        }
        assert_eq!((world.effects.granted.as_slice(), world.graph.queue(lock)), (&[upgradable][..], vec![writing]), "{way}");
        assert!(world.effects.suspected.is_empty() && world.graph.is_sound());
    }
}

#[test]
fn who_waits_for_the_upgradable_one_waits_for_nobody_else() {
    let mut world = World::default();
    let (lock, mutex) = (world.rwlock(), world.lock(Kind::Mutex));
    let [first, reader, next] = [1, 1, 1].map(|base| world.worker(base));
    world.has(first, lock, U);
    world.has(reader, lock, S);
    world.hold(next, mutex);
    let upgradable = world.wait_as(next, lock, U);
    world.wait(reader, mutex);
    assert!(world.effects.suspected.is_empty() && world.graph.suspected(1).is_empty());
    assert!(matches!(world.ask(first, mutex, X), Acquired::Deadlock(cycle) if cycle.len() == 2));
    world.release(first, lock);
    assert_eq!(world.effects.granted, [upgradable]);
}

#[test]
fn an_upgrade_can_be_a_victim_and_stays_upgradable() {
    for policy in [DeadlockPolicy::Closer, DeadlockPolicy::LowestPriority] {
        let mut world = World::new(policy);
        let (lock, mutex) = (world.rwlock(), world.lock(Kind::Mutex));
        let [upgrader, reader] = [1, 9].map(|base| world.worker(base));
        world.has(upgrader, lock, U);
        world.hold(upgrader, mutex);
        world.has(reader, lock, S);
        if policy == DeadlockPolicy::Closer {
            world.wait(reader, mutex);
            assert!(matches!(world.upgrade(upgrader, lock), Some(Acquired::Deadlock(cycle)) if cycle.len() == 2));
        } else {
            let upgrade = world.waits_to_upgrade(upgrader, lock);
            world.wait(reader, mutex);
            assert_eq!(world.effects.ended.iter().map(|ended| ended.0).collect::<Vec<_>>(), [upgrade]);
        }
        assert_eq!((world.held(upgrader, lock), world.graph.waiting(lock)), (Some((U, 1)), 0));
        assert!(world.graph.is_sound());
    }
}
