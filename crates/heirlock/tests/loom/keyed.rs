//! Models of what comes and goes: keys that are dropped when idle, and several locks at once.

use std::sync::Arc;
use std::time::Duration;

use crate::common::loom_world::{Inside, World, assert_idle, model, poll_once, worker};
use heirlock::Worker;
use heirlock::local::{KeyedLock, Mutex, OwnedKeyedGuard, lock_all};
use loom::future::block_on;
use loom::thread::{JoinHandle, spawn};

/// Keys, and what each of them guards.
#[derive(Clone)]
struct Keys {
    keyed: Arc<KeyedLock<usize>>,
    inside: Arc<[Inside; 2]>,
}

impl Keys {
    fn new(world: &World) -> Keys {
        Keys { keyed: Arc::new(KeyedLock::new().in_domain(&world.domain)), inside: Arc::default() }
    }

    fn visit(&self, guard: &OwnedKeyedGuard<usize>) {
        self.inside[*guard.key()].visit();
    }

    /// The key's lock, taken when it is free.
    fn hold(&self, worker: &Worker, key: usize) -> OwnedKeyedGuard<usize> {
        let guard = block_on(worker.run(self.keyed.lock_owned(key))).unwrap();
        self.visit(&guard);
        guard
    }

    /// Acquires in a thread of its own, and visits.
    fn visitor(&self, worker: &Worker, key: usize) -> JoinHandle<()> {
        let (keys, worker) = (self.clone(), worker.clone());
        spawn(move || drop(keys.hold(&worker, key)))
    }

    /// So many have been inside, no key is there any more, nothing is left of anybody.
    fn assert_over(&self, world: &World, visits: [u32; 2], workers: &[&Worker]) {
        assert_eq!(self.keyed.len(), 0);
        // Whoever comes now sees what all before it did, though it has another entry.
        for (key, visits) in visits.into_iter().enumerate() {
            let guard = self.keyed.try_lock(key).unwrap();
            assert_eq!(self.inside[key].visits(), visits);
            drop(guard);
        }
        assert_idle(&world.domain, workers);
    }
}

/// The last guard goes while somebody comes: it waits on that entry, or makes one of its own, and never both are inside.
#[test]
fn the_last_guard_against_a_newcomer() {
    model("the last guard against a newcomer", 5, |world| {
        let (last, comes) = (worker("last", 0), worker("comes", 5));
        let keys = Keys::new(world);
        let guard = keys.hold(&last, 0);
        let coming = keys.visitor(&comes, 0);
        keys.visit(&guard);
        drop(guard);
        coming.join().unwrap();
        keys.assert_over(world, [3, 0], &[&last, &comes]);
    });
}

/// Two make the key's entry at once, and a third looks.
#[test]
fn two_newcomers_and_a_look() {
    model("two newcomers and a look", 3, |world| {
        let (one, other) = (worker("one", 0), worker("other", 5));
        let keys = Keys::new(world);
        let coming = keys.visitor(&one, 0);
        let looking = spawn({
            let keys = keys.clone();
            move || {
                let _: bool = keys.keyed.is_locked(&0);
                assert!(keys.keyed.len() < 2);
            }
        });
        drop(keys.hold(&other, 0));
        coming.join().unwrap();
        looking.join().unwrap();
        keys.assert_over(world, [2, 0], &[&one, &other]);
    });
}

/// Who was granted the key is cancelled, perhaps as its last user, while another comes.
#[test]
fn a_cancelled_grant_against_a_newcomer() {
    model("a cancelled grant against a newcomer", 3, |world| {
        let (holds, waits, comes) = (worker("holds", 0), worker("waits", 5), worker("comes", 3));
        let keys = Keys::new(world);
        let guard = keys.hold(&holds, 0);
        let mut wait = keys.keyed.lock_owned(0);
        assert!(waits.scope(|| poll_once(&mut wait)).is_pending());
        let coming = keys.visitor(&comes, 0);
        let cancels = spawn(move || drop(wait));
        drop(guard);
        cancels.join().unwrap();
        coming.join().unwrap();
        keys.assert_over(world, [2, 0], &[&holds, &waits, &comes]);
    });
}

