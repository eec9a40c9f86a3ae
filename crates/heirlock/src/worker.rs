//! Workers: who acquires.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, Weak};
use std::task::{Context, Poll};
use std::time::Instant;

use pin_project_lite::pin_project;

use crate::local::sync::{ThreadId, current_thread, thread_local};
use crate::local::{effective_priority, rebase};
use crate::sync::lock;

/// The id of a worker: never reused within a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(u64);

impl WorkerId {
    fn next() -> WorkerId {
        static LAST: AtomicU64 = AtomicU64::new(0);
        WorkerId(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// The id as a number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One line of work that acquires locks: an id, a name, a base priority (larger is more urgent, 0 is the default), perhaps a deadline.
///
/// Cloning gives another handle to the same worker.
///
/// ```
/// use heirlock::Worker;
/// let ingest = Worker::new("ingest").priority(5);
/// let seen = pollster::block_on(ingest.run(async { Worker::current().map(|worker| worker.base_priority()) }));
/// assert_eq!(seen, Some(5));
/// assert!(Worker::current().is_none());
/// ```
#[derive(Clone)]
pub struct Worker(Arc<Inner>);

/// All workers that live: the word of a lock has room for an id only.
static LIVE: LazyLock<Mutex<HashMap<u64, Weak<Inner>>>> = LazyLock::new(Mutex::default);

struct Inner {
    id: WorkerId,
    name: String,
    /// Of a fork `i32::MIN`, which adds nothing to what its parent gives it, unless it was told otherwise.
    base: AtomicI32,
    /// Whose fork it is.
    parent: Option<Worker>,
    deadline: Mutex<Option<Instant>>,
    /// The thread that polls the worker's futures now, and how deeply nested.
    polled_by: Mutex<Option<(ThreadId, usize)>>,
    hook: Hook,
}

/// Who wants to know when the effective priority was changed.
#[derive(Default)]
struct Hook {
    /// Whether there is anybody; never false again.
    heard: AtomicBool,
    own: Mutex<Option<Arc<dyn Fn() + Send + Sync>>>,
    /// Forks with hooks: what a parent gains, they gain.
    forks: Mutex<Vec<Weak<Inner>>>,
}

impl Worker {
    /// A new worker of priority 0 without a deadline.
    pub fn new(name: impl Into<String>) -> Worker {
        Worker::of(name.into(), 0, None)
    }

    /// A worker for one of several arms that work beside each other within this one, in `join!` or `select!`: arms with workers of their own may
    /// wait for each other's locks. Its priority is this worker's, boosts included, and no wait of it lasts beyond this worker's deadline.
    ///
    /// ```
    /// use heirlock::Worker;
    /// use heirlock::local::Mutex;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> heirlock::Result<()> {
    /// let (import, total) = (Worker::new("import").priority(4), Mutex::new(0));
    /// let (first, second) = (import.fork("first"), import.fork("second"));
    /// let add = async |sum| heirlock::Result::Ok(*total.lock().await? += sum);
    /// tokio::try_join!(first.run(add(1)), second.run(add(2)))?;
    /// assert_eq!((*total.lock().await?, first.effective_priority()), (3, 4));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn fork(&self, name: impl Into<String>) -> Worker {
        Worker::of(name.into(), i32::MIN, Some(self.clone()))
    }

    fn of(name: String, base: i32, parent: Option<Worker>) -> Worker {
        let inner = Arc::new(Inner {
            id: WorkerId::next(),
            name,
            base: AtomicI32::new(base),
            parent,
            deadline: Mutex::new(None),
            polled_by: Mutex::new(None),
            hook: Hook::default(),
        });
        lock(&LIVE).insert(inner.id.0, Arc::downgrade(&inner));
        Worker(inner)
    }

    /// The worker with this id, while it lives.
    pub(crate) fn find(id: u64) -> Option<Worker> {
        // In its own statement: if this is the last handle when it is dropped, the map is locked again.
        let found = lock(&LIVE).get(&id).and_then(Weak::upgrade);
        found.map(Worker)
    }

    /// The worker with this base priority: [`set_priority`](Worker::set_priority) for the line that makes it.
    #[must_use]
    pub fn priority(self, priority: i32) -> Worker {
        self.set_priority(priority);
        self
    }

    /// The worker with this deadline: none of its waits lasts longer.
    #[must_use]
    pub fn deadline(self, deadline: Instant) -> Worker {
        self.set_deadline(Some(deadline));
        self
    }

    /// Its id.
    pub fn id(&self) -> WorkerId {
        self.0.id
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Its base priority, without what it inherits. A fork has its parent's if that is higher.
    pub fn base_priority(&self) -> i32 {
        self.and_parents().map(Worker::own_priority).max().unwrap_or(i32::MIN)
    }

    /// Its base priority, without that of its parent.
    pub(crate) fn own_priority(&self) -> i32 {
        self.0.base.load(Ordering::SeqCst)
    }

    /// It, whose fork it is, whose fork that is, and so on.
    fn and_parents(&self) -> impl Iterator<Item = &Worker> {
        std::iter::successors(Some(self), |worker| worker.parent())
    }

    /// Whose fork it is.
    pub fn parent(&self) -> Option<&Worker> {
        self.0.parent.as_ref()
    }

    /// Its base priority or what the waits on its local locks give it, whichever is higher.
    ///
    /// ```
    /// use heirlock::Worker;
    /// use heirlock::local::Mutex;
    /// let (low, high, lock) = (Worker::new("low"), Worker::new("high").priority(9), Mutex::new(()));
    /// # pollster::block_on(async {
    /// let guard = low.run(lock.lock()).await?;
    /// let mut waiting = std::pin::pin!(high.run(lock.lock()));
    /// # std::future::poll_fn(|cx| { assert!(waiting.as_mut().poll(cx).is_pending()); std::task::Poll::Ready(()) }).await;
    /// // `high` has been polled, and waits.
    /// assert_eq!((low.base_priority(), low.effective_priority()), (0, 9));
    /// drop(guard);
    /// assert_eq!(low.effective_priority(), 0);
    /// # Ok::<(), heirlock::Error>(()) }).unwrap();
    /// ```
    pub fn effective_priority(&self) -> i32 {
        // A fork may take part nowhere while its parent is boosted.
        let each =
            |worker: &Worker| effective_priority(worker.0.id.0).map_or(worker.own_priority(), |boosted| boosted.max(worker.own_priority()));
        self.and_parents().map(each).max().unwrap_or(i32::MIN)
    }

    /// Changes the base priority. Local locks follow at once; leases that it holds or waits for tell their store with their next beat, within a
    /// third of the ttl.
    pub fn set_priority(&self, priority: i32) {
        // First this: whoever registers the worker with a domain from now on reads the new one, and all before are told.
        let old = self.0.base.swap(priority, Ordering::SeqCst);
        rebase(self);
        if old != priority && self.is_listened_to() {
            self.tell_change();
        }
    }

    /// Calls the closure whenever the effective priority may have changed: the hook for executors. It is called on the thread that caused the
    /// change, which may be the timer's, so it must not block; after everything is settled, perhaps by several threads at once and perhaps once too
    /// often; so it carries no value, and
    /// [`effective_priority`](Worker::effective_priority) is to be read in it. A panic of it is traced and ends there. The last closure given counts.
    ///
    /// ```
    /// use heirlock::Worker;
    /// use std::sync::{Arc, atomic::{AtomicI32, Ordering}};
    /// let (worker, seen) = (Worker::new("ingest"), Arc::new(AtomicI32::new(0)));
    /// worker.on_priority_change({
    ///     let (worker, seen) = (worker.downgrade(), Arc::clone(&seen));
    ///     move || seen.store(worker.upgrade().unwrap().effective_priority(), Ordering::SeqCst)
    /// });
    /// worker.set_priority(7);
    /// assert_eq!(seen.load(Ordering::SeqCst), 7);
    /// ```
    pub fn on_priority_change(&self, hook: impl Fn() + Send + Sync + 'static) {
        // The old one is dropped after the mutex is released: it is foreign code.
        let old = lock(&self.0.hook.own).replace(Arc::new(hook));
        self.0.hook.heard.store(true, Ordering::SeqCst);
        if old.is_none() {
            let mut ancestor = self.parent();
            while let Some(worker) = ancestor {
                let mut forks = lock(&worker.0.hook.forks);
                forks.retain(|fork| fork.strong_count() > 0);
                forks.push(Arc::downgrade(&self.0));
                drop(forks);
                worker.0.hook.heard.store(true, Ordering::SeqCst);
                ancestor = worker.parent();
            }
        }
        drop(old);
    }

    pub(crate) fn is_listened_to(&self) -> bool {
        self.0.hook.heard.load(Ordering::SeqCst)
    }

    /// Whether foreign code may be dropped with it, or with those whose fork it is; of these it is not asked, as there may be many.
    pub(crate) fn may_hold_hooks(&self) -> bool {
        self.is_listened_to() || self.parent().is_some()
    }

    /// Calls who wants to know that the effective priority may have changed. Never under a mutex.
    pub(crate) fn tell_change(&self) {
        let forks: Vec<Arc<Inner>> = lock(&self.0.hook.forks).iter().filter_map(Weak::upgrade).collect();
        for inner in std::iter::once(&self.0).chain(&forks) {
            let hook = lock(&inner.hook.own).clone();
            if let Some(hook) = hook {
                hook();
            }
        }
    }

    /// A handle that does not keep the worker.
    pub fn downgrade(&self) -> WeakWorker {
        WeakWorker(Arc::downgrade(&self.0))
    }

    /// When its waits end.
    pub fn current_deadline(&self) -> Option<Instant> {
        self.and_parents().filter_map(|worker| *lock(&worker.0.deadline)).min()
    }

    /// Changes or takes away the deadline. Waits that have begun keep theirs.
    pub fn set_deadline(&self, deadline: Option<Instant>) {
        *lock(&self.0.deadline) = deadline;
    }

    /// Runs the future as this worker: [`Worker::current`] is this worker at every poll of it, on any runtime.
    ///
    /// # Panics
    /// When polled while another thread polls a future of the same worker: an explicit worker is one line of work.
    ///
    /// # Cancel safety
    /// As the future's.
    pub fn run<F: Future>(&self, future: F) -> Run<F> {
        Run { future, worker: self.clone() }
    }

    /// Runs the closure as this worker, for threads.
    ///
    /// ```
    /// # use heirlock::Worker;
    /// let worker = Worker::new("deploy");
    /// assert_eq!(worker.scope(|| Worker::current().unwrap().name().to_owned()), "deploy");
    /// ```
    ///
    /// # Panics
    /// As [`Worker::run`].
    pub fn scope<T>(&self, work: impl FnOnce() -> T) -> T {
        let _entered = Entered::new(self);
        work()
    }

    /// The worker whose future is being polled on this thread.
    pub fn current() -> Option<Worker> {
        CURRENT.with(|stack| stack.borrow().last().cloned())
    }

    /// The id of that worker.
    #[inline]
    pub(crate) fn current_id() -> Option<WorkerId> {
        let id = CURRENT_ID.with(Cell::get);
        (id != 0).then_some(WorkerId(id))
    }
}

/// A handle to a [`Worker`] that does not keep it, for closures that the worker itself keeps.
#[derive(Clone)]
pub struct WeakWorker(Weak<Inner>);

impl WeakWorker {
    /// The worker, while somebody else keeps it.
    pub fn upgrade(&self) -> Option<Worker> {
        self.0.upgrade().map(Worker)
    }
}

impl fmt::Debug for WeakWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WeakWorker").field(&self.upgrade()).finish()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        lock(&LIVE).remove(&self.id.0);
        // One after the other, and not each within the drop of the one before: there may be more of them than the stack has room for.
        let mut parent = self.parent.take();
        while let Some(mut inner) = parent.and_then(|worker| Arc::into_inner(worker.0)) {
            parent = inner.parent.take();
        }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("id", &self.0.id.0)
            .field("name", &self.0.name)
            .field("priority", &self.base_priority())
            .finish_non_exhaustive()
    }
}

impl PartialEq for Worker {
    fn eq(&self, other: &Worker) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for Worker {}

thread_local! {
    /// The id of the innermost of them, or 0: all that most acquires need to know, without a borrow.
    static CURRENT_ID: Cell<u64> = const { Cell::new(0) };
    /// The workers being polled on this thread, innermost last.
    static CURRENT: RefCell<Vec<Worker>> = const { RefCell::new(Vec::new()) };
}

/// While it lives, the thread polls this worker.
struct Entered;

impl Entered {
    fn new(worker: &Worker) -> Entered {
        let here = current_thread().id();
        let mut polled_by = lock(&worker.0.polled_by);
        let depth = match *polled_by {
            None => 1,
            Some((thread, depth)) if thread == here => depth + 1,
            Some(_) => {
                drop(polled_by);
                panic!("worker {:?} is polled on two threads at once: it is one line of work; give each its own Worker", worker.name());
            }
        };
        *polled_by = Some((here, depth));
        drop(polled_by);
        CURRENT.with(|stack| stack.borrow_mut().push(worker.clone()));
        CURRENT_ID.with(|id| id.set(worker.0.id.0));
        Entered
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let (worker, outer) = CURRENT.with(|stack| {
            let mut stack = stack.borrow_mut();
            (stack.pop(), stack.last().map_or(0, |worker| worker.0.id.0))
        });
        CURRENT_ID.with(|id| id.set(outer));
        let Some(worker) = worker else { return };
        let mut polled_by = lock(&worker.0.polled_by);
        *polled_by = match *polled_by {
            Some((thread, depth)) if depth > 1 => Some((thread, depth - 1)),
            _ => None,
        };
    }
}

pin_project! {
    /// The future of [`Worker::run`].
    #[must_use = "futures do nothing unless awaited"]
    pub struct Run<F> {
        #[pin]
        future: F,
        worker: Worker,
    }
}

impl<F: Future> Future for Run<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _entered = Entered::new(this.worker);
        this.future.poll(cx)
    }
}

