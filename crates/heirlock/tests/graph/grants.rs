//! What is granted and not yet taken, and what is never held: conditions, and waits that are dismissed.

use std::num::NonZeroU32;

use crate::common::graph_sentences::World;
use heirlock::local::graph::{Acquired, Counts, Displaced, Kind, Left, LockKey, LockSpec, Mode, Released, Request, State, WaitKey};

#[test]
fn a_new_acquire_takes_the_workers_untaken_grant() {
    let mut world = World::default();
    let lock = world.lock(Kind::Mutex);
    let [a, b] = [1, 1].map(|base| world.worker(base));
    world.hold(a, lock);
    let abandoned = world.wait(b, lock);
    world.release(a, lock);
    assert_eq!(world.effects.granted, [abandoned]);
    assert_eq!(world.ask(b, lock, Mode::Exclusive), Acquired::Held(1));
    assert_eq!(world.effects.displaced, [Displaced { wait: abandoned, arrival: 1 }]);
    // What was abandoned cannot be taken any more, nor given up.
    assert!(!world.graph.take(abandoned, &mut world.effects));
    assert_eq!(world.graph.cancel(abandoned, &mut world.effects), Left::Gone);
    assert_eq!(world.owners(lock), [b]);
}

#[test]
fn taking_a_grant_takes_the_workers_other_waits_out_of_the_queue() {
    let mut world = World::default();
    let lock = world.lock(Kind::Mutex);
    let [a, c] = [1, 1].map(|base| world.worker(base));
    // One line of work that polls two futures for one lock is no deadlock before it has the lock ...
    let b = world.worker(1);
    world.hold(a, lock);
    let first = world.wait(b, lock);
    let second = world.wait(b, lock);
    let other = world.wait(c, lock);
    world.release(a, lock);
    assert_eq!(world.effects.granted, [first]);
    assert!(world.effects.ended.is_empty() && world.graph.suspected(1).is_empty());
    assert_eq!(world.graph.queue(lock), [second, other]);
    world.effects.clear();
    assert!(world.graph.take(first, &mut world.effects));
    assert_eq!(world.effects.displaced, [Displaced { wait: second, arrival: 2 }]);
    // ... and is one when the second asks again.
    let request = Request { arrival: Some(2), ..Request::new(b, lock, Mode::Exclusive) };
    assert!(matches!(world.graph.acquire(&request, &mut world.effects), Acquired::Deadlock(cycle) if cycle.len() == 1));
    assert_eq!(world.graph.queue(lock), [other]);
    // The other way round: the second is polled, and takes what was granted to the first.
    let mut world = World::default();
    let lock = world.lock(Kind::RLock);
    let [a, b] = [1, 1].map(|base| world.worker(base));
    world.hold(a, lock);
    let (first, second) = (world.wait(b, lock), world.wait(b, lock));
    world.release(a, lock);
    assert_eq!(world.ask(b, lock, Mode::Exclusive), Acquired::Held(1));
    let mut displaced: Vec<WaitKey> = world.effects.displaced.iter().map(|displaced| displaced.wait).collect();
    displaced.sort();
    let mut both = vec![first, second];
    both.sort();
    assert_eq!(displaced, both);
    assert_eq!(world.release(b, lock), Released::Freed);
}

#[test]
fn an_untaken_grant_is_taken_over_and_its_wait_keeps_its_arrival() {
    let mut world = World::default();
    let lock = world.lock(Kind::Mutex);
    let [a, b, c, d] = [1, 5, 5, 5].map(|base| world.worker(base));
    world.hold(a, lock);
    let first = world.wait(b, lock);
    world.release(a, lock);
    // Nobody else waits: it stays granted.
    assert_eq!(world.graph.take_over(first, &mut world.effects), None);
    assert_eq!(world.graph.wait(first).unwrap().state, State::Granted);
    let (second, third) = (world.wait(c, lock), world.wait(d, lock));
    world.effects.clear();
    let arrival = world.graph.take_over(first, &mut world.effects).unwrap();
    assert_eq!(world.effects.granted, [second]);
    assert_eq!(world.effects.displaced, [Displaced { wait: first, arrival }]);
    assert_eq!(world.graph.take_over(first, &mut world.effects), None);
    let request = Request { arrival: Some(arrival), ..Request::new(b, lock, Mode::Exclusive) };
    let Acquired::Queued(again) = world.graph.acquire(&request, &mut world.effects) else { panic!() };
    assert_eq!(world.graph.queue(lock), [again, third]);
    // A taken grant is not taken over.
    assert!(world.graph.take(second, &mut world.effects));
    assert_eq!(world.graph.take_over(second, &mut world.effects), None);
    assert_eq!(world.owners(lock), [c]);
}

