//! What the models of `loom_local*.rs` share: one lock and its domain, and the run of a model.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use heirlock::Worker;
use heirlock::clock::ManualClock;
use heirlock::local::{AcquireOwned, Domain, Mutex, OwnedMutexGuard};
use loom::cell::UnsafeCell;
use loom::thread::{JoinHandle, spawn};

/// What a lock guards. loom fails the model if two visits are not in order by what the lock does: not only when two are inside at once.
#[derive(Default)]
pub(crate) struct Inside(UnsafeCell<u32>);

// SAFETY: `visit` is called within the lock only; that this is enough is what loom checks at each visit.
unsafe impl Sync for Inside {}

impl Inside {
    pub(crate) fn visit(&self) {
        // SAFETY: as for `Sync`.
        self.0.with_mut(|count| unsafe { *count += 1 });
    }

    pub(crate) fn visits(&self) -> u32 {
        // SAFETY: as for `Sync`.
        self.0.with(|count| unsafe { *count })
    }
}

pub(crate) struct World {
    pub(crate) domain: Domain,
    pub(crate) clock: ManualClock,
    pub(crate) lock: Arc<Mutex<Inside>>,
}

pub(crate) const STALL: Duration = Duration::from_secs(1);

impl World {
    pub(crate) fn new() -> World {
        let clock = ManualClock::new();
        let domain = Domain::builder().clock(clock.clone()).stall_time(STALL).build();
        let lock = Arc::new(Mutex::new(Inside::default()).in_domain(&domain));
        World { domain, clock, lock }
    }

    /// The lock, taken when it is free.
    pub(crate) fn hold(&self, worker: &Worker) -> OwnedMutexGuard<Inside> {
        let Poll::Ready(guard) = poll_once(&mut worker.run(self.lock.lock_owned())) else { panic!("the lock is free") };
        guard.unwrap()
    }

    /// An acquire that has been polled once and waits.
    pub(crate) fn queue(
        &self,
        worker: &Worker,
        options: impl Fn(AcquireOwned<Mutex<Inside>>) -> AcquireOwned<Mutex<Inside>>,
    ) -> AcquireOwned<Mutex<Inside>> {
        let mut wait = options(self.lock.lock_owned());
        assert!(worker.scope(|| poll_once(&mut wait)).is_pending());
        wait
    }

    /// Acquires in a thread of its own, and visits.
    pub(crate) fn visitor(&self, worker: &Worker) -> JoinHandle<()> {
        let wait = self.lock.lock_owned();
        let worker = worker.clone();
        spawn(move || visit(&worker, wait))
    }

    /// The timer has come so far that a grant which nobody took is stalled: it notes it, and then sees it again.
    pub(crate) fn let_grants_stall(&self) {
        for _ in 0..2 {
            self.clock.advance(STALL);
            self.domain.expire();
        }
    }

    /// So many have been inside, the lock is free, nothing is left of anybody, and nobody is boosted.
    #[track_caller]
    pub(crate) fn assert_over(&self, visits: u32, workers: &[&Worker]) {
        assert!(!self.lock.is_locked());
        assert_eq!(self.lock.try_lock().unwrap().visits(), visits);
        assert_idle(&self.domain, workers);
    }
}

#[track_caller]
pub(crate) fn assert_idle(domain: &Domain, workers: &[&Worker]) {
    assert_eq!(domain.records(), [0; 7]);
    for worker in workers {
        assert_eq!(worker.effective_priority(), worker.base_priority());
    }
}

pub(crate) fn worker(name: impl Into<std::borrow::Cow<'static, str>>, priority: i32) -> Worker {
    Worker::new(name).priority(priority)
}

/// Waits to the end and visits.
pub(crate) fn visit(worker: &Worker, wait: AcquireOwned<Mutex<Inside>>) {
    let guard = loom::future::block_on(worker.run(wait)).unwrap();
    guard.visit();
}

pub(crate) fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Runs the model in every order of its threads that has at most so many preemptions, and with every store that a load may see. A thread that
/// waits for ever fails it.
#[track_caller]
pub(crate) fn explore(name: &str, preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    /// One model after another: the tables of workers and domains are the process's.
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = ONE.lock();
    let executions = Arc::new(AtomicUsize::new(0));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 10_000;
    let count = Arc::clone(&executions);
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        body();
    });
    let executions = executions.load(Ordering::Relaxed);
    println!("loom: {name}: {executions} executions");
    assert!(executions > 1, "nothing was explored");
}

/// A model of one mutex.
#[track_caller]
pub(crate) fn model(name: &str, preemptions: usize, body: impl Fn(&World) + Sync + Send + 'static) {
    explore(name, preemptions, move || body(&World::new()));
}
