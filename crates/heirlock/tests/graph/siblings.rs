//! Several futures of one worker for one lock: what becomes of the others when one is served.

use crate::common::graph_sentences::World;
use heirlock::local::graph::{Acquired, Displaced, Kind, Left, LockKey, Mode, Request, State, WaitKey, WorkerKey};

/// A queued acquire of so many permits, by a call of this priority.
fn call(world: &mut World, worker: WorkerKey, lock: LockKey, depth: u32, priority: i32) -> WaitKey {
    let request = Request { depth, priority: Some(priority), ..Request::new(worker, lock, Mode::Shared) };
    match world.graph.acquire(&request, &mut world.effects) {
        Acquired::Queued(wait) => wait,
        other => panic!("{other:?}"),
    }
}

fn in_doubt(world: &World, wait: WaitKey) -> bool {
    world.graph.wait(wait).unwrap().in_doubt
}

/// Who is more urgent has all that it was granted, whichever of its arms is polled first.
#[test]
fn arms_keep_the_permits_that_they_were_granted() {
    for tracked in [false, true] {
        let mut world = World::default();
        let lock = world.semaphore(0, tracked);
        let (high, low) = (world.bare(9), world.worker(1));
        let arms = [1; 3].map(|permits| world.queue(high, lock, permits));
        let other = world.queue(low, lock, 1);
        assert_eq!(world.add(lock, 3), arms);
        for (at, arm) in arms.into_iter().enumerate() {
            world.effects.clear();
            assert!(world.graph.take(arm, &mut world.effects));
            assert!(world.effects.displaced.is_empty() && world.effects.granted.is_empty());
            assert_eq!(world.effects.doubts, at == 0, "the others come in doubt once");
            assert!(arms[at + 1..].iter().all(|arm| in_doubt(&world, *arm)));
        }
        assert_eq!((world.permits_of(high, lock), world.graph.queue(lock)), (if tracked { 3 } else { 0 }, vec![other]));
    }
}

#[test]
fn arms_that_read_keep_their_grants_before_a_writer() {
    for sequential in [false, true] {
        let mut world = World::default();
        let lock = world.lock(Kind::RwLock);
        let [holder, writer] = [1, 1].map(|base| world.worker(base));
        let reader = if sequential { world.worker(5) } else { world.bare(5) };
        world.hold(holder, lock);
        let arms = [(); 3].map(|()| world.wait_as(reader, lock, Mode::Shared));
        let written = world.wait(writer, lock);
        world.release(holder, lock);
        assert_eq!(world.effects.granted, arms);
        for arm in arms {
            world.effects.clear();
            assert!(world.graph.take(arm, &mut world.effects));
            assert!(world.effects.displaced.is_empty() && world.effects.granted.is_empty());
        }
        assert_eq!((world.graph.holders(lock)[0].depth, world.graph.queue(lock)), (3, vec![written]));
    }
}

/// Each arm of a bare task has its turn, and none asks twice.
#[test]
fn arms_that_wait_for_an_exclusive_lock_keep_their_places() {
    let mut world = World::default();
    let lock = world.lock(Kind::Mutex);
    let (holder, task, other) = (world.worker(1), world.bare(5), world.worker(1));
    world.hold(holder, lock);
    let arms = [(); 3].map(|()| world.wait(task, lock));
    let last = world.wait(other, lock);
    world.release(holder, lock);
    for (at, arm) in arms.into_iter().enumerate() {
        assert_eq!(world.effects.granted, [arm]);
        assert_eq!((world.effects.doubts, in_doubt(&world, arm)), (at > 0, at > 0));
        world.effects.clear();
        assert!(world.graph.take(arm, &mut world.effects));
        assert!(world.effects.displaced.is_empty());
        assert_eq!(world.graph.queue(lock)[..], [&arms[at + 1..], &[last]].concat());
        world.effects.clear();
        world.release(task, lock);
    }
    assert_eq!(world.effects.granted, [last]);
    assert!(!world.effects.doubts);
}

