//! Ten thousand tasks of random priorities that boost, cancel and panic, and the order in which they were polled.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use tokio::task::yield_now;

use super::queue::TaskKey;
use super::threads::State;
use super::{AbortHandle, Handle, Pool};
use crate::local::{Domain, Mutex};
use crate::random::{Random, seed};
use crate::sync::lock;
use crate::{Result, Worker};

/// What the pool did, in the order in which it did it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Recorded {
    /// With the priority at which it is polled from then on.
    Ready(TaskKey, i32),
    Rekeyed(TaskKey, i32),
    Polled(TaskKey),
    Ended(TaskKey),
}

impl Recorded {
    pub(super) fn ready(state: &State, key: TaskKey) -> Recorded {
        Recorded::Ready(key, state.queue().priority(key).unwrap())
    }

    pub(super) fn rekeyed(state: &State, key: TaskKey) -> Recorded {
        // It may have ended meanwhile.
        Recorded::Rekeyed(key, state.queue().priority(key).unwrap_or(0))
    }

    pub(super) fn polled(_: &State, key: TaskKey) -> Recorded {
        Recorded::Polled(key)
    }

    pub(super) fn ended(_: &State, key: TaskKey) -> Recorded {
        Recorded::Ended(key)
    }
}

/// Who is ready, by the record alone.
#[derive(Default)]
struct Replay {
    /// Of the ready ones, the priority and since when.
    ready: BTreeMap<u64, (i32, usize)>,
    order: BTreeSet<(Reverse<i32>, usize, u64)>,
    polled: BTreeSet<u64>,
    ended: BTreeSet<u64>,
    /// How often somebody was polled although he became ready after another who was still waiting: an order there was to keep.
    overtook: usize,
}

impl Replay {
    fn step(&mut self, now: usize, step: Recorded) {
        match step {
            Recorded::Ready(key, priority) => {
                assert!(self.ready.insert(key.number, (priority, now)).is_none(), "{key:?} is ready twice");
                self.order.insert((Reverse(priority), now, key.number));
            }
            Recorded::Rekeyed(key, priority) => {
                let Some(ready) = self.ready.get_mut(&key.number) else { return };
                self.order.remove(&(Reverse(ready.0), ready.1, key.number));
                ready.0 = priority;
                self.order.insert((Reverse(priority), ready.1, key.number));
            }
            Recorded::Polled(key) => {
                let first = self.order.pop_first().map(|first| first.2);
                assert_eq!(first, Some(key.number), "somebody else's turn, at step {now}");
                let (_, since) = self.ready.remove(&key.number).unwrap();
                self.overtook += usize::from(self.ready.values().any(|(_, other)| *other < since));
                assert!(self.polled.insert(key.number), "{key:?} is polled twice at a time");
            }
            Recorded::Ended(key) => {
                assert!(self.polled.remove(&key.number) && self.ended.insert(key.number), "{key:?} has ended before");
            }
        }
        // Whoever is ready again is polled no more.
        if let Recorded::Ready(key, _) = step {
            self.polled.remove(&key.number);
        }
    }
}

const TASKS: usize = 10_000;
const LOCKS: usize = 40;

/// What the tasks share.
struct World {
    domain: Domain,
    locks: Vec<Arc<Mutex<u64>>>,
    workers: StdMutex<Vec<Worker>>,
    aborts: StdMutex<Vec<AbortHandle>>,
    aborted: AtomicUsize,
    alone: bool,
    checked: AtomicUsize,
    boosted: AtomicUsize,
}

