//! Locks by key, and several at once.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use heirlock::local::{KeyedLock, lock_all};
use pollster::block_on;

use crate::by::By;
use crate::common::{Figure, Report};
use crate::compare::{Peer, alone, compare, runtime};
use crate::contended::tasks;

/// What people write: a mutex of each key in a map, taken out by whoever finds that nobody else has it.
struct Map<K>(Mutex<HashMap<K, Arc<tokio::sync::Mutex<()>>>>);

impl<K: Eq + Hash + Copy> Map<K> {
    fn new() -> Map<K> {
        Map(Mutex::new(HashMap::new()))
    }

    async fn lock(&self, key: K) -> InMap<'_, K> {
        let lock = Arc::clone(self.0.lock().unwrap().entry(key).or_default());
        let guard = Some(lock.lock_owned().await);
        InMap { map: self, key, guard }
    }
}

struct InMap<'a, K: Eq + Hash + Copy> {
    map: &'a Map<K>,
    key: K,
    guard: Option<tokio::sync::OwnedMutexGuard<()>>,
}

impl<K: Eq + Hash + Copy> Drop for InMap<'_, K> {
    fn drop(&mut self) {
        self.guard = None;
        let mut map = self.map.0.lock().unwrap();
        if map.get(&self.key).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            map.remove(&self.key);
        }
    }
}

const TIMES: u64 = 200_000;
const MANY: u64 = 100_000;

/// Locks and unlocks keys that nobody else wants, so many different ones.
fn ours(keys: u64) -> f64 {
    let keyed = KeyedLock::new();
    By::Thread.time(TIMES, || {
        block_on(async {
            for at in 0..TIMES {
                drop(keyed.lock(at % keys).await.unwrap());
            }
        });
    })
}

fn theirs(keys: u64) -> f64 {
    let map = Map::new();
    By::Thread.time(TIMES, || {
        block_on(async {
            for at in 0..TIMES {
                drop(map.lock(at % keys).await);
            }
        });
    })
}

const PEER: &str = "Mutex<HashMap>";

pub(crate) fn keyed(report: &mut Report) {
    for (keys, what) in [(1, "KeyedLock, one key"), (MANY, "KeyedLock, 100,000 keys in turn")] {
        compare(report, what, || ours(keys), vec![Peer::new(PEER, None, || theirs(keys))]);
    }
    let labelled = || {
        let keyed = KeyedLock::named("keys").label(u64::to_string);
        By::Thread.time(TIMES, || {
            block_on(async {
                for _ in 0..TIMES {
                    drop(keyed.lock(7).await.unwrap());
                }
            });
        })
    };
    compare(report, "KeyedLock, one key, with a label", labelled, vec![Peer::new("without", None, || ours(1))]);
    let held = || {
        let keyed = KeyedLock::new();
        let mut guards = Vec::new();
        By::Thread.time(MANY, || {
            guards.extend((0..MANY).map(|at| keyed.try_lock(at).unwrap()));
            guards.clear();
        })
    };
    let held_there = || {
        let (map, mut guards) = (Map::new(), Vec::new());
        By::Thread.time(MANY, || {
            guards.extend((0..MANY).map(|at| block_on(map.lock(at))));
            guards.clear();
        })
    };
    compare(report, "KeyedLock, 100,000 keys held at once", held, vec![Peer::new(PEER, None, held_there)]);
    let runtime = runtime(2);
    for (keys, what) in [(8, "KeyedLock, 64 tasks want 8 keys, yield while held, 2 threads"), (4096, "the same, 4096 keys")] {
        let ours = || {
            let keyed = Arc::new(KeyedLock::new());
            tasks(&runtime, By::Wall, 64 * 1000, 64, move |stream| {
                let keyed = Arc::clone(&keyed);
                async move {
                    for at in 0..1000 {
                        let _guard = keyed.lock((stream * 7919 + at * 31) % keys).await.unwrap();
                        tokio::task::yield_now().await;
                    }
                }
            })
        };
        let theirs = || {
            let map = Arc::new(Map::new());
            tasks(&runtime, By::Wall, 64 * 1000, 64, move |stream| {
                let map = Arc::clone(&map);
                async move {
                    for at in 0..1000 {
                        let _guard = map.lock((stream * 7919 + at * 31) % keys).await;
                        tokio::task::yield_now().await;
                    }
                }
            })
        };
        compare(report, what, ours, vec![Peer::new(PEER, None, theirs)]);
    }
    several(report);
}

/// Three free locks at once, beside one after the other.
fn several(report: &mut Report) {
    let locks = [1, 2, 3].map(heirlock::local::Mutex::new);
    let at_once = || {
        By::Thread.time(TIMES, || {
            block_on(async {
                for _ in 0..TIMES {
                    drop(lock_all((locks[2].lock(), locks[0].lock(), locks[1].lock())).await.unwrap());
                }
            });
        })
    };
    let one_by_one = || {
        By::Thread.time(TIMES, || {
            block_on(async {
                for _ in 0..TIMES {
                    let _guards = (locks[0].lock().await.unwrap(), locks[1].lock().await.unwrap(), locks[2].lock().await.unwrap());
                }
            });
        })
    };
    compare(report, "lock_all of three free locks", at_once, vec![Peer::new("one by one", None, one_by_one)]);
}

/// What a million keys leave behind that were locked once each, and a hundred thousand that were held at once.
pub(crate) fn memory(report: &mut Report) {
    let keyed = KeyedLock::new();
    drop(keyed.try_lock(0).unwrap());
    let mut guards = Vec::with_capacity(usize::try_from(MANY).unwrap());
    let before = resident();
    (0..1_000_000_u64).for_each(|at| drop(keyed.try_lock(at).unwrap()));
    left(report, "resident after 1,000,000 keys, once each", before);
    guards.extend((0..MANY).map(|at| keyed.try_lock(at).unwrap()));
    let each = f64::from(u32::try_from(resident().saturating_sub(before) / MANY).unwrap());
    alone(report, "resident of 100,000 keys that are held: each".into(), " bytes", || each);
    guards.clear();
    guards.shrink_to_fit();
    give_back();
    left(report, "resident after 100,000 keys held at once", before);
    assert!(keyed.is_empty());
}

fn left(report: &mut Report, what: &str, before: u64) {
    let left = f64::from(u32::try_from(resident().saturating_sub(before) / 1024).unwrap());
    report.add(Figure {
        what: what.into(),
        ours: format!("{left} KiB more"),
        peer: "-".into(),
        measured: left,
        aim: Some(1024.0),
        unit: " KiB",
    });
}

/// The allocator keeps what is freed below the last block in use, for whoever comes next. It is to give that back, so that what is left is what is used.
fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        unsafe extern "C" {
            safe fn malloc_trim(pad: usize) -> std::ffi::c_int;
        }
        malloc_trim(0);
    }
}

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}
