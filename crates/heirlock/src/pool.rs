//! An executor that polls its tasks in the order of their effective priority.
//!
//! On another runtime a lock decides who holds it next, and the runtime who is polled next: a boosted holder still waits for its turn behind
//! whatever else is ready. In a [`Pool`] whoever is most urgent is polled first, what its worker inherits included, so a holder for which somebody
//! urgent waits is polled before all the tasks that are less urgent, and a priority inversion lasts for one poll at most.
//!
//! - Tasks are polled by the effective priority of their [`Worker`] and of its forks, whichever is higher; equals take turns, so a task that is
//!   always ready starves none of them. It does starve those of lower priority: that is what a priority is.
//! - When a priority changes, by a boost or by [`Worker::set_priority`], a task that is ready moves at once. A poll that has begun is never
//!   interrupted.
//! - The pool's threads are within the context of a tokio runtime, so that its I/O, its timers and `spawn_blocking` work in tasks as anywhere.
//! - A panic of a task ends that task, and whoever awaits its handle is told. A pool that is shut down ends or cancels its tasks, and loses none.
//!
//! ```
//! use heirlock::{Worker, local::Mutex, pool::Pool};
//! use std::sync::Arc;
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> heirlock::Result<()> {
//! let pool = Pool::builder().threads(1).build()?;
//! let log = Arc::new(Mutex::new(Vec::new()));
//! let write = |name: &'static str| {
//!     let log = Arc::clone(&log);
//!     async move { log.lock().await.map(|mut log| log.push(name)) }
//! };
//! let low = pool.spawn(Worker::new("report"), write("report"));
//! let high = pool.spawn(Worker::new("alarm").priority(10), write("alarm"));
//! high.await??;
//! low.await??;
//! pool.drain().await?;
//! # Ok(()) }
//! ```
//!
//! # Blocking
//! A task that blocks, or computes for long without an `.await`, keeps a thread of the pool from all others, however urgent: hand such work to
//! `tokio::task::spawn_blocking`. A poll that lasts longer than [`Builder::warn_after`] is traced, also while it still lasts. On its own runtime tokio
//! makes a task yield that finds something to receive again and again; here nobody does, so such a loop calls `tokio::task::yield_now` from time to time.
//!
//! # One worker, one task
//! A [`Worker`] is one line of work. Two tasks of one worker are polled on two threads at once some day, which is a panic: give each its own, or
//! [fork](Worker::fork) it. A fork that is no task of its own counts, as long as it lives, for the task of whose fork it is: that polls it.
//!
//! # Results that others wait for
//! Whoever awaits a [`JoinHandle`] waits for that task, but boosts it not, as handles are for anybody. Where the urgent wait for a task's result, let
//! it be the producer of a [`Promise`](crate::local::Promise).

mod queue;
mod shutdown;
mod task;
#[cfg(test)]
mod tests;
mod threads;
mod watch;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::runtime;

pub use self::shutdown::Shutdown;
pub use self::task::{AbortHandle, JoinHandle};
use self::threads::{Phase, Shared};
use crate::{Error, Kind, Result, Worker};

/// Threads that poll tasks in the order of their effective priority.
///
/// Dropping it cancels its tasks and waits for nobody, also where one of its own tasks does it: each task's future is dropped by the pool's threads
/// before its next poll. [`drain`](Pool::drain) and [`cancel`](Pool::cancel) wait.
#[derive(Debug)]
pub struct Pool {
    handle: Handle,
}

/// Spawns tasks in a [`Pool`], from wherever it is kept. It does not keep the pool.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

impl Pool {
    /// A pool of as many threads as the machine has, with the options to say it otherwise.
    pub fn builder() -> Builder {
        Builder { threads: None, name: "pool".to_owned(), warn_after: Duration::from_secs(1), runtime: None }
    }

    /// Runs the future as this worker, as a task of the pool. It is polled for the first time when it is its turn, not by this call.
    ///
    /// After [`drain`](Pool::drain) or [`cancel`](Pool::cancel) the future is dropped instead, and the handle says `Closed`; but while a pool is
    /// drained, what is spawned on its own threads is run.
    ///
    /// # Panics
    /// With more than four thousand million tasks at a time.
    pub fn spawn<F>(&self, worker: Worker, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.handle.spawn(worker, future)
    }

    /// Spawns tasks, too, and can be cloned.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Shuts the pool down when all tasks have ended. No more are taken but those of its own tasks. Await it, or call
    /// [`blocking`](Shutdown::blocking): it says how many tasks were cancelled, which without a [`timeout`](Shutdown::timeout) are those whose
    /// handles did it.
    ///
    /// ```
    /// use heirlock::{Worker, pool::Pool};
    /// use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> heirlock::Result<()> {
    /// let pool = Pool::builder().threads(2).build()?;
    /// let sum = pool.spawn(Worker::new("sum"), async { 40 + 2 });
    /// let endless = pool.spawn(Worker::new("endless"), std::future::pending::<()>());
    /// assert_eq!(pool.drain().timeout(Duration::from_millis(10)).await?, 1);
    /// assert_eq!(sum.await?, 42);
    /// assert!(endless.await.unwrap_err().is_cancelled());
    /// # Ok(()) }
    /// ```
    pub fn drain(self) -> Shutdown {
        self.handle.shared.close(Phase::Draining);
        Shutdown::of(Arc::clone(&self.handle.shared))
    }

    /// Shuts the pool down at once: all tasks are cancelled, each before its next poll. Await it, or call [`blocking`](Shutdown::blocking), until
    /// they are gone: it says how many were cancelled.
    pub fn cancel(self) -> Shutdown {
        self.handle.shared.close(Phase::Cancelling);
        Shutdown::of(Arc::clone(&self.handle.shared))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // A pool that is drained goes on being drained: its `Shutdown` has come from it.
        self.handle.shared.close_if_open(Phase::Cancelling);
    }
}

impl Handle {
    /// As [`Pool::spawn`].
    ///
    /// # Panics
    /// As there.
    #[allow(clippy::needless_pass_by_value)] // As `tokio::spawn`: it is the last the caller does with it.
    pub fn spawn<F>(&self, worker: Worker, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        task::spawn(&self.shared, &worker, future)
    }

    /// The pool whose task is being polled on this thread.
    ///
    /// ```
    /// use heirlock::{Worker, pool::{Handle, Pool}};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> heirlock::Result<()> {
    /// let pool = Pool::builder().threads(1).build()?;
    /// let outer = pool.spawn(Worker::new("outer"), async {
    ///     let here = Handle::current().expect("it is a task of a pool");
    ///     here.spawn(Worker::new("inner"), async { 7 }).await
    /// });
    /// assert_eq!(outer.await??, 7);
    /// assert!(Handle::current().is_none());
    /// # Ok(()) }
    /// ```
    pub fn current() -> Option<Handle> {
        threads::here().map(|shared| Handle { shared })
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tasks, ready) = self.shared.counts();
        f.debug_struct("Handle").field("pool", &self.shared.name).field("tasks", &tasks).field("ready", &ready).finish()
    }
}

