//! Permits that are given back, forgotten, taken away, or change hands: one rule each.

use crate::common::graph_sentences::World;
use heirlock::local::graph::{Acquired, Displaced, Kind, Left, Mode, Released, Request, State};

#[test]
fn an_untaken_grant_that_is_given_up_frees_its_permits_for_the_next() {
    for tracked in [false, true] {
        for way in ["cancel", "take over", "remove"] {
            let mut world = World::default();
            let lock = world.semaphore(0, tracked);
            let [one, two] = [5, 1].map(|base| world.worker(base));
            let (first, next) = (world.queue(one, lock, 2), world.queue(two, lock, 1));
            assert_eq!(world.add(lock, 2), [first]);
            world.effects.clear();
            match way {
                "cancel" => assert_eq!(world.graph.cancel(first, &mut world.effects), Left::Granted),
                "take over" => assert_eq!(world.graph.take_over(first, &mut world.effects), Some(0)),
                _ => assert!(world.graph.remove_worker(one, &mut world.effects)),
            }
            assert_eq!(world.effects.granted, [next], "{way}");
            assert_eq!((world.graph.free(lock), world.permits_of(two, lock)), (Some(1), u32::from(tracked)));
            assert!(world.graph.is_sound());
        }
    }
}

#[test]
fn a_worker_takes_what_it_was_granted_if_it_asks_for_as_many() {
    for tracked in [false, true] {
        let mut world = World::default();
        let lock = world.semaphore(0, tracked);
        let [one, two] = [5, 1].map(|base| world.worker(base));
        let (abandoned, second) = (world.queue(one, lock, 2), world.queue(one, lock, 2));
        let other = world.queue(two, lock, 1);
        assert_eq!(world.add(lock, 2), [abandoned]);
        assert_eq!(world.want(one, lock, 2), Acquired::Held(if tracked { 2 } else { 0 }));
        assert_eq!(world.effects.displaced, [Displaced { wait: abandoned, arrival: 0 }]);
        assert_eq!((world.graph.queue(lock), world.graph.free(lock)), (vec![second, other], Some(0)));
        // Of another number, it waits; and if it is not taken, it is given back before long.
        assert_eq!(world.add(lock, 2), [second]);
        world.effects.clear();
        let three = world.queue(one, lock, 3);
        assert!(world.effects.displaced.is_empty() && world.graph.wait(second).unwrap().in_doubt);
        assert_eq!((world.graph.queue(lock), world.graph.free(lock)), (vec![three, other], Some(0)));
        assert_eq!(world.add(lock, 1), []);
        world.effects.clear();
        assert_eq!(world.graph.take_over(second, &mut world.effects), Some(1));
        assert_eq!(world.effects.granted, [three]);
    }
}

#[test]
fn a_try_takes_what_it_was_granted_and_passes_nobody() {
    let mut world = World::default();
    let lock = world.semaphore(1, true);
    let [one, two] = [5, 1].map(|base| world.worker(base));
    let request = |worker, depth| Request { depth, ..Request::new(worker, lock, Mode::Shared) };
    assert_eq!(world.graph.try_acquire(&request(two, 2), &mut world.effects), None);
    assert_eq!(world.graph.try_acquire(&request(two, 1), &mut world.effects), Some(Acquired::Held(1)));
    let wait = world.queue(one, lock, 1);
    world.add(lock, 1);
    assert_eq!(world.graph.wait(wait).unwrap().state, State::Granted);
    assert_eq!(world.graph.try_acquire(&request(one, 1), &mut world.effects), Some(Acquired::Held(1)));
    // It has some, and would have more only in its turn.
    world.queue(two, lock, 2);
    world.add(lock, 1);
    assert_eq!(world.graph.try_acquire(&request(one, 1), &mut world.effects), None);
    assert_eq!((world.permits_of(one, lock), world.graph.free(lock)), (1, Some(1)));
}

