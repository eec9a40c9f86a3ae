//! Permits in the graph, tracked and untracked: who has them and who is next.

use std::num::NonZeroU32;

use crate::common::graph_sentences::World;
use heirlock::local::graph::{Acquired, Counts, DeadlockPolicy, Kind, Left, LockSpec, Mode, Order, Released, Request, State};

#[test]
fn untracked_permits_are_taken_and_nobody_holds_them() {
    let mut world = World::default();
    let lock = world.semaphore(3, false);
    let [low, high] = [1, 9].map(|base| world.worker(base));
    assert_eq!(world.want(low, lock, 2), Acquired::Held(0));
    assert_eq!((world.graph.free(lock), world.owners(lock)), (Some(1), vec![]));
    let wait = world.queue(high, lock, 2);
    // Who took the others may be anybody: nobody is boosted, and release is not theirs to say.
    assert!(world.effects.is_empty());
    assert_eq!(world.give(low, lock, 1), (Released::NotHeld, vec![]));
    assert!(!world.graph.hold(low, lock, Mode::Shared, 1, &mut world.effects));
    assert_eq!(world.add(lock, 1), [wait]);
    assert_eq!((world.graph.free(lock), world.graph.wait(wait).unwrap().state), (Some(0), State::Granted));
    assert!(world.graph.take(wait, &mut world.effects));
    assert_eq!(world.graph.counts(), Counts { workers: 2, locks: 1, waits: 0, holds: 0 });
}

#[test]
fn tracked_permits_are_held_inherit_and_go_back() {
    let mut world = World::default();
    let lock = world.semaphore(3, true);
    let [one, two, high] = [1, 2, 9].map(|base| world.worker(base));
    assert_eq!(world.want(one, lock, 2), Acquired::Held(2));
    assert_eq!(world.want(two, lock, 1), Acquired::Held(1));
    let wait = world.queue(high, lock, 3);
    assert_eq!((world.eff(one), world.eff(two)), (9, 9));
    assert_eq!(world.give(one, lock, 1), (Released::Kept(1), vec![]));
    assert_eq!(world.give(two, lock, 1), (Released::Freed, vec![]));
    assert_eq!((world.eff(one), world.eff(two), world.graph.free(lock)), (9, 2, Some(2)));
    assert_eq!(world.give(one, lock, 1), (Released::Freed, vec![wait]));
    assert_eq!((world.eff(one), world.permits_of(high, lock), world.graph.free(lock)), (1, 3, Some(0)));
    // More than it has cannot come back.
    assert!(world.graph.take(wait, &mut world.effects));
    assert_eq!(world.give(high, lock, 9), (Released::Freed, vec![]));
    assert_eq!((world.graph.free(lock), world.give(high, lock, 1).0), (Some(3), Released::NotHeld));
}

#[test]
fn a_large_request_is_not_passed_by_small_ones() {
    for tracked in [false, true] {
        let mut world = World::default();
        let lock = world.semaphore(2, tracked);
        let workers = [5, 5, 5, 9].map(|base| world.worker(base));
        let large = world.queue(workers[0], lock, 3);
        let small = world.queue(workers[1], lock, 1);
        let try_small = Request::new(workers[2], lock, Mode::Shared);
        assert_eq!(world.graph.try_acquire(&try_small, &mut world.effects), None);
        // Who is more urgent is before it, as everywhere.
        assert!(matches!(world.want(workers[3], lock, 1), Acquired::Held(_)));
        assert_eq!(world.graph.queue(lock), [large, small]);
        assert_eq!(world.add(lock, 2), [large]);
        assert_eq!((world.graph.free(lock), world.graph.queue(lock)), (Some(0), vec![small]));
    }
}

#[test]
fn what_a_large_request_leaves_goes_to_the_next_when_it_goes() {
    for expires in [false, true] {
        let mut world = World::default();
        let lock = world.semaphore(2, false);
        let workers = [5; 3].map(|base| world.worker(base));
        let large = world.queue(workers[0], lock, 3);
        let small = [world.queue(workers[1], lock, 1), world.queue(workers[2], lock, 1)];
        world.effects.clear();
        let left = if expires { world.graph.expire(large, &mut world.effects) } else { world.graph.cancel(large, &mut world.effects) };
        assert_eq!((left, world.effects.granted.as_slice()), (Left::Queued, &small[..]));
    }
}

