//! What the wait-for graph costs: a hop of a chain, a re-key in a queue, a contended hand-over.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use heirlock::local::graph::{Acquired, Effects, Graph, Kind, LockKey, LockSpec, Mode, Request, WorkerKey, WorkerSpec};

const ROUNDS: usize = 11;

fn main() {
    for length in [100, 1_000, 10_000] {
        let (rise, fall) = chain(length);
        println!("chain of {length:>6}: {rise:>6.1} ns a hop up, {fall:>6.1} ns down");
    }
    for waiters in [1_000, 100_000] {
        println!("queue of {waiters:>6}: {:>6.0} ns a re-key, {:>6.0} ns to leave and come again", rekey(waiters), again(waiters));
    }
    println!("two who take turns: {:>6.0} ns for wait, hand-over and take", turns());
}

/// The median of some runs, in ns for one of so many.
fn median(times: usize, mut run: impl FnMut() -> Duration) -> f64 {
    let mut runs: Vec<Duration> = (0..ROUNDS).map(|_| run()).collect();
    runs.sort();
    let count = u32::try_from(times).unwrap();
    runs[ROUNDS / 2].as_secs_f64() * 1e9 / f64::from(count)
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
    let mut falls = Vec::new();
    let rise = median(length, || {
        let rise = run(50);
        falls.push(run(1));
        rise
    });
    (rise, median(length, || falls.pop().unwrap()))
}

struct Queue {
    graph: Graph,
    effects: Effects,
    workers: Vec<WorkerKey>,
    lock: LockKey,
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
    Queue { graph, effects, workers, lock }
}

/// Something that jumps about.
fn priority(at: usize) -> i32 {
    i32::try_from(at.wrapping_mul(7_919) % 100_003).unwrap()
}

fn rekey(waiters: usize) -> f64 {
    const TIMES: usize = 20_000;
    let Queue { mut graph, mut effects, workers, .. } = queue(waiters);
    let mut at = 0;
    median(TIMES, || {
        let start = Instant::now();
        for _ in 0..TIMES {
            at += 1;
            effects.clear();
            graph.set_base(workers[at * 31 % waiters], priority(at * 17), &mut effects);
        }
        start.elapsed()
    })
}

fn again(waiters: usize) -> f64 {
    const TIMES: usize = 20_000;
    let Queue { mut graph, mut effects, workers, lock } = queue(waiters);
    let mut at = 0;
    median(TIMES, || {
        let start = Instant::now();
        for _ in 0..TIMES {
            at += 1;
            let worker = workers[at * 31 % waiters];
            let wait = graph.pending(worker)[0];
            effects.clear();
            graph.cancel(wait, &mut effects);
            black_box(acquire(&mut graph, worker, lock, &mut effects));
        }
        start.elapsed()
    })
}

fn turns() -> f64 {
    const TIMES: usize = 100_000;
    let (mut graph, mut effects) = (Graph::default(), Effects::default());
    let lock = graph.add_lock(LockSpec::new(Kind::Mutex));
    let (mut one, mut other) = (worker(&mut graph, 1), worker(&mut graph, 2));
    acquire(&mut graph, one, lock, &mut effects);
    median(TIMES, || {
        let start = Instant::now();
        for _ in 0..TIMES {
            let Acquired::Queued(wait) = acquire(&mut graph, other, lock, &mut effects) else { panic!() };
            effects.clear();
            graph.release(one, lock, &mut effects);
            graph.take(wait, &mut effects);
            std::mem::swap(&mut one, &mut other);
        }
        start.elapsed()
    })
}
