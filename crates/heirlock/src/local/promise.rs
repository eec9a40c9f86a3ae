//! `Promise`: one result that many await.

mod producer;

use std::cell::UnsafeCell;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub use self::producer::Producer;
use super::awaiting::{Await, Sealed};
use super::domain::Domain;
use super::graph::{Kind as LockKind, Order};
use super::identity::{ANONYMOUS, Owner, number_of_call};
use super::raw::{Raw, Site};
use super::sync::{AtomicU8, const_fn};
use super::wait::Held;
use crate::{Error, Kind, Worker};

/// A result that somebody will give once, and that many may await.
///
/// Whoever is to give it has a [`Producer`]. While others wait, the worker that it is of inherits their priority, and what that worker waits for
/// itself is seen: an explicit worker whose wait would close a cycle gets `Deadlock` instead of waiting for ever. A producer that goes without a value
/// breaks the promise, and anybody may [cancel](Promise::cancel) it: then all who wait, and all who come later, get `Closed`.
///
/// ```
/// use heirlock::{Worker, local::Promise};
/// use std::sync::Arc;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> heirlock::Result<()> {
/// let report = Arc::new(Promise::named("report"));
/// let writer = Worker::new("writer");
/// let producer = report.producer_owned(&writer)?;
/// # let task =
/// tokio::spawn(writer.run(async move { producer.set("all is well".to_owned()) }));
/// assert_eq!(report.wait().priority(7).await?, "all is well");
/// # task.await.unwrap().unwrap();
/// # Ok(()) }
/// ```
///
/// A child whose result is a promise that it produces itself is no blind spot as a `JoinHandle` is:
///
/// ```
/// use heirlock::{Worker, local::{Mutex, Promise}};
/// # use std::{future::{Future, poll_fn}, pin::pin, task::Poll};
/// # pollster::block_on(async {
/// let (lock, result) = (Mutex::named("lock", 1), Promise::named("result"));
/// let (parent, child) = (Worker::new("parent"), Worker::new("child"));
/// let guard = parent.run(lock.lock()).await?;
/// let producer = result.producer(&child)?;
/// let mut works = pin!(child.run(async { producer.set(*lock.lock().await?); Ok::<_, heirlock::Error>(()) }));
/// # poll_fn(|cx| Poll::Ready(assert!(works.as_mut().poll(cx).is_pending()))).await;
/// // The child has been polled, and waits for the lock that its parent holds.
/// assert!(parent.run(result.wait()).await.unwrap_err().is_deadlock());
/// drop(guard);
/// works.await?;
/// assert_eq!(parent.run(result.wait()).await?, &1);
/// # Ok::<(), heirlock::Error>(()) }).unwrap();
/// ```
pub struct Promise<T> {
    raw: Raw,
    stage: AtomicU8,
    /// Written once, by who brought the stage to `SETTLING`; not again while the promise is shared.
    outcome: UnsafeCell<Option<Result<T, Ending>>>,
}

/// The stages of a promise, which only go up. Under all but the last its lock is held: by nobody known, then by who produces it.
const OPEN: u8 = 0;
const PRODUCED: u8 = 1;
/// Whoever brought it here, and nobody else, writes the outcome.
const SETTLING: u8 = 2;
const SETTLED: u8 = 3;

/// Why there is no value, and will be none.
#[derive(Debug)]
enum Ending {
    Cancelled,
    /// By whom, if that is known, and where that became the producer.
    Broken(Option<String>, Option<Site>),
}

// SAFETY: through a shared promise `&T` is handed out on several threads, so the value must be `Sync`; and whoever gives it may be on another thread
// than who drops it, so it must be `Send`.
unsafe impl<T: Send + Sync> Sync for Promise<T> {}

impl<T> Promise<T> {
    const_fn! {
        /// A promise in the global domain, which nobody has yet undertaken to keep.
        pub const fn new() -> Promise<T> {
            Promise { raw: Raw::new(LockKind::Promise, None), stage: AtomicU8::new(OPEN), outcome: UnsafeCell::new(None) }
        }
    }

    const_fn! {
        /// The same with a name, by which errors and snapshots call it.
        pub const fn named(name: &'static str) -> Promise<T> {
            Promise { raw: Raw::new(LockKind::Promise, Some(name)), stage: AtomicU8::new(OPEN), outcome: UnsafeCell::new(None) }
        }
    }

    /// The promise in another domain.
    #[must_use]
    pub fn in_domain(mut self, domain: &Domain) -> Promise<T> {
        self.raw.set_domain(domain);
        // Its producer was leaked, if there is one.
        if self.stage.load(Ordering::Relaxed) == PRODUCED {
            self.stage = AtomicU8::new(OPEN);
        }
        self
    }