#[test]
fn a_request_that_falls_behind_lets_the_next_have_what_is_free() {
    let mut world = World::default();
    let lock = world.semaphore(1, false);
    let [large, small] = [9, 5].map(|base| world.worker(base));
    world.queue(large, lock, 2);
    let wait = world.queue(small, lock, 1);
    world.effects.clear();
    world.graph.set_base(large, 1, &mut world.effects);
    assert_eq!(world.effects.granted, [wait]);
}

#[test]
fn the_oldest_is_next_after_the_bypass_limit() {
    let mut world = World::default();
    let spec = LockSpec { bypass: NonZeroU32::new(2), permits: 2, ..LockSpec::new(Kind::Semaphore) };
    let lock = world.graph.add_lock(spec);
    let [low, high] = [0, 9].map(|base| world.worker(base));
    let old = world.queue(low, lock, 3);
    for _ in 0..2 {
        assert_eq!(world.want(high, lock, 1), Acquired::Held(0));
    }
    // Two have gone before it: now nobody does, though there is one.
    assert_eq!(world.add(lock, 1), []);
    let wait = world.queue(high, lock, 1);
    assert_eq!(world.graph.queue(lock), [old, wait]);
    assert_eq!(world.add(lock, 2), [old]);
}

#[test]
fn a_holder_that_wants_more_queues_and_holds_more() {
    let mut world = World::default();
    let lock = world.semaphore(2, true);
    let [one, two] = [5, 5].map(|base| world.worker(base));
    assert_eq!(world.want(one, lock, 1), Acquired::Held(1));
    assert_eq!(world.want(one, lock, 1), Acquired::Held(2));
    let first = world.queue(two, lock, 1);
    let second = world.queue(one, lock, 1);
    assert_eq!(world.graph.queue(lock), [first, second]);
    assert_eq!(world.add(lock, 2), [first, second]);
    assert_eq!((world.permits_of(one, lock), world.permits_of(two, lock)), (3, 1));
    // The third is not taken yet: given up, it goes, and what was taken stays.
    assert_eq!(world.graph.cancel(second, &mut world.effects), Left::Granted);
    assert_eq!((world.permits_of(one, lock), world.graph.free(lock)), (2, Some(1)));
}

#[test]
fn a_cycle_over_permits_is_never_certain() {
    for policy in [DeadlockPolicy::Closer, DeadlockPolicy::LowestPriority] {
        let mut world = World::new(policy);
        let (lock, mutex) = (world.semaphore(1, true), world.lock(Kind::Mutex));
        let [one, two] = [1, 2].map(|base| world.worker(base));
        world.want(one, lock, 1);
        world.hold(two, mutex);
        world.wait(one, mutex);
        let closing = world.queue(two, lock, 1);
        assert_eq!((world.effects.suspected.len(), world.graph.suspected(9).len()), (1, 1));
        assert_eq!((world.eff(one), world.eff(two)), (2, 2));
        // Somebody else adds a permit: it was none.
        assert_eq!(world.add(lock, 1), [closing]);
        assert!(world.graph.suspected(9).is_empty());
    }
}

#[test]
fn no_way_leads_through_untracked_permits() {
    let mut world = World::default();
    let (lock, mutex) = (world.semaphore(1, false), world.lock(Kind::Mutex));
    let [one, two] = [1, 2].map(|base| world.worker(base));
    world.want(one, lock, 1);
    world.hold(two, mutex);
    world.wait(one, mutex);
    world.queue(two, lock, 1);
    assert!(world.effects.suspected.is_empty() && world.graph.suspected(9).is_empty());
    assert_eq!((world.eff(one), world.eff(two)), (1, 2));
}

/// It is not the order of the queue that is bent to get out of a suspected cycle.
#[test]
fn a_small_request_is_not_let_in() {
    let mut world = World::default();
    let (lock, mutex) = (world.semaphore(3, true), world.lock(Kind::Mutex));
    let [holder, large, small] = [1, 2, 1].map(|base| world.worker(base));
    world.want(holder, lock, 1);
    world.queue(large, lock, 3);
    world.hold(small, mutex);
    let wait = world.queue(small, lock, 1);
    world.wait(holder, mutex);
    assert_eq!(world.effects.suspected.len(), 1);
    assert_eq!(world.graph.wait(wait).unwrap().state, State::Queued);
}

