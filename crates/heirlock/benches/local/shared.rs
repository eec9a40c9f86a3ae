//! The read-write lock beside tokio's.

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

impl<'a, T> Guarded for tokio::sync::RwLockReadGuard<'a, T> {
    type Guard = Self;

    fn open(self) -> Self {
        self
    }
}

impl<'a, T> Guarded for tokio::sync::RwLockWriteGuard<'a, T> {
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
