//! What the keys of a `KeyedLock` may do: hash alike, panic, come back here.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as StdMutex};

use crate::common::local::{assert_idle, domain, ms, worker};
use crate::common::polls::{Hand, everywhere, pause};
use crate::common::random::{Random, seed};
use heirlock::local::{Domain, KeyedLock, lock_all};

/// All have the same hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Alike(u32);

impl Hash for Alike {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u8(0);
    }
}

/// Of one hash each key has its own lock, whichever of the others come and go.
#[test]
fn different_keys_of_one_hash() {
    everywhere(|| async {
        let (domain, _) = domain();
        let keyed = KeyedLock::new().in_domain(&domain);
        let mut held: Vec<_> = (0..20).map(|at| keyed.try_lock(Alike(at)).unwrap()).collect();
        assert_eq!(keyed.len(), 20);
        for at in 0..20 {
            assert!(keyed.is_locked(&Alike(at)) && keyed.try_lock(Alike(at)).unwrap_err().is_would_block());
        }
        let mut waits = Hand::by(&worker("w", 0), keyed.lock(Alike(7))).waiting();
        // The oldest, the newest, and out of the middle.
        for at in [0, 18, 9, 0, 6] {
            let gone = *held.remove(at).key();
            assert!(!keyed.is_locked(&gone));
            drop(keyed.try_lock(gone).unwrap());
        }
        let left: HashSet<u32> = held.iter().map(|guard| guard.key().0).collect();
        assert_eq!((left.len(), keyed.len()), (15, 15));
        assert!(waits.poll().is_pending());
        held.retain(|guard| guard.key().0 != 7);
        drop(waits.ready().unwrap());
        drop((held, waits));
        assert!(keyed.is_empty());
        assert_idle(&domain);
    });
}

/// The same by threads that come and go at the same time.
#[test]
fn different_keys_of_one_hash_on_several_threads() {
    let seed = seed();
    println!("HEIRLOCK_SEED={seed}");
    let keyed = KeyedLock::new();
    let inside = [const { AtomicBool::new(false) }; 5];
    let visits = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for stream in 0..4 {
            let (keyed, inside, visits) = (&keyed, &inside, &visits);
            scope.spawn(move || {
                let mut random = Random::new(seed, stream);
                for _ in 0..2000 {
                    let at = random.index(inside.len());
                    let guard = keyed.lock_blocking(Alike(u32::try_from(at).unwrap())).unwrap();
                    assert!(!inside[at].swap(true, Ordering::Relaxed), "two are inside");
                    visits.fetch_add(1, Ordering::Relaxed);
                    inside[at].store(false, Ordering::Relaxed);
                    drop(guard);
                }
            });
        }
    });
    assert_eq!((visits.load(Ordering::Relaxed), keyed.len()), (8000, 0));
}

/// When a call of it panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Panics {
    No,
    InHash,
    InEq,
}

