//! The lock-order check by itself: what nests in what, and which orders are inversions.

#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common {
    pub(crate) mod random;
}

use std::collections::{BTreeMap, BTreeSet};
use std::panic::Location;

use common::random::{Random, seed};
use heirlock::local::nesting::{Class, Inversion, LockId, Nesting, Site};

const A: LockId = LockId { number: 1, name: Some("a") };
const B: LockId = LockId { number: 2, name: Some("b") };
const C: LockId = LockId { number: 3, name: Some("c") };

/// Workers and what they hold.
#[derive(Default)]
struct World {
    nesting: Nesting,
    held: BTreeMap<u64, Vec<(LockId, Site)>>,
}

impl World {
    /// Takes a lock, and would wait for it.
    fn take(&mut self, worker: u64, lock: LockId, site: Site) -> Vec<Inversion> {
        let found = self.wants(worker, lock, site);
        self.got(worker, lock, site);
        found
    }

    fn wants(&mut self, worker: u64, lock: LockId, site: Site) -> Vec<Inversion> {
        let held = self.held.entry(worker).or_default();
        self.nesting.wants(lock, site, held, &format_args!("worker {worker}"))
    }

    /// Takes a lock without waiting.
    fn got(&mut self, worker: u64, lock: LockId, site: Site) {
        self.held.entry(worker).or_default().push((lock, site));
    }

    /// One level.
    fn gave(&mut self, worker: u64, lock: LockId) {
        let held = self.held.entry(worker).or_default();
        if let Some(at) = held.iter().rposition(|(other, _)| *other == lock) {
            held.remove(at);
        }
    }

    /// Takes the locks one within the other, and gives them up again.
    fn nest(&mut self, worker: u64, locks: &[LockId]) -> Vec<Inversion> {
        let found = locks.iter().flat_map(|lock| self.take(worker, *lock, None)).collect();
        for lock in locks {
            self.gave(worker, *lock);
        }
        found
    }
}

#[test]
fn both_orders_are_told_once_whoever_takes_them() {
    let mut world = World::default();
    assert!(world.nest(1, &[A, B]).is_empty());
    assert!(world.nest(2, &[A, B]).is_empty());
    let found = world.nest(2, &[B, A]);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].now.outer, found[0].now.inner), (Class::Named("b"), Class::Named("a")));
    assert!(world.nest(3, &[B, A]).is_empty() && world.nest(3, &[A, B]).is_empty());
    assert_eq!(world.nesting.counts(), [2, 2]);
}

#[test]
fn a_way_round_through_others_is_an_inversion() {
    let mut world = World::default();
    assert!(world.nest(1, &[A, B]).is_empty() && world.nest(2, &[B, C]).is_empty());
    let found = world.nest(3, &[C, A]);
    let way: Vec<_> = found[0].before.iter().map(|nested| (nested.outer, nested.inner)).collect();
    assert_eq!(way, [(Class::Named("a"), Class::Named("b")), (Class::Named("b"), Class::Named("c"))]);
}

#[test]
fn an_inversion_names_classes_lines_and_workers() {
    let here = Location::caller();
    let mut world = World::default();
    world.take(1, A, Some(here));
    world.take(1, B, Some(here));
    world.take(2, B, Some(here));
    let found = world.take(2, A, None);
    let line = format!("{}:{}", here.file(), here.line());
    assert_eq!(
        found[0].to_string(),
        format!(
            "worker 2 wanted lock \"a\" while it held lock \"b\" from {line}, but before worker 1 wanted lock \"b\" at {line} while it held lock \"a\" \
             from {line}"
        )
    );
}

#[test]
fn what_is_taken_without_waiting_nests_in_nothing_but_is_held() {
    let mut world = World::default();
    world.nest(1, &[A, B]);
    // b, then a without waiting: no cycle can come of it. c within both.
    world.take(2, B, None);
    world.got(2, A, None);
    assert!(world.take(2, C, None).is_empty());
    for lock in [A, B, C] {
        world.gave(2, lock);
    }
    assert_eq!(world.nest(3, &[C, A]).len(), 1);
}

#[test]
fn locks_are_given_up_in_any_order() {
    let mut world = World::default();
    world.got(1, A, None);
    world.got(1, B, None);
    world.gave(1, A);
    // Only b is held now.
    assert!(world.take(1, C, None).is_empty());
    world.gave(1, B);
    world.gave(1, C);
    assert!(world.nest(1, &[C, A]).is_empty());
    assert_eq!(world.nest(2, &[C, B]).len(), 1, "c was taken while b was held");
}

#[test]
fn entering_again_nests_nothing() {
    let mut world = World::default();
    world.take(1, A, None);
    world.take(1, B, None);
    assert!(world.take(1, A, None).is_empty(), "a is held already");
    world.gave(1, A);
    world.gave(1, B);
    // One level of a is left.
    assert!(world.take(1, C, None).is_empty());
    assert_eq!(world.nest(2, &[C, A]).len(), 1, "c was taken while a was held");
}

#[test]
fn two_locks_of_one_name_are_an_inversion_once() {
    let twin = LockId { number: 9, name: Some("a") };
    let mut world = World::default();
    let found = world.nest(1, &[A, twin]);
    assert!(found[0].before.is_empty() && found[0].to_string().contains("of the same name"), "{}", found[0]);
    assert!(world.nest(2, &[twin, A]).is_empty());
    // Locks without a name are not one class.
    let [one, other] = [4, 5].map(|number| LockId { number, name: None });
    assert!(world.nest(1, &[one, other]).is_empty());
    assert_eq!(world.nest(1, &[other, one]).len(), 1);
}