#[test]
fn a_reader_that_would_write_gives_back_what_it_did_not_take() {
    let mut world = World::default();
    let lock = world.lock(Kind::RwLock);
    let [a, b] = [1, 1].map(|base| world.worker(base));
    world.hold(a, lock);
    let reading = world.wait_as(b, lock, Mode::Shared);
    world.release(a, lock);
    assert_eq!(world.effects.granted, [reading]);
    assert_eq!(world.ask(b, lock, Mode::Exclusive), Acquired::Held(1));
    assert_eq!(world.effects.displaced.len(), 1);
    assert_eq!(world.graph.holders(lock)[0].mode, Mode::Exclusive);
}

#[test]
fn a_hand_over_passes_by_who_has_expired() {
    let mut world = World::default();
    let lock = world.lock(Kind::Mutex);
    let [holder, late, next] = [1, 50, 20].map(|base| world.worker(base));
    world.hold(holder, lock);
    let request = Request { expires: Some(100), ..Request::new(late, lock, Mode::Exclusive) };
    let Acquired::Queued(late_wait) = world.graph.acquire(&request, &mut world.effects) else { panic!() };
    let next_wait = world.wait(next, lock);
    assert!(world.graph.head_expires(lock));
    world.graph.advance(99);
    assert_eq!(world.eff(holder), 50);
    world.graph.advance(100);
    world.release(holder, lock);
    assert_eq!((&world.effects.expired, &world.effects.granted), (&vec![late_wait], &vec![next_wait]));
    assert!(!world.graph.head_expires(lock));
    // What was granted in time is no more expired.
    assert_eq!(world.graph.expire(next_wait, &mut world.effects), Left::Granted);
    assert_eq!(world.owners(lock), [next]);
}

#[test]
fn a_condition_gets_back_the_depth_that_it_gave_up() {
    let mut world = World::default();
    let lock = world.lock(Kind::RLock);
    let [one, two] = [1, 2].map(|base| world.worker(base));
    world.hold(one, lock);
    world.hold(one, lock);
    let next = world.wait(two, lock);
    world.effects.clear();
    assert_eq!(world.graph.release_all(one, lock, &mut world.effects), Some(2));
    assert_eq!(world.effects.granted, [next]);
    let request = Request { depth: 2, ..Request::new(one, lock, Mode::Exclusive) };
    let Acquired::Queued(wait) = world.graph.acquire(&request, &mut world.effects) else { panic!() };
    world.release(two, lock);
    assert_eq!(world.effects.granted, [wait]);
    assert_eq!(world.graph.holders(lock)[0].depth, 2);
    assert_eq!(world.release(one, lock), Released::Kept(1));
    assert_eq!(world.release(one, lock), Released::Freed);
    assert_eq!(world.release(one, lock), Released::NotHeld);
}

fn condition(world: &mut World) -> LockKey {
    world.lock(Kind::Condition)
}

/// Notifies; whether anybody was, and who.
fn notify(world: &mut World, condition: LockKey) -> (bool, Vec<WaitKey>) {
    world.effects.clear();
    let notified = world.graph.notify(condition, &mut world.effects);
    (notified, world.effects.granted.clone())
}

