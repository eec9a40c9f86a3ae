//! The edges of the graph: sizes, policies, depths, what removal leaves, ids that have gone.

use crate::common::graph_sentences::World;
use crate::common::random::{Random, seed};
use heirlock::local::graph::{
    Acquired, Counts, DeadlockPolicy, Kind, Left, LockKey, LockSpec, Mode, On, Order, Origin, Released, Request, WorkerKey, WorkerSpec,
};

#[test]
fn a_chain_of_ten_thousand_locks_needs_no_stack() {
    const LENGTH: usize = 10_000;
    let run = || {
        let mut world = World::default();
        let locks: Vec<LockKey> = (0..LENGTH).map(|_| world.lock(Kind::Mutex)).collect();
        let workers: Vec<WorkerKey> = (0..LENGTH).map(|_| world.worker(1)).collect();
        for at in 0..LENGTH {
            world.hold(workers[at], locks[at]);
            if at > 0 {
                world.wait(workers[at], locks[at - 1]);
            }
        }
        let (last, high) = (locks[LENGTH - 1], world.worker(50));
        let wait = world.wait(high, last);
        assert!(workers.iter().all(|worker| world.eff(*worker) == 50));
        assert_eq!(world.effects.changed.len(), LENGTH);
        // Its first holder asks for the last lock: the longest of all deadlocks.
        let Acquired::Deadlock(cycle) = world.ask(workers[0], last, Mode::Exclusive) else { panic!("a cycle of {LENGTH}") };
        assert_eq!(cycle.len(), LENGTH);
        assert_eq!(world.graph.suspected(1).len(), 0);
        world.graph.cancel(wait, &mut world.effects);
        assert!(workers.iter().all(|worker| world.eff(*worker) == 1));
        for at in 0..LENGTH {
            assert_eq!(world.release(workers[at], locks[at]), Released::Freed);
            assert_eq!(world.effects.granted.len(), usize::from(at + 1 < LENGTH));
        }
    };
    std::thread::Builder::new().stack_size(128 << 10).spawn(run).unwrap().join().unwrap();
}

#[test]
fn a_hundred_thousand_waiters_are_served_in_order() {
    const WAITERS: usize = 100_000;
    let seed = seed();
    println!("HEIRLOCK_SEED={seed}");
    let mut random = Random::new(seed, 0);
    for order in [Order::Priority, Order::Deadline, Order::Fifo] {
        let mut world = World::default();
        let lock = world.graph.add_lock(LockSpec { order, ..LockSpec::new(Kind::Mutex) });
        let holder = world.worker(0);
        world.hold(holder, lock);
        let mut waits = Vec::new();
        for _ in 0..WAITERS {
            let worker = world.worker(i32::try_from(random.within(0, 1000)).unwrap());
            let deadline = random.chance(50).then(|| random.within(0, 1000));
            let request = Request { deadline, ..Request::new(worker, lock, Mode::Exclusive) };
            let Acquired::Queued(wait) = world.graph.acquire(&request, &mut world.effects) else { panic!() };
            waits.push((wait, worker));
        }
        for _ in 0..WAITERS {
            let (_, worker) = waits[random.index(WAITERS)];
            world.graph.set_base(worker, i32::try_from(random.within(0, 1000)).unwrap(), &mut world.effects);
        }
        for at in (0..WAITERS).step_by(2) {
            assert_eq!(world.graph.cancel(waits[at].0, &mut world.effects), Left::Queued);
        }
        let top = waits.iter().skip(1).step_by(2).map(|(_, worker)| world.graph.base(*worker).unwrap()).max();
        assert_eq!(world.graph.effective_priority(holder), top);
        let queue = world.graph.queue(lock);
        assert_eq!(queue.len(), WAITERS / 2);
        let mut owner = holder;
        for wait in queue {
            let next = world.graph.wait(wait).unwrap().worker;
            world.release(owner, lock);
            assert_eq!(world.effects.granted, [wait]);
            owner = next;
        }
        assert_eq!(world.graph.counts().holds, 1);
    }
}

