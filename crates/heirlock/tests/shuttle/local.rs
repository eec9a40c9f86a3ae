//! Chains of three locks under a random scheduler: inheritance, cancels, timeouts and deadlocks all at once.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::common::random::seed;
use crate::common::shuttle_book::{Book, Op};
use heirlock::Worker;
use heirlock::clock::ManualClock;
use heirlock::local::{AcquireOwned, Domain, Mutex, OwnedMutexGuard};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Runner, future, thread};

const WORKERS: usize = 5;
const LOCKS: usize = 3;
const ROUNDS: usize = 3;

/// What has happened in all runs of a test.
#[derive(Default)]
struct Tally {
    runs: AtomicUsize,
    held: AtomicUsize,
    cancelled: AtomicUsize,
    timed_out: AtomicUsize,
    deadlocks: AtomicUsize,
    looks: AtomicUsize,
    boosts: AtomicUsize,
}

fn count(what: &AtomicUsize) {
    what.fetch_add(1, Ordering::Relaxed);
}

struct World {
    domain: Domain,
    clock: ManualClock,
    locks: [Arc<Mutex<()>>; LOCKS],
    workers: [Worker; WORKERS],
    book: Arc<Book>,
    /// Whether everybody takes the locks in one order.
    ordered: bool,
    tally: Arc<Tally>,
    /// Who is still at work.
    active: AtomicUsize,
}

type Guard = OwnedMutexGuard<()>;

impl World {
    fn new(ordered: bool, tally: Arc<Tally>) -> Arc<World> {
        let clock = ManualClock::new();
        let domain = Domain::builder().clock(clock.clone()).build();
        let locks = [(); LOCKS].map(|()| Arc::new(Mutex::new(()).in_domain(&domain)));
        let workers = [(); WORKERS].map(|()| Worker::new("w").priority(thread_rng().gen_range(0..50)));
        let book = Book::new(workers.iter().map(Worker::base_priority).collect(), LOCKS);
        Arc::new(World { domain, clock, locks, workers, book, ordered, tally, active: AtomicUsize::new(WORKERS) })
    }

    /// One line of work: takes up to three locks, one upon the other, and gives them up.
    async fn work(&self, me: usize) {
        for _ in 0..ROUNDS {
            let mut wanted: Vec<usize> = (0..LOCKS).filter(|_| thread_rng().gen_bool(0.7)).collect();
            if !self.ordered && thread_rng().gen_bool(0.5) {
                wanted.reverse();
            }
            let mut guards = Vec::new();
            for which in wanted {
                let Some(guard) = self.acquire(me, which).await else { break };
                guards.push((which, guard));
                future::yield_now().await;
            }
            self.look();
            while !guards.is_empty() {
                let (which, guard) = guards.swap_remove(thread_rng().gen_range(0..guards.len()));
                let _op = self.book.op();
                self.book.gave_up(me, which);
                drop(guard);
            }
        }
    }

    async fn acquire(&self, me: usize, which: usize) -> Option<Guard> {
        let mut wait = self.locks[which].lock_owned();
        let mut priority = self.workers[me].base_priority();
        if thread_rng().gen_bool(0.2) {
            priority = thread_rng().gen_range(0..80);
            wait = wait.priority(priority);
        }
        if thread_rng().gen_bool(0.3) {
            wait = wait.timeout(Duration::from_millis(thread_rng().gen_range(0..20)));
        }
        // So many times it may be polled and wait before it is dropped.
        let patience = if thread_rng().gen_bool(0.3) { thread_rng().gen_range(0..4) } else { usize::MAX };
        for polls in 0..=patience {
            let polled = poll_fn(|cx| Poll::Ready(self.poll(me, which, priority, &mut wait, cx))).await;
            match polled {
                Poll::Ready(Ok(guard)) => {
                    count(&self.tally.held);
                    return Some(guard);
                }
                Poll::Ready(Err(error)) if error.is_timeout() => {
                    count(&self.tally.timed_out);
                    return None;
                }
                Poll::Ready(Err(error)) => {
                    assert!(error.is_deadlock() && !self.ordered, "{error}");
                    count(&self.tally.deadlocks);
                    return None;
                }
                Poll::Pending if polls == patience => break,
                Poll::Pending if patience < usize::MAX => future::yield_now().await,
                Poll::Pending => self.book.woken(me).await,
            }
        }
        count(&self.tally.cancelled);
        let _op = self.book.op();
        self.book.waits_no_more(me);
        drop(wait);
        None
    }

