//! What the pool costs beside tokio's multi-thread runtime, and what it is for: how long the urgent one waits.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

#[path = "common/by.rs"]
mod by;
mod common;

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use by::By;
use common::{Figure, Group, Report, median, run_groups};
use heirlock::Worker;
use heirlock::local::Mutex;
use heirlock::pool::{JoinHandle, Pool};
use tokio::runtime::{Builder, Runtime};

const ROUNDS: usize = 11;
const GROUPS: &[Group] = &[("spawn", spawn), ("turns", turns), ("order", order), ("inversion", inversion)];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    run_groups(Report::new("pool"), GROUPS, &args);
}

fn runtime(threads: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap()
}

fn pool(runtime: &Runtime, threads: usize) -> Pool {
    Pool::builder().threads(threads).runtime(runtime.handle().clone()).build().unwrap()
}

/// The medians of both and of their ratios, over rounds in which they take turns. The first round warms up.
fn beside(mut ours: impl FnMut() -> f64, mut peer: impl FnMut() -> f64) -> [f64; 3] {
    let (mut of_ours, mut of_peer, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (a, b) = (ours(), peer());
        if round > 0 {
            of_ours.push(a);
            of_peer.push(b);
            ratios.push(a / b);
        }
    }
    [median(&mut of_ours), median(&mut of_peer), median(&mut ratios)]
}

/// 100,000 short tasks of one priority, spawned and awaited; each with a worker of its own, which is made for it.
fn spawn(report: &mut Report) {
    const TASKS: u64 = 100_000;
    for threads in [1, 2] {
        let runtime = runtime(threads);
        let pool = pool(&runtime, threads);
        let [ours, peer, ratio] = beside(
            || {
                By::Wall.time(TASKS, || {
                    let tasks: Vec<JoinHandle<u64>> = (0..TASKS).map(|n| pool.spawn(Worker::new("task"), async move { n })).collect();
                    runtime.block_on(async {
                        for task in tasks {
                            task.await.unwrap();
                        }
                    });
                })
            },
            || {
                By::Wall.time(TASKS, || {
                    let tasks: Vec<_> = (0..TASKS).map(|n| runtime.spawn(async move { n })).collect();
                    runtime.block_on(async {
                        for task in tasks {
                            task.await.unwrap();
                        }
                    });
                })
            },
        );
        report.add(Figure {
            what: format!("100,000 short tasks, spawn to result, {}", by_threads(threads)),
            ours: format!("{ours:.0} ns"),
            peer: format!("tokio {peer:.0} ns"),
            measured: ratio,
            aim: Some(1.5),
            unit: "x",
        });
    }
}

/// 64 tasks that yield again and again.
fn turns(report: &mut Report) {
    const TASKS: u64 = 64;
    const YIELDS: u64 = 2_000;
    for threads in [1, 2] {
        let runtime = runtime(threads);
        let pool = pool(&runtime, threads);
        let yields = async || {
            for _ in 0..YIELDS {
                tokio::task::yield_now().await;
            }
        };
        let [ours, peer, ratio] = beside(
            || {
                By::Wall.time(TASKS * YIELDS, || {
                    let tasks: Vec<JoinHandle<()>> = (0..TASKS).map(|_| pool.spawn(Worker::new("task"), yields())).collect();
                    for task in tasks {
                        task.blocking().unwrap();
                    }
                })
            },
            || {
                By::Wall.time(TASKS * YIELDS, || {
                    let tasks: Vec<_> = (0..TASKS).map(|_| runtime.spawn(yields())).collect();
                    runtime.block_on(async {
                        for task in tasks {
                            task.await.unwrap();
                        }
                    });
                })
            },
        );
        report.add(Figure {
            what: format!("64 tasks that yield, one poll, {}", by_threads(threads)),
            ours: format!("{ours:.0} ns"),
            peer: format!("tokio {peer:.0} ns"),
            measured: ratio,
            aim: None,
            unit: "x",
        });
    }
}

fn by_threads(threads: usize) -> &'static str {
    if threads == 1 { "1 thread" } else { "2 threads" }
}

