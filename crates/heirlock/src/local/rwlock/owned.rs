//! Guards that keep their lock alive.

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::RwLock;
use super::guards::Reader;
use super::upgradable::OwnedRwLockUpgradableGuard;
use crate::Worker;
use crate::local::guard::{Part, Whole};
use crate::local::wait::Held;

/// The right to read the value of a [`RwLock`] in an [`Arc`], or a part of it, until it is dropped. The hold stays its acquirer's wherever the guard
/// goes, unless it is [transferred](OwnedRwLockReadGuard::transfer_to).
///
/// It crosses threads only where the whole value and a reference to the part may, for the last guard may drop the value:
///
/// ```compile_fail,E0277
/// fn sent<T: Send>(_: T) {}
/// let lock = std::sync::Arc::new(heirlock::local::RwLock::new((1, std::cell::Cell::new(1))));
/// sent(heirlock::local::OwnedRwLockReadGuard::map(lock.try_read_owned().unwrap(), |pair| &pair.0));
/// ```
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct OwnedRwLockReadGuard<T: ?Sized, U: ?Sized = T, P = Whole> {
    lock: Arc<RwLock<T>>,
    /// The value in the lock, or the part of it that the guard gives. Not a reference, as of the guards that borrow.
    value: NonNull<U>,
    reader: Reader,
    marker: PhantomData<P>,
}

/// The right to read a part of the value of a [`RwLock`] in an [`Arc`]: what [`OwnedRwLockReadGuard::map`] gives.
pub type OwnedMappedRwLockReadGuard<T, U> = OwnedRwLockReadGuard<T, U, Part>;

// SAFETY: a guard is an `Arc<RwLock<T>>`, which needs both of `T`, and a `&U`.
unsafe impl<T: ?Sized + Send + Sync, U: ?Sized + Sync, P> Send for OwnedRwLockReadGuard<T, U, P> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send + Sync, U: ?Sized + Sync, P> Sync for OwnedRwLockReadGuard<T, U, P> {}

impl<T: ?Sized> OwnedRwLockReadGuard<T> {
    pub(super) fn new(lock: Arc<RwLock<T>>, held: Held) -> OwnedRwLockReadGuard<T> {
        OwnedRwLockReadGuard { value: lock.value(), lock, reader: Reader::new(held), marker: PhantomData }
    }

    pub(super) fn with(lock: Arc<RwLock<T>>, number: u64) -> OwnedRwLockReadGuard<T> {
        OwnedRwLockReadGuard { value: lock.value(), lock, reader: Reader::numbered(number), marker: PhantomData }
    }
}

impl<T: ?Sized, U: ?Sized, P> OwnedRwLockReadGuard<T, U, P> {
    /// The guard of a part of the value.
    ///
    /// ```
    /// use heirlock::local::{OwnedMappedRwLockReadGuard, OwnedRwLockReadGuard, RwLock};
    /// use std::sync::Arc;
    /// let pair = Arc::new(RwLock::new((1, "one")));
    /// let name: OwnedMappedRwLockReadGuard<_, str> = OwnedRwLockReadGuard::map(pair.try_read_owned().unwrap(), |pair| pair.1);
    /// assert_eq!((&*name, pair.is_locked()), ("one", true));
    /// ```
    pub fn map<V: ?Sized>(guard: Self, part: impl FnOnce(&U) -> &V) -> OwnedMappedRwLockReadGuard<T, V> {
        let value = NonNull::from(part(&guard));
        guard.of(value)
    }

    /// The guard of a part of the value that may not be there.
    ///
    /// # Errors
    /// The guard itself, if it is not.
    pub fn filter_map<V: ?Sized>(guard: Self, part: impl FnOnce(&U) -> Option<&V>) -> Result<OwnedMappedRwLockReadGuard<T, V>, Self> {
        match part(&guard).map(NonNull::from) {
            Some(value) => Ok(guard.of(value)),
            None => Err(guard),
        }
    }

