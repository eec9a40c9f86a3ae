//! The lock-order check by itself: what nests in what, and which orders are inversions.

#[path = "common/random.rs"]
mod random;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::Location;

use heirlock::local::nesting::{Class, Inversion, LockId, Nesting, Site};
use random::{Random, seed};

const A: LockId = LockId { number: 1, name: Some("a") };
const B: LockId = LockId { number: 2, name: Some("b") };
const C: LockId = LockId { number: 3, name: Some("c") };

/// The number that has no owner behind it.
const ANONYMOUS: u64 = 0b11 << 44;

/// Takes the locks one within the other, and gives them up again.
fn nest(nesting: &mut Nesting, owner: u64, locks: &[LockId]) -> Vec<Inversion> {
    let mut found = Vec::new();
    for lock in locks {
        found.extend(take(nesting, owner, *lock, None));
    }
    for lock in locks {
        nesting.gave(owner, *lock, 1);
    }
    found
}

fn take(nesting: &mut Nesting, owner: u64, lock: LockId, site: Site) -> Vec<Inversion> {
    let found = nesting.wants(owner, lock, site, &format_args!("worker {owner}"));
    nesting.got(owner, lock, 1, site);
    found
}

#[test]
fn both_orders_are_told_once_whoever_takes_them() {
    let mut nesting = Nesting::default();
    assert!(nest(&mut nesting, 1, &[A, B]).is_empty());
    assert!(nest(&mut nesting, 2, &[A, B]).is_empty());
    let found = nest(&mut nesting, 2, &[B, A]);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].now.outer, found[0].now.inner), (Class::Named("b"), Class::Named("a")));
    assert!(nest(&mut nesting, 3, &[B, A]).is_empty() && nest(&mut nesting, 3, &[A, B]).is_empty());
    assert_eq!(nesting.counts(), [2, 2, 0]);
}

#[test]
fn a_way_round_through_others_is_an_inversion() {
    let mut nesting = Nesting::default();
    assert!(nest(&mut nesting, 1, &[A, B]).is_empty() && nest(&mut nesting, 2, &[B, C]).is_empty());
    let found = nest(&mut nesting, 3, &[C, A]);
    let way: Vec<_> = found[0].before.iter().map(|nested| (nested.outer, nested.inner)).collect();
    assert_eq!(way, [(Class::Named("a"), Class::Named("b")), (Class::Named("b"), Class::Named("c"))]);
}

#[test]
fn an_inversion_names_classes_lines_and_workers() {
    let here = Location::caller();
    let mut nesting = Nesting::default();
    take(&mut nesting, 1, A, Some(here));
    take(&mut nesting, 1, B, Some(here));
    take(&mut nesting, 2, B, Some(here));
    let found = take(&mut nesting, 2, A, None);
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
    let mut nesting = Nesting::default();
    nest(&mut nesting, 1, &[A, B]);
    // b, then a without waiting: no cycle can come of it. c within both.
    take(&mut nesting, 2, B, None);
    nesting.got(2, A, 1, None);
    assert!(take(&mut nesting, 2, C, None).is_empty());
    for lock in [A, B, C] {
        nesting.gave(2, lock, 1);
    }
    assert_eq!(nest(&mut nesting, 3, &[C, A]).len(), 1);
}

#[test]
fn locks_are_given_up_in_any_order() {
    let mut nesting = Nesting::default();
    nesting.got(1, A, 1, None);
    nesting.got(1, B, 1, None);
    nesting.gave(1, A, 1);
    // Only b is held now.
    assert!(take(&mut nesting, 1, C, None).is_empty());
    nesting.gave(1, B, 1);
    nesting.gave(1, C, 1);
    assert!(nest(&mut nesting, 1, &[C, A]).is_empty());
    assert_eq!(nest(&mut nesting, 2, &[C, B]).len(), 1, "c was taken while b was held");
}

#[test]
fn entering_again_nests_nothing() {
    let mut nesting = Nesting::default();
    take(&mut nesting, 1, A, None);
    take(&mut nesting, 1, B, None);
    assert!(take(&mut nesting, 1, A, None).is_empty(), "a is held already");
    nesting.gave(1, A, 1);
    nesting.gave(1, B, 1);
    assert_eq!(nesting.counts()[2], 1, "one level of a is left");
    assert!(take(&mut nesting, 1, C, None).is_empty());
    assert_eq!(nest(&mut nesting, 2, &[C, A]).len(), 1, "c was taken while a was held");
}

#[test]
fn two_locks_of_one_name_are_an_inversion_once() {
    let twin = LockId { number: 9, name: Some("a") };
    let mut nesting = Nesting::default();
    let found = nest(&mut nesting, 1, &[A, twin]);
    assert!(found[0].before.is_empty() && found[0].to_string().contains("of the same name"), "{}", found[0]);
    assert!(nest(&mut nesting, 2, &[twin, A]).is_empty());
    // Locks without a name are not one class.
    let [one, other] = [4, 5].map(|number| LockId { number, name: None });
    assert!(nest(&mut nesting, 1, &[one, other]).is_empty());
    assert_eq!(nest(&mut nesting, 1, &[other, one]).len(), 1);
}