    /// Who of those that wait is woken first; in its domain's order if nothing is said, which is by priority unless changed.
    #[must_use]
    pub const fn order(mut self, order: Order) -> Promise<T> {
        self.raw.set_order(order);
        self
    }

    /// Its name.
    pub fn name(&self) -> Option<&'static str> {
        self.raw.name()
    }

    /// The right and the duty to give the value, for this worker: it inherits the priority of all who wait from now on, or do already.
    ///
    /// If the worker waits for something that leads back to this promise, that is a deadlock from now on, and its wait ends.
    ///
    /// # Errors
    /// `Invalid` if somebody is its producer already, or it is set; `Closed` if it is broken or cancelled.
    #[track_caller]
    pub fn producer(&self, worker: &Worker) -> crate::Result<Producer<'_, T>> {
        self.undertake(worker.id().get(), Location::caller())?;
        Ok(Producer::borrowed(self))
    }

    /// As [`producer`](Promise::producer), keeping the promise alive: for a task of its own.
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn producer_owned<'p>(self: &Arc<Self>, worker: &Worker) -> crate::Result<Producer<'p, T>> {
        self.undertake(worker.id().get(), Location::caller())?;
        Ok(Producer::shared(Arc::clone(self)))
    }

    /// As [`producer`](Promise::producer), for whoever calls this: the worker as which it runs, else the task, or the thread. A task or a thread
    /// is shown, but it may have other things to do, so no wait for it is known to be a deadlock. Outside of all that nobody is known.
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn produce(&self) -> crate::Result<Producer<'_, T>> {
        self.undertake(number_of_call(), Location::caller())?;
        Ok(Producer::borrowed(self))
    }

    /// As [`produce`](Promise::produce), keeping the promise alive.
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn produce_owned<'p>(self: &Arc<Self>) -> crate::Result<Producer<'p, T>> {
        self.undertake(number_of_call(), Location::caller())?;
        Ok(Producer::shared(Arc::clone(self)))
    }

    fn undertake(&self, number: u64, site: Site) -> crate::Result<()> {
        match self.stage.compare_exchange(OPEN, PRODUCED, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                self.raw.bind(number, site);
                Ok(())
            }
            Err(stage) => Err(self.refusal(stage)),
        }
    }

    #[cold]
    fn refusal(&self, stage: u8) -> Error {
        match self.outcome() {
            Some(Err(ending)) => self.closed(ending),
            None if stage == PRODUCED => {
                let by = self.producer_name().unwrap_or_else(|| "somebody".into());
                let at = self.raw.site().map(|site| format!(" (from {site})")).unwrap_or_default();
                Error::new(
                    Kind::Invalid,
                    format!(
                        "{by} produces {} already{at}: it has one producer, which transfer_to() gives to another worker",
                        self.raw.label()
                    ),
                )
            }
            _ => Error::new(Kind::Invalid, format!("{} is over already: make a new one for each result", self.raw.label())),
        }
    }

    /// Gives the value, if nobody is to give it, and all who wait go on.
    ///
    /// # Errors
    /// The value itself, if the promise is set, broken or cancelled, or if there is a producer, whose business it is.
    ///
    /// ```
    /// let promise = heirlock::local::Promise::new();
    /// assert_eq!((promise.set(1), promise.set(2)), (Ok(()), Err(2)));
    /// assert_eq!(promise.get(), Some(&1));
    /// ```
    pub fn set(&self, value: T) -> Result<(), T> {
        if !self.settles(OPEN) {
            return Err(value);
        }
        self.settle(Ok(value));
        Ok(())
    }

    /// Declares that nobody needs the result any more: all waits end with `Closed`, and the producer gets its value back when it would set it.
    /// Whether that was still possible: `false` if it is set, broken or cancelled, or about to be.
    ///
    /// ```
    /// let promise = heirlock::local::Promise::named("report");
    /// let producer = promise.produce()?;
    /// assert!(promise.cancel() && producer.is_cancelled());
    /// assert_eq!(producer.set(7), Err(7));
    /// let error = promise.wait_blocking().unwrap_err();
    /// assert_eq!((error.is_closed(), error.to_string().as_str()), (true, "promise \"report\" was cancelled"));
    /// # Ok::<(), heirlock::Error>(())
    /// ```
    pub fn cancel(&self) -> bool {
        // A stage goes up only: who is not found at the first look is at the second, or there is nothing left to cancel.
        let is_mine = self.settles(OPEN) || self.settles(PRODUCED);
        if is_mine {
            self.settle(Err(Ending::Cancelled));
        }
        is_mine
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        matches!(self.outcome(), Some(Err(Ending::Cancelled)))
    }

    /// The value, if it is there: one load.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        self.outcome().and_then(|outcome| outcome.as_ref().ok())
    }

    /// Waits for the value: a future that also has a priority, a timeout and a deadline. It does nothing before it is first polled; whose wait it is,
    /// is settled then. If the value is there, that is one load.
    ///
    /// # Errors
    /// `Closed` if the promise was broken, saying by whom as far as that is known, or cancelled. `Timeout` when the value did not come in time;
    /// `Deadlock`, naming the cycle, when waiting would never end, such as for what the worker itself is to produce.
    ///
    /// # Cancel safety
    /// Dropping the future in whatever state leaves nothing behind, and takes nothing from others.
    #[track_caller]
    pub fn wait(&self) -> Await<'_, Promise<T>> {
        Await::new(self, Location::caller())
    }

    /// Waits on this thread: [`wait`](Promise::wait) for threads.
    ///
    /// # Errors
    /// As there, and `WouldBlock` within an async runtime, if there is no result yet: that would block one of the runtime's threads.
    #[track_caller]
    pub fn wait_blocking(&self) -> crate::Result<&T> {
        Await::new(self, Location::caller()).blocking()
    }

    /// The value, if it is there, out of the promise.
    pub fn into_inner(self) -> Option<T> {
        self.outcome.into_inner().and_then(Result::ok)
    }

    /// How it ended, if it has.
    #[inline]
    fn outcome(&self) -> Option<&Result<T, Ending>> {
        // What was written before it was settled is seen by who sees that it is.
        if self.stage.load(Ordering::Acquire) != SETTLED {
            return None;
        }
        // SAFETY: it is settled after the outcome was written, which is not written again while the promise is shared.
        unsafe { (*self.outcome.get()).as_ref() }
    }

    /// From this stage on the outcome is the caller's to write, who must then call [`settle`](Promise::settle). Whether that is so.
    fn settles(&self, stage: u8) -> bool {
        self.stage.compare_exchange(stage, SETTLING, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// All who wait go on, and nobody waits any more. Once, for who may.
    fn settle(&self, outcome: Result<T, Ending>) {
        // SAFETY: the caller brought the stage to `SETTLING`, which one can, so it is alone in writing; and nobody reads before it is settled.
        unsafe { *self.outcome.get() = Some(outcome) };
        // After the outcome and before the waits end: who is woken by that, or finds the lock over, finds the outcome.
        self.stage.store(SETTLED, Ordering::Release);
        self.raw.release_for_good();
    }

    /// The producer, as a sentence calls it.
    fn producer_name(&self) -> Option<String> {
        let number = self.raw.owner_number();
        (number != 0 && number != ANONYMOUS).then(|| Owner::from_number(number).to_string())
    }

    /// The producer is dropped.
    fn let_go(&self) {
        if self.stage.load(Ordering::Relaxed) == PRODUCED {
            self.break_off();
        }
    }

    /// There will be no value.
    #[cold]
    fn break_off(&self) {
        // Both are known until it is settled.
        let ending = Ending::Broken(self.producer_name(), self.raw.site());
        if self.settles(PRODUCED) {
            self.settle(Err(ending));
        }
    }

    fn closed(&self, ending: &Ending) -> Error {
        let label = self.raw.label();
        let what = match ending {
            Ending::Cancelled => format!("{label} was cancelled"),
            Ending::Broken(by, site) => {
                let by = by.as_ref().map_or("whoever", String::as_str);
                let comma = if by == "whoever" { "" } else { ", which" };
                let at = site.map(|site| format!(" (from {site})")).unwrap_or_default();
                format!("broken promise: {by}{comma} was to set {label}{at} dropped its producer without a value")
            }
        };
        Error::new(Kind::Closed, what)
    }
}

impl<T> Sealed for Promise<T> {
    type Output<'a>
        = &'a T
    where
        T: 'a;

    const LASTS: bool = true;

    fn raw(&self) -> &Raw {
        &self.raw
    }

    #[inline]
    fn there(&self) -> Option<crate::Result<&T>> {
        self.outcome().map(|outcome| outcome.as_ref().map_err(|ending| self.closed(ending)))
    }

    /// Whatever became of the wait, if there is a result, that is it.
    fn ended(&self, ended: crate::Result<Held>, _: bool) -> crate::Result<&T> {
        match (self.there(), ended) {
            (Some(there), _) => there,
            (None, Err(error)) => Err(error),
            (None, Ok(_)) => unreachable!("nobody is let through a promise before it is settled"),
        }
    }
}

impl<T> Default for Promise<T> {
    fn default() -> Promise<T> {
        Promise::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for Promise<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Promise");
        out.field("name", &self.raw.name());
        match self.outcome() {
            Some(Ok(value)) => out.field("value", value),
            Some(Err(Ending::Cancelled)) => out.field("value", &format_args!("<cancelled>")),
            Some(Err(Ending::Broken(..))) => out.field("value", &format_args!("<broken>")),
            None => out.field("value", &format_args!("<unset>")),
        };
        out.finish_non_exhaustive()
    }
}