#[test]
fn a_condition_notifies_the_first_and_nobody_holds_it() {
    let mut world = World::default();
    let condition = condition(&mut world);
    let [low, first, second] = [1, 5, 5].map(|base| world.worker(base));
    // Nobody waits: nothing is kept for whoever comes.
    assert_eq!(notify(&mut world, condition), (false, vec![]));
    let waits = [low, first, second].map(|worker| world.wait(worker, condition));
    assert!(world.effects.is_empty());
    assert_eq!(world.graph.queue(condition), [waits[1], waits[2], waits[0]]);
    for wait in [waits[1], waits[2], waits[0]] {
        assert_eq!(notify(&mut world, condition), (true, vec![wait]));
        assert_eq!(world.graph.wait(wait).unwrap().state, State::Granted);
    }
    assert_eq!(notify(&mut world, condition), (false, vec![]));
    assert!(world.owners(condition).is_empty() && world.effects.changed.is_empty());
    let request = Request::new(low, condition, Mode::Exclusive);
    assert_eq!(world.graph.try_acquire(&request, &mut world.effects), Some(Acquired::Held(0)));
    assert_eq!(world.graph.try_acquire(&request, &mut world.effects), None);
    assert!(world.graph.take(waits[1], &mut world.effects) && world.graph.take(waits[2], &mut world.effects));
    assert_eq!(world.graph.counts(), Counts { workers: 3, locks: 1, waits: 0, holds: 0 });
    assert!(!world.graph.hold(low, condition, Mode::Exclusive, 1, &mut world.effects));
    assert_eq!(world.release(low, condition), Released::NotHeld);
    let mutex = world.lock(Kind::Mutex);
    world.hold(low, mutex);
    world.wait(first, mutex);
    assert_eq!(notify(&mut world, mutex), (false, vec![]));
}

#[test]
fn a_conditions_oldest_waiter_is_next_after_its_bypass_limit() {
    let mut world = World::default();
    let condition = world.graph.add_lock(LockSpec { bypass: NonZeroU32::new(2), ..LockSpec::new(Kind::Condition) });
    let low = world.worker(0);
    let old = world.wait(low, condition);
    let others: Vec<WaitKey> = (0..3)
        .map(|_| {
            let high = world.worker(9);
            world.wait(high, condition)
        })
        .collect();
    for wait in [others[0], others[1], old, others[2]] {
        assert_eq!(notify(&mut world, condition), (true, vec![wait]));
    }
}

/// Cases F01 and F02: who asks again has what it was told.
#[test]
fn a_notification_belongs_to_the_worker() {
    let mut world = World::default();
    let condition = condition(&mut world);
    let [one, two] = [5, 1].map(|base| world.worker(base));
    let (abandoned, second) = (world.wait(one, condition), world.wait(one, condition));
    let other = world.wait(two, condition);
    assert_eq!(notify(&mut world, condition), (true, vec![abandoned]));
    assert_eq!(world.ask(one, condition, Mode::Exclusive), Acquired::Held(0));
    assert_eq!(world.effects.displaced, [Displaced { wait: abandoned, arrival: 0 }]);
    assert_eq!((world.graph.queue(condition), world.effects.granted.len()), (vec![second, other], 0));
    // Told twice, it takes one and then the other.
    let third = world.wait(one, condition);
    notify(&mut world, condition);
    notify(&mut world, condition);
    world.effects.clear();
    assert!(world.graph.take(second, &mut world.effects));
    assert!(world.effects.displaced.is_empty() && world.effects.granted.is_empty() && world.effects.doubts);
    assert!(world.graph.take(third, &mut world.effects));
    assert_eq!(world.graph.queue(condition), [other]);
}

/// Case F13.
#[test]
fn a_notification_that_is_given_up_passes_to_the_next() {
    for way in ["cancel", "take over", "remove"] {
        let mut world = World::default();
        let condition = condition(&mut world);
        let [one, two] = [5, 1].map(|base| world.worker(base));
        let (first, next) = (world.wait(one, condition), world.wait(two, condition));
        notify(&mut world, condition);
        world.effects.clear();
        match way {
            "cancel" => assert_eq!(world.graph.cancel(first, &mut world.effects), Left::Granted),
            "take over" => assert_eq!(world.graph.take_over(first, &mut world.effects), Some(0)),
            _ => assert!(world.graph.remove_worker(one, &mut world.effects)),
        }
        assert_eq!(world.effects.granted, [next], "{way}");
        assert_eq!(world.graph.wait(first), None);
        // Nobody else waits: it stays whose it is, and given up it is gone.
        assert_eq!(world.graph.take_over(next, &mut world.effects), None);
        assert_eq!(world.graph.cancel(next, &mut world.effects), Left::Granted);
        let late = world.wait(two, condition);
        assert_eq!(world.graph.wait(late).unwrap().state, State::Queued);
        assert!(world.graph.is_sound());
    }
}