#[test]
fn waits_that_converge_are_no_cycle() {
    let mut world = World::default();
    let [top, left, right, bottom] = [1, 2, 3, 4].map(|base| world.worker(base));
    let [a, b, c] = [Kind::Mutex; 3].map(|kind| world.lock(kind));
    world.hold(bottom, c);
    world.hold(left, a);
    world.hold(right, b);
    world.wait(left, c);
    world.wait(right, c);
    world.wait(top, a);
    world.wait(top, b);
    assert!(world.effects.suspected.is_empty());
    assert!(world.graph.suspected(1).is_empty());
    let high = world.worker(9);
    let gate = world.lock(Kind::RwLock);
    world.hold(top, gate);
    world.wait(high, gate);
    assert_eq!([top, left, right, bottom].map(|worker| world.eff(worker)), [9; 4]);
}

#[test]
fn an_explicit_reader_may_not_write_and_a_bare_one_is_suspected() {
    let mut world = World::default();
    let lock = world.lock(Kind::RwLock);
    let (explicit, bare) = (world.worker(1), world.bare(1));
    assert_eq!(world.ask(explicit, lock, Mode::Shared), Acquired::Held(1));
    assert_eq!(world.ask(explicit, lock, Mode::Shared), Acquired::Held(2));
    let Acquired::Deadlock(cycle) = world.ask(explicit, lock, Mode::Exclusive) else { panic!() };
    assert_eq!(cycle.len(), 1);
    assert_eq!(cycle[0].on, On::Lock { lock, mode: Mode::Exclusive, wait: None, origin: Origin::UNKNOWN });
    assert_eq!(world.ask(bare, lock, Mode::Shared), Acquired::Held(1));
    world.wait(bare, lock);
    assert_eq!(world.effects.suspected.len(), 1);
}

#[test]
fn the_victim_is_whom_the_policy_says() {
    let build = |policy| {
        let mut world = World::new(policy);
        let [low, high] = [1, 9].map(|base| world.worker(base));
        let [a, b] = [Kind::Mutex; 2].map(|kind| world.lock(kind));
        world.hold(low, a);
        world.hold(high, b);
        let wait = world.wait(low, b);
        (world, low, high, a, wait)
    };
    let (mut world, low, high, a, wait) = build(DeadlockPolicy::LowestPriority);
    // The closer is more urgent, so the other gives way; it keeps what it holds.
    let closing = world.wait(high, a);
    assert_eq!(world.effects.ended.len(), 1);
    assert_eq!((world.effects.ended[0].0, world.effects.ended[0].1[0].worker), (wait, high));
    assert_eq!((world.owners(a), world.graph.queue(a)), (vec![low], vec![closing]));
    assert_eq!(world.eff(low), 9);

    let (mut world, low, high, a, wait) = build(DeadlockPolicy::Closer);
    assert!(matches!(world.ask(high, a, Mode::Exclusive), Acquired::Deadlock(_)));
    assert_eq!((world.eff(low), world.graph.wait(wait).is_some()), (1, true));
}

#[test]
fn a_suspected_cycle_stands_unless_the_policy_makes_it_an_error() {
    for policy in [DeadlockPolicy::Closer, DeadlockPolicy::LowestPriority, DeadlockPolicy::ErrSuspected] {
        let mut world = World::new(policy);
        let [one, two] = [1, 2].map(|base| world.bare(base));
        let [a, b] = [Kind::Mutex; 2].map(|kind| world.lock(kind));
        world.hold(one, a);
        world.hold(two, b);
        world.wait(one, b);
        let closing = world.ask(two, a, Mode::Exclusive);
        if policy == DeadlockPolicy::ErrSuspected {
            assert!(matches!(closing, Acquired::Deadlock(_)));
            assert!(world.graph.suspected(9).is_empty());
            assert_eq!(world.eff(one), 1);
        } else {
            assert!(matches!(closing, Acquired::Queued(_)));
            assert_eq!((world.effects.suspected.len(), world.graph.suspected(9).len()), (1, 1));
            assert_eq!((world.eff(one), world.eff(two)), (2, 2));
        }
    }
}

