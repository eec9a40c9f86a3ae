//! Many acquires at once, cancelled wherever they are.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common {
    pub(crate) mod polls;
    pub(crate) mod random;
}

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use common::polls::{in_tasks, once, pause};
use common::random::{Random, seed};
use heirlock::Worker;
use heirlock::local::{Domain, Mutex};

/// What the lock guards, and whether anybody is inside now.
#[derive(Default)]
struct Guarded {
    count: u64,
}

struct Storm {
    domain: Domain,
    locks: [Mutex<Guarded>; 2],
    inside: [AtomicBool; 2],
    held: AtomicU64,
    timed_out: AtomicU64,
}

impl Storm {
    fn new() -> Arc<Storm> {
        let domain = Domain::builder().build();
        let locks = [(), ()].map(|()| Mutex::new(Guarded::default()).in_domain(&domain));
        Arc::new(Storm { domain, locks, inside: Default::default(), held: AtomicU64::new(0), timed_out: AtomicU64::new(0) })
    }

    /// Acquires once, and goes away at some point of it.
    async fn acquire(&self, random: &mut Random) {
        let which = random.index(2);
        let mut wait = self.locks[which].lock().priority(i32::try_from(random.within(0, 50)).unwrap());
        if random.chance(30) {
            wait = wait.timeout(Duration::from_micros(random.within(0, 300)));
        }
        // Dropped before it is polled, while it is queued, or when it was granted and does not know yet.
        for _ in 0..random.pick(&[0, 1, 1, 2, 3, 5, 1000]) {
            match once(&mut wait).await {
                Poll::Pending => pause().await,
                Poll::Ready(Err(error)) => {
                    assert!(error.is_timeout(), "{error}");
                    self.timed_out.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                Poll::Ready(Ok(mut guard)) => {
                    assert!(!self.inside[which].swap(true, Ordering::Relaxed), "two are inside");
                    guard.count += 1;
                    self.held.fetch_add(1, Ordering::Relaxed);
                    for _ in 0..random.index(3) {
                        pause().await;
                    }
                    self.inside[which].store(false, Ordering::Relaxed);
                    return;
                }
            }
        }
    }

    fn assert_over(&self) {
        let mut counts = 0;
        for lock in &self.locks {
            assert!(!lock.is_locked());
            counts += lock.try_lock().unwrap().count;
        }
        assert_eq!(counts, self.held.load(Ordering::Relaxed));
        assert!(counts > 0);
        assert_eq!(self.domain.records(), [0; 7]);
    }
}

#[test]
fn case_f05_cancel_storm() {
    let seed = seed();
    println!("HEIRLOCK_SEED={seed}");
    for explicit in [true, false] {
        let storm = Storm::new();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let workers: Vec<Worker> = (0..8).map(|at| Worker::new(format!("w{at}")).priority(at)).collect();
        runtime.block_on(async {
            let tasks: Vec<_> = (0_u64..)
                .zip(&workers)
                .map(|(stream, worker)| {
                    let storm = Arc::clone(&storm);
                    let work = async move {
                        let mut random = Random::new(seed, stream);
                        for _ in 0..1250 {
                            storm.acquire(&mut random).await;
                        }
                    };
                    if explicit { tokio::spawn(worker.run(work)) } else { tokio::spawn(work) }
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
        storm.assert_over();
        for worker in &workers {
            assert_eq!(worker.effective_priority(), worker.base_priority());
        }
    }
}

/// The same by threads that block beside threads that poll: without any runtime.
#[test]
fn case_f05_without_a_runtime() {
    let seed = seed();
    println!("HEIRLOCK_SEED={seed}");
    let storm = Storm::new();
    std::thread::scope(|scope| {
        for stream in 0..4 {
            let storm = &storm;
            scope.spawn(move || {
                let mut random = Random::new(seed, stream);
                for _ in 0..500 {
                    if stream == 0 {
                        storm.locks[0].lock_blocking().unwrap().count += 1;
                        storm.held.fetch_add(1, Ordering::Relaxed);
                    } else {
                        pollster::block_on(storm.acquire(&mut random));
                    }
                }
            });
        }
    });
    storm.assert_over();
}

#[test]
fn case_f17_bare_arms() {
    in_tasks(|| async {
        let domain = Domain::builder().build();
        let lock = Arc::new(Mutex::new(0_u64).in_domain(&domain));
        let mut arms: Vec<_> = (0..100)
            .map(|_| {
                let lock = Arc::clone(&lock);
                Box::pin(async move {
                    let mut guard = lock.lock().await.unwrap();
                    let before = *guard;
                    pause().await;
                    *guard = before + 1;
                })
            })
            .collect();
        // As `buffer_unordered` does, all arms in one task.
        while !arms.is_empty() {
            let mut left = Vec::new();
            for mut arm in arms {
                if once(&mut arm).await.is_pending() {
                    left.push(arm);
                }
            }
            arms = left;
            pause().await;
        }
        assert_eq!(*lock.lock().await.unwrap(), 100);
        assert_eq!(domain.records(), [0; 7]);
    });
}