#[test]
fn a_lock_without_a_name_is_forgotten_with_itself() {
    let nameless = LockId { number: 7, name: None };
    let mut nesting = Nesting::default();
    nest(&mut nesting, 1, &[A, nameless, B]);
    take(&mut nesting, 1, nameless, None);
    assert_eq!(nesting.counts(), [3, 3, 1]);
    nesting.forget(nameless);
    assert_eq!(nesting.counts(), [2, 1, 0]);
    // A name stays: other locks have it.
    nesting.forget(A);
    assert_eq!(nest(&mut nesting, 1, &[B, A]).len(), 1);
}

#[test]
fn who_cannot_be_told_from_others_is_passed_by() {
    let mut nesting = Nesting::default();
    assert!(nest(&mut nesting, ANONYMOUS, &[A, B]).is_empty() && nest(&mut nesting, ANONYMOUS, &[B, A]).is_empty());
    assert_eq!(nesting.counts(), [0, 0, 0]);
}

#[test]
fn a_hold_may_become_anothers() {
    let mut nesting = Nesting::default();
    nest(&mut nesting, 1, &[B, A]);
    take(&mut nesting, 1, A, None);
    nesting.moved(1, 2, A);
    assert!(take(&mut nesting, 1, B, None).is_empty());
    assert_eq!(take(&mut nesting, 2, B, None).len(), 1);
}

#[test]
fn there_is_room_for_so_many_and_no_more() {
    let mut nesting = Nesting::default();
    for number in 10..3_000 {
        assert!(nest(&mut nesting, 1, &[A, LockId { number, name: None }]).is_empty());
    }
    assert!(nesting.is_full());
    assert_eq!(nesting.counts(), [2048, 2047, 0]);
    let mut nesting = Nesting::default();
    for number in 10..300 {
        nest(&mut nesting, 1, &(10..=number).map(|number| LockId { number, name: None }).rev().take(120).collect::<Vec<_>>());
    }
    assert!(nesting.is_full());
    assert_eq!(nesting.counts()[1], 8192);
}

/// Everything that was ever seen, and each question answered from all of it.
#[derive(Default)]
struct Naive {
    nested: BTreeSet<(Class, Class)>,
    held: BTreeMap<u64, Vec<LockId>>,
    told: BTreeSet<BTreeSet<Class>>,
}

fn class(lock: LockId) -> Class {
    lock.name.map_or(Class::Lock(lock.number), Class::Named)
}

impl Naive {
    /// The pairs of which an inversion is new, the outer class first.
    fn wants(&mut self, owner: u64, lock: LockId) -> BTreeSet<(Class, Class)> {
        let held = self.held.get(&owner).cloned().unwrap_or_default();
        let mut found = BTreeSet::new();
        if held.contains(&lock) {
            return found;
        }
        let inner = class(lock);
        for outer in held.into_iter().map(class) {
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
        self.held.values_mut().for_each(|held| held.retain(|other| *other != lock));
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
        let (mut nesting, mut naive, mut next) = (Nesting::default(), Naive::default(), 100);
        // Mostly upwards, so that an inversion is an event and not the rule.
        let upwards = random.within(50, 100);
        for step in 0..200 {
            let (owner, at) = (random.within(1, 4), random.index(locks.len()));
            let mut lock = locks[at];
            match random.within(0, 10) {
                0..6 => {
                    let top = naive.held.get(&owner).and_then(|held| held.iter().map(|lock| class(*lock)).max());
                    if let (Some(top), true) = (top, random.chance(upwards)) {
                        lock = locks.iter().copied().find(|lock| class(*lock) > top).unwrap_or(lock);
                    }
                    let waits = random.chance(80);
                    if waits {
                        let found: Vec<Inversion> = nesting.wants(owner, lock, None, &owner);
                        let pairs: BTreeSet<_> = found.iter().map(|found| (found.now.outer, found.now.inner)).collect();
                        assert_eq!(
                            (found.len(), &pairs),
                            (pairs.len(), &naive.wants(owner, lock)),
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
                        nesting.got(owner, lock, 1, None);
                        naive.held.entry(owner).or_default().push(lock);
                    }
                }
                6..9 => {
                    let held = naive.held.entry(owner).or_default();
                    if !held.is_empty() {
                        let given = held.swap_remove(random.index(held.len()));
                        nesting.gave(owner, given, 1);
                    }
                }
                _ if lock.name.is_none() && random.chance(30) => {
                    nesting.forget(lock);
                    naive.forget(lock);
                    locks[at] = LockId { number: next, name: None };
                    next += 1;
                }
                _ => {}
            }
            naive.held.retain(|_, held| !held.is_empty());
            let counts = nesting.counts();
            assert_eq!([counts[1], counts[2]], [naive.nested.len(), naive.held.len()], "seed {seed}, history {history}, step {step}");
        }
    }
}