#[test]
fn who_releases_a_semaphore_is_unknown_so_there_is_no_verdict() {
    let mut world = World::default();
    let [one, two] = [1, 2].map(|base| world.worker(base));
    let a = world.lock(Kind::Mutex);
    let b = world.graph.add_lock(LockSpec { owned: false, ..LockSpec::new(Kind::Mutex) });
    world.hold(one, a);
    world.hold(two, b);
    world.wait(one, b);
    world.wait(two, a);
    assert_eq!(world.effects.suspected.len(), 1);
    assert_eq!(world.eff(one), 2);
}

#[test]
fn who_gets_a_hold_inherits_instead() {
    let mut world = World::default();
    let lock = world.lock(Kind::Mutex);
    let [giver, getter, high] = [1, 2, 50].map(|base| world.worker(base));
    world.hold(giver, lock);
    world.wait(high, lock);
    world.effects.clear();
    assert!(world.graph.transfer(lock, giver, getter, &mut world.effects));
    assert_eq!((world.eff(giver), world.eff(getter)), (1, 50));
    assert_eq!(world.effects.changed.len(), 2);
    assert!(!world.graph.transfer(lock, giver, getter, &mut world.effects));
    // To whom waits for it: it waits for itself, which is certain.
    assert!(world.graph.transfer(lock, getter, high, &mut world.effects));
    assert_eq!(world.effects.ended.len(), 1);
    assert_eq!((world.eff(getter), world.eff(high)), (2, 50));
}

#[test]
fn too_many_levels_are_refused() {
    let mut world = World::default();
    let lock = world.lock(Kind::RLock);
    let worker = world.worker(1);
    world.graph.hold(worker, lock, Mode::Exclusive, u32::MAX, &mut world.effects);
    assert_eq!(world.ask(worker, lock, Mode::Exclusive), Acquired::Overflow);
    assert_eq!(world.graph.holders(lock)[0].depth, u32::MAX);
}

#[test]
fn an_imported_hold_inherits() {
    let mut world = World::default();
    let lock = world.lock(Kind::RLock);
    let [holder, waiter] = [1, 9].map(|base| world.worker(base));
    assert!(world.graph.hold(holder, lock, Mode::Exclusive, 3, &mut world.effects));
    world.wait(waiter, lock);
    assert_eq!(world.eff(holder), 9);
    assert_eq!(world.effects.changed, [holder]);
    assert_eq!(world.graph.release_all(holder, lock, &mut world.effects), Some(3));
    assert_eq!(world.owners(lock), [waiter]);
}

#[test]
fn an_anonymous_wait_boosts_and_is_never_in_a_verdict() {
    let mut world = World::default();
    let lock = world.lock(Kind::Mutex);
    let holder = world.worker(1);
    world.hold(holder, lock);
    let anonymous = world.bare(i32::MIN);
    let request = Request { priority: Some(7), ..Request::new(anonymous, lock, Mode::Exclusive) };
    let Acquired::Queued(wait) = world.graph.acquire(&request, &mut world.effects) else { panic!() };
    assert_eq!(world.eff(holder), 7);
    world.release(holder, lock);
    assert_eq!(world.effects.granted, [wait]);
    world.effects.clear();
    assert!(world.graph.remove_worker(anonymous, &mut world.effects));
    assert_eq!(world.graph.counts(), Counts { workers: 1, locks: 1, waits: 0, holds: 0 });
}

#[test]
fn the_least_and_the_largest_priority_are_ordinary() {
    let mut world = World::default();
    let lock = world.lock(Kind::Mutex);
    let [holder, least, largest] = [i32::MIN, i32::MIN, i32::MAX].map(|base| world.worker(base));
    world.hold(holder, lock);
    let first = world.wait(least, lock);
    assert!(world.effects.is_empty());
    let second = world.wait(largest, lock);
    assert_eq!((world.eff(holder), world.graph.queue(lock)), (i32::MAX, vec![second, first]));
    world.graph.set_base(largest, i32::MIN, &mut world.effects);
    assert_eq!((world.eff(holder), world.graph.queue(lock)), (i32::MIN, vec![first, second]));
}

