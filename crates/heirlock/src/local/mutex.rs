//! `Mutex`: one holder at a time.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::acquire::{Acquire, Sealed};
use super::domain::Domain;
use super::graph::Kind;
use super::owned::AcquireOwned;
use super::raw::Raw;
use super::wait::{Held, attempt};
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
        Mutex { raw: Raw::new(Kind::Mutex, None), value: UnsafeCell::new(value) }
    }

    /// The same with a name, by which errors and snapshots call it.
    pub const fn named(name: &'static str, value: T) -> Mutex<T> {
        Mutex { raw: Raw::new(Kind::Mutex, Some(name)), value: UnsafeCell::new(value) }
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
    pub fn lock(&self) -> Acquire<'_, Mutex<T>> {
        Acquire::new(self)
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
        attempt(&self.raw).map(|held| self.guard(held))
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

impl<T: ?Sized> Sealed for Mutex<T> {
    type Guard<'a>
        = MutexGuard<'a, T>
    where
        T: 'a;

    fn raw(&self) -> &Raw {
        &self.raw
    }

    fn guard(&self, _: Held) -> MutexGuard<'_, T> {
        MutexGuard { lock: self, value: PhantomData }
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