#[test]
fn who_is_polled_is_in_doubt_no_more() {
    let mut world = World::default();
    let lock = world.lock(Kind::Mutex);
    let (holder, task) = (world.worker(1), world.bare(5));
    world.hold(holder, lock);
    let [first, second, third] = [(); 3].map(|()| world.wait(task, lock));
    world.release(holder, lock);
    assert!(!in_doubt(&world, second));
    assert!(world.graph.take(first, &mut world.effects));
    assert!(in_doubt(&world, second) && in_doubt(&world, third));
    assert!(!world.graph.claim(third, &mut world.effects));
    assert!(in_doubt(&world, second) && !in_doubt(&world, third));
    // What is served next makes doubt of both again.
    world.release(task, lock);
    assert!(world.graph.take(second, &mut world.effects));
    assert!(in_doubt(&world, third));
}

/// Case F02: the one that is polled has what the other was granted, which then asks again; its own wait is over.
#[test]
fn who_is_polled_has_what_another_was_granted() {
    let mut world = World::default();
    let lock = world.lock(Kind::Mutex);
    let (holder, task, other) = (world.worker(1), world.bare(5), world.worker(1));
    world.hold(holder, lock);
    let (kept, polled) = (world.wait(task, lock), world.wait(task, lock));
    let last = world.wait(other, lock);
    world.release(holder, lock);
    world.effects.clear();
    assert!(world.graph.claim(polled, &mut world.effects));
    assert_eq!(world.effects.displaced, [Displaced { wait: kept, arrival: 1 }]);
    assert_eq!((world.owners(lock), world.graph.queue(lock)), (vec![task], vec![last]));
    assert_eq!(world.graph.wait(polled), None);
}

/// A small arm does not take a large one's permits away from it, however often it asks.
#[test]
fn a_large_request_does_not_starve_beside_a_small_one() {
    for tracked in [false, true] {
        let mut world = World::default();
        let lock = world.semaphore(0, tracked);
        let task = world.bare(5);
        let (small, large) = (world.queue(task, lock, 1), world.queue(task, lock, 3));
        assert_eq!(world.add(lock, 1), [small]);
        assert!(world.graph.take(small, &mut world.effects));
        // The small arm is done, and asks again before the large one is polled.
        assert_eq!(world.add(lock, 2), []);
        if tracked {
            world.release(task, lock);
        } else {
            world.add(lock, 1);
        }
        assert_eq!(world.graph.wait(large).unwrap().state, State::Granted);
        let small = world.queue(task, lock, 1);
        assert!(!world.graph.claim(small, &mut world.effects));
        assert_eq!((world.graph.wait(large).unwrap().state, in_doubt(&world, large)), (State::Granted, true));
        assert!(world.graph.take(large, &mut world.effects));
        assert_eq!(world.graph.queue(lock), [small]);
    }
}

/// Nobody less urgent has what the worker's own other request was granted.
#[test]
fn who_asks_for_something_else_is_not_passed() {
    let mut world = World::default();
    let lock = world.semaphore(0, false);
    let (task, other) = (world.bare(5), world.worker(5));
    let large = call(&mut world, task, lock, 3, 5);
    let others = [(); 3].map(|()| world.queue(other, lock, 1));
    assert_eq!(world.add(lock, 3), [large]);
    world.effects.clear();
    let urgent = call(&mut world, task, lock, 1, 10);
    assert_eq!((world.effects.granted.len(), world.graph.queue(lock)[0]), (0, urgent));
    assert!(world.graph.take_over(large, &mut world.effects).is_some());
    assert_eq!(world.effects.granted, [urgent, others[0], others[1]]);
    // One line of work that reads and would write: whoever waits is less urgent, and does not come in between.
    let mut world = World::default();
    let lock = world.lock(Kind::RwLock);
    let [holder, worker, other] = [1, 5, 1].map(|base| world.worker(base));
    world.hold(holder, lock);
    let reads = world.wait_as(worker, lock, Mode::Shared);
    let writes = world.wait(other, lock);
    world.release(holder, lock);
    assert_eq!(world.effects.granted, [reads]);
    world.effects.clear();
    assert_eq!(world.ask(worker, lock, Mode::Exclusive), Acquired::Held(1));
    assert_eq!((world.effects.displaced.len(), world.graph.queue(lock)), (1, vec![writes]));
}

