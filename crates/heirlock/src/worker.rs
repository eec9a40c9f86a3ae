//! Workers: who acquires.

mod hook;
mod run;

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, Weak};
use std::time::Instant;

#[cfg(feature = "tokio")]
pub(crate) use self::hook::Follow;
use self::hook::Hook;
use self::run::Entered;
pub use self::run::Run;
#[cfg(feature = "tokio")]
pub use self::run::spawn;
use crate::local::hash::IdMap;
use crate::local::sync::{SHARDS, ThreadId};
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

/// All workers that live and whose id anybody may know: the word of a lock has room for that only. Who asks for the id lists the worker.
static LIVE: LazyLock<[Mutex<Live>; SHARDS]> = LazyLock::new(Default::default);

type Live = IdMap<u64, Weak<Inner>>;

/// The part of them that this id is in.
fn live(id: u64) -> &'static Mutex<Live> {
    #[allow(clippy::cast_possible_truncation)] // Its lowest bits alone count.
    &LIVE[id as usize % SHARDS]
}

struct Inner {
    id: WorkerId,
    name: Cow<'static, str>,
    /// Of a fork `i32::MIN`, which adds nothing to what its parent gives it, unless it was told otherwise.
    base: AtomicI32,
    /// Whose fork it is.
    parent: Option<Worker>,
    deadline: Mutex<Option<Instant>>,
    /// The thread that polls the worker's futures now, and how deeply nested.
    polled_by: Mutex<Option<(ThreadId, usize)>>,
    listed: AtomicBool,
    /// Whether it ever took part in a domain; never false again.
    took_part: AtomicBool,
    hook: Hook,
}

impl Worker {
    /// A new worker of priority 0 without a deadline.
    pub fn new(name: impl Into<Cow<'static, str>>) -> Worker {
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
    pub fn fork(&self, name: impl Into<Cow<'static, str>>) -> Worker {
        let fork = Worker::of(name.into(), i32::MIN, Some(self.clone()));
        self.has_forked(&fork);
        fork
    }

    fn of(name: Cow<'static, str>, base: i32, parent: Option<Worker>) -> Worker {
        let inner = Arc::new(Inner {
            id: WorkerId::next(),
            name,
            base: AtomicI32::new(base),
            parent,
            deadline: Mutex::new(None),
            polled_by: Mutex::new(None),
            listed: AtomicBool::new(false),
            took_part: AtomicBool::new(false),
            hook: Hook::default(),
        });
        Worker(inner)
    }

    /// The worker with this id, while it lives.
    pub(crate) fn find(id: u64) -> Option<Worker> {
        // In its own statement: if this is the last handle when it is dropped, the map is locked again.
        let found = lock(live(id)).get(&id).and_then(Weak::upgrade);
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
        if !self.0.listed.load(Ordering::Acquire) {
            self.list();
        }
        self.0.id
    }

    #[cold]
    fn list(&self) {
        lock(live(self.0.id.0)).insert(self.0.id.0, Arc::downgrade(&self.0));
        // After it is in the map, so that nobody else who knows the id misses it there.
        self.0.listed.store(true, Ordering::Release);
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
        self.and_parents().map(Worker::inherited_priority).max().unwrap_or(i32::MIN)
    }

    /// The same without what its parent gives it, if it takes part nowhere.
    fn inherited_priority(&self) -> i32 {
        let boosted = if self.0.took_part.load(Ordering::SeqCst) { effective_priority(self.0.id.0) } else { None };
        boosted.map_or(self.own_priority(), |boosted| boosted.max(self.own_priority()))
    }

    /// It takes part in a domain. To be said before that reads its priority: whoever changes it then sees this, or is seen by it.
    pub(crate) fn takes_part(&self) {
        self.0.took_part.store(true, Ordering::SeqCst);
    }

    /// Changes the base priority. Local locks follow at once; leases that it holds or waits for tell their store with their next beat, within a
    /// third of the ttl.
    pub fn set_priority(&self, priority: i32) {
        // First this: whoever registers the worker with a domain from now on reads the new one, and all before are told.
        let old = self.0.base.swap(priority, Ordering::SeqCst);
        if self.0.took_part.load(Ordering::SeqCst) {
            rebase(self);
        }
        if old != priority && self.is_listened_to() {
            self.tell_change();
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
        run::current()
    }

    /// The id of that worker.
    #[inline]
    pub(crate) fn current_id() -> Option<WorkerId> {
        run::current_id()
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
        if *self.listed.get_mut() {
            lock(live(self.id.0)).remove(&self.id.0);
        }
        // One after the other, and not each within the drop of the one before: there may be more of them than the stack has room for.
        let mut parent = self.parent.take();
        while let Some(worker) = parent {
            parent = match Arc::try_unwrap(worker.0) {
                Ok(mut inner) => inner.parent.take(),
                Err(inner) => {
                    // Whose task polled what has gone need not be polled for that any more.
                    if *self.hook.heard.get_mut() {
                        Worker(inner).tell_task();
                    }
                    None
                }
            };
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
