//! The read-write lock and the semaphore beside tokio's.

use std::sync::Arc;

use pollster::block_on;

use crate::by::By;
use crate::common::Report;
use crate::compare::{Peer, compare, runtime};
use crate::uncontended::{TIMES, in_task};

const READERS: u64 = 4;

macro_rules! measured {
    ($name:ident, $lock:ty) => {
        mod $name {
            use super::*;

            type Lock = $lock;

            #[allow(clippy::let_underscore_future)]
            pub(super) async fn reads(lock: &Lock, times: u64) {
                for _ in 0..times {
                    std::hint::black_box(*$crate::shared::Guarded::open(lock.read().await));
                }
            }

            async fn writes(lock: &Lock, times: u64) {
                for _ in 0..times {
                    *$crate::shared::Guarded::open(lock.write().await) += 1;
                }
            }

            pub(super) fn read() -> f64 {
                let lock = Lock::new(0);
                By::Thread.time(TIMES, || block_on(reads(&lock, TIMES)))
            }

            pub(super) fn read_in_task() -> f64 {
                in_task(async { reads(&Lock::new(0), TIMES).await })
            }

            pub(super) fn write() -> f64 {
                let lock = Lock::new(0);
                By::Thread.time(TIMES, || block_on(writes(&lock, TIMES)))
            }

            /// On two threads.
            pub(super) fn together() -> f64 {
                let lock = Arc::new(Lock::new(0));
                let runtime = runtime(2);
                let watch = By::Wall.start();
                let readers = (0..READERS).map(|_| {
                    let lock = Arc::clone(&lock);
                    runtime.spawn(async move { reads(&lock, TIMES / READERS).await })
                });
                let readers: Vec<_> = readers.collect();
                for reader in readers {
                    runtime.block_on(reader).unwrap();
                }
                watch.each(TIMES)
            }
        }
    };
}

/// A guard, or what says so.
pub(crate) trait Guarded {
    type Guard;

    fn open(self) -> Self::Guard;
}

impl<G> Guarded for Result<G, heirlock::Error> {
    type Guard = G;

    fn open(self) -> G {
        self.unwrap()
    }
}

impl<T> Guarded for tokio::sync::RwLockReadGuard<'_, T> {
    type Guard = Self;

    fn open(self) -> Self {
        self
    }
}

impl<T> Guarded for tokio::sync::RwLockWriteGuard<'_, T> {
    type Guard = Self;

    fn open(self) -> Self {
        self
    }
}

measured!(ours, heirlock::local::RwLock<u64>);
measured!(theirs, tokio::sync::RwLock<u64>);

pub(crate) fn rwlock(report: &mut Report) {
    let beside = |aim, run: fn() -> f64| vec![Peer::new("tokio", aim, run)];
    compare(report, "RwLock read, uncontended, outside of a runtime", ours::read, beside(Some(0.8), theirs::read));
    compare(report, "RwLock read, uncontended, in a task", ours::read_in_task, beside(Some(0.8), theirs::read_in_task));
    compare(report, "RwLock write, uncontended", ours::write, beside(None, theirs::write));
    compare(report, "RwLock, 4 readers on 2 threads", ours::together, beside(Some(1.5), theirs::together));
}

/// Acquires one permit of several, again and again.
async fn permits_of_ours(times: u64) {
    let semaphore = heirlock::local::Semaphore::new(8);
    for _ in 0..times {
        drop(std::hint::black_box(semaphore.acquire().await.unwrap()));
    }
}

async fn permits_of_theirs(times: u64) {
    let semaphore = tokio::sync::Semaphore::new(8);
    for _ in 0..times {
        drop(std::hint::black_box(semaphore.acquire().await.unwrap()));
    }
}

pub(crate) fn semaphore(report: &mut Report) {
    let outside = |future: fn() -> f64| vec![Peer::new("tokio", 0.5, future)];
    compare(
        report,
        "Semaphore, uncontended, outside of a runtime",
        || By::Thread.time(TIMES, || block_on(permits_of_ours(TIMES))),
        outside(|| By::Thread.time(TIMES, || block_on(permits_of_theirs(TIMES)))),
    );
    compare(report, "Semaphore, uncontended, in a task", || in_task(permits_of_ours(TIMES)), outside(|| in_task(permits_of_theirs(TIMES))));
}
