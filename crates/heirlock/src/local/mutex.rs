//! `Mutex`: one holder at a time.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{AsyncFnOnce, Deref, DerefMut};
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::Arc;

use super::acquire::{Acquire, Sealed, questions, setup};
use super::domain::Domain;
use super::graph::{Kind, Order};
use super::guard::{Part, Whole};
use super::owned::{AcquireOwned, OwnedMutexGuard};
use super::raw::{Raw, Want, Word};
use super::sync::const_fn;
use super::wait::{Held, Unfinished, attempt};
use crate::{Result, Worker};

/// A value that one at a time may use, and whose holder inherits the priority of whoever waits for it.
///
/// The most urgent waiter is served first: the highest effective priority, then the earliest deadline, then the first to come. The lock passes
/// directly from hand to hand; nobody overtakes the queue. An explicit [`Worker`] whose wait would close a cycle gets an error
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
    const_fn! {
        /// A free lock in the global domain.
        pub const fn new(value: T) -> Mutex<T> {
            Mutex { raw: Raw::new(Kind::Mutex, None), value: UnsafeCell::new(value) }
        }
    }

    const_fn! {
        /// The same with a name, by which errors and snapshots call it.
        pub const fn named(name: &'static str, value: T) -> Mutex<T> {
            Mutex { raw: Raw::new(Kind::Mutex, Some(name)), value: UnsafeCell::new(value) }
        }
    }

    setup!(Mutex, raw, raw);

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
    /// `Timeout` when its time is over first; `Deadlock`, naming the cycle, when waiting would never end; `Poisoned` where a holder panicked.
    ///
    /// # Cancel safety
    /// Dropping the future in whatever state leaves nothing behind: a lock that it was just granted goes on to the next waiter. A place in the
    /// queue is lost.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> Acquire<'_, Mutex<T>> {
        Acquire::new(self, Location::caller())
    }

    /// Runs the closure on the value, and the lock is held that long. If the lock is [`poisoning`](Mutex::poisoning), work that is dropped
    /// unfinished poisons it, as a panic does.
    ///
    /// # Errors
    /// As [`lock`](Mutex::lock).
    ///
    /// # Cancel safety
    /// While it waits, as [`lock`](Mutex::lock); from then on as the closure's future.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// let list = heirlock::local::Mutex::new(vec![1]);
    /// let length = list.with(async |list| { list.push(2); list.len() }).await?;
    /// assert_eq!(length, 2);
    /// # Ok::<(), heirlock::Error>(()) }).unwrap();
    /// ```
    #[track_caller]
    pub fn with<R>(&self, work: impl AsyncFnOnce(&mut T) -> R) -> impl Future<Output = Result<R>> {
        let acquire = self.lock();
        async move {
            let mut guard = acquire.await?;
            let unfinished = Unfinished::of(&self.raw);
            let result = work(&mut guard).await;
            unfinished.finished();
            Ok(result)
        }
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
    #[track_caller]
    pub fn lock_owned(self: &Arc<Self>) -> AcquireOwned<Mutex<T>> {
        AcquireOwned::new(Arc::clone(self), Location::caller())
    }

    /// Acquires the lock if nobody holds it or waits for it.
    ///
    /// # Errors
    /// `WouldBlock` otherwise; `Poisoned` where a holder panicked.
    ///
    /// ```
    /// let lock = heirlock::local::Mutex::new(3);
    /// let guard = lock.try_lock().unwrap();
    /// assert!(lock.try_lock().unwrap_err().is_would_block());
    /// # drop(guard);
    /// ```
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> Result<MutexGuard<'_, T>> {
        attempt(&self.raw, Want::ONE, Location::caller()).map(|held| self.guard(held))
    }

    /// As [`try_lock`](Mutex::try_lock), with a guard that keeps the lock alive and may go anywhere.
    ///
    /// # Errors
    /// As [`try_lock`](Mutex::try_lock).
    ///
    /// ```
    /// let lock = std::sync::Arc::new(heirlock::local::Mutex::new(3));
    /// let guard = lock.try_lock_owned().unwrap();
    /// assert!(lock.try_lock_owned().unwrap_err().is_would_block());
    /// assert_eq!(std::thread::spawn(move || *guard).join().unwrap(), 3);
    /// ```
    #[track_caller]
    pub fn try_lock_owned(self: &Arc<Self>) -> Result<OwnedMutexGuard<T>> {
        attempt(&self.raw, Want::ONE, Location::caller()).map(|held| Arc::clone(self).owned_guard(held))
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
    #[track_caller]
    pub fn lock_blocking(&self) -> Result<MutexGuard<'_, T>> {
        self.lock().blocking()
    }

    questions!(Mutex, raw);

    /// Where the value is. To be dereferenced by the holder only.
    #[inline]
    pub(super) fn value(&self) -> NonNull<T> {
        // SAFETY: the pointer of a cell is never null.
        unsafe { NonNull::new_unchecked(self.value.get()) }
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

    type Word = Raw;

    #[inline]
    fn word(&self) -> &Raw {
        &self.raw
    }

    #[inline]
    fn guard(&self, held: Held) -> MutexGuard<'_, T> {
        MutexGuard { raw: &self.raw, value: self.value(), held, marker: PhantomData }
    }

    type OwnedGuard = OwnedMutexGuard<T>;

    fn owned_guard(self: Arc<Self>, held: Held) -> OwnedMutexGuard<T> {
        OwnedMutexGuard::new(self, held)
    }
}