impl World {
    /// In a pool of one thread nothing changes while one of its tasks looks: each priority that the pool knows is the one that there is.
    fn check(&self) {
        let Some(here) = Handle::current().filter(|_| self.alone) else { return };
        let state = here.shared.state();
        let known: Vec<_> = state.queue().all().filter_map(|entry| entry.task.key().zip(Some(entry.task.worker.clone()))).collect();
        let known: Vec<_> = known.into_iter().filter_map(|(key, worker)| state.queue().priority(key).zip(Some(worker))).collect();
        drop(state);
        for (priority, worker) in known {
            assert_eq!(worker.polling_priority(), priority, "{worker:?}");
            self.boosted.fetch_add(usize::from(priority > worker.base_priority()), Ordering::Relaxed);
        }
        self.checked.fetch_add(1, Ordering::Relaxed);
    }

    /// One task's life.
    async fn live(self: Arc<World>, mut random: Random) -> Result<u64> {
        let random = &mut random;
        for _ in 0..random.index(6) {
            match random.index(100) {
                0..40 => yield_now().await,
                40..75 => self.hold(random).await?,
                75..85 => {
                    let priority = any_priority(random);
                    let other = {
                        let workers = lock(&self.workers);
                        workers[random.index(workers.len())].clone()
                    };
                    other.set_priority(priority);
                }
                85..90 => {
                    let aborts = lock(&self.aborts);
                    if let Some(abort) = aborts.get(random.index(TASKS)) {
                        abort.abort();
                        self.aborted.fetch_add(1, Ordering::Relaxed);
                    }
                }
                90..93 => tokio::time::sleep(Duration::from_micros(random.within(0, 500))).await,
                // Without the noise of a report.
                93..95 => std::panic::resume_unwind(Box::new("on purpose")),
                _ => {
                    // An arm, perhaps more urgent than its task, which it lifts as long as it lives.
                    let fork = Worker::current().map(|worker| worker.fork("arm"));
                    if let Some(fork) = fork {
                        if random.chance(50) {
                            fork.set_priority(any_priority(random));
                        }
                        fork.run(self.hold(random)).await?;
                    }
                }
            }
            if random.index(40) == 0 {
                self.check();
            }
        }
        Ok(1)
    }

    /// Holds one lock or two, always in the same order, and is polled meanwhile.
    fn hold<'a>(&'a self, random: &'a mut Random) -> Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>> {
        Box::pin(async move {
            let first = random.index(LOCKS);
            let mut guard = self.locks[first].lock().await?;
            *guard += 1;
            yield_now().await;
            if first + 1 < LOCKS && random.chance(50) {
                let second = first + 1 + random.index(LOCKS - first - 1);
                *self.locks[second].lock().await? += 1;
                yield_now().await;
            }
            Ok(())
        })
    }
}

fn any_priority(random: &mut Random) -> i32 {
    random.pick(&[-10, -3, -1, 0, 0, 0, 1, 2, 5, 9])
}

