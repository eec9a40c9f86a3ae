//! `Mutex`: one holder at a time.

use std::cell::UnsafeCell;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::domain::Domain;
use super::owned::AcquireOwned;
use super::raw::Raw;
use super::wait::{Wait, attempt};
use crate::Result;

/// A value that one at a time may use, and whose holder inherits the priority of whoever waits for it.
///
/// The most urgent waiter is served first: the highest effective priority, then the earliest deadline, then the first to come. The lock passes
/// directly from hand to hand; nobody overtakes the queue. An explicit [`Worker`](crate::Worker) whose wait would close a cycle gets an error
/// instead of waiting for ever.
///
/// ```
/// use heirlock::local::Mutex;
/// use std::time::Duration;
/// # pollster::block_on(async {
/// static HITS: Mutex<u64> = Mutex::named("hits", 0);
/// *HITS.lock().priority(10).timeout(Duration::from_millis(50)).await? += 1;
/// assert_eq!(*HITS.lock().await?, 1);
/// # Ok::<(), heirlock::Error>(()) }).unwrap();
/// ```
pub struct Mutex<T: ?Sized> {
    pub(super) raw: Raw,
    value: UnsafeCell<T>,
}

// SAFETY: the mutex owns its value, so it may go wherever the value may.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: through a shared mutex only its one holder reaches the value, so the value is moved between threads, never shared by them.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    /// A free lock in the global domain.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex { raw: Raw::new(None), value: UnsafeCell::new(value) }
    }

    /// The same with a name, by which errors and snapshots call it.
    pub const fn named(name: &'static str, value: T) -> Mutex<T> {
        Mutex { raw: Raw::new(Some(name)), value: UnsafeCell::new(value) }
    }

    /// The lock in another domain.
    #[must_use]
    pub fn in_domain(mut self, domain: &Domain) -> Mutex<T> {
        self.raw.set_domain(domain);
        self
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Acquires the lock: a future that also has a priority, a deadline and a timeout. It does nothing before it is first polled; whose acquire it
    /// is, is settled then.
    ///
    /// # Errors
    /// `Timeout` when its time is over first; `Deadlock`, naming the cycle, when waiting would never end.
    ///
    /// # Cancel safety
    /// Dropping the future in whatever state leaves nothing behind: a lock that it was just granted goes on to the next waiter. A place in the
    /// queue is lost.
    pub fn lock(&self) -> Acquire<'_, T> {
        Acquire { lock: self, wait: Wait::default() }
    }

    /// As [`lock`](Mutex::lock), with a guard that keeps the lock alive and may go anywhere.
    ///
    /// # Errors
    /// As [`lock`](Mutex::lock).
    ///
    /// # Cancel safety
    /// As [`lock`](Mutex::lock).
    ///
    /// ```
    /// use heirlock::local::Mutex;
    /// use std::sync::Arc;
    /// let lock = Arc::new(Mutex::new(1));
    /// let guard = pollster::block_on(lock.lock_owned()).unwrap();
    /// std::thread::spawn(move || drop(guard)).join().unwrap();
    /// assert!(!lock.is_locked());
    /// ```
    pub fn lock_owned(self: &Arc<Self>) -> AcquireOwned<T> {
        AcquireOwned::new(Arc::clone(self))
    }

    /// Acquires the lock if nobody holds it or waits for it.
    ///
    /// # Errors
    /// `WouldBlock` otherwise.
    ///
    /// ```
    /// let lock = heirlock::local::Mutex::new(3);
    /// let guard = lock.try_lock().unwrap();
    /// assert!(lock.try_lock().unwrap_err().is_would_block());
    /// # drop(guard);
    /// ```
    pub fn try_lock(&self) -> Result<MutexGuard<'_, T>> {
        attempt(&self.raw).map(|()| MutexGuard::new(self))
    }

    /// Acquires the lock on this thread, for code that is not async: [`lock`](Mutex::lock) with [`Acquire::blocking`].
    ///
    /// # Errors
    /// As [`Acquire::blocking`].
    ///
    /// ```
    /// let lock = heirlock::local::Mutex::new(3);
    /// assert_eq!(*lock.lock_blocking().unwrap(), 3);
    /// ```
    pub fn lock_blocking(&self) -> Result<MutexGuard<'_, T>> {
        self.lock().blocking()
    }

    /// Whether anybody holds it, or has been granted it. It may be otherwise a moment later.
    pub fn is_locked(&self) -> bool {
        self.raw.is_held()
    }

    /// Its name.
    pub fn name(&self) -> Option<&'static str> {
        self.raw.name()
    }

    /// The value, without locking: nobody else can have the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Where the value is. To be dereferenced by the holder only.
    pub(super) fn value(&self) -> *mut T {
        self.value.get()
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Mutex<T> {
        Mutex::new(T::default())
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Mutex<T> {
        Mutex::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Mutex");
        out.field("name", &self.raw.name());
        match self.try_lock() {
            Ok(guard) => out.field("value", &&*guard),
            Err(_) => out.field("value", &format_args!("<locked>")),
        };
        out.finish()
    }
}

/// The builder methods of an acquire.
macro_rules! options {
    () => {
        /// How urgent this wait is, in place of its worker's base priority. Larger is more urgent.
        pub fn priority(mut self, priority: i32) -> Self {
            self.wait.options.priority = Some(priority);
            self
        }

        /// How long it may wait, from when it queues. Zero takes a free lock only. It moves nobody in the queue.
        pub fn timeout(mut self, span: std::time::Duration) -> Self {
            self.wait.options.timeout = Some(span);
            self
        }

        /// When the wait ends at the latest; among equal priorities the earliest is served first. An earlier deadline of the worker counts.
        pub fn deadline(mut self, instant: std::time::Instant) -> Self {
            self.wait.options.deadline = Some(instant);
            self
        }
    };
}
pub(super) use options;

/// The future of [`Mutex::lock`]. What is said of it after its first poll changes nothing.
#[must_use = "futures do nothing unless awaited"]
pub struct Acquire<'a, T: ?Sized> {
    lock: &'a Mutex<T>,
    wait: Wait,
}