    fn of<V: ?Sized>(self, value: NonNull<V>) -> OwnedMappedRwLockReadGuard<T, V> {
        let mut guard = ManuallyDrop::new(self);
        let reader = guard.reader.take();
        // SAFETY: the guard is not dropped, nor used again, so the `Arc` is moved out of it once.
        let lock = unsafe { ptr::read(&raw const guard.lock) };
        OwnedRwLockReadGuard { lock, value, reader, marker: PhantomData }
    }

    /// As [`RwLockReadGuard::transfer_to`](super::RwLockReadGuard::transfer_to).
    pub fn transfer_to(&self, worker: &Worker) {
        self.reader.transfer(&self.lock.word, worker);
    }
}

impl<T: ?Sized, U: ?Sized, P> Deref for OwnedRwLockReadGuard<T, U, P> {
    type Target = U;

    fn deref(&self) -> &U {
        // SAFETY: while a reader's guard lives there is no writer, and no reader's guard gives out a `&mut` of the value; which its `Arc` keeps alive,
        // and where it is.
        unsafe { self.value.as_ref() }
    }
}

impl<T: ?Sized, U: ?Sized, P> Drop for OwnedRwLockReadGuard<T, U, P> {
    fn drop(&mut self) {
        self.reader.release(&self.lock.word);
    }
}

/// The right to the value of a [`RwLock`] in an [`Arc`], or to a part of it, until it is dropped. The hold stays its acquirer's wherever the guard
/// goes, unless it is [transferred](OwnedRwLockWriteGuard::transfer_to).
///
/// It is shared by threads only where a `T` is:
///
/// ```compile_fail,E0277
/// fn shared<T: Sync>(_: T) {}
/// let lock = std::sync::Arc::new(heirlock::local::RwLock::new(std::cell::Cell::new(1)));
/// shared(pollster::block_on(lock.write_owned()).unwrap());
/// ```
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct OwnedRwLockWriteGuard<T: ?Sized, U: ?Sized = T, P = Whole> {
    lock: Arc<RwLock<T>>,
    /// As of [`OwnedRwLockReadGuard`].
    value: NonNull<U>,
    held: Held,
    /// Invariant, as a `&mut U`: what is written must be all of what a reader of the whole takes it for.
    marker: PhantomData<(*mut U, P)>,
}

/// The right to a part of the value of a [`RwLock`] in an [`Arc`]: what [`OwnedRwLockWriteGuard::map`] gives.
pub type OwnedMappedRwLockWriteGuard<T, U> = OwnedRwLockWriteGuard<T, U, Part>;

// SAFETY: a guard is an `Arc<RwLock<T>>`, which needs both of `T`, and a `&mut U`.
unsafe impl<T: ?Sized + Send + Sync, U: ?Sized + Send, P> Send for OwnedRwLockWriteGuard<T, U, P> {}
// SAFETY: shared it is an `Arc<RwLock<T>>` and a `&U`.
unsafe impl<T: ?Sized + Send + Sync, U: ?Sized + Sync, P> Sync for OwnedRwLockWriteGuard<T, U, P> {}

impl<T: ?Sized> OwnedRwLockWriteGuard<T> {
    pub(super) fn new(lock: Arc<RwLock<T>>, held: Held) -> OwnedRwLockWriteGuard<T> {
        OwnedRwLockWriteGuard { value: lock.value(), lock, held, marker: PhantomData }
    }

    /// Reads only, from now on, and other readers come in; nobody writes in between. Not of a part, of which a writer may have made more than a
    /// reader of the whole may see.
    ///
    /// ```
    /// use heirlock::local::{OwnedRwLockWriteGuard, RwLock};
    /// use std::sync::Arc;
    /// let lock = Arc::new(RwLock::new(1));
    /// let mut guard = lock.try_write_owned().unwrap();
    /// *guard = 2;
    /// let guard = OwnedRwLockWriteGuard::downgrade(guard);
    /// assert_eq!((*guard, *lock.try_read().unwrap()), (2, 2));
    /// ```
    #[track_caller]
    pub fn downgrade(guard: Self) -> OwnedRwLockReadGuard<T> {
        let (lock, held) = guard.into_parts();
        let number = lock.word.downgrade_to_read(held, Location::caller());
        OwnedRwLockReadGuard::with(lock, number)
    }