/// Every task ends, each in the way in which it must; whose turn it is is never mistaken; and nothing is left.
fn ten_thousand(threads: usize) {
    let seed = seed();
    println!("HEIRLOCK_SEED={seed}");
    let mut random = Random::new(seed, 0);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let pool = Pool::builder().threads(threads).runtime(runtime.handle().clone()).build().unwrap();
    pool.handle.shared.state().recorded = Some(Vec::new());
    let domain = Domain::builder().build();
    let world = Arc::new(World {
        locks: (0..LOCKS).map(|_| Arc::new(Mutex::new(0).in_domain(&domain))).collect(),
        domain,
        workers: StdMutex::new(Vec::new()),
        aborts: StdMutex::new(Vec::new()),
        aborted: AtomicUsize::new(0),
        alone: threads == 1,
        checked: AtomicUsize::new(0),
        boosted: AtomicUsize::new(0),
    });
    // All are there before the first is polled.
    let plugs: Vec<_> = (0..threads).map(|_| plug(&pool)).collect();
    let mut tasks = Vec::new();
    for number in 0..TASKS as u64 {
        let worker = Worker::new(format!("task {number}")).priority(any_priority(&mut random));
        lock(&world.workers).push(worker.clone());
        let task = pool.spawn(worker, Arc::clone(&world).live(Random::new(seed, 1 + number)));
        lock(&world.aborts).push(task.abort_handle());
        tasks.push(task);
    }
    for plug in plugs {
        plug.send(()).unwrap();
    }
    let (mut ended, mut cancelled, mut panicked) = (0, 0, 0);
    for task in tasks {
        match task.blocking() {
            Ok(result) => ended += result.unwrap(),
            Err(error) if error.is_cancelled() => cancelled += 1,
            Err(error) => {
                assert_eq!(error.into_panic().unwrap().downcast_ref(), Some(&"on purpose"));
                panicked += 1;
            }
        }
    }
    assert_eq!(ended + cancelled + panicked, TASKS as u64);
    assert!(cancelled <= world.aborted.load(Ordering::Relaxed) as u64);
    assert!(ended > 0 && cancelled > 0 && panicked > 0, "{ended}, {cancelled}, {panicked}");
    let shared = Arc::clone(&pool.handle.shared);
    pool.drain().blocking().unwrap();
    assert_eq!(shared.counts(), (0, 0));

    let mut replay = Replay::default();
    let recorded = shared.state().recorded.take().unwrap();
    recorded.iter().enumerate().for_each(|(now, step)| replay.step(now, *step));
    assert_eq!((replay.ended.len(), replay.ready.len(), replay.polled.len()), (TASKS + threads, 0, 0));
    assert!(replay.overtook > 100, "{} polls out of the order of arrival", replay.overtook);
    assert!(recorded.iter().any(|step| matches!(step, Recorded::Rekeyed(..))));
    if world.alone {
        let (checked, boosted) = (world.checked.load(Ordering::Relaxed), world.boosted.load(Ordering::Relaxed));
        assert!(checked > 10 && boosted > 0, "checked {checked} times, {boosted} boosted");
    }
    println!("{ended} ended, {cancelled} cancelled, {panicked} panicked, {} steps", recorded.len());

    for held in &world.locks {
        assert!(!held.is_locked());
    }
    lock(&world.workers).clear();
    assert_eq!(world.domain.records(), [0; 7]);
}

/// Keeps a thread until it is told to let it go; returns when it has it.
fn plug(pool: &Pool) -> std::sync::mpsc::Sender<()> {
    let ((go, goes), (has_begun, begins)) = (std::sync::mpsc::channel::<()>(), std::sync::mpsc::channel());
    drop(pool.spawn(Worker::new("plug").priority(i32::MAX), async move {
        has_begun.send(()).unwrap();
        goes.recv().unwrap();
    }));
    begins.recv().unwrap();
    go
}

#[test]
fn ten_thousand_random_tasks_on_one_thread() {
    ten_thousand(1);
}

#[test]
fn ten_thousand_random_tasks_on_two_threads() {
    ten_thousand(2);
}

#[test]
fn ten_thousand_random_tasks_on_eight_threads() {
    ten_thousand(8);
}

/// Whatever comes in between: a task whose worker is followed from before it has a key is at its priority when it has one.
#[test]
fn case_f16_reversed_callbacks_at_the_beginning() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let pool = Pool::builder().threads(1).runtime(runtime.handle().clone()).build().unwrap();
    for round in 0..2_000 {
        let worker = Worker::new("changed").priority(10);
        let task = std::thread::scope(|threads| {
            for priority in [50, 10] {
                let worker = &worker;
                threads.spawn(move || worker.set_priority(priority));
            }
            pool.spawn(worker.clone(), std::future::pending::<()>())
        });
        let state = pool.handle.shared.state();
        let known: Vec<_> = state.queue().all().filter_map(|entry| state.queue().priority(entry.task.key()?)).collect();
        drop(state);
        assert_eq!(known, [worker.effective_priority()], "in round {round}");
        task.abort();
        assert!(task.blocking().unwrap_err().is_cancelled());
    }
}