#[test]
fn a_notification_passes_by_who_has_expired() {
    let mut world = World::default();
    let condition = condition(&mut world);
    let [late, next] = [50, 20].map(|base| world.worker(base));
    let request = Request { expires: Some(100), ..Request::new(late, condition, Mode::Exclusive) };
    let Acquired::Queued(late_wait) = world.graph.acquire(&request, &mut world.effects) else { panic!() };
    let next_wait = world.wait(next, condition);
    assert!(world.graph.head_expires(condition));
    world.graph.advance(100);
    assert_eq!(notify(&mut world, condition), (true, vec![next_wait]));
    assert_eq!(world.effects.expired, [late_wait]);
    // All have: nobody is told, and it is not kept.
    let Acquired::Queued(late_wait) = world.graph.acquire(&request, &mut world.effects) else { panic!() };
    assert_eq!(notify(&mut world, condition), (false, vec![]));
    assert_eq!(world.effects.expired, [late_wait]);
    assert!(world.graph.is_sound());
}

/// Who waits for a condition is in nobody's way, but is not in one wait only.
#[test]
fn a_condition_is_in_no_verdict_and_counts_as_a_wait() {
    let mut world = World::default();
    let condition = condition(&mut world);
    let [a, b] = [Kind::Mutex; 2].map(|kind| world.lock(kind));
    let [one, two] = [1, 2].map(|base| world.worker(base));
    world.hold(one, a);
    world.hold(two, b);
    let told = world.wait(one, condition);
    assert_eq!((world.eff(one), world.eff(two)), (1, 2));
    world.wait(two, a);
    // It has two waits: the cycle is suspected ...
    let on_b = world.wait(one, b);
    assert_eq!(world.effects.suspected.len(), 1);
    // ... and certain once it is told.
    assert_eq!(notify(&mut world, condition), (true, vec![told]));
    assert_eq!(world.effects.ended.iter().map(|ended| ended.0).collect::<Vec<_>>(), [on_b]);
    assert_eq!(world.owners(a), [one]);
}

#[test]
fn what_is_dismissed_ends_all_waits_and_leaves_the_holder() {
    let mut world = World::default();
    let lock = world.lock(Kind::Mutex);
    let [holder, low, high, top] = [1, 2, 9, 20].map(|base| world.worker(base));
    world.hold(holder, lock);
    let [one, two] = [low, high].map(|worker| world.wait(worker, lock));
    let gate = world.lock(Kind::Mutex);
    world.hold(high, gate);
    world.wait(top, gate);
    assert_eq!(world.eff(holder), 20);
    world.effects.clear();
    assert!(world.graph.dismiss(lock, &mut world.effects));
    assert_eq!((world.effects.dismissed.as_slice(), world.effects.changed.as_slice()), (&[two, one][..], &[holder][..]));
    assert!(world.effects.granted.is_empty() && world.graph.queue(lock).is_empty());
    assert_eq!((world.owners(lock), world.eff(holder), world.eff(high)), (vec![holder], 1, 20));
    assert_eq!(world.graph.cancel(one, &mut world.effects), Left::Gone);
    // Granted and not taken: it ends, too, and nobody holds.
    let wait = world.wait(low, lock);
    world.release(holder, lock);
    assert_eq!(world.effects.granted, [wait]);
    world.wait(high, lock);
    world.effects.clear();
    assert!(world.graph.dismiss(lock, &mut world.effects));
    assert_eq!((world.effects.dismissed.len(), world.effects.granted.len(), world.owners(lock).len()), (2, 0, 0));
    world.effects.clear();
    world.graph.remove_lock(lock, &mut world.effects);
    assert!(world.effects.is_empty() && !world.graph.dismiss(lock, &mut world.effects));
    // Of a condition no notification is passed on.
    let condition = condition(&mut world);
    let waits = [low, high].map(|worker| world.wait(worker, condition));
    assert_eq!(notify(&mut world, condition), (true, vec![waits[1]]));
    world.effects.clear();
    assert!(world.graph.dismiss(condition, &mut world.effects));
    assert_eq!((&world.effects.dismissed, world.effects.granted.len()), (&vec![waits[0], waits[1]], 0));
}

#[test]
fn a_removed_condition_ends_its_waits() {
    let mut world = World::default();
    let condition = condition(&mut world);
    let workers = [3, 2].map(|base| world.worker(base));
    let waits = workers.map(|worker| world.wait(worker, condition));
    notify(&mut world, condition);
    world.effects.clear();
    assert!(world.graph.remove_lock(condition, &mut world.effects));
    world.effects.removed.sort();
    assert_eq!((&world.effects.removed[..], world.effects.granted.len()), (&waits[..], 0));
    assert!(workers.iter().all(|worker| world.graph.is_idle(*worker)));
}