/// The right to the value of a [`Mutex`], or to a part of it, until it is dropped. The hold stays its acquirer's wherever the guard goes, unless it
/// is [transferred](MutexGuard::transfer_to).
///
/// It crosses threads, and is shared by them, only where a `&mut T` is:
///
/// ```compile_fail,E0277
/// fn shared<T: Sync>(_: T) {}
/// let lock = heirlock::local::Mutex::new(std::cell::Cell::new(1));
/// shared(lock.try_lock().unwrap());
/// ```
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct MutexGuard<'a, T: ?Sized, P = Whole> {
    pub(super) raw: &'a Raw,
    /// The value, or the part of it that the guard gives. Not a reference: that would claim the value until the guard has been dropped whole, when
    /// the next holder may be using it.
    value: NonNull<T>,
    pub(super) held: Held,
    marker: PhantomData<(&'a mut T, P)>,
}

/// The right to a part of the value of a [`Mutex`]: what [`MutexGuard::map`] gives.
pub type MappedMutexGuard<'a, T> = MutexGuard<'a, T, Part>;

// SAFETY: a guard is a `&mut T` and a `&Raw`, which is `Sync`.
unsafe impl<T: ?Sized + Send, P> Send for MutexGuard<'_, T, P> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync, P> Sync for MutexGuard<'_, T, P> {}

impl<'a, T: ?Sized, P> MutexGuard<'a, T, P> {
    /// The guard of a part of the value.
    ///
    /// ```
    /// use heirlock::local::{Mutex, MutexGuard};
    /// let pair = Mutex::new((1, "one"));
    /// let mut first = MutexGuard::map(pair.try_lock().unwrap(), |pair| &mut pair.0);
    /// *first += 1;
    /// assert!(pair.is_locked());
    /// drop(first);
    /// assert_eq!(pair.into_inner(), (2, "one"));
    /// ```
    pub fn map<U: ?Sized>(mut guard: Self, part: impl FnOnce(&mut T) -> &mut U) -> MappedMutexGuard<'a, U> {
        let value = NonNull::from(part(&mut guard));
        guard.of(value)
    }

    /// The guard of a part of the value that may not be there.
    ///
    /// # Errors
    /// The guard itself, if it is not.
    pub fn filter_map<U: ?Sized>(mut guard: Self, part: impl FnOnce(&mut T) -> Option<&mut U>) -> Result<MappedMutexGuard<'a, U>, Self> {
        match part(&mut guard).map(NonNull::from) {
            Some(value) => Ok(guard.of(value)),
            None => Err(guard),
        }
    }

    fn of<U: ?Sized>(self, value: NonNull<U>) -> MappedMutexGuard<'a, U> {
        let MutexGuard { raw, held, .. } = self;
        std::mem::forget(self);
        MutexGuard { raw, value, held, marker: PhantomData }
    }

    /// Makes the hold another worker's: from now on that one inherits from who waits, and is named by errors and snapshots.
    ///
    /// ```
    /// use heirlock::{Worker, local::Mutex};
    /// # pollster::block_on(async {
    /// let (first, second, lock) = (Worker::new("first"), Worker::new("second"), Mutex::new(()));
    /// let guard = first.run(lock.lock()).await?;
    /// assert!(first.run(lock.lock()).await.unwrap_err().is_deadlock());
    /// guard.transfer_to(&second);
    /// assert!(second.run(lock.lock()).await.unwrap_err().is_deadlock());
    /// # Ok::<(), heirlock::Error>(()) }).unwrap();
    /// ```
    pub fn transfer_to(&self, worker: &Worker) {
        self.raw.transfer(worker);
    }
}

impl<T: ?Sized, P> Deref for MutexGuard<'_, T, P> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: a guard exists for the lock's one holder only, and while it is borrowed shared, no `&mut` of the value can come from it.
        unsafe { self.value.as_ref() }
    }
}

impl<T: ?Sized, P> DerefMut for MutexGuard<'_, T, P> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: a guard exists for the lock's one holder only, and it is borrowed exclusively.
        unsafe { self.value.as_mut() }
    }
}

impl<T: ?Sized, P> Drop for MutexGuard<'_, T, P> {
    #[inline]
    fn drop(&mut self) {
        self.raw.release(1, self.held);
    }
}

impl<T: ?Sized + fmt::Debug, P> fmt::Debug for MutexGuard<'_, T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display, P> fmt::Display for MutexGuard<'_, T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