/// How many threads a pool may have: far more than there are processors.
const MOST: usize = 4096;

/// Makes a [`Pool`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct Builder {
    threads: Option<usize>,
    name: String,
    warn_after: Duration,
    runtime: Option<runtime::Handle>,
}

impl Builder {
    /// How many threads; as many as the machine has processors for this process if nothing is said. One is enough to be an executor, and polls in the
    /// strictest order.
    pub fn threads(mut self, threads: usize) -> Builder {
        self.threads = Some(threads);
        self
    }

    /// What its threads and traces call it; `pool` if nothing is said.
    pub fn name(mut self, name: impl Into<String>) -> Builder {
        self.name = name.into();
        self
    }

    /// Traces a poll that lasts for long, with its worker's name: between one and two of these spans after it began. A second if nothing is said, at
    /// least a millisecond. With `Duration::MAX` nobody watches.
    pub fn warn_after(mut self, span: Duration) -> Builder {
        self.warn_after = span.max(Duration::from_millis(1));
        self
    }

    /// In whose context the threads are; in the one of the runtime in which the pool is built if nothing is said. It must outlive the pool's tasks,
    /// as far as these use its I/O and timers, which a current-thread runtime drives only while it is within `block_on`.
    pub fn runtime(mut self, runtime: runtime::Handle) -> Builder {
        self.runtime = Some(runtime);
        self
    }

    /// The pool, with its threads started.
    ///
    /// # Errors
    /// `Invalid` outside of a tokio runtime if none is given, for no thread at all or thousands, and for a name with a zero byte; `Storage` if the system
    /// gives no thread.
    pub fn build(self) -> Result<Pool> {
        let threads = self.threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
        if threads == 0 {
            return Err(Error::new(Kind::Invalid, "a pool of no threads would never poll anything: give it one at least, with threads(1)"));
        }
        if threads > MOST {
            return Err(Error::new(Kind::Invalid, format!("a pool has no use for {threads} threads: give it at most {MOST}")));
        }
        if self.name.contains('\0') {
            return Err(Error::new(Kind::Invalid, format!("no thread can be called {:?}: give the pool a name without \\0", self.name)));
        }
        let runtime = self.runtime.map_or_else(runtime::Handle::try_current, Ok).map_err(|cause| {
            let what = "a pool's tasks need the context of a tokio runtime: build it within one, or give it one with runtime(handle)";
            Error::new(Kind::Invalid, what).because(cause)
        })?;
        let shared = Arc::new(Shared::new(self.name, runtime, threads));
        // Dropped on an error, it ends the threads that there are.
        let pool = Pool { handle: Handle { shared: Arc::clone(&shared) } };
        let no_thread = |cause| Error::new(Kind::Storage, "the system gives no thread for the pool").because(cause);
        for index in 0..threads {
            Shared::start(&shared, index).map_err(no_thread)?;
        }
        if self.warn_after < Duration::MAX {
            watch::start(&shared, self.warn_after).map_err(no_thread)?;
        }
        Ok(pool)
    }
}
