//! The numbered cases of the pool.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use crate::common::polls::{Hand, pause};
use crate::common::pools::{Log, Plug, pool, runtime, worker};
use heirlock::local::Mutex;
use heirlock::pool::Pool;

const MEDIUMS: usize = 100;
/// How often each of them is polled: oftener than Low has to be.
const TURNS: usize = 8;

/// How often others were polled from when High waited until it had the lock.
#[derive(Debug, PartialEq)]
struct Polls {
    low: usize,
    medium: usize,
    mediums_ended: usize,
}

#[derive(Clone, Default)]
struct Counts([Arc<AtomicUsize>; 3]);

impl Counts {
    fn add(&self, which: usize) {
        self.0[which].fetch_add(1, Ordering::SeqCst);
    }

    fn polls(&self) -> Polls {
        let [low, medium, mediums_ended] = [0, 1, 2].map(|which| self.0[which].load(Ordering::SeqCst));
        Polls { low, medium, mediums_ended }
    }
}

/// Low holds the lock and needs 5 polls, the others are always ready, High waits. `acquires` waits for the lock, and gives a guard.
fn inversion<G: Send + 'static, L: Future<Output = G> + Send + 'static>(pool: &Pool, acquires: impl Fn() -> L) -> Polls {
    let counts = Counts::default();
    let ((held, holds), (go, goes)) = (mpsc::channel(), mpsc::channel());
    let low = pool.spawn(worker("low", 1), {
        let (counts, acquire) = (counts.clone(), acquires());
        async move {
            let guard = acquire.await;
            held.send(()).unwrap();
            // It keeps the only thread until all others are ready.
            goes.recv().unwrap();
            for _ in 0..5 {
                pause().await;
                counts.add(0);
            }
            drop(guard);
        }
    });
    holds.recv().unwrap();
    let mediums: Vec<_> = (0..MEDIUMS)
        .map(|_| {
            let counts = counts.clone();
            pool.spawn(worker("medium", 5), async move {
                for _ in 0..TURNS {
                    counts.add(1);
                    pause().await;
                }
                counts.add(2);
            })
        })
        .collect();
    let high = pool.spawn(worker("high", 10), {
        let acquire = acquires();
        async move {
            assert_eq!(counts.polls(), Polls { low: 0, medium: 0, mediums_ended: 0 });
            drop(acquire.await);
            counts.polls()
        }
    });
    go.send(()).unwrap();
    let polls = high.blocking().unwrap();
    low.blocking().unwrap();
    for medium in mediums {
        medium.blocking().unwrap();
    }
    polls
}

#[test]
fn case_p17_bounded_inversion() {
    let runtime = runtime();
    let pool = pool(&runtime, 1);
    let lock = Arc::new(Mutex::new(()));
    let with = inversion(&pool, || {
        let acquire = lock.lock_owned();
        async { acquire.await.unwrap() }
    });
    assert_eq!(with.low, 5);
    assert!(with.medium <= 1, "{with:?}");
    // The same pool, and a lock that knows no priorities.
    let lock = Arc::new(tokio::sync::Mutex::new(()));
    let without = inversion(&pool, || Arc::clone(&lock).lock_owned());
    assert_eq!(without, Polls { low: 5, medium: MEDIUMS * TURNS, mediums_ended: MEDIUMS });
}

/// As often as it takes for the two to meet in every way; in the model of tickets, they do.
#[test]
fn case_f16_reversed_callbacks() {
    let runtime = runtime();
    let pool = pool(&runtime, 1);
    for round in 0..2_000 {
        let task = worker("boosted", 10);
        let lock = Arc::new(Mutex::new(()));
        let guard = Hand::by(&task, lock.lock_owned()).ready().unwrap();
        let plug = Plug::new(&pool);
        let log = Log::default();
        let spawn = |task: &heirlock::Worker, name: &'static str| {
            let log = log.clone();
            pool.spawn(task.clone(), async move { log.say(name) })
        };
        let boosted = spawn(&task, "boosted");
        // One boosts to 50 and gives up; the other does so, too, in its own time.
        std::thread::scope(|threads| {
            for _ in 0..2 {
                threads.spawn(|| drop(Hand::by(&worker("high", 50), lock.lock_owned()).waiting()));
            }
        });
        assert_eq!(task.effective_priority(), 10);
        let others = [spawn(&worker("above", 11), "above"), spawn(&worker("below", 9), "below")];
        plug.pull().unwrap();
        boosted.blocking().unwrap();
        for other in others {
            other.blocking().unwrap();
        }
        assert_eq!(log.said(), ["above", "boosted", "below"], "in round {round}");
        drop(guard);
    }
}
