//! One lock that many tasks want.

use std::sync::Arc;

use tokio::runtime::Runtime;

use crate::common::Report;
use crate::compare::{By, Peer, compare, runtime};
use crate::locks::{AsyncLock, Blocking, Lock, Ours, Tokio};

/// Locks and unlocks of all tasks together; all numbers of tasks divide it.
const TIMES: u64 = 65_536;

/// Runs so many tasks to their end, and times that within the runtime: nanoseconds for each of `times`.
pub(crate) fn tasks<F>(runtime: &Runtime, by: By, times: u64, tasks: u64, mut task: impl FnMut(u64) -> F + Send + 'static) -> f64
where
    F: Future<Output = ()> + Send + 'static,
{
    let all = async move {
        let watch = by.start();
        let handles: Vec<_> = (0..tasks).map(|at| tokio::spawn(task(at))).collect();
        for handle in handles {
            handle.await.unwrap();
        }
        watch.each(times)
    };
    runtime.block_on(async { tokio::spawn(all).await.unwrap() })
}

/// A runtime, how many threads it has, and what tells its time.
struct Place {
    runtime: Runtime,
    by: By,
}

impl Place {
    fn of(threads: usize) -> Place {
        Place { runtime: runtime(threads), by: if threads == 1 { By::Thread } else { By::Wall } }
    }

    fn contend<L: Lock>(&self, number: u64, yields: bool) -> f64 {
        let (lock, each) = (Arc::new(L::new()), TIMES / number);
        let shared = Arc::clone(&lock);
        let nanos = tasks(&self.runtime, self.by, TIMES, number, move |_| {
            let lock = Arc::clone(&shared);
            async move { if yields { lock.count_yielding(each).await } else { lock.count(each).await } }
        });
        let mut lock = Arc::into_inner(lock).expect("no task has it any more");
        assert_eq!(lock.take(), TIMES, "each saw what those before it did");
        nanos
    }

    fn contend_blocking<L: Blocking>(&self, number: u64) -> f64 {
        let (lock, each) = (Arc::new(L::new()), TIMES / number);
        tasks(&self.runtime, self.by, TIMES, number, move |_| {
            let lock = Arc::clone(&lock);
            async move { lock.count(each) }
        })
    }
}

pub(crate) fn yielding(report: &mut Report) {
    for threads in [1, 2] {
        let place = Place::of(threads);
        for number in [2, 64, 1024] {
            let what = format!("contended, yield while held, {number} tasks, {threads} thread{}", if threads == 1 { "" } else { "s" });
            let peers = vec![
                Peer::new("tokio", 1.0, || place.contend::<Tokio>(number, true)),
                Peer::new("async-lock", 1.0, || place.contend::<AsyncLock>(number, true)),
            ];
            compare(report, &what, || place.contend::<Ours>(number, true), peers);
        }
    }
}

pub(crate) fn ready(report: &mut Report) {
    let place = Place::of(2);
    let peers = vec![
        Peer::new("tokio", 0.5, || place.contend::<Tokio>(64, false)),
        Peer::new("std", None, || place.contend_blocking::<std::sync::Mutex<u64>>(64)),
        Peer::new("parking_lot", None, || place.contend_blocking::<parking_lot::Mutex<u64>>(64)),
        Peer::new("async-lock", None, || place.contend::<AsyncLock>(64, false)),
    ];
    compare(report, "contended, no yield, 64 tasks, 2 threads", || place.contend::<Ours>(64, false), peers);
}
