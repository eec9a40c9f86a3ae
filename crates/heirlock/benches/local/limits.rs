//! What one mutex for a whole domain costs.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use heirlock::Worker;
use heirlock::local::{Domain, Mutex};
use tokio::runtime::Runtime;

use crate::common::Report;
use crate::compare::{By, Peer, alone, compare, runtime};
use crate::contended::tasks;
use crate::locks::{Lock, Ours, Tokio, pass_on};

const LOCKS: u64 = 50_000;
/// Tasks of each lock, and how often each of them locks.
const TASKS: u64 = 2;
const TIMES: u64 = 4;

/// Fifty thousand locks, each wanted by two tasks of its own, all at once.
pub(crate) fn independent(report: &mut Report) {
    let runtime = runtime(2);
    let (ours, theirs) = (locks::<Ours>(), locks::<Tokio>());
    let peers = vec![Peer::new(Tokio::NAME, 1.0, || at_once(&runtime, &theirs))];
    compare(report, "50,000 independent contended locks, 2 threads", || at_once(&runtime, &ours), peers);
}

fn locks<L: Lock>() -> Arc<Vec<L>> {
    Arc::new((0..LOCKS).map(|_| L::new()).collect())
}

fn at_once<L: Lock>(runtime: &Runtime, locks: &Arc<Vec<L>>) -> f64 {
    let locks = Arc::clone(locks);
    tasks(runtime, By::Wall, LOCKS * TASKS * TIMES, LOCKS * TASKS, move |at| {
        let locks = Arc::clone(&locks);
        let lock = usize::try_from(at / TASKS).unwrap();
        async move { locks[lock].count_yielding(TIMES).await }
    })
}

/// How many waits a second one domain can serve, on locks that have nothing else in common.
pub(crate) fn domain(report: &mut Report) {
    for threads in [1_u32, 2] {
        let what = format!("waits a second in one domain, {threads} thread{}", if threads == 1 { "" } else { "s" });
        alone(report, what, " /s", || waits_a_second(threads));
    }
}

fn waits_a_second(threads: u32) -> f64 {
    const EACH: u32 = 50_000;
    let (domain, start) = (Domain::builder().build(), Barrier::new(threads as usize + 1));
    let took = thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|_| {
                let (domain, start) = (&domain, &start);
                scope.spawn(move || {
                    let lock = Mutex::new(()).in_domain(domain);
                    let workers = [Worker::new("one"), Worker::new("other")];
                    start.wait();
                    (0..EACH).for_each(|_| pass_on(workers[0].run(lock.lock()), workers[1].run(lock.lock())));
                })
            })
            .collect();
        start.wait();
        let began = Instant::now();
        running.into_iter().for_each(|thread| thread.join().unwrap());
        began.elapsed()
    });
    f64::from(threads * EACH) / took.as_secs_f64()
}