impl<'a, T: ?Sized> Acquire<'a, T> {
    options!();

    /// Waits on this thread instead of being polled. The thread acquires, unless it runs as a [`Worker`](crate::Worker).
    ///
    /// # Errors
    /// As [`Mutex::lock`], and `WouldBlock` within an async runtime if the lock is held: it would block one of the runtime's threads.
    pub fn blocking(mut self) -> Result<MutexGuard<'a, T>> {
        self.wait.block(&self.lock.raw).map(|()| MutexGuard::new(self.lock))
    }
}

impl<'a, T: ?Sized> Future for Acquire<'a, T> {
    type Output = Result<MutexGuard<'a, T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let lock = self.lock;
        self.wait.poll(&lock.raw, cx).map_ok(|()| MutexGuard::new(lock))
    }
}

impl<T: ?Sized> Drop for Acquire<'_, T> {
    fn drop(&mut self) {
        self.wait.cancel(&self.lock.raw);
    }
}

impl<T: ?Sized> fmt::Debug for Acquire<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").field("name", &self.lock.raw.name()).field("wait", &self.wait).finish()
    }
}

/// The right to the value of a [`Mutex`], until it is dropped.
///
/// It crosses threads, and is shared by them, only where a `&mut T` is:
///
/// ```compile_fail,E0277
/// fn shared<T: Sync>(_: T) {}
/// let lock = heirlock::local::Mutex::new(std::cell::Cell::new(1));
/// shared(lock.try_lock().unwrap());
/// ```
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct MutexGuard<'a, T: ?Sized> {
    lock: &'a Mutex<T>,
    /// It crosses threads, and is shared by them, as a `&mut T` is.
    value: PhantomData<&'a mut T>,
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    /// For who has just acquired the lock.
    fn new(lock: &'a Mutex<T>) -> MutexGuard<'a, T> {
        MutexGuard { lock, value: PhantomData }
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: a guard exists for the lock's one holder only, and while it is borrowed shared, no `&mut` of the value can come from it.
        unsafe { &*self.lock.value() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: a guard exists for the lock's one holder only, and it is borrowed exclusively.
        unsafe { &mut *self.lock.value() }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.lock.raw.release();
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
