//! Guards that keep their lock alive.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::RwLock;
use super::guards::Reader;
use crate::Worker;
use crate::local::wait::Held;

/// The right to read the value of a [`RwLock`] in an [`Arc`], until it is dropped.
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct OwnedRwLockReadGuard<T: ?Sized> {
    lock: Arc<RwLock<T>>,
    reader: Reader,
}

impl<T: ?Sized> OwnedRwLockReadGuard<T> {
    pub(super) fn new(lock: Arc<RwLock<T>>, held: Held) -> OwnedRwLockReadGuard<T> {
        OwnedRwLockReadGuard { lock, reader: Reader::new(held) }
    }

    pub(super) fn with(lock: Arc<RwLock<T>>, number: u64) -> OwnedRwLockReadGuard<T> {
        OwnedRwLockReadGuard { lock, reader: Reader::numbered(number) }
    }

    /// As [`RwLockReadGuard::transfer_to`](super::RwLockReadGuard::transfer_to).
    pub fn transfer_to(&self, worker: &Worker) {
        self.reader.transfer(&self.lock.word, worker);
    }
}

impl<T: ?Sized> Deref for OwnedRwLockReadGuard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: while a reader's guard lives there is no writer, and no reader's guard gives out a `&mut` of the value.
        unsafe { self.lock.value().as_ref() }
    }
}

impl<T: ?Sized> Drop for OwnedRwLockReadGuard<T> {
    fn drop(&mut self) {
        self.reader.release(&self.lock.word);
    }
}

/// The right to the value of a [`RwLock`] in an [`Arc`], until it is dropped.
///
/// It is shared by threads only where a `T` is:
///
/// ```compile_fail,E0277
/// fn shared<T: Sync>(_: T) {}
/// let lock = std::sync::Arc::new(heirlock::local::RwLock::new(std::cell::Cell::new(1)));
/// shared(pollster::block_on(lock.write_owned()).unwrap());
/// ```
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct OwnedRwLockWriteGuard<T: ?Sized> {
    lock: Arc<RwLock<T>>,
    /// It is a `&mut T` in what it asks of threads.
    value: PhantomData<Box<T>>,
    held: Held,
}

impl<T: ?Sized> OwnedRwLockWriteGuard<T> {
    pub(super) fn new(lock: Arc<RwLock<T>>, held: Held) -> OwnedRwLockWriteGuard<T> {
        OwnedRwLockWriteGuard { lock, value: PhantomData, held }
    }

    /// As [`RwLockReadGuard::transfer_to`](super::RwLockReadGuard::transfer_to).
    pub fn transfer_to(&self, worker: &Worker) {
        self.lock.word.raw.transfer(worker);
    }
}

impl<T: ?Sized> Deref for OwnedRwLockWriteGuard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: a writer's guard exists for the lock's one holder only, and while it is borrowed shared, no `&mut` of the value can come from it.
        unsafe { self.lock.value().as_ref() }
    }
}

impl<T: ?Sized> DerefMut for OwnedRwLockWriteGuard<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: a writer's guard exists for the lock's one holder only, and it is borrowed exclusively.
        unsafe { self.lock.value().as_mut() }
    }
}

impl<T: ?Sized> Drop for OwnedRwLockWriteGuard<T> {
    fn drop(&mut self) {
        self.lock.word.release_write(self.held);
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for OwnedRwLockReadGuard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for OwnedRwLockWriteGuard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