#[test]
fn what_is_removed_leaves_nothing() {
    let mut world = World::default();
    let [a, b] = [Kind::Mutex, Kind::RwLock].map(|kind| world.lock(kind));
    let [one, two, three] = [1, 2, 3].map(|base| world.worker(base));
    let fork = world.graph.add_worker(&WorkerSpec { base: i32::MIN, deadline: None, parent: Some(three), sequential: true });
    world.hold(one, a);
    world.ask(one, b, Mode::Shared);
    world.ask(fork, b, Mode::Shared);
    let (on_a, on_b) = (world.wait(two, a), world.wait(two, b));
    world.wait(three, b);
    assert_eq!((world.eff(one), world.eff(fork)), (3, 3));
    world.effects.clear();
    assert!(world.graph.remove_lock(b, &mut world.effects));
    assert!(world.effects.removed.contains(&on_b) && world.effects.removed.len() == 2);
    assert_eq!((world.eff(one), world.eff(fork)), (2, 3));
    // A parent that goes leaves its base to its forks.
    assert!(world.graph.remove_worker(three, &mut world.effects));
    assert_eq!(world.eff(fork), 3);
    // A worker that goes lets go.
    world.effects.clear();
    assert!(world.graph.remove_worker(one, &mut world.effects));
    assert_eq!((world.effects.granted.clone(), world.owners(a)), (vec![on_a], vec![two]));
    assert!(world.graph.remove_worker(two, &mut world.effects));
    assert!(world.graph.remove_worker(fork, &mut world.effects));
    assert!(world.graph.remove_lock(a, &mut world.effects));
    assert_eq!(world.graph.counts(), Counts::default());
    assert!(world.graph.is_sound());
    // Ids do not come back, and those that have gone do nothing.
    let (fresh_worker, fresh_lock) = (world.worker(1), world.lock(Kind::Mutex));
    assert!(![one, two, three, fork].contains(&fresh_worker) && ![a, b].contains(&fresh_lock));
    world.effects.clear();
    assert!(!world.graph.remove_lock(a, &mut world.effects) && !world.graph.remove_worker(one, &mut world.effects));
    assert!(!world.graph.set_base(one, 5, &mut world.effects) && !world.graph.hold(one, a, Mode::Exclusive, 1, &mut world.effects));
    assert_eq!(world.graph.release(one, fresh_lock, &mut world.effects), Released::NotHeld);
    assert_eq!(world.graph.cancel(on_a, &mut world.effects), Left::Gone);
    assert_eq!(world.graph.expire(on_a, &mut world.effects), Left::Gone);
    assert!(world.effects.is_empty());
}

/// A reader is let in, and what it alone gave goes, though a suspected cycle stands beside it.
#[test]
fn what_a_let_in_reader_gave_does_not_go_round() {
    let mut world = World::default();
    let (gate, key) = (world.graph.add_lock(LockSpec { order: Order::Fifo, ..LockSpec::new(Kind::RwLock) }), world.lock(Kind::Mutex));
    let [parent, reader, writer] = [1, 1, 1].map(|base| world.worker(base));
    let fork = world.graph.add_worker(&WorkerSpec { base: i32::MIN, deadline: None, parent: Some(parent), sequential: true });
    assert_eq!(world.ask(reader, gate, Mode::Shared), Acquired::Held(1));
    world.hold(parent, key);
    world.wait(writer, gate);
    world.wait_as(fork, gate, Mode::Shared);
    let request = Request { deadline: Some(30), ..Request::new(parent, gate, Mode::Shared) };
    let Acquired::Queued(behind) = world.graph.acquire(&request, &mut world.effects) else { panic!() };
    assert_eq!([parent, reader, fork].map(|worker| world.graph.effective_deadline(worker)), [Some(30); 3]);
    // The reader waits for the parent, who waits for the reader only because of the writer; the fork does so, too, and is not looked at.
    world.wait(reader, key);
    assert_eq!(world.effects.granted, [behind]);
    assert_eq!([parent, reader, fork].map(|worker| world.graph.effective_deadline(worker)), [None; 3]);
}