/// A key with foreign code in every corner.
#[derive(Clone, Debug)]
struct Wild(&'static str, Panics);

impl Hash for Wild {
    fn hash<H: Hasher>(&self, state: &mut H) {
        assert!(self.1 != Panics::InHash, "in hash, on purpose");
        self.0.hash(state);
    }
}

impl PartialEq for Wild {
    fn eq(&self, other: &Wild) -> bool {
        assert!(self.1 != Panics::InEq && other.1 != Panics::InEq, "in eq, on purpose");
        self.0 == other.0
    }
}

impl Eq for Wild {}

fn panics<T>(work: impl FnOnce() -> T) -> bool {
    catch_unwind(AssertUnwindSafe(work)).is_err()
}

/// The call has failed, and that is all: who holds and waits goes on, the key can be had again, nothing is left.
#[test]
fn a_key_that_panics() {
    let (domain, _) = domain();
    let keyed = KeyedLock::new().in_domain(&domain);
    let guard = keyed.try_lock(Wild("a", Panics::No)).unwrap();
    let mut waits = Hand::new(keyed.lock(Wild("a", Panics::No))).waiting();
    for how in [Panics::InHash, Panics::InEq] {
        let wild = Wild("a", how);
        assert!(panics(|| keyed.try_lock(wild.clone())));
        assert!(panics(|| keyed.lock_blocking(wild.clone())));
        assert!(panics(|| keyed.is_locked(&wild)));
        let mut wait = Hand::new(keyed.lock(wild.clone()));
        assert!(panics(|| wait.poll()));
        // As of any future.
        assert!(panics(|| wait.poll()));
        drop(wait);
        // Of several, none.
        let mut all = Hand::new(lock_all((keyed.lock(Wild("b", Panics::No)), keyed.lock(wild))));
        assert!(panics(|| all.poll()));
        assert!(!keyed.is_locked(&Wild("b", Panics::No)));
        drop(all);
        assert_eq!(keyed.len(), 1);
    }
    drop(guard);
    drop(waits.ready().unwrap());
    drop(waits);
    assert!(keyed.is_empty());
    assert_idle(&domain);
}

#[test]
fn a_label_that_panics() {
    let (domain, _) = domain();
    let keyed = KeyedLock::named("odd").label(|key: &u8| if *key == 1 { panic!("on purpose") } else { key.to_string() });
    let keyed = keyed.in_domain(&domain);
    let guard = keyed.try_lock(1).unwrap();
    let mut wait = Hand::new(keyed.lock(1));
    assert!(panics(|| wait.poll()));
    assert!(panics(|| keyed.try_lock(1)));
    drop((wait, guard));
    assert!(keyed.is_empty());
    drop(keyed.try_lock(1).unwrap());
    assert_idle(&domain);
}

/// A key whose `Hash`, `Eq` and `Drop` lock others of the same `KeyedLock`, and that same key: no mutex is held then.
struct Returns {
    name: u8,
    to: Arc<KeyedLock<Returns>>,
    visits: Arc<Visits>,
}

#[derive(Default)]
struct Visits {
    count: AtomicUsize,
    /// A visit's own keys make no visits.
    under_way: AtomicBool,
}

impl Returns {
    fn visit(&self, name: u8) {
        if !self.visits.under_way.swap(true, Ordering::Relaxed) {
            self.visits.count.fetch_add(1, Ordering::Relaxed);
            let key = Returns { name, to: Arc::clone(&self.to), visits: Arc::clone(&self.visits) };
            // It may be held: whoever calls has it.
            drop(self.to.try_lock(key));
            assert!(self.to.len() < 3);
            self.visits.under_way.store(false, Ordering::Relaxed);
        }
    }
}

impl Hash for Returns {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.visit(9);
        self.visit(self.name);
        self.name.hash(state);
    }
}

impl PartialEq for Returns {
    fn eq(&self, other: &Returns) -> bool {
        self.visit(9);
        self.visit(self.name);
        self.name == other.name
    }
}

impl Eq for Returns {}

impl Drop for Returns {
    fn drop(&mut self) {
        self.visit(9);
    }
}

#[test]
fn a_key_that_comes_back_here() {
    let (domain, _) = domain();
    let (keyed, visits) = (Arc::new(KeyedLock::new().in_domain(&domain)), Arc::<Visits>::default());
    let key = || Returns { name: 1, to: Arc::clone(&keyed), visits: Arc::clone(&visits) };
    let guard = keyed.try_lock(key()).unwrap();
    assert_eq!(visits.count.swap(0, Ordering::Relaxed), 2);
    let mut waits = Hand::by(&worker("w", 0), keyed.lock(key())).waiting();
    // Hashed, compared with the one that is there, and dropped: two visits, two, and one.
    assert_eq!(visits.count.swap(0, Ordering::Relaxed), 5);
    drop(guard);
    drop(waits.ready().unwrap());
    drop(waits);
    // The other one went with its entry.
    assert_eq!(visits.count.swap(0, Ordering::Relaxed), 1);
    assert!(keyed.is_empty());
    assert_idle(&domain);
}

/// Keys that are no `Copy`, no `Clone` and no `Debug`, borrowed in another form.
#[test]
fn whatever_can_be_compared() {
    struct Opaque(Box<str>);
    impl std::borrow::Borrow<str> for Opaque {
        fn borrow(&self) -> &str {
            &self.0
        }
    }
    impl Hash for Opaque {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }
    impl PartialEq for Opaque {
        fn eq(&self, other: &Opaque) -> bool {
            self.0 == other.0
        }
    }
    impl Eq for Opaque {}
    let keyed = KeyedLock::default();
    let guard = keyed.try_lock(Opaque("a".into())).ok().unwrap();
    assert!(keyed.is_locked("a") && !keyed.is_locked("b"));
    assert_eq!(&*guard.key().0, "a");
}

