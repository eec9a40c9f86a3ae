//! What readers and the writer have.

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use super::upgradable::RwLockUpgradableGuard;
use crate::Worker;
use crate::local::guard::{Part, Whole};
use crate::local::raw::Shared;
use crate::local::wait::Held;

/// One level of a reader's hold: what [`Shared`] calls it.
pub(super) struct Reader(AtomicU64);

impl Reader {
    #[inline]
    pub(super) fn new(held: Held) -> Reader {
        // A reader always has a place or is a worker of the graph; neither is 0.
        Reader::numbered(held.word().unwrap_or(0))
    }

    #[inline]
    pub(super) fn numbered(number: u64) -> Reader {
        Reader(AtomicU64::new(number))
    }

    /// The same level, for another guard; this one's must not be dropped.
    pub(super) fn take(&mut self) -> Reader {
        Reader::numbered(*self.0.get_mut())
    }

    #[inline]
    pub(super) fn release(&mut self, lock: &Shared) {
        lock.release_read(*self.0.get_mut());
    }

    /// Guards are shared by threads, so two may transfer one; each changes the number under the mutex of the domain, by which the other sees it.
    pub(super) fn transfer(&self, lock: &Shared, to: &Worker) {
        lock.transfer_read(&self.0, to);
    }
}

/// The right to read the value of a [`RwLock`](super::RwLock), or a part of it, until it is dropped. The hold stays its acquirer's wherever the guard
/// goes, unless it is [transferred](RwLockReadGuard::transfer_to).
///
/// It crosses threads only where a `&T` may:
///
/// ```compile_fail,E0277
/// fn sent<T: Send>(_: T) {}
/// let lock = heirlock::local::RwLock::new(std::cell::Cell::new(1));
/// sent(lock.try_read().unwrap());
/// ```
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct RwLockReadGuard<'a, T: ?Sized, P = Whole> {
    lock: &'a Shared,
    /// The value, or the part of it that the guard gives. Not a reference: that would claim the value until the guard has been dropped whole, when
    /// a writer may be using it.
    value: NonNull<T>,
    reader: Reader,
    marker: PhantomData<(&'a T, P)>,
}

/// The right to read a part of the value of a [`RwLock`](super::RwLock): what [`RwLockReadGuard::map`] gives.
pub type MappedRwLockReadGuard<'a, T> = RwLockReadGuard<'a, T, Part>;

// SAFETY: a guard is a `&T` and a `&Shared`, which is `Sync`.
unsafe impl<T: ?Sized + Sync, P> Send for RwLockReadGuard<'_, T, P> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync, P> Sync for RwLockReadGuard<'_, T, P> {}

impl<'a, T: ?Sized> RwLockReadGuard<'a, T> {
    #[inline]
    pub(super) fn new(lock: &'a Shared, value: NonNull<T>, held: Held) -> RwLockReadGuard<'a, T> {
        RwLockReadGuard { lock, value, reader: Reader::new(held), marker: PhantomData }
    }

    pub(super) fn with(lock: &'a Shared, value: NonNull<T>, number: u64) -> RwLockReadGuard<'a, T> {
        RwLockReadGuard { lock, value, reader: Reader::numbered(number), marker: PhantomData }
    }
}

impl<'a, T: ?Sized, P> RwLockReadGuard<'a, T, P> {
    /// The guard of a part of the value.
    ///
    /// ```
    /// use heirlock::local::{RwLock, RwLockReadGuard};
    /// let pair = RwLock::new((1, "one"));
    /// let name = RwLockReadGuard::map(pair.try_read().unwrap(), |pair| &pair.1);
    /// assert_eq!((*name, pair.is_locked()), ("one", true));
    /// ```
    pub fn map<U: ?Sized>(guard: Self, part: impl FnOnce(&T) -> &U) -> MappedRwLockReadGuard<'a, U> {
        let value = NonNull::from(part(&guard));
        guard.of(value)
    }

    /// The guard of a part of the value that may not be there.
    ///
    /// # Errors
    /// The guard itself, if it is not.
    pub fn filter_map<U: ?Sized>(guard: Self, part: impl FnOnce(&T) -> Option<&U>) -> Result<MappedRwLockReadGuard<'a, U>, Self> {
        match part(&guard).map(NonNull::from) {
            Some(value) => Ok(guard.of(value)),
            None => Err(guard),
        }
    }

