//! Several locks at once under a random scheduler: mutexes and keys, named in every order, with cancels and timeouts on the way.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use crate::common::random::seed;
use heirlock::Worker;
use heirlock::clock::ManualClock;
use heirlock::local::{Domain, KeyedLock, Mutex, lock_all};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Runner, future, thread};

/// How many want them at once, how many locks of each sort there are, and how often each of them tries.
const WORKERS: usize = 6;
const LOCKS: usize = 3;
const ROUNDS: usize = 3;

/// What has happened in all runs of a test.
#[derive(Default)]
struct Tally {
    runs: AtomicUsize,
    held: AtomicUsize,
    cancelled: AtomicUsize,
    timed_out: AtomicUsize,
}

fn count(what: &AtomicUsize) {
    what.fetch_add(1, Ordering::Relaxed);
}

struct World {
    domain: Domain,
    clock: ManualClock,
    locks: [Mutex<()>; LOCKS],
    keyed: KeyedLock<usize>,
    /// Whether somebody has the lock, and the key, by the account of who does.
    inside: [[AtomicBool; LOCKS]; 2],
    active: AtomicUsize,
    tally: Arc<Tally>,
}

impl World {
    fn new(tally: Arc<Tally>) -> Arc<World> {
        let clock = ManualClock::new();
        let domain = Domain::builder().clock(clock.clone()).build();
        let locks = [(); LOCKS].map(|()| Mutex::new(()).in_domain(&domain));
        let keyed = KeyedLock::new().in_domain(&domain);
        Arc::new(World { domain, clock, locks, keyed, inside: Default::default(), active: AtomicUsize::new(WORKERS), tally })
    }

    /// Two of the locks and two of the keys, in any order.
    async fn work(&self) {
        for _ in 0..ROUNDS {
            let two = || {
                let one = thread_rng().gen_range(0..LOCKS);
                [one, (one + thread_rng().gen_range(1..LOCKS)) % LOCKS]
            };
            let (locks, keys) = (two(), two());
            let [one, other] = locks.map(|at| self.locks[at].lock());
            let [this, that] = keys.map(|key| self.keyed.lock(key));
            let timeout = if thread_rng().gen_bool(0.3) { Duration::from_millis(thread_rng().gen_range(0..20)) } else { Duration::MAX };
            if thread_rng().gen_bool(0.5) {
                self.visit(locks, keys, lock_all((one, this, other, that)).timeout(timeout)).await;
            } else {
                self.visit(locks, keys, lock_all((that, other, this, one)).timeout(timeout)).await;
            }
        }
    }

    /// Waits for the locks, perhaps only for a while, and is inside alone.
    async fn visit<G>(&self, locks: [usize; 2], keys: [usize; 2], all: impl Future<Output = heirlock::Result<G>>) {
        let patience = if thread_rng().gen_bool(0.3) { thread_rng().gen_range(0..4) } else { usize::MAX };
        let Some(all) = within(patience, pin!(all)).await else { return count(&self.tally.cancelled) };
        let guards = match all {
            Ok(guards) => guards,
            Err(error) => {
                assert!(error.is_timeout(), "{error}");
                return count(&self.tally.timed_out);
            }
        };
        count(&self.tally.held);
        let places = [(0, locks[0]), (0, locks[1]), (1, keys[0]), (1, keys[1])];
        for (sort, at) in places {
            assert!(!self.inside[sort][at].swap(true, Ordering::Relaxed), "two are inside");
        }
        future::yield_now().await;
        for (sort, at) in places {
            self.inside[sort][at].store(false, Ordering::Relaxed);
        }
        drop(guards);
    }

    fn assert_over(&self) {
        assert!(self.locks.iter().all(|lock| !lock.is_locked()));
        assert!(self.keyed.is_empty());
        assert_eq!(self.domain.records(), [0; 7]);
    }
}

/// Polls to the end, or so many times; with a limit at once and again, else when it is woken.
async fn within<F: Future>(patience: usize, mut future: Pin<&mut F>) -> Option<F::Output> {
    if patience == usize::MAX {
        return Some(future.await);
    }
    for _ in 0..patience {
        if let Poll::Ready(output) = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await {
            return Some(output);
        }
        future::yield_now().await;
    }
    None
}

fn run(tally: &Arc<Tally>) {
    count(&tally.runs);
    let world = World::new(Arc::clone(tally));
    let work: Vec<_> = (0..WORKERS)
        .map(|me| {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                // Explicit, and nobody in particular.
                if me % 3 < 2 {
                    let worker = Worker::new("w").priority(thread_rng().gen_range(0..50));
                    future::block_on(worker.run(world.work()));
                    assert_eq!(worker.effective_priority(), worker.base_priority());
                } else {
                    future::block_on(world.work());
                }
                world.active.fetch_sub(1, Ordering::Relaxed);
            })
        })
        .collect();
    while world.active.load(Ordering::Relaxed) > 0 {
        world.clock.advance(Duration::from_millis(thread_rng().gen_range(0..3)));
        world.domain.expire();
        thread::yield_now();
    }
    for thread in work {
        thread.join().unwrap();
    }
    world.assert_over();
}

fn explore(name: &str, seed: u64, scheduler: impl Scheduler + 'static) {
    let _one = crate::ONE.lock();
    println!("HEIRLOCK_SEED={seed}");
    let tally = Arc::new(Tally::default());
    let all = Arc::clone(&tally);
    Runner::new(scheduler, shuttle::Config::default()).run(move || run(&all));
    let Tally { runs, held, cancelled, timed_out } = Arc::try_unwrap(tally).ok().unwrap();
    let [runs, held, cancelled, timed_out] = [runs, held, cancelled, timed_out].map(AtomicUsize::into_inner);
    println!("shuttle: {name}: {runs} executions, {held} held, {cancelled} cancelled, {timed_out} timed out");
    assert!(held > 0 && cancelled > 0 && timed_out > 0);
}

const RUNS: usize = 2000;

#[test]
fn several_in_any_order() {
    let seed = seed();
    explore("several in any order", seed, RandomScheduler::new_from_seed(seed, RUNS));
}

#[test]
fn several_with_few_preemptions() {
    let seed = seed();
    explore("several with few preemptions", seed, PctScheduler::new_from_seed(seed, 5, RUNS));
}