/// Leaked futures and guards keep their entries, and the `KeyedLock` may go all the same: its domain forgets them.
#[test]
fn case_f15_forgotten_keys() {
    let (domain, clock) = domain();
    let keyed = KeyedLock::named("leaky").label(u8::to_string).in_domain(&domain);
    std::mem::forget(keyed.try_lock(1).unwrap());
    let mut late = Hand::by(&worker("late", 0), keyed.lock(1).timeout(ms(10))).waiting();
    let snapshot = domain.snapshot();
    let holder = &snapshot.locks[0].holders[0];
    assert!(snapshot.locks[0].name == "leaky[1]" && holder.site.as_ref().unwrap().contains("local/keyed_keys.rs"), "{snapshot}");
    clock.advance(ms(10));
    domain.expire();
    assert!(late.ready().unwrap_err().is_timeout());
    drop(late);
    std::mem::forget(keyed.lock(2));
    let unpolled = keyed.len();
    let guard = keyed.try_lock(3).unwrap();
    std::mem::forget(Hand::by(&worker("leaked", 0), keyed.lock(3)).waiting());
    drop(guard);
    assert_eq!((unpolled, keyed.len()), (1, 2));
    let moved = Box::new(keyed);
    assert!(moved.is_locked(&1) && moved.is_locked(&3));
    drop(moved);
    assert_idle(&domain);
}

/// A key's destructor runs as soon as nobody uses the key, and once.
#[test]
fn keys_are_dropped_once() {
    struct Counted(u8, Arc<StdMutex<Vec<u8>>>);
    impl Hash for Counted {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }
    impl PartialEq for Counted {
        fn eq(&self, other: &Counted) -> bool {
            self.0 == other.0
        }
    }
    impl Eq for Counted {}
    impl Drop for Counted {
        fn drop(&mut self) {
            self.1.lock().unwrap().push(self.0);
        }
    }
    let gone = Arc::new(StdMutex::new(Vec::new()));
    let key = |at| Counted(at, Arc::clone(&gone));
    let domain = Domain::builder().build();
    let keyed = Arc::new(KeyedLock::new().in_domain(&domain));
    let guard = keyed.try_lock(key(1)).unwrap();
    let waits = Hand::new(keyed.lock(key(1))).waiting();
    // The second one was needed for comparing only.
    assert_eq!(*gone.lock().unwrap(), [1]);
    drop(guard);
    assert_eq!(*gone.lock().unwrap(), [1]);
    drop(waits);
    assert_eq!(*gone.lock().unwrap(), [1, 1]);
    drop(keyed.lock(key(2)));
    assert_eq!(*gone.lock().unwrap(), [1, 1, 2]);
    let task = pollster::block_on(async { keyed.lock_owned(key(3)).await.unwrap() });
    drop(keyed);
    // The guard keeps all alive.
    std::thread::spawn(move || drop(task)).join().unwrap();
    assert_eq!(*gone.lock().unwrap(), [1, 1, 2, 3]);
    assert_idle(&domain);
}

/// Tasks that hold two keys of one hash across a pause, taken in any order.
#[test]
fn several_keys_of_one_hash_at_once() {
    everywhere(|| async {
        let keyed = Arc::new(KeyedLock::new());
        let arms = (0..6_u32).map(|at| {
            let keyed = Arc::clone(&keyed);
            heirlock::Worker::new("arm").run(async move {
                let guards = lock_all([keyed.lock(Alike(at % 3)), keyed.lock(Alike((at + 1) % 3))]).await.unwrap();
                pause().await;
                assert_eq!(guards.each_ref().map(|guard| guard.key().0), [at % 3, (at + 1) % 3]);
            })
        });
        let mut arms: Vec<_> = arms.map(Box::pin).collect();
        while !arms.is_empty() {
            let mut left = Vec::new();
            for mut arm in arms {
                if crate::common::polls::once(&mut arm).await.is_pending() {
                    left.push(arm);
                }
            }
            arms = left;
            pause().await;
        }
        assert!(keyed.is_empty());
    });
}