    fn of<U: ?Sized>(self, value: NonNull<U>) -> MappedRwLockReadGuard<'a, U> {
        let mut guard = ManuallyDrop::new(self);
        let reader = guard.reader.take();
        RwLockReadGuard { lock: guard.lock, value, reader, marker: PhantomData }
    }

    /// Makes the hold another worker's: from now on that one inherits from who waits, and is named by errors and snapshots.
    ///
    /// ```
    /// use heirlock::{Worker, local::RwLock};
    /// # pollster::block_on(async {
    /// let (first, second, lock) = (Worker::new("first"), Worker::new("second"), RwLock::new(()));
    /// let guard = first.run(lock.read()).await?;
    /// guard.transfer_to(&second);
    /// assert!(second.run(lock.write()).await.unwrap_err().is_deadlock());
    /// # Ok::<(), heirlock::Error>(()) }).unwrap();
    /// ```
    pub fn transfer_to(&self, worker: &Worker) {
        self.reader.transfer(self.lock, worker);
    }
}

impl<T: ?Sized, P> Deref for RwLockReadGuard<'_, T, P> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: while a reader's guard lives there is no writer, and no reader's guard gives out a `&mut` of the value.
        unsafe { self.value.as_ref() }
    }
}

impl<T: ?Sized, P> Drop for RwLockReadGuard<'_, T, P> {
    #[inline]
    fn drop(&mut self) {
        self.reader.release(self.lock);
    }
}

/// The right to the value of a [`RwLock`](super::RwLock), or to a part of it, until it is dropped. The hold stays its acquirer's wherever the guard
/// goes, unless it is [transferred](RwLockWriteGuard::transfer_to).
///
/// It crosses threads only where a `&T` may, too, as it can become a reader's there:
///
/// ```compile_fail,E0277
/// fn sent<T: Send>(_: T) {}
/// let lock = heirlock::local::RwLock::new(std::cell::Cell::new(1));
/// sent(lock.try_write().unwrap());
/// ```
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct RwLockWriteGuard<'a, T: ?Sized, P = Whole> {
    lock: &'a Shared,
    /// As of [`RwLockReadGuard`].
    value: NonNull<T>,
    held: Held,
    marker: PhantomData<(&'a mut T, P)>,
}

/// The right to a part of the value of a [`RwLock`](super::RwLock): what [`RwLockWriteGuard::map`] gives.
pub type MappedRwLockWriteGuard<'a, T> = RwLockWriteGuard<'a, T, Part>;

// SAFETY: a guard is a `&mut T` and a `&Shared`, which is `Sync`; and where it went it may be downgraded, beside `&T` of readers elsewhere.
unsafe impl<T: ?Sized + Send + Sync, P> Send for RwLockWriteGuard<'_, T, P> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync, P> Sync for RwLockWriteGuard<'_, T, P> {}

impl<'a, T: ?Sized> RwLockWriteGuard<'a, T> {
    #[inline]
    pub(super) fn new(lock: &'a Shared, value: NonNull<T>, held: Held) -> RwLockWriteGuard<'a, T> {
        RwLockWriteGuard { lock, value, held, marker: PhantomData }
    }

    /// Reads only, from now on, and other readers come in; nobody writes in between.
    ///
    /// ```
    /// use heirlock::local::{RwLock, RwLockWriteGuard};
    /// let lock = RwLock::new(1);
    /// let mut guard = lock.try_write().unwrap();
    /// *guard = 2;
    /// let guard = RwLockWriteGuard::downgrade(guard);
    /// assert_eq!((*guard, *lock.try_read().unwrap()), (2, 2));
    /// ```
    #[track_caller]
    pub fn downgrade(guard: Self) -> RwLockReadGuard<'a, T> {
        let guard = ManuallyDrop::new(guard);
        let number = guard.lock.downgrade_to_read(guard.held, Location::caller());
        RwLockReadGuard::with(guard.lock, guard.value, number)
    }

