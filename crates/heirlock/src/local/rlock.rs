//! `RLock`: one holder at a time, who may enter again.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use super::acquire::{Acquire, Sealed};
use super::domain::Domain;
use super::graph::Kind;
use super::raw::Raw;
use super::wait::{Held, attempt};
use crate::Result;

/// A [`Mutex`](super::Mutex) whose holder may acquire it again: it is free when all its guards have gone.
///
/// Who holds it is a [`Worker`](crate::Worker), or for blocking calls outside a runtime the thread. A bare task gets `NeedsWorker` when it would enter again, for its
/// arms of `join!` or `select!` cannot be told apart and would all be inside. As one worker may have several guards, they give `&T` only.
///
/// ```
/// use heirlock::Worker;
/// use heirlock::local::RLock;
/// use std::cell::Cell;
/// # pollster::block_on(async {
/// static TREE: RLock<u8> = RLock::named("tree", 7);
/// let outer = Worker::new("walk").run(async {
///     let outer = TREE.lock().await?;
///     let inner = TREE.lock().await?;
///     assert_eq!((*outer, *inner), (7, 7));
///     drop(outer);
///     assert!(TREE.is_locked());
///     Ok::<_, heirlock::Error>(())
/// }).await?;
/// assert!(!TREE.is_locked());
/// # Ok::<(), heirlock::Error>(()) }).unwrap();
/// ```
pub struct RLock<T: ?Sized> {
    raw: Raw,
    value: UnsafeCell<T>,
}

// SAFETY: the lock owns its value, so it may go wherever the value may.
unsafe impl<T: ?Sized + Send> Send for RLock<T> {}
// SAFETY: through a shared lock `&T` is handed out, perhaps to several guards of one owner on several threads, so the value must be `Sync`; and it
// passes from thread to thread as the lock does, with interior mutability also what is in it, so it must be `Send`.
unsafe impl<T: ?Sized + Send + Sync> Sync for RLock<T> {}

impl<T> RLock<T> {
    /// A free lock in the global domain.
    pub const fn new(value: T) -> RLock<T> {
        RLock { raw: Raw::new(Kind::RLock, None), value: UnsafeCell::new(value) }
    }

    /// The same with a name, by which errors and snapshots call it.
    pub const fn named(name: &'static str, value: T) -> RLock<T> {
        RLock { raw: Raw::new(Kind::RLock, Some(name)), value: UnsafeCell::new(value) }
    }

    /// The lock in another domain.
    #[must_use]
    pub fn in_domain(mut self, domain: &Domain) -> RLock<T> {
        self.raw.set_domain(domain);
        self
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> RLock<T> {
    /// Acquires the lock, or enters again, whatever the deadline: a future that also has a priority, a deadline and a timeout. It does nothing
    /// before it is first polled; whose acquire it is, is settled then.
    ///
    /// # Errors
    /// `Timeout` when its time is over first; `Deadlock`, naming the cycle, when waiting would never end; `NeedsWorker` when a bare task would enter
    /// again; `Overflow` when it is held 2^32 - 1 levels deep.
    ///
    /// # Cancel safety
    /// Dropping the future in whatever state leaves nothing behind: a lock that it was just granted goes on to the next waiter. A place in the
    /// queue is lost.
    pub fn lock(&self) -> Acquire<'_, RLock<T>> {
        Acquire::new(self)
    }

    /// Acquires the lock if nobody holds it or waits for it, or enters again.
    ///
    /// # Errors
    /// `WouldBlock` if another has it or waits for it; `NeedsWorker` and `Overflow` as [`lock`](RLock::lock).
    pub fn try_lock(&self) -> Result<RLockGuard<'_, T>> {
        attempt(&self.raw).map(|held| self.guard(held))
    }

    /// Acquires the lock on this thread, or enters again, for code that is not async: [`lock`](RLock::lock) with [`Acquire::blocking`].
    ///
    /// # Errors
    /// As [`Acquire::blocking`].
    ///
    /// ```
    /// let lock = heirlock::local::RLock::new(3);
    /// let (first, second) = (lock.lock_blocking().unwrap(), lock.lock_blocking().unwrap());
    /// assert_eq!(*first + *second, 6);
    /// ```
    pub fn lock_blocking(&self) -> Result<RLockGuard<'_, T>> {
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
}

impl<T: ?Sized> Sealed for RLock<T> {
    type Guard<'a>
        = RLockGuard<'a, T>
    where
        T: 'a;

    fn raw(&self) -> &Raw {
        &self.raw
    }

    fn guard(&self, _: Held) -> RLockGuard<'_, T> {
        RLockGuard { lock: self, value: PhantomData }
    }
}

impl<T: ?Sized> fmt::Debug for RLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RLock").field("name", &self.raw.name()).field("locked", &self.is_locked()).finish_non_exhaustive()
    }
}

/// One level of a hold of an [`RLock`], until it is dropped.
///
/// It crosses threads, and is shared by them, only where a `&T` may be, and the lock with it:
///
/// ```compile_fail,E0277
/// fn sent<T: Send>(_: T) {}
/// let lock = heirlock::local::RLock::new(std::cell::Cell::new(1));
/// sent(lock.try_lock().unwrap());
/// ```
#[must_use = "the level is given up as soon as its guard is dropped"]
pub struct RLockGuard<'a, T: ?Sized> {
    lock: &'a RLock<T>,
    value: PhantomData<&'a T>,
}

impl<T: ?Sized> Deref for RLockGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: while a guard lives its owner holds the lock, and neither a guard of it nor anything else gives out a `&mut` of the value.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for RLockGuard<'_, T> {
    fn drop(&mut self) {
        self.lock.raw.release();
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RLockGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