/// Runs the future as this worker, as a task of the current tokio runtime.
///
/// # Panics
/// Outside a tokio runtime, as [`tokio::spawn`].
///
/// ```
/// # use heirlock::{Worker, spawn};
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let name = spawn(Worker::new("ingest"), async { Worker::current().unwrap().name().to_owned() });
/// assert_eq!(name.await.unwrap(), "ingest");
/// # }
/// ```
#[cfg(feature = "tokio")]
#[allow(clippy::needless_pass_by_value)] // As `tokio::spawn`: it is the last the caller does with it.
pub fn spawn<F>(worker: Worker, future: F) -> tokio::task::JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tokio::spawn(worker.run(future))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn workers_nest_and_end_with_their_poll() {
        let (outer, inner) = (Worker::new("outer"), Worker::new("inner").priority(-3));
        let names = pollster::block_on(outer.run(async {
            let before = Worker::current().unwrap();
            let within = inner.run(async { Worker::current().unwrap() }).await;
            (before, within, Worker::current().unwrap())
        }));
        assert_eq!(names, (outer.clone(), inner.clone(), outer.clone()));
        assert!(inner.id() > outer.id());
        assert_eq!(inner.base_priority(), -3);
    }

    #[test]
    fn a_panic_leaves_no_worker_behind() {
        let worker = Worker::new("w");
        let caught = std::panic::catch_unwind(|| worker.scope(|| panic!("on purpose")));
        assert!(caught.is_err());
        assert!(Worker::current().is_none());
        assert_eq!(worker.scope(|| 7), 7);
    }

    #[test]
    fn two_threads_at_once_panic() {
        let (worker, both) = (Worker::new("one line"), Barrier::new(2));
        std::thread::scope(|s| {
            s.spawn(|| {
                worker.scope(|| {
                    both.wait();
                    both.wait();
                });
            });
            both.wait();
            let caught = std::panic::catch_unwind(|| worker.scope(|| ()));
            both.wait();
            assert!(caught.is_err());
        });
    }
}