    /// As [`RwLockWriteGuard::downgrade_to_upgradable`](super::RwLockWriteGuard::downgrade_to_upgradable).
    #[track_caller]
    pub fn downgrade_to_upgradable(guard: Self) -> OwnedRwLockUpgradableGuard<T> {
        let (lock, _) = guard.into_parts();
        let holder = lock.word.downgrade_to_upgradable(Location::caller());
        OwnedRwLockUpgradableGuard::with(lock, holder)
    }
}

impl<T: ?Sized, U: ?Sized, P> OwnedRwLockWriteGuard<T, U, P> {
    /// The guard of a part of the value.
    ///
    /// ```
    /// use heirlock::local::{OwnedRwLockWriteGuard, RwLock};
    /// use std::sync::Arc;
    /// let list = Arc::new(RwLock::new(vec![1, 2, 3]));
    /// let mut rest = OwnedRwLockWriteGuard::map(list.try_write_owned().unwrap(), |list| &mut list[1..]);
    /// rest.reverse();
    /// drop(rest);
    /// assert_eq!(*list.try_read().unwrap(), [1, 3, 2]);
    /// ```
    pub fn map<V: ?Sized>(mut guard: Self, part: impl FnOnce(&mut U) -> &mut V) -> OwnedMappedRwLockWriteGuard<T, V> {
        let value = NonNull::from(part(&mut guard));
        guard.of(value)
    }

    /// The guard of a part of the value that may not be there.
    ///
    /// # Errors
    /// The guard itself, if it is not.
    pub fn filter_map<V: ?Sized>(
        mut guard: Self,
        part: impl FnOnce(&mut U) -> Option<&mut V>,
    ) -> Result<OwnedMappedRwLockWriteGuard<T, V>, Self> {
        match part(&mut guard).map(NonNull::from) {
            Some(value) => Ok(guard.of(value)),
            None => Err(guard),
        }
    }

    fn of<V: ?Sized>(self, value: NonNull<V>) -> OwnedMappedRwLockWriteGuard<T, V> {
        let (lock, held) = self.into_parts();
        OwnedRwLockWriteGuard { lock, value, held, marker: PhantomData }
    }

    /// The hold goes on without this guard.
    fn into_parts(self) -> (Arc<RwLock<T>>, Held) {
        let guard = ManuallyDrop::new(self);
        // SAFETY: the guard is not dropped, nor used again, so the `Arc` is moved out of it once.
        (unsafe { ptr::read(&raw const guard.lock) }, guard.held)
    }

    /// As [`RwLockReadGuard::transfer_to`](super::RwLockReadGuard::transfer_to).
    pub fn transfer_to(&self, worker: &Worker) {
        self.lock.word.raw.transfer(worker);
    }
}

impl<T: ?Sized, U: ?Sized, P> Deref for OwnedRwLockWriteGuard<T, U, P> {
    type Target = U;

    fn deref(&self) -> &U {
        // SAFETY: a writer's guard exists for the lock's one holder only, and while it is borrowed shared, no `&mut` of the value can come from it. Its
        // `Arc` keeps the value alive, and where it is.
        unsafe { self.value.as_ref() }
    }
}

impl<T: ?Sized, U: ?Sized, P> DerefMut for OwnedRwLockWriteGuard<T, U, P> {
    fn deref_mut(&mut self) -> &mut U {
        // SAFETY: a writer's guard exists for the lock's one holder only, and it is borrowed exclusively. As for the rest, as above.
        unsafe { self.value.as_mut() }
    }
}

impl<T: ?Sized, U: ?Sized, P> Drop for OwnedRwLockWriteGuard<T, U, P> {
    fn drop(&mut self) {
        self.lock.word.release_write(self.held);
    }
}

impl<T: ?Sized, U: ?Sized + fmt::Debug, P> fmt::Debug for OwnedRwLockReadGuard<T, U, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized, U: ?Sized + fmt::Debug, P> fmt::Debug for OwnedRwLockWriteGuard<T, U, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized, U: ?Sized + fmt::Display, P> fmt::Display for OwnedRwLockReadGuard<T, U, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized, U: ?Sized + fmt::Display, P> fmt::Display for OwnedRwLockWriteGuard<T, U, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