    /// Reads from now on beside others, and may write again.
    ///
    /// ```
    /// use heirlock::local::{RwLock, RwLockWriteGuard};
    /// let lock = RwLock::new(1);
    /// let mut guard = RwLockWriteGuard::downgrade_to_upgradable(lock.try_write().unwrap());
    /// assert_eq!((*guard, *lock.try_read().unwrap()), (1, 1));
    /// *guard.try_upgrade().unwrap() = 2;
    /// assert_eq!(lock.try_write().unwrap_err().to_string(), "the lock is held");
    /// ```
    #[track_caller]
    pub fn downgrade_to_upgradable(guard: Self) -> RwLockUpgradableGuard<'a, T> {
        let guard = ManuallyDrop::new(guard);
        let holder = guard.lock.downgrade_to_upgradable(Location::caller());
        RwLockUpgradableGuard::with(guard.lock, guard.value, holder)
    }
}

impl<'a, T: ?Sized, P> RwLockWriteGuard<'a, T, P> {
    /// The guard of a part of the value.
    ///
    /// ```
    /// use heirlock::local::{RwLock, RwLockWriteGuard};
    /// let pair = RwLock::new((1, "one"));
    /// let mut first = RwLockWriteGuard::map(pair.try_write().unwrap(), |pair| &mut pair.0);
    /// *first += 1;
    /// drop(first);
    /// assert_eq!(pair.into_inner(), (2, "one"));
    /// ```
    pub fn map<U: ?Sized>(mut guard: Self, part: impl FnOnce(&mut T) -> &mut U) -> MappedRwLockWriteGuard<'a, U> {
        let value = NonNull::from(part(&mut guard));
        guard.of(value)
    }

    /// The guard of a part of the value that may not be there.
    ///
    /// # Errors
    /// The guard itself, if it is not.
    pub fn filter_map<U: ?Sized>(
        mut guard: Self,
        part: impl FnOnce(&mut T) -> Option<&mut U>,
    ) -> Result<MappedRwLockWriteGuard<'a, U>, Self> {
        match part(&mut guard).map(NonNull::from) {
            Some(value) => Ok(guard.of(value)),
            None => Err(guard),
        }
    }

    fn of<U: ?Sized>(self, value: NonNull<U>) -> MappedRwLockWriteGuard<'a, U> {
        let guard = ManuallyDrop::new(self);
        RwLockWriteGuard { lock: guard.lock, value, held: guard.held, marker: PhantomData }
    }

    /// As [`RwLockReadGuard::transfer_to`].
    ///
    /// ```
    /// use heirlock::{Worker, local::RwLock};
    /// # pollster::block_on(async {
    /// let (first, second, lock) = (Worker::new("first"), Worker::new("second"), RwLock::new(()));
    /// let guard = first.run(lock.write()).await?;
    /// guard.transfer_to(&second);
    /// assert!(second.run(lock.read()).await.unwrap_err().is_deadlock());
    /// # Ok::<(), heirlock::Error>(()) }).unwrap();
    /// ```
    pub fn transfer_to(&self, worker: &Worker) {
        self.lock.raw.transfer(worker);
    }
}

impl<T: ?Sized, P> Deref for RwLockWriteGuard<'_, T, P> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: a writer's guard exists for the lock's one holder only, and while it is borrowed shared, no `&mut` of the value can come from it.
        unsafe { self.value.as_ref() }
    }
}

impl<T: ?Sized, P> DerefMut for RwLockWriteGuard<'_, T, P> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: a writer's guard exists for the lock's one holder only, and it is borrowed exclusively.
        unsafe { self.value.as_mut() }
    }
}

impl<T: ?Sized, P> Drop for RwLockWriteGuard<'_, T, P> {
    #[inline]
    fn drop(&mut self) {
        self.lock.release_write(self.held);
    }
}

macro_rules! shown {
    ($($guard:ident),*) => {
        $(impl<T: ?Sized + fmt::Debug, P> fmt::Debug for $guard<'_, T, P> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                (**self).fmt(f)
            }
        }

        impl<T: ?Sized + fmt::Display, P> fmt::Display for $guard<'_, T, P> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                (**self).fmt(f)
            }
        })*
    };
}
shown!(RwLockReadGuard, RwLockWriteGuard);
