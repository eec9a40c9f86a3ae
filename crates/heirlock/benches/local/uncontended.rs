//! Locks that nobody else wants.

use std::future::Future;
use std::time::Duration;

use heirlock::Worker;
use heirlock::local::RLock;
use parking_lot::ReentrantMutex;
use pollster::block_on;
use tokio::time::timeout;

use crate::by::By;
use crate::common::Report;
use crate::compare::{Peer, compare, runtime};
use crate::locks::{AsyncLock, Blocking, Lock, Ours, Tokio};

pub(crate) const TIMES: u64 = 1_000_000;
const LONG: Duration = Duration::from_secs(5);

/// Runs the future as a task, and times it within.
pub(crate) fn in_task(future: impl Future<Output = ()> + Send + 'static) -> f64 {
    runtime(1).block_on(async {
        let timed = async {
            let watch = By::Thread.start();
            future.await;
            watch.each(TIMES)
        };
        tokio::spawn(timed).await.unwrap()
    })
}

fn count_in_task<L: Lock>() -> f64 {
    in_task(async { L::new().count(TIMES).await })
}

fn count_on_thread<L: Lock>() -> f64 {
    let lock = L::new();
    By::Thread.time(TIMES, || block_on(lock.count(TIMES)))
}

fn count_blocking<L: Blocking>() -> f64 {
    let lock = L::new();
    By::Thread.time(TIMES, || lock.count(TIMES))
}

pub(crate) fn mutex(report: &mut Report) {
    let peers = |asynchronous: [fn() -> f64; 2]| {
        vec![
            Peer::new("std", 1.25, count_blocking::<std::sync::Mutex<u64>>),
            Peer::new("parking_lot", None, count_blocking::<parking_lot::Mutex<u64>>),
            Peer::new("tokio", 0.3, asynchronous[0]),
            Peer::new("async-lock", 0.6, asynchronous[1]),
        ]
    };
    let on_thread = || peers([count_on_thread::<Tokio>, count_on_thread::<AsyncLock>]);
    compare(report, "uncontended Mutex, outside of a runtime", count_on_thread::<Ours>, on_thread());
    let in_tasks = || peers([count_in_task::<Tokio>, count_in_task::<AsyncLock>]);
    compare(report, "uncontended Mutex, in a task", count_in_task::<Ours>, in_tasks());
    let as_worker = || in_task(Worker::new("w").run(async { Ours::new().count(TIMES).await }));
    compare(report, "uncontended Mutex, in a task that runs as a worker", as_worker, in_tasks());
    let blocking = || {
        let lock = heirlock::local::Mutex::new(0_u64);
        By::Thread.time(TIMES, || (0..TIMES).for_each(|_| *lock.lock_blocking().unwrap() += 1))
    };
    compare(report, "uncontended Mutex, lock_blocking", blocking, on_thread());
}

pub(crate) fn reentrant(report: &mut Report) {
    let theirs = || {
        let lock = ReentrantMutex::new(std::cell::Cell::new(0_u64));
        By::Thread.time(TIMES, || {
            for _ in 0..TIMES {
                let guard = lock.lock();
                guard.set(guard.get() + 1);
            }
        })
    };
    let peers = || vec![Peer::new("parking_lot", 1.3, theirs)];
    compare(report, "uncontended RLock, in a task that runs as a worker", || entering(false), peers());
    compare(report, "uncontended RLock, lock_blocking", || entering_blocking(false), peers());
    let first = |run: fn(bool) -> f64| vec![Peer::new("the first", 1.0, move || run(false))];
    compare(report, "RLock entered again, in a task that runs as a worker", || entering(true), first(entering));
    compare(report, "RLock entered again, lock_blocking", || entering_blocking(true), first(entering_blocking));
}

/// Something that `&T` can count: plain loads and stores, as in the peer's cell.
#[derive(Default)]
struct Counter(std::sync::atomic::AtomicU64);

impl Counter {
    fn add(&self) {
        use std::sync::atomic::Ordering::Relaxed;
        self.0.store(self.0.load(Relaxed) + 1, Relaxed);
    }
}

fn entering(again: bool) -> f64 {
    in_task(Worker::new("w").run(async move {
        let lock = RLock::new(Counter::default());
        let _outer = if again { Some(lock.lock().await.unwrap()) } else { None };
        for _ in 0..TIMES {
            lock.lock().await.unwrap().add();
        }
    }))
}

fn entering_blocking(again: bool) -> f64 {
    let lock = RLock::new(Counter::default());
    let _outer = again.then(|| lock.lock_blocking().unwrap());
    By::Thread.time(TIMES, || (0..TIMES).for_each(|_| lock.lock_blocking().unwrap().add()))
}

/// With a timeout that never comes.
pub(crate) fn deadline(report: &mut Report) {
    let ours = || {
        in_task(async {
            let lock = heirlock::local::Mutex::new(0_u64);
            for _ in 0..TIMES {
                *lock.lock().timeout(LONG).await.unwrap() += 1;
            }
        })
    };
    let theirs = || {
        in_task(async {
            let lock = tokio::sync::Mutex::new(0_u64);
            for _ in 0..TIMES {
                *timeout(LONG, lock.lock()).await.unwrap() += 1;
            }
        })
    };
    let peers = vec![Peer::new("ours without", 1.05, count_in_task::<Ours>), Peer::new("tokio", 0.12, theirs)];
    compare(report, "uncontended Mutex with a 5 s timeout, in a task", ours, peers);
}