/// Granted to be upgradable and to read: each future has its own, whichever is polled first, and nothing without it.
#[test]
fn who_was_granted_two_modes_has_each_by_its_own_future() {
    for sequential in [false, true] {
        let mut world = World::default();
        let lock = world.lock(Kind::RwLock);
        let [holder, writer] = [1, 1].map(|base| world.worker(base));
        let worker = if sequential { world.worker(5) } else { world.bare(5) };
        world.hold(holder, lock);
        let upgradable = world.wait_as(worker, lock, Mode::Upgradable);
        let behind = world.wait(writer, lock);
        let reads = world.wait_as(worker, lock, Mode::Shared);
        world.release(holder, lock);
        // Its place behind the writer, who waits for the same worker, is no reason to wait.
        assert_eq!(world.effects.granted, [upgradable, reads]);
        world.effects.clear();
        assert!(!world.graph.claim(reads, &mut world.effects), "that is for who waits");
        assert!(world.graph.take(reads, &mut world.effects));
        assert_eq!((world.graph.holders(lock)[0].depth, in_doubt(&world, upgradable)), (2, true));
        assert_eq!(world.graph.cancel(upgradable, &mut world.effects), Left::Granted);
        let hold = world.graph.holders(lock)[0];
        assert_eq!((hold.worker, hold.mode, hold.depth, world.graph.queue(lock)), (worker, Mode::Shared, 1, vec![behind]));
    }
}

/// What is upgradable goes alone: what else the worker was granted it may yet take.
#[test]
fn the_upgradable_level_goes_alone() {
    let mut world = World::default();
    let lock = world.lock(Kind::RwLock);
    let [holder, heir, writer] = [1, 2, 1].map(|base| world.worker(base));
    let task = world.bare(5);
    world.hold(holder, lock);
    let upgradable = world.wait_as(task, lock, Mode::Upgradable);
    let reads = world.wait_as(task, lock, Mode::Shared);
    world.release(holder, lock);
    assert!(world.graph.take(upgradable, &mut world.effects));
    assert!(world.graph.transfer_upgradable(lock, task, heir, &mut world.effects));
    let behind = world.wait(writer, lock);
    world.effects.clear();
    // Dropped, it gives its level up; and then the other's is all there is.
    assert_eq!(world.graph.wait(reads).unwrap().state, State::Granted);
    world.graph.cancel(reads, &mut world.effects);
    assert_eq!(world.owners(lock), [heir]);
    world.release(heir, lock);
    assert_eq!(world.effects.granted, [behind]);
}

/// So it is on the short way from one holder to the next, too.
#[test]
fn a_hand_over_tells_of_doubt() {
    let mut world = World::default();
    let lock = world.lock(Kind::Mutex);
    let (holder, task, urgent) = (world.worker(1), world.bare(5), world.worker(9));
    world.hold(holder, lock);
    let [first, second] = [(); 2].map(|()| world.wait(task, lock));
    world.release(holder, lock);
    assert!(world.graph.take(first, &mut world.effects));
    let other = world.wait(urgent, lock);
    world.release(task, lock);
    assert!(world.graph.take(other, &mut world.effects));
    world.effects.clear();
    world.release(urgent, lock);
    assert_eq!((&world.effects.granted[..], world.effects.doubts), (&[second][..], true));
}
