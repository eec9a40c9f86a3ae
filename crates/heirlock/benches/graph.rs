//! What the wait-for graph costs: a hop of a chain, a re-key in a queue, a contended hand-over.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

#[path = "common/by.rs"]
mod by;
mod common;

use std::hint::black_box;
use std::time::{Duration, Instant};

use by::By;
use common::{Figure, Report, median};
use heirlock::local::graph::{Acquired, Effects, Graph, Kind, LockKey, LockSpec, Mode, Request, WorkerKey, WorkerSpec};

const ROUNDS: usize = 11;

fn main() {
    let mut report = Report::new("graph");
    chains(&mut report);
    queues(&mut report);
    let each = turns();
    report.add(Figure {
        what: "two who take turns: wait, hand-over and take".into(),
        ours: format!("{each:.0} ns"),
        peer: "-".into(),
        measured: each,
        aim: None,
        unit: " ns",
    });
    report.finish();
}

/// What a change of priority at the end of a chain costs for each hop that it travels, up and down.
fn chains(report: &mut Report) {
    for length in [100, 1_000, 10_000] {
        let (rise, fall) = chain(length);
        for (way, each) in [("up", rise), ("down", fall)] {
            report.add(Figure {
                what: format!("inheritance along a chain of {length}: a hop {way}"),
                ours: format!("{each:.1} ns"),
                peer: "-".into(),
                measured: each,
                aim: Some(150.0),
                unit: " ns",
            });
        }
    }
}

/// What a queue costs that is long, beside one that is a hundredth of it.
fn queues(report: &mut Report) {
    const LONG: usize = 100_000;
    const SHORT: usize = 1_000;
    for (what, work) in [("enqueue + cancel", again as fn(&mut Queue)), ("re-key", rekey)] {
        let (mut long, mut short) = (queue(LONG), queue(SHORT));
        let (mut of_long, mut of_short, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        // The first round warms up.
        for round in 0..=ROUNDS {
            let (a, b) = (each(&mut long, work), each(&mut short, work));
            if round > 0 {
                of_long.push(a);
                of_short.push(b);
                ratios.push(a / b);
            }
        }
        report.add(Figure {
            what: format!("{what} among 100,000 waiters; among 1,000"),
            ours: format!("{:.0} ns", median(&mut of_long)),
            peer: format!("{:.0} ns", median(&mut of_short)),
            measured: median(&mut ratios),
            aim: Some(3.0),
            unit: "x",
        });
    }
}

/// Nanoseconds for one of many.
fn each(queue: &mut Queue, work: fn(&mut Queue)) -> f64 {
    const TIMES: u64 = 20_000;
    By::Thread.time(TIMES, || (0..TIMES).for_each(|_| work(queue)))
}

fn nanos(took: Duration, times: usize) -> f64 {
    took.as_secs_f64() * 1e9 / f64::from(u32::try_from(times).unwrap())
}

fn worker(graph: &mut Graph, base: i32) -> WorkerKey {
    graph.add_worker(&WorkerSpec { base, deadline: None, parent: None, sequential: true })
}

fn acquire(graph: &mut Graph, worker: WorkerKey, lock: LockKey, effects: &mut Effects) -> Acquired {
    effects.clear();
    graph.acquire(&Request::new(worker, lock, Mode::Exclusive), effects)
}

fn chain(length: usize) -> (f64, f64) {
    let (mut graph, mut effects) = (Graph::default(), Effects::default());
    let mut below = None;
    for _ in 0..length {
        let holder = worker(&mut graph, 1);
        let lock = graph.add_lock(LockSpec::new(Kind::Mutex));
        acquire(&mut graph, holder, lock, &mut effects);
        if let Some(below) = below {
            acquire(&mut graph, holder, below, &mut effects);
        }
        below = Some(lock);
    }
    let last = worker(&mut graph, 1);
    acquire(&mut graph, last, below.unwrap(), &mut effects);
    let mut run = |base: i32| {
        effects.clear();
        let start = Instant::now();
        graph.set_base(last, base, &mut effects);
        let took = start.elapsed();
        assert_eq!(effects.changed.len(), length + 1);
        took
    };
    let (mut rises, mut falls) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        rises.push(nanos(run(50), length));
        falls.push(nanos(run(1), length));
    }
    (median(&mut rises), median(&mut falls))
}

struct Queue {
    graph: Graph,
    effects: Effects,
    workers: Vec<WorkerKey>,
    lock: LockKey,
    /// How often something was done to it: each time to another waiter.
    at: usize,
}

fn queue(waiters: usize) -> Queue {
    let (mut graph, mut effects) = (Graph::default(), Effects::default());
    let lock = graph.add_lock(LockSpec::new(Kind::Mutex));
    let holder = worker(&mut graph, 0);
    acquire(&mut graph, holder, lock, &mut effects);
    let workers: Vec<WorkerKey> = (0..waiters).map(|at| worker(&mut graph, priority(at))).collect();
    for worker in &workers {
        acquire(&mut graph, *worker, lock, &mut effects);
    }
    Queue { graph, effects, workers, lock, at: 0 }
}

/// Something that jumps about.
fn priority(at: usize) -> i32 {
    i32::try_from(at.wrapping_mul(7_919) % 100_003).unwrap()
}

fn rekey(queue: &mut Queue) {
    let Queue { graph, effects, workers, at, .. } = queue;
    *at += 1;
    effects.clear();
    graph.set_base(workers[*at * 31 % workers.len()], priority(*at * 17), effects);
}

fn again(queue: &mut Queue) {
    let Queue { graph, effects, workers, lock, at } = queue;
    *at += 1;
    let worker = workers[*at * 31 % workers.len()];
    let wait = graph.pending(worker)[0];
    effects.clear();
    graph.cancel(wait, effects);
    black_box(acquire(graph, worker, *lock, effects));
}

fn turns() -> f64 {
    const TIMES: u64 = 100_000;
    let (mut graph, mut effects) = (Graph::default(), Effects::default());
    let lock = graph.add_lock(LockSpec::new(Kind::Mutex));
    let (mut one, mut other) = (worker(&mut graph, 1), worker(&mut graph, 2));
    acquire(&mut graph, one, lock, &mut effects);
    let mut run = || {
        By::Thread.time(TIMES, || {
            for _ in 0..TIMES {
                let Acquired::Queued(wait) = acquire(&mut graph, other, lock, &mut effects) else { panic!() };
                effects.clear();
                graph.release(one, lock, &mut effects);
                graph.take(wait, &mut effects);
                std::mem::swap(&mut one, &mut other);
            }
        })
    };
    let mut runs: Vec<f64> = (0..ROUNDS).map(|_| run()).collect();
    median(&mut runs)
}