#[test]
fn a_lock_without_a_name_is_forgotten_with_itself() {
    let nameless = LockId { number: 7, name: None };
    let mut world = World::default();
    world.nest(1, &[A, nameless, B]);
    assert_eq!(world.nesting.counts(), [3, 3]);
    world.nesting.forget(nameless);
    assert_eq!(world.nesting.counts(), [2, 1]);
    // A name stays: other locks have it.
    world.nesting.forget(A);
    assert_eq!(world.nest(1, &[B, A]).len(), 1);
}

#[test]
fn there_is_room_for_so_many_and_no_more() {
    let mut world = World::default();
    for number in 10..3_000 {
        assert!(world.nest(1, &[A, LockId { number, name: None }]).is_empty());
    }
    assert!(world.nesting.is_full());
    assert_eq!(world.nesting.counts(), [2048, 2047]);
    let mut world = World::default();
    for number in 10..300 {
        world.nest(1, &(10..=number).map(|number| LockId { number, name: None }).rev().take(120).collect::<Vec<_>>());
    }
    assert!(world.nesting.is_full());
    assert_eq!(world.nesting.counts()[1], 8192);
}

/// Everything that was ever seen, and each question answered from all of it.
#[derive(Default)]
struct Naive {
    nested: BTreeSet<(Class, Class)>,
    told: BTreeSet<BTreeSet<Class>>,
}

fn class(lock: LockId) -> Class {
    lock.name.map_or(Class::Lock(lock.number), Class::Named)
}

impl Naive {
    /// The pairs of which an inversion is new, the outer class first.
    fn wants(&mut self, lock: LockId, held: &[LockId]) -> BTreeSet<(Class, Class)> {
        let mut found = BTreeSet::new();
        if held.contains(&lock) {
            return found;
        }
        let inner = class(lock);
        for outer in held.iter().copied().map(class) {
            if !self.nested.contains(&(outer, inner)) && self.reach(inner).contains(&outer) && self.told.insert([outer, inner].into()) {
                found.insert((outer, inner));
            }
            self.nested.insert((outer, inner));
        }
        found
    }

    fn reach(&self, from: Class) -> BTreeSet<Class> {
        let mut reach = BTreeSet::from([from]);
        loop {
            let more: BTreeSet<Class> = self
                .nested
                .iter()
                .filter(|(outer, _)| reach.contains(outer))
                .map(|(_, inner)| *inner)
                .chain(reach.iter().copied())
                .collect();
            if more.len() == reach.len() {
                return reach;
            }
            reach = more;
        }
    }

    fn forget(&mut self, lock: LockId) {
        if lock.name.is_none() {
            let gone = class(lock);
            self.nested.retain(|(outer, inner)| *outer != gone && *inner != gone);
            self.told.retain(|pair| !pair.contains(&gone));
        }
    }
}

#[test]
fn a_naive_reference_agrees_over_random_histories() {
    let seed = seed();
    println!("HEIRLOCK_SEED={seed}");
    for history in 0..400 {
        let mut random = Random::new(seed, history);
        let names = [Some("a"), Some("b"), Some("c"), Some("d"), None, None, None];
        let mut locks: Vec<LockId> = (0..12).map(|number| LockId { number, name: random.pick(&names) }).collect();
        let (mut world, mut naive, mut next) = (World::default(), Naive::default(), 100);
        // Mostly upwards, so that an inversion is an event and not the rule.
        let upwards = random.within(50, 100);
        for step in 0..200 {
            let (worker, at) = (random.within(1, 4), random.index(locks.len()));
            let mut lock = locks[at];
            let held: Vec<LockId> = world.held.entry(worker).or_default().iter().map(|(lock, _)| *lock).collect();
            match random.within(0, 10) {
                0..6 => {
                    let top = held.iter().map(|lock| class(*lock)).max();
                    if let (Some(top), true) = (top, random.chance(upwards)) {
                        lock = locks.iter().copied().find(|lock| class(*lock) > top).unwrap_or(lock);
                    }
                    let waits = random.chance(80);
                    if waits {
                        let found = world.wants(worker, lock, None);
                        let pairs: BTreeSet<_> = found.iter().map(|found| (found.now.outer, found.now.inner)).collect();
                        assert_eq!(
                            (found.len(), &pairs),
                            (pairs.len(), &naive.wants(lock, &held)),
                            "seed {seed}, history {history}, step {step}"
                        );
                        for Inversion { now, before } in &found {
                            // The way leads from what is wanted to what is held, and all of it was seen.
                            let mut at = now.inner;
                            for nested in before {
                                assert_eq!(nested.outer, at);
                                assert!(naive.nested.contains(&(nested.outer, nested.inner)));
                                at = nested.inner;
                            }
                            assert_eq!(at, now.outer, "seed {seed}, history {history}, step {step}");
                        }
                    }
                    // A wait may be given up.
                    if random.chance(90) {
                        world.got(worker, lock, None);
                    }
                }
                6..9 if !held.is_empty() => world.gave(worker, random.pick(&held)),
                _ if lock.name.is_none() && random.chance(30) => {
                    world.nesting.forget(lock);
                    naive.forget(lock);
                    world.held.values_mut().for_each(|held| held.retain(|(other, _)| *other != lock));
                    locks[at] = LockId { number: next, name: None };
                    next += 1;
                }
                _ => {}
            }
            assert_eq!(world.nesting.counts()[1], naive.nested.len(), "seed {seed}, history {history}, step {step}");
        }
    }
}
