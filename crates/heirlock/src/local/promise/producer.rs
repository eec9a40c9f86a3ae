//! Whoever is to give the result of a promise.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::Promise;
use crate::Worker;

/// The right and the duty to give the value of a [`Promise`], once.
///
/// It stays its worker's wherever it is sent, unless it is [transferred](Producer::transfer_to). Dropped without a value it breaks the promise: all
/// who wait, and all who come later, get `Closed`. Forgotten ([`std::mem::forget`]), it lets them wait for ever, or until they are out of time.
///
/// ```
/// use heirlock::{Worker, local::Promise};
/// # pollster::block_on(async {
/// let (report, writer) = (Promise::<u32>::named("report"), Worker::new("writer"));
/// drop(report.producer(&writer)?);
/// let error = report.wait().await.unwrap_err();
/// assert!(error.is_closed() && error.to_string().starts_with("broken promise: worker \"writer\""), "{error}");
/// # Ok::<(), heirlock::Error>(()) }).unwrap();
/// ```
#[must_use = "the promise is broken when its producer is dropped"]
pub struct Producer<'p, T> {
    promise: Handle<'p, T>,
}

enum Handle<'p, T> {
    Borrowed(&'p Promise<T>),
    Shared(Arc<Promise<T>>),
}

impl<T> Deref for Handle<'_, T> {
    type Target = Promise<T>;

    fn deref(&self) -> &Promise<T> {
        match self {
            Handle::Borrowed(promise) => promise,
            Handle::Shared(promise) => promise,
        }
    }
}

impl<'p, T> Producer<'p, T> {
    pub(super) fn borrowed(promise: &'p Promise<T>) -> Producer<'p, T> {
        Producer { promise: Handle::Borrowed(promise) }
    }

    pub(super) fn shared(promise: Arc<Promise<T>>) -> Producer<'p, T> {
        Producer { promise: Handle::Shared(promise) }
    }

    /// Gives the value, and all who wait go on.
    ///
    /// # Errors
    /// The value itself, if the promise was [cancelled](Promise::cancel): nobody waits for it.
    pub fn set(self, value: T) -> Result<(), T> {
        if !self.promise.settles(super::PRODUCED) {
            return Err(value);
        }
        // What is dropped after this finds it settled, and breaks nothing.
        self.promise.settle(Ok(value));
        Ok(())
    }

    /// Whether the promise was cancelled, so that nobody waits for the value.
    pub fn is_cancelled(&self) -> bool {
        self.promise.is_cancelled()
    }

    /// Makes another worker the one that is to give the value: from now on that one inherits from who waits, and is named by errors and snapshots.
    ///
    /// ```
    /// use heirlock::{Worker, local::Promise};
    /// # pollster::block_on(async {
    /// let (first, second, report) = (Worker::new("first"), Worker::new("second"), Promise::<u32>::new());
    /// let producer = report.producer(&first)?;
    /// assert!(first.run(report.wait()).await.unwrap_err().is_deadlock());
    /// producer.transfer_to(&second);
    /// assert!(second.run(report.wait()).await.unwrap_err().is_deadlock());
    /// # Ok::<(), heirlock::Error>(()) }).unwrap();
    /// ```
    pub fn transfer_to(&self, worker: &Worker) {
        self.promise.raw.transfer(worker);
    }
}

impl<T> Drop for Producer<'_, T> {
    fn drop(&mut self) {
        self.promise.let_go();
    }
}

impl<T> fmt::Debug for Producer<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("promise", &self.promise.name()).finish_non_exhaustive()
    }
}