/// What it costs to change the priority of one of 10,000 that are ready: the call of whoever does it, with all that it causes.
fn order(report: &mut Report) {
    const READY: usize = 10_000;
    const TIMES: u64 = 50_000;
    let runtime = runtime(1);
    let pool = pool(&runtime, 1);
    let ((plugged, plugs), (go, goes)) = (mpsc::channel(), mpsc::channel::<()>());
    let plug = pool.spawn(Worker::new("plug").priority(i32::MAX), async move {
        plugged.send(()).unwrap();
        goes.recv().unwrap();
    });
    plugs.recv().unwrap();
    let workers: Vec<Worker> = (0..READY).map(|n| Worker::new("ready").priority(priority(n as u64))).collect();
    let tasks: Vec<JoinHandle<()>> = workers.iter().map(|worker| pool.spawn(worker.clone(), async {})).collect();
    let mut seed = 7_u64;
    let mut each: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            By::Thread.time(TIMES, || {
                for _ in 0..TIMES {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let at = usize::try_from(seed >> 33).unwrap() % READY;
                    workers[at].set_priority(priority(seed >> 13));
                }
            })
        })
        .collect();
    go.send(()).unwrap();
    plug.blocking().unwrap();
    for task in tasks {
        task.blocking().unwrap();
    }
    let each = median(&mut each);
    report.add(Figure {
        what: "a new priority for one of 10,000 ready tasks".into(),
        ours: format!("{each:.0} ns"),
        peer: "-".into(),
        measured: each,
        aim: Some(200.0),
        unit: " ns",
    });
}

fn priority(n: u64) -> i32 {
    i32::try_from(n % 1_000).unwrap()
}

/// How long a poll of this scene computes.
const POLL: Duration = Duration::from_micros(100);
const LOWS_POLLS: u32 = 5;
const MEDIUMS: usize = 100;

/// One thread; Low holds a lock and needs 5 polls, 100 others are always ready, High waits: how long it does.
fn inversion(report: &mut Report) {
    let one = runtime(1);
    let pool = pool(&one, 1);
    let lock = Arc::new(Mutex::new(()));
    let known = Arc::new(tokio::sync::Mutex::new(()));
    let plain = runtime(1);
    let on_pool = |name: &'static str, priority, task: Task| drop(pool.spawn(Worker::new(name).priority(priority), task));
    let [with, without, _] = beside(
        || scene(on_pool, || Box::pin(guard(lock.lock_owned()))),
        || scene(on_pool, || Box::pin(guard(Arc::clone(&known).lock_owned()))),
    );
    let [_, tokio, _] = beside(|| 1.0, || scene(|_, _, task| drop(plain.spawn(task)), || Box::pin(guard(Arc::clone(&known).lock_owned()))));
    let bound = (POLL * (LOWS_POLLS + 1)).as_secs_f64() * 1e6;
    for (peer, name) in [(tokio, "tokio"), (without, "tokio's Mutex in the pool")] {
        report.add(Figure {
            what: format!("High waits, 100 others ready; of Low's work and a poll ({bound:.0} us)"),
            ours: format!("{with:.0} us"),
            peer: format!("{name} {peer:.0} us"),
            measured: with / bound,
            aim: Some(1.0),
            unit: "x",
        });
    }
}

type Task = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;
type Guard = std::pin::Pin<Box<dyn Future<Output = Box<dyn Send>> + Send>>;

/// Whatever guard it is.
async fn guard<G: Send + 'static>(acquire: impl Future<Output = G>) -> Box<dyn Send> {
    Box::new(acquire.await)
}

fn compute() {
    let watch = By::Thread.start();
    while watch.each(1) < POLL.as_secs_f64() * 1e9 {
        std::hint::spin_loop();
    }
}

/// Microseconds.
fn scene(spawn: impl Fn(&'static str, i32, Task), lock: impl Fn() -> Guard) -> f64 {
    let ((held, holds), (go, goes)) = (mpsc::channel(), mpsc::channel::<()>());
    let acquire = lock();
    spawn(
        "low",
        1,
        Box::pin(async move {
            let guard = acquire.await;
            held.send(()).unwrap();
            goes.recv().unwrap();
            for _ in 0..LOWS_POLLS {
                tokio::task::yield_now().await;
                compute();
            }
            drop(guard);
        }),
    );
    holds.recv().unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let ended = Arc::new(AtomicU64::new(0));
    for _ in 0..MEDIUMS {
        let (over, ended) = (Arc::clone(&over), Arc::clone(&ended));
        spawn(
            "medium",
            5,
            Box::pin(async move {
                // A bound, for where nobody inherits they end before High is served.
                for _ in 0..8 {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    compute();
                    tokio::task::yield_now().await;
                }
                ended.fetch_add(1, Ordering::SeqCst);
            }),
        );
    }
    let (acquire, (tell, waits)) = (lock(), mpsc::channel());
    spawn(
        "high",
        10,
        Box::pin(async move {
            // All are polled by this thread, so its own clock tells.
            let watch = By::Thread.start();
            let guard = acquire.await;
            tell.send(watch.each(1)).unwrap();
            drop(guard);
        }),
    );
    go.send(()).unwrap();
    let waited = waits.recv().unwrap();
    over.store(true, Ordering::Relaxed);
    while ended.load(Ordering::SeqCst) < MEDIUMS as u64 {
        std::thread::yield_now();
    }
    waited / 1e3
}