#[test]
fn a_hand_over_passes_by_who_has_expired() {
    let mut world = World::default();
    let lock = world.semaphore(0, false);
    let [late, next] = [9, 1].map(|base| world.worker(base));
    let request = Request { expires: Some(100), depth: 2, ..Request::new(late, lock, Mode::Shared) };
    let Acquired::Queued(late) = world.graph.acquire(&request, &mut world.effects) else { panic!() };
    let next = world.queue(next, lock, 1);
    world.graph.advance(100);
    // It would not fit, so it is not looked at; it keeps its place until it is told.
    assert_eq!(world.add(lock, 1), []);
    assert!(world.effects.expired.is_empty());
    assert_eq!(world.add(lock, 1), [next]);
    assert_eq!((world.effects.expired.as_slice(), world.graph.free(lock)), (&[late][..], Some(1)));
}

#[test]
fn none_is_had_at_once_and_too_many_are_refused() {
    let mut world = World::default();
    let [tracked, untracked] = [true, false].map(|tracked| world.semaphore(u64::MAX, tracked));
    let [one, two] = [1, 2].map(|base| world.worker(base));
    assert_eq!(world.want(one, tracked, 0), Acquired::Held(0));
    assert_eq!(world.want(one, tracked, u32::MAX), Acquired::Held(u32::MAX));
    assert_eq!(world.want(one, tracked, 1), Acquired::Overflow);
    assert_eq!(world.graph.free(tracked), Some(u64::MAX - u64::from(u32::MAX)));
    // What it waits for counts, too, and nobody can give it what it could not count.
    world.graph.take_permits(tracked, u64::MAX);
    let wait = world.queue(two, tracked, u32::MAX);
    assert_eq!(world.want(two, tracked, 1), Acquired::Overflow);
    assert!(!world.graph.transfer(tracked, one, two, &mut world.effects));
    assert_eq!(world.graph.cancel(wait, &mut world.effects), Left::Queued);
    assert!(world.graph.transfer(tracked, one, two, &mut world.effects));
    assert!(!world.graph.add_permits(untracked, 1, &mut world.effects));
    assert_eq!((world.want(one, untracked, u32::MAX), world.want(one, untracked, u32::MAX)), (Acquired::Held(0), Acquired::Held(0)));
}

#[test]
fn what_goes_by_another_name_does_the_same() {
    let mut world = World::default();
    let worker = world.worker(1);
    for (kind, word) in [(Kind::Event, "event"), (Kind::Barrier, "barrier"), (Kind::Condition, "condition")] {
        let lock = world.lock(kind);
        let wait = world.wait(worker, lock);
        assert!(world.graph.notify(lock, &mut world.effects) && world.graph.take(wait, &mut world.effects));
        assert_eq!((kind.word(), kind.is_condition(), world.graph.spec(lock).unwrap().owned), (word, true, false));
    }
    for (kind, word) in [(Kind::Promise, "promise"), (Kind::Once, "once"), (Kind::Mutex, "mutex")] {
        let lock = world.lock(kind);
        world.hold(worker, lock);
        assert!(matches!(world.ask(worker, lock, Mode::Shared), Acquired::Deadlock(cycle) if cycle.len() == 1));
        assert_eq!((kind.word(), kind.is_condition(), world.graph.spec(lock).unwrap().owned), (word, false, true));
    }
    assert_eq!((Kind::Semaphore.word(), Kind::Semaphore.is_condition()), ("semaphore", false));
}

#[test]
fn the_earliest_deadline_gets_the_permits_where_that_is_the_order() {
    let mut world = World::default();
    let lock = world.graph.add_lock(LockSpec { order: Order::Deadline, ..LockSpec::new(Kind::Semaphore) });
    let workers = [9, 1].map(|base| world.worker(base));
    let waits = [(workers[0], 200), (workers[1], 100)].map(|(worker, deadline)| {
        let request = Request { deadline: Some(deadline), ..Request::new(worker, lock, Mode::Shared) };
        let Acquired::Queued(wait) = world.graph.acquire(&request, &mut world.effects) else { panic!() };
        wait
    });
    assert_eq!(world.add(lock, 1), [waits[1]]);
}