#[test]
fn forgotten_permits_are_no_more() {
    let mut world = World::default();
    let (lock, mutex) = (world.semaphore(3, true), world.lock(Kind::Mutex));
    let [one, high] = [1, 9].map(|base| world.worker(base));
    world.want(one, lock, 3);
    let wait = world.queue(high, lock, 1);
    world.effects.clear();
    assert_eq!(world.graph.forget(one, lock, 2, &mut world.effects), Released::Kept(1));
    assert!(world.effects.is_empty() && world.eff(one) == 9);
    assert_eq!(world.graph.forget(one, lock, 1, &mut world.effects), Released::Freed);
    assert_eq!((world.effects.changed.as_slice(), world.eff(one), world.graph.free(lock)), (&[one][..], 1, Some(0)));
    assert_eq!(world.graph.forget(one, lock, 1, &mut world.effects), Released::NotHeld);
    assert_eq!(world.graph.wait(wait).unwrap().state, State::Queued);
    world.hold(one, mutex);
    assert_eq!(world.graph.forget(one, mutex, 1, &mut world.effects), Released::NotHeld);
    assert_eq!(world.owners(mutex), [one]);
}

#[test]
fn free_permits_can_be_taken_away_past_who_waits() {
    let mut world = World::default();
    let (lock, mutex) = (world.semaphore(2, false), world.lock(Kind::Mutex));
    let worker = world.worker(1);
    let wait = world.queue(worker, lock, 3);
    assert_eq!((world.graph.take_permits(lock, 1), world.graph.take_permits(lock, 5)), (1, 1));
    assert_eq!((world.graph.take_permits(lock, 1), world.graph.take_permits(mutex, 1)), (0, 0));
    assert_eq!((world.graph.free(lock), world.graph.free(mutex)), (Some(0), None));
    assert_eq!(world.add(lock, 3), [wait]);
}

#[test]
fn what_was_taken_without_the_graph_is_known_by_import() {
    let mut world = World::default();
    let lock = world.semaphore(0, true);
    let [one, high] = [1, 9].map(|base| world.worker(base));
    assert!(world.graph.hold(one, lock, Mode::Shared, 2, &mut world.effects));
    assert_eq!((world.graph.free(lock), world.permits_of(one, lock)), (Some(0), 2));
    let wait = world.queue(high, lock, 1);
    assert_eq!(world.eff(one), 9);
    assert_eq!(world.give(one, lock, 1), (Released::Kept(1), vec![wait]));
}

#[test]
fn closing_ends_all_waits_and_leaves_the_holders() {
    for tracked in [false, true] {
        let mut world = World::default();
        let lock = world.semaphore(1, tracked);
        let workers = [1, 2, 3, 4].map(|base| world.worker(base));
        world.want(workers[0], lock, 1);
        let granted = world.queue(workers[3], lock, 1);
        assert_eq!(world.add(lock, 1), [granted]);
        let waits = [world.queue(workers[2], lock, 3), world.queue(workers[1], lock, 1)];
        world.effects.clear();
        assert!(world.graph.dismiss(lock, &mut world.effects));
        assert_eq!((&world.effects.dismissed, world.effects.granted.len()), (&vec![waits[0], waits[1], granted], 0));
        assert_eq!((world.graph.free(lock), world.graph.waiting(lock)), (Some(1), 0));
        assert_eq!(world.permits_of(workers[0], lock), u32::from(tracked));
        assert_eq!(world.eff(workers[0]), 1);
    }
}

#[test]
fn a_removed_worker_leaves_its_permits() {
    let mut world = World::default();
    let lock = world.semaphore(3, true);
    let [one, two] = [1, 2].map(|base| world.worker(base));
    world.want(one, lock, 3);
    let wait = world.queue(two, lock, 2);
    world.effects.clear();
    assert!(world.graph.remove_worker(one, &mut world.effects));
    assert_eq!((world.effects.granted.as_slice(), world.graph.free(lock)), (&[wait][..], Some(1)));
}

#[test]
fn permits_that_change_hands_are_not_free_in_between() {
    let mut world = World::default();
    let lock = world.semaphore(2, true);
    let [one, two, high] = [1, 2, 9].map(|base| world.worker(base));
    world.want(one, lock, 1);
    world.want(two, lock, 1);
    world.queue(high, lock, 1);
    world.effects.clear();
    assert!(world.graph.transfer(lock, one, two, &mut world.effects));
    assert_eq!((world.permits_of(two, lock), world.graph.free(lock), world.eff(one)), (2, Some(0), 1));
    assert!(world.effects.granted.is_empty());
}