/// A wait for the key expires while its holder goes: it has it or not, and the entry goes with whoever is last.
#[test]
fn an_expiry_against_the_last_guard() {
    model("an expiry against the last guard", 3, |world| {
        let (holds, waits) = (worker("holds", 0), worker("waits", 5));
        let keys = Keys::new(world);
        let guard = keys.hold(&holds, 0);
        let waiting = spawn({
            let (keys, waits) = (keys.clone(), waits.clone());
            move || match block_on(waits.run(keys.keyed.lock_owned(0).timeout(Duration::from_millis(5)))) {
                Ok(guard) => {
                    keys.visit(&guard);
                    1
                }
                Err(error) => {
                    assert!(error.is_timeout());
                    0
                }
            }
        });
        world.clock.advance(Duration::from_millis(5));
        world.domain.expire();
        drop(guard);
        // It may have begun to wait only now.
        world.clock.advance(Duration::from_millis(5));
        world.domain.expire();
        let visited = waiting.join().unwrap();
        keys.assert_over(world, [1 + visited, 0], &[&holds, &waits]);
    });
}

/// Two locks side by side: which comes first must be the same in every execution. (Entries of keys lie here or there; `shuttle/all.rs` has them.)
type Pair = Arc<[Mutex<Inside>; 2]>;

fn pair(world: &World) -> Pair {
    Arc::new([(); 2].map(|()| Mutex::new(Inside::default()).in_domain(&world.domain)))
}

/// Each has been visited so often, and is free.
fn assert_visited(world: &World, pair: &Pair, visits: u32, workers: &[&Worker]) {
    for lock in &**pair {
        assert!(!lock.is_locked());
        assert_eq!(lock.try_lock().unwrap().visits(), visits);
    }
    assert_idle(&world.domain, workers);
}

/// Two locks, named in opposite orders.
#[test]
fn all_in_opposite_orders() {
    model("all in opposite orders", 4, |world| {
        let (there, back) = (worker("there", 0), worker("back", 5));
        let locks = pair(world);
        let visit = |worker: &Worker, order: [usize; 2]| {
            let (worker, locks) = (worker.clone(), Arc::clone(&locks));
            move || {
                let guards = block_on(worker.run(lock_all(order.map(|at| locks[at].lock())))).unwrap();
                guards.iter().for_each(|guard| guard.visit());
            }
        };
        let going = spawn(visit(&there, [0, 1]));
        visit(&back, [1, 0])();
        going.join().unwrap();
        assert_visited(world, &locks, 2, &[&there, &back]);
    });
}

/// One that has the first lock and waits for the second is dropped while that is released: whoever waits for the first has it then.
#[test]
fn all_given_up_against_a_release() {
    model("all given up against a release", 3, |world| {
        let (holds, all, waits) = (worker("holds", 0), worker("all", 5), worker("waits", 3));
        let locks = pair(world);
        let guard = block_on(holds.run(locks[1].lock())).unwrap();
        let mut wait = Box::pin({
            let (locks, all) = (Arc::clone(&locks), all.clone());
            async move { all.run(lock_all((locks[1].lock(), locks[0].lock()))).await.map(drop) }
        });
        assert!(poll_once(&mut wait).is_pending());
        let waiting = spawn({
            let (waits, locks) = (waits.clone(), Arc::clone(&locks));
            move || block_on(waits.run(locks[0].lock())).unwrap().visit()
        });
        let drops = spawn(move || drop(wait));
        guard.visit();
        drop(guard);
        drops.join().unwrap();
        waiting.join().unwrap();
        assert_visited(world, &locks, 1, &[&holds, &all, &waits]);
    });
}

/// Its time is over while it is granted the second: it has both, or none.
#[test]
fn all_granted_against_expiry() {
    model("all granted against expiry", 3, |world| {
        let (holds, all) = (worker("holds", 0), worker("all", 5));
        let locks = pair(world);
        let guard = block_on(holds.run(locks[1].lock())).unwrap();
        let mut wait = Box::pin({
            let (locks, all) = (Arc::clone(&locks), all.clone());
            async move {
                let both = lock_all((locks[1].lock(), locks[0].lock())).timeout(Duration::from_millis(5));
                all.run(both).await.map(|(one, other)| [one, other].iter().for_each(|guard| guard.visit()))
            }
        });
        assert!(poll_once(&mut wait).is_pending());
        let waiting = spawn(move || block_on(wait));
        let expires = spawn({
            let (clock, domain) = (world.clock.clone(), world.domain.clone());
            move || {
                clock.advance(Duration::from_millis(5));
                domain.expire();
            }
        });
        drop(guard);
        expires.join().unwrap();
        let visits = match waiting.join().unwrap() {
            Ok(()) => 1,
            Err(error) => {
                assert!(error.is_timeout());
                0
            }
        };
        assert_visited(world, &locks, visits, &[&holds, &all]);
    });
}