    fn poll(
        &self,
        me: usize,
        which: usize,
        priority: i32,
        wait: &mut AcquireOwned<Mutex<()>>,
        cx: &mut Context<'_>,
    ) -> Poll<heirlock::Result<Guard>> {
        let _op = self.book.op();
        self.book.waits_no_more(me);
        self.book.will_wake(me, cx.waker());
        let waker = Waker::from(Arc::new(Tell { book: Arc::clone(&self.book), me }));
        let polled = Pin::new(wait).poll(&mut Context::from_waker(&waker));
        match &polled {
            Poll::Pending => self.book.waits(me, which, priority),
            Poll::Ready(Ok(_)) => self.book.holds(me, which),
            Poll::Ready(Err(_)) => {}
        }
        polled
    }

    /// If nothing happens now, everybody's priority is what those who wait for its locks make it.
    fn look(&self) {
        let Some((seen, expected)) = self.book.quiet() else { return };
        let effective: Vec<i32> = self.workers.iter().map(Worker::effective_priority).collect();
        if self.book.still(seen) {
            assert_eq!(effective, expected, "effective priorities, by the library and by the book");
            count(&self.tally.looks);
            if self.workers.iter().zip(&effective).any(|(worker, effective)| *effective > worker.base_priority()) {
                count(&self.tally.boosts);
            }
        }
    }

    /// Time goes on, and whoever cares to look, looks, until all have done their work.
    fn time(&self) {
        while self.active.load(Ordering::Relaxed) > 0 {
            let op: Op<'_> = self.book.op();
            self.clock.advance(Duration::from_millis(thread_rng().gen_range(0..3)));
            self.domain.expire();
            drop(op);
            self.look();
            thread::yield_now();
        }
    }
}

/// Notes who is woken, and wakes it.
struct Tell {
    book: Arc<Book>,
    me: usize,
}

impl Wake for Tell {
    fn wake(self: Arc<Self>) {
        self.book.wake(self.me);
    }
}

fn run(ordered: bool, tally: &Arc<Tally>) {
    count(&tally.runs);
    let world = World::new(ordered, Arc::clone(tally));
    let work: Vec<_> = (0..WORKERS)
        .map(|me| {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                future::block_on(world.workers[me].run(world.work(me)));
                world.active.fetch_sub(1, Ordering::Relaxed);
            })
        })
        .collect();
    world.time();
    for thread in work {
        thread.join().unwrap();
    }
    assert!(world.locks.iter().all(|lock| !lock.is_locked()));
    assert_eq!(world.domain.records(), [0; 7]);
    for worker in &world.workers {
        assert_eq!(worker.effective_priority(), worker.base_priority());
    }
}

fn explore(name: &str, ordered: bool, seed: u64, scheduler: impl Scheduler + 'static) {
    let _one = crate::ONE.lock();
    println!("HEIRLOCK_SEED={seed}");
    let tally = Arc::new(Tally::default());
    let all = Arc::clone(&tally);
    Runner::new(scheduler, shuttle::Config::default()).run(move || run(ordered, &all));
    let Tally { runs, held, cancelled, timed_out, deadlocks, looks, boosts } = Arc::try_unwrap(tally).ok().unwrap();
    let [runs, held, cancelled, timed_out, deadlocks, looks, boosts] =
        [runs, held, cancelled, timed_out, deadlocks, looks, boosts].map(AtomicUsize::into_inner);
    println!(
        "shuttle: {name}: {runs} executions, {held} held, {cancelled} cancelled, {timed_out} timed out, {deadlocks} deadlocks, \
         {looks} looks, {boosts} at boosts"
    );
    assert!(held > 0 && cancelled > 0 && timed_out > 0 && boosts > 0);
    assert_eq!(deadlocks > 0, !ordered);
}

const RUNS: usize = 2000;

#[test]
fn chains_in_one_order() {
    let seed = seed();
    explore("chains in one order", true, seed, RandomScheduler::new_from_seed(seed, RUNS));
}

#[test]
fn chains_in_any_order() {
    let seed = seed();
    explore("chains in any order", false, seed, RandomScheduler::new_from_seed(seed, RUNS));
}

#[test]
fn chains_with_few_preemptions() {
    let seed = seed();
    explore("chains with few preemptions", false, seed, PctScheduler::new_from_seed(seed, 5, RUNS));
}
